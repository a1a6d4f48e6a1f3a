"""`shoal why`: why something waits, failed or is where it is. Works with a server and without one."""

from __future__ import annotations

import click

from shoal.cli.completion import complete_runs
from shoal.cli.output.tables import clean, print_json
from shoal.cli.session import Session, common_options
from shoal.cli.tasks.show import find_any
from shoal.model.ids import is_pilot, parse_place


@click.command()
@click.argument("target", metavar="RUN|TASK|PILOT|site:S|owner:O", shell_complete=complete_runs)
@common_options
def why(target: str, as_json: bool, server: str | None) -> None:
    """Why a run, task, pilot, site or owner is where it is, and what would help.

    \b
    Examples:
      shoal why r12
      shoal why r12.7
      shoal why site:local
      shoal why owner:anna
    """
    with Session(server).source() as source:
        if parse_place(target) is None and not is_pilot(target):
            target = find_any(source, target)
        answer = source.why(target)
    if as_json:
        print_json(answer)
        return
    state = f" is {answer['state']}" if answer.get("state") else ""
    click.echo(f"{target}{state}:")
    for reason in answer["reasons"]:
        click.echo(f"  {clean(reason['text'])}")
        if reason.get("fix"):
            click.echo(f"    -> {clean(reason['fix'])}")
    if not answer["reasons"]:
        click.echo("  nothing holds it up")
