"""`shoal user add|list`: people who may use the server."""

from __future__ import annotations

import click

from shoal.cli.output.describe import since
from shoal.cli.output.json_documents import iso_document
from shoal.cli.output.tables import print_answer, table
from shoal.cli.session import Session, common_options
from shoal.model.people import ROLES, check_name


@click.group()
def user() -> None:
    """Add people to the server, or list them.

    \b
    Examples:
      shoal user add anna --group phys
      shoal user list
    """


@user.command("add")
@click.argument("name", metavar="NAME")
@click.option("--group", metavar="G", help="The group they share pilots with; it must exist.")
@click.option(
    "--role", type=click.Choice(ROLES), default=ROLES[0], show_default=True,
    help="user: own things; manager: also the group's; admin: everything.",
)  # fmt: skip
@common_options
def add_user(name: str, group: str | None, role: str, as_json: bool, server: str | None) -> None:
    """Add a person, or change the group and role of one (administrators).

    \b
    Examples:
      shoal user add anna
      shoal user add ben --group phys --role manager
    """
    check_name(name, "NAME")
    if group is not None:
        check_name(group, "--group")
    with Session(server, changes=True).shared_client() as client:
        answer = client.add_user(name, group or "", role)
    added = f"{name} is in: {role}" + (f", group {group}" if group else "")
    print_answer(answer, as_json, added, f"let them log in: shoal token new --user {name}")


@user.command("list")
@common_options
def list_users(as_json: bool, server: str | None) -> None:
    """List the people you may see.

    \b
    Examples:
      shoal user list
    """
    with Session(server).shared_client() as client:
        answer = client.users()
    rows = [(row["name"], row["group"] or "-", row["role"], row.get("share"), since(row)) for row in answer["users"]]
    print_answer(iso_document(answer), as_json, *table(("user", "group", "role", "share", "since"), rows))
