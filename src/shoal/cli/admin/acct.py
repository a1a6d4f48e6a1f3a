"""`shoal acct`: core hours by owner, site, host, pilot, run and day [GWP G12]. Works with a server and without one."""

from __future__ import annotations

import csv
import math
import sys
import time
from datetime import UTC, datetime

import click

from shoal.cli.output.json_documents import iso_time
from shoal.cli.output.tables import print_json, print_lines, table
from shoal.cli.session import Session, common_options
from shoal.model.errors import BadInput, echo
from shoal.model.quantities import parse_duration, show_duration
from shoal.report.acct import COLUMNS, SPENT, account
from shoal.report.data_source import Json

_HOURS = (*SPENT, "idle")
_UNITS = {**dict.fromkeys(_HOURS, "core_hours"), "queue": "mean_s", "transfer": "s"}  # of columns, for CSV


@click.command()
@click.option(
    "--by", default="owner", show_default=True, metavar="WORDS", help="owner, site, host, pilot, run, day: any."
)
@click.option("--since", metavar="TIME", help="From so long ago (7d, 12h) or from a date (UTC) on [default: all kept].")
@click.option("--until", metavar="TIME", help="To so long ago or to a date (UTC) [default: now].")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values, with a header.")
@common_options
def acct(by: str, since: str | None, until: str | None, as_csv: bool, as_json: bool, server: str | None) -> None:
    """Where the core hours went: useful, failed, lost with a pilot, duplicated, idle.

    Attempts count for the hour in which they ended. Idle is what pilots offered and nobody used: known by site, host,
    pilot and day, but not by owner and run. Efficiency is the useful part of it all.

    \b
    Examples:
      shoal acct
      shoal acct --by site,day --since 7d
      shoal acct --by owner,site --since 2026-11-01 --until 2026-12-01 --csv > november.csv
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json together (give one of them)")
    now = time.time()
    low = parse_moment(since, "--since", now) if since is not None else 0.0
    high = parse_moment(until, "--until", now) if until is not None else None
    if high is not None and high <= low:
        raise BadInput("--until is before --since", code="range", field="--until", hint="swap them")
    with Session(server).source() as source:
        found = account(source, by, low, high)
    if as_json:
        print_json({**found, **{name: iso_time(found[name]) for name in ("since", "until")}})
    elif as_csv:
        _write_csv(found)
    elif not found["rows"]:
        click.echo(
            "nothing ended in that time" if since or until else "nothing ended yet, so there is nothing to account"
        )
    else:
        _print(found)


def parse_moment(text: str, field: str, now: float) -> float:
    """A time from `7d` (so long ago), `2026-11-01` or `2026-11-01T08:00` (UTC, or with an offset)."""
    try:
        return max(0.0, now - parse_duration(text, field))
    except BadInput:
        pass
    try:
        found = datetime.fromisoformat(text.strip())
        moment = (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise BadInput(
            f"{echo(text)!r} is not a time", code="bad_time", field=field,
            hint='write "7d" or "12h" for so long ago, or a date such as 2026-11-01 or 2026-11-01T08:00 (UTC)',
        ) from None  # fmt: skip
    return max(0.0, moment)


def _write_csv(found: Json) -> None:
    """The rows without their total, which would be counted twice in a spreadsheet."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([*found["by"], *(f"{name}_{_UNITS[name]}" if name in _UNITS else name for name in COLUMNS)])
    for row in found["rows"]:
        numbers = (row[name] for name in COLUMNS)
        writer.writerow(
            [*(row[name] for name in found["by"]), *(round(n, 6) if isinstance(n, float) else n for n in numbers)]
        )


def _print(found: Json) -> None:
    keys: list[str] = found["by"]
    columns = [name for name in COLUMNS if name != "idle" or found["total"]["idle"] is not None]
    total = {**dict.fromkeys(keys, ""), keys[0]: "total", **found["total"]}
    since = datetime.fromtimestamp(found["since"], UTC)
    click.echo("core hours" + (f" since {since:%Y-%m-%d %H:%M} UTC" if found["since"] > 0 else ""))
    head = [*keys, *("efficiency %" if name == "efficiency" else name for name in columns)]
    rows = [*found["rows"], total]
    print_lines(table(head, [[*(row[key] for key in keys), *(_shown(row, name) for name in columns)] for row in rows]))


def _shown(row: Json, name: str) -> object:
    value = row[name]
    if value is None or name == "tasks":
        return value
    if name in ("queue", "transfer"):
        return show_duration(value)
    return sensible(100 * value if name == "efficiency" else value)


def sensible(number: float) -> float:
    """Three digits of a small number, the whole part of a large one; below a third of a second nothing is left."""
    if number <= 0:
        return 0
    digits = 2 - math.floor(math.log10(number))
    return round(number) if digits <= 0 else round(number, min(digits, 4))
