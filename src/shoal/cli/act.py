"""Acting commands: `wait`, `cancel`, `retry`."""

from __future__ import annotations

import click

from shoal.cli.session import Session, json_option, say, server_option
from shoal.cli.tables import print_json
from shoal.cli.words import QUIET_OPTION
from shoal.model.ids import parse_run, parse_target
from shoal.model.quantities import many
from shoal.report.source import latest_run


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
    from shoal.cli.progress import INTERRUPTED, wait_for

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
@click.argument("targets", nargs=-1, required=True, metavar="RUN|TASK...")
@json_option
@server_option
def retry(targets: tuple[str, ...], as_json: bool, server: str | None) -> None:
    """Make failed, cancelled and lost tasks ready again; results that succeeded stay.

    \b
    Examples:
      shoal retry r12          all of the run that did not succeed
      shoal retry r12.7
    """
    for target in targets:
        parse_target(target)
    with Session(server).client_for(targets[0]) as client:
        answer = client.retry(targets)
    if as_json:
        print_json(answer)
        return
    runs = list(dict.fromkeys(target.partition(".")[0] for target in targets))
    if answer["tasks"]:
        click.echo(f"{many(answer['tasks'], 'task')} ready again: shoal wait {' '.join(runs)}")
    else:
        click.echo("nothing to retry: no such task failed, was cancelled or lost")
