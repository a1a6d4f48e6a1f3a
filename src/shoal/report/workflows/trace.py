"""A run as a workflow in WfFormat, with what was measured: every task with its files, times, use and host.

Any run has one: each task is a vertex, and waits for all tasks of the tables that its own table waits for. Ids are the names
of tables; where a table has several tasks, or no name, the number of the task is in it.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from shoal.flow.formats.wfformat import Instance, Machine, Task
from shoal.flow.formats.wfformat_vertices import CATEGORY
from shoal.model.errors import Refused
from shoal.model.limits import MAX_EDGES
from shoal.model.task.kept_files import unpack
from shoal.model.task.shell_quote import fill_shell
from shoal.model.task.spec import OWN, Spec
from shoal.model.task.sweep import Value, fill
from shoal.report.data_source import Json, Source, all_rows
from shoal.wire.task import parse_spec

SYSTEM = "Shoal"
_NOT_KEPT = ("stdin_data", "cwd", "env", "setup", "container")  # fields of a task
_DEVICES = "/dev/"
_NOT_IN_TASK = re.compile(r"[^0-9a-zA-Z\-_.#/]+")
_NOT_IN_FILE = re.compile(r"[^0-9a-zA-Z\-_./:#]+")
SizeOf = Callable[[str], "int | None"]  # of a file by its path; None: it is not seen from here


class Trace(NamedTuple):
    """A run as a workflow, and what the format could not be given."""

    instance: Instance
    unmeasured: int  # tasks that have not ended with a measured time
    incomplete: int  # tasks with fields that change what they do, and that the format does not know
    unseen: int  # files whose size is not known: it is written as 0


class _Table(NamedTuple):
    first: int
    spec: Spec
    ids: list[str]


def read_trace(source: Source, run: str, size_of: SizeOf, version: str, now: float) -> Trace:
    """Read a run as a workflow; `version` is Shoal's."""
    info = source.run(run)
    tables = _tables(run, info["arrays"])
    rows = {int(row["element"]): row for row in all_rows(source, run, values=True)}
    parents = _parents(tables)
    sizes: dict[str, int] = {}
    unseen: set[str] = set()
    tasks: list[Task] = []
    for table in tables:
        for offset, name in enumerate(table.ids):
            row = rows.get(table.first + offset)
            inputs, outputs = _files(table.spec, offset)
            kept = unpack((row or {}).get("result") or "")
            for file in (*inputs, *outputs):
                size = kept[file].size if file in kept else size_of(posixpath.join(info["cwd"], file))
                known = _file_id(file)
                if size is not None:
                    sizes[known] = size
                    unseen.discard(known)
                elif known not in sizes:
                    sizes[known] = 0
                    unseen.add(known)
            files = [tuple(dict.fromkeys(map(_file_id, names))) for names in (inputs, outputs)]
            task = Task(name, _category(table.spec) or name, parents[table.first], files[0], files[1])
            tasks.append(_measured(task, table.spec, offset, row))
    unmeasured = sum(task.seconds is None for task in tasks)
    instance = Instance(info["name"] or run, tuple(tasks), sizes, f"Run {run} as Shoal measured it", _date(now))
    instance = instance._replace(system=(SYSTEM, version, ""))
    if unmeasured < len(tasks):
        start = float(info["created"])
        end = max(float(row["ended"]) for row in rows.values() if row.get("ended"))
        hosts = {name for task in tasks for name in task.machines}
        instance = instance._replace(
            executed=_date(start), makespan=max(0.0, float(info["finished"] or end) - start),
            machines=_machines(source, hosts),
        )  # fmt: skip
    incomplete = sum(table.spec.count for table in tables if any(getattr(table.spec, name) for name in _NOT_KEPT))
    return Trace(instance, unmeasured, incomplete, len(unseen))


def _tables(run: str, arrays: Iterable[Mapping[str, Any]]) -> list[_Table]:
    """The tables of a run in the order of their tasks, each task with an id that the format allows and no other has."""
    ordered = sorted(((int(array["first"]), parse_spec(array["task"])) for array in arrays), key=lambda one: one[0])
    taken: set[str] = set()
    tables = []
    for first, spec in ordered:
        named = _NOT_IN_TASK.sub("_", spec.name)
        ids = []
        for element in range(first, first + spec.count):
            name = (named if spec.count == 1 else f"{named}.{element}") if named else f"{run}.{element}"
            while name in taken:
                name += f"_{element}"
            taken.add(name)
            ids.append(name)
        tables.append(_Table(first, spec, ids))
    return tables


def _parents(tables: Sequence[_Table]) -> dict[int, tuple[str, ...]]:
    """What the tasks of each table wait for, by its first task; what waits for other runs has no edge for it."""
    by_name: dict[str, list[str]] = {}
    for table in tables:
        if table.spec.name:
            by_name.setdefault(table.spec.name, []).extend(table.ids)
    found, edges = {}, 0
    for table in tables:
        names = dict.fromkeys((*table.spec.after, *table.spec.after_any))
        found[table.first] = tuple(task for name in names for task in by_name.get(name, ()))
        edges += len(found[table.first]) * len(table.ids)
        if edges > MAX_EDGES:
            raise Refused(
                f"as a graph this run has more than {MAX_EDGES:,} edges: each task of a table waits for all of others",
                code="too_many_edges", hint="`shoal results --json` has its tasks",
            )  # fmt: skip
    return found


def _files(spec: Spec, offset: int) -> list[list[str]]:
    """What one task reads and writes, as seen from the run's directory."""
    params = spec.sweep.at(offset) if spec.sweep is not None else None
    base = "" if spec.cwd in (None, OWN) else _filled(spec.cwd or "", params)
    read = [posixpath.join(base, _filled(text, params)) for text in (*spec.inputs, spec.stdin or "") if text]
    written = [posixpath.join(base, _filled(text, params)) for text in spec.outputs]
    written += [_filled(text, params) for text in (spec.stdout, spec.stderr) if text]
    return [[name for name in names if not name.startswith(_DEVICES)] for names in (read, written)]


def _filled(text: str, params: Mapping[str, Value] | None) -> str:
    return text if params is None else fill(text, dict(params))


def _file_id(name: str) -> str:
    return _NOT_IN_FILE.sub("_", name)


def _category(spec: Spec) -> str:
    """What kind of task it is, as people name it."""
    return spec.labels.get(CATEGORY) or spec.labels.get("function") or spec.name


def _measured(task: Task, spec: Spec, offset: int, row: Json | None) -> Task:
    if row is None or row.get("duration") is None or row.get("ended") is None:
        return task  # the format has commands only of what ran
    program, arguments = _command(spec, offset)
    seconds, cpu = float(row["duration"]), row.get("cpu")
    changed = (row.get("special") or {}).get("changed") or {}
    started = row.get("started") or float(row["ended"]) - seconds
    return task._replace(
        program=program, arguments=arguments, seconds=seconds,
        cores=float(changed.get("cores") or spec.cores), started=_date(float(started)),
        avg_cpu=round(100.0 * float(cpu) / seconds, 4) if cpu is not None and seconds > 0.0 else None,
        memory=float(row["max_rss"]) if row.get("max_rss") else None, priority=spec.priority or None,
        machines=(str(row["host"]),) if row.get("host") else (),
    )  # fmt: skip


def _command(spec: Spec, offset: int) -> tuple[str, tuple[str, ...]]:
    """Program and arguments. A script is the whole program, as other systems record it; so is a command with files of its
    streams or an empty argument, which the format does not know, and a program alone whose name would be read as a script."""
    if spec.function:
        return spec.labels.get("function", "function"), ()
    params = spec.sweep.at(offset) if spec.sweep is not None else None
    folders, streams = _redirections(spec, params)
    if spec.shell is not None:
        text = spec.shell if params is None else fill_shell(spec.shell, params)
        return f"{folders}exec{streams}\n{text}" if streams else text, ()
    argv = [_filled(word, params) for word in spec.command]
    if streams:
        return f"{folders}{shlex.join(argv)}{streams}", ()
    is_plain = all(argv) and (len(argv) > 1 or len(argv[0].split()) == 1)
    return (argv[0], tuple(argv[1:])) if is_plain else (shlex.join(argv), ())


def _redirections(spec: Spec, params: Mapping[str, Value] | None) -> tuple[str, str]:
    """What makes the directories of a task's streams, and what redirects them, for a shell in the directory of the run."""
    base = "" if spec.cwd in (None, OWN) else _filled(spec.cwd or "", params)
    streams = f" <{shlex.quote(posixpath.join(base, _filled(spec.stdin, params)))}" if spec.stdin else ""
    out, err = (_file_id(_filled(text, params)) if text else "" for text in (spec.stdout, spec.stderr))
    streams += f" >{shlex.quote(out)}" if out else ""
    streams += (" 2>&1" if err == out else f" 2>{shlex.quote(err)}") if err else ""
    folders = sorted({posixpath.dirname(name) for name in (out, err) if not name.startswith(_DEVICES)} - {""})
    return (f"mkdir -p {shlex.join(folders)} && " if folders else ""), streams


def _machines(source: Source, hosts: set[str]) -> tuple[Machine, ...]:
    """The hosts that ran tasks, as their largest pilots knew them."""
    found: dict[str, Machine] = {host: Machine(host) for host in sorted(hosts)}
    for row in source.pilots()["pilots"]:
        if row["host"] not in found:
            continue
        tags = row.get("tags") or {}
        known = found[row["host"]]
        mhz = tags.get("cpu_mhz")
        found[row["host"]] = Machine(
            known.name, "linux", str(tags.get("arch") or known.architecture), str(tags.get("kernel") or known.release),
            max(int(row["memory"] or 0), known.memory or 0) or None, max(int(row["cores"] or 0), known.cores or 0) or None,
            int(mhz) if isinstance(mhz, (int, float)) and mhz >= 1 else known.mhz,
        )  # fmt: skip
    return tuple(found.values())


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
