"""Writes the figures of the last measurement into docs/benchmarks.md, between its two marks.

    python -m bench.peers.table [--rows FILE] [--page FILE]

What has not been measured yet is "not yet run", what a system cannot do is a dash, and what gave no result is "none".
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.peers.install import ROOT
from bench.peers.measure import OUT, SYSTEMS, Row, read
from bench.peers.system import System

PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures: written by bench/peers/table.py -->", "<!-- end of figures -->"
BASELINES = ("pool", "spawn")
NOT_YET, CANNOT, NONE = "not yet run", "–", "none"
ONCE = " (1)"
DURABLE = {"shoal": "yes", "pool": CANNOT, "spawn": CANNOT}

Rows = dict[str, Row]


@dataclass(frozen=True)
class Column:
    """A column: its head, the measure that fills it, the text of a cell, and what to compare (small is good)."""

    head: str
    measure: str
    text: Callable[[System, Rows], str]
    score: Callable[[System, Rows], float | None] = lambda system, rows: None


def value_of(system: System, rows: Rows, metric: str) -> float | None:
    """A figure of a system, if there is one."""
    found = rows.get(f"{system.name}.{metric}", {}).get("value")
    return None if found is None else float(found)


def number(value: float) -> str:
    """Three figures are enough."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def figures(system: System, rows: Rows, *metrics: str) -> str:
    """Figures of one measure, with a mark if they come from a single run; empty if one is missing."""
    values = [value_of(system, rows, metric) for metric in metrics]
    if any(value is None for value in values):
        return ""
    once = any("one run" in rows[f"{system.name}.{metric}"]["note"] for metric in metrics)
    return " / ".join(number(value) for value in values if value is not None) + (ONCE if once else "")


def rate_text(measure: str, usual: int) -> Callable[[System, Rows], str]:
    """Tasks per second, and of how many tasks if not of the usual number."""

    def text(system: System, rows: Rows) -> str:
        found = figures(system, rows, f"{measure}_per_s")
        counts = [case.count for case in system.cases if case.measure == measure]
        return f"{found}, of {counts[0]:,}" if found and counts[0] != usual else found

    return text


def pair_text(first: Iterable[str], second: Iterable[str], labels: tuple[str, str]) -> Callable[[System, Rows], str]:
    """Figures that every system has, and some that only Shoal has, each with a label."""

    def text(system: System, rows: Rows) -> str:
        one, two = figures(system, rows, *first), figures(system, rows, *second)
        if system.name != "shoal":
            return one
        return "; ".join(f"{label}: {found}" for label, found in zip(labels, (one, two), strict=True) if found)

    return text


def growth_text(system: System, rows: Rows) -> str:
    """How the time per task grew, and between which lengths of the queue."""
    parts = []
    for kind in ("queue", "array"):
        growth = value_of(system, rows, f"{kind}_growth")
        pattern = re.compile(rf"{system.name}\.{kind}_([0-9]+)_us")
        counts = [
            int(m[1]) for name, row in rows.items() if (m := pattern.fullmatch(name)) and row["value"] is not None
        ]
        if growth is not None:
            what = "array of " if kind == "array" else ""
            parts.append(f"{growth:.2f} ({what}{min(counts):,} → {max(counts):,})")
    return "; ".join(parts)


def memory_text(system: System, rows: Rows) -> str:
    """The server's process, the client's where it is another, and Shoal's array."""
    server = figures(system, rows, "memory_mb")
    client = value_of(system, rows, "memory_client_mb")
    array = figures(system, rows, "memory_array_mb")
    found = server.removesuffix(ONCE) + (f" + {number(client)}" if client is not None else "")
    return f"{found}; array: {array.removesuffix(ONCE)}" if array else found


def memory_score(system: System, rows: Rows) -> float | None:
    """Server and client together."""
    server = value_of(system, rows, "memory_mb")
    return None if server is None else server + (value_of(system, rows, "memory_client_mb") or 0.0)


def low(metric: str) -> Callable[[System, Rows], float | None]:
    """A figure that should be small."""
    return lambda system, rows: value_of(system, rows, metric)


def high(metric: str) -> Callable[[System, Rows], float | None]:
    """A figure that should be large."""

    def score(system: System, rows: Rows) -> float | None:
        value = value_of(system, rows, metric)
        return None if value is None else -value

    return score


TRIP, TRIP_COMMAND = (
    ("round_trip_p50_ms", "round_trip_p99_ms"),
    (
        "round_trip_command_p50_ms",
        "round_trip_command_p99_ms",
    ),
)
COLUMNS = (
    Column("functions/s (10,000)", "functions", rate_text("functions", 10_000), high("functions_per_s")),
    Column("commands/s (5,000)", "commands", rate_text("commands", 5_000), high("commands_per_s")),
    Column(
        "round trip, p50 / p99 ms",
        "round_trip",
        pair_text(TRIP, TRIP_COMMAND, ("function", "command")),
        low("round_trip_p50_ms"),
    ),
    Column(
        "cold start, s",
        "cold_start",
        pair_text(("cold_start_s",), ("cold_start_function_s",), ("command", "function")),
        low("cold_start_s"),
    ),
    Column("queue growth", "queue", growth_text),  # no contest: what is left after 1.0 is noise
    Column("memory, MB (100,000 queued)", "memory", memory_text, memory_score),
    Column("durable", "", lambda system, rows: DURABLE.get(system.name, "no")),
)


def cell(column: Column, system: System, rows: Rows, best: float | None) -> str:
    """One cell; the best of a column in bold."""
    if column.measure and column.measure not in {case.measure for case in system.cases}:
        return CANNOT
    text = column.text(system, rows)
    if not text:
        version = rows.get(f"{system.name}.version", {}).get("note", "")
        tried = any(name.startswith(f"{system.name}.{column.measure}") for name in rows)
        return "not installed" if version == "not installed" else NONE if tried else NOT_YET
    return f"**{text}**" if best is not None and column.score(system, rows) == best else text


def comparison(rows: Rows) -> list[str]:
    """The table that one looks at: a line per system."""
    heads = ["", *(column.head for column in COLUMNS)]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    best: list[float | None] = []
    for column in COLUMNS:
        scores = [column.score(system, rows) for system in SYSTEMS if system.name not in BASELINES]
        best.append(min((score for score in scores if score is not None), default=None))
    for system in SYSTEMS:
        version = rows.get(f"{system.name}.version", {}).get("note", "")
        title = system.title if system.name in BASELINES or not version[:1].isdecimal() else f"{system.title} {version}"
        firsts = [None] * len(best) if system.name in BASELINES else best
        cells = [cell(column, system, rows, first) for column, first in zip(COLUMNS, firsts, strict=True)]
        lines.append(f"| {' | '.join([title, *cells])} |")
    return lines


def every_figure(rows: Rows) -> list[str]:
    """All rows, with how they came about."""
    lines = ["| name | value | unit | how |", "|---|---|---|---|"]
    for name in sorted(rows):
        row = rows[name]
        if name != "machine" and not name.endswith(".version"):
            value = NONE if row["value"] is None else number(row["value"])
            lines.append(f"| `{name}` | {value} | {row['unit']} | {row['note'].replace('|', '/')} |")
    return lines


def render(rows: Rows) -> str:
    """Everything between the marks."""
    machine = rows.get("machine", {}).get("note", NOT_YET)
    lines = [f"Machine: {machine}.", "", *comparison(rows)]
    lines += ["", "In bold: the best of a column (the first two lines are not in the contest). (1): a single run."]
    if rows:
        lines += ["", "### Every figure", "", *every_figure(rows)]
    return "\n".join(lines)


def main() -> int:
    """Read the rows, rewrite the page."""
    parser = argparse.ArgumentParser(description="Write the figures into docs/benchmarks.md.")
    parser.add_argument("--rows", type=Path, default=OUT)
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args()
    before, begin, rest = args.page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        print(f"{args.page} has no marks: {BEGIN} and {END}", file=sys.stderr)
        return 1
    text = render({row["name"]: row for row in read(args.rows)})
    args.page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
