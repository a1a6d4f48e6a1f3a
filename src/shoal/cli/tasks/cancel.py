"""`shoal cancel`: cancel runs or tasks."""

from __future__ import annotations

import click

from shoal.cli.completion import complete_runs
from shoal.cli.output.tables import print_answer
from shoal.cli.session import Session, common_options
from shoal.model.quantities import many


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="RUN|TASK...", shell_complete=complete_runs)
@common_options
def cancel(targets: tuple[str, ...], as_json: bool, server: str | None) -> None:
    """Cancel runs or tasks. What is finished stays as it is.

    \b
    Examples:
      shoal cancel r12
      shoal cancel r12.7 r12.8
    """
    session = Session(server, changes=True)
    targets = tuple(session.find_target(target) for target in targets)
    with session.client_for(targets[0]) as client:
        answer = client.cancel(targets)
    final = answer.get("already_final") or 0
    already = f", {final:,} {'was' if final == 1 else 'were'} finished already" if final else ""
    print_answer(answer, as_json, f"{many(answer['cancelled'], 'task')} cancelled{already}")
