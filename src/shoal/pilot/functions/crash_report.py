"""The report on a call that took its runner with it. No process and no socket in here."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from shoal.pilot.guard import outcome
from shoal.pilot.guard.messages import Ended
from shoal.pilot.runner.main import INITIALIZING, LOADING
from shoal.wire.messages import Lease, Report


def judge(lease: Lease, attempt: str, ended: Ended, stage: int, started: float) -> Report:
    """The report on a call whose runner ended. `ended` is the guard's, with the figures of this call alone."""
    report = outcome.judge(replace(lease, attempt=attempt), ended, started)
    if report.outcome == "succeeded" or report.cause == "task_error":
        cause, message = "task_error", f"the function ended its interpreter (exit code {report.exit_code})"
        if stage == INITIALIZING:
            cause = "initializer"
            message = f"initializer failed: it ended its interpreter (exit code {report.exit_code})"
        return replace(report, outcome="failed", cause=cause, message=message)
    if report.cause == "signal" and stage == INITIALIZING:
        return replace(report, cause="initializer", message=f"initializer failed: {report.message}")
    if report.cause == "signal" and stage == LOADING:
        return _during(report, lease, f"while loading the function {_digest(lease.function)}")
    return report


def _during(report: Report, lease: Lease, during: str) -> Report:
    assert report.signal is not None
    return replace(report, message=outcome.killed_by(report.signal, lease, during))


def name_call(report: Report, lease: Lease, at: int, described: str) -> Report:
    """Name the call that a signal ended: as a person would write it, or where that is unknown by its digests."""
    call = described or f"the function {_digest(lease.function)} with the arguments {_digest(lease.calls[at])}"
    return _during(report, lease, f"while calling {call}")


def never_ready(python: str, ended: Ended, is_late: bool, patience: float, stderr: str) -> Report:
    """The report on every call of a piece whose runner ended before its first message."""
    if ended.why == "memory":
        message = f"{python} needs more memory than the task's limit before it calls anything"
        return Report("", "failed", "out_of_memory", message)
    if is_late:
        message = f"{python} on this host did not begin within {patience:g} s"
    elif ended.signal is not None:
        message = f"{python} on this host was killed by {outcome.signal_name(ended.signal)} as it began"
    else:
        message = f"{python} on this host ended with exit code {ended.exit_code} as it began"
    last = stderr.strip().splitlines()[-1:]
    return Report("", "returned", "host_unfit", f"{message}: {last[0]}" if last else message)


def _digest(text: str) -> str:
    """What names a payload: the blob, or the digest of the text."""
    digest = text if text.startswith("sha256:") else "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    return digest[:19]
