"""Why something is over, in plain words from its row: what the engine no longer remembers."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from shoal.db.reader import Reader
from shoal.engine.changes import SpanRow, TaskRow
from shoal.engine.why.reason import Reason
from shoal.model.ids import TaskId, run_text
from shoal.model.limits import MAX_PAGE
from shoal.model.quantities import show_duration
from shoal.model.states import FINAL, PilotState

MAX_CAUSES = 5  # of failures of one run that are told
_FINAL = {state.value for state in FINAL}
_FAILED = {"failed", "lost"}


def ending_of(reader: Reader, target: int | TaskId | str) -> dict[str, Any] | None:
    """`{"state", "reasons"}` of a run, task or pilot that is over; None if it is not."""
    if isinstance(target, str):
        pilot = reader.pilot(target)
        is_gone = pilot is not None and pilot.state == PilotState.GONE.value
        return _ending("gone", pilot.reason, "", "gone") if pilot is not None and is_gone else None
    if isinstance(target, int):
        return _run(reader, target)
    spans = (span for span in reader.spans(target.run) if span.low <= target.element < span.high)
    row = reader.task_row(*target) or next(spans, None)
    return _task(target, row) if row is not None and row.state in _FINAL else None


def _task(task: TaskId, row: TaskRow | SpanRow) -> dict[str, Any]:
    tries = look = ""
    if isinstance(row, TaskRow):
        if row.state == "succeeded":
            source = f", taken over from {row.reused}" if row.reused else ""
            return _ending(row.state, f"it succeeded on {row.host} in {show_duration(row.duration or 0.0)}{source}", "")
        tries = f", after {row.attempt} attempts" if row.attempt > 1 else ""
        look = f"`shoal logs {task} --stderr` shows what it said; " if row.duration is not None else ""
    text = f"{row.message or row.cause or row.state}{tries}"
    return _ending(row.state, text, f"{look}`shoal retry {task}` runs it again")


def _run(reader: Reader, number: int) -> dict[str, Any] | None:
    row = reader.run_row(number)
    if row is None or row.finished is None:
        return None
    counts = {state: n for state, n in json.loads(row.counts or "{}").items() if n and state in _FINAL}
    text = "nothing waits, every task is final: " + ", ".join(f"{n} {state}" for state, n in sorted(counts.items()))
    bad = set(counts) - {"succeeded"}
    fix = f"`shoal ps {run_text(number)} --state {','.join(sorted(bad))}` lists them" if bad else ""
    ending = _ending("finished", text, fix)
    ending["reasons"] += [asdict(reason) for reason in _failures(reader, number)] if bad & _FAILED else []
    return ending


def _failures(reader: Reader, number: int) -> list[Reason]:
    """Why tasks of a run failed: the first of each cause and message, a few of them."""
    found: dict[tuple[str, str], Reason] = {}
    for row in reader.tasks(number, limit=MAX_PAGE, states=_FAILED):
        task, message = TaskId(number, row["element"]), row["message"] or row["cause"] or row["state"]
        text = f"{task} {row['state']} ({row['cause']}): {message}" if row["cause"] else f"{task} {row['state']}"
        look = f"`shoal logs {task} --stderr` shows what it said" if row["duration"] is not None else ""
        found.setdefault((row["cause"] or "", message), Reason("final", text, look))
    return list(found.values())[:MAX_CAUSES]


def _ending(state: str, text: str, fix: str, code: str = "final") -> dict[str, Any]:
    return {"state": state, "reasons": [asdict(Reason(code, text, fix))]}
