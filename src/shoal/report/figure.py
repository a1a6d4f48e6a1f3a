"""The figure of a run's report: pool, busy slots and tasks per minute over time, and the workload distribution [DIANE U9].

Drawn with matplotlib, only when a figure is asked for: `pip install shoal[plot]`.
The workload distribution has a bar for each attempt, from its start to its end in a slot of its pilot; in a large run a dot
for its end, and of very many attempts only a part, which the figure says.
"""

from __future__ import annotations

import heapq
import html
from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from shoal.model.errors import BadInput, echo, printable
from shoal.model.quantities import many, show_duration
from shoal.report.history import Attempt, PilotLife
from shoal.report.plotting import render, require_matplotlib
from shoal.report.run_report import RunReport

SUFFIXES = (".png", ".svg", ".html")
MAX_BARS, MAX_DOTS = 2_000, 10_000  # more attempts are dots; of more than these a part is shown
MAX_STEPS = 2_000  # of a curve; a finer history is shown by means over equal parts of time
PARTS = 400
COLOURS = {
    "succeeded": "#2a7fba", "running": "#7fc4e8", "checkpointed": "#44aa99", "failed": "#cc3311", "lost": "#882255",
    "cancelled": "#999999", "returned": "#ddaa33", "duplicate": "#bb88cc",
}  # fmt: skip
_UNITS = (
    (3 * 86_400.0, 86_400.0, "days"),
    (3 * 3_600.0, 3_600.0, "hours"),
    (180.0, 60.0, "minutes"),
    (0.0, 1.0, "seconds"),
)


def figure_format(path: str) -> str:
    """The format that the name of a file asks for; refuses names that ask for none, and a Python without matplotlib."""
    suffix = PurePath(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise BadInput(
            f"{echo(path)!r} is not the name of a figure", code="bad_figure", field="-o",
            hint="end it with .png, .svg or .html",
        )  # fmt: skip
    require_matplotlib("-o")
    return suffix[1:]


def draw(report: RunReport, kind: str) -> bytes:
    """The figure as a file of this format."""
    if kind != "html":
        return _render(report, kind)
    svg = _render(report, "svg").decode()
    svg = svg[svg.index("<svg") :]  # an SVG inside HTML has no declaration of its own
    title = html.escape(_title(report))
    page = (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        "<style>body{font-family:sans-serif;margin:1em}svg{max-width:100%;height:auto}</style></head>\n"
        f"<body>\n{svg}\n</body></html>\n"
    )
    return page.encode()


def _title(report: RunReport) -> str:
    info, anatomy = report.found.info, report.anatomy
    name = f" {printable(info['name'])}" if info["name"] else ""
    so_far = "" if info["finished"] is not None else " so far"
    return (
        f"{info['run']}{name}: {many(info['total'], 'task')} in {show_duration(report.makespan)}{so_far}, "
        f"{many(len(report.pilots), 'pilot')}, {many(anatomy.target, 'slot')}, {anatomy.utilisation:.0%} busy"
    )


def _render(report: RunReport, kind: str) -> bytes:
    return render(lambda figure: _draw(report, figure), kind, (10, 8))


def _draw(report: RunReport, figure: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=(2, 1, 3))
    unit, name = next((size, word) for least, size, word in _UNITS if report.makespan >= least)
    figure.suptitle(_title(report), fontsize=11)
    _draw_slots(report, top, unit)
    _draw_rate(report, middle, unit)
    _draw_workload(report, bottom, unit)
    for axes in (top, bottom):
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (top, middle, bottom):
        for phase in report.anatomy.phases[1:]:
            axes.axvline((phase.start - report.found.record.start) / unit, color="#555555", lw=0.8, ls=":")
    bottom.set_xlabel(f"{name} since the run was submitted")
    if report.makespan > 0.0:
        bottom.set_xlim(0.0, report.makespan / unit)


def _draw_slots(report: RunReport, axes: Any, unit: float) -> None:
    """Pool and busy slots, with the target and the phases."""
    start, anatomy = report.found.record.start, report.anatomy
    if len(report.history.pool) <= MAX_STEPS:
        times = [(at - start) / unit for at in report.history.times]
        pool: Sequence[float] = report.history.pool
        busy: Sequence[float] = [a + b for a, b in zip(report.history.useful, report.history.wasted, strict=True)]
    else:
        shown = report.samples(PARTS)
        times = [i * shown.width / unit for i in range(PARTS + 1)]
        pool, busy = shown.pool, shown.busy
    axes.axhline(anatomy.target, color="#555555", lw=0.8, label=f"target {anatomy.target}")
    if pool:
        axes.stairs(pool, times, color="#ddaa33", label="pool")
        axes.stairs(busy, times, color="#2a7fba", fill=True, alpha=0.6, label="busy")
    axes.set_ylabel("slots")
    axes.set_ylim(0, 1.25 * max(1, anatomy.target, *report.history.pool))
    for phase in anatomy.phases:
        length = phase.end - phase.start
        if length > 0.12 * report.makespan:  # others have no space for their names
            text = f"{phase.name} {show_duration(length)}\n{anatomy.share(phase.areas.lost):.0%} lost"
            middle = (phase.start + length / 2 - start) / unit
            axes.text(middle, 0.98, text, transform=axes.get_xaxis_transform(), ha="center", va="top", fontsize=8)
    axes.legend(loc="lower right", fontsize=8, ncols=3)


def _draw_rate(report: RunReport, axes: Any, unit: float) -> None:
    """Tasks that ended, for each minute."""
    shown = report.samples(min(PARTS, 100))
    if shown.rate:
        edges = [i * shown.width / unit for i in range(len(shown.rate) + 1)]
        axes.stairs(shown.rate, edges, color="#117733", fill=True, alpha=0.6)
    axes.set_ylabel("tasks per minute")
    axes.set_ylim(bottom=0)


def _draw_workload(report: RunReport, axes: Any, unit: float) -> None:
    """A bar or a dot for each attempt, in the row of its slot."""
    start, attempts = report.found.record.start, report.found.record.attempts
    rows = slot_rows(report.pilots, attempts)
    step = thinning(len(attempts))
    by_outcome: defaultdict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for one, row in sorted(zip(attempts, rows, strict=True), key=lambda pair: pair[0].end)[::step]:
        by_outcome[one.outcome].append(((one.start - start) / unit, (one.end - start) / unit, row))
    is_bars = len(attempts) <= MAX_BARS
    height = sum(life.slots for life in report.pilots)
    for outcome, colour in COLOURS.items():
        if outcome not in by_outcome:
            continue
        starts, ends, levels = zip(*by_outcome[outcome], strict=True)
        if is_bars:
            axes.hlines(
                levels, starts, ends, colors=colour, lw=max(0.6, min(16.0, 160.0 / max(1, height))), label=outcome
            )
        else:
            axes.plot(ends, levels, ".", color=colour, ms=1.5, label=outcome)
    what = "a bar for each attempt" if is_bars else "a dot where an attempt ended"
    if step > 1:
        what += f"; 1 of {step} shown ({len(attempts):,} in all)"
    axes.set_title(what, fontsize=8, loc="left")
    axes.set_ylabel("slots, by pilot")
    axes.set_ylim(-0.7, max(1, height) - 0.3)
    if by_outcome:
        axes.legend(loc="lower right", fontsize=8, ncols=4, markerscale=4)


def thinning(attempts: int) -> int:
    """One of how many attempts is drawn."""
    return -(-attempts // MAX_DOTS) if attempts > MAX_BARS else 1


def slot_rows(pilots: Sequence[PilotLife], attempts: Sequence[Attempt]) -> list[int]:
    """For each attempt the row of a slot that it can be drawn in: pilots as they joined, each with a row for each slot."""
    first, height = {}, 0
    for life in pilots:
        first[life.pilot] = height, max(1, life.slots)
        height += max(1, life.slots)
    free: dict[str, list[int]] = {}
    busy: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    rows = [0] * len(attempts)
    for at in sorted(range(len(attempts)), key=lambda i: attempts[i].start):
        one = attempts[at]
        base, slots = first[one.pilot]
        lanes = free.setdefault(one.pilot, list(range(slots)))
        ends = busy[one.pilot]
        while ends and ends[0][0] <= one.start:
            heapq.heappush(lanes, heapq.heappop(ends)[1])
        # Tasks that lent their cores overlap with others: they are drawn over the one that ends next.
        lane = heapq.heappop(lanes) if lanes else heapq.heappop(ends)[1]
        heapq.heappush(ends, (one.end, lane))
        rows[at] = base + lane
    return rows
