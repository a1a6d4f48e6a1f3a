"""`shoal wait`: wait for runs, with progress."""

from __future__ import annotations

import click

from shoal.cli.completion import complete_runs
from shoal.cli.session import Session, common_options, say
from shoal.cli.tasks.options import QUIET_OPTION
from shoal.client.client import Client
from shoal.client.config import submitting_task
from shoal.model.errors import BadInput
from shoal.model.ids import PARENT
from shoal.report.data_source import latest_run
from shoal.wire.http.run_counts import units_of


def _check_above(client: Client, runs: tuple[str, ...]) -> None:
    """Refuse to wait in a task for the run of that task, or for one above it: it would never end."""
    task = submitting_task(client.url)
    while task:
        run = task.partition(".")[0]
        if run in runs:
            raise BadInput(
                f"{run} cannot end before {task}, which would wait for it", code="waits_for_itself",
                hint="name a run that this task submitted",
            )  # fmt: skip
        task = client.run(run)["labels"].get(PARENT, "")


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=complete_runs)
@QUIET_OPTION
@common_options
def wait(runs: tuple[str, ...], quiet: bool, as_json: bool, server: str | None) -> int:
    """Wait for runs with progress; exit status 0 only if all their tasks succeeded. Without a run: the latest one.

    \b
    Examples:
      shoal wait
      shoal wait r12
      shoal wait r12 r13 --json

    Ctrl-C stops the waiting, not the runs; a second one within 2 s cancels the run that is waited for.
    """
    from shoal.cli.main import INTERRUPTED
    from shoal.cli.output.wait_for_run import wait_for

    session = Session(server)
    runs = tuple(session.find_run(run) for run in runs)
    if not runs:
        with session.source() as source:
            runs = (latest_run(source, say),)
    with session.client_for(runs[0]) as client:
        found = [client.run(run) for run in runs]  # all of them exist before the first is waited for
        _check_above(client, runs)
    worst = 0
    for run, info in zip(runs, found, strict=True):
        status = wait_for(
            session, session.client(), run, quiet, as_json, single=info["total"] == 1 and not units_of(info)
        )
        if status == INTERRUPTED:
            return status
        worst = max(worst, status)
    return worst
