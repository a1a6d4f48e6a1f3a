"""Write the generated pages of docs/reference from the code; `--check` names the stale ones instead.

The tables come from the code itself: fields, states, events, limits, commands, error codes. What the code
cannot give (what a field means) is written below, and a name without its sentence, or a sentence without its name, is an
error.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import click

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))  # this clone's code, whatever is installed

import shoal  # noqa: E402
from shoal.cli import commands  # noqa: E402
from shoal.cli.main import status_of  # noqa: E402
from shoal.cli.tasks import preflight  # noqa: E402
from shoal.client import config, file_states  # noqa: E402
from shoal.client.client import error_of  # noqa: E402
from shoal.db import retention  # noqa: E402
from shoal.engine.why import reason  # noqa: E402
from shoal.model import errors, event, limits, states, timing  # noqa: E402
from shoal.model.quantities import show_size  # noqa: E402
from shoal.model.task import spec  # noqa: E402
from shoal.model.task.task_field import NUMBER, WHOLE, Field, fields_with  # noqa: E402
from shoal.report.summary import NEXT  # noqa: E402
from shoal.server import main as server_main  # noqa: E402
from shoal.server import metrics  # noqa: E402
from shoal.server.http import request as server_call  # noqa: E402
from shoal.wire import submission  # noqa: E402

REFERENCE = ROOT / "docs" / "reference"
SOURCE = ROOT / "src" / "shoal"
NOTE = "<!-- Written by scripts/make_reference.py; change the code or the script, not this page. -->"
K = TypeVar("K")


# --- Markdown
def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A Markdown table."""
    lines = [_row(head), "|" + "---|" * len(head)]
    return [*lines, *(_row(row) for row in rows), ""]


def _row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def code(text: object) -> str:
    """A text as code."""
    return f"`{text}`"


def fence(kind: str, lines: Iterable[str]) -> list[str]:
    """A fenced block."""
    return [f"```{kind}", *lines, "```", ""]


def clean(text: str) -> str:
    """Text of a comment or docstring without its `[...]` references, which are for readers of the code."""
    return re.sub(r"\s*\[[a-z]+ [^\]]*\]", "", text).strip()


def sentences(about: str, known: Iterable[K], texts: Mapping[K, str]) -> dict[K, str]:
    """The text for each known name, in the order of the code; both must have the same names."""
    names = list(known)
    missing = [str(name) for name in names if name not in texts]
    extra = [str(name) for name in texts if name not in names]
    if missing or extra:
        raise SystemExit(f"make_reference: {about}: without a sentence: {missing}; no longer there: {extra}")
    return {name: texts[name] for name in names}


def and_list(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return f"{', '.join(words[:-1])} and {words[-1]}"


def number(value: float) -> str:
    """`10000` -> `10,000`; sizes and floats in the form people read."""
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def seconds(value: float) -> str:
    """`900` -> `900 s (15 min)`."""
    if value < 120:
        return f"{value:g} s"
    return f"{value:,.0f} s ({value / 60:g} min)" if value < 7200 else f"{value:,.0f} s ({value / 3600:g} h)"


def size(value: int) -> str:
    """`8388608` -> `8 MiB`."""
    shown = show_size(value)
    return f"{float(shown[:-1]):g} {shown[-1]}iB"


# --- task.md
RUN: dict[str, tuple[str, str, str]] = {
    "name": ("text", "A name for the run, shown in listings.", f"{limits.MAX_NAME} bytes"),
    "open": ("yes or no", "More tasks will be added (over HTTP, as `shoal.Executor` does); there may be none yet.", ""),
    "max_fail": ("whole number", "Cancel the rest when so many tasks have failed or are lost.", "1 or more"),
    "max_running": (
        "whole number",
        "So many tasks of the run run at once at most, on all pilots together.",
        "1 or more",
    ),
    "reduce": (
        "table of texts",
        "Name that tasks emit -> how its values are merged: `mean`, `sum`, `count`, `min`, `max`, `hist(0,10,50)`, `best(5)`, "
        "`best(5,min)`, `append(100)`. Numbers under other names have a mean, texts are appended.",
        f"{limits.MAX_RUN_NAMES} names",
    ),
    "until": (
        "expression",
        "The goal: once it holds of what was emitted, the rest of the run is cancelled. Functions of a name: `n`, `mean`, `sum`, "
        "`min`, `max`, `std_err`, `rel_err`.",
        f"{limits.MAX_EXPR_BYTES:,} bytes; not in an open run",
    ),
    "notify": (
        "list of texts",
        "URLs and commands that are told of the end, the first failure, and a deadline at risk.",
        f"{limits.MAX_NOTIFY} of them; hosts that the server's policy names",
    ),
    "rules": (
        "list of tables",
        "Rules that make tasks of files: see [runs that grow](../howto/runs-that-grow.md).",
        f"{limits.MAX_RULES} of them; not in an open run",
    ),
    "plan": (
        "number",
        "The server [plans](../howto/deadlines-and-notices.md#have-the-server-plan-it) the run first, and with a deadline it "
        "starts by itself from this chance on; `--plan` writes it.",
        "0 to 1; not in an open run, nor with `units`",
    ),
    "stated": ("number", "The chance of meeting its deadline that was stated; `--by` writes it.", "0 to 1"),
    "seed": ("whole number", "Each task's `SHOAL_SEED` is made from it. Without it: drawn by chance.", "0 to 2^63 - 1"),
    "labels": ("table of texts", "Kept with the run; `shoal show` prints them.", f"{limits.MAX_LABELS} names"),
    "key": (
        "text",
        "Idempotency key: the same key with the same content never runs twice; with other content it is refused.",
        f"{limits.MAX_KEY} bytes",
    ),
    "cwd": (
        "text",
        "The run's directory. Without it: the directory in which `shoal` is called, not that of the file.",
        "4,096 bytes",
    ),
    "tasks": ("list of tables", "The tasks, in the fields below.", f"1 to {limits.MAX_SPECS:,} tables"),
}
VARIABLES = {
    "SHOAL_RUN": "the run: `r12`",
    "SHOAL_TASK": "the task: `r12.7`",
    "SHOAL_ATTEMPT": "the attempt: `r12.7#2`",
    "SHOAL_INDEX": "the value of `i` in an array, else the number of the task in the run",
    "SHOAL_RETRY": "from the first retry on: how many of its retries are used up",
    "SHOAL_FAILED": 'with `role = "final"`: how many of the others failed by themselves',
    "SHOAL_CANCELLED": "the same: how many were cancelled",
    "SHOAL_SUCCEEDED": "the same: how many succeeded",
    "SHOAL_TAGS": "a pipe: a line `name = value` written to it becomes the tag `my.name` of this pilot",
    "SHOAL_EMIT": "a file: lines `name=value` or JSON objects that are appended to it are merged over all tasks of the run",
    "SHOAL_TASK_SERVER": "the server file or address of the server that runs it, for tasks that submit tasks",
    "SHOAL_FIRST": "the first unit of a piece, from 0 on, where the task declares `units`",
    "SHOAL_COUNT": "how many units the piece has",
    "SHOAL_PART": "how many checkpoints came before, where the task declares `checkpoint`",
    "SHOAL_SEED": "a random seed of 31 bits, the same for every attempt of the task",
    "OMP_NUM_THREADS": "the field `cores`, unless `env` sets it",
    "CUDA_VISIBLE_DEVICES": "the devices of this task, if it asked for `gpus`",
}
EXAMPLE = """\
name = "scan"                     # --- the run as a whole
max_fail = 20
max_running = 50                  # so many of its tasks at once, at most
reduce = { chi2 = "best(10,min)" }  # of what tasks emit; anything else has a mean
until = "rel_err(mass) < 0.001"   # then the rest is not needed
notify = ["https://hooks.example.org/abc"]
seed = 7
labels = { paper = "2" }
key = "scan-of-monday"
cwd = "."

[[tasks]]                         # --- one task
name = "prepare"
shell = "sort -n raw.txt > sorted.txt"
inputs = ["raw.txt"]
outputs = ["sorted.txt"]

[[tasks]]                         # --- a sweep: 3 x 2 tasks
name = "fit"
after = ["prepare"]
command = ["./fit", "--energy", "{energy}", "--mode", "{mode}", "-o", "fit-{energy}-{mode}.json"]
params = { energy = "10..30:10", mode = ["fast", "slow"] }
cwd = "own"                       # a fresh directory for each attempt
inputs = ["fit", "sorted.txt"]
outputs = ["fit-{energy}-{mode}.json"]
store = { "fit-{energy}-{mode}.json" = "storage:fits/{energy}-{mode}.json" }   # not in the run's directory
stdin = "sorted.txt"
stdout = "log/fit-{energy}-{mode}.txt"
stderr = "log/fit-{energy}-{mode}.err"
max_output = "1G"                 # kept of each stream that has no file
env = { LOG_LEVEL = "info" }
cores = 2
memory = "2G"
max_memory = "4G"                 # after it ran out of the 2G
disk = "500M"
gpus = 0
time = "1h30m"
retries = 2
unless_exit = [3]                 # its own code for a wrong input: no retry helps
abort_on = [99]                   # nor does anything else of the run make sense then
category = "licensed%10"          # of all tasks with this category at most 10 at once
rerun = "safe"
priority = 5
labels = { step = "fit" }
require = 'arch == "x86_64" and memory_mb >= 4000'
site = "hpc,local"
rank = "cpu_mhz"
deadline = "12h"
order = "-energy"                 # the largest first
setup = ["module load gcc", ". env/bin/activate"]
container = "docker://debian:12"
licences = { matlab = 1 }
checkpoint = ["fit.state"]
checkpoint_every = "5m"

[[tasks]]                         # --- an array as in Slurm, four at a time
name = "plot"
after = ["fit"]
after_any = ["prepare"]           # has ended, in whatever way
command = ["./plot", "{i}"]
array = "1-12%4"

[[tasks]]                         # --- divisible work, cut into pieces as pilots ask for them
name = "simulate"
command = ["./simulate", "--first", "{first}", "--events", "{count}"]
units = 100_000

[[tasks]]                         # --- nothing to do: one name for several steps
name = "both"
after = ["plot", "simulate"]
noop = true

[[rules]]                         # --- a task for every ten files that tasks above wrote
name = "merge"
files = "fit-*.json"
gather = 10
command = ["./merge", "-o", "merged-{number}.json", "{files}"]

[[tasks]]                         # --- when everything else has ended, however it did
command = ["./tidy-up"]
role = "final"
"""


def task_page() -> list[str]:
    """docs/reference/task.md."""
    whole = {"tasks", *(f.name for f in dataclasses.fields(spec.Submission))} - {"specs", "tables"}
    sentences("fields of a run", whole, dict.fromkeys(RUN, ""))
    found = tomllib.loads(EXAMPLE)
    count = submission.parse_submission(found).count
    unused = set(spec.FIELDS) - {field for one in found["tasks"] for field in one}
    unused |= whole - set(found)
    by_executor = {
        "function",
        "calls",
        "initializer",
        "finalizer",
        "max_tasks_per_child",
        "python",
        "open",
        "stated",
        "plan",
        "visible",
        "content",
    }
    unused -= {*by_executor, "modules", "session", "stdin_data"}  # nobody writes these by hand
    if unused:
        raise SystemExit(f"make_reference: the example of task.md does not use {sorted(unused)}")
    filled = [code(one.name) for one in fields_with(spec.Spec, "placeholders") if one.name != "name"]
    compared = [code(one.name) for one in fields_with(spec.Spec, "same_result", "")]
    run_rows = [(code(name), *RUN[name]) for name in RUN]
    return [
        "# Task fields",
        "",
        "One table of fields serves task files, the command line and the HTTP interface. "
        "An unknown field is an error, never ignored. Anything wrong refuses the whole submission.",
        "",
        "## The file",
        "`shoal run FILE.toml` reads a task file in [TOML](https://toml.io). "
        "Fields of the run come first. Each `[[tasks]]` is one task, or as many as its parameters make. "
        f"This example is a run of {count} tasks and uses every field:",
        "",
        *fence("toml", EXAMPLE.rstrip().splitlines()),
        "How to write one, step by step: [write a task file](../howto/write-a-task-file.md).",
        "",
        "## Fields of the run",
        *table(("field", "type", "meaning", "limits"), run_rows),
        'With a table `[workflow]` and `edges = "files"` in it, a table that reads a file waits for the table that writes it, of '
        "sweeps task by task where that fits: see [workflows](../howto/workflows.md#files-make-the-edges).",
        "",
        "## Fields of a task",
        *table(("field", "type", "default", "meaning", "limits"), task_rows(spec.FIELDS)),
        "**Sizes**: bytes, or a number with a unit. K, M, G, T, P are powers of 1024, as are KiB, MiB, ...; "
        "KB, MB, ... are powers of 1000.  ",
        '**Durations**: seconds, or `"90s"`, `"15m"`, `"2h"`, `"1h30m"`, `"1d"`, `"02:30:00"`, `"1-00:00:00"`.  ',
        '**Values of a parameter**: `"1..10"`, `"10..100:10"` with a step, `"0..1:0.1"`, `"a,b,c"`, '
        '`"1..3,7"`, or a TOML list; `"001..100"` keeps its zeros. The command line looks up, also in a task file: '
        '`"*.txt"` files by a pattern, `"@list.txt"` lines of a file, `"@-"` or `"-"` of standard input; '
        '`"=TEXT"` is the text as it stands.  ',
        f"**Placeholders**: `{{name}}` is filled in {and_list(filled)} of a sweep or array; "
        "in `shell` and `setup` its value is quoted for the place where it stands, and `{name:raw}` is the value as it is; "
        "of a value that is a path also `{name.name}`, `{name.stem}`, `{name.suffix}` and `{name.parent}`; "
        "`{{` and `}}` stand for braces. In a single task braces mean nothing and stay as they are.",
        "",
        "## What can be changed while tasks are queued",
        f"`shoal set` changes {and_list([code(one.name) for one in fields_with(spec.Spec, 'queued')])} of tasks that have not "
        "begun; what has begun gets the new values with its next attempt. `shoal copy` submits the same work with any "
        "field changed.",
        "",
        "## What `--resume` compares",
        "A result of an earlier run of the same person is taken over if these are the same:",
        "",
        f"- every field of its task but those in the table below, and so {and_list(compared)};",
        "- the directory of the run, and its `seed` if one was given: then each task also by its number in the run;",
        "- the content of the files that the command, `inputs`, `stdin` and `container` name (of what goes beyond "
        f"{size(file_states.MAX_DIGESTED)}: size, date and inode), also within a word (`--config=c.ini`, `a.ini,b.ini`, "
        "`@c.ini`, `-cc.ini`), and a program of your own that is found by `$PATH` (of one that is no script: size, date and "
        "inode). Files that only a shell text or the program itself knows of are not looked at: name them in `inputs`;",
        "- the same of all files in a directory that `inputs` name or that python runs (`__main__.py`), without `__pycache__` "
        "and what tasks of the run are declared to write; with more than "
        f"{file_states.MAX_LISTED:,} files in them the tasks run again. Other directories that a command names are not looked "
        "into, since tasks write there: name them in `inputs`;",
        "- of inputs at URLs the digest (`#sha256=`) or, of `file:///`, the content as it is seen from here; of others it is not "
        "known whether they changed, and the tasks run again;",
        "- of a sweep, task by task, the files that its parameters name, as values or within `command`, `inputs` and `stdin`. "
        "One that was not there when the earlier run was submitted counts as made by it. Of a sweep of more than "
        f"{limits.MAX_COMPARED:,} tasks the parameters that are files are compared all together, and of names that only "
        f"contain a parameter those of the first {preflight.MAX_CHECKED:,} `inputs` and `stdin`: if one changed, all run;",
        "- what it wrote is there, and not altered since it ended: its `outputs` and the files of `stdout` and `stderr` "
        "(by their date, also one that is older than the task and was put there after it; of one that all tasks of a sweep write "
        "only that it is there). Not looked at: those of a sweep of "
        f"more than {limits.MAX_COMPARED:,} tasks, which `shoal` says, and those on other hosts of which none is seen here, and "
        "what is in `store`;",
        "- the environment of the submitter, without variables of the terminal or login such as `TERM`, `PWD` and `SSH_*`;",
        "- and all tasks that it waits for are taken over, too.",
        "",
        "If in doubt the task runs again, and `shoal` says why. A sweep's tasks are recognised by their parameters, not by "
        "their number, so a task that reads `SHOAL_INDEX` without an `array` should name what it depends on as a parameter.",
        "",
        "How files look is noted when a run is submitted, and its tasks read them when they start. So of a file that is edited "
        "while its task waits, and later gets its old content back, the result is taken for one of that content. Change files "
        "only between runs, or submit again with `--resume` after a change: then it shows.",
        "",
        "A workflow is compared table by table, by the names of its tables, with the latest hundred runs of its directory: "
        "what changed in one table is no reason to run those that do not wait for it. What one of its tasks writes and another "
        "reads is not compared: who reads it runs again if its writer does. Not with `units`, which are compared as a whole.",
        "",
        *table(("not compared", "because"), resume_rows(spec.FIELDS)),
        "## Variables every task gets",
        "A task starts with the environment of whoever submitted it, without names that begin with `SHOAL_`. On top of it:",
        "",
        *table(("variable", "value"), [(code(name), text) for name, text in VARIABLES.items()]),
    ]


def task_rows(fields: Mapping[str, Field]) -> list[Sequence[str]]:
    """The table of task fields: name, type, default, meaning, limits."""
    return [(code(name), one.kind.words, task_default(one), one.about, one.limits) for name, one in fields.items()]


def task_default(field: Field) -> str:
    """The default of a field as people read it."""
    if field.name in ("command", "shell"):
        return "one of both is required"
    is_shown = field.kind in (WHOLE, NUMBER) or field.default not in (None, "", (), {}, 0, (None, None))
    return code(field.default) if is_shown else "none"


def resume_rows(fields: Mapping[str, Field]) -> list[Sequence[str]]:
    """The task fields that `--resume` does not compare, and why."""
    return [(code(name), one.same_result) for name, one in fields.items() if one.same_result]


# --- states.md
TASK_STATES = {
    "waiting": "It waits for tasks or runs named in `after` or `after_any`.",
    "ready": "It could be handed out. `shoal why` says why it is not.",
    "leased": "A pilot has it and has not started it yet.",
    "running": "A pilot runs it.",
    "succeeded": "The command ended with exit code 0 and its declared outputs are there.",
    "failed": "It did not succeed and no retries are left. The cause says why.",
    "cancelled": "A person cancelled it, or `max_fail` was reached.",
    "lost": "Its pilot was lost and it must never run again (`rerun = never`).",
}
TASK_EDGES: dict[tuple[str, str], str] = {
    ("waiting", "ready"): "all parents succeeded, or ended",
    ("waiting", "cancelled"): "cancel",
    ("waiting", "failed"): "a parent did not succeed",
    ("ready", "leased"): "a pilot has room",
    ("ready", "succeeded"): "a late success is adopted",
    ("ready", "cancelled"): "cancel",
    ("leased", "running"): "the pilot starts it",
    ("leased", "ready"): "given back, or the pilot is lost",
    ("leased", "waiting"): "the same, of one leased behind its parents",
    ("running", "waiting"): "the same, of one leased behind its parents",
    ("leased", "cancelled"): "cancel",
    ("running", "succeeded"): "exit code 0",
    ("running", "failed"): "no retries left, or poison",
    ("running", "cancelled"): "cancel",
    ("running", "lost"): "pilot lost, rerun = never",
    ("running", "ready"): "retry, or the pilot is lost",
    ("succeeded", "ready"): "no command does this yet",
    ("failed", "ready"): "shoal retry",
    ("cancelled", "ready"): "shoal retry",
    ("lost", "ready"): "shoal retry",
}
PILOT_STATES = {
    "queued": "It is registering.",
    "idle": "It is connected and holds no task.",
    "busy": "It holds at least one task.",
    "draining": "It takes no new task, finishes what runs, and ends.",
    "gone": "It ended or was given up. The reason is kept. It does not come back under this name.",
}
PILOT_EDGES: dict[tuple[str, str], str] = {
    ("queued", "idle"): "registered",
    ("queued", "gone"): "the host is unfit",
    ("idle", "busy"): "a task is leased",
    ("idle", "draining"): "drain",
    ("idle", "gone"): "silent too long, or dead",
    ("busy", "idle"): "its last task ended",
    ("busy", "draining"): "drain",
    ("busy", "gone"): "silent too long, or dead",
    ("draining", "gone"): "nothing left",
}
CAUSES = {
    "task_error": "The command ended with another exit code than 0.",
    "over_time": "It was stopped at its limit `time`.",
    "out_of_memory": "It was killed above its limit `memory`.",
    "signal": "A signal ended it that Shoal did not send.",
    "initializer": "The `initializer` of function calls failed in the interpreter that was to make this call.",
    "stage_in": "Its inputs, its standard input or its environment could not be brought in.",
    "stage_out": "Its outputs could not be brought to their place.",
    "output_missing": "It ended with exit code 0, but a declared output is not there.",
    "host_unfit": "The host, not the task, is at fault. The attempt is given back and no retry is burnt.",
    "pilot_lost": "Its pilot was lost and it may not run again (`rerun = never`).",
    "poison": f"{limits.POISON_LOSSES} pilots were lost while they ran it. It is not given to another.",
    "cancelled": "A person cancelled it, or `max_fail` was reached.",
    "dependency_failed": "A task or run named in `after` did not succeed.",
    "goal_reached": "What the run's tasks emitted met its goal (`until`), so it was not needed any more.",
}
RERUNS = {
    "safe": "May run again, even while an older copy might still live. The first success counts, and counts once. "
    "A late success of a copy that was given up is adopted. The default.",
    "exclusive": "May run again, but never twice at once. After contact is lost, the guard beside the task kills it after "
    "{kill} s. The server hands it out again {free} s after its pilot was last heard.",
    "never": "Starts at most once, unless a person says retry. If its pilot is lost, it becomes `lost` "
    "{free} s after the pilot was last heard. "
    "It has no retries.",
}


def states_page() -> list[str]:
    """docs/reference/states.md."""
    times = timing.Timing()
    free = f"{times.hold + times.margin:g}"
    reruns = {name: text.format(kill=f"{times.kill_after:g}", free=free) for name, text in RERUNS.items()}
    task_words = sentences("task states", [s.value for s in states.TaskState], TASK_STATES)
    pilot_words = sentences("pilot states", [s.value for s in states.PilotState], PILOT_STATES)
    causes = sentences("causes", [c.value for c in states.Cause], CAUSES)
    sentences("what to try next", causes, dict.fromkeys(NEXT, ""))
    rerun_words = sentences("re-run classes", [r.value for r in states.Rerun], reruns)
    final = [s.value for s in states.TaskState if s.final]
    return [
        "# States",
        "",
        "The pictures are drawn from the tables in `src/shoal/model/states.py`. No other change of state is possible.",
        "",
        "## Task",
        *picture({(a.value, b.value) for a, to in states.TASK_TABLE.items() for b in to}, TASK_EDGES, final, "waiting"),
        f"Final: {', '.join(map(code, final))}. Only `shoal retry` leads out of them, and it takes those that did not "
        "succeed. A task without parents begins as `ready`.",
        "",
        *table(("state", "meaning"), [(code(name), text) for name, text in task_words.items()]),
        "Reasons are not states. A task that fits no pilot is `ready`, and `shoal why` gives the reason.",
        "",
        "A run has no state of its own in the database. Listings call it `succeeded` if all tasks did or its goal was reached, "
        "`failed` if one failed or is lost, else `cancelled`; before its end `running`, `ready`, `waiting`, or `open` if it has "
        "nothing to do for now "
        "and a program may add to it.",
        "",
        "## Pilot",
        *picture({(a.value, b.value) for a, to in states.PILOT_TABLE.items() for b in to}, PILOT_EDGES, ["gone"], "queued"),
        *table(("state", "meaning"), [(code(name), text) for name, text in pilot_words.items()]),
        f"A pilot that is silent for {times.suspect:g} s is *suspect*. That is a mark, not a state: nothing is done. "
        f"After {times.lease:g} s of silence it is given up: `gone`.",
        "",
        "## Causes",
        "Why an attempt did not succeed, and what to type next:",
        "",
        *table(("cause", "meaning", "next"), [(code(c), text, next_step(NEXT[c])) for c, text in causes.items()]),
        "## Re-run classes",
        "The field `rerun` says what may happen to a task whose pilot went silent.",
        "",
        *table(("class", "what may happen"), [(code(name), text) for name, text in rerun_words.items()]),
        "More on this: [when something fails](../explain/failure.md).",
        "",
    ]  # fmt: skip


def next_step(text: str) -> str:
    """The advice for a cause, with names as in the other pages."""
    shown = text.replace("{task}", "r12.7").replace("{run}", "r12")
    return code(shown) if shown.startswith("shoal ") else shown


def picture(
    edges: set[tuple[str, str]], said: Mapping[tuple[str, str], str], final: Sequence[str], first: str
) -> list[str]:
    """A Mermaid picture of a state table, with each change named."""
    words = sentences("changes of state", edges, said)
    ordered = [edge for edge in said if edge in words]
    lines = ["stateDiagram-v2", f"    [*] --> {first}"]
    lines += [f"    {a} --> {b}" + (f": {said[a, b]}" if said[a, b] else "") for a, b in ordered]
    lines += [f"    {name} --> [*]" for name in final]
    return fence("mermaid", lines)


# --- events.md
EVENT_FIELDS = {
    "seq": "Number in the journal of this database, 1, 2, 3, ... without gaps.",
    "time": "Seconds since 1970, by the server's clock.",
    "kind": "One of the kinds below.",
    "run": "Number of the run: 12 for `r12`.",
    "task": "Number of the task in its run: 7 for `r12.7`.",
    "attempt": "Number of the attempt: 2 for `r12.7#2`.",
    "pilot": "Name of the pilot.",
    "site": "The pilot's site.",
    "data": "What else there is to say: see the kinds.",
    "owner": "Whose it is: a person, `@` and a group, or empty for the server itself. One sees one's own.",
}


def events_page() -> list[str]:
    """docs/reference/events.md."""
    fields = sentences("fields of an event", list(event.Event._fields), EVENT_FIELDS)
    data_fields = emitted()
    rows = [(code(kind), clean(text.partition("; data:")[0]), ", ".join(map(code, data_fields[kind])) or "-")
            for kind, text in event.KINDS.items()]  # fmt: skip
    return [
        "# Events",
        "",
        "The journal is what happened, in order, for programs. A change in the database and its event are one transaction. "
        f"Events are kept for {retention.KEEP_SECONDS / 86_400:g} days or {size(retention.KEEP_BYTES)} with the logs, "
        "oldest dropped first.",
        "",
        "Read them with `GET /v1/events?after=SEQ` ([HTTP](http.md)). `after` older than what is kept answers 410 "
        "and names the oldest kept. `shoal show r12.7` prints those of one task.",
        "",
        "## Fields",
        *table(("field", "meaning"), [(code(name), text) for name, text in fields.items()]),
        "## Kinds",
        "A member of `data` may be missing where it makes no sense.",
        "",
        *table(("kind", "what happened", "`data`"), rows),
    ]


def emitted() -> dict[str, list[str]]:
    """Kind -> the names in `data`, from the calls of `emit` in the engine; every kind must be both listed and emitted."""
    found: dict[str, dict[str, None]] = {}
    for tree in sources("engine").values():
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                for kind, names in _emits(function):
                    found.setdefault(kind, {}).update(dict.fromkeys(names))
    sentences("kinds of events", event.KINDS, dict.fromkeys(found, ""))
    return {kind: sorted(names) for kind, names in found.items()}


def _emits(function: ast.FunctionDef) -> Iterator[tuple[str, list[str]]]:
    for call in ast.walk(function):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "emit"):
            continue
        names = [word.arg for word in call.keywords if word.arg is not None and word.arg not in EVENT_FIELDS]
        if any(word.arg is None for word in call.keywords):  # **data, a dict built in the same function
            names += _keys(function)
        first = call.args[0]
        kinds = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
        for kind in kinds:
            if not isinstance(kind, ast.Constant):
                raise SystemExit(f"make_reference: an event whose kind cannot be read: {ast.unparse(call)}")
            yield str(kind.value), names


def _keys(function: ast.FunctionDef) -> list[str]:
    dicts = [found for found in ast.walk(function) if isinstance(found, ast.Dict)]
    return [str(key.value) for found in dicts for key in found.keys if isinstance(key, ast.Constant)]


# --- limits.md
LIMITS = {
    "MAX_BODY": "body of a request",
    "MAX_BULK_BODY": "body of a submission, and size of a task file",
    "MAX_VALUES": "commas and opening brackets in the body of a request",
    "MAX_SMALL_BODY": "a body that is decoded at once; a larger one waits for its turn on another thread",
    "MAX_BODIES": "bodies in memory at once of all people, and again of all pilots; more are refused for the moment",
    "MAX_BODIES_OWNER": "bodies in memory at once of one owner",
    "MAX_DEPTH": "depth of nested JSON",
    "MAX_DIGITS": "digits of a number in JSON",
    "MAX_PAGE": "rows of one answer of a listing",
    "MAX_WAIT": "seconds that an answer is held until something changes",
    "MAX_LOOK": "events looked through for one page of the journal",
    "MAX_ECHO": "characters of a caller's input that an error repeats",
    "MAX_CONNECTIONS": "connections at a time, if the system allows so many files",
    "MAX_UNKNOWN": "connections of one address that have not shown a good token",
    "MAX_PER_KEY": "connections of one person, with all their tokens, or of one pilot",
    "MAX_POOL_RATIO": "connections of all pilots of one owner or group, for each that is still free",
    "MAX_WORK_PER_KEY": "requests of one person or pilot in progress at once; one that waits for a change does not count",
    "MAX_WORK_PER_POOL": "requests of all pilots of one owner or group in work at once",
    "MAX_PEOPLE_WORK": "requests of all people in work at once",
    "MAX_LOOKS": "listings that wait to be read from the database; more are refused for the moment",
    "MAX_BUCKETS": "people, pilots and addresses whose rate is remembered, of each kind",
    "MAX_RATE_PEOPLE": "requests a second of one person; five times as many at once",
    "MAX_RATE_PILOT": "exchanges a second of one pilot",
    "MAX_RATE_POOL": "exchanges a second of all pilots of one owner or group",
    "MAX_RATE_ENROL": "registrations a second for one owner or group; five times as many at once",
    "MAX_RATE_UNKNOWN": "wrong tokens a second from one address; five times as many at once",
    "MAX_USERS": "people on one server",
    "MAX_TOKENS": "tokens on one server",
    "MAX_SITES": "site names that belong to somebody",
    "MAX_SITES_OWNER": "site names of one owner or group that it may take by enrolment tokens; an administrator may give it more",
    "MAX_TOKENS_OWNER": "tokens of one owner or group that are neither revoked nor expired",
    "MAX_LINEAGE": "tokens that were each made with the one before",
    "MAX_PILOTS": "pilots that one enrolment token lets in",
    "MAX_FILES_COMPARED": "names of files of one table that are compared with those of others, with `[workflow]`",
    "MAX_TIED": "tasks of a sweep that wait for those of another one by one; of more, for all of them",
    "MAX_EDGES": "edges between single tasks of a run that `shoal export` writes",
    "MAX_SPECS": "task tables in one submission, vertices of a workflow",
    "MAX_TARGETS": "targets in one call of cancel, retry or set",
    "MAX_ADDED": "tables that `shoal.Executor` adds to its run at once",
    "MAX_ELEMENTS": "tasks in one run",
    "MAX_PARAMS": "parameters of a sweep",
    "MAX_PARAM_BYTES": "one value of a parameter",
    "MAX_NAME": "a name",
    "MAX_ARGV_ITEMS": "arguments of a command",
    "MAX_ARGV_BYTES": "a command or a shell text",
    "MAX_ENV_ITEMS": "variables",
    "MAX_ENV_BYTES": "one variable of `env`, and the whole environment of the submitter",
    "MAX_LABELS": "labels",
    "MAX_PARENTS": "names in `after`",
    "MAX_OUTSIDE": "runs and tasks of other runs that one run waits for",
    "MAX_FILES": "names in `inputs`, and in `outputs`",
    "MAX_KEY": "an idempotency key",
    "MAX_FINGERPRINTS": "files of a run that `--resume` can name when they changed; of more, it says that one did",
    "MAX_COMPARED": "tasks of a sweep whose own files `--resume` compares; of more, those of all together",
    "FINGERPRINT_WIDTH": "characters that are kept of each file of a task for it",
    "MAX_ELEMENT_TEXTS": "characters of all of them in one submission",
    "MAX_DIRECTORY": "files of one directory that is an input or an output",
    "MAX_KEPT_FILES": "files that one task leaves on the server or stores elsewhere",
    "MAX_FAILED_PLACES": "places that did not give a file, in one report",
    "MAX_PLACE_TEXT": "characters of such a place, and of why",
    "MAX_KEPT_OUTPUTS": "outputs of one run on the server that tasks of it may read",
    "MAX_CONTENT": "files of one table whose content goes along",
    "MAX_VISIBLE": "paths of a task that a pilot must see",
    "MAX_WITNESSES": "files whose look proves that a path is seen",
    "MAX_BLIND": "sets of paths of which the server remembers that a pilot does not see them",
    "MAX_CORES": "cores of a task",
    "MAX_RETRIES": "retries of a task",
    "MAX_CODES": "exit codes in `unless_exit`, and in `abort_on`",
    "MAX_PRIORITY": "a priority, up or down",
    "MAX_RATE_CALLS": "requests a second of one person that add to an open run or ask for its results",
    "MAX_INLINE": "bytes of a pickled object inside a message; a larger one is a blob",
    "MAX_MODULES": "sources of your own modules that travel with an executor; of more the largest are read where the calls run",
    "MAX_UNLOADED": "of them modules that only your functions import",
    "MAX_RESULTS": "results in one answer",
    "MAX_RECENT": "results of an open run that the server keeps in memory for whoever follows it",
    "MAX_RECENT_BYTES": "bytes of them",
    "MAX_SHOWN_RESULT": "bytes of a pickled result in a row of `shoal results`",
    "MAX_CALLS": "calls of a function in one table",
    "MAX_BYTES": "a size",
    "MAX_SECONDS": "a duration",
    "MAX_TIME": "a time in seconds since 1970: the end of the year 9999",
    "MAX_WHOLE": "the number of an exchange",
    "MAX_BLOB": "a blob",
    "MAX_PARTS": "uploads of one owner that are not whole yet; one more throws the oldest that nobody sends any more away",
    "MAX_UPLOADS": "uploads under way at once, of all owners",
    "MAX_RESERVE": "disk kept for reports of running tasks when the disk is full",
    "MAX_RESERVE_EMBEDDED": "the same of an embedded server",
    "RESERVE_SHARE": "on a smaller disk: one part in so many",
    "MAX_NEIGHBOURS": "contacts that a pilot gets of its mesh when it registers",
    "MAX_ROSTER_CHANGES": "changes of its mesh that one reply tells a pilot; the rest with the next one",
    "ROSTER_KEPT": "changes of one mesh that the server remembers",
    "SMALL_MESH": "members of a mesh up to which each is told of every newcomer",
    "MAX_SHUT_OUT": "pilots with good certificates that are members no more, told to one that registers",
    "MAX_PEER_ADDRESS": "characters of where a pilot listens",
    "MAX_FRAME": "a message between pilots",
    "MAX_PEER_LINKS": "connections to other pilots that one keeps for later",
    "MAX_PEER_CONNECTIONS": "connections of other pilots to one",
    "MAX_PEER_CONNECTIONS_EACH": "of them of one pilot",
    "MAX_PEER_TRANSFERS": "files that a pilot sends to others at once; more are told to come later",
    "MAX_PEER_RATE": "messages per second on one connection between pilots, and five times as many at once",
    "FETCHED_KEPT": "blobs of which the server remembers the pilots that fetched them",
    "MAX_FETCHERS": "of one blob",
    "LEAST_SHARED": "a smaller file comes from the server and not from other pilots",
    "MAX_PEER_FILE": "bytes of a file from another pilot, where only that pilot says how large it is",
    "MAX_PEER_FILE_TRIES": "pilots that fail to give one file before the server is asked",
    "MAX_SHARED": "files that one pilot serves to others",
    "MAX_KEPT_OUT": "ids that a pilot knows to be members of its mesh no more",
    "MAX_STRIKES": "files with wrong bytes that one pilot may give another",
    "MAX_ACCUSATIONS": "accusations in one exchange",
    "PEER_WITNESSES": "hosts that accuse a pilot before it is shut out of its mesh",
    "MAX_SEALED": "bytes of an exchange or an answer that passes a leader",
    "MAX_SEALED_FRAME": "bytes of a message between pilots with one in it",
    "MAX_BUNDLE": "exchanges in one request of a leader",
    "MAX_BUNDLE_BYTES": "bytes of them",
    "MAX_BUNDLED": "exchanges of one leader's followers that wait at the server",
    "MAX_FORWARDED": "exchanges that a leader has not handed on yet",
    "MAX_SEALED_REPORTS": "copies of others' reports in one exchange",
    "MAX_SEALED_BYTES": "bytes of them",
    "MAX_COPY": "bytes of one copy of reports, unless one report alone is larger",
    "MAX_COPIES": "copies of reports on the disk of one host",
    "MAX_COPIES_BYTES": "bytes of them",
    "COPY_KEPT": "seconds after which a copy that no server wanted is deleted",
    "COPIES_ELSEWHERE": "other members that keep each report while the server is away",
    "MAX_WINDOW": "tasks in the window of a mesh",
    "MAX_WINDOW_LEASE": "bytes of a lease in a window",
    "WINDOW_STEP": "tasks by which a window grows with one reply",
    "WINDOW_HOURS": "hours of work for the slots of a mesh that its window holds",
    "WINDOWS_KEPT": "windows that a task left unbegun and of which a late report is believed",
    "WINDOW_HELD": "seconds for which tasks of a window stay with a site of which nothing is heard",
    "MAX_LEASES": "tasks in one reply, each with a lease of its own",
    "MAX_CHUNK": "tasks in one reply that share a lease; above 100 only counted ones and short calls",
    "MAX_CHUNK_CALLS": "bytes of the calls in a lease of more than 100",
    "MAX_HELD": "attempts a pilot holds",
    "MAX_PROOFS": "proofs of leases in one exchange",
    "MAX_REPORTS": "reports in one exchange; the rest ride on the next one",
    "MAX_ELEMENT": "the number of an element in a report",
    "MAX_SIGNAL": "the number of a signal in a report",
    "MAX_IN_FLIGHT": "exchanges of a pilot under way at once",
    "KEPT_REPLIES": "replies to a pilot kept in case one was lost",
    "MAX_TAGS": "tags of a pilot",
    "MAX_TAG_BYTES": "a tag, on average",
    "MAX_TAG_NUMBER": "a whole number in a tag",
    "MAX_TASK_TAGS": "tags that one owner's tasks may leave on a pilot",
    "MAX_TASK_TAG": "one of them",
    "MAX_CATALOGUE": "files of a pilot's cache that the server remembers",
    "MAX_CATALOGUED": "files of the caches of all pilots that the server remembers",
    "MAX_CACHE_CHANGES": "changes of a cache in one exchange",
    "MAX_PRICE": "price of a core hour in `[placement]`",
    "MIN_PLANNING": "seconds between two plans, at least",
    "MAX_PLANNING": "the same, at most",
    "MAX_PLANNED_CLASSES": "kinds of tasks that a plan looks at",
    "MAX_PLANNED_SITES": "sites that a plan looks at",
    "MAX_WEATHERS": "sites whose weather is remembered, those of each owner or group apart",
    "MAX_INDEXED": "tasks of a sweep whose own inputs count in matching; of a larger one only what all of them read",
    "MAX_CANDIDATES": "ready tasks that are compared by their data for one request",
    "MAX_READERS": "of them, those that read one file",
    "MAX_COMPARED_CACHES": "caches that are compared before a task goes to a host without its data",
    "MAX_OVERTAKEN": "tasks in a row that overtake the first one because their data is at hand",
    "MAX_HOLDERS": "pilots that a lease names for one file",
    "MAX_HELD_BACK": "tasks of which it is remembered since when they wait for their data",
    "MAX_DATA_WAIT": "`longest` of a policy's `[data]`",
    "MAX_KEPT_FOR_DATA": "a pilot without a task is kept for its data",
    "MAX_SETUP": "set-up lines of a task",
    "MAX_CHECKPOINT": "checkpoint files of a task",
    "MAX_CHECKPOINT_BYTES": "bytes of a checkpoint that travels while its task runs",
    "MIN_CHECKPOINT_EVERY": "seconds between two of them, at least",
    "MAX_LICENCES": "licences of a task",
    "MAX_ORDERED": "tasks of an array with an `order`",
    "MAX_NESTED": "runs inside each other, each submitted by a task of the one before",
    "MAX_WAITING": "tasks on one pilot that wait for tasks which they submitted",
    "MAX_LENT_TO_NEW": "of them, beyond which their cores go only to tasks that others wait for",
    "MAX_EXPR_BYTES": "bytes of a requirement or rank",
    "MAX_EXPR_TERMS": "terms of one",
    "MAX_EXPR_DEPTH": "how deep its parentheses nest",
    "MAX_GLOB": "characters of a pattern in one",
    "MAX_SHARE": "the share of one owner or group",
    "MAX_SHARES": "owners and groups that a policy names",
    "MAX_QUOTAS": "quota rules of a policy",
    "MAX_LICENCE_KINDS": "kinds of licences of a policy",
    "MAX_QUOTA_COUNT": "a number in a quota",
    "MAX_USAGE_BUCKETS": "frames of a usage window",
    "MAX_WEIGHT": "a weight of the task order",
    "MAX_HOOK": "arguments of a hook's command",
    "MAX_ACCT_LINES": "lines of one answer with accounts",
    "HOLDERS_KEPT": "owners and groups whose pilots' failures are remembered",
    "PLACES_KEPT": "pilots, hosts and sites of one of them remembered for their failures",
    "KINDS_KEPT": "kinds of tasks whose fate on hosts of one of them is remembered",
    "HOSTS_PER_KIND": "hosts remembered of one such kind",
    "KINDS_PER_HOST": "kinds remembered that failed on one host",
    "MAX_TAIL": "one piece of a stream that is sent along",
    "MAX_TAILS": "such pieces in one exchange",
    "MAX_STDERR_TAIL": "standard error in the report of a failure",
    "MAX_LINE": "the last line of standard output kept as the result",
    "MAX_STREAM": "kept of each stream of an attempt, unless `max_output` says otherwise: its head and its tail",
    "MIN_STREAM": "the smallest `max_output`",
    "MAX_LOG_PART": "of a stream in one answer; the rest with the next",
    "MAX_STDIN": "standard input that is sent with a task",
    "MAX_STREAM_FILES": "files of `stdout` and `stderr` of a run that are compared one by one; of more only the parameters",
    "MAX_EMITTED_NAME": "characters of a name under which a task emits values",
    "MAX_EMITTED_NAMES": "such names of one task; values of more are left out",
    "MAX_RUN_NAMES": "such names of a run, and reducers that it names",
    "MAX_EMITTED_TEXT": "characters of a text that is emitted and kept, and of a reducer",
    "MAX_EMITTED_LINE": "bytes of one line that a task emits",
    "MAX_EMITTED": "bytes that one attempt may emit; what there is more is left out",
    "MAX_CONTRIBUTION": "characters of what one attempt emitted, after it was reduced; the last names are left out",
    "MAX_EMITS": "attempts whose values one exchange brings while they run",
    "MAX_BINS": "bins of a histogram",
    "MAX_BEST": "values that `best` and `append` keep",
    "MAX_EXACT_BITS": "bits of an exact sum: more than any values have",
    "MAX_LIVE_EMITTED": "running attempts of a run whose values are kept before they end",
    "MAX_RULES": "rules of one run that make tasks of files",
    "MAX_RULE_TEXT": "characters of them together, as JSON",
    "MAX_GROWN": "files that the rules of one run take",
    "MAX_TOLD_FILES": "files that one call tells the rules of a run",
    "MAX_NOTIFY": "URLs and commands that one run notifies",
    "MAX_NOTIFY_TEXT": "bytes of one of them",
    "MAX_NOTIFY_HOSTS": "hosts in `[notify]` of a policy",
    "MAX_PEEK": "bytes of a running task's file in one answer; `shoal peek` asks on",
    "MAX_ENTRIES": "entries of a running task's directory in one answer",
    "MAX_FILE_ANSWERS": "such answers in one exchange",
    "MAX_PEEKS": "questions about files that one pilot has not answered yet",
    "PEEK_WAIT": "seconds that the answer of a pilot is waited for",
    "STREAMS_KEPT": "streams on their way from other hosts whose sizes the server remembers",
    "MAX_ORDERS": "orders in one reply; the rest go with the next one",
    "GONE_KEPT": "pilots that ended lately and may come back for what they held",
    "HOSTS_KEPT": "hosts remembered in the server's memory",
    "ENROLLED_KEPT": "registrations whose answer is repeated if it was lost",
    "ENDED_KEPT": "attempts of a pilot whose last log output may come after their report",
    "POISON_LOSSES": "pilots lost that held a task, the last one it alone, before it is given to no other",
    "MOST_LOSSES": "the same, whatever else they held",
    "MAX_RETURNS": "exchanges in a row in which a pilot only gives back what it was leased, before it is set aside",
    "MAX_SIBLINGS": "dead pilots of its host that a pilot reports at once",
}
TIMES = {
    "beat": "a pilot sends an exchange at least this often; an empty reply is held as long",
    "suspect": "a pilot is silent so long: it is shown, nothing is done",
    "lease": "a pilot is silent so long: it is lost",
    "hold": "an `exclusive` task is killed at 0.8 of this without contact, and handed out again at this plus `margin`",
    "margin": "for clocks and slow kills",
    "quarantine": "after a restart nothing is handed out until all living pilots have spoken, or this",
    "idle_end": "a pilot without contact that holds nothing ends",
    "spool_end": "a pilot without contact that holds reports nobody has acknowledged ends",
    "grace": "from SIGTERM to SIGKILL of a task",
}
BYTES = re.compile(r"BODY|BODIES|BYTES|TAIL$|LINE$|STREAM$|STDIN$|LOG_PART$|NAME|_RESERVE|MAX_KEY$|BLOB$|TASK_TAG$")


def limits_page() -> list[str]:
    """docs/reference/limits.md."""
    lines: list[str] = []
    text = inspect.getsource(limits)
    names = re.findall(r"^([A-Z_]+) = ", text, re.M)
    texts = sentences("limits", names, LIMITS)
    for part in re.split(r"^# --- ", text, flags=re.M)[1:]:
        title = clean(part.splitlines()[0])
        rows = [(texts[name], show_limit(name, getattr(limits, name)), code(name))
                for name in re.findall(r"^([A-Z_]+) = ", part, re.M)]  # fmt: skip
        lines += [f"## {title[0].upper()}{title[1:]}", *table(("what", "at most", "name"), rows)]
    times = timing.Timing()
    texts = sentences("times", [f.name for f in dataclasses.fields(times)], TIMES)
    rows = [(text, seconds(getattr(times, name)), code(name)) for name, text in texts.items()]
    kill = (
        "an `exclusive` task without contact is killed by its guard",
        seconds(times.kill_after),
        code("kill_after"),
    )
    own = [
        ("an embedded server ends so long after its last work", seconds(server_main.LINGER)),
        ("events and logs of finished runs are kept", f"{retention.KEEP_SECONDS / 86_400:g} days"),
        ("events and logs are kept up to", size(retention.KEEP_BYTES)),
        ("`GET /v1/events` waits for events at most", seconds(limits.MAX_WAIT)),
    ]
    return [
        "# Limits and times",
        "",
        "Everything has a bound. What is over one is refused with a sentence that names it. "
        "Only logs and last lines are cut to their bound. "
        "The names are those in `src/shoal/model/limits.py` and `src/shoal/model/timing.py`.",
        "",
        *lines,
        "## Times that pilot and server agree on",
        *table(("what", "time", "name"), [*rows, kill]),
        "What they are for: [when something fails](../explain/failure.md).",
        "",
        "## Other times and sizes",
        *table(("what", "how much"), own),
    ]


def show_limit(name: str, value: float) -> str:
    """A limit in the form people read."""
    if name == "MAX_SECONDS":
        return f"{value / 86_400 / 365:g} years"
    if BYTES.search(name) and isinstance(value, int):
        return f"{value} bytes" if value < 1024 else "1024 PiB" if value == 1 << 60 else size(value)
    return number(value)


# --- cli.md
USAGE = """Exit status: 0 all succeeded, 1 a task did not succeed or standard output cannot be written, 2 wrong use,
3 refused, 4 no answer from the server, 130 Ctrl-C, 70 a defect of Shoal; `shoal run` of one command: its own, and 125 instead of
3 and 4, and if its output cannot be written. Notes and errors go to standard error, results to standard output."""


def cli_page() -> list[str]:
    """docs/reference/cli.md."""
    root = click.Context(commands.cli, info_name="shoal", **commands.cli.context_settings)
    found = list(walk(commands.cli, root))
    starting = [ctx for ctx, command in found if command.name in ("run", "sweep", "submit")]
    everywhere = {"--json", "--server", "--help"}
    shared = [name for name in records(starting[0]) if all(name in records(ctx) for ctx in starting)]
    shared = [name for name in shared if not everywhere & _spelled(name)]
    common: dict[str, str] = {}
    for ctx, _ in found:
        for name, text in records(ctx).items():
            if everywhere & _spelled(name):
                common.setdefault(name, text)
    lines = [
        "# Commands",
        "",
        " ".join(USAGE.split()),
        "",
        *table(("command", "what it does"), [
            (f"[`{ctx.command_path}`](#{anchor(ctx.command_path)})", first_line(command)) for ctx, command in found
            if not isinstance(command, click.Group)
        ]),
        "## Options of most commands",
        *table(("option", "meaning"), [(code(name), text) for name, text in common.items()]),
        "`--json` of `run`, `sweep` and `wait` prints one document at the end; of `results` one line for each task. "
        "What is in them: [JSON](json.md). Where a run is asked for, its name does as well: the latest run that has it.",
        "",
        "## Which server",
        "The first of these that names one: `--server`, `$SHOAL_SERVER`, `shoal.toml` in the current directory, "
        "`~/.config/shoal/config.toml`. If none does: in a task the server that runs it; else a running server of yours, which "
        "`shoal server start` started; else the embedded server. Both files have these keys:",
        "",
        *table(("key", "value"), [(code(name), text) for name, text in config.KEYS.items()]),
        "The token comes from `$SHOAL_TOKEN`, else from `token_file`, else from the state directory of a server on this machine.",
        "",
        "## Options of run, sweep and submit",
        *table(("option", "meaning"), [(code(name), records(starting[0])[name]) for name in shared]),
    ]  # fmt: skip
    for ctx, command in found:
        if isinstance(command, click.Group):
            continue
        own = {n: t for n, t in records(ctx).items() if not everywhere & _spelled(n)}
        if ctx in starting:
            own = {n: t for n, t in own.items() if n not in shared}
        lines += [f"## {ctx.command_path}", f"`{usage(ctx)}`", "", *body(command)]
        lines += table(("option", "meaning"), [(code(name), text) for name, text in own.items()]) if own else []
    return lines


def walk(command: click.Command, ctx: click.Context) -> Iterator[tuple[click.Context, click.Command]]:
    """Every command below one, each with its context."""
    assert isinstance(command, click.Group)
    for name in command.list_commands(ctx):
        found = command.get_command(ctx, name)
        assert found is not None
        inner = click.Context(found, info_name=name, parent=ctx)
        yield inner, found
        if isinstance(found, click.Group):
            yield from walk(found, inner)


def records(ctx: click.Context) -> dict[str, str]:
    """Option as it is written -> its help."""
    found = [param.get_help_record(ctx) for param in ctx.command.get_params(ctx) if isinstance(param, click.Option)]
    return {names: " ".join(text.split()) for names, text in filter(None, found)}


def _spelled(names: str) -> set[str]:
    return {word.partition(" ")[0] for word in names.split(", ")}


def usage(ctx: click.Context) -> str:
    """The usage line."""
    return " ".join([ctx.command_path, *ctx.command.collect_usage_pieces(ctx)])


def anchor(title: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def first_line(command: click.Command) -> str:
    """The first sentence of a command's help."""
    return " ".join(inspect.cleandoc(command.help or "").split("\n\n")[0].split())


def body(command: click.Command) -> list[str]:
    """A command's help: paragraphs as text, `\\b` paragraphs unchanged."""
    lines: list[str] = []
    for part in inspect.cleandoc(command.help or "").split("\n\n"):
        if part.startswith("\b"):
            shown = textwrap.dedent("\n".join(part.splitlines()[2:]))
            lines += fence("sh", shown.splitlines())
        else:
            lines += [" ".join(part.split()), ""]
    return lines


# --- errors.md
# Rooms whose errors the server answers with; the others speak on the command line only.
BEHIND_HTTP = ("model", "wire", "engine", "db", "server")
EDGE = {
    "no_such_route": "404",
    "method": "405",
    "http": "any other error of the HTTP layer",
    "internal_error": "500: a defect; the server's log has it, and the request changed nothing",
}


@dataclasses.dataclass
class Raised:
    """One error code: its classes, the files that raise it, and its messages."""

    code: str
    kinds: dict[type[errors.ShoalError], None] = dataclasses.field(default_factory=dict)
    places: dict[str, None] = dataclasses.field(default_factory=dict)
    words: list[str] = dataclasses.field(default_factory=list)


def errors_page() -> list[str]:
    """docs/reference/errors.md."""
    found = raised()
    edge = "".join(
        (SOURCE / "server" / "http" / name).read_text(encoding="utf-8") for name in ("app.py", "protocol.py")
    )
    gone = [name for name in EDGE if f'"{name}"' not in edge]
    if gone:
        raise SystemExit(f"make_reference: the HTTP edge no longer makes the codes {gone}")
    rows = []
    for name in sorted(found):
        one = found[name]
        status = http_status(one)
        words = next((text for text in one.words if text), "-")
        rows.append(
            (code(name), words, status or "-", exit_status(one, status), ", ".join(map(code, sorted(one.places))))
        )
    return [
        "# Errors",
        "",
        "An error has a stable code, a sentence, often the field it speaks of and how to fix it. The command line prints one "
        "line and ends with the exit status; the server answers with the HTTP status and "
        '`{"error": {"code", "message", "field", "hint"}}`. In both cases nothing was half done.',
        "",
        "Only codes are for programs; the words may change. `…` stands for what differs. "
        "`-`: this error is not one of the server's answers. "
        "The last column says which files of `src/shoal` raise it. Errors of `db/` and `server/main.py` mostly show while a "
        "server starts; the command that started it then says `start_refused` with their words.",
        "",
        *table(("code", "says, for example", "HTTP", "exit", "raised in"), rows),
        "## Codes of the HTTP layer itself",
        *table(("code", "HTTP"), [(code(name), text) for name, text in EDGE.items()]),
        "`http_NNN`: what answered with status NNN is not a Shoal server, or not in Shoal's words.",
        "",
    ]


def raised() -> dict[str, Raised]:
    """Every error code that the source raises."""
    kinds = error_kinds()
    found: dict[str, Raised] = {}
    for path, tree in sources().items():
        if path == "model/errors.py":
            continue
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in kinds:
                kind = kinds[call.func.id]
                for name in codes_of(call, kind, tree):
                    one = found.setdefault(name, Raised(name))
                    one.kinds[kind], one.places[path] = None, None
                    one.words.append(words_of(call, kind))
    kind = errors.IllegalTransition
    found[kind.code] = Raised(kind.code, {kind: None}, {"model/states.py": None}, [(kind.__doc__ or "").rstrip(".")])
    return found


NEED_JOBLIB = ("shoal.joblib", "client.joblib_backend")  # which is no dependency; they define no errors


def error_kinds() -> dict[str, type[errors.ShoalError]]:
    """Every class of errors, by name."""
    for module in pkgutil.walk_packages(shoal.__path__, "shoal."):
        if not module.name.endswith(("__main__", *NEED_JOBLIB)):
            importlib.import_module(module.name)
    found: dict[str, type[errors.ShoalError]] = {}
    line: list[type[errors.ShoalError]] = [errors.ShoalError]
    while line:
        kind = line.pop()
        found[kind.__name__] = kind
        line += kind.__subclasses__()
    return found


def codes_of(call: ast.Call, kind: type[errors.ShoalError], tree: ast.Module) -> list[str]:
    """The codes that a call may give its error."""
    given = next((word.value for word in call.keywords if word.arg == "code"), None)
    if given is None:
        return [kind.code]
    if isinstance(given, ast.Constant):
        return [str(given.value)]
    if isinstance(given, ast.Name):
        return named_codes(given.id, call, tree)
    return []  # an error passed on with its own code


def named_codes(name: str, call: ast.Call, tree: ast.Module) -> list[str]:
    """What a code held in a name may be: texts assigned to it, or handed in as the parameter of that name."""
    function = next(f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and call in ast.walk(f))
    found: list[str] = []
    for assigned in ast.walk(function):
        if isinstance(assigned, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in assigned.targets):
            value = assigned.value
            found += [
                str(part.value)
                for part in ([value.body, value.orelse] if isinstance(value, ast.IfExp) else [value])
                if isinstance(part, ast.Constant)
            ]
    places = [at for at, argument in enumerate(function.args.args) if argument.arg == name]
    for other in ast.walk(tree):
        if places and isinstance(other, ast.Call) and ast.unparse(other.func) == function.name:
            argument = other.args[places[0]]
            found += [str(argument.value)] if isinstance(argument, ast.Constant) else []
    if not found:
        raise SystemExit(f"make_reference: a code that cannot be read: {ast.unparse(call)}")
    return found


def words_of(call: ast.Call, kind: type[errors.ShoalError]) -> str:
    """The message of a call with `…` for what is filled in; empty if it is made elsewhere."""
    first = call.args[0] if call.args else None
    if first is None or kind.__init__ is not errors.ShoalError.__init__:
        return (kind.__doc__ or "").strip().rstrip(".")
    if isinstance(first, ast.Constant):
        return str(first.value)
    if isinstance(first, ast.JoinedStr):
        parts = [str(v.value) if isinstance(v, ast.Constant) else _hole(v) for v in first.values]
        return "".join(parts)
    return ""


def _hole(value: ast.expr) -> str:
    return "'…'" if isinstance(value, ast.FormattedValue) and value.conversion == ord("r") else "…"


def bare(kind: type[errors.ShoalError], name: str) -> errors.ShoalError:
    """An error of a class and code, without the arguments that its own constructor may want."""
    error = kind.__new__(kind)
    error.code = name
    return error


def http_status(one: Raised) -> str:
    """The status that the server answers with; empty if the error never leaves the command line."""
    if not any(path.split("/")[0] in BEHIND_HTTP for path in one.places):
        return ""
    if one.kinds.keys() == {errors.IllegalTransition}:
        return "500"  # a defect: the edge answers as for any other
    found = sorted({server_call.status_of(bare(kind, one.code)) for kind in one.kinds})
    return ", ".join(map(str, found))


def exit_status(one: Raised, status: str) -> str:
    """The exit status of the command that meets it, here or in the server's answer."""
    found = {status_of(bare(kind, one.code)) for kind in one.kinds}
    if status:
        found |= {status_of(error_of(int(word), b"", "")) for word in status.split(", ")}
    return ", ".join(map(str, sorted(found)))


def sources(room: str = "") -> dict[str, ast.Module]:
    """Path below src/shoal -> its syntax tree."""
    paths = sorted((SOURCE / room).rglob("*.py"))
    return {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


# --- reasons.md
def reasons_page() -> list[str]:
    """docs/reference/reasons.md."""
    return [
        "# Reasons",
        "",
        "`shoal why --json` and `GET /v1/why/ID` give a list of reasons. Each has a `text` for people, which may change, "
        "a `fix` that says what would help, and one of these codes for programs, which stays. A new reason gets a new code.",
        "",
        *table(("code", "meaning"), [(code(name), text) for name, text in reason.CODES.items()]),
    ]


# --- metrics.md
def metrics_page() -> list[str]:
    """docs/reference/metrics.md."""
    return [
        "# Metrics",
        "",
        "`GET /metrics` in the form that Prometheus reads, for tokens with the scope `metrics`: "
        "`shoal token new --scope metrics --note prometheus`. No series names an owner, a pilot or a task.",
        "",
        *table(("name", "what it counts"), [(code(name), text) for name, text in metrics.NAMES.items()]),
    ]


# --- all of them
PAGES: dict[str, Callable[[], list[str]]] = {
    "cli.md": cli_page,
    "errors.md": errors_page,
    "events.md": events_page,
    "limits.md": limits_page,
    "metrics.md": metrics_page,
    "reasons.md": reasons_page,
    "states.md": states_page,
    "task.md": task_page,
}


def render(name: str) -> str:
    """A page as it should be."""
    lines = PAGES[name]()
    return "\n".join([NOTE, "", *lines]).rstrip() + "\n"


def stale() -> list[str]:
    """Pages that are not what the code says."""
    return [name for name in PAGES if not _is_fresh(REFERENCE / name, render(name))]


def _is_fresh(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def main(words: Sequence[str] | None = None) -> int:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(description="Write the generated pages of docs/reference.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if a page is stale")
    chosen = parser.parse_args(words)
    old = stale()
    if chosen.check:
        for name in old:
            print(f"docs/reference/{name} is stale: run python scripts/make_reference.py", file=sys.stderr)
        return 1 if old else 0
    for name in old:
        (REFERENCE / name).write_text(render(name), encoding="utf-8")
        print(f"docs/reference/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
