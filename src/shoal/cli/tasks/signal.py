"""`shoal signal`: send a signal to running tasks."""

from __future__ import annotations

import click

from shoal.cli.completion import complete_runs
from shoal.cli.output.tables import print_answer
from shoal.cli.session import Session, common_options
from shoal.model.quantities import many
from shoal.model.signals import parse_signal


@click.command()
@click.argument("name", metavar="SIGNAL")
@click.argument("targets", nargs=-1, required=True, metavar="RUN|TASK...", shell_complete=complete_runs)
@common_options
def signal(name: str, targets: tuple[str, ...], as_json: bool, server: str | None) -> None:
    """Send a signal to tasks that run: by name (USR1, SIGUSR1) or number (10).

    \b
    Examples:
      shoal signal USR1 r12.7      e.g. write a checkpoint now
      shoal signal INT r12         to all of the run that run
    """
    wanted = parse_signal(name)
    session = Session(server, changes=True)
    targets = tuple(session.find_target(target) for target in targets)
    with session.client_for(targets[0]) as client:
        answer = client.signal(targets, wanted)
    idle = answer.get("not_running") or 0
    rest = f", {idle:,} {'does' if idle == 1 else 'do'} not run" if idle else ""
    print_answer(answer, as_json, f"{wanted} sent to {many(answer['signalled'], 'task')}{rest}")
