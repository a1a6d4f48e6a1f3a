"""`shoal copy`: the same work once more, with changes."""

from __future__ import annotations

import uuid
from typing import Any

import click

from shoal.cli.output.tables import clean, print_json
from shoal.cli.session import Session, common_options, say
from shoal.cli.tasks.options import task_options
from shoal.cli.tasks.submission import given_values
from shoal.model.errors import BadInput
from shoal.model.ids import parse_target
from shoal.model.quantities import many
from shoal.report.run_names import RUN

NOT_CHANGED = ("shell",)  # it goes with a command, and another command is another run


@click.command()
@click.argument("run", metavar="RUN")
@click.option("--only", metavar="WHICH", help="Only tasks in these states or of these numbers: failed, lost, 1-20,33.")
@click.option("--name", help="A name for the new run [default: the old one].")
@click.option("--seed", type=int, help="Another random seed [default: the same, so that results can be repeated].")
@task_options(without=NOT_CHANGED)
@common_options
def copy(
    run: str, only: str | None, name: str | None, seed: int | None, as_json: bool, server: str | None, **options: Any
) -> None:
    """Submit the same work once more, as a new run with other limits, needs or files; print its id.

    It has the directory and the environment of the first submission, and its seed.

    \b
    Examples:
      shoal copy r12
      shoal copy r12 --only failed --memory 16G
      shoal copy r12 --only 1-20 --require 'site == "b"' --name again
      shoal wait $(shoal copy r12)
    """
    session = Session(server)
    run = session.find_target(run, RUN)
    if not isinstance(parse_target(run), int):
        raise BadInput(
            f"{run} is a task",
            code="bad_id",
            hint=f"copy some tasks of a run: shoal copy {run.replace('.', ' --only ', 1)}",
        )
    if only == "":
        raise BadInput(
            "no tasks", code="unknown_state", field="--only", hint="states or numbers of tasks: failed, lost, 1-20,33"
        )
    fields = given_values(options)
    if only is not None and "array" in fields:
        raise click.UsageError("--only and --array together (which tasks of the run, or which instead of them?)")
    with session.client_for(run) as client:
        key = f"auto-{uuid.uuid4()}"
        answer = client.copy(run, fields, key, only=only, name=name, seed=seed)
    for warning in answer.get("warnings") or ():
        say(f"note: {clean(warning)}")
    if as_json:
        print_json(answer)
        return
    say(f"{answer['run']} has {many(answer['tasks'], 'task')} of {run}")
    click.echo(answer["run"])
