"""Writes the figures of the last complete measurement into docs/benchmarks.md, between its two marks.

    python -m bench.peers.table [--rows FILE] [--show] [--last]

What has not been measured yet is "not yet run", what a system cannot do is a dash, and what took too long is "> 100 s".
`--show` prints it and leaves the page as it is. `--last` takes the run that ended last, and prints it if it was a trial.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.figures import number, number_beside, put_between, spread, verdict
from bench.peers.install import ROOT
from bench.peers.measure import NOT_INSTALLED, OUT, SYSTEMS, TOO_LONG, TRIAL
from bench.peers.results import ROUND_TRIP, Results, read
from bench.peers.system import LONG, SHORT, System

PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures: written by bench/peers/table.py -->", "<!-- end of figures -->"
BASELINES = ("pool", "spawn")
OURS = "shoal"
NOT_YET, CANNOT = "not yet run", "–"
DURABLE = {"shoal": "yes", "pool": CANNOT, "spawn": CANNOT}

Values = Callable[[Results, str], list[float]]


@dataclass(frozen=True)
class Column:
    """A column: its head, the measure that it comes from, its values by round, and which of them are good."""

    head: str
    measure: str
    values: Values
    is_more_better: bool = False
    more: tuple[str, Values] | None = None  # a second figure of the same kind that only some systems have


def figure(metric: str) -> Values:
    """A figure as it was measured."""
    return lambda results, system: results.of(f"{system}.{metric}")


def ratio(upper: str, lower: str) -> Values:
    """One figure over another, round by round."""
    return lambda results, system: results.ratios(f"{system}.{upper}", [f"{system}.{lower}"])


def memory(results: Results, system: str) -> list[float]:
    """The server's memory and the client's, where that is another process."""
    client = results.values.get(f"{system}.long_queue_memory_client_mb", {})
    server = results.values.get(f"{system}.long_queue_memory_mb", {})
    return [value + client.get(at, 0.0) for at, value in server.items()]


COLUMNS = (
    Column("functions/s", "functions", figure("functions_per_s"), True),
    Column("commands/s", "commands", figure("commands_per_s"), True),
    Column("round trip of a call, p50 ms", "round_trip", figure("round_trip_p50_ms")),
    Column("round trip of a command, p50 ms", "round_trip_command", figure("round_trip_command_p50_ms")),
    Column("cold start, s", "cold_start", figure("cold_start_s"), more=("a call", figure("cold_start_call_s"))),
    Column(
        f"memory of server and client, MB ({LONG:,} queued)",
        "long_queue",
        memory,
        more=("commands, server alone", figure("long_queue_commands_memory_mb")),
    ),
    Column(
        f"long queue, tasks/s ({LONG:,} queued)",
        "long_queue",
        figure("long_queue_per_s"),
        True,
        more=("commands", figure("long_queue_commands_per_s")),
    ),
    Column(
        f"the same over {SHORT:,} queued",
        "long_queue",
        ratio("long_queue_per_s", "short_queue_per_s"),
        True,
        more=("commands", ratio("long_queue_commands_per_s", "short_queue_commands_per_s")),
    ),
)
NO_CONTEST = COLUMNS[-1]  # what is left around 1.0 is noise


def first_of(column: Column, results: Results) -> System | None:
    """The system with the best median of a column; None where nothing was measured, or where there is no contest."""
    found = {s.name: column.values(results, s.name) for s in SYSTEMS if s.name not in BASELINES}
    medians = {name: statistics.median(values) for name, values in found.items() if values}
    if not medians or column is NO_CONTEST:
        return None
    best = (max if column.is_more_better else min)(medians, key=lambda name: medians[name])
    return next(system for system in SYSTEMS if system.name == best)


def with_rounds(values: Sequence[float], results: Results) -> str:
    """Median, least and most, and of how many rounds if not of all."""
    text = spread(values)
    return text if len(values) == results.rounds else f"{text}, {len(values)} of {results.rounds} rounds"


def of_other_count(column: Column, system: System) -> str:
    """How many tasks a figure is of, where it is not the number that Shoal has."""
    ours, theirs = (one.case(column.measure) for one in (next(s for s in SYSTEMS if s.name == OURS), system))
    return f", of {theirs.count:,}" if ours and theirs and ours.count != theirs.count else ""


def reason(column: Column, system: System, results: Results) -> str:
    """What stands in a cell that has no figure."""
    problem = results.problems.get(f"{system.name}.{column.measure}", "")
    if problem:
        return f"> {results.limit:.0f} s" if problem.startswith(TOO_LONG) else "failed"
    if results.versions.get(system.name) == NOT_INSTALLED:
        return NOT_INSTALLED
    return CANNOT if column.values is memory and system.name in BASELINES else NOT_YET


def cell(column: Column, system: System, results: Results, first: System | None) -> str:
    """One cell; the best of a column in bold."""
    if system.case(column.measure) is None:
        return CANNOT
    values = column.values(results, system.name)
    if not values:
        return reason(column, system, results)
    text = with_rounds(values, results) + of_other_count(column, system)
    text = f"**{text}**" if first is system else text
    more = column.more[1](results, system.name) if column.more else []
    return f"{text}; {column.more[0]}: {with_rounds(more, results)}" if column.more and more else text


def comparison(results: Results) -> list[str]:
    """The table that one looks at: a line per system."""
    heads = ["", *(column.head for column in COLUMNS), "durable"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    firsts = [first_of(column, results) for column in COLUMNS]
    for system in SYSTEMS:
        version = results.versions.get(system.name, "")
        is_told = system.name not in BASELINES and version[:1].isdecimal()
        cells = [cell(column, system, results, first) for column, first in zip(COLUMNS, firsts, strict=True)]
        title = f"{system.title} {version}" if is_told else system.title
        lines.append(f"| {' | '.join([title, *cells, DURABLE.get(system.name, 'no')])} |")
    return lines


def places(results: Results) -> list[str]:
    """Where Shoal is first, and who is where it is not."""
    ahead: list[str] = []
    behind: list[str] = []
    for column in COLUMNS:
        first = first_of(column, results)
        if first is not None:
            head = column.head.partition(",")[0]
            (ahead if first.name == OURS else behind).append(
                head if first.name == OURS else f"{head} ({first.title} is)"
            )
    lines = [f"Shoal is first in: {', '.join(ahead) or 'nothing'}."]
    return [*lines, f"It is not first in: {', '.join(behind)}."] if behind else lines


def round_trip(results: Results) -> str:
    """The one ratio that was asked for."""
    values = results.round_trip_ratios()
    text = spread(values, lambda value: number_beside(ROUND_TRIP.bound, value)) if values else "missing"
    return f"`{ROUND_TRIP.name}` ({ROUND_TRIP.what}): {text}; asked {ROUND_TRIP.asked}; holds: {verdict(ROUND_TRIP, values)}."


def every_figure(results: Results) -> list[str]:
    """All figures, with how they came about, and what gave none."""
    lines = ["| name | median (least to most) | unit | rounds | how |", "|---|---|---|---|---|"]
    for name in sorted({*results.values, *results.problems}):
        if name in results.problems:
            lines.append(f"| `{name}` | none | | | {results.problems[name].replace('|', '/')} |")
        if name in results.values:
            values, how = results.of(name), results.note(name).replace("|", "/")
            lines.append(f"| `{name}` | {spread(values)} | {results.units[name]} | {len(values)} | {how} |")
    return lines


def render(results: Results) -> str:
    """Everything between the marks."""
    took = "the run was broken off" if results.seconds is None else f"{number(results.seconds / 60)} minutes in all"
    scale = "" if results.scale == 1.0 else f" A trial with {results.scale:g} of the tasks: its figures mean nothing."
    lines = [f"{results.provenance} {results.rounds} rounds, {took}.{scale}", "", *comparison(results), ""]
    lines += ["Medians, in brackets the least and the most of the rounds. In bold: the best of a column (the first two"]
    lines += ["lines are not in the contest).", "", *places(results), "", round_trip(results)]
    return "\n".join([*lines, "", "### Every figure", "", *every_figure(results)])


def is_newer(one: Path, other: Path) -> bool:
    """True if the first file was written later, or is the only one."""
    return one.exists() and (not other.exists() or one.stat().st_mtime > other.stat().st_mtime)


def main() -> int:
    """Read the rows, rewrite the page."""
    parser = argparse.ArgumentParser(description="Write the figures into docs/benchmarks.md.")
    parser.add_argument("--rows", type=Path, default=OUT)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--show", action="store_true", help="print the figures, change no page")
    parser.add_argument("--last", action="store_true", help="of the last run; only print it if it was a trial")
    args = parser.parse_args()
    if args.last and is_newer(TRIAL, OUT):
        args.rows, args.show = TRIAL, True
    if not args.rows.exists():
        print("no complete run here: make bench-peers", file=sys.stderr)
        return 1
    text = render(read(args.rows))
    if args.show:
        print(text)
        return 0
    return 0 if put_between(args.page, BEGIN, END, text) else 1


if __name__ == "__main__":
    sys.exit(main())
