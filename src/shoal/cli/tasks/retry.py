"""`shoal retry`: run failed, cancelled and lost tasks again."""

from __future__ import annotations

from typing import Any

import click

from shoal.cli.completion import complete_runs
from shoal.cli.output.tables import print_json
from shoal.cli.session import Session, common_options
from shoal.cli.workflows.levels import VERTEX_OPTIONS, chosen_tasks, parts_of
from shoal.model.errors import BadInput, echo
from shoal.model.quantities import many
from shoal.model.states import Cause
from shoal.wire.did_you_mean import did_you_mean

AGAIN = ("failed", "cancelled", "lost")  # states that a retry can leave


@click.command()
@click.argument("targets", nargs=-1, metavar="[RUN|TASK]...", shell_complete=complete_runs)
@click.option("--state", type=click.Choice(AGAIN), help="Only tasks in this state.")
@click.option("--cause", metavar="CAUSE", help="Only tasks that ended so, e.g. over_time, out_of_memory.")
@click.option("--exit-code", type=int, metavar="N", help="Only tasks whose command ended with this code.")
@click.option("--host", metavar="GLOB", help="Only tasks that last ran on such a host, e.g. 'n0*'.")
@click.option("--site", metavar="NAME", help="Only tasks that last ran at this site.")
@click.option("--message", metavar="GLOB", help="Only tasks with such a message, e.g. '*license*'.")
@VERTEX_OPTIONS
@common_options
def retry(
    targets: tuple[str, ...], as_json: bool, server: str | None, vertices: tuple[str, ...], levels: tuple[int, ...],
    below: tuple[str, ...], **where: str | int | None,
) -> None:  # fmt: skip
    """Make failed, cancelled and lost tasks ready again; results that succeeded stay.

    With a filter only those that fit; a filter without a run or task looks through all your runs. Of a workflow also single
    vertices, levels or all below a vertex.

    \b
    Examples:
      shoal retry r12          all of the run that did not succeed
      shoal retry r12.7
      shoal retry r12 --cause out_of_memory
      shoal retry r12 --below fit
      shoal retry --host 'n017*' --state failed
    """
    session = Session(server, changes=True)
    targets = tuple(session.find_target(target) for target in targets)
    given = {name: value for name, value in where.items() if value is not None}
    if not targets and not given:
        raise click.UsageError("say what to retry (e.g. shoal retry r12, or a filter: shoal retry --cause over_time)")
    causes = [cause.value for cause in Cause]
    if "cause" in given and given["cause"] not in causes:
        raise BadInput(
            f"{echo(given['cause'])!r} is not a cause", code="unknown_cause", field="--cause",
            hint=did_you_mean(str(given["cause"]), causes),
        )  # fmt: skip
    chosen = {"vertices": vertices, "levels": levels, "below": below}
    tasks = chosen_tasks(session, targets, chosen, AGAIN, last_first=False)
    with session.client_for(targets[0] if targets else "run") as client:
        answer: dict[str, Any] = {"tasks": 0}
        for part in [targets] if tasks is None else parts_of(tasks):
            told = client.retry(part, given)
            answer = {**told, "tasks": answer["tasks"] + told["tasks"]}
    if as_json:
        print_json(answer)
        return
    named = [target.partition(".")[0] for target in targets]
    runs = [run if isinstance(run, str) else f"r{run}" for run in answer.get("runs") or named]
    if answer["tasks"]:
        click.echo(f"{many(answer['tasks'], 'task')} ready again: shoal wait {' '.join(dict.fromkeys(runs))}")
    elif given:
        click.echo("nothing to retry: no task that failed, was cancelled or lost fits the filter")
    else:
        click.echo("nothing to retry: no such task failed, was cancelled or lost")
