"""`shoal dag`: a workflow in DAGMan's language, shown and run. The workflow itself is the server's: what is here only reads
the file, submits it, and says how it ended."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from shoal.cli.main import INTERRUPTED
from shoal.cli.output.tables import clean, print_json
from shoal.cli.session import Session, json_option, say, server_option
from shoal.cli.tasks.options import QUIET_OPTION
from shoal.cli.tasks.preflight import awaited_files, check_here
from shoal.cli.tasks.submission import Draft, split_pairs
from shoal.cli.workflows import dag_marker
from shoal.cli.workflows.dag_end import end_of, leave_rescue, rescue_number
from shoal.cli.workflows.files import Files, at_vertex, placed
from shoal.cli.workflows.recorded import REPLAY_OPTIONS, is_recorded, refuse_replay, run_recorded
from shoal.cli.workflows.shape_text import shape_document, shape_lines
from shoal.client.config import echo_path, submitting_task
from shoal.client.working_directory import working_directory
from shoal.flow.dag import Dag, build, document, shape
from shoal.flow.formats.dagman.dag_file import read_dag
from shoal.flow.formats.dagman.rescue import read_rescue, rescue_name
from shoal.flow.formats.dagman.source import Surroundings
from shoal.flow.formats.dagman.translate import Translated, translate
from shoal.model.errors import BadInput, ShoalError
from shoal.model.ids import PARENT
from shoal.model.quantities import many
from shoal.wire.submission import parse_submission

SHOWN_NOTICES = 10
_WHAT_NOW = {False: "waiting for it", True: "this is how it ended; the same command once more runs it again"}
SUBDAG = (sys.executable, "-m", "shoal.cli", "dag", "--quiet")


class Read(NamedTuple):
    """A `.dag` file, read and checked."""

    name: str  # as it was given, seen from the directory of the run
    found: Translated
    dag: Dag
    draft: Draft
    rescue: str  # the rescue file that it goes on from


@click.command()
@click.argument("file", metavar="FILE.dag|FILE.json")
@click.option("--dry-run", is_flag=True, help="Check everything and show the workflow; submit nothing.")
@click.option(
    "-j", "--jobs", "max_running", type=int, metavar="N", help="Run at most N tasks at once (DAGMan's -maxjobs)."
)
@click.option("--name", help="A name for the run [default: that of the file].")
@click.option("--label", multiple=True, metavar="K=V", help="A label for the run (repeat for more).")
@click.option("--force", is_flag=True, help="Run all nodes, whatever rescue files there are.")
@click.option("--rescue-from", type=int, metavar="N", help="Go on from FILE.rescueN instead of the newest rescue file.")
@click.option("--use-dag-dir", is_flag=True, help="See all names from the file's directory (DAGMan's -usedagdir).")
@REPLAY_OPTIONS
@QUIET_OPTION
@json_option
@server_option
def dag(file: str, **options: Any) -> int:
    """Run a workflow in DAGMan's language or in WfFormat, and wait for its end.

    It shows levels, widths and critical path first. Names in the file are seen from this directory. The workflow goes on
    whatever becomes of this command: calling it again waits for the same run.

    \b
    Examples:
      shoal dag diamond.dag
      shoal dag diamond.dag --dry-run
      shoal dag diamond.dag -j 20
      shoal dag diamond.dag             after a failure: from diamond.dag.rescue001 on
      shoal dag montage.json --replay --speed 100

    Ctrl-C detaches, and the run goes on; a second one within 2 s cancels it.

    \b
    Exit status: 0 if all nodes succeeded, or the FINAL node did; else 1, or what ABORT-DAG-ON ... RETURN says.
    """
    if is_recorded(file):
        return run_recorded(Session(options["server"]), file, options)
    refuse_replay(options)
    return run_dag(Session(options["server"]), file, options)


def run_dag(session: Session, file: str, options: Mapping[str, Any], waits: bool = True) -> int:
    """Read a file, submit what it says, and wait for its end."""
    file = _enter(file, bool(options.get("use_dag_dir")))
    is_quiet = bool(options.get("quiet") or options.get("as_json"))
    run = "" if options["dry_run"] else dag_marker.find(file, session)
    if run:
        status = _go_on_with(session, file, run, options, waits)
        if status is not None:
            return status
    gc.disable()  # a large workflow makes millions of objects, and none of them is garbage
    read = _read(file, options)
    if not is_quiet or (options["dry_run"] and not options["as_json"]):
        for line in shape_lines(read.name, read.dag, shape(read.dag)):
            click.echo(line, err=not options["dry_run"])
    for notice in read.found.notices[:SHOWN_NOTICES]:
        say(f"note: {clean(notice)}")
    if len(read.found.notices) > SHOWN_NOTICES:
        say(f"note: {many(len(read.found.notices) - SHOWN_NOTICES, 'more line')} of the file without effect")
    if read.rescue:
        say(f"going on from {clean(read.rescue)} (--force runs everything)")
    check_here(read.draft, session.is_far, lambda error, number: at_vertex(error, read.dag, number, error.field))
    _tell_awaited(read)
    if options["dry_run"]:
        if options["as_json"]:
            notices = {"notices": read.found.notices, "rescue": read.rescue}
            print_json({"dry_run": True, **shape_document(read.dag, shape(read.dag)), **notices})
        else:
            click.echo(f"{many(read.draft.submission.count, 'task')} would be submitted; nothing was.")
        return 0
    from shoal.cli.tasks.run import send

    answer, client = send(session, read.draft, False)
    gc.enable()
    dag_marker.write(file, session, client, answer["run"])
    client.close()
    session.tell()
    if not waits:
        if options["as_json"]:
            print_json(answer)
        else:
            click.echo(answer["run"])
        return 0
    return _wait(session, read, answer["run"], options)


def _go_on_with(session: Session, file: str, run: str, options: Mapping[str, Any], waits: bool) -> int | None:
    """The exit status, if a run that works on the file already, or did, is all that is to be done; None: the file is submitted
    anew. A task is told to run the file: how a run ended that is not its own, or that failed, is no answer to that."""
    with session.client() as client:
        row, task = client.run_row(run), submitting_task(client.url)
    is_over = row["finished"] is not None
    if not waits:
        if not is_over:
            raise BadInput(f"{run} works on {file} already", code="usage", hint=f"`shoal wait {run}` waits for it")
        _finish(session, file, run, options)
        return None
    what_now = "this file is run again then" if task else _WHAT_NOW[is_over]
    say(f"{run} {'worked' if is_over else 'works'} on {clean(file)} already: {what_now}")
    status = _wait(session, _read(file, {**options, "force": True}), run, options)
    if not task or dag_marker.find(file, session):
        return status
    is_own = row["labels"].get(PARENT) == task
    return status if is_own and (not is_over or status == 0) else None


def _tell_awaited(read: Read) -> None:
    """Say which inputs are not there that nobody is known to write: the names may be wrong."""
    awaited = awaited_files(read.draft)
    if awaited:
        node, name = awaited[0]
        others = f" (and {many(len(awaited) - 1, 'more such input')})" if len(awaited) > 1 else ""
        say(
            f"note: {clean(node)} reads {echo_path(name)}, which is not there and no node's transfer_output_files or output "
            f"names; a node before it has to write it{others}"
        )


def _enter(file: str, uses_dag_dir: bool) -> str:
    """The name of the file as seen from the directory of the run, which is entered."""
    if not uses_dag_dir:
        return file
    folder, name = os.path.split(file)
    try:
        os.chdir(folder or ".")
    except OSError as error:
        what = f"cannot enter {folder}: {error.strerror}"
        raise BadInput(what, code="no_such_directory", hint="name an existing file") from None
    return name


def _read(file: str, options: Mapping[str, Any]) -> Read:
    """Everything that the file says, checked; with what a rescue file says of it."""
    here = working_directory()
    files = Files(here)
    subdag = (*SUBDAG, "--force") if options.get("force") else SUBDAG
    around = Surroundings(files.read, files.exists, files.match, os.environ, subdag, here)
    workflow = read_dag(file, around)
    rescue, done = "", frozenset[str]()
    number = options.get("rescue_from") or 0
    if not options.get("force"):
        number = number or rescue_number(file)
        if number:
            rescue = rescue_name(file, number)
            done = read_rescue(files.read(rescue), rescue)
    found = translate(workflow, around, done)
    graph = build(found.vertices)
    fields: dict[str, Any] = {"name": options.get("name") or os.path.basename(file), "cwd": here}
    fields["labels"] = {
        "dag": file[-200:],
        **(split_pairs("--label", options["label"]) if options.get("label") else {}),
    }
    fields |= {
        name: options[name] for name in ("max_running", "max_fail", "seed", "key") if options.get(name) is not None
    }
    submitted = document(graph, **fields)
    try:
        submission = parse_submission(submitted)
    except ShoalError as error:
        raise placed(error, graph) from None
    return Read(file, found, graph, Draft(submitted, submission, file), rescue)


def _wait(session: Session, read: Read, run: str, options: Mapping[str, Any]) -> int:
    """Wait for the end of a run, and say what it means for the workflow."""
    from shoal.cli.output.wait_for_run import wait_for

    status = wait_for(session, session.client(), run, bool(options.get("quiet")), bool(options["as_json"]))
    if status == INTERRUPTED:
        return status
    with session.client() as client:
        if client.run_row(run)["finished"] is None:
            return status  # it cannot run here, which was said
    return _finish(session, read.name, run, options, read.found)


def _finish(session: Session, file: str, run: str, options: Mapping[str, Any], found: Translated | None = None) -> int:
    """The end of a run was seen: its rescue file is written if it needs one, and the exit status of the workflow is known."""
    found = found or _read(file, {**options, "force": True}).found
    with session.client() as client:
        end = end_of(client, run, found)
    if end.why:
        say(clean(end.why))
    if end.status:
        leave_rescue(file, run, end, len(found.nodes) - len(found.asides) - bool(found.final))
    dag_marker.remove(file)
    return end.status
