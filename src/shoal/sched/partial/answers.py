"""The current answers of a run as a document, the same whether a server or the database file is asked."""

from __future__ import annotations

from typing import Any

from shoal.model.ids import TaskId, run_text
from shoal.sched.partial.contribution import Contribution
from shoal.sched.partial.goal import goal_of, is_reached, values


def describe(run: int, merged: Contribution, tasks: int, running: int, until: str, reached: str) -> dict[str, Any]:
    """What tasks of a run emitted: `tasks` are counted for good, `running` ones as far as they have come."""
    answers = []
    for name, answer in merged.answers():
        for kept in answer.get("values", ()):
            kept["task"] = str(TaskId(run, kept.pop("element")))
        answers.append({"name": name, **answer})
    goal = None
    if until:
        expr = goal_of(until)
        known = {tag: values(expr, merged).get(tag) for tag in sorted(expr.tags)}
        goal = {"until": until, "reached": bool(reached) or is_reached(expr, merged), "values": known}
    return {
        "run": run_text(run), "tasks": tasks, "running": running, "left_out": merged.left_out, "goal": goal, "answers": answers,
    }  # fmt: skip
