"""`shoal export`: a run as a workflow in WfFormat, with what was measured. Works with a server and without one."""

from __future__ import annotations

import json
import os
import time

import click

from shoal import __version__
from shoal.cli.completion import complete_runs
from shoal.cli.output.whole_file import write_whole
from shoal.cli.session import Session, say, server_option
from shoal.client.config import echo_path
from shoal.model.errors import Refused
from shoal.model.quantities import many
from shoal.report.data_source import latest_run
from shoal.report.run_names import find_run


@click.command()
@click.argument("run", required=False, metavar="[RUN]", shell_complete=complete_runs)
@click.option("-o", "--output", "path", metavar="FILE", help="Write it to this file, not to standard output.")
@server_option
def export(run: str | None, path: str | None, server: str | None) -> None:
    """Write a run as a workflow in WfFormat 1.5 (WfCommons), with its measured times; without a run, the latest one.

    Each task has its parents, command, files, start, time, cores, use of processor and memory, and host. Any run can be
    exported; one that goes on with what is known now. `shoal run FILE.json --replay` plays the file again, and
    `shoal simulate FILE.json` plays it on a virtual clock.

    \b
    Examples:
      shoal export r12 -o r12.json
      shoal export | jq '.workflow.execution.makespanInSeconds'
    """
    from shoal.flow.formats.wfformat import document
    from shoal.report.workflows.trace import read_trace

    session = Session(server)
    with session.bulk_source() as source:
        run = latest_run(source, say) if run is None else find_run(source, run, say)
        trace = read_trace(source, run, _size_of, __version__, time.time())
    text = json.dumps(document(trace.instance), indent=2)
    if path is None:
        click.echo(text)
    else:
        _write(path, text)
    if trace.unmeasured:
        say(
            f"note: {many(trace.unmeasured, 'task')} of {run} did not run to an end, and {_has(trace.unmeasured)} no times"
        )
    if trace.incomplete:
        what = "an input, a directory, an environment or set-up lines, which the format does not know"
        say(f"note: {many(trace.incomplete, 'task')} of {run} {_has(trace.incomplete)} {what}")
    if trace.unseen:
        say(f"note: of {many(trace.unseen, 'file')} the size is not known here; it is written as 0")


def _has(count: int) -> str:
    return "has" if count == 1 else "have"


def _size_of(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):
        return None


def _write(path: str, text: str) -> None:
    try:
        write_whole(path, text + "\n")
    except OSError as error:
        raise Refused(f"cannot write {echo_path(path)}: {error.strerror}", code="unwritable") from None
