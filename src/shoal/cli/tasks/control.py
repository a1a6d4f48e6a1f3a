"""Acting commands: `wait`, `cancel`, `retry`, `signal`."""

from __future__ import annotations

import click

from shoal.cli.output.tables import print_json
from shoal.cli.session import Session, json_option, say, server_option
from shoal.cli.tasks.options import QUIET_OPTION
from shoal.model.errors import BadInput, echo
from shoal.model.ids import parse_run, parse_target
from shoal.model.quantities import many
from shoal.model.signals import parse_signal
from shoal.model.states import Cause
from shoal.report.source import latest_run
from shoal.wire.checks import did_you_mean

AGAIN = ("failed", "cancelled", "lost")  # states that a retry can leave


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@QUIET_OPTION
@json_option
@server_option
def wait(runs: tuple[str, ...], quiet: bool, as_json: bool, server: str | None) -> int:
    """Wait for runs with progress; exit status 0 only if all their tasks succeeded. Without a run: the latest one.

    \b
    Examples:
      shoal wait
      shoal wait r12
      shoal wait r12 r13 --json

    Ctrl-C stops the waiting, not the runs; a second one within 2 s cancels the run that is waited for.
    """
    from shoal.cli.output.wait_for_run import INTERRUPTED, wait_for

    for run in runs:
        parse_run(run)
    session = Session(server)
    if not runs:
        with session.source() as source:
            runs = (latest_run(source, say),)
    with session.client_for(runs[0]) as client:
        found = [client.run(run) for run in runs]  # all of them exist before the first is waited for
    worst = 0
    for run, info in zip(runs, found, strict=True):
        status = wait_for(session, session.client(), run, quiet, as_json, single=info["total"] == 1)
        if status == INTERRUPTED:
            return status
        worst = max(worst, status)
    return worst


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="RUN|TASK...")
@json_option
@server_option
def cancel(targets: tuple[str, ...], as_json: bool, server: str | None) -> None:
    """Cancel runs or tasks. What is finished stays as it is.

    \b
    Examples:
      shoal cancel r12
      shoal cancel r12.7 r12.8
    """
    for target in targets:
        parse_target(target)
    with Session(server).client_for(targets[0]) as client:
        answer = client.cancel(targets)
    if as_json:
        print_json(answer)
        return
    final = answer.get("already_final") or 0
    already = f", {final:,} {'was' if final == 1 else 'were'} finished already" if final else ""
    click.echo(f"{many(answer['cancelled'], 'task')} cancelled{already}")


@click.command()
@click.argument("targets", nargs=-1, metavar="[RUN|TASK]...")
@click.option("--state", type=click.Choice(AGAIN), help="Only tasks in this state.")
@click.option("--cause", metavar="CAUSE", help="Only tasks that ended so, e.g. over_time, out_of_memory.")
@click.option("--exit-code", type=int, metavar="N", help="Only tasks whose command ended with this code.")
@click.option("--host", metavar="GLOB", help="Only tasks that last ran on such a host, e.g. 'n0*'.")
@click.option("--site", metavar="NAME", help="Only tasks that last ran at this site.")
@click.option("--message", metavar="GLOB", help="Only tasks with such a message, e.g. '*license*'.")
@json_option
@server_option
def retry(targets: tuple[str, ...], as_json: bool, server: str | None, **where: str | int | None) -> None:
    """Make failed, cancelled and lost tasks ready again; results that succeeded stay.

    With a filter only those that fit; a filter without a run or task looks through all your runs.

    \b
    Examples:
      shoal retry r12          all of the run that did not succeed
      shoal retry r12.7
      shoal retry r12 --cause out_of_memory
      shoal retry --host 'n017*' --state failed
    """
    for target in targets:
        parse_target(target)
    given = {name: value for name, value in where.items() if value is not None}
    if not targets and not given:
        raise click.UsageError("say what to retry (e.g. shoal retry r12, or a filter: shoal retry --cause over_time)")
    causes = [cause.value for cause in Cause]
    if "cause" in given and given["cause"] not in causes:
        raise BadInput(
            f"{echo(given['cause'])!r} is not a cause", code="unknown_cause", field="--cause",
            hint=did_you_mean(str(given["cause"]), causes),
        )  # fmt: skip
    with Session(server).client_for(targets[0] if targets else "run") as client:
        answer = client.retry(targets, given)
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


@click.command()
@click.argument("name", metavar="SIGNAL")
@click.argument("targets", nargs=-1, required=True, metavar="RUN|TASK...")
@json_option
@server_option
def signal(name: str, targets: tuple[str, ...], as_json: bool, server: str | None) -> None:
    """Send a signal to tasks that run: by name (USR1, SIGUSR1) or number (10).

    \b
    Examples:
      shoal signal USR1 r12.7      e.g. write a checkpoint now
      shoal signal INT r12         to all of the run that run
    """
    wanted = parse_signal(name)
    for target in targets:
        parse_target(target)
    with Session(server).client_for(targets[0]) as client:
        answer = client.signal(targets, wanted)
    if as_json:
        print_json(answer)
        return
    idle = answer.get("not_running") or 0
    rest = f", {idle:,} {'does' if idle == 1 else 'do'} not run" if idle else ""
    click.echo(f"{wanted} sent to {many(answer['signalled'], 'task')}{rest}")
