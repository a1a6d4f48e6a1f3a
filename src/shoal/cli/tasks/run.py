"""`shoal run`, `shoal sweep`, `shoal submit`: from arguments to a run, then waiting for it or not."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from shoal.cli.arguments.units import unit_notes
from shoal.cli.main import FAILED, OWN_FAILURE
from shoal.cli.output.describe import needs_text
from shoal.cli.output.tables import clean, print_json, shorten
from shoal.cli.session import Session, json_option, say, server_option
from shoal.cli.tasks.options import (
    COMMAND,
    QUIET_OPTION,
    RAW,
    RUN_OPTIONS,
    SCRIPT,
    WORKFLOW,
    CommandWithArguments,
    first_argument,
    is_file_name,
    missing_dashes,
    task_options,
)
from shoal.cli.tasks.preflight import check_here, fingerprints
from shoal.cli.tasks.standard_input import STDIN, check_unread
from shoal.cli.tasks.submission import (
    PARENTS,
    Draft,
    draft_command,
    draft_file,
    given_fields,
    with_deadline,
    with_sent_input,
)
from shoal.cli.workflows.recorded import REPLAY_OPTIONS, draft_recorded, is_recorded, is_replay, prepare, refuse_replay
from shoal.client.client import Client
from shoal.client.element_files import ElementFiles
from shoal.client.environment import environment_digest, environment_field
from shoal.client.sent_files import SentFiles, may_send, written_by
from shoal.client.visible_files import VisibleFiles
from shoal.model.errors import BadInput, ShoalError, Unreachable
from shoal.model.ids import target_of
from shoal.model.limits import MAX_COMPARED, MAX_ELEMENT_TEXTS
from shoal.model.quantities import first_of, many, show_size
from shoal.model.task.shell_quote import fill_shell
from shoal.model.task.spec import OWN, Spec, Submission
from shoal.model.task.sweep import Value, fill, holes, show_value

if TYPE_CHECKING:
    from shoal.cli.output.kept_outputs import KeptContents

SENDING_EVERY = 3.0  # seconds between two lines about files that are being sent
PILOT_WITHIN = 5.0  # seconds that the pilot of an embedded server may take to come
SHOWN = 3  # commands that --dry-run renders per spec
REUSES = 5  # results taken over that --resume --dry-run names
# Ranges as Slurm and others write them, which are single values here.
_OTHER_RANGE = re.compile(r"(-?\d+)(?:-|:|\.\.\.)(\d+)")
# Of one command that could not be started, as shells have it.
_BEFORE_START = {"no_such_program": 127, "not_executable": 126}
_AXIS_HINT = "write name=values, e.g. 'x=1..10' or 'mode=a,b'"


@click.command(cls=CommandWithArguments)
@click.argument("arguments", nargs=-1, metavar="[FILE.toml | FILE.dag | FILE.json | SCRIPT [ARGUMENT]...]")
@RUN_OPTIONS
@REPLAY_OPTIONS
@task_options()
@QUIET_OPTION
@json_option
@server_option
@click.pass_context
def run(context: click.Context, /, arguments: tuple[str, ...], **options: Any) -> int:
    """Run a command, or the tasks of a file, and wait for the end.

    Everything after -- is the command, taken as it stands. It runs in this directory with this environment; its input is
    empty unless --stdin gives one.

    \b
    Examples:
      shoal run -- ./sim --seed 1
      shoal run --retries 2 --time 10m --memory 2G -- ./sim
      shoal run --array 1-2000%50 -- ./sim --case {i}
      shoal run --shell -- 'sort data.txt | uniq -c > counts.txt'
      shoal run tasks.toml
      shoal run diamond.dag                      a DAGMan workflow: see shoal dag
      shoal run montage.json --replay --speed 100    a workflow in WfFormat, played again
      shoal run job.sh 42                        options from its #SHOAL lines, as with sbatch
      shoal run --after r18 -- ./merge           when r18 has succeeded

    Ctrl-C detaches, and the run goes on; a second one within 2 s cancels it.

    \b
    Exit status of one command: its own; 128 + N if signal N ended it; 127 not found, 126 not executable;
    125 if Shoal itself failed, or could not keep all of its output; 2 if this command line is wrong.
    Of several tasks: 0 only if all succeeded, else 1.
    """
    draft: Draft | None = None
    if _is_workflow(context, arguments):
        return _run_workflow(arguments[0], options)
    try:
        session = Session(options["server"])  # its server may not be there, which is no status of the command either
        draft = _draft(context, session, arguments, options, may_sweep=False)
        return start(session, draft, options, is_run=True)
    except ShoalError as error:
        is_single = (
            _is_single(draft)
            if draft is not None
            else COMMAND in context.meta and not (options["array"] or options["units"])
        )
        if isinstance(error, BadInput) or not is_single:
            raise
        say(error.line)
        return _BEFORE_START.get(error.code, OWN_FAILURE)


@click.command(cls=CommandWithArguments)
@click.argument("arguments", nargs=-1, metavar="NAME=VALUES...")
@RUN_OPTIONS
@task_options(without=("array", "units"))
@QUIET_OPTION
@json_option
@server_option
@click.pass_context
def sweep(context: click.Context, /, arguments: tuple[str, ...], **options: Any) -> int:
    """Run a command for all combinations of parameters, and wait for the end.

    {name} in the command, in --env, --cwd, --stdin, --input and --output stands for the value; {{ and }} for braces.
    Of a value that is a path: {f.name}, {f.stem}, {f.suffix}, {f.parent}.
    In texts for --shell the value is quoted, {name:raw} is as it is.

    \b
    Examples:
      shoal sweep 'x=1..10' 'mode=a,b' -- ./sim --x {x} --mode {mode}
      shoal sweep 'E=10..100:10' 'seed=1..2000' -- ./sim --E {E} --seed {seed} -o out/{E}_{seed}.json
      shoal sweep 'f=data/*.csv' -- ./fit {f} -o out/{f.stem}.json
      shoal sweep --resume 'x=1..20' -- ./sim --x {x}       runs only what an earlier sweep has not done

    \b
    Values: 1..10, 10..100:10 (with a step), 0..1:0.1, 001..100 (zeros stay), a,b,c, or a mixture: 1..3,7;
      *.txt (files), @list.txt (lines of a file), - or @- (lines of standard input); =TEXT: the text as it stands.
    """
    if not arguments and COMMAND in context.meta:
        raise click.UsageError(f"a sweep needs at least one parameter before -- ({_AXIS_HINT})", context)
    session = Session(options["server"])
    return start(session, _draft(context, session, arguments, options, may_sweep=True, must_sweep=True), options)


@click.command(cls=CommandWithArguments)
@click.argument("arguments", nargs=-1, metavar="[FILE.toml | FILE.dag | FILE.json | SCRIPT | NAME=VALUES...]")
@RUN_OPTIONS
@REPLAY_OPTIONS
@task_options()
@json_option
@server_option
@click.pass_context
def submit(context: click.Context, /, arguments: tuple[str, ...], **options: Any) -> int:
    """Submit a command, a sweep or a task file, print the run's id, and return at once.

    \b
    Examples:
      shoal submit -- ./sim --seed 1
      shoal submit 'x=1..1000' -- ./sim --x {x}
      shoal submit tasks.toml
      shoal wait $(shoal submit 'x=1..10' -- ./sim --x {x})
    """
    if _is_workflow(context, arguments):
        return _run_workflow(arguments[0], options, waits=False)
    session = Session(options["server"])
    draft = _check(_draft(context, session, arguments, options, may_sweep=True), session, options)
    stated = _with_deadline(session, draft, options)
    if stated is None:
        return FAILED
    if options["dry_run"]:
        return _dry_run(session, stated, options)
    answer, client = send(session, stated, options["resume"], options["strict"])
    client.close()
    session.tell()
    _print_warnings(answer)
    if options["as_json"]:
        print_json(answer)
    else:
        _print_reused(answer)
        click.echo(answer["run"])
    return 0


def _is_workflow(context: click.Context, arguments: tuple[str, ...]) -> bool:
    """True if the only argument is a file in DAGMan's language."""
    return COMMAND not in context.meta and len(arguments) == 1 and arguments[0].endswith(WORKFLOW)


# What a DAGMan file is submitted without.
_NOT_FOR_WORKFLOWS = ("resume", "strict", "by", "within", "plan", "reduce", "until", "notify")


def _run_workflow(file: str, options: dict[str, Any], waits: bool = True) -> int:
    """What `shoal dag` does, with the options of `run` and `submit` that say something about a run as a whole."""
    from shoal.cli.workflows.dag import run_dag

    refuse_replay(options)
    wrong = next((field.option_name for field in given_fields(options)), "")
    wrong = wrong or next((name for name in _NOT_FOR_WORKFLOWS if options.get(name)), "")
    if wrong:
        raise click.UsageError(f"--{wrong} does not go with a workflow (write it in the submit files of {file})")
    return run_dag(Session(options["server"]), file, options, waits)


def _draft(
    context: click.Context,
    session: Session,
    given: tuple[str, ...],
    options: dict[str, Any],
    may_sweep: bool,
    must_sweep: bool = False,
) -> Draft:
    """The submission that the arguments and options describe, checked."""
    command: list[str] | None = context.meta.get(COMMAND)
    recorded = given[0] if command is None and len(given) == 1 and is_recorded(given[0]) and not must_sweep else ""
    if not (recorded or must_sweep):
        refuse_replay(options)
    if options["name"] is None and SCRIPT in context.meta:
        options["name"] = os.path.basename(context.meta[SCRIPT])
    for field in PARENTS:
        names = (name for text in options[field] for name in text.split(","))
        options[field] = tuple(session.find_target(name) for name in names)
    if recorded:
        return draft_recorded(recorded, options)
    if command is None:
        if len(given) == 1 and is_file_name(given[0]) and not must_sweep:
            return draft_file(given[0], options)
        raise _no_command(context, may_sweep)
    wrong = [argument for argument in given if "=" not in argument]
    if given and not may_sweep:
        if "=" in given[0]:
            whole = shlex.join(["shoal", "sweep", *given, "--", *command])
            raise click.UsageError(f"run takes no parameters (write: {shorten(clean(whole), 200)})", context)
        raise click.UsageError(
            f"{clean(shorten(given[0]))!r} stands before -- (a command goes after it; a task file needs no --)", context
        )
    if wrong:
        raise click.UsageError(f"{clean(shorten(wrong[0]))!r} is not a parameter ({_AXIS_HINT})", context)
    if not command:
        raise click.UsageError(f"there is no command after -- (write: {context.command_path} ... -- COMMAND)", context)
    draft = draft_command(command, given, options)
    for note in unit_notes(options):
        say(f"note: {note}")
    _note_other_ranges(given)
    return draft


def _note_other_ranges(axes: tuple[str, ...]) -> None:
    """Print a note on `x=1-3`, which is one value here and hardly what was meant."""
    for axis in axes:
        name, _, values = axis.partition("=")
        found = _OTHER_RANGE.fullmatch(values)
        if found:
            say(f"note: {name}={values} is one value, the text {values}; a range is {name}={found[1]}..{found[2]}")


def _no_command(context: click.Context, may_sweep: bool) -> click.UsageError:
    """The error for a missing `--`, which shows where it belongs among the arguments as they were typed."""
    raw: list[str] = context.meta[RAW]
    at = first_argument(context.command, context, raw)
    if at is not None:
        return missing_dashes(context, raw[:at], raw[at:])
    typed = shlex.join(raw) or ("x=1..10" if may_sweep else "")
    example = " ".join(part for part in (context.command_path, typed, "-- COMMAND") if part)
    return click.UsageError(f"there is no command (write: {shorten(clean(example), 200)})", context)


def start(session: Session, draft: Draft, options: dict[str, Any], is_run: bool = False) -> int:
    """Submit and wait. `is_run`: a single command ends `shoal run` with its own status."""
    draft = _check(draft, session, options)
    stated = _with_deadline(session, draft, options)
    if stated is None:
        return FAILED
    if options["dry_run"]:
        return _dry_run(session, stated, options)
    _note_unused(stated)
    answer, client = send(session, stated, options["resume"], options["strict"])
    session.tell()
    _print_warnings(answer)
    if not options["as_json"]:
        _print_reused(answer)
    from shoal.cli.output.wait_for_run import wait_for

    is_single = _is_single(draft)
    as_json, quiet = options["as_json"], options["quiet"]
    return wait_for(session, client, answer["run"], quiet, as_json, is_single, is_single and is_run)


def _with_deadline(session: Session, draft: Draft, options: dict[str, Any]) -> Draft | None:
    """The draft with the deadline that was given, once its chance was stated; None: it was withdrawn."""
    if options["by"] is None and options["within"] is None:
        return draft
    from shoal.cli.planning.deadline import decide, given_deadline  # few submissions have one

    deadline = given_deadline(options)
    assert deadline is not None
    if options["plan"] is not None:
        return with_deadline(draft, deadline)
    _await_pilot(session)
    ask = partial(send, session, resume=False, dry_run=True)
    is_quiet = bool(options.get("quiet") or options["as_json"])
    decided = decide(draft, deadline, ask, options["yes"] or options["dry_run"], is_quiet)
    if decided.draft is None:
        say("withdrawn: nothing was submitted")
        return None
    stated = {} if decided.chance is None else {"stated": round(decided.chance, 4)}
    return replace(decided.draft, document={**decided.draft.document, **stated})


def _is_single(draft: Draft) -> bool:
    """True for one command on the command line: it is shown, and ends, as if it had run here."""
    return (
        draft.submission.count == 1
        and not draft.origin
        and not draft.submission.rules
        and draft.submission.specs[0].units is None
    )


def _check(draft: Draft, session: Session, options: dict[str, Any]) -> Draft:
    """Check the draft against this machine; standard input in files goes along where hosts may not see them."""
    if not options["dry_run"]:
        prepare(draft)
    if not (options["dry_run"] and is_replay(draft)):
        check_here(draft, session.is_far)
    if options["stdin"] not in (STDIN, os.devnull) and check_unread() and not options.get("quiet"):
        say(
            "note: standard input is an open pipe, and what comes through it does not reach the task (--stdin - sends it)"
        )
    return with_sent_input(draft) if session.is_far and not options["dry_run"] else draft


def send(
    session: Session, draft: Draft, resume: bool, strict: bool = False, dry_run: bool = False
) -> tuple[dict[str, Any], Client]:
    """Submit, and again with the same key if the server ended meanwhile, so that nothing runs twice. `dry_run`: only ask
    what would become of it."""
    wanted = [spec.site for spec in draft.submission.specs if spec.site]
    if wanted:
        from shoal.client.site_check import check_sites  # few submissions name a site

        check_sites(session.target, session.client, wanted)
    client = session.client()
    sends = not dry_run and any(map(may_send, draft.submission.specs)) and session.runs_elsewhere(client)
    tasks = _with_files(client, draft, sends, dry_run)
    document = {**draft.document, "tasks": tasks, **environment_field(client.url)}
    if draft.submission.rules:
        tables, rules = draft.document["rules"], draft.submission.rules
        document["rules"] = VisibleFiles().with_evidence(tables, rules, draft.submission.cwd)
    document.setdefault("key", f"auto-{os.urandom(16).hex()}")
    files = ElementFiles(draft.submission)
    document["fingerprints"] = {"environment": environment_digest(), "files": fingerprints(draft)}
    found = files.read()
    if sum(map(len, found)) > MAX_ELEMENT_TEXTS:  # a workflow of a hundred thousand tasks: compared as a whole
        together = hashlib.sha256("\n".join(found).encode()).hexdigest()
        document["fingerprints"]["files"] |= {f"one of the files of {draft.submission.count:,} tasks": together}
    elif any(found):
        document["fingerprints"]["elements"] = found
    if resume:
        document["fingerprints"] |= (
            {"written": dates} if any(dates := files.written(session.runs_elsewhere(client))) else {}
        )
        document["fingerprints"] |= {"renamed": pairs} if any(pairs := files.renamed()) else {}
        _note_not_compared(draft.submission)
    document |= {
        name: True for name, is_set in (("resume", resume), ("strict", strict), ("dry_run", dry_run)) if is_set
    }
    try:
        return _submit(client, document, draft), client
    except Unreachable:
        if not session.is_embedded:
            raise
        client = session.client()  # an idle embedded server may just have been ending
        return _submit(client, document, draft), client


def _with_files(client: Client, draft: Draft, sends: bool, dry_run: bool) -> list[dict[str, Any]]:
    """The tables of the tasks with the files that they name: evidence for hosts that see them and, if it `sends`, the content
    of inputs and programs for hosts that do not."""
    look, told = VisibleFiles(), time.monotonic()

    def tell(files: int, size: int, part: int) -> None:
        nonlocal told
        if time.monotonic() - told > SENDING_EVERY:
            told = time.monotonic()
            say(f"sending files: {files:,} so far, {show_size(size + part)}")

    sent, tables = SentFiles(client.put_file, tell), []
    specs = draft.submission.specs
    written = written_by(specs) if sends and any(spec.after or spec.after_any for spec in specs) else set()
    earlier = _EarlierOutputs(client, {spec.name for spec in specs})
    for table, spec in zip(draft.document["tasks"], draft.submission.specs, strict=True):
        is_sent, waits = sends and may_send(spec), bool(spec.after or spec.after_any)
        content = {}
        if is_sent:
            left = earlier.of(spec) if waits else {}
            content = sent.of(spec, draft.submission.cwd, written if waits else (), left)
        if not dry_run:
            content |= sent.of_urls(spec)
        visible = look.of(spec, draft.submission.cwd, is_sent)
        tables.append({**table, "visible": visible, **({"content": content} if content else {})})
    return tables


class _EarlierOutputs:
    """What earlier runs left on the server, for tasks that wait for those runs and read it."""

    def __init__(self, client: Client, own: set[str]) -> None:
        """`own`: the names of this submission's tables, which come before ids of runs."""
        self._client, self._own = client, own
        self._contents: KeptContents | None = None

    def of(self, spec: Spec) -> Mapping[str, str]:
        """The contents that a task may read, by their names."""
        names = [name for name in (*spec.after_any, *spec.after) if name not in self._own and target_of(name)]
        if not names or not spec.inputs:
            return {}
        if self._contents is None:
            from shoal.cli.output.kept_outputs import KeptContents  # few tasks wait for other runs
            from shoal.report.data_source import HttpSource

            self._contents = KeptContents(HttpSource(self._client))
        return self._contents.of(names)


def _submit(client: Client, document: dict[str, Any], draft: Draft) -> dict[str, Any]:
    for blob in draft.blobs:
        client.put_blob([blob])
    try:
        return client.submit(document)
    except BadInput as error:
        if error.code != "unknown_field" and error.field != "fingerprints":
            raise
        if "renamed" in document["fingerprints"]:  # a server of an older version does not compare these
            seen = {name: value for name, value in document["fingerprints"].items() if name != "renamed"}
            return _submit(client, {**document, "fingerprints": seen}, draft)
        # One of a still older version does not look where files are seen, nor at those of each task.
        seen = {name: document["fingerprints"][name] for name in ("environment", "files")}
        return client.submit({**document, "tasks": draft.document["tasks"], "fingerprints": seen})


def _print_warnings(answer: dict[str, Any]) -> None:
    """Print what the server accepted although it looks wrong [input E28]."""
    for warning in answer.get("warnings") or ():
        say(f"note: {warning}")


def _print_reused(answer: dict[str, Any]) -> None:
    """Print what --resume took over, and why the rest runs."""
    if answer.get("again"):
        say(f"{answer['run']} has this key already: nothing new was submitted")
    reused = answer.get("reused") or 0
    if reused:
        total = many(answer["tasks"], "task")
        say(f"{reused:,} of {total} {_plural(reused, 'is', 'are')} not run again: an earlier equal run has the results")
    for rerun in answer.get("reruns") or ():
        runs = _plural(rerun["count"], "runs", "run") + (" again" if rerun["again"] else "")
        say(f"{many(rerun['count'], 'task')} {runs}: {rerun['why']}{_tables_of(rerun)}")


def _tables_of(rerun: dict[str, Any]) -> str:
    """The first tables of a workflow that run for one reason."""
    names = [clean(name) for name in rerun.get("tables") or ()]
    return f" ({first_of(names, len(names), rerun.get('all_tables', 0))})" if names else ""


def _note_not_compared(submission: Submission) -> None:
    """Say that a sweep is too large for its tasks to be compared with their own files."""
    for spec in submission.specs:
        if spec.count > MAX_COMPARED and (spec.outputs or spec.stdout or spec.stderr):
            say(
                f"note: of {many(spec.count, 'task')} it is not looked whether what they wrote is still there "
                f"(of at most {MAX_COMPARED:,} it is)"
            )


def _plural(count: int, one: str, more: str) -> str:
    return one if count == 1 else more


def _note_unused(draft: Draft) -> None:
    for spec in draft.submission.specs:
        if spec.sweep is not None and not draft.origin:
            used = {name for text in spec.texts for name in holes(text)}
            unused = [name for name in spec.sweep.names if name not in used and name != "i"]
            if unused and spec.units is not None:
                say(f"note: the command does not use {{{unused[0]}}}; it has to read SHOAL_FIRST and SHOAL_COUNT")
            elif unused:
                say(f"note: the command does not use {{{unused[0]}}}")


def _dry_run(session: Session, draft: Draft, options: dict[str, Any]) -> int:
    """Print what would be submitted: count, first commands, needs, directory; and with --resume, what would not run."""
    submission = draft.submission
    resumed: dict[str, Any] = {}
    tasks = submission.count
    if options["resume"] or options["strict"] or any(spec.require or spec.rank for spec in submission.specs):
        _await_pilot(session)
        answer, client = send(session, draft, options["resume"], options["strict"], dry_run=True)
        client.close()
        _print_warnings(answer)
        if options["resume"]:
            resumed = {name: answer.get(name) for name in ("reused", "reuses", "reruns")}
            tasks = int(answer["tasks"])  # divisible work is cut as it was
    if options["as_json"]:
        specs = [
            {"name": spec.name, "count": spec.count, "commands": [shlex.join(c) for c in commands(spec)]}
            for spec in submission.specs
        ]
        print_json({"dry_run": True, "tasks": tasks, "cwd": submission.cwd, "specs": specs, **resumed})
        return 0
    click.echo(f"{many(submission.count, 'task')} would be submitted; nothing was.")
    for spec in submission.specs[:20]:
        title = f"{clean(spec.name)}: " if spec.name else ""
        after = f", after {clean(', '.join(spec.after))}" if spec.after else ""
        after += f", after the end of {clean(', '.join(spec.after_any))}" if spec.after_any else ""
        directory = "a directory of its own" if spec.cwd == OWN else spec.cwd or draft.submission.cwd
        how_many = f"{spec.units.size:,} units in pieces" if spec.units is not None else f"{spec.count:,}"
        click.echo(f"  {title}{how_many} x {needs_text(spec)}{after}, in {clean(directory)}")
        for argv in commands(spec):
            click.echo(f"    {shorten(clean(shlex.join(argv)), 200)}")
        if spec.count > SHOWN:
            click.echo(f"    ... and {spec.count - SHOWN:,} more")
    if len(submission.specs) > 20:
        click.echo(f"  ... and {many(len(submission.specs) - 20, 'more table')}")
    if options["resume"]:
        for line in reuse_lines(submission, resumed, tasks):
            click.echo(line)
    return 0


def _await_pilot(session: Session) -> None:
    """Wait for the pilot of an embedded server that was just started: only then it is known what would fit."""
    if session.is_embedded:
        end = time.monotonic() + PILOT_WITHIN
        with session.client() as client:
            while not client.server().get("pilots") and time.monotonic() < end:
                time.sleep(0.05)


def reuse_lines(submission: Submission, resumed: dict[str, Any], tasks: int) -> list[str]:
    """What --resume would take over of so many tasks, and why the rest would run."""
    count, total = resumed["reused"], many(tasks, "task")
    lines = [f"--resume: {count:,} of {total} would not run again: an earlier equal run has the results"]
    shown = []
    for reuse in (resumed["reuses"] or ())[:REUSES]:
        params = params_at(submission, reuse["element"])
        what = ", ".join(f"{name}={clean(show_value(value))}" for name, value in params.items())
        shown.append(f"{what or 'the task'} from {reuse['task']}")
    if shown:
        more = f"; and {count - len(shown):,} more" if count > len(shown) else ""
        lines.append(f"  taken over: {'; '.join(shown)}{more}")
    for rerun in resumed["reruns"] or ():
        runs = _plural(rerun["count"], "runs", "run") + (" again" if rerun["again"] else "")
        lines.append(f"  {many(rerun['count'], 'task')} {runs}: {clean(rerun['why'])}{_tables_of(rerun)}")
    return lines


def params_at(submission: Submission, element: int) -> dict[str, Value]:
    """The parameters of one element of a submission; none if it has none."""
    first = 1
    for spec in submission.specs:
        if element < first + spec.count:
            # The server cuts divisible work as it was cut before, which is not known here.
            return spec.sweep.at(element - first) if spec.sweep is not None and spec.units is None else {}
        first += spec.count
    return {}


def commands(spec: Spec, most: int = SHOWN) -> list[list[str]]:
    """The first commands of a spec, placeholders filled."""
    found = []
    for k in range(min(spec.count, most) if not spec.noop else 0):
        params = spec.sweep.at(k) if spec.sweep is not None else None
        if spec.shell is not None:
            found.append(["sh", "-c", spec.shell if params is None else fill_shell(spec.shell, params)])
        else:
            found.append([word if params is None else fill(word, params) for word in spec.command])
    return found
