"""`shoal logs`: what a task printed, or prints right now."""

from __future__ import annotations

import codecs
import os
import sys
import time
from collections.abc import Callable

import click

from shoal.cli.completion import complete_runs
from shoal.cli.output.tables import clean, clean_block, write_raw, write_stream
from shoal.cli.session import Session, say, server_option
from shoal.client.client import Client
from shoal.model.errors import BadInput, NotFound, Unreachable
from shoal.model.ids import parse_task, target_of
from shoal.model.quantities import many
from shoal.model.states import TaskState
from shoal.model.task.sweep import fill
from shoal.report.data_source import Json
from shoal.wire.task import parse_spec

WAIT = 10.0  # seconds that the server holds a request
PAUSE = 1.0  # seconds before the next look at a task that does not run
PATIENCE = 60.0  # seconds that a lost server is waited for


@click.command()
@click.argument("task", metavar="TASK", shell_complete=complete_runs)
@click.option("--stderr", is_flag=True, help="Standard error instead of standard output.")
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Which attempt [default: the latest].")
@click.option("-f", "--follow", "follows", is_flag=True, help="Print what comes until the task is over.")
@server_option
def logs(task: str, stderr: bool, attempt: int | None, follows: bool, server: str | None) -> None:
    """What a task printed. On a terminal control characters are taken out; a pipe gets every byte.

    \b
    Examples:
      shoal logs r12.7
      shoal logs r12.7 --follow
      shoal logs r12.7 --stderr --attempt 1
    """
    session = Session(server)
    found = session.find_target(task)
    if isinstance(target_of(found), int):
        raise BadInput(f"{task} is a run", code="bad_id", hint=f"name one of its tasks, e.g. {task}.1")
    task = found
    stream = "stderr" if stderr else "stdout"
    if follows:
        _follow(session, task, stream, attempt)
        return
    with session.source() as source:
        wrote = write_stream(source.logs(task, stream, attempt))
        if not wrote:
            _check_ran(task, source.task(task), attempt)
            _check_here(task, source.task(task), stream)
    if not wrote and sys.stdout.isatty():
        say("nothing on standard error" if stderr else "nothing on standard output; try --stderr")


def _follow(session: Session, task: str, stream: str, attempt: int | None) -> None:
    client = session.running()
    if client is None:
        raise Unreachable(
            "--follow needs a running server", code="not_running",
            hint=f"without it: what is kept; `shoal wait {task.partition('.')[0]}` starts a server",
        )  # fmt: skip
    with client:
        write = terminal_writer() if sys.stdout.isatty() else write_raw
        if not follow(client, task, stream, attempt, write):
            _check_ran(task, client.task(task), attempt)
            _check_here(task, client.task(task), stream)


def follow(
    client: Client,
    task: str,
    stream: str,
    attempt: int | None,
    write: Callable[[bytes], object],
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Write a stream as it grows, until the task is final; retries are followed, too. Returns the number of bytes."""
    number, offset, received, lost, over = attempt, 0, 0, 0.0, False
    while True:
        try:
            if number is None:
                number = _latest(client.task(task))  # one attempt at a time, so that the bytes of two are never mixed
            part = client.logs(task, stream, number, offset, WAIT)
            found = client.task(task) if not part.more and not part.data else None
        except Unreachable:
            lost += PAUSE
            if lost > PATIENCE:
                raise
            sleep(PAUSE)
            continue
        write(part.data)
        offset, received, lost = part.next, received + len(part.data), 0.0
        if part.missing:
            raise NotFound(f"{many(part.missing, 'byte')} of it never came from its host", code="log_not_whole")
        if found is None:
            continue
        latest = _latest(found)
        if attempt is None and latest != number:
            if number is not None:
                say(f"attempt {number} of {task} is over, attempt {latest} follows")
                offset = 0
            number = latest
        elif TaskState(found["state"]).final or (attempt is not None and (latest or 0) > attempt):
            if over:
                return received
            over = True  # it may have written between the two requests: read once more
        else:
            sleep(PAUSE)


def _latest(found: Json) -> int | None:
    """The number of a task's latest attempt; None if it never ran here."""
    row = found["task"] or {}
    return None if row.get("reused") else int(row.get("attempt") or 0) or None


def terminal_writer() -> Callable[[bytes], None]:
    """A function that writes pieces to a terminal, without control characters; a character may be cut in two."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return lambda data: click.echo(clean_block(decoder.decode(data)), nl=False)


def _check_ran(task: str, found: Json, attempt: int | None) -> None:
    """For a task without output: raise if it never ran, or had fewer attempts."""
    row = found["task"] or {}
    tries = int(row.get("attempt") or 0)
    if row.get("reused") or tries >= (attempt or 1):
        return
    if tries:
        raise NotFound(f"{task} had only {many(tries, 'attempt')}", code="no_log", hint=f"see `shoal show {task}`")
    if not TaskState(found["state"]).final:
        raise NotFound(f"{task} has not started yet", code="no_log", hint=f"see `shoal why {task}`")
    ended = row or found.get("span") or {}
    because = clean(ended.get("message") or ended.get("cause") or "")
    reason = f": {because}" if because and because != found["state"] else ""
    raise NotFound(f"{task} never ran, it is {found['state']}{reason}", code="no_log", hint=f"see `shoal show {task}`")


def _check_here(task: str, found: Json, stream: str) -> None:
    """For a task without output: raise if it went to a file of the submitter's."""
    spec, array = parse_spec(found["array"]["task"]), found["array"]
    name = spec.stdout if stream == "stdout" else spec.stderr
    if name:
        if spec.sweep is not None:
            name = fill(name, spec.sweep.at(parse_task(task).element - int(array["first"])))
        path = os.path.join(str(found["run"].get("cwd") or ""), name)
        raise NotFound(f"its {stream} is in {clean(path)}", code="no_log", hint="read it there")
