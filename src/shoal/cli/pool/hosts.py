"""`shoal hosts`: what each host did, over all its pilots."""

from __future__ import annotations

import time

import click

from shoal.cli.output.describe import holder
from shoal.cli.output.tables import print_json, print_lines, table
from shoal.cli.session import Session, json_option, server_option
from shoal.model.quantities import show_duration


@click.command()
@json_option
@server_option
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
        print_json(answer)
        return
    if not answer["hosts"]:
        click.echo("no hosts yet: `shoal pilot start` or `shoal join` brings one in")
        return
    now = time.time()
    head = ("host", "site", "for", "pilots now", "ever", "succeeded", "failed", "lost", "core time", "known", "seen")
    print_lines(table(head, [
        (
            row["host"], row["site"], holder(row), row["living"], row["pilots"], row["succeeded"], row["failed"],
            row["lost"], show_duration(row["busy"]), _ago(now, row["first"]), _ago(now, row["seen"]),
        ) for row in answer["hosts"]
    ]))  # fmt: skip


def _ago(now: float, then: float) -> str:
    return f"{show_duration(max(0.0, now - then))} ago"
