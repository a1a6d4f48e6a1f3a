"""`shoal share list|set`: the shares of people and groups."""

from __future__ import annotations

import math
from typing import Any

import click

from shoal.cli.admin.policy import client_of, print_changes
from shoal.cli.output.tables import print_json, print_lines, table
from shoal.cli.session import common_options
from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_SHARE
from shoal.wire.policy import parse_policy

HOUR = 3_600.0


@click.group()
def share() -> None:
    """List what is due to people and groups, or change it.

    Among those with work, cores are divided by share and by what each has used lately. Who is not named has a share
    of 1; a share of 0 runs when nobody else can use the slot.

    \b
    Examples:
      shoal share list
      shoal share set anna 2
    """


@share.command("list")
@common_options
def list_shares(as_json: bool, server: str | None) -> None:
    """List the shares you may see: what part of the cores is due now, what is used, and use as it weighs.

    \b
    Examples:
      shoal share list
      shoal share list --json
    """
    with client_of(server) as client:
        found = client.shares()
    if as_json:
        print_json(found)
        return
    rows = [(f"@{row['group']}", None, row) for row in found["groups"]]
    rows += [(row["owner"], row["group"] or None, row) for row in found["shares"]]
    head = ("who", "group", "share", "due %", "used %", "core hours", "cores", "tasks")
    print_lines(table(head, [(who, group, *_numbers(row)) for who, group, row in rows]))


def _numbers(row: dict[str, Any]) -> tuple[object, ...]:
    due = None if row["due"] is None else round(100 * row["due"], 1)
    return row["share"], due, round(100 * row["used"], 1), round(row["usage"] / HOUR, 2), row["cores"], row["queued"]


@share.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("who", metavar="NAME|@GROUP")
@click.argument("number", metavar="NUMBER")
@common_options
def set_share(who: str, number: str, as_json: bool, server: str | None) -> None:
    """Change a share: managers for the members of their group and the groups below it, administrators for everybody.

    \b
    Examples:
      shoal share set anna 2
      shoal share set @phys 3
      shoal share set ben 0       runs only when nobody else can use the slot
    """
    value = parse_share(number)
    parse_policy({"share": {who: value}})  # refuses invalid names before anything is sent
    with client_of(server, changes=True) as client:
        changed = client.set_shares({who: value})
    print_changes(changed, as_json)


def parse_share(text: str) -> float:
    """A share from what was typed [input E74]."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found <= MAX_SHARE:
        hint = f"a number from 0 to {MAX_SHARE:g}; 0 runs when nobody else can"
        raise BadInput(f"{echo(text)!r} is not a share", code="range", field="NUMBER", hint=hint)
    return found
