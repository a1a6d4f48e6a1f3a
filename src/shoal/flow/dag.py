"""A workflow as a graph: vertices with their parents, its checks, its shape, and the one submission that it becomes.

Formats of workflows (`flow/formats/`) make vertices; `build` checks them and finds the edges, by named parents, by files
(what one writes, another reads) or by both. The result is a run of many tables with `after` between them, so that all
that follows is the engine's [ADR 0051]. Nothing here recurses: chains may be 100,000 vertices long.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_PARENTS, MAX_SPECS
from shoal.wire.did_you_mean import did_you_mean

MAX_CYCLE = 8  # names of a cycle that are printed


class Edges(Enum):
    """What makes one vertex wait for another."""

    PARENTS = "parents"  # it names the other
    FILES = "files"  # it reads what the other writes
    BOTH = "both"


class Vertex(NamedTuple):
    """One table of tasks of a workflow, usually a single task."""

    name: str
    table: Mapping[str, Any]  # its task fields as a task file would have them, without `name` and what it waits for
    parents: tuple[str, ...] = ()  # names of vertices that must have succeeded
    parents_any: tuple[str, ...] = ()  # names of vertices that must have ended
    where: str = ""  # file and line of its definition, for errors
    tasks: int = 1  # of the table


class Dag(NamedTuple):
    """A checked graph. Vertices are named by their position."""

    vertices: tuple[Vertex, ...]
    after: list[list[int]]  # of each: the vertices that must have succeeded
    after_any: list[list[int]]  # of each: those that need only have ended
    children: list[list[int]]
    order: list[int]  # every vertex after its parents

    def parents(self, at: int) -> list[int]:
        """What a vertex waits for."""
        return [*self.after[at], *self.after_any[at]]


class Shape(NamedTuple):
    """What a workflow looks like before it runs."""

    levels: list[list[int]]  # vertices by the length of the longest way to them
    widths: list[int]  # tasks of each level
    path: list[int]  # the critical path, from a root to a leaf
    length: float  # of the critical path: seconds, or vertices where no durations are given


def build(vertices: Sequence[Vertex], edges: Edges = Edges.PARENTS) -> Dag:
    """The graph of these vertices; refuses duplicates, unknown parents, files with two writers, and cycles."""
    if not vertices:
        raise BadInput("there is no task in it", code="empty_bulk", field="tasks", hint="give at least one")
    if len(vertices) > MAX_SPECS:
        raise _wrong(vertices[MAX_SPECS], f"{len(vertices):,} vertices are too many", "split", f"at most {MAX_SPECS:,}")
    by_name: dict[str, int] = {}
    for at, vertex in enumerate(vertices):
        if vertex.name in by_name:
            first = vertices[by_name[vertex.name]].where
            hint = f"the first is at {first}" if first else "names tie tasks together: give each its own"
            raise _wrong(vertex, f"two tasks are named {echo(vertex.name)!r}", "duplicate_name", hint)
        by_name[vertex.name] = at
    after: list[list[int]] = [[] for _ in vertices]
    after_any: list[list[int]] = [[] for _ in vertices]
    if edges is not Edges.FILES:
        for at, vertex in enumerate(vertices):
            after[at] = _named(vertex, vertex.parents, by_name)
            after_any[at] = _named(vertex, vertex.parents_any, by_name)
    if edges is not Edges.PARENTS:
        writers = _writers(vertices)
        for at, vertex in enumerate(vertices):
            found = (writers[name] for name in files_read(vertex.table) if name in writers)
            after[at] = list(dict.fromkeys([*after[at], *(parent for parent in found if parent != at)]))
    for at, vertex in enumerate(vertices):
        if len(after[at]) + len(after_any[at]) > MAX_PARENTS:
            count = len(after[at]) + len(after_any[at])
            hint = f"at most {MAX_PARENTS:,}: put a task between them that waits for a part"
            raise _wrong(vertex, f"{echo(vertex.name)!r} has {count:,} parents", "range", hint)
    children: list[list[int]] = [[] for _ in vertices]
    for at in range(len(vertices)):
        for parent in (*after[at], *after_any[at]):
            children[parent].append(at)
    return Dag(tuple(vertices), after, after_any, children, _ordered(vertices, after, after_any, children))


def _named(vertex: Vertex, names: Iterable[str], by_name: Mapping[str, int]) -> list[int]:
    """The positions of named parents, each once."""
    found: dict[int, None] = {}
    for name in names:
        at = by_name.get(name)
        if at is None:
            what = f"{echo(vertex.name)!r} waits for {echo(name)!r}, which does not exist"
            raise _wrong(vertex, what, "unknown_task", did_you_mean(name, list(by_name)))
        found[at] = None
    return list(found)


def _writers(vertices: Sequence[Vertex]) -> dict[str, int]:
    """Who writes each file."""
    writers: dict[str, int] = {}
    for at, vertex in enumerate(vertices):
        for name in files_written(vertex.table):
            other = writers.setdefault(name, at)
            if other != at:
                what = f"{echo(vertices[other].name)!r} and {echo(vertex.name)!r} both write {echo(name)!r}"
                raise _wrong(vertex, what, "duplicate_output", "one task writes a file, and others read it")
    return writers


def files_written(table: Mapping[str, Any]) -> list[str]:
    """The files that a task writes, as seen from the run's directory."""
    base = _base(table)
    streams = [table[field] for field in ("stdout", "stderr") if table.get(field)]
    return [*(_joined(base, name) for name in table.get("outputs", ())), *map(posixpath.normpath, streams)]


def files_read(table: Mapping[str, Any]) -> list[str]:
    """The files that a task reads, as seen from the run's directory."""
    base = _base(table)
    return [
        _joined(base, name) for name in (*table.get("inputs", ()), *([table["stdin"]] if table.get("stdin") else ()))
    ]


def _base(table: Mapping[str, Any]) -> str:
    """The directory that a task's files are seen from: a directory of its own is filled from the run's."""
    cwd = table.get("cwd") or ""
    return "" if cwd == "own" else str(cwd)


def _joined(base: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(base, name))


def _ordered(
    vertices: Sequence[Vertex], after: list[list[int]], after_any: list[list[int]], children: list[list[int]]
) -> list[int]:
    """Kahn's order, by levels; an error names a cycle, with all its edges."""
    unmet = [len(after[at]) + len(after_any[at]) for at in range(len(vertices))]
    order = [at for at, count in enumerate(unmet) if count == 0]
    for at in order:  # grows while it is walked
        for child in children[at]:
            unmet[child] -= 1
            if unmet[child] == 0:
                order.append(child)
    if len(order) == len(vertices):
        return order
    at = next(at for at, count in enumerate(unmet) if count)
    seen: dict[int, int] = {}
    path: list[int] = []
    while at not in seen:
        seen[at] = len(path)
        path.append(at)
        at = next(parent for parent in (*after[at], *after_any[at]) if unmet[parent])
    ring = [*path[seen[at] :], at][::-1]
    names = [echo(vertices[one].name) for one in ring]
    if len(names) > MAX_CYCLE:
        names[4:-4] = ["..."]
    hint = "take one of these dependencies out"
    raise _wrong(vertices[ring[0]], f"tasks wait for each other: {' -> '.join(names)}", "cycle", hint)


def _wrong(vertex: Vertex, what: str, code: str, hint: str) -> BadInput:
    return BadInput(f"{vertex.where}: {what}" if vertex.where else what, code=code, hint=hint)


def shape(dag: Dag, seconds: Sequence[float] | None = None) -> Shape:
    """Levels, widths and critical path; `seconds`: how long each vertex takes, else each counts as one."""
    level = [0] * len(dag.vertices)
    longest = [0.0] * len(dag.vertices)
    before: list[int | None] = [None] * len(dag.vertices)
    for at in dag.order:
        latest = max(dag.parents(at), key=longest.__getitem__, default=None)
        level[at] = 1 + max((level[parent] for parent in dag.parents(at)), default=-1)
        longest[at] = (seconds[at] if seconds is not None else 1.0) + (longest[latest] if latest is not None else 0.0)
        before[at] = latest
    levels: list[list[int]] = [[] for _ in range(1 + max(level))]
    for at in dag.order:
        levels[level[at]].append(at)
    end: int | None = max(dag.order, key=longest.__getitem__)
    length, path = longest[end] if end is not None else 0.0, []
    while end is not None:
        path.append(end)
        end = before[end]
    widths = [sum(dag.vertices[at].tasks for at in one) for one in levels]
    return Shape(levels, widths, path[::-1], length)


def document(dag: Dag, **fields: Any) -> dict[str, Any]:
    """The one submission of a workflow, as a task file would have it; `fields` of the run as a whole go with it."""
    tables = []
    for at, vertex in enumerate(dag.vertices):
        table = {"name": vertex.name, **vertex.table}
        for field, parents in (("after", dag.after[at]), ("after_any", dag.after_any[at])):
            if parents:
                table[field] = [*vertex.table.get(field, ()), *(dag.vertices[parent].name for parent in parents)]
        tables.append(table)
    return {"tasks": tables, **fields}
