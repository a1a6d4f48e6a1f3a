"""WfCommons WfFormat 1.5: a workflow as JSON, with what was measured when it ran; read, checked and written.

The rules are those that the format documents: `specification` has the tasks, their parents, children and files, `execution`
(which may be missing) what each took and where. What a file has beyond them is not looked at. Nothing here opens files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

from shoal.flow.dag import Vertex, build
from shoal.model.errors import BadInput, echo

VERSION = "1.5"
_TASK_ID = re.compile(r"[0-9a-zA-Z\-_.#/]+")
_FILE_ID = re.compile(r"[0-9a-zA-Z\-_./:#]+")
_SYSTEMS = ("linux", "macos", "windows")
_NO_WORKFLOW = "is no workflow in WfFormat"


class Task(NamedTuple):
    """One task: how it is tied to others, and what was measured of it (None: not recorded)."""

    id: str
    name: str
    parents: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()  # ids of files
    outputs: tuple[str, ...] = ()
    seconds: float | None = None  # None: it has no part in the execution
    program: str = ""
    arguments: tuple[str, ...] = ()
    cores: float | None = None
    started: str = ""  # a date as the file has it
    avg_cpu: float | None = None  # percent of one core
    memory: float | None = None  # bytes
    read: float | None = None  # bytes
    written: float | None = None
    priority: float | None = None
    machines: tuple[str, ...] = ()


class Machine(NamedTuple):
    """A host that ran tasks."""

    name: str
    system: str = ""
    architecture: str = ""
    release: str = ""
    memory: int | None = None  # bytes
    cores: int | None = None
    mhz: int | None = None
    vendor: str = ""


class Instance(NamedTuple):
    """A workflow, and one execution of it if there was one."""

    name: str
    tasks: tuple[Task, ...]
    sizes: Mapping[str, int]  # bytes of each file, by its id
    description: str = ""
    created: str = ""
    executed: str = ""  # when it started; empty: it has no execution
    makespan: float = 0.0
    machines: tuple[Machine, ...] = ()
    system: tuple[str, str, str] = ("", "", "")  # name, version and address of what ran it
    author: tuple[str, str] = ("", "")  # name and e-mail address


def read(text: str, path: str) -> Instance:
    """A workflow from the text of a file; an error names the file and the place in it."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{echo(path)} is no JSON: {error}", code="bad_json") from None
    return _Reader(path).instance(document)


class _Reader:
    """Reads one file. `where` is always the place of a value in it, as in `workflow.specification.tasks[3].id`."""

    def __init__(self, path: str) -> None:
        self._path = path

    def instance(self, document: Any) -> Instance:
        top = self._object(document, "")
        if "schemaVersion" not in top or "workflow" not in top:
            self._wrong("", _NO_WORKFLOW, f"it needs name, schemaVersion ({VERSION}) and workflow")
        version = self._text(top, "schemaVersion", "")
        if version != VERSION:
            hint = f"version {VERSION} is read; WfCommons has a program that converts older files"
            self._wrong("schemaVersion", f"it is {echo(version)!r}", hint)
        name = self._text(top, "name", "")
        workflow = self._object(top["workflow"], "workflow")
        specification = self._member(workflow, "specification", "workflow")
        sizes = self._sizes(specification, "workflow.specification")
        tasks = self._tasks(specification, "workflow.specification", sizes)
        found = Instance(
            name, tuple(tasks.values()), sizes or {}, self._optional(top, "description", ""),
            self._optional(top, "createdAt", ""), system=self._system(top), author=self._author(top),
        )  # fmt: skip
        if "execution" not in workflow:
            return found
        return self._executed(found, tasks, self._member(workflow, "execution", "workflow"), "workflow.execution")

    # --- the specification
    def _sizes(self, specification: Mapping[str, Any], where: str) -> dict[str, int] | None:
        """The sizes of all files; None if the file lists none, which it need not."""
        if "files" not in specification:
            return None
        sizes: dict[str, int] = {}
        for file, at in self._each(specification, "files", where):
            name = self._id(file, "id", at, _FILE_ID)
            if name in sizes:
                self._wrong(f"{at}.id", f"{echo(name)!r} is there twice", "each file once")
            sizes[name] = int(self._number(file, "sizeInBytes", at, whole=True))
        return sizes

    def _tasks(self, specification: Mapping[str, Any], where: str, sizes: Mapping[str, int] | None) -> dict[str, Task]:
        tasks: dict[str, Task] = {}
        places: dict[str, str] = {}
        children: dict[str, tuple[str, ...]] = {}
        for one, at in self._each(specification, "tasks", where):
            name = self._text(one, "id", at)
            if name in tasks:
                self._wrong(f"{at}.id", f"{echo(name)!r} is there twice", f"the first is {places[name]}")
            parents = self._ids(one, "parents", at, _TASK_ID)
            children[name] = self._ids(one, "children", at, _TASK_ID)
            files = [self._ids(one, key, at, _FILE_ID, optional=True) for key in ("inputFiles", "outputFiles")]
            for key, named in zip(("inputFiles", "outputFiles"), files, strict=True):
                for position, file in enumerate(named):
                    if sizes is not None and file not in sizes:
                        self._wrong(
                            f"{at}.{key}[{position}]", f"{echo(file)!r} is not among workflow.specification.files"
                        )
            places[name] = at
            tasks[name] = Task(name, self._text(one, "name", at), parents, files[0], files[1])
        if not tasks:
            self._wrong(f"{where}.tasks", "there is no task in it")
        return self._tied(tasks, children, places)

    def _tied(
        self, tasks: dict[str, Task], children: Mapping[str, tuple[str, ...]], places: Mapping[str, str]
    ) -> dict[str, Task]:
        """The tasks with the parents of both notations: those that they name, and those that name them as children."""
        parents = {name: dict.fromkeys(task.parents) for name, task in tasks.items()}
        for name, task in tasks.items():
            for key, named in (("parents", task.parents), ("children", children[name])):
                for position, other in enumerate(named):
                    if other not in tasks:
                        where = f"{places[name]}.{key}[{position}]"
                        verb = "waits for" if key == "parents" else "has the child"
                        self._wrong(where, f"task {echo(name)} {verb} {echo(other)}, which is not in it")
            for child in children[name]:
                parents[child][name] = None
        tied = {name: task._replace(parents=tuple(parents[name])) for name, task in tasks.items()}
        places = {name: f"{echo(self._path)}: {place}" for name, place in places.items()}
        build([Vertex(name, {}, task.parents, where=places[name]) for name, task in tied.items()])  # refuses cycles
        return tied

    # --- the execution
    def _executed(self, found: Instance, tasks: dict[str, Task], execution: Mapping[str, Any], where: str) -> Instance:
        machines = {}
        for one, at in self._each(execution, "machines", where) if "machines" in execution else ():
            machine = self._machine(one, at)
            machines[machine.name] = machine
        ran: set[str] = set()
        for one, at in self._each(execution, "tasks", where):
            name = self._text(one, "id", at)
            if name not in tasks:
                self._wrong(f"{at}.id", f"task {echo(name)} is not in workflow.specification.tasks")
            if name in ran:
                self._wrong(f"{at}.id", f"{echo(name)!r} is there twice", "each task once")
            ran.add(name)
            tasks[name] = self._measured(tasks[name], one, at)
            for position, machine_name in enumerate(tasks[name].machines):
                if machines and machine_name not in machines:
                    self._wrong(f"{at}.machines[{position}]", f"{echo(machine_name)!r} is not among {where}.machines")
        return found._replace(
            tasks=tuple(tasks.values()), executed=self._text(execution, "executedAt", where),
            makespan=self._number(execution, "makespanInSeconds", where), machines=tuple(machines.values()),
        )  # fmt: skip

    def _measured(self, task: Task, one: Mapping[str, Any], at: str) -> Task:
        command = self._object(one.get("command", {}), f"{at}.command")
        numbers = [self._may(one, key, at) for key in ("avgCPU", "memoryInBytes", "readBytes", "writtenBytes")]
        arguments = self._texts(command, "arguments", f"{at}.command") if "arguments" in command else ()
        return task._replace(
            seconds=self._number(one, "runtimeInSeconds", at), program=self._optional(command, "program", f"{at}.command"),
            arguments=arguments, cores=self._may(one, "coreCount", at, 1.0), started=self._optional(one, "executedAt", at),
            avg_cpu=numbers[0], memory=numbers[1], read=numbers[2], written=numbers[3],
            priority=self._may(one, "priority", at, None),
            machines=self._texts(one, "machines", at) if "machines" in one else (),
        )  # fmt: skip

    def _machine(self, one: Mapping[str, Any], at: str) -> Machine:
        system = self._optional(one, "system", at)
        if system and system not in _SYSTEMS:
            self._wrong(f"{at}.system", f"it is {echo(system)!r}", f"one of {', '.join(_SYSTEMS)}")
        cpu = self._object(one.get("cpu", {}), f"{at}.cpu")
        memory, cores, mhz = (
            int(self._number(of, key, where, 1.0, whole=True)) if key in of else None
            for of, key, where in (
                (one, "memoryInBytes", at), (cpu, "coreCount", f"{at}.cpu"), (cpu, "speedInMHz", f"{at}.cpu"),
            )
        )  # fmt: skip
        return Machine(
            self._text(one, "nodeName", at), system, self._optional(one, "architecture", at),
            self._optional(one, "release", at), memory, cores, mhz, self._optional(cpu, "vendor", f"{at}.cpu"),
        )  # fmt: skip

    def _system(self, top: Mapping[str, Any]) -> tuple[str, str, str]:
        if "runtimeSystem" not in top:
            return "", "", ""
        one, at = self._member(top, "runtimeSystem", ""), "runtimeSystem"
        return self._text(one, "name", at), self._text(one, "version", at), self._optional(one, "url", at)

    def _author(self, top: Mapping[str, Any]) -> tuple[str, str]:
        if "author" not in top:
            return "", ""
        one = self._member(top, "author", "")
        return self._text(one, "name", "author"), self._text(one, "email", "author")

    # --- values
    def _wrong(self, where: str, what: str, hint: str = "") -> NoReturn:
        place = f"{echo(self._path)}: {where}:" if where else echo(self._path)
        raise BadInput(f"{place} {what}", code="bad_wfformat", hint=hint)

    def _object(self, value: Any, where: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            self._wrong(where, "expected an object" if where else _NO_WORKFLOW)
        return value

    def _required(self, of: Mapping[str, Any], key: str, where: str) -> Any:
        if key not in of:
            self._wrong(where, f"{key} is missing")
        return of[key]

    def _member(self, of: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
        return self._object(self._required(of, key, where), _below(where, key))

    def _each(self, of: Mapping[str, Any], key: str, where: str) -> Iterable[tuple[Mapping[str, Any], str]]:
        """The objects of a list, each with its place."""
        for position, one in enumerate(self._list(of, key, where)):
            at = f"{_below(where, key)}[{position}]"
            yield self._object(one, at), at

    def _list(self, of: Mapping[str, Any], key: str, where: str) -> list[Any]:
        value = self._required(of, key, where)
        if not isinstance(value, list):
            self._wrong(_below(where, key), "expected a list")
        return value

    def _text(self, of: Mapping[str, Any], key: str, where: str) -> str:
        value = self._required(of, key, where)
        if not isinstance(value, str) or not value:
            self._wrong(_below(where, key), "expected a text that is not empty")
        return value

    def _optional(self, of: Mapping[str, Any], key: str, where: str) -> str:
        return self._text(of, key, where) if key in of else ""

    def _texts(self, of: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
        return self._list_of(of, key, where, lambda value: isinstance(value, str) and value != "", "texts")

    def _ids(
        self, of: Mapping[str, Any], key: str, where: str, allowed: re.Pattern[str], optional: bool = False
    ) -> tuple[str, ...]:
        if optional and key not in of:
            return ()
        kind = f"ids of {allowed.pattern}"
        return self._list_of(
            of, key, where, lambda value: isinstance(value, str) and bool(allowed.fullmatch(value)), kind
        )

    def _list_of(
        self, of: Mapping[str, Any], key: str, where: str, is_right: Callable[[Any], bool], kind: str
    ) -> tuple[str, ...]:
        values = self._list(of, key, where)
        for position, value in enumerate(values):
            if not is_right(value):
                self._wrong(f"{_below(where, key)}[{position}]", f"{echo(value)!r} is none of the {kind}")
        return tuple(dict.fromkeys(values)) if kind != "texts" else tuple(values)

    def _id(self, of: Mapping[str, Any], key: str, where: str, allowed: re.Pattern[str]) -> str:
        value = self._text(of, key, where)
        if not allowed.fullmatch(value):
            self._wrong(_below(where, key), f"{echo(value)!r} has other characters than {allowed.pattern}")
        return value

    def _number(
        self, of: Mapping[str, Any], key: str, where: str, low: float | None = 0.0, whole: bool = False
    ) -> float:
        value = self._required(of, key, where)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < float("inf")
        if not is_number or (low is not None and value < low) or (whole and value != int(value)):
            kind = "a whole number" if whole else "a number"
            self._wrong(
                _below(where, key), f"{echo(value)} is not {kind}" + (f" from {low:g} on" if low is not None else "")
            )
        return value if isinstance(value, int) else float(value)

    def _may(self, of: Mapping[str, Any], key: str, where: str, low: float | None = 0.0) -> float | None:
        return self._number(of, key, where, low) if key in of else None


def _below(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


# --- writing
def document(instance: Instance) -> dict[str, Any]:
    """A workflow as the JSON document that `read` reads; children follow from parents."""
    children: dict[str, list[str]] = {task.id: [] for task in instance.tasks}
    for task in instance.tasks:
        for parent in task.parents:
            children[parent].append(task.id)
    specification: dict[str, Any] = {
        "tasks": [
            {
                "name": task.name, "id": task.id, "parents": list(task.parents), "children": children[task.id],
                "inputFiles": list(task.inputs), "outputFiles": list(task.outputs),
            }
            for task in instance.tasks
        ],
        "files": [{"id": name, "sizeInBytes": size} for name, size in instance.sizes.items()],
    }  # fmt: skip
    workflow: dict[str, Any] = {"specification": specification}
    if instance.executed:
        machines = [_machine_document(machine) for machine in instance.machines]
        workflow["execution"] = {
            "makespanInSeconds": instance.makespan, "executedAt": instance.executed,
            "tasks": [_task_document(task) for task in instance.tasks if task.seconds is not None],
            **({"machines": machines} if machines else {}),
        }  # fmt: skip
    system, author = instance.system, instance.author
    return {
        "name": instance.name,
        **_given(description=instance.description, createdAt=instance.created),
        "schemaVersion": VERSION,
        **({"runtimeSystem": {"name": system[0], "version": system[1], **_given(url=system[2])}} if system[0] else {}),
        **({"author": {"name": author[0], "email": author[1]}} if author[0] else {}),
        "workflow": workflow,
    }


def _task_document(task: Task) -> dict[str, Any]:
    command = _given(program=task.program, arguments=list(task.arguments) or None)
    return {
        "id": task.id, "runtimeInSeconds": task.seconds,
        **_given(
            executedAt=task.started, command=command or None, coreCount=task.cores, avgCPU=task.avg_cpu,
            readBytes=task.read, writtenBytes=task.written, memoryInBytes=task.memory, priority=task.priority,
            machines=list(task.machines) or None,
        ),
    }  # fmt: skip


def _machine_document(machine: Machine) -> dict[str, Any]:
    cpu = _given(vendor=machine.vendor, coreCount=machine.cores, speedInMHz=machine.mhz)
    return _given(
        nodeName=machine.name, system=machine.system, architecture=machine.architecture, release=machine.release,
        memoryInBytes=machine.memory, cpu=cpu or None,
    )  # fmt: skip


def _given(**fields: Any) -> dict[str, Any]:
    """The fields that have a value: the format knows no null and no empty text."""
    return {name: value for name, value in fields.items() if value is not None and value != ""}
