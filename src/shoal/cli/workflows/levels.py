"""The levels of a workflow as `shoal show` prints them, and options that name some of its vertices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import click

from shoal.cli.output.tables import clean, shorten
from shoal.cli.session import Session
from shoal.cli.tasks.options import options
from shoal.model.ids import target_of
from shoal.model.limits import MAX_TARGETS
from shoal.model.quantities import many, show_duration

STATES = ("waiting", "ready", "running", "done", "failed", "cancelled")
F = TypeVar("F", bound=Callable[..., Any])
MOST_LEVELS = 40  # that are shown
MOST_NAMES = 8  # of the critical path
VERTEX_OPTIONS = options(
    click.option("--vertex", "vertices", multiple=True, metavar="NAME",
                 help="Only these vertices of a workflow; may be a pattern (repeat for more)."),
    click.option("--level", "levels", type=int, multiple=True, metavar="N",
                 help="Only this level of a workflow, as `shoal show` numbers them."),
    click.option("--below", multiple=True, metavar="NAME", help="Only this vertex and all that waits for it."),
)  # fmt: skip


def describe_levels(progress: Any) -> Iterator[tuple[str, object]]:
    """Levels with counts, and the critical path so far."""
    vertices = progress.graph.dag.vertices
    for number, at_level in enumerate(progress.graph.levels[:MOST_LEVELS], 1):
        states = _states(progress.levels[number - 1])
        shown = shorten(", ".join(clean(vertices[at].name) for at in at_level[:MOST_NAMES]), 60)
        more = f" and {len(at_level) - MOST_NAMES:,} more" if len(at_level) > MOST_NAMES else ""
        yield f"level {number}", f"{states}  ({shown}{more})"
    if len(progress.graph.levels) > MOST_LEVELS:
        yield "...", many(len(progress.graph.levels) - MOST_LEVELS, "more level")
    for at, vertex in enumerate(vertices):
        if vertex.table.get("role"):
            yield str(vertex.table["role"]), f"{_states(progress.counts[at])}  ({clean(vertex.name)})"
    path = progress.path
    if path.names:
        names = [clean(name) for name in path.names]
        if len(names) > MOST_NAMES:
            names[MOST_NAMES // 2 : -MOST_NAMES // 2] = ["..."]
        yield "longest so far", f"{show_duration(path.seconds)}: {' -> '.join(names)}"


def _states(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[state]:,} {state}" for state in STATES if counts[state])


def chosen_tasks(
    session: Session, targets: Sequence[str], given: dict[str, tuple[Any, ...]], states: Sequence[str], last_first: bool
) -> list[str] | None:
    """The tasks in these states of the vertices that options name; None if no such option was given."""
    if not any(given.values()):
        return None
    if len(targets) != 1 or not isinstance(target_of(targets[0]), int):
        raise click.UsageError("--vertex, --level and --below go with one run (e.g. shoal cancel r12 --vertex fit)")
    from shoal.report.workflows.progress import Chosen, choose, read_graph, tasks_in

    with session.source() as source:
        info = source.run(targets[0])
        graph = read_graph(info)
        found = choose(graph, Chosen(**given))
        return tasks_in(source, info, reversed(found) if last_first else found, graph, states)


def parts_of(tasks: Sequence[str]) -> Iterator[Sequence[str]]:
    """So many tasks as one call may name."""
    return (tasks[at : at + MAX_TARGETS] for at in range(0, len(tasks), MAX_TARGETS))
