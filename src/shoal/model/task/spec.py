"""The one table of task fields (`Spec`), and a whole submission [protocol 3]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property, lru_cache
from math import inf
from typing import TYPE_CHECKING, Any, Optional

from shoal.model import limits
from shoal.model.lazy_dataclass import dataclass
from shoal.model.quantities import parse_duration, parse_size, show_size
from shoal.model.states import Rerun
from shoal.model.task import field_values as read
from shoal.model.task import task_field as kind
from shoal.model.task.checks import whole
from shoal.model.task.content import read_content
from shoal.model.task.sweep import Sweep
from shoal.model.task.task_field import Option, entry, fields_with, share_defaults, task_fields
from shoal.model.task.units import Units, read_units
from shoal.model.task.url_input import read_places
from shoal.model.task.visible import read_visible

if TYPE_CHECKING:
    from shoal.model.task.rule import Rule

OWN = "own"  # value of `cwd` that forces a directory of the task's own
_WHEN = "it decides when the task runs, not what"
_LIMIT = "a limit that the task kept: with another it would have done the same"
_SIZES = "1 byte to 1024 PiB"
_LIST = f"at most {limits.MAX_FILES:,}, each up to 4,096 bytes"
_PAYLOAD = f"{limits.MAX_INLINE // 1024} KiB, or a blob"
_EXPRESSION = f"{limits.MAX_EXPR_BYTES:,} bytes, {limits.MAX_EXPR_TERMS} terms"


@dataclass(frozen=True)
class Needs:
    """What a task takes of a pilot while it runs."""

    cores: int = 1
    memory: int = 0  # bytes; 0: not stated, not limited
    disk: int = 0
    gpus: int = 0
    licences: tuple[tuple[str, int], ...] = ()  # by name; counted over the whole server


@lru_cache(maxsize=1_000)
def _shared_needs(*values: Any) -> Needs:
    """Tasks that need the same share one object."""
    return Needs(**dict(zip((one.name for one in fields_with(Spec, "matching", "needs")), values)))


# fmt: off
@dataclass(frozen=True)
class Spec:
    """One task, or as many as its sweep has elements: the table of task fields, each with all that is known about it."""

    name: str = entry("", kind.TEXT, read.text(limits.MAX_NAME),
        "A name for the tasks of this table. Another table's `after` uses it. Unique in the run.", f"{limits.MAX_NAME} bytes",
        placeholders=True, same_result="people and `after` read it, the task does not")
    command: tuple[str, ...] = entry((), kind.TEXTS, read.argv,
        "The program and its arguments. No shell reads it, so nothing needs quoting. Give this or `shell`.",
        f"{limits.MAX_ARGV_ITEMS:,} words, {limits.MAX_ARGV_BYTES >> 20} MiB",
        placeholders=True, matching="kind", is_program=True, lease="same")
    shell: Optional[str] = entry(None, kind.TEXT, read.shell_text,
        "A script for `/bin/sh`. Give this or `command`.", f"{limits.MAX_ARGV_BYTES >> 20} MiB",
        option=Option("", "Take the command as one text for the shell: 'sort a | uniq > b'."),
        placeholders=True, matching="kind", is_program=True, lease="same")
    cwd: Optional[str] = entry(None, kind.TEXT, read.text(4096),
        "Directory to run in, seen from the run's directory. Without it: the run's directory. "
        '`"own"`: a fresh directory for each attempt, removed afterwards.', "4,096 bytes",
        option=Option("DIR|own", "Directory to run in; `own`: a fresh one per task."), placeholders=True, lease="made")
    env: dict[str, str] = entry(dict, kind.TABLE, read.variables,
        "Variables to set on top of the submitter's environment.",
        f"{limits.MAX_ENV_ITEMS:,} names; not `SHOAL_*`, `LD_PRELOAD`, `LD_AUDIT`",
        option=Option("NAME=VALUE", "Set a variable (repeat for more)."), placeholders=True, lease="same")
    stdin: Optional[str] = entry(None, kind.TEXT, read.text(4096),
        "File for the standard input. Without it the input is empty.", "4,096 bytes",
        option=Option("FILE|-", "File for the standard input; -: what is piped into this command."),
        functions="never", placeholders=True, lease="made")
    stdin_data: str = entry("", kind.TEXT, read.payload,
        "The bytes of the standard input themselves, as base64 or as `sha256:` of a blob; instead of `stdin`. "
        "`shoal run --stdin -` writes it.", _PAYLOAD, functions="never", matching="surroundings", lease="same")
    stdout: str = entry("", kind.TEXT, read.stream_file,
        "File for the standard output, seen from the run's directory; its directory is made. Each attempt begins it anew. "
        "Without it the output is kept with the logs.", "4,096 bytes; no two tasks of a run may have the same",
        option=Option("FILE", "File for the standard output, e.g. 'out/{x}.txt'."),
        functions="never", placeholders=True, matching="surroundings", lease="made")
    stderr: str = entry("", kind.TEXT, read.stream_file,
        "The same for the standard error. The name that `stdout` has: both go there.",
        "4,096 bytes; no two tasks of a run may have the same",
        option=Option("FILE", "File for the standard error; may be the same as --stdout."),
        functions="never", placeholders=True, matching="surroundings", lease="made")
    max_output: int = entry(limits.MAX_STREAM, kind.SIZE, read.max_output,
        "How much is kept of what it prints, for each of the two streams: its head and tail. More is left out, which its "
        "message then says, and `shoal run` ends with another status than 0. Files of `stdout` and `stderr` have no bound.",
        f"{show_size(limits.MIN_STREAM)} to 1024 PiB",
        option=Option("SIZE", "Keep so much of each stream [default: 1G]."), functions="never", lease="same", same_result=_LIMIT)
    inputs: tuple[str, ...] = entry((), kind.TEXTS, read.texts(limits.MAX_FILES),
        "Files and directories the task reads, or URLs (`https://...`, `file:///...`, `root://...`, `s3://...`; with "
        "`#sha256=HEX` checked). The command line checks that files are there, but for those that a task writes which this one "
        "waits for. With `cwd = \"own\"`, with URLs, and where they are not seen, they are linked or copied in.",
        _LIST, option=Option("FILE", "A file the task reads (repeat for more).", "input"),
        functions="never", placeholders=True, lease="same")
    outputs: tuple[str, ...] = entry((), kind.TEXTS, read.files(limits.MAX_FILES),
        "Files and directories the task writes. If one is missing at the end, the task has failed (`output_missing`). "
        'With `cwd = "own"` they are carried to the run\'s directory when the server has accepted the result.',
        f"{_LIST}; relative, without `..`", option=Option("FILE", "A file or directory it writes (repeat for more).", "output"),
        functions="never", placeholders=True, lease="same")
    store: dict[str, str] = entry(dict, kind.TABLE, read_places,
        "Where outputs are stored instead of the run's directory, by their names in `outputs`: `file:///store/{x}.dat`, "
        "`https://host/{x}.dat` (PUT), `root://host//{x}.dat`, any URL of fsspec such as `s3://bucket/{x}.dat`, or "
        "`storage:{x}.dat`, which is in the site's own storage (`--storage`). The task has a directory of its own.",
        f"{limits.MAX_FILES:,} outputs, each up to 4,096 bytes",
        option=Option("OUTPUT=PLACE", "Store this output at a URL, or in storage:NAME (repeat for more)."),
        functions="never", placeholders=True, lease="same")
    cores: int = entry(1, kind.WHOLE, whole(1, limits.MAX_CORES),
        "Cores the task takes. Also its `OMP_NUM_THREADS`.", f"1 to {limits.MAX_CORES:,}",
        option=Option("N", "Cores a task uses [default: 1]."), keyword=True, queued=True, matching="needs", lease="made")
    memory: int = entry(0, kind.SIZE, parse_size,
        "Memory the task takes. Its processes are watched together; above this the attempt is killed (`out_of_memory`), and "
        "the next one gets twice as much, up to four times what is stated here (the policy may say otherwise) or to "
        "`max_memory`. These attempts are no retries and come with `retries = 0`, too: `max_memory` equal to this switches them "
        "off. Without it nothing is reserved and nothing limited.", _SIZES,
        option=Option("SIZE", "Memory a task may use, e.g. 4G; over it, it is killed, and tried again with more."),
        keyword=True, queued=True, matching="needs", lease="made", same_result=_LIMIT)
    max_memory: int = entry(0, kind.SIZE, parse_size,
        "The most memory that a later attempt gets after one was killed for its memory. What `memory` is: the first such "
        "end is final.", _SIZES,
        option=Option("SIZE", "Give it no more than this after it ran out of memory; the same as --memory: never more."),
        keyword=True, queued=True, same_result=_LIMIT)
    disk: int = entry(0, kind.SIZE, parse_size,
        "Disk space the pilot must have. Used to choose a pilot; not enforced.", _SIZES,
        option=Option("SIZE", "Disk space a task needs, e.g. 10G."),
        queued=True, matching="needs", lease="made", same_result=_LIMIT)
    gpus: int = entry(0, kind.WHOLE, whole(0, 1024),
        "Graphics devices. Each task gets its own in `CUDA_VISIBLE_DEVICES`.", "0 to 1,024",
        option=Option("N", "GPUs a task uses."), keyword=True, queued=True, matching="needs", lease="made")
    time: Optional[float] = entry(None, kind.DURATION, parse_duration,
        "Time limit of one attempt. Then SIGTERM, and SIGKILL after the grace (`over_time`).", "above 0, up to ten years",
        option=Option("TIME", "Time limit of a task, e.g. 90s, 15m, 2h30m."),
        keyword=True, queued=True, matching="key", lease="same", same_result=_LIMIT)
    retries: int = entry(0, kind.WHOLE, whole(0, limits.MAX_RETRIES),
        "How often an attempt that failed is followed by another. A lost pilot burns none, nor does more memory (`memory`).",
        f"0 to {limits.MAX_RETRIES}; 0 with `rerun = \"never\"`",
        option=Option("N", "Try a failed task again, up to N times; more memory is no retry (--max-memory)."),
        keyword=True, queued=True,
        same_result="only failed attempts are followed by others")
    unless_exit: tuple[int, ...] = entry((), kind.CODES, read.codes,
        "Exit codes after which a failed attempt is not followed by another, whatever `retries` says; -9: ended by signal 9.",
        f"{limits.MAX_CODES} codes, -{limits.MAX_SIGNAL} to 255",
        option=Option("CODE", "Do not try again after this exit code (repeat for more)."),
        same_result="only failed attempts are followed by others")
    abort_on: tuple[int, ...] = entry((), kind.CODES, read.codes,
        "Exit codes that end the whole run: what is left of it is cancelled, but for tasks with `role = \"final\"`. No retry "
        "follows such an attempt.", f"{limits.MAX_CODES} codes, -{limits.MAX_SIGNAL} to 255",
        option=Option("CODE", "Cancel the rest of the run after this exit code (repeat for more)."),
        same_result="it decides what becomes of other tasks")
    rerun: Rerun = entry(Rerun.SAFE, kind.TEXT, read.rerun_class,
        "What may happen when the pilot is lost: see [states](states.md#re-run-classes).", "`safe`, `exclusive` or `never`",
        option=Option("CLASS", "If a pilot is lost: safe (run again), exclusive, never."),
        keyword=True, matching="key", lease="made", same_result="it decides what happens to attempts that are lost")
    priority: float = entry(0.0, kind.NUMBER, read.priority,
        "Higher goes first among ready tasks. Equal ones go in the order of submission.", f"±{limits.MAX_PRIORITY:g}",
        option=Option("X", "Higher goes first."), keyword=True, queued=True, matching="key", same_result=_WHEN)
    category: Optional[read.Category] = entry(None, kind.TEXT, read.category,
        "A limit for some tasks of a run: of all with `\"io%2\"` at most 2 run at once.", "a name, `%`, 1 to 9,999,999",
        same_result=_WHEN)
    role: str = entry("", kind.TEXT, read.role,
        "`\"final\"`: it starts when everything else of its run has ended, in whatever way, also by `abort_on` or `max_fail` "
        "(not if the run itself is cancelled); it is told `SHOAL_FAILED`, `SHOAL_CANCELLED` and `SHOAL_SUCCEEDED`, how many "
        "tasks did so. `\"service\"`: it runs beside the others and is stopped when they are over, which is then its success.",
        "`final`, `service`; it waits for nothing, and no other task for it", lease="made", same_result=_WHEN)
    noop: bool = entry(False, kind.FLAG, read.flag,
        "It does nothing, on no pilot, and has succeeded as soon as what it waits for has: to tie many tasks to many others, or "
        "to take a step out. It needs no command.")
    labels: dict[str, str] = entry(dict, kind.TABLE, read.labels,
        "Kept with the task.", f"{limits.MAX_LABELS} names", same_result="people read them, the task does not")
    params: Optional[Sweep] = entry(None, kind.PARAMS, read.sweep,
        "A sweep. Table: one task for each combination of values, the last name varies fastest. "
        "List of tables: one task for each. `{name}` stands for the value.",
        f"{limits.MAX_PARAMS} names, {limits.MAX_ELEMENTS:,} tasks a run",
        functions="never", lease="made", same_result="compared task by task: each by its own values")
    array: Optional[tuple[Sweep, Optional[int]]] = entry(None, kind.TEXT, read.array,
        "An array as in Slurm: `1-2000`, `0-9:3`, `1,4,7-9`; `%50` behind it: at most 50 at once. The parameter is `{i}`. "
        "Give this or `params`.", f"{limits.MAX_ELEMENTS:,} tasks a run",
        option=Option("RANGE", "Many elements, as in Slurm: 1-2000%50 (parameter {i})."),
        functions="never", lease="made", same_result="compared task by task: each by its own `i`")
    units: Optional[Units] = entry(None, kind.UNITS, read_units,  # [DIANE U8]
        "Divisible work of so many equal units: events, iterations, files. The server cuts pieces for pilots, sized by what "
        "it measures of each, and every piece is a task: `{first}` is its first unit, from 0 on, and `{count}` how many it "
        "has; also `SHOAL_FIRST` and `SHOAL_COUNT`. Each unit is in one piece. See "
        "[divisible work](../howto/divisible-work.md).",
        f"1 to {limits.MAX_WHOLE:,}; not with `params` or `array`; several such tables of a run need names",
        option=Option("N", "Divisible work: N units, in pieces made to measure (parameters {first} and {count})."),
        functions="never", lease="made")
    after: tuple[str, ...] = entry((), kind.TEXTS, read.texts(limits.MAX_PARENTS),
        "Names of tables in the same run, or earlier runs and tasks (`r18`, `r18.3`). These tasks wait until all tasks of "
        "those have succeeded; if one did not, they fail (`dependency_failed`).",
        f"{limits.MAX_PARENTS:,} names; {limits.MAX_OUTSIDE:,} runs and tasks a run",
        option=Option("RUN|TASK", "Start when this has succeeded: r18, r18.3 or a run's name (repeat for more)."))
    after_any: tuple[str, ...] = entry((), kind.TEXTS, read.texts(limits.MAX_PARENTS),
        "Like `after`, but what is named need only have ended, whether it succeeded or not.",
        f"{limits.MAX_PARENTS:,} names; {limits.MAX_OUTSIDE:,} runs and tasks a run",
        option=Option("RUN|TASK", "Start when this has ended, in whatever way (repeat for more)."))
    function: str = entry("", kind.TEXT, read.payload,
        "A Python callable, pickled, as base64 or as `sha256:` of a blob; instead of `command`. `shoal.Executor` writes it.",
        _PAYLOAD, matching="kind", is_program=True, lease="same")
    calls: tuple[str, ...] = entry((), kind.TEXTS, read.calls,
        "With `function`: pickled `(args, kwargs)` of each call, which is one task each.", f"{limits.MAX_CALLS:,} calls",
        functions="only", lease="made", same_result="compared task by task: each by its own call")
    initializer: str = entry("", kind.TEXT, read.payload,
        "With `function`: pickled `(callable, args)`, called once in each interpreter before the first call.", _PAYLOAD,
        functions="only", lease="same")
    finalizer: str = entry("", kind.TEXT, read.payload,
        "With `function`: pickled `(callable, args)`, called once in each interpreter that ends in an orderly way.", _PAYLOAD,
        functions="only", lease="same", same_result="it is called when all calls have their results")
    max_tasks_per_child: int = entry(0, kind.WHOLE, whole(0, limits.MAX_ELEMENTS),
        "With `function`: so many calls at most in one interpreter; then it ends. 0: as many as there are.",
        f"0 to {limits.MAX_ELEMENTS:,}", functions="only", lease="same")
    python: str = entry("", kind.TEXT, read.text(4096),
        "With `function`: the interpreter that makes the calls; where it does not exist, the first `python3` of the host.",
        "4096 bytes", functions="only", lease="same")
    modules: str = entry("", kind.TEXT, read.payload,
        "With `function`: the sources of the submitter's own modules as they were loaded there; the calls use these, whatever "
        "the files say by then. `shoal.Executor` writes it.", _PAYLOAD,
        functions="only", lease="same")
    session: str = entry("", kind.TEXT, read.text(64),
        "With `function`: only calls of one session are made by the same interpreter. `shoal.Executor` writes it; without it: "
        "calls of one run.", "64 bytes",
        functions="only", lease="same", same_result="it decides which process makes a call, not what it computes")
    require: str = entry("", kind.EXPRESSION, read.expression,  # [GWP G5]
        "What a pilot must be: an [expression](../explain/expressions.md) over its tags, such as "
        '`memory_mb >= 4000 and arch == "x86_64"`.', _EXPRESSION,
        option=Option("EXPR", "Pilots it may run on, e.g. 'memory_mb >= 4000 and arch == \"x86_64\"'."),
        keyword=True, queued=True, matching="key")
    site: str = entry("", kind.TEXT, read.sites,  # [DIANE U5]
        "Where it may run: the name of a site, or several with commas; `local` is the server's own machine.",
        "1,024 bytes", option=Option("NAME", "Run it at this site only, or at one of several: hpc,box."),
        keyword=True, queued=True, matching="key",
        same_result="it says where, and any place that fulfils `require` computes the same")
    rank: str = entry("", kind.EXPRESSION, read.expression,
        "Which pilot is best: an expression that gives a number; the largest goes first, where it is undefined goes last.",
        _EXPRESSION, option=Option("EXPR", "Which of them is best: the highest number, e.g. 'cpu_mhz'."),
        keyword=True, queued=True, matching="key", same_result="a preference: any pilot that fulfils `require` may run the task")
    deadline: tuple[Optional[float], Optional[float]] = entry((None, None), kind.MOMENT, read.deadline,
        "When it should be done: `2h` from the submission on, or `2026-11-16T08:00+01:00`. Tasks alike go by their deadline.",
        "up to ten years", option=Option("TIME", "When it should be done: 2h from now, or 2026-11-16T08:00."),
        keyword=True, queued=True, same_result=_WHEN)
    order: str = entry("", kind.TEXT, read.text(65),  # [DIANE U10]
        "A parameter by whose value elements go, smallest first; with `-` before it, largest first.",
        f"{limits.MAX_ORDERED:,} tasks",
        option=Option("[-]NAME", "Start the elements by this parameter; with -, the largest first."), same_result=_WHEN)
    setup: tuple[str, ...] = entry((), kind.LINES, read.shell_lines,
        "Shell lines before the command, in the same shell: `module load gcc`, `. env/bin/activate`. "
        "If one fails, the host is at fault (`host_unfit`) and another is tried.", f"{limits.MAX_SETUP} lines",
        option=Option("LINE", "A line of shell before the command (repeat for more)."),
        functions="never", placeholders=True, matching="surroundings", is_program=True, lease="same")
    container: str = entry("", kind.TEXT, read.image,
        "The image that the command runs in, with apptainer, podman or docker, whichever the host has.", "1,024 bytes",
        option=Option("IMAGE", "Run it in this image, e.g. docker://python:3.12."),
        functions="never", matching="surroundings", is_program=True, lease="same")
    licences: tuple[tuple[str, int], ...] = entry((), kind.COUNTS, read.licences,
        "Named licences it takes while it runs; how many there are is said in the policy.", f"{limits.MAX_LICENCES} names",
        option=Option("NAME[=N]", "A licence it holds (repeat for more).", "licence"), queued=True, matching="needs",
        same_result="the server counts them, the task does not see them")
    checkpoint: tuple[str, ...] = entry((), kind.TEXTS, read.files(limits.MAX_CHECKPOINT),  # [GWP G10]
        "Files by which it can go on later. With exit code 85, or if they were written before a stop, "
        "its next attempt gets them back; and if its pilot is lost, the newest that travelled while it ran.",
        f"{limits.MAX_CHECKPOINT} files; relative, without `..`; while it runs {show_size(limits.MAX_CHECKPOINT_BYTES)} together",
        option=Option("FILE", "A file by which it can go on later (repeat for more)."),
        functions="never", placeholders=True, matching="surroundings", lease="same")
    checkpoint_every: float = entry(60.0, kind.DURATION, read.interval,
        "How often the checkpoint files travel while the task runs, if they changed and are at rest; the first soon after "
        "it was written. 0: only when the task ends.", f"at least {limits.MIN_CHECKPOINT_EVERY:g} s",
        option=Option("TIME", "How often they travel while it runs (default 60s)."),
        functions="never", lease="same", same_result="how often a copy of the files is sent, which the task does not see")
    visible: dict[str, str] = entry(dict, kind.TABLE, read_visible,
        "Paths of the submitter that a pilot must see, each with evidence by which it knows that it does. `shoal` and "
        "`shoal.Executor` write it for the files that a task names and the directory that it asks for.",
        f"{limits.MAX_VISIBLE} paths", matching="key", lease="same",
        same_result="it decides where the task runs, not what it does")
    content: dict[str, str] = entry(dict, kind.TABLE, read_content,
        "What is in the files that it reads, by their names, as blobs: a pilot that does not see the submitter's files fetches "
        "them. `shoal` writes it where tasks may run on other hosts.", f"{limits.MAX_CONTENT:,} files",
        functions="never", lease="made", same_result="files are compared as such, wherever they come from")
    # fmt: on

    @classmethod
    def given(cls, values: dict[str, Any]) -> Spec:
        """A task with these fields, already read. Others are found in the class, and take no memory in each task."""
        made = object.__new__(cls)
        object.__setattr__(made, "__dict__", values)
        return made

    def due(self, created: float) -> float:
        """When it is due in a run that was created then; endless if it has no deadline."""
        delay, moment = self.deadline
        return created + delay if delay is not None else moment if moment is not None else inf

    @cached_property
    def needs(self) -> Needs:
        """What it takes of a pilot."""
        return _shared_needs(*(getattr(self, one.name) for one in fields_with(type(self), "matching", "needs")))

    @property
    def sweep(self) -> Optional[Sweep]:
        """Its parameters, in whichever way they were given."""
        if self.units is not None:
            return self.units.sweep
        return self.params if self.array is None else self.array[0]

    @property
    def throttle(self) -> Optional[int]:
        """How many of its elements may run at once."""
        return self.array[1] if self.array is not None else None

    @cached_property
    def leased(self) -> dict[str, Any]:
        """What a lease has of it under the same names, as a message holds it: lists instead of tuples."""
        found = {one.name: getattr(self, one.name) for one in fields_with(type(self), "lease", "same")}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    @property
    def texts(self) -> list[str]:
        """Every text that may hold placeholders."""
        found: list[str] = []
        for one in fields_with(type(self), "placeholders"):
            value = getattr(self, one.name)
            found += [value] if isinstance(value, str) else value.values() if isinstance(value, dict) else value or ()
        return found

    @property
    def count(self) -> int:
        """How many tasks this is."""
        return len(self.calls) if self.function else self.sweep.count if self.sweep is not None else 1


FIELDS = task_fields(Spec)
share_defaults(Spec)


@dataclass(frozen=True)
class Submission:
    """One run as the client sends it, checked."""

    specs: tuple[Spec, ...]
    tables: tuple[Mapping[str, Any], ...] = ()  # the specs as they were written: the form the database keeps
    name: str = ""
    cwd: str = ""  # the submitter's directory
    max_fail: Optional[int] = None
    max_running: Optional[int] = None  # so many of its tasks run at once at most
    seed: Optional[int] = None
    key: str = ""  # idempotency
    labels: dict[str, str] = field(default_factory=dict)
    open: bool = False  # more tasks may be added until it is closed
    reduce: dict[str, str] = field(default_factory=dict)  # names that tasks emit -> how their values are reduced
    stated: Optional[float] = None  # the chance of meeting its deadline that its submitter was told
    notify: tuple[str, ...] = ()  # URLs and commands that are told of its end, its first failure and a deadline at risk
    until: str = ""  # the goal: once it holds of what was emitted, the rest of the run is not needed
    plan: Optional[float] = None  # planned by the server first, and accepted by itself from this chance on
    rules: tuple[Rule, ...] = ()  # that make more tasks of files

    @property
    def count(self) -> int:
        """How many tasks the run has."""
        return sum(spec.count for spec in self.specs)

    @property
    def checked(self) -> list[Spec]:
        """Its tables, and for each rule one of the tasks that it makes: what expressions and needs are checked of."""
        return [*self.specs, *(rule.example for rule in self.rules)]
