"""`shoal why`: why something waits, failed or is where it is. Works with a server and without one."""

from __future__ import annotations

import click

from shoal.cli.completion import complete_runs
from shoal.cli.output.tables import clean, print_json
from shoal.cli.session import Session, common_options, say
from shoal.cli.tasks.show import find_any
from shoal.client.visible_files import with_bindings
from shoal.model.errors import BadInput, echo
from shoal.model.ids import is_pilot, parse_place
from shoal.report.data_source import Source, latest_run


def _find_by_name(session: Session, source: Source, text: str) -> str:
    """The run, task or site that a text names; what could be both a site and a run is not guessed."""
    is_site = text in session.site_names or any(row["site"] == text for row in source.pilots()["pilots"])
    if not is_site:
        return find_any(source, text)
    try:
        run = find_any(source, text)
    except BadInput:
        return f"site:{text}"
    raise BadInput(f"{echo(text)} is a site and a run", code="bad_id", hint=f"write site:{text} or {run}")


@click.command()
@click.argument("target", required=False, metavar="[RUN|TASK|PILOT|SITE|owner:O]", shell_complete=complete_runs)
@common_options
def why(target: str | None, as_json: bool, server: str | None) -> None:
    """Why a run, task, pilot, site or owner is where it is, and what would help; without a name, about the latest run.

    A site is given by its name, or as site:NAME if a run has the same name.

    \b
    Examples:
      shoal why
      shoal why r12
      shoal why r12.7
      shoal why hpc
      shoal why site:local
      shoal why owner:anna
    """
    session = Session(server)
    with session.source() as source:
        target = latest_run(source, say) if target is None else target
        if parse_place(target) is None and not is_pilot(target):
            target = _find_by_name(session, source, target)
        answer = with_bindings(source.why(target), lambda: source.run(target.partition(".")[0]))
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
