"""What a lease of one server is as a submission to another, and what became of that as a report. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.model.states import Cause, TaskState
from shoal.model.task.spec import OWN
from shoal.model.task.visible import NOT_VISIBLE
from shoal.wire.chunk import single
from shoal.wire.messages import Lease, Report

PREFIX = "bridge-"  # of names and keys over there
# The other side's own trouble: no fault of the task, which is given back.
_THEIRS = frozenset({Cause.PILOT_LOST, Cause.HOST_UNFIT, Cause.POISON, Cause.STAGE_IN, Cause.CANCELLED})
_SET_THERE = ("SHOAL_", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")


def why_not(lease: Lease) -> str:
    """Why a task cannot be run by another server; empty: it can."""
    files = (lease.inputs, lease.outputs, lease.content, lease.checkpoint, lease.stdin, lease.stdout, lease.stderr)
    if any(files) or lease.stdin_data.startswith("sha256:"):
        return "it has files, which do not cross to another server"
    if any(text.startswith("need") for text in lease.visible.values()):
        return "it needs files of its submitter, which another server does not see"
    return "functions do not cross to another server" if lease.function else ""


def submission_of(lease: Lease, origin: str) -> dict[str, Any]:
    """A lease of one task as a run of the other server. The key is the attempt's name: sent twice it is one run."""
    task = single(lease)
    room = task.room
    table: dict[str, Any] = {
        "command": task.command if task.shell is None else None, "shell": task.shell, "cwd": OWN,
        "env": {name: value for name, value in task.env.items() if not name.startswith(_SET_THERE)},
        "cores": room.cores, "memory": room.memory, "disk": room.disk, "gpus": room.gpus, "time": task.time,
        "setup": task.setup, "container": task.container, "stdin_data": task.stdin_data, "max_output": task.max_output,
    }  # fmt: skip
    fields = {name: value for name, value in table.items() if value}
    return {
        "tasks": [fields], "name": f"{PREFIX}{origin}", "key": f"{PREFIX}{task.attempt}",
        "labels": {"origin": origin, "attempt": task.attempt},
    }  # fmt: skip


def report_of(attempt: str, found: Mapping[str, Any]) -> Report:
    """The report of an attempt by how its task ended over there."""
    row: Mapping[str, Any] = found.get("task") or {}
    state, cause, message = str(found["state"]), str(row.get("cause") or ""), str(row.get("message") or "")
    facts: dict[str, Any] = {
        "started": row.get("started"), "duration": row.get("duration") or 0.0, "cpu": row.get("cpu") or 0.0,
        "max_rss": row.get("max_rss") or 0, "last_line": row.get("last_line") or "", "exit_code": row.get("exit_code"),
        "signal": row.get("signal"),
    }  # fmt: skip
    if state == TaskState.SUCCEEDED:
        return Report(attempt, "succeeded", message=message, **facts)
    if state == TaskState.FAILED and cause not in _THEIRS:
        return Report(attempt, "failed", cause or "task_error", message, **facts)
    why = f"the other server did not run it ({state}{f', {cause}' if cause else ''}{f': {message}' if message else ''})"
    return given_back(attempt, why)


def given_back(attempt: str, why: str, is_unseen: bool = False) -> Report:
    """The report of an attempt that another server is to take. `is_unseen`: for want of files, so that none like it comes."""
    return Report(attempt, "returned", message=why, evidence=NOT_VISIBLE if is_unseen else "")
