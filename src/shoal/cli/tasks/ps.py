"""`shoal ps`: list runs, or the tasks of a run. Works with a server and without one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from shoal.cli.completion import complete_runs
from shoal.cli.output.describe import run_state
from shoal.cli.output.json_documents import run_document, task_document
from shoal.cli.output.progress_display import TimeLeft, left_parts, rough
from shoal.cli.output.tables import clean, print_json, print_lines, table
from shoal.cli.session import LIMIT_OPTION, Session, common_options, read_pages, say
from shoal.client.connection import embedded_server
from shoal.model.errors import BadInput, echo
from shoal.model.quantities import many, show_duration
from shoal.model.states import TaskState
from shoal.report.data_source import HttpSource, Json, Source
from shoal.report.run_names import find_run
from shoal.report.summary import counts_text, running_of
from shoal.sched.vector.time_left import forecast_by_rows
from shoal.wire.did_you_mean import did_you_mean
from shoal.wire.http.run_counts import done_of, units_of

if TYPE_CHECKING:
    from shoal.sched.vector.forecast import Forecast

MOST_FORECASTS = 10  # runs whose time left is told: each takes two requests
ATTENTION = ("running", "leased", "failed", "lost")  # states that `ps RUN` shows by default


@click.command()
@click.argument("run", required=False, metavar="[RUN]", shell_complete=complete_runs)
@click.option("--state", help="Runs: open or finished. Tasks: failed,lost, ... [default: running and failed].")
@click.option("--name", metavar="GLOB", help="Only runs with such a name, e.g. 'scan*'.")
@LIMIT_OPTION
@common_options
def ps(
    run: str | None, state: str | None, name: str | None, limit: int | None, as_json: bool, server: str | None
) -> None:
    """List runs, newest first; or the tasks of a run that run or failed.

    \b
    Examples:
      shoal ps
      shoal ps --state open
      shoal ps r12
      shoal ps train                a run by its name: the latest that has it
      shoal ps r12 --state failed,lost --json
    """
    with Session(server).source() as source:
        if run is None:
            _list_runs(source, state or "", name or "", limit, as_json)
        else:
            run = find_run(source, run, say)
            if name is not None:
                raise BadInput("--name picks runs", code="usage", hint=f"leave it or {run} out")
            _list_tasks(source, run, state, limit, as_json)


def _list_runs(source: Source, state: str, name: str, limit: int | None, as_json: bool) -> None:
    if state not in ("", "open", "finished"):
        raise BadInput(
            f"{echo(state)!r} is not a state of a run", code="unknown_state", field="--state", hint="open or finished"
        )
    most = 20 if limit is None else limit
    rows, more = read_pages(lambda size, before: source.runs(state, name, size, before or ""), "runs", most)
    if as_json:
        print_json({"runs": [run_document(row) for row in rows], "next": more})
        return
    if not rows:
        click.echo("no such runs" if state or name else "no runs yet: try `shoal run -- echo hello`")
        return
    now = time.time()
    left = {run: f"{rough(f.p50)} (9 in 10: {rough(f.p90)})" for run, f in _forecasts(source, rows).items()}
    units = ("units",) if any(map(units_of, rows)) else ()
    print_lines(table(("run", "name", "state", "done", "tasks", *units, "running", "failed", "age", "took", "left"), [
        (
            row["run"], row["name"] or "-", run_state(row), done_of(row), row["total"], *(_units(row) for _ in units),
            running_of(row),
            row["counts"].get("failed", 0) + row["counts"].get("lost", 0), show_duration(max(0.0, now - row["created"])),
            show_duration(max(0.0, (row["finished"] or now) - row["created"])), left.get(row["run"], "-"),
        ) for row in rows
    ]))  # fmt: skip
    if more is not None:
        click.echo(f"older runs are left out: shoal ps --limit {len(rows) * 5}")
    unfinished = next((row["run"] for row in rows if row["finished"] is None), None)
    if unfinished is not None and not isinstance(source, HttpSource):
        silent = embedded_server.not_answering(embedded_server.state_dir())
        if silent is not None:
            say(f"{silent.message}, and this is what it wrote last; {silent.hint}")
        else:
            goes_on = f"`shoal wait {unfinished}` starts one and the work goes on"
            say(f"no server is running, so nothing new is started; {goes_on}")


def _units(row: Json) -> str:
    """`300/1,000` units of divisible work."""
    return f"{row['counts'].get('units_done', 0):,}/{units_of(row):,}" if units_of(row) else "-"


def _forecasts(source: Source, rows: list[Json]) -> dict[str, Forecast]:
    """The forecasts of runs that are not over, the newest ones, as far as they are known and a server says what runs."""
    unfinished = [row for row in rows if row["finished"] is None][:MOST_FORECASTS]
    if not unfinished or not isinstance(source, HttpSource):
        return {}
    slots = int(source.client.server().get("slots", 0))
    found = {row["run"]: forecast_by_rows(source, row, time.time(), slots) for row in unfinished}
    return {run: forecast for run, forecast in found.items() if forecast is not None}


def _list_tasks(source: Source, run: str, state: str | None, limit: int | None, as_json: bool) -> None:
    states = _states(state) if state is not None else ATTENTION
    info = source.run(run)
    most = 50 if limit is None else limit
    rows, more = read_pages(lambda size, after: source.tasks(run, after or 0, size, states), "tasks", most)
    if as_json:
        tasks = [task_document(run, row) for row in rows]
        print_json({"run": run, "state": run_state(info), "counts": info["counts"], "tasks": tasks, "next": more})
        return
    title = f"{run} {clean(info['name'])}" if info["name"] else run
    left = [left_parts(TimeLeft(f.p50, f.p90)) for f in _forecasts(source, [info]).values()]
    counts = "; ".join([counts_text(info), *(" ".join(parts.values()) for parts in left)])
    click.echo(f"{title}: {run_state(info)}, {many(info['total'], 'task')}: {counts}")
    if rows:
        print_lines(table(("task", "state", "attempt", "exit", "took", "host", "cause", "message"), [
            (
                f"{run}.{row['element']}", row["state"], row["attempt"], row["exit_code"],
                show_duration(row["duration"]) if row["duration"] is not None else "-", row["host"] or "-",
                row["cause"] or "-", row["message"] or "-",
            ) for row in rows
        ]))  # fmt: skip
    if more is not None:
        click.echo(f"more are left out: shoal ps {run} --limit 0")
    elif not rows and state is None:
        click.echo(f"none of them runs or failed; all of them: shoal results {run}")


def _states(text: str) -> list[str]:
    states = [state.strip() for state in text.split(",") if state.strip()]
    known = [state.value for state in TaskState]
    for state in states:
        if state not in known:
            raise BadInput(
                f"{echo(state)!r} is not a state of a task", code="unknown_state", field="--state",
                hint=did_you_mean(state, known),
            )  # fmt: skip
    return states
