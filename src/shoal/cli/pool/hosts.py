"""`shoal hosts`: what each host did, over all its pilots."""

from __future__ import annotations

import time

import click

from shoal.cli.output.describe import ago, holder
from shoal.cli.output.json_documents import iso_document
from shoal.cli.output.tables import print_json, print_lines, print_table, table
from shoal.cli.session import Session, common_options
from shoal.model.quantities import show_duration
from shoal.report.hosts import check_names, choose, parse_columns, values_of
from shoal.report.pilots import parse_where

NONE = "no hosts yet: `shoal pilot start` or `shoal join` brings one in"


@click.command()
@click.option("--where", metavar="EXPR", help="Only hosts for which this expression holds, e.g. 'failed > 10'.")
@click.option("--site", metavar="NAME", help="Only hosts of this site.")
@click.option("--columns", metavar="NAME,NAME", help="Show these instead of the usual columns.")
@common_options
def hosts(where: str | None, site: str | None, columns: str | None, as_json: bool, server: str | None) -> None:
    """List the hosts: what each of them did, over all the pilots it ever had.

    Names for --where and --columns: host, site, owner, group, pilots (now), pilots_ever, succeeded, failed, lost,
    core_seconds, known and seen (seconds ago).

    \b
    Examples:
      shoal hosts
      shoal hosts --site lab --where 'failed > succeeded'
      shoal hosts --where 'seen < 3600' --columns host,pilots,core_seconds
    """
    expr = parse_where(where) if where is not None else None
    if expr is not None:
        check_names(expr.tags, "--where")
    names = parse_columns(columns) if columns is not None else []
    with Session(server).any_client("the list of hosts") as client:
        answer = client.hosts()
    now, there = time.time(), bool(answer["hosts"])
    answer["hosts"] = choose(answer["hosts"], expr, site, now)
    if names:
        rows = [values_of(row, names, now) for row in answer["hosts"]]
        if as_json:
            print_json({"hosts": [dict(zip(names, row, strict=True)) for row in rows]})
        else:
            print_lines(table(names, rows))
        return
    if as_json:
        print_json(iso_document(answer))
        return
    head = ("host", "site", "for", "pilots now", "ever", "succeeded", "failed", "lost", "core time", "known", "seen")
    print_table(head, [
        (
            row["host"], row["site"], holder(row), row["living"], row["pilots"], row["succeeded"], row["failed"],
            row["lost"], show_duration(row["busy"]), ago(row["first"]), ago(row["seen"]),
        ) for row in answer["hosts"]
    ], "of the hosts there are, none fits" if there else NONE)  # fmt: skip
