"""`shoal user add|list`, `shoal group add|list`: who may use the server, and who shares pilots."""

from __future__ import annotations

import click

from shoal.cli.output.describe import moment
from shoal.cli.output.tables import print_json, print_lines, table
from shoal.cli.session import Session, json_option, server_option
from shoal.model.people import ROLES, check_name
from shoal.report.source import Json


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
    "--role",
    type=click.Choice(ROLES),
    default=ROLES[0],
    show_default=True,
    help="user: own things; manager: also the group's; admin: everything.",
)
@json_option
@server_option
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
    with Session(server).shared_client() as client:
        answer = client.add_user(name, group or "", role)
    if as_json:
        print_json(answer)
        return
    click.echo(f"{name} is in: {role}" + (f", group {group}" if group else ""))
    click.echo(f"let them log in: shoal token new --user {name}")


@user.command("list")
@json_option
@server_option
def list_users(as_json: bool, server: str | None) -> None:
    """List the people you may see.

    \b
    Examples:
      shoal user list
    """
    with Session(server).shared_client() as client:
        answer = client.users()
    if as_json:
        print_json(answer)
        return
    print_lines(table(("user", "group", "role", "share", "since"), [
        (row["name"], row["group"] or "-", row["role"], row.get("share"), _since(row)) for row in answer["users"]
    ]))  # fmt: skip


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
@json_option
@server_option
def add_group(name: str, as_json: bool, server: str | None) -> None:
    """Add a group (administrators).

    \b
    Examples:
      shoal group add phys
    """
    check_name(name, "NAME")
    with Session(server).shared_client() as client:
        answer = client.add_group(name)
    if as_json:
        print_json(answer)
        return
    click.echo(f"group {name} is there; put people in: shoal user add anna --group {name}")
    click.echo(f"let a host run its tasks: shoal join --group {name}")


@group.command("list")
@json_option
@server_option
def list_groups(as_json: bool, server: str | None) -> None:
    """List the groups you may see.

    \b
    Examples:
      shoal group list
    """
    with Session(server).shared_client() as client:
        answer = client.groups()
    if as_json:
        print_json(answer)
    elif answer["groups"]:
        rows = [(row["name"], row.get("users"), row.get("share"), _since(row)) for row in answer["groups"]]
        print_lines(table(("group", "people", "share", "since"), rows))
    else:
        click.echo("no groups: add one with `shoal group add NAME`")


def holder(row: Json) -> str:
    """Whose something is: a person's, or a group's with an @ before it."""
    return f"@{row['group']}" if row.get("group") else row.get("owner") or "-"


def _since(row: Json) -> str:
    return moment(row["created"]) if row.get("created") else "-"
