"""`shoal audit`: who did what with which token."""

from __future__ import annotations

import time
from typing import Any

import click

from shoal.cli.output.tables import print_json, print_lines, table
from shoal.cli.session import Session, json_option, server_option
from shoal.model.limits import MAX_PAGE


@click.command()
@click.option("--token", metavar="ID", help="Only uses of this token.")
@click.option("--user", metavar="NAME", help="Only what this person did.")
@click.option("--limit", type=click.IntRange(0), default=50, show_default=True, metavar="N", help="Rows; 0: all.")
@json_option
@server_option
def audit(token: str | None, user: str | None, limit: int, as_json: bool, server: str | None) -> None:
    """Who did what, newest first (administrators). Reads and beats of a minute are counted in one row.

    \b
    Examples:
      shoal audit
      shoal audit --user anna --limit 200
      shoal audit --token t3f9c01 --json
    """
    rows: list[dict[str, Any]] = []
    before: int | None = None
    with Session(server).shared_client() as client:
        while True:
            size = min(MAX_PAGE, limit - len(rows)) if limit else MAX_PAGE
            page = client.audit(size, before, token or "", user or "")
            rows += page["audit"]
            before = page["next"]
            if before is None or (limit and len(rows) >= limit):
                break
    if as_json:
        print_json({"audit": rows, "next": before})
        return
    print_lines(table(("time", "user", "token", "from", "what", "about", "outcome", "times"), [
        (
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["time"])), row["owner"] or "-",
            row["token"] or "-", row["address"] or "-", row["what"], row["about"] or "-", row["outcome"], row["times"],
        ) for row in rows
    ]))  # fmt: skip
    if before is not None:
        click.echo(f"older rows are left out: shoal audit --limit {len(rows) * 5}")
