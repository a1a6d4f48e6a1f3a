"""Medians and spreads of the last `python -m bench --runs N`, written into docs/performance.md between its two marks.

python -m bench.figures
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "bench" / "out" / "latest.jsonl"
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- figures: written by bench/figures.py -->", "<!-- end of figures -->"


class Figure(NamedTuple):
    """One figure: the name its experiment prints, what it is, and what was asked for."""

    name: str
    what: str
    asked: str = "reported"


FIGURES = (
    Figure("functions_per_s", "20,000 no-op calls by `Executor.map`, each its own row and event, counted", ">= 15,000"),
    Figure("functions_vs_processpool", "the same over `ProcessPoolExecutor`, chunksize 1", ">= 3"),
    Figure("functions_chunk100_vs_processpool", "both with chunksize 100"),
    Figure("functions_tls_ratio", "a pilot over TLS over one on the Unix socket", ">= 0.7"),
    Figure("commands_per_s", "5,000 x /bin/true"),
    Figure("commands_vs_spawn_limit", "the same over two bare spawn loops", ">= 0.65, stretch 0.80"),
    Figure("dispatch_per_s", "tasks through server and database to 8 emulated pilots", ">= 40,000"),
    Figure("dispatch_1000_pilots_per_s", "the same to 1,000 emulated pilots", ">= 20,000"),
    Figure("dispatch_expr_ratio", "with requirement and rank on every task over without", ">= 0.7"),
    Figure("request_cost_growth", "one pilot's request with 100,000 tasks in 50 classes queued over 1,000", "<= 1.3"),
    Figure("request_10k_classes_ms", "with 10,000 classes, each with its requirement and rank, the worst case", "<= 2"),
    Figure("match_vs_bare", "requirement and rank over 10,000 classes x 1,500 pilots, over numpy by hand", "<= 2.5"),
    Figure("greedy_1500x10k_ms", "greedy assignment of 10,000 tasks to 1,500 pilots, uniform ranks", "<= 100"),
    Figure("exact_1500x1500_ms", "exact assignment"),
    Figure("share_difference_50_owners", "used less due, 50 owners on 20 slots", "<= 0.05 + one task"),
    Figure("share_jain", "Jain's index with equal shares", ">= 0.98"),
    Figure("roundtrip_p50_ms", "one call, submitted and its result received"),
    Figure("roundtrip_p99_ms", "the same, 99th percentile"),
    Figure("roundtrip_cpu_ms", "p50 less its own two commits", "<= 3"),
    Figure("roundtrip_normal_p50_ms", "p50 with durability normal", "<= 3"),
    Figure("array_1m_submit_s", "submitting an array of 1,000,000", "<= 1.0"),
    Figure("array_flat", "time per task, 1,000,000 queued over 1,000", "<= 1.2"),
    Figure("distinct_flat", "100,000 distinct tasks in 10,000 classes over 1,000 in 100", "<= 1.5"),
    Figure("rss_1m_array_mb", "server memory with that array, after 200,000 of its tasks", "<= 250"),
    Figure("rss_100k_distinct_mb", "server memory with 100,000 distinct tasks", "<= 350"),
    Figure("cold_start_s", "`shoal run -- true` without a server", "<= 1.2"),
    Figure("restart_1m_s", "a server with that array after kill -9", "<= 5"),
    Figure("tail_ratio", "2,000 log-normal sleeps on 16 slots over a perfect greedy schedule", "<= 1.05"),
    Figure(
        "fair_short_p95_s", "first start of an urgent task behind short ones on 2 slots, the worst length", "<= 1.5"
    ),
    Figure("overload_rss", "server memory under ten times the usual requests over usual", "<= 2"),
    Figure("beat_p99_storm_s", "exchanges of 200 pilots meanwhile, 99th percentile", "<= 1"),
)


class Row(NamedTuple):
    """One printed line of an experiment."""

    name: str
    value: float
    experiment: str
    checkout: str


def read(path: Path) -> list[Row]:
    """The rows of a run of `python -m bench`."""
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [Row(row["name"], row["value"], row["experiment"], row["checkout"]) for row in rows]


def number(value: float) -> str:
    """Three significant figures, or whole numbers with separators."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(values: list[float]) -> str:
    """The median with the smallest and the largest value."""
    middle = number(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({number(min(values))} to {number(max(values))})"


def table(rows: list[Row]) -> str:
    """The page's table."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.checkout == "this":
            found[row.name].append(row)
    lines = [
        "| figure | what | asked | median (least to most) | runs | `python -m bench ...` |",
        "|---|---|---|---|---|---|",
    ]
    for figure in FIGURES:
        mine = found.get(figure.name)
        if mine:
            values = [row.value for row in mine]
            cells = (figure.name, figure.what, figure.asked, spread(values), str(len(values)), mine[0].experiment)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def compare(rows: list[Row]) -> str:
    """This checkout against the other one, figure by figure."""
    sides: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        sides[row.name][row.checkout].append(row.value)
    lines = ["| figure | other | this | this over other |", "|---|---|---|---|"]
    for name, side in sides.items():
        if side["this"] and side["other"]:
            ours, theirs = statistics.median(side["this"]), statistics.median(side["other"])
            ratio = f"{ours / theirs:.3f}" if theirs else "-"
            lines.append(f"| {name} | {spread(side['other'])} | {spread(side['this'])} | {ratio} |")
    return "\n".join(lines)


def main() -> int:
    """Write the table into the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        print(f"{PAGE.name}: the marks of the figures are missing", file=sys.stderr)
        return 1
    PAGE.write_text(f"{before}{BEGIN}\n{table(read(OUT))}\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
