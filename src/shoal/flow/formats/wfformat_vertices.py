"""The vertices that a workflow in WfFormat becomes: its recorded commands, or stand-ins that replay what was recorded.

A stand-in sleeps as long as its task took and makes files of the sizes that it made, both scaled. It needs no more than a
shell, `sleep`, `head` and `mkdir` where it runs.
"""

from __future__ import annotations

import math
import posixpath
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

from shoal.flow.dag import Vertex
from shoal.flow.formats.wfformat import Instance, Task
from shoal.model.errors import BadInput, echo

CATEGORY = "category"  # the label that keeps a task's name, which need not be its id
_RECORDED = "recorded commands need names below the directory of the run; --replay needs none of them"


class Replay(NamedTuple):
    """How a recorded execution is played again."""

    speed: float = 1.0  # recorded seconds for each second
    scale: float = 1.0  # recorded bytes for each byte
    ledger: str = ""  # a file to which each task appends its start and its end


def vertices(instance: Instance, path: str, replay: Replay | None = None) -> list[Vertex]:
    """The tasks of a workflow as vertices."""
    made = []
    for at, task in enumerate(instance.tasks):
        where = f"{echo(path)}: workflow.specification.tasks[{at}]"
        how = _recorded(task, where) if replay is None else _stand_in(task, instance, replay, where)
        made.append(Vertex(task.id, how | _needs(task), task.parents, where=where))
    return made


def files_to_make(instance: Instance, replay: Replay) -> dict[str, int]:
    """The files that no task of a workflow makes, with the sizes that a replay gives them."""
    made = {name for task in instance.tasks for name in task.outputs}
    read = dict.fromkeys(name for task in instance.tasks for name in task.inputs if name not in made)
    return {local_name(name): _scaled(instance, name, replay) for name in read}


def local_name(file: str) -> str:
    """A recorded name as one below the directory of a replay, wherever the file was."""
    parts = [part for part in file.split("/") if part not in ("", ".")]
    return posixpath.join(*("_" if part == ".." else part for part in parts)) if parts else "_"


def _needs(task: Task) -> dict[str, Any]:
    table: dict[str, Any] = {}
    if task.name != task.id:
        table["labels"] = {CATEGORY: task.name}
    if task.cores is not None and task.cores > 1:
        table["cores"] = math.ceil(task.cores)
    if task.priority:
        table["priority"] = task.priority
    return table


def _recorded(task: Task, where: str) -> dict[str, Any]:
    """The command as it was recorded. A system that runs scripts records the whole script as the program."""
    if not task.program:
        _wrong(where, f"task {echo(task.id)} has no command", "write --replay to play what was recorded of it")
    for name in task.outputs:
        if name.startswith("/") or ".." in name.split("/"):
            _wrong(where, f"task {echo(task.id)} writes {echo(name)!r}", _RECORDED)
    is_script = not task.arguments and len(task.program.split()) > 1
    how: dict[str, Any] = {"shell": task.program} if is_script else {"command": [task.program, *task.arguments]}
    return how | _files(task.inputs, task.outputs)


def _stand_in(task: Task, instance: Instance, replay: Replay, where: str) -> dict[str, Any]:
    if task.seconds is None:
        _wrong(where, f"task {echo(task.id)} has no recorded run time", "what did not run cannot be replayed")
    outputs = {local_name(name): _scaled(instance, name, replay) for name in task.outputs}
    lines = [*_note("start", task.id, replay.ledger), f"sleep {task.seconds / replay.speed:.6f}"]
    folders = sorted({posixpath.dirname(name) for name in outputs} - {""})
    lines += [f"mkdir -p {shlex.join(folders)}"] if folders else []
    lines += [f"head -c {size} /dev/zero > {shlex.quote(f'./{name}')}" for name, size in outputs.items()]
    lines += _note("end", task.id, replay.ledger)
    return {"shell": " && ".join(lines)} | _files(map(local_name, task.inputs), outputs)


def _note(what: str, task: str, ledger: str) -> Iterator[str]:
    if ledger:
        yield f'echo "$(date +%s.%N) {what}" {shlex.quote(task)} >> {shlex.quote(ledger)}'


def _scaled(instance: Instance, file: str, replay: Replay) -> int:
    return math.floor(instance.sizes.get(file, 0) / replay.scale)


def _files(inputs: Any, outputs: Any) -> dict[str, Any]:
    found = {"inputs": list(dict.fromkeys(inputs)), "outputs": list(dict.fromkeys(outputs))}
    return {field: names for field, names in found.items() if names}


def _wrong(where: str, what: str, hint: str) -> NoReturn:
    raise BadInput(f"{where}: {what}", code="bad_wfformat", hint=hint)
