"""`shoal show`: everything about a run, a task or a pilot. Works with a server and without one."""

from __future__ import annotations

import time
from itertools import chain

import click

from shoal.cli.completion import complete_runs
from shoal.cli.output.describe import describe_pilot, describe_run, describe_task, outcome_of, run_state
from shoal.cli.output.json_documents import iso_document, run_document, task_history
from shoal.cli.output.tables import pairs, print_json, print_lines
from shoal.cli.session import Session, common_options, say
from shoal.cli.workflows.levels import describe_levels
from shoal.model.errors import BadInput, NotFound, Unreachable
from shoal.model.ids import TaskId, is_pilot, target_of
from shoal.report.data_source import Source, latest_run
from shoal.report.run_names import ANY, find_target
from shoal.report.summary import alone_document, alone_lines, deadline_document, deadline_lines, read_alone

PATIENCE, PAUSE = 60.0, 1.0  # seconds that --outcome waits for a server which is just being started again


def find_any(source: Source, text: str) -> str:
    """The id of a run or task, which may be given by the name of its run, or of a pilot."""
    if is_pilot(text) and any(row["pilot"] == text for row in source.pilots()["pilots"]):
        return text
    try:
        return find_target(source, text, say, ANY)
    except BadInput:
        if is_pilot(text):
            raise NotFound(f"there is no pilot {text}", code="unknown_pilot", hint="see `shoal pilots --all`") from None
        raise


@click.command()
@click.argument("target", required=False, metavar="[RUN|TASK|PILOT]", shell_complete=complete_runs)
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
        target = find_any(source, target)
        what = target_of(target)
        if what is None:
            found = next(row for row in source.pilots()["pilots"] if row["pilot"] == target)
            shown, document = describe_pilot(found), iso_document(found)
        elif isinstance(what, TaskId):
            found = source.task(target)
            shown, document = describe_task(target, found), task_history(target, found)
        else:
            found = source.run(target)
            shown = chain(describe_run(found), (("", line.strip()) for line in deadline_lines(source, found)))
            alone = read_alone(source, target)
            shown = chain(shown, (("", line) for line in alone_lines(alone)))
            document = {**run_document(found), **deadline_document(source, found), **alone_document(alone)}
            from shoal.report.workflows import progress

            if progress.is_workflow(found):
                now = time.time() if found["finished"] is None else None
                levels = progress.read_progress(source, found, now)
                shown = chain(shown, describe_levels(levels))
                document |= progress.document(levels)
        if as_json:
            print_json(document)
        else:
            print_lines(pairs(shown))


def read_outcome(target: str | None, server: str | None) -> str:
    """What became of a run or task. Programs that ask give up at the first error, so a server that is away is awaited."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            with Session(server).source() as source:
                target = latest_run(source, say) if target is None else target
                target = find_any(source, target)
                what = target_of(target)
                if what is None:
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
