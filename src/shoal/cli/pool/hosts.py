"""`shoal hosts`: what each host did, over all its pilots."""

from __future__ import annotations

import click

from shoal.cli.output.describe import ago, holder
from shoal.cli.output.json_documents import iso_document
from shoal.cli.output.tables import print_json, print_table
from shoal.cli.session import Session, common_options
from shoal.model.quantities import show_duration


@click.command()
@common_options
def hosts(as_json: bool, server: str | None) -> None:
    """List the hosts: what each of them did, over all the pilots it ever had.

    \b
    Examples:
      shoal hosts
      shoal hosts --json
    """
    with Session(server).any_client("the list of hosts") as client:
        answer = client.hosts()
    if as_json:
        print_json(iso_document(answer))
        return
    head = ("host", "site", "for", "pilots now", "ever", "succeeded", "failed", "lost", "core time", "known", "seen")
    print_table(head, [
        (
            row["host"], row["site"], holder(row), row["living"], row["pilots"], row["succeeded"], row["failed"],
            row["lost"], show_duration(row["busy"]), ago(row["first"]), ago(row["seen"]),
        ) for row in answer["hosts"]
    ], "no hosts yet: `shoal pilot start` or `shoal join` brings one in")  # fmt: skip
