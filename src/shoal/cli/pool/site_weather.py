"""`shoal site weather`: how sites did, by the journal, and how they do and are expected to do, by the running server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click

from shoal.cli.output.charts import chart, shows_blocks
from shoal.cli.output.json_documents import iso_document
from shoal.cli.output.tables import clean, print_json, print_table
from shoal.cli.session import Session, common_options, say
from shoal.model.errors import NotFound, echo
from shoal.model.quantities import show_duration, show_size

Json = dict[str, Any]
BARS = 24  # observations that a line of the history shows
TOLD: dict[str, tuple[str, Callable[[float], str]]] = {  # quantity -> what it is called, and how it is written
    "waiting": ("pilots that wait", "{:.3g}".format),
    "running": ("cores that run tasks", "{:.3g}".format),
    "free": ("free cores of ours", "{:.3g}".format),
    "free_slots": ("free slots of the batch system", "{:.3g}".format),
    "start_delay": ("wait of a pilot in the queue", lambda value: show_duration(value)),
    "speed": ("speed, by tasks of one kind", "{:.2f}".format),
    "bandwidth": ("bandwidth to the server", lambda value: f"{show_size(int(value))}/s"),
    "round_trip": ("round trip to the server", lambda value: f"{1e3 * value:.3g} ms"),
    "storage": ("free storage", lambda value: show_size(int(value))),
    "failure": ("attempts that fail", lambda value: f"{100.0 * value:.3g} %"),
}
NAMED = ("waiting", "running", "free", "start_delay", "failure")  # columns of the table of all sites


@click.command("weather")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@common_options
def weather(names: tuple[str, ...], as_json: bool, server: str | None) -> None:
    """How sites did lately, how they do, and what is expected of them.

    The first table is from the journal: allocations, their waits and ends. The second is of the running server: what is
    seen each minute, and for a named site also the forecast of each quantity with the interval in which 80 % of what
    comes is expected, and how such forecasts did before.

    \b
    Examples:
      shoal site weather
      shoal site weather hpc
      shoal site weather hpc --json
    """
    from shoal.report.hosts import read_weather

    session = Session(server)
    with session.source() as source:
        found = read_weather(source)
    seen: dict[str, Json] = {}
    client = session.running()
    if client is not None:
        with client:
            seen = client.weather()["sites"]
    unknown = [name for name in names if name not in found and name not in seen]
    if unknown:
        raise NotFound(f"nothing is known of {echo(unknown[0])!r}", code="unknown_site", hint="see `shoal site list`")
    rows = [row for name, row in sorted(found.items()) if not names or name in names]
    seen = {name: one for name, one in sorted(seen.items()) if (not names or name in names) and one}
    if as_json:
        print_json(iso_document({"sites": [row._asdict() for row in rows], "weather": seen}))
        return
    table = [
        (
            row.site, row.submitted, row.started, row.ended, show_duration(row.wait) if row.wait is not None else "-",
            f"{row.core_hours:.1f}", clean(row.last_reason or "-"),
        )
        for row in rows
    ]  # fmt: skip
    head = ("site", "submitted", "started", "ended", "median wait", "core hours", "last end")
    if table or not seen:
        print_table(head, table, "no allocation was ever submitted")
    if not seen:
        return
    say("")
    if names:
        for name, one in seen.items():
            print_table((clean(name), "now", "expected", "80 % between", "forecasts", "held", "lately"),
                        list(_quantities(one)), "")  # fmt: skip
    else:
        cells = [(clean(name), *(_cell(one, what) for what in NAMED)) for name, one in seen.items()]
        print_table(("site now", "waiting", "running", "free", "wait", "failures"), cells, "")


def _cell(one: Json, what: str) -> str:
    return TOLD[what][1](one[what]["value"]) if what in one else "-"


def _quantities(one: Json) -> Iterator[tuple[object, ...]]:
    for what, found in one.items():
        if what not in TOLD:  # of a newer server
            continue
        name, show = TOLD[what]
        said, score = found["forecast"], found["score"]
        between = f"{show(said['low'])} and {show(said['high'])}"
        held = f"{100.0 * score['inside']:.0f} %" if score is not None else "-"
        values = [value for _, value in found["history"]][-BARS:]
        yield (name, show(found["value"]), show(said["value"]), between, score["compared"] if score is not None else 0,
               held, chart(values, 1, max(values), shows_blocks())[0])  # fmt: skip
