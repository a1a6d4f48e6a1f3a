"""How far a workflow is: its levels with counts of tasks by state, and the critical path so far.

A vertex is a table of the run, or all tables of one name (divisible work). Tasks that a pilot holds together as a chunk have no
rows of their own until they end; they count as ready here.
"""

from __future__ import annotations

import fnmatch
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from shoal.flow.dag import Dag, Vertex, build, shape
from shoal.model.errors import BadInput, NotFound, echo
from shoal.model.quantities import many
from shoal.report.data_source import Json, Source, all_rows
from shoal.wire.did_you_mean import did_you_mean

WAITING, READY, RUNNING, DONE, FAILED, CANCELLED = "waiting", "ready", "running", "done", "failed", "cancelled"
STATES = (WAITING, READY, RUNNING, DONE, FAILED, CANCELLED)
_SHOWN_AS = {
    "waiting": WAITING, "ready": READY, "leased": RUNNING, "running": RUNNING, "succeeded": DONE,
    "failed": FAILED, "cancelled": CANCELLED, "lost": FAILED,
}  # fmt: skip
OVER = (DONE, FAILED, CANCELLED)


class Graph(NamedTuple):
    """The tables of a run as a graph."""

    dag: Dag
    elements: list[list[range]]  # of each vertex: its tasks
    levels: list[list[int]]  # without tasks that run beside the others, or after all of them


class Path(NamedTuple):
    """The longest way through what has begun: vertices, and the seconds that they took so far."""

    names: list[str]
    seconds: float


class Progress(NamedTuple):
    """A workflow as it is now."""

    graph: Graph
    counts: list[Counter[str]]  # of each vertex: tasks by state
    levels: list[Counter[str]]
    path: Path


def is_workflow(info: Mapping[str, Any]) -> bool:
    """True if a table of the run waits for another one."""
    names = {array["name"] for array in info["arrays"] if array["name"]}
    return any(
        not names.isdisjoint((*array["task"].get("after", ()), *array["task"].get("after_any", ())))
        for array in info["arrays"]
    )


def read_graph(info: Mapping[str, Any]) -> Graph:
    """The graph of a run's tables."""
    elements: dict[str, list[range]] = {}
    tables: dict[str, Mapping[str, Any]] = {}
    for array in sorted(info["arrays"], key=lambda one: int(one["first"])):
        first, count = int(array["first"]), int(array["count"])
        name = array["name"] or f"{info['run']}.{first}"
        elements.setdefault(name, []).append(range(first, first + count))
        tables.setdefault(name, array["task"])
    vertices = []
    for name, table in tables.items():
        after, after_any = (
            tuple(parent for parent in table.get(field, ()) if parent in tables) for field in ("after", "after_any")
        )
        vertices.append(Vertex(name, table, after, after_any, tasks=sum(map(len, elements[name]))))
    dag = build(vertices)
    levels = [[at for at in level if not dag.vertices[at].table.get("role")] for level in shape(dag).levels]
    return Graph(dag, list(elements.values()), [level for level in levels if level])


def read_progress(source: Source, info: Mapping[str, Any], now: float | None) -> Progress:
    """How far a run is; `now` is None where no server runs."""
    graph = read_graph(info)
    starts = sorted((part.start, at) for at, parts in enumerate(graph.elements) for part in parts)
    firsts = [first for first, _ in starts]
    counts = [Counter[str]() for _ in graph.elements]
    begun: dict[int, float] = {}
    ended: dict[int, float] = {}
    for row in all_rows(source, str(info["run"])):
        at = starts[bisect_right(firsts, int(row["element"])) - 1][1]
        state = _SHOWN_AS.get(str(row["state"]), READY)
        counts[at][state] += 1
        if state in OVER and row["ended"] is not None and row["duration"] is not None:
            ended[at] = max(ended.get(at, 0.0), float(row["ended"]))
            started = float(row["ended"]) - float(row["duration"])
            begun[at] = min(begun.get(at, started), started)
        elif state == RUNNING and now is not None:
            since = row.get("started") or row.get("leased")
            begun[at] = min(begun.get(at, now), float(since or now))
            ended[at] = now
    for span in info["spans"]:
        at = starts[bisect_right(firsts, int(span["low"])) - 1][1]
        counts[at][_SHOWN_AS[str(span["state"])]] += int(span["high"]) - int(span["low"])
    for at in graph.dag.order:
        left = graph.dag.vertices[at].tasks - counts[at].total()
        if left > 0:
            counts[at][WAITING if _waits(graph.dag, counts, at) else READY] += left
    levels = [sum((counts[at] for at in level), Counter()) for level in graph.levels]
    return Progress(graph, counts, levels, _critical(graph.dag, begun, ended))


def _waits(dag: Dag, counts: Sequence[Counter[str]], at: int) -> bool:
    if any(counts[parent][DONE] < dag.vertices[parent].tasks for parent in dag.after[at]):
        return True
    return any(
        sum(counts[parent][state] for state in OVER) < dag.vertices[parent].tasks for parent in dag.after_any[at]
    )


def _critical(dag: Dag, begun: Mapping[int, float], ended: Mapping[int, float]) -> Path:
    """The critical path through the vertices that have begun, each as long as it took from its first start to its last end."""
    seconds = [max(0.0, ended[at] - begun[at]) if at in begun else 0.0 for at in range(len(dag.vertices))]
    found = shape(dag, seconds)
    return Path([dag.vertices[at].name for at in found.path if at in begun], found.length)


class Chosen(NamedTuple):
    """Vertices that people name: by name or pattern, by level, or with all that is below them."""

    vertices: tuple[str, ...] = ()
    levels: tuple[int, ...] = ()
    below: tuple[str, ...] = ()


def choose(graph: Graph, chosen: Chosen) -> list[int]:
    """The vertices that are meant, each after its parents; refuses what is none."""
    found = {at for pattern in chosen.vertices for at in _named(graph.dag, pattern)}
    for level in chosen.levels:
        if not 1 <= level <= len(graph.levels):
            raise BadInput(
                f"there is no level {level}", code="range", field="--level",
                hint=f"this run has {many(len(graph.levels), 'level')}: see `shoal show`",
            )  # fmt: skip
        found.update(graph.levels[level - 1])
    left = deque(at for pattern in chosen.below for at in _named(graph.dag, pattern))
    seen = set(left)
    while left:
        for child in graph.dag.children[left.popleft()]:
            if child not in seen:
                seen.add(child)
                left.append(child)
    found |= seen
    return [at for at in graph.dag.order if at in found]


def _named(dag: Dag, pattern: str) -> list[int]:
    names = [vertex.name for vertex in dag.vertices]
    found = [at for at, name in enumerate(names) if name == pattern or fnmatch.fnmatchcase(name, pattern)]
    if not found:
        raise NotFound(
            f"there is no vertex {echo(pattern)!r} in this run", code="unknown_task", hint=did_you_mean(pattern, names)
        )
    return found


def tasks_in(
    source: Source, info: Mapping[str, Any], at: Iterable[int], graph: Graph, states: Sequence[str]
) -> list[str]:
    """The tasks of vertices that are in one of these states (as the server names them; a task without a row is `ready`)."""
    known = {int(row["element"]): str(row["state"]) for row in all_rows(source, str(info["run"]))}
    for span in info["spans"]:
        known.update(dict.fromkeys(range(int(span["low"]), int(span["high"])), str(span["state"])))
    elements = (element for vertex in at for part in graph.elements[vertex] for element in part)
    return [f"{info['run']}.{element}" for element in elements if known.get(element, "ready") in states]


def document(progress: Progress) -> Json:
    """Levels and critical path for programs."""
    vertices = progress.graph.dag.vertices
    return {
        "levels": [
            {"level": number, "vertices": [vertices[at].name for at in at_level], **_states(counts)}
            for number, (at_level, counts) in enumerate(zip(progress.graph.levels, progress.levels, strict=True), 1)
        ],
        "critical_path": {"vertices": progress.path.names, "seconds": round(progress.path.seconds, 3)},
    }


def _states(counts: Counter[str]) -> dict[str, int]:
    return {state: counts[state] for state in STATES}
