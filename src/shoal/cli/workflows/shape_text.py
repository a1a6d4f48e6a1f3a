"""What a workflow looks like, in a few lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shoal.cli.output.tables import clean, shorten
from shoal.flow.dag import Dag, Shape
from shoal.model.quantities import many

SHOWN_LEVELS = 20
SHOWN_PATH = 8  # names of the critical path


def shape_lines(name: str, dag: Dag, shape: Shape) -> Iterator[str]:
    """Levels, widths and critical path."""
    tasks = sum(vertex.tasks for vertex in dag.vertices)
    edges = sum(map(len, dag.children))
    widths = [f"{width:,}" for width in shape.widths[:SHOWN_LEVELS]]
    more = f" and {len(shape.widths) - SHOWN_LEVELS:,} more levels" if len(shape.widths) > SHOWN_LEVELS else ""
    levels = f"{many(len(shape.levels), 'level')}, widest {max(shape.widths):,}"
    yield f"{clean(name)}: {many(tasks, 'task')}, {many(edges, 'edge')}, {levels}"
    yield f"  tasks by level: {' '.join(widths)}{more}"
    path = [shorten(clean(dag.vertices[at].name), 40) for at in shape.path]
    if len(path) > SHOWN_PATH:
        path[SHOWN_PATH // 2 : -SHOWN_PATH // 2] = ["..."]
    yield f"  critical path: {many(len(shape.path), 'task')}: {' -> '.join(path)}"


def shape_document(dag: Dag, shape: Shape) -> dict[str, Any]:
    """The same for programs."""
    return {
        "vertices": len(dag.vertices), "tasks": sum(vertex.tasks for vertex in dag.vertices),
        "edges": sum(map(len, dag.children)), "levels": len(shape.levels), "widths": shape.widths,
        "critical_path": [dag.vertices[at].name for at in shape.path],
    }  # fmt: skip
