"""Medians and spreads of the last complete `python -m bench --runs N`, written into docs/performance.md between its marks.

    python -m bench.figures [--rows FILE] [--show]

What was asked for stands beside each figure as a bound, and whether the median keeps it is reckoned from that bound. A
figure that no run printed is shown as missing. `--show` prints the table and leaves the page as it is.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bench.provenance import Provenance

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "bench" / "out" / "latest.jsonl"
PART = OUT.with_name("part.jsonl")  # a run of some experiments only
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- figures: written by bench/figures.py -->", "<!-- end of figures -->"
REPORTED, MISSING, SHORT, NO_BOUND = "reported", "missing", "**short**", "–"
_NUMBER = r"[0-9][0-9,]*(?:\.[0-9]+)?"
_ASKED = re.compile(rf"(?P<sign>>=|<=) (?P<limit>{_NUMBER})(?:, stretch (?P<stretch>{_NUMBER}))?")


class Bound(NamedTuple):
    """What was asked for as numbers: at least or at most so much, and perhaps a further aim."""

    is_least: bool
    limit: float
    stretch: float | None

    def holds(self, value: float) -> bool:
        """True if this value is within the bound."""
        return value >= self.limit if self.is_least else value <= self.limit

    def is_stretched(self, value: float) -> bool:
        """True if this value reaches the further aim, too."""
        return self.stretch is not None and self._replace(limit=self.stretch).holds(value)


class Figure(NamedTuple):
    """One figure: the name its experiment prints, what it is, and what was asked for."""

    name: str
    what: str
    asked: str = REPORTED

    @property
    def bound(self) -> Bound | None:
        """The bound that `asked` says; None if the figure is reported only."""
        if self.asked == REPORTED:
            return None
        found = _ASKED.fullmatch(self.asked)
        if found is None:
            raise ValueError(f"{self.name}: asked for {self.asked!r}; write '>= 0.65, stretch 0.80', '<= 5' or nothing")
        limit, stretch = found["limit"].replace(",", ""), found["stretch"]
        return Bound(found["sign"] == ">=", float(limit), float(stretch.replace(",", "")) if stretch else None)


FIGURES = (
    Figure("machine_loop_ms", "1,000,000 additions in a loop of Python: how fast the machine is at this time"),
    Figure(
        "functions_per_s",
        "20,000 no-op calls by `Executor.map`, each its own row and event, counted",
        ">= 18,000, stretch 30,000",
    ),
    Figure("functions_vs_processpool", "the same over `ProcessPoolExecutor`, chunksize 1", ">= 3.5, stretch 5"),
    Figure("functions_chunk100_vs_processpool", "both with chunksize 100"),
    Figure("functions_chunk100_per_s", "the same, calls a second"),
    Figure("functions_tls_ratio", "a pilot over TLS over one on the Unix socket", ">= 0.7"),
    Figure("commands_per_s", "5,000 x /bin/true"),
    Figure("dag_100k_accept_s", "`shoal submit` of a DAGMan file with 100,000 nodes, the whole command", "<= 5"),
    Figure("dag_100k_rss_mb", "memory of the server with that workflow"),
    Figure("dag_fan_per_s", "calls that do nothing, one before 5,000 before one", ">= 8,000"),
    Figure("dag_chains_per_s", "the same in 50 chains of 100", ">= 8,000"),
    Figure("commands_vs_spawn_limit", "the same over two bare spawn loops", ">= 0.65, stretch 0.80"),
    Figure("dispatch_per_s", "tasks through server and database to 8 emulated pilots", ">= 40,000"),
    Figure("dispatch_1000_pilots_per_s", "the same to 1,000 emulated pilots", ">= 20,000"),
    Figure(
        "dispatch_1000_single_per_s",
        "to 1,000 emulated pilots of one core, each with a host and tags of its own, each task reported alone",
        ">= 4,500, stretch 8,000",
    ),
    Figure("dispatch_1000_ranked_ratio", "the same with requirement and rank over without", ">= 0.8, stretch 1"),
    Figure(
        "dispatch_1000_classes_ratio", "in 100 classes, each with its own requirement and rank", ">= 0.6, stretch 0.9"
    ),
    Figure(
        "dispatch_expr_ratio",
        "100 classes with requirement and rank over as many without, 8 pilots of different tags",
        ">= 0.7",
    ),
    Figure("request_cost_growth", "one pilot's request with 100,000 tasks in 50 classes queued over 1,000", "<= 1.3"),
    Figure(
        "data_request_growth",
        "with 100,000 ready tasks that read a file each, 1,000 pilots, over a tenth of both",
        "<= 1.3",
    ),
    Figure("data_request_us", "one such request: a task and its file reported, the next one found by its input"),
    Figure("data_hit_ratio", "of them, those whose input was on the pilot's host", ">= 0.99"),
    Figure("request_10k_classes_ms", "with 10,000 classes, each with its requirement and rank, the worst case", "<= 2"),
    Figure("request_10k_full_ms", "a beat of a full pilot with them, the worst case"),
    Figure("request_new_tags_ms", "the first request after the pilot's tags changed, the worst case"),
    Figure("match_vs_bare", "requirement and rank over 10,000 classes x 1,500 pilots, over numpy by hand", "<= 2.5"),
    Figure("match_10kx1500_ms", "the same in milliseconds"),
    Figure("greedy_1500x10k_ms", "greedy assignment of 10,000 tasks to 1,500 pilots, uniform ranks", "<= 100"),
    Figure("greedy_1500x10k_contested_ms", "the same where all want the same tasks", "<= 100, stretch 30"),
    Figure("exact_1500x1500_ms", "exact assignment"),
    Figure("plan_300x30_ms", "a plan of 300 kinds of tasks on 30 sites, by the linear program, process time", "<= 100"),
    Figure("share_beyond_one_task", "used less due, less one task, the worst of 2 to 50 owners on 20 slots", "<= 0.05"),
    Figure("share_jain", "Jain's index with equal shares", ">= 0.98"),
    Figure("roundtrip_p50_ms", "one call, submitted and its result received"),
    Figure("roundtrip_p99_ms", "the same, 99th percentile"),
    Figure("roundtrip_cpu_ms", "p50 less the commit that its result waited for", "<= 2.2, stretch 1.2"),
    Figure("command_roundtrip_ms", "`Client` submit of /bin/true until its end is known", "<= 5, stretch 3"),
    Figure("roundtrip_normal_p50_ms", "p50 with durability normal", "<= 3"),
    Figure(
        "stage_in_small_ms",
        "an input of 10 kB fetched from the server, kept in the host's cache, put into a task's directory",
    ),
    Figure("stage_in_cached_ms", "the same where the host's cache has it"),
    Figure("array_1m_submit_s", "submitting an array of 1,000,000", "<= 1.0"),
    Figure("array_flat", "time per task in the steady state, 1,000,000 queued over 1,000", "<= 1.1"),
    Figure("distinct_flat", "the same, 100,000 distinct tasks in 10,000 classes over 1,000 in 100", "<= 1.3"),
    Figure("rss_1m_array_mb", "server memory with that array, after 200,000 of its tasks", "<= 250"),
    Figure("rss_100k_distinct_mb", "server memory with 100,000 distinct tasks", "<= 200, stretch 120"),
    Figure("cold_start_s", "`shoal run -- true` without a server", "<= 0.75, stretch 0.4"),
    Figure("warm_run_s", "the same with a server up, the whole process", "<= 0.25, stretch 0.15"),
    Figure("restart_1m_s", "a server with that array and 100,000 distinct tasks after kill -9", "<= 2.5, stretch 1"),
    Figure("results_csv_100k_s", "`shoal results RUN --csv` of 100,000 rows, the whole process", "<= 0.7, stretch 0.4"),
    Figure(
        "mesh_200mb_x8_vs_cp",
        "200 MB from one pilot to eight others, TLS, over eight plain copies with digests",
        ">= 0.5",
    ),
    Figure("mesh_200mb_x8", "the same in MB/s"),
    Figure(
        "round_200_pilots_ms",
        "one round of a leader over 199 emulated members, TLS, until the last may begin",
        "<= 500",
    ),
    Figure(
        "leader_vs_central_throughput",
        "0.1 s tasks on 60 real pilots (SHOAL_BENCH_PILOTS), mode `distributed` over `central`",
        ">= 1.0",
    ),
    Figure("dht_lookup_ms", "who has a file, asked among nine pilots"),
    Figure("tail_ratio", "2,000 log-normal sleeps on 16 slots over a perfect greedy schedule", "<= 1.05"),
    Figure(
        "fair_short_p95_s",
        "first start of an urgent task behind short ones on 2 slots, slowest of 12, worst length, median of three",
        "<= 1.5",
    ),
    Figure("overload_rss", "server memory under ten times the usual requests over usual", "<= 2"),
    Figure("beat_p99_storm_s", "exchanges of 200 pilots meanwhile, 99th percentile", "<= 1"),
    Figure("overload_rate", "requests a second in that storm over usual", ">= 10"),
    Figure("false_losses", "pilots that were taken for lost meanwhile", "<= 0"),
    Figure("accepted_lost", "runs that were accepted meanwhile and are missing", "<= 0"),
    Figure("cli_ps_s", "`shoal ps` with 100,000 finished tasks", "<= 1"),
    Figure("cli_show_s", "`shoal show` of one of them", "<= 1"),
    Figure("cli_why_s", "`shoal why` of one of them", "<= 1"),
    Figure("cli_pilots_s", "`shoal pilots` meanwhile", "<= 1"),
    Figure("cli_results_s", "`shoal results` of them", "<= 1"),
    Figure("greedy_1500x10k_locality_ms", "greedy assignment of 10,000 tasks to 1,500 pilots, ranks by locality"),
    Figure("greedy_gap", "total rank that greedy loses against exact, uniform ranks"),
    Figure("greedy_gap_locality", "the same with ranks by locality"),
    Figure("plan_greedy_300x30_ms", "the same by the heuristic, which needs no scipy"),
    Figure("plan_greedy_gap", "what the heuristic ends later than the program, as a part"),
    Figure("plan_round_robin_x", "end of round robin over that of the program"),
    Figure("sim_1500x10k_s", "simulating 1,500 pilots and 10,000 tasks of 200 s, central matching", "<= 20"),
    Figure("sim_1m_bag_s", "simulating 1,000,000 tasks of 20 s on 1,000 pilots, beats kept", "<= 600"),
    Figure("sim_1m_bag_mb", "memory of that", "<= 2,000"),
    Figure("sim_events_per_s", "events of the first of the two, a second"),
    Figure("replay_error", "replayed over measured makespan of five kinds of real runs, the worst", "<= 0.10"),
    Figure("replay_error_median", "the same, all runs of the forecasts"),
    Figure("replay_slots_error", "a journal of 2 slots against real runs with 4 and 8, the worse", "<= 0.10"),
    Figure(
        "forecast_held",
        "real ends within P10 to P90 of the forecast made at a quarter of the tasks",
        ">= 0.70, stretch 0.80",
    ),
    Figure("forecast_width", "P10 to P90 over the time that was left, mean", "<= 0.40"),
    Figure("rss_growth", "server memory after 200,000 elements over after 20,000", "<= 1.10"),
)


class Row(NamedTuple):
    """One printed line of an experiment."""

    name: str
    value: float
    experiment: str
    checkout: str


@dataclass
class Run:
    """A run of `python -m bench`: what it printed, and how it went."""

    provenance: Provenance
    rounds: int
    rows: list[Row] = field(default_factory=list)
    seconds: dict[int, float] = field(default_factory=dict)  # of each round, in this checkout
    failed: list[str] = field(default_factory=list)  # experiments of this checkout


def read(path: Path) -> Run:
    """A run that is over, or was broken off."""
    first, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    run = Run(Provenance(**first["provenance"]), first["rounds"])
    for line in lines:
        if "name" in line:
            run.rows.append(Row(line["name"], line["value"], line["experiment"], line["checkout"]))
        elif line["checkout"] == "this":
            run.seconds[line["run"]] = run.seconds.get(line["run"], 0.0) + line["seconds"]
            if line["code"]:
                run.failed.append(f"{line['experiment']} in round {line['run']}")
    return run


def number(value: float, digits: int = 3) -> str:
    """So many significant figures, but never less than the whole number; with separators."""
    decimals = digits - 1 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{max(0, decimals)}f}"


def number_beside(bound: Bound | None, value: float) -> str:
    """A number with as many figures as it takes to be on the same side of the bound as the value itself."""
    for digits in range(3, 8):
        text = number(value, digits)
        if bound is None or bound.holds(float(text.replace(",", ""))) == bound.holds(value):
            return text
    return str(value)


def spread(values: Sequence[float], text: Callable[[float], str] = number) -> str:
    """The median with the smallest and the largest value."""
    middle = text(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({text(min(values))} to {text(max(values))})"


def verdict(figure: Figure, values: Sequence[float]) -> str:
    """Does the median keep what was asked for, and do all runs?"""
    bound = figure.bound
    if not values:
        return MISSING
    if bound is None:
        return NO_BOUND
    middle = statistics.median(values)
    if not bound.holds(middle):
        return SHORT
    kept = sum(map(bound.holds, values))
    if kept < len(values):
        return f"yes, in {kept} of {len(values)} runs"
    return "yes, and the stretch" if bound.is_stretched(middle) else "yes"


def collect(rows: Sequence[Row]) -> dict[str, tuple[str, list[float]]]:
    """The values of each figure in this checkout, and the experiment that printed them."""
    found: dict[str, tuple[str, list[float]]] = {}
    for row in rows:
        if row.checkout == "this":
            experiment, values = found.setdefault(row.name, (row.experiment, []))
            if experiment != row.experiment:
                raise ValueError(
                    f"{row.name} is printed by {experiment} and by {row.experiment}: two things of one name"
                )
            values.append(row.value)
    return found


def table(run: Run, figures: Sequence[Figure] = FIGURES) -> str:
    """A line for each figure."""
    found = collect(run.rows)
    lines = [
        "| figure | what | asked | median (least to most) | holds | runs | `python -m bench ...` |",
        "|---|---|---|---|---|---|---|",
    ]
    for figure in figures:
        experiment, values = found.get(figure.name, ("", []))
        bound = figure.bound
        text = spread(values, lambda value, bound=bound: number_beside(bound, value)) if values else MISSING  # type: ignore[misc]
        runs = str(len(values)) if len(values) == run.rounds else f"{len(values)} of {run.rounds}"
        cells = (figure.name, figure.what, figure.asked, text, verdict(figure, values), runs, experiment)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(run: Run, figures: Sequence[Figure] = FIGURES) -> str:
    """How many hold, which do not, and where all of it comes from."""
    found = collect(run.rows)
    asked = [figure for figure in figures if figure.bound]
    verdicts = {figure.name: verdict(figure, found.get(figure.name, ("", []))[1]) for figure in asked}
    held = sum(text.startswith("yes") for text in verdicts.values())
    parts = [f"Of {len(asked)} figures that were asked for, {held} hold."]
    for word, title in ((SHORT, "Short"), (MISSING, "Missing")):
        names = [name for name, text in verdicts.items() if text == word]
        parts += [f"{title}: {', '.join(names)}."] if names else []
    parts += [f"Failed: {', '.join(run.failed)}."] if run.failed else []
    if run.seconds:
        took = f"{statistics.median(run.seconds.values()) / 60:.1f} minutes each"
        parts.append(f"Rounds: {len(run.seconds)} of {run.rounds}, {took}.")
    return "\n".join([str(run.provenance), *parts])


def compare(rows: Sequence[Row]) -> str:
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


def put_between(page: Path, begin: str, end: str, text: str) -> bool:
    """Replace what stands between two marks of a page; False if it has no such marks."""
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, mark, after = rest.partition(end)
    if found and mark:
        page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
    else:
        print(f"{page.name} has no marks: {begin} and {end}", file=sys.stderr)
    return bool(found and mark)


def main() -> int:
    """Write the table into the page, or print it."""
    parser = argparse.ArgumentParser(prog="python -m bench.figures")
    parser.add_argument("--rows", type=Path, default=OUT, help="the rows of another run")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--show", action="store_true", help="print the table, change no page")
    chosen = parser.parse_args()
    if not chosen.rows.exists():
        print("no complete run here: python -m bench --runs 3", file=sys.stderr)
        return 1
    run = read(chosen.rows)
    text = f"{summary(run)}\n\n{table(run)}"
    if chosen.show:
        print(text)
        return 0
    return 0 if put_between(chosen.page, BEGIN, END, text) else 1


if __name__ == "__main__":
    sys.exit(main())
