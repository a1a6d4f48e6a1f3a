"""`shoal files` and `shoal peek`: the files of a running task, wherever it runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import click

from shoal.cli.output.describe import ago
from shoal.cli.output.tables import clean, print_json, print_table, write_raw
from shoal.cli.session import Session, common_options, say, server_option
from shoal.cli.tasks.logs import terminal_writer
from shoal.client.client import Client
from shoal.model.errors import BadInput, Conflict
from shoal.model.ids import parse_target
from shoal.model.quantities import parse_size, show_size

PAUSE = 1.0  # seconds between two looks at a file that may grow
TAIL = 8 * 1024  # bytes that `peek` begins with where it shows an end


def _find_task(session: Session, text: str) -> str:
    """The id of a task, which may be given by the name of its run (`train.7`)."""
    task = session.find_target(text)
    if isinstance(parse_target(task), int):
        raise BadInput(f"{clean(text)} is a run", code="bad_id", hint=f"name one of its tasks, e.g. {clean(text)}.1")
    return task


@click.command()
@click.argument("task", metavar="TASK")
@click.argument("directory", required=False, default="", metavar="[DIR]")
@common_options
def files(task: str, directory: str, as_json: bool, server: str | None) -> None:
    """List the files in the directory of a running task, or in one below it.

    \b
    Examples:
      shoal files r12.7
      shoal files r12.7 out
    """
    session = Session(server)
    task = _find_task(session, task)
    with session.client_for(task) as client:
        answer = client.files(task, directory)
    if as_json:
        print_json(answer)
        return
    rows = [
        (
            entry["name"] + ("/" if entry["kind"] == "directory" else "@" if entry["kind"] == "link" else ""),
            show_size(entry["size"]) if entry["kind"] == "file" else "-",
            ago(entry["modified"]),
        )
        for entry in answer["entries"]
    ]
    print_table(("name", "size", "changed"), rows, f"{clean(answer['directory'])} is empty")
    more = answer["total"] - len(rows)
    if more > 0:
        say(f"and {more:,} more in {clean(answer['directory'])}")


@click.command()
@click.argument("task", metavar="TASK")
@click.argument("file", required=False, metavar="[FILE]")
@click.option("--tail", metavar="SIZE", help="Only the end of it, e.g. 4K.")
@click.option("-f", "--follow", "follows", is_flag=True, help="Print the end, and what comes until the task is over.")
@server_option
def peek(task: str, file: str | None, tail: str | None, follows: bool, server: str | None) -> None:
    """Print a file of a running task as it is now. Without FILE: the end of what the task prints.

    \b
    Examples:
      shoal peek r12.7
      shoal peek r12.7 out/energy.dat > energy.dat
      shoal peek r12.7 run.log --tail 2K
      shoal peek r12.7 run.log --follow
    """
    session = Session(server)
    task = _find_task(session, task)
    size = parse_size(tail, "--tail") if tail is not None else None
    with session.client_for(task) as client:
        write: Callable[[bytes], object] = terminal_writer() if sys.stdout.isatty() else write_raw
        if file is None:
            _peek_output(client, task, size or TAIL, write)
        else:
            _peek(client, task, file, size, follows, write)


def _peek_output(client: Client, task: str, size: int, write: Callable[[bytes], object]) -> None:
    """Write the end of a task's standard output."""
    part = client.logs(task, wait=PAUSE)  # a request that may wait has the pilot send what is new
    data = part.data
    while part.data:
        part = client.logs(task, offset=part.next)
        data += part.data
    write(data[-size:])


def _peek(
    client: Client, task: str, file: str, tail: int | None, follows: bool, write: Callable[[bytes], object],
    sleep: Callable[[float], None] = time.sleep,
) -> None:  # fmt: skip
    """Write a file from its beginning or its end on, up to its size of now or, following it, until the task is over."""
    tail = TAIL if follows and tail is None else tail
    part = client.read_file(task, file, tail=tail)
    end = part.size
    while True:
        write(part.data)
        offset = part.offset + len(part.data)
        if not part.data or (not follows and offset >= end):
            if not follows:
                return
            sleep(PAUSE)
        try:
            part = client.read_file(task, file, offset)
        except Conflict as error:
            if not follows:
                raise
            say(error.message)
            return
        if part.size < offset:
            say(f"{clean(file)} was cut short: from its beginning")
            part = client.read_file(task, file)
