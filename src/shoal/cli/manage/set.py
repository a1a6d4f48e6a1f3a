"""`shoal set`: other values of task fields for what is queued."""

from __future__ import annotations

from typing import Any

import click

from shoal.cli.output.tables import clean, print_answer
from shoal.cli.session import Session, common_options, say
from shoal.cli.tasks.options import task_options
from shoal.cli.tasks.submission import given_values
from shoal.model.quantities import many
from shoal.model.task.spec import FIELDS, Spec
from shoal.model.task.task_field import fields_with

CHANGEABLE = tuple(field.name for field in fields_with(Spec, "queued"))


@click.command("set")
@click.argument("targets", nargs=-1, required=True, metavar="RUN|TASK...")
@task_options(without=[name for name in FIELDS if name not in CHANGEABLE])
@common_options
def set_command(targets: tuple[str, ...], as_json: bool, server: str | None, **options: Any) -> None:
    """Change what is queued: its priority, limits, needs or deadline. What has begun keeps its own.

    A task that fails later gets the new values with its next attempt.

    \b
    Examples:
      shoal set r12 --priority 5             goes before your other runs
      shoal set r12.7 --memory 8G --time 2h
      shoal set train --require 'site == "b"'  the latest run of that name
    """
    session = Session(server)
    targets = tuple(session.find_target(target) for target in targets)
    fields = given_values(options)
    if not fields:
        names = ", ".join(f"--{FIELDS[name].option_name}" for name in CHANGEABLE)
        raise click.UsageError(f"say what to change (one of {names})")
    with session.client_for(targets[0]) as client:
        answer = client.set_fields(targets, fields)
    for warning in answer["warnings"]:
        say(f"note: {clean(warning)}")
    begun = answer["begun"]
    rest = f", {begun:,} had begun and {'keeps its' if begun == 1 else 'keep their'} own" if begun else ""
    print_answer(answer, as_json, f"{many(answer['tasks'], 'task')} changed{rest}")


set = set_command
