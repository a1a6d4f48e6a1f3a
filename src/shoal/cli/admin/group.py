"""`shoal group add|list`: groups of people who share pilots."""

from __future__ import annotations

import click

from shoal.cli.output.describe import since
from shoal.cli.output.json_documents import iso_document
from shoal.cli.output.tables import print_answer, print_json, print_table
from shoal.cli.session import Session, common_options
from shoal.model.people import check_name


@click.group()
def group() -> None:
    """Add groups of people who share pilots, or list them.

    \b
    Examples:
      shoal group add phys
      shoal group list
    """


@group.command("add")
@click.argument("name", metavar="NAME")
@common_options
def add_group(name: str, as_json: bool, server: str | None) -> None:
    """Add a group (administrators).

    \b
    Examples:
      shoal group add phys
    """
    check_name(name, "NAME")
    with Session(server, changes=True).shared_client() as client:
        answer = client.add_group(name)
    added = f"group {name} is there; put people in: shoal user add anna --group {name}"
    print_answer(answer, as_json, added, f"let a host run its tasks: shoal join --group {name}")


@group.command("list")
@common_options
def list_groups(as_json: bool, server: str | None) -> None:
    """List the groups you may see.

    \b
    Examples:
      shoal group list
    """
    with Session(server).shared_client() as client:
        answer = client.groups()
    if as_json:
        print_json(iso_document(answer))
        return
    rows = [(row["name"], row.get("users"), row.get("share"), since(row)) for row in answer["groups"]]
    print_table(("group", "people", "share", "since"), rows, "no groups: add one with `shoal group add NAME`")
