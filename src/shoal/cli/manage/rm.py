"""`shoal rm`: remove finished runs."""

from __future__ import annotations

import sys

import click

from shoal.cli.output.tables import print_answer
from shoal.cli.session import Session, common_options
from shoal.model.errors import BadInput
from shoal.model.ids import parse_target
from shoal.model.quantities import many, show_size
from shoal.report.run_names import RUN


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask when there are several.")
@common_options
def rm(runs: tuple[str, ...], yes: bool, as_json: bool, server: str | None) -> None:
    """Remove finished runs: their results, logs and environment. Files that tasks wrote stay where they are.

    Their core hours stay in the accounts, their events in the journal until it is pruned, and their numbers are not
    used again.

    \b
    Examples:
      shoal rm r12
      shoal rm r12 r13 --yes
    """
    session = Session(server)
    runs = tuple(session.find_target(run, RUN) for run in runs)
    for run in runs:
        if not isinstance(parse_target(run), int):
            hint = f"name the run: shoal rm {run.partition('.')[0]}"
            raise BadInput(f"{run} is a task, and only whole runs can be removed", code="bad_id", hint=hint)
    names = list(dict.fromkeys(runs))
    if len(names) > 1 and not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(f"{len(names)} runs at once need a yes (write: shoal rm --yes {' '.join(names)})")
        click.confirm(f"Remove {len(names)} runs and their logs for good?", abort=True, err=True)
    with session.client_for(names[0]) as client:
        answer = client.remove(names)
    freed = f", {show_size(answer['log_bytes'])} of logs" if answer["log_bytes"] else ""
    what = f"{', '.join(names)} removed" if len(names) < 4 else f"{many(answer['runs'], 'run')} removed"
    print_answer(answer, as_json, f"{what} ({many(answer['tasks'], 'task')}{freed})")
