"""`shoal audit`: who did what with which token."""

from __future__ import annotations

import click

from shoal.cli.output.describe import timestamp
from shoal.cli.output.json_documents import iso_document
from shoal.cli.output.tables import print_json, print_lines, table
from shoal.cli.session import Session, common_options, read_pages


@click.command()
@click.option("--token", metavar="ID", help="Only uses of this token.")
@click.option("--user", metavar="NAME", help="Only what this person did.")
@click.option("--limit", type=click.IntRange(0), default=50, show_default=True, metavar="N", help="Rows; 0: all.")
@common_options
def audit(token: str | None, user: str | None, limit: int, as_json: bool, server: str | None) -> None:
    """Who did what, newest first (administrators). Reads and beats of a minute are counted in one row.

    \b
    Examples:
      shoal audit
      shoal audit --user anna --limit 200
      shoal audit --token t3f9c01 --json
    """
    with Session(server).shared_client() as client:
        rows, before = read_pages(lambda n, start: client.audit(n, start, token or "", user or ""), "audit", limit)
    if as_json:
        print_json(iso_document({"audit": rows, "next": before}))
        return
    print_lines(table(("time", "user", "token", "from", "what", "about", "outcome", "times"), [
        (
            timestamp(row["time"]), row["owner"] or "-",
            row["token"] or "-", row["address"] or "-", row["what"], row["about"] or "-", row["outcome"], row["times"],
        ) for row in rows
    ]))  # fmt: skip
    if before is not None:
        click.echo(f"older rows are left out: shoal audit --limit {len(rows) * 5}")
