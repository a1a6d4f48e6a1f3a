"""`shoal partial`: what the tasks of a run emitted so far, merged. Works with a server and without one."""

from __future__ import annotations

import json
import sys
import time

import click

from shoal.cli.completion import complete_runs
from shoal.cli.output.charts import chart, shows_blocks
from shoal.cli.output.tables import clean, print_lines, shorten, table
from shoal.cli.session import Session, json_option, say, server_option
from shoal.model.quantities import many
from shoal.report.data_source import HttpSource, Json, latest_run
from shoal.report.partial import answer_text, counted_text, goal_text, left_out_text
from shoal.report.run_names import find_run

LOOK_EVERY = 1.0  # seconds between two looks with --follow
WIDTH = 60  # bins of a histogram that are drawn
TEXT = 100  # characters of one answer


@click.command()
@click.argument("run", required=False, metavar="[RUN]", shell_complete=complete_runs)
@click.option("-f", "--follow", is_flag=True, help="Print it again whenever it changes, until the run is over.")
@json_option
@server_option
def partial(run: str | None, follow: bool, as_json: bool, server: str | None) -> None:
    """What the tasks of a run emitted so far, merged into one current answer for each name.

    Tasks emit by lines `name=value` or JSON objects in the file $SHOAL_EMIT, functions by `shoal.emit(name=value)`. Each
    task counts once, whatever its attempts; what fails or is lost does not count. Without a run, of the latest one.

    \b
    Examples:
      shoal sweep --reduce 'E=hist(0,10,50)' 'seed=1..1000' -- ./sim --seed {seed}
      shoal partial r12
      shoal partial r12 --follow
      shoal partial r12 --json | jq '.answers[0].value'
    """
    with Session(server).source() as source:
        run = latest_run(source, say) if run is None else find_run(source, run, say)
        shown: Json | None = None
        while True:
            is_over = not (follow and isinstance(source, HttpSource)) or _is_over(source, run)
            found = source.partial(run)
            if found != shown:
                shown = found
                _show(found, as_json, follow)
            if is_over:
                return
            time.sleep(LOOK_EVERY)


def _is_over(source: HttpSource, run: str) -> bool:
    return source.client.run_row(run)["finished"] is not None


def _show(found: Json, as_json: bool, follow: bool) -> None:
    if as_json:
        text = json.dumps(found, separators=(",", ":")) if follow else json.dumps(found, indent=2)
        click.echo(text)
        return
    if follow and sys.stdout.isatty():
        click.clear()
    print_lines(_lines(found))
    sys.stdout.flush()


def _lines(found: Json) -> list[str]:
    """The answers as a table, drawn histograms, and how far the goal is."""
    lines = [f"{found['run']}: {counted_text(found)}"]
    if found["answers"]:
        rows = [
            [answer["name"], answer["reducer"], f"{answer['n']:,}", shorten(clean(answer_text(answer)), TEXT)]
            for answer in found["answers"]
        ]
        lines += table(["name", "reducer", "n", "answer"], rows)
    else:
        lines.append('nothing was emitted yet: a task writes `name=value` lines to "$SHOAL_EMIT"')
    for answer in found["answers"]:
        if "counts" in answer:
            lines += _drawn(answer)
        if answer["left_out"]:
            lines.append(f"{answer['name']}: {many(answer['left_out'], 'value')} left out, no number that can be used")
    if found["left_out"]:
        lines.append(left_out_text(found["left_out"]))
    if found["goal"] is not None:
        lines.append(f"goal: {clean(goal_text(found['goal']))}")
    return lines


def _drawn(answer: Json) -> list[str]:
    """A histogram as columns, several bins in one where there are many."""
    counts = answer["counts"]
    each = -(-len(counts) // WIDTH)
    columns = [float(sum(counts[at : at + each])) for at in range(0, len(counts), each)]
    most = max(columns)
    outside = [f"{answer[name]:,} {name}" for name in ("below", "above") if answer[name]]
    title = f"{answer['name']} from {answer['low']:g} to {answer['high']:g}" + (
        f" ({', '.join(outside)})" if outside else ""
    )
    return [title, *(f"  |{line}" for line in chart(columns, 3, most, shows_blocks()))]
