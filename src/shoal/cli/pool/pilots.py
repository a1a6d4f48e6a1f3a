"""`shoal pilots`: list the pilots. Works with a server and without one."""

from __future__ import annotations

import time

import click

from shoal.cli.output.json_documents import iso_document
from shoal.cli.output.tables import clean, print_json, print_lines, print_table, table
from shoal.cli.session import Session, common_options, say
from shoal.model.errors import echo
from shoal.model.quantities import show_duration, show_size
from shoal.model.states import PilotState
from shoal.report.data_source import Json
from shoal.report.pilots import choose, parse_columns, parse_where, unknown_notes, value_of
from shoal.wire.did_you_mean import did_you_mean


@click.command()
@click.option("--state", help="Only pilots in this state: idle, busy, draining, gone [default: all but gone].")
@click.option("--all", "show_all", is_flag=True, help="Also those that are gone.")
@click.option("--where", metavar="EXPR", help="Only pilots for which this expression over their tags holds.")
@click.option("--columns", metavar="TAG,TAG", help="Show these tags of each pilot instead of the usual columns.")
@common_options
def pilots(
    state: str | None, show_all: bool, where: str | None, columns: str | None, as_json: bool, server: str | None
) -> None:
    """List the pilots: where they are, what they offer, what they do.

    \b
    Examples:
      shoal pilots
      shoal pilots --state idle --json
      shoal pilots --where 'cores >= 8 and site in ["a", "b"]'
      shoal pilots --columns site,cpu,load
    """
    known = [each.value for each in PilotState]
    if state is not None and state not in known:
        raise click.UsageError(f"{clean(echo(state))!r} is not a state of a pilot ({did_you_mean(state, known)})")
    expr = parse_where(where) if where is not None else None
    names = parse_columns(columns) if columns is not None else []
    session = Session(server)
    with session.source() as source:
        rows = source.pilots(state or "")["pilots"]
    if state is None and not show_all:
        rows = [row for row in rows if row["state"] != "gone"]
    there, now = bool(rows), time.time()
    if expr is not None or names:
        for note in unknown_notes(rows, expr, names, now):
            say(note)
        chosen = choose(rows, expr, now)
        rows = [pilot.row for pilot in chosen]
        if names:
            _print_tags(names, [pilot.facts for pilot in chosen], as_json)
            return
    if as_json:
        print_json(iso_document({"pilots": rows}))
        return
    none = "no pilots, so nothing runs: start one with `shoal pilot start`"
    if session.is_embedded:
        none = "no pilots: the embedded server starts one when there is work, `shoal pilot start` adds one"
    if there:
        none = f"of the pilots there are, none fits {clean(echo(where))}"
    print_table(("pilot", "state", "host", "site", "cores", "memory", "age", "note"), [
        (
            row["pilot"], _marked(row), row["host"], row["site"], row["cores"],
            show_size(row["memory"]) if row["memory"] else "-", show_duration(max(0.0, now - row["joined"])),
            _note(row, now),
        ) for row in rows
    ], none)  # fmt: skip


def _marked(row: Json) -> str:
    """The state of a pilot, with what keeps it from getting tasks."""
    marks = [mark for mark, is_so in (("banned", row.get("banned")), ("silent", row.get("suspect"))) if is_so]
    return " ".join([str(row["state"]), *marks])


def _note(row: Json, now: float) -> str:
    """Why a pilot ends, gets no tasks, or is silent."""
    notes = [row["reason"]] if row.get("reason") else []
    if row.get("banned"):
        until = row.get("banned_until")
        left = f"for {show_duration(max(0.0, until - now))}" if until is not None else "until its trial is over"
        notes.append(f"banned {left} ({row['banned']})")
    if row.get("suspect"):
        notes.append(f"silent for {show_duration(max(0.0, now - row['seen']))}")
    return "; ".join(notes) or "-"


def _print_tags(names: list[str], facts: list[Json], as_json: bool) -> None:
    """Print the chosen tags of pilots; a tag that a pilot does not have is null."""
    rows = [[value_of(found, name) for name in names] for found in facts]
    if as_json:
        print_json({"pilots": [dict(zip(names, row, strict=True)) for row in rows]})
    else:
        print_lines(table(names, rows))
