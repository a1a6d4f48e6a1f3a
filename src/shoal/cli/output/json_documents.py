"""What `--json` prints about runs, tasks, events and the rest: stable, for programs [docs/reference/json.md].

Ids are whole (`r12`, `r12.3`), runs and tasks have a `state`, and times are ISO 8601 in UTC with milliseconds. Fields may be
added in later versions; none is removed or renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from shoal.cli.output.describe import run_state
from shoal.model.states import UNFINISHED, planning_state
from shoal.report.data_source import Json

# Fields that are moments, wherever they stand in the documents of the server.
MOMENTS = frozenset({
    "ca_ends", "certificate_ends", "changed", "created", "ended", "ends", "expires", "finished", "first", "joined", "leased",
    "made_at", "revoked", "seen", "since", "started", "time", "until", "used",
})  # fmt: skip
# What people wrote, in which nothing is a moment.
_THEIRS = frozenset({"data", "env", "labels", "params", "policy", "tags"})
_EARLIEST, _LATEST = 1e8, 1e11  # seconds since 1970; other numbers under these names are none


def iso_time(seconds: float) -> str:
    """`2026-11-16T08:00:00.000Z`."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"


def iso_document(document: Any) -> Any:
    """A document of the server with its moments in ISO 8601."""
    if isinstance(document, list):
        return [iso_document(item) for item in document]
    if not isinstance(document, dict):
        return document
    return {name: value if name in _THEIRS else _iso_field(name, value) for name, value in document.items()}


def _iso_field(name: str, value: Any) -> Any:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if name in MOMENTS and is_number and _EARLIEST < value < _LATEST:
        return iso_time(value)
    return iso_document(value)


def run_document(row: Mapping[str, Any]) -> Json:
    """A run: `run`, `state`, `counts`, ...; its tables as they were written."""
    found: Json = iso_document({name: value for name, value in row.items() if name != "arrays"})
    found = {"run": row["run"], "state": run_state(dict(row)), **found}
    if "spans" in found:
        found["spans"] = [{**span, "run": row["run"]} for span in found["spans"]]
    return found | ({"arrays": row["arrays"]} if "arrays" in row else {})


def task_document(run: str, row: Mapping[str, Any]) -> Json:
    """A task's row: `task`, `run`, `state`, ..."""
    return {"task": f"{run}.{row['element']}", "state": row["state"], **iso_document(dict(row)), "run": run}


def task_history(task: str, found: Mapping[str, Any]) -> Json:
    """One task with its run, its table and its events; `task` has what is known of it, at least its id and state."""
    run, _, element = task.partition(".")
    row = found["task"] or {"element": int(element), **(found.get("span") or {})}
    return {
        "id": task,
        "state": found["state"],
        "planning": planning_state((found["run"].get("planning") or {}).get("stage", UNFINISHED), found["state"]),
        "task": task_document(run, {**row, "state": found["state"]}),
        "run": run_document({**found["run"], "run": run}),
        "array": found["array"],
        "span": {**iso_document(found["span"]), "run": run} if found.get("span") else None,
        "events": [event_document(event) for event in found["events"]],
    }


def event_document(event: Mapping[str, Any]) -> Json:
    """An event, with its run and task by their ids."""
    run, task = event.get("run"), event.get("task")
    found: Json = iso_document(dict(event))
    if isinstance(run, int):
        found["run"] = f"r{run}"
    if isinstance(task, int) and run is not None:
        found["task"] = f"{found['run']}.{task}"
    return found
