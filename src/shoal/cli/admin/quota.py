"""`shoal quota list|set|drop`: limits for people, groups and sites in windows of time, and what of them is used
[SPHINX S4]."""

from __future__ import annotations

import math
from typing import Any

import click

from shoal.cli.admin.policy import Json, change_policy, client_of, print_changes
from shoal.cli.output.describe import until
from shoal.cli.output.tables import print_json, print_table
from shoal.cli.session import common_options
from shoal.cli.tasks.options import options
from shoal.model.errors import BadInput, NotFound, echo
from shoal.model.policy import ALWAYS, Rule
from shoal.model.quantities import parse_size, show_size
from shoal.wire.policy import parse_policy

NONE = "none"  # removes a limit
_SCOPE = options(
    click.option("--who", required=True, metavar="W", help='A user, "@group", or "*" for everybody together.'),
    click.option("--site", default="*", metavar="S", help="A site with those inside it [default: all]."),
    click.option("--when", default=ALWAYS, metavar="WHEN", help='day, week, month or "mon-fri 08-18", UTC [default: always].'),
)  # fmt: skip


@click.group()
def quota() -> None:
    """List limits and what of them is used, or change them.

    A rule counts everything of the people and sites that it covers together; all rules must allow a start.

    \b
    Examples:
      shoal quota list
      shoal quota set --who @phys --cores 100
      shoal quota set --who anna --when month --core-hours 5000
      shoal quota drop --who @phys
    """


@quota.command("list")
@click.option("--who", metavar="W", help='Only rules for this user, "@group" or "*".')
@common_options
def list_quotas(who: str | None, as_json: bool, server: str | None) -> None:
    """List the limits that concern you, each with what is used now and when it ends or begins anew.

    \b
    Examples:
      shoal quota list
      shoal quota list --who @phys
    """
    if who is not None:
        _check(who, "*", ALWAYS)
    with client_of(server) as client:
        rows = [row for row in client.policy()["quotas"] if who in (None, row["who"])]
    if as_json:
        print_json({"quotas": rows})
        return
    none = "no limits" + (f" for {who}" if who else "") + ": set one with `shoal quota set --who W --cores N`"
    print_table(("who", "site", "when", "limit", "used", "of", "lifted"), [_row(row) for row in rows], none)


def _row(row: Json) -> tuple[object, ...]:
    lifted = until(row["lifted"]) if row["lifted"] is not None else "-" if row["open"] else "not now"
    used, limit = (_amount(row["kind"], row[name]) for name in ("used", "limit"))
    return row["who"], row["site"], row["when"], row["kind"].replace("_", "-"), used, limit, lifted


def _amount(kind: str, value: float) -> str:
    return show_size(value) if kind == "stored" else f"{value:.4g}" if kind == "core_hours" else f"{value:,.0f}"


@quota.command("set")
@_SCOPE
@click.option("--cores", metavar="N", help="Cores that may run at once.")
@click.option("--core-hours", metavar="H", help="Core hours in one window.")
@click.option("--queued", metavar="N", help="Tasks that may wait or run.")
@click.option("--stored", metavar="SIZE", help="Bytes of blobs that may be kept, e.g. 100G.")
@click.option("--share", metavar="F", help="Part of the cores there that may run, 0 to 1.")
@common_options
def set_quota(who: str, site: str, when: str, as_json: bool, server: str | None, **given: str | None) -> None:
    """Set limits for somebody somewhere (administrators); `none` takes one away, the others stay as they are.

    A limit below what runs already stops nothing, and nothing new starts.

    \b
    Examples:
      shoal quota set --who anna --cores 20 --queued 100000
      shoal quota set --who '*' --site eu --when 'mon-fri 08-18' --share 0.5
      shoal quota set --who anna --cores none
    """
    limits = {name: _parse_limit(name, text) for name, text in given.items() if text is not None}
    if not limits:
        raise click.UsageError("there is no limit (give --cores, --core-hours, --queued, --stored or --share)")
    scope = _check(who, site, when, {name: value for name, value in limits.items() if value is not None})

    def change(document: Json) -> Json:
        rules = [dict(rule) for rule in document["quota"]]
        rule = next((rule for rule in rules if _scope_of(rule) == scope), None)
        if rule is None:
            rule = dict(zip(("who", "site", "when"), scope, strict=True))
            rules.append(rule)
        for name, value in limits.items():
            rule.pop(name, None)
            rule.update({name: value} if value is not None else {})
        return {**document, "quota": [rule for rule in rules if len(rule) > len(scope)]}

    with client_of(server, changes=True) as client:
        changed = change_policy(client, change)
    print_changes(changed, as_json)


@quota.command("drop")
@_SCOPE
@common_options
def drop_quota(who: str, site: str, when: str, as_json: bool, server: str | None) -> None:
    """Take away all limits for somebody somewhere (administrators).

    \b
    Examples:
      shoal quota drop --who anna
      shoal quota drop --who '*' --site eu --when 'mon-fri 08-18'
    """
    scope = _check(who, site, when)

    def change(document: Json) -> Json:
        kept = [rule for rule in document["quota"] if _scope_of(rule) != scope]
        if len(kept) == len(document["quota"]):
            where = Rule(*scope).describe()
            raise NotFound(f"there is no quota of {echo(where)}", code="unknown_quota", hint="see `shoal quota list`")
        return {**document, "quota": kept}

    with client_of(server, changes=True) as client:
        changed = change_policy(client, change)
    print_changes(changed, as_json)


def _check(who: str, site: str, when: str, limits: Json | None = None) -> tuple[str, str, str]:
    """Check a rule as the server does; returns who, where and when it is for, in the document's form."""
    rule = {"who": who, "site": site, "when": when, **(limits or {"cores": 0})}
    try:
        (found,) = parse_policy({"quota": [rule]}).quotas
    except BadInput as error:
        option = "--" + error.field.rpartition(".")[2].replace("_", "-") if "." in error.field else ""
        raise BadInput(error.message, code=error.code, field=option, hint=error.hint) from None
    return found.who, found.site, found.when


def _scope_of(rule: Json) -> tuple[Any, Any, Any]:
    return rule.get("who", "*"), rule.get("site", "*"), rule.get("when", ALWAYS)


def _parse_limit(name: str, text: str) -> float | None:
    """A limit as it was typed; None removes it."""
    field = f"--{name.replace('_', '-')}"
    if text == NONE:
        return None
    if name == "stored":
        return 0 if text == "0" else parse_size(text, field)
    if name in ("cores", "queued"):
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise BadInput(f"{echo(text)!r} is not a number", code="range", field=field, hint="a whole number, or none")
        return int(text)
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise BadInput(f"{echo(text)!r} is not a number", code="range", field=field, hint="e.g. 0.5, 100, or none")
    return found
