"""`shoal cancel`: cancel runs or tasks."""

from __future__ import annotations

from typing import Any

import click

from shoal.cli.completion import complete_runs
from shoal.cli.output.tables import print_answer
from shoal.cli.session import Session, common_options
from shoal.cli.workflows.levels import VERTEX_OPTIONS, chosen_tasks, parts_of
from shoal.model.quantities import many
from shoal.model.states import FINAL, TaskState

OPEN = tuple(state.value for state in TaskState if state not in FINAL)


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="RUN|TASK...", shell_complete=complete_runs)
@VERTEX_OPTIONS
@common_options
def cancel(targets: tuple[str, ...], as_json: bool, server: str | None, **chosen: tuple[Any, ...]) -> None:
    """Cancel runs or tasks. What is finished stays as it is.

    Of a workflow also single vertices, levels or all below a vertex. What waits for something cancelled fails.

    \b
    Examples:
      shoal cancel r12
      shoal cancel r12.7 r12.8
      shoal cancel r12 --below fit
    """
    session = Session(server, changes=True)
    targets = tuple(session.find_target(target) for target in targets)
    tasks = chosen_tasks(session, targets, chosen, OPEN, last_first=True)
    answer = {"cancelled": 0, "already_final": 0}
    with session.client_for(targets[0]) as client:
        for part in [targets] if tasks is None else parts_of(tasks):
            told = client.cancel(part)
            answer = {**told, **{name: answer[name] + (told.get(name) or 0) for name in answer}}
    final = answer.get("already_final") or 0
    already = f", {final:,} {'was' if final == 1 else 'were'} finished already" if final else ""
    print_answer(answer, as_json, f"{many(answer['cancelled'], 'task')} cancelled{already}")
