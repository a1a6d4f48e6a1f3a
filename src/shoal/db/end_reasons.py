"""Why something is over, in plain words from its row: what the engine no longer remembers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from shoal.db.reader import Reader
from shoal.engine.why.reason import Reason
from shoal.model.ids import TaskId, run_text
from shoal.model.quantities import show_duration
from shoal.model.states import FINAL, PilotState

_FINAL = {state.value for state in FINAL}


def ending_of(reader: Reader, target: int | TaskId | str) -> dict[str, Any] | None:
    """`{"state", "reasons"}` of a run, task or pilot that is over; None if it is not."""
    if isinstance(target, str):
        pilot = reader.pilot(target)
        if pilot is None or pilot["state"] != PilotState.GONE.value:
            return None
        return _said("gone", pilot["reason"], "", "gone")
    if isinstance(target, int):
        return _run(reader, target)
    row = reader.task(*target) or next(
        (span for span in reader.spans(target.run) if span["low"] <= target.element < span["high"]), None
    )
    if row is None or row["state"] not in _FINAL:
        return None
    return _task(target, row)


def _task(task: TaskId, row: dict[str, Any]) -> dict[str, Any]:
    state, ran = row["state"], row.get("attempt", 0)
    if state == "succeeded":
        source = f", taken over from {row['reused']}" if row["reused"] else ""
        return _said(state, f"it succeeded on {row['host']} in {show_duration(row['duration'] or 0.0)}{source}", "")
    tries = f", after {ran} attempts" if ran > 1 else ""
    look = f"`shoal logs {task} --stderr` shows what it said; " if row.get("duration") is not None else ""
    return _said(
        state, f"{row['message'] or row['cause'] or state}{tries}", f"{look}`shoal retry {task}` runs it again"
    )


def _run(reader: Reader, number: int) -> dict[str, Any] | None:
    found = reader.runs(limit=1, before=number + 1)
    if not found or found[0]["run"] != number or found[0]["finished"] is None:
        return None
    counts = {state: n for state, n in found[0]["counts"].items() if n and state in _FINAL}
    text = "nothing waits, every task is final: " + ", ".join(f"{n} {state}" for state, n in sorted(counts.items()))
    bad = set(counts) - {"succeeded"}
    fix = f"`shoal ps {run_text(number)} --state {','.join(sorted(bad))}` lists them" if bad else ""
    return _said("finished", text, fix)


def _said(state: str, text: str, fix: str, code: str = "final") -> dict[str, Any]:
    return {"state": state, "reasons": [asdict(Reason(code, text, fix))]}
