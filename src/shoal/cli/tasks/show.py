"""Reading commands: `ps`, `show`, `why`, `results`. They work with a server and without one."""

from __future__ import annotations

import csv
import itertools
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from shoal.cli.output.describe import describe_pilot, describe_run, describe_task, run_state
from shoal.cli.output.tables import clean, pairs, print_json, print_lines, table
from shoal.cli.session import Session, json_option, say, server_option
from shoal.model.errors import BadInput, NotFound, echo
from shoal.model.ids import TaskId, is_pilot, parse_place, parse_run, parse_target, parse_task
from shoal.model.quantities import many, show_duration
from shoal.model.states import TaskState
from shoal.report.phrases import counts_text, done_of, live_of
from shoal.report.results import columns_of, iterate
from shoal.report.source import HttpSource, Json, Source, latest_run
from shoal.wire.checks import did_you_mean

ATTENTION = ("running", "leased", "failed", "lost")  # what `ps RUN` shows unless told otherwise
TABLE_ROWS = 100
MAX_MEMBERS = 8  # of a result that the table shows as columns
CSV_PEEK = 1_000  # rows whose results decide the columns of a CSV

_LIMIT = click.option("--limit", type=click.IntRange(0), metavar="N", help="Rows to show; 0: all.")


@click.command()
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--state", help="Runs: open or finished. Tasks: failed,lost, ... [default: running and failed].")
@click.option("--name", metavar="GLOB", help="Only runs with such a name, e.g. 'scan*'.")
@_LIMIT
@json_option
@server_option
def ps(
    run: str | None, state: str | None, name: str | None, limit: int | None, as_json: bool, server: str | None
) -> None:
    """List runs, newest first; or the tasks of a run that run or failed.

    \b
    Examples:
      shoal ps
      shoal ps --state open
      shoal ps r12
      shoal ps r12 --state failed,lost --json
    """
    with Session(server).source() as source:
        if run is None:
            _list_runs(source, state or "", name or "", limit, as_json)
        else:
            parse_run(run)
            if name is not None:
                raise BadInput("--name picks runs", code="usage", hint=f"leave it or {run} out")
            _list_tasks(source, run, state, limit, as_json)


def _list_runs(source: Source, state: str, name: str, limit: int | None, as_json: bool) -> None:
    if state not in ("", "open", "finished"):
        raise BadInput(
            f"{echo(state)!r} is not a state of a run", code="unknown_state", field="--state", hint="open or finished"
        )
    rows, more = _pages(
        lambda size, before: source.runs(state, name, size, before), "runs", 20 if limit is None else limit
    )
    if as_json:
        print_json({"runs": rows, "next": more})
        return
    if not rows:
        click.echo("no such runs" if state or name else "no runs yet: try `shoal run -- echo hello`")
        return
    now = time.time()
    print_lines(table(("run", "name", "state", "done", "tasks", "running", "failed", "age", "took"), [
        (
            row["run"], row["name"] or "-", run_state(row), done_of(row), row["total"], live_of(row),
            row["counts"].get("failed", 0) + row["counts"].get("lost", 0), show_duration(max(0.0, now - row["created"])),
            show_duration(max(0.0, (row["finished"] or now) - row["created"])),
        ) for row in rows
    ]))  # fmt: skip
    if more is not None:
        click.echo(f"older runs are left out: shoal ps --limit {len(rows) * 5}")
    asleep = next((row["run"] for row in rows if row["finished"] is None), None)
    if asleep is not None and not isinstance(source, HttpSource):
        say(f"no server is running, so nothing new is started; `shoal wait {asleep}` starts one and the work goes on")


def _pages(ask: Any, key: str, limit: int) -> tuple[list[Json], str | None]:
    """Rows of several pages, up to a limit (0: all), and where to go on."""
    rows: list[Json] = []
    before: str | None = ""
    while before is not None and (not limit or len(rows) < limit):
        page = ask(min(1_000, limit - len(rows)) if limit else 1_000, before)
        rows += page[key]
        before = page["next"]
    return rows, before


def _list_tasks(source: Source, run: str, state: str | None, limit: int | None, as_json: bool) -> None:
    states = _states(state) if state is not None else ATTENTION
    info = source.run(run)
    rows: list[Json] = []
    more = None
    most = 50 if limit is None else limit
    after: int | None = 0
    while after is not None and (not most or len(rows) < most):
        page = source.tasks(run, after, min(1_000, most - len(rows)) if most else 1_000, states)
        rows += page["tasks"]
        after = more = page["next"]
    if as_json:
        print_json({"run": run, "counts": info["counts"], "tasks": rows, "next": more})
        return
    title = f"{run} {clean(info['name'])}" if info["name"] else run
    click.echo(f"{title}: {run_state(info)}, {many(info['total'], 'task')}: {counts_text(info)}")
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
    words = [word.strip() for word in text.split(",") if word.strip()]
    known = [state.value for state in TaskState]
    for word in words:
        if word not in known:
            raise BadInput(
                f"{echo(word)!r} is not a state of a task", code="unknown_state", field="--state",
                hint=did_you_mean(word, known),
            )  # fmt: skip
    return words


def _parse_any(text: str) -> int | TaskId | str:
    """A run, a task or a pilot (which stays the text it is)."""
    if is_pilot(text):
        return text
    try:
        return parse_target(text)
    except BadInput:
        raise BadInput(
            f"{echo(text)!r} is neither a run nor a task nor a pilot", code="bad_id",
            hint="a run looks like r12, a task like r12.7, a pilot like p3f9c (`shoal pilots --all`)",
        ) from None  # fmt: skip


@click.command()
@click.argument("target", required=False, metavar="[RUN|TASK|PILOT]")
@json_option
@server_option
def show(target: str | None, as_json: bool, server: str | None) -> None:
    """Everything about a run, a task or a pilot; without a name, about the latest run.

    \b
    Examples:
      shoal show
      shoal show r12
      shoal show r12.7
      shoal show p3f9c
    """
    with Session(server).source() as source:
        target = latest_run(source, say) if target is None else target
        what = _parse_any(target)
        if isinstance(what, str):
            found = next((row for row in source.pilots()["pilots"] if row["pilot"] == target), None)
            if found is None:
                raise NotFound(f"there is no pilot {target}", code="unknown_pilot", hint="see `shoal pilots --all`")
            shown = describe_pilot(found)
        elif isinstance(what, TaskId):
            found = source.task(target)
            shown = describe_task(target, found)
        else:
            found = source.run(target)
            shown = describe_run(found)
        if as_json:
            print_json(found)
        else:
            print_lines(pairs(shown))


@click.command()
@click.argument("target", metavar="RUN|TASK|PILOT|site:S|owner:O")
@json_option
@server_option
def why(target: str, as_json: bool, server: str | None) -> None:
    """Why a run, task, pilot, site or owner is where it is, and what would help.

    \b
    Examples:
      shoal why r12
      shoal why r12.7
      shoal why site:local
      shoal why owner:anna
    """
    if parse_place(target) is None:
        _parse_any(target)
    with Session(server).source() as source:
        answer = source.why(target)
    if as_json:
        print_json(answer)
        return
    state = f" is {answer['state']}" if answer.get("state") else ""
    click.echo(f"{target}{state}:")
    for reason in answer["reasons"]:
        click.echo(f"  {clean(reason['text'])}")
        if reason.get("fix"):
            click.echo(f"    -> {clean(reason['fix'])}")
    if not answer["reasons"]:
        click.echo("  nothing holds it up")


@click.command()
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values, with a header.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines, one row each.")
@_LIMIT
@server_option
def results(run: str | None, as_csv: bool, as_json: bool, limit: int | None, server: str | None) -> None:
    """One row per task: its parameters, state, exit code, duration, host and the last line it printed.

    Without a run, of the latest one.
    A last line that is JSON is parsed. In CSV the members of a JSON object are columns of their own too.
    In Python, `pandas.DataFrame(shoal.results("r12"))` gives the same rows.

    \b
    Examples:
      shoal results r12
      shoal results r12 --csv > results.csv
      shoal results r12 --json | jq .result
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json together (give one of them)")
    if run is not None and "." in run:
        parse_task(run)
        raise BadInput(f"{run} is a task", code="bad_id", hint=f"name its run: {run.partition('.')[0]}")
    if run is not None:
        parse_run(run)
    with Session(server).bulk_source() as source:
        run = latest_run(source, say) if run is None else run
        info = source.run(run)
        rows: Iterator[Json] = iterate(source, run, flat=not as_json)
        if limit:
            rows = itertools.islice(rows, limit)
        if as_json:
            for row in rows:
                sys.stdout.write(json.dumps(row, separators=(",", ":")) + "\n")
        elif as_csv:
            _write_csv(columns_of(info), rows)
        else:
            _print_results(info, rows, limit)


def _write_csv(columns: list[str], rows: Iterator[Json]) -> None:
    peeked = list(itertools.islice(rows, CSV_PEEK))
    # Members that only later rows have are still in the `result` column, which holds the whole line.
    names = list(dict.fromkeys([*columns, *itertools.chain.from_iterable(peeked)]))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    # Most rows have just these columns, in this order.
    writer.writerows(
        row.values() if [*row] == names else [row.get(name) for name in names] for row in itertools.chain(peeked, rows)
    )


def _print_results(info: Json, rows: Iterator[Json], limit: int | None) -> None:
    columns = columns_of(info)
    if limit is None:
        rows = itertools.islice(rows, TABLE_ROWS)
    peeked = list(itertools.islice(rows, TABLE_ROWS))
    extra = [name for name in dict.fromkeys(itertools.chain.from_iterable(peeked)) if name not in columns]
    if extra and len(extra) <= MAX_MEMBERS:
        # Results are objects: their members say more as columns than as one text.
        columns = [*columns[:-1], *extra]
    shown = itertools.chain(peeked, rows)
    print_lines(table(columns, ([row.get(name) for name in columns] for row in shown)))
    if limit is None and info["total"] > TABLE_ROWS:
        left = info["total"] - TABLE_ROWS
        click.echo(f"... {many(left, 'more row')}: --limit 0, --csv or --json")
