"""`shoal accept`: what was predicted of a run is accepted, and it starts."""

from __future__ import annotations

import click

from shoal.cli.completion import complete_runs
from shoal.cli.output.tables import print_answer
from shoal.cli.session import Session, common_options


@click.command()
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@common_options
def accept(run: str, as_json: bool, server: str | None) -> None:
    """Accept a run that was submitted with --plan and waits for that, whatever the chance of its deadline.

    Instead of accepting, change it (`shoal set RUN --deadline 12h`: it is predicted anew) or withdraw it (`shoal cancel RUN`).

    \b
    Examples:
      shoal show r12                  what was predicted
      shoal accept r12
    """
    session = Session(server)
    run = session.find_target(run)
    with session.client_for(run) as client:
        answer = client.accept(run)
    print_answer(answer, as_json, f"{run} is accepted")
