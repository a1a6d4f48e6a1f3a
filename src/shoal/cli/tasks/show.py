"""`shoal show`: everything about a run, a task or a pilot. Works with a server and without one."""

from __future__ import annotations

import time

import click

from shoal.cli.output.describe import describe_pilot, describe_run, describe_task, outcome_of, run_state
from shoal.cli.output.tables import pairs, print_json, print_lines
from shoal.cli.session import Session, common_options, say
from shoal.model.errors import BadInput, NotFound, Unreachable, echo
from shoal.model.ids import TaskId, is_pilot, parse_target
from shoal.report.data_source import latest_run

PATIENCE, PAUSE = 60.0, 1.0  # seconds that --outcome waits for a server which is just being started again


def parse_any(text: str) -> int | TaskId | str:
    """A run, a task or a pilot (which stays the text it is)."""
    if is_pilot(text):
        return text
    try:
        return parse_target(text)
    except BadInput:
        raise BadInput(
            f"{echo(text)!r} is neither a run nor a task nor a pilot", code="bad_id",
            hint="a run looks like r12, a task like r12.7, a pilot like p3f9c (`shoal pilots --all`)",
        ) from None  # fmt: skip


@click.command()
@click.argument("target", required=False, metavar="[RUN|TASK|PILOT]")
@click.option("--outcome", is_flag=True, help="Only one word about a run or task: running, success or failed.")
@common_options
def show(target: str | None, outcome: bool, as_json: bool, server: str | None) -> None:
    """Everything about a run, a task or a pilot; without a name, about the latest run.

    --outcome is for programs that ask again and again, such as workflow managers: `running` until nothing changes any
    more, then `success` if every task succeeded, else `failed`. It waits up to a minute for a server that is away.

    \b
    Examples:
      shoal show
      shoal show r12
      shoal show r12.7
      shoal show p3f9c
      shoal show --outcome r12
    """
    if outcome and as_json:
        raise click.UsageError("--outcome and --json together (give one of them)")
    if outcome:
        click.echo(read_outcome(target, server))
        return
    with Session(server).source() as source:
        target = latest_run(source, say) if target is None else target
        what = parse_any(target)
        if isinstance(what, str):
            found = next((row for row in source.pilots()["pilots"] if row["pilot"] == target), None)
            if found is None:
                raise NotFound(f"there is no pilot {target}", code="unknown_pilot", hint="see `shoal pilots --all`")
            shown = describe_pilot(found)
        elif isinstance(what, TaskId):
            found = source.task(target)
            shown = describe_task(target, found)
        else:
            found = source.run(target)
            shown = describe_run(found)
        if as_json:
            print_json(found)
        else:
            print_lines(pairs(shown))


def read_outcome(target: str | None, server: str | None) -> str:
    """What became of a run or task. Programs that ask give up at the first error, so a server that is away is awaited."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            with Session(server).source() as source:
                target = latest_run(source, say) if target is None else target
                what = parse_any(target)
                if isinstance(what, str):
                    raise BadInput(
                        f"{target} is a pilot, and only runs and tasks have an outcome", code="bad_id",
                        hint="a run looks like r12, a task like r12.7",
                    )  # fmt: skip
                return outcome_of(
                    source.task(target)["state"] if isinstance(what, TaskId) else run_state(source.run(target))
                )
        except Unreachable:
            if time.monotonic() > until:
                raise
            time.sleep(PAUSE)
