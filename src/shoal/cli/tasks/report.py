"""`shoal report`: the history of a run and its anatomy [DIANE U9]. Works with a server and without one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from shoal.cli.completion import complete_runs
from shoal.cli.output.charts import chart, columns, shows_blocks
from shoal.cli.output.json_documents import iso_document
from shoal.cli.output.tables import clean, pairs, print_json, print_lines, table
from shoal.cli.session import Session, json_option, say, server_option
from shoal.model.errors import Refused, echo
from shoal.model.quantities import many, show_duration
from shoal.report.data_source import latest_run
from shoal.report.history import Attempt
from shoal.report.run_names import find_run
from shoal.report.run_record import read_record
from shoal.report.run_report import RunReport, document, make_report, wasted_attempts

HEIGHT = 3  # lines of a chart
LABEL = 14  # columns before a chart
SLOW = 2.0  # times the median, from which on a task is called long
LATE = 0.5  # of the run, after which a task that begins is called late


@click.command()
@click.argument("run", required=False, metavar="[RUN]", shell_complete=complete_runs)
@click.option("-o", "--output", "path", metavar="FILE", help="Draw a figure, too: FILE.png, .svg or .html.")
@click.option(
    "--target", type=click.IntRange(1), metavar="SLOTS", help="Slots that were asked for [default: the largest pool]."
)
@json_option
@server_option
def report(run: str | None, path: str | None, target: int | None, as_json: bool, server: str | None) -> None:
    """The history of a run: pool, busy slots and tasks per minute, its three phases, and where slot time was lost.

    Without a run, of the latest one.
    Submission lasts until the pool has its target size, main until fewer tasks are left than slots, tail until the end.
    Lost is what of all slot time brought nothing: missing (the pool was smaller than its target), idle (fewer tasks than
    slots), overhead (tasks were left, but not yet in the slot), failed (attempts that failed, were lost or done twice).
    A figure needs matplotlib: pip install 'shoal[plot]'.

    \b
    Examples:
      shoal report
      shoal report r12 -o r12.svg
      shoal report r12 --json | jq .phases
    """
    kind = ""
    if path is not None:
        from shoal.report.figure import figure_format

        kind = figure_format(path)
    session = Session(server)
    client = session.running()
    if client is not None:
        client.close()
    with session.bulk_source() as source:
        run = latest_run(source, say) if run is None else find_run(source, run, say)
        found = read_record(source, run, time.time() if client is not None else None)
    made = make_report(found, target or 0)
    if path is not None:
        write_figure(made, path, kind)
    if as_json:
        print_json(iso_document(document(made)))
    else:
        print_lines(report_lines(made, columns(), shows_blocks()))


def write_figure(made: RunReport, path: str, kind: str) -> None:
    """Draw a report into a file."""
    from shoal.report.figure import draw

    data = draw(made, kind)
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise Refused(f"cannot write {echo(path)}: {error.strerror}", code="unwritable") from None
    say(f"figure: {path}")


def report_lines(made: RunReport, width: int, blocks: bool) -> Iterator[str]:
    """The report as text."""
    yield from _head(made)
    record = made.found.record
    if not record.attempts:
        why = "no task has begun" if made.found.info["finished"] is None else "no task ran"
        yield f"  {why}, so there is nothing to tell of phases"
        return
    yield ""
    yield from phase_lines(made)
    yield ""
    yield from chart_lines(made, width, blocks)
    yield ""
    yield from _tasks("longest", made, made.longest)
    if made.last and made.found.info["finished"] is not None:
        yield ""
        yield from _tasks("ended last", made, made.last)


def _head(made: RunReport) -> Iterator[str]:
    found, anatomy = made.found, made.anatomy
    info, states = found.info, found.states
    parts = [f"{states[state]:,} {state}" for state in ("succeeded", "failed", "cancelled", "lost") if states[state]]
    if found.reused:
        parts.append(f"{len(found.reused):,} taken over from an earlier run")
    left = info["total"] - sum(states.values()) - len(found.reused)
    if left > 0:
        parts.append(f"{left:,} not finished")
    name = f" {clean(info['name'])}" if info["name"] else ""
    yield f"{info['run']}{name}: {many(info['total'], 'task')}: {', '.join(parts)}"
    so_far = "" if info["finished"] is not None else " so far"
    shown: list[tuple[str, object]] = [
        ("  makespan", f"{show_duration(made.makespan)}{so_far}"),
        ("  pool", f"{many(len(made.pilots), 'pilot')}, {many(max(made.history.pool, default=0), 'slot')} at most"),
    ]
    if found.record.attempts:
        lost = anatomy.share(anatomy.areas.lost)
        shown.append(("  utilisation", f"{_percent(anatomy.utilisation)}; of all slot time {_percent(lost)} was lost"))
        wasted = wasted_attempts(found.record.attempts)
        again = f" ({', '.join(f'{count:,} {outcome}' for outcome, count in wasted.most_common())})" if wasted else ""
        shown.append(("  attempts", f"{len(found.record.attempts):,}{again}"))
        if made.median is not None:
            shown.append(("  a task took", f"{show_duration(made.median)} (median)"))
    yield from pairs(shown)
    if found.other_runs:
        yield f"  {many(found.other_runs, 'other run')} open meanwhile: slots that they used count as overhead or idle here"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def phase_lines(made: RunReport) -> Iterator[str]:
    """The table of the three phases."""
    anatomy = made.anatomy
    head = ["  phase", "length", "lost %", "missing", "idle", "overhead", "failed"]
    rows: list[list[object]] = []
    parts = [(phase.name, phase.end - phase.start, phase.areas) for phase in anatomy.phases]
    for name, length, areas in (*parts, ("whole run", made.makespan, anatomy.areas)):
        shares = (areas.lost, areas.missing, areas.idle, areas.overhead, areas.failed)
        rows.append([f"  {name}", show_duration(length), *(round(100 * anatomy.share(area), 1) for area in shares)])
    yield from table(head, rows)


def chart_lines(made: RunReport, width: int, blocks: bool) -> Iterator[str]:
    """Pool, busy slots and tasks per minute over time."""
    shown = made.samples(width - LABEL)
    slots = float(max(1, *made.history.pool, made.anatomy.target))
    for name, values, most in (
        ("pool", shown.pool, slots), ("busy", shown.busy, slots), ("tasks/min", shown.rate, max(shown.rate, default=0.0)),
    ):  # fmt: skip
        labels = [f"  {name}", *[""] * (HEIGHT - 2), f"  0 .. {_number(most)}"]
        for label, line in zip(labels, chart(values, HEIGHT, most, blocks), strict=True):
            yield f"{label:<{LABEL}}{line}".rstrip()
    ruler = f"0{show_duration(made.makespan):>{max(1, width - LABEL - 1)}}"
    yield " " * LABEL + ruler


def _tasks(title: str, made: RunReport, attempts: Iterable[Attempt]) -> Iterator[str]:
    start, run = made.found.record.start, made.found.info["run"]
    hosts = {life.pilot: life.host for life in made.pilots}
    rows = [
        [f"  {run}.{one.task}", one.outcome, show_duration(one.end - one.start), show_duration(max(0.0, one.start - start)),
         hosts.get(one.pilot) or one.pilot, _why(made, one)]
        for one in attempts
    ]  # fmt: skip
    yield from table([f"  {title}", "state", "took", "began after", "host", ""], rows)


def _why(made: RunReport, one: Attempt) -> str:
    """What is remarkable about an attempt, for the end of a run."""
    found = []
    if made.median and one.end - one.start > SLOW * made.median:
        found.append(f"{(one.end - one.start) / made.median:.1f} times the median")
    if one.number > 1:
        found.append(f"attempt {one.number}")
    if one.start - made.found.record.start > LATE * made.makespan:
        found.append("began late")
    return ", ".join(found)
