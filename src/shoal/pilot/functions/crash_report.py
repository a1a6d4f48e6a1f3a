"""How a call ended that took its runner with it, in words. No process and no socket in here."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from shoal.pilot.guard import outcome
from shoal.pilot.runner.main import INITIALIZING, LOADING
from shoal.wire.messages import Lease, Report


def judge(lease: Lease, attempt: str, news: dict[str, Any], stage: int, started: float) -> Report:
    """The report on a call whose runner ended. `news` is the guard's, with the figures of this call alone."""
    report = outcome.judge(replace(lease, attempt=attempt), news, started)
    if report.outcome == "succeeded" or report.cause == "task_error":
        words = f"the function ended its interpreter (exit code {report.exit_code})"
        if stage == INITIALIZING:
            words = f"initializer failed: it ended its interpreter (exit code {report.exit_code})"
        return replace(report, outcome="failed", cause="task_error", message=words)
    if report.cause == "signal" and stage == INITIALIZING:
        return replace(report, cause="task_error", message=f"initializer failed: {report.message}")
    if report.cause == "signal" and stage == LOADING:
        return say(report, f"while loading the function {_digest(lease.function)}")
    return report


def say(report: Report, where: str) -> Report:
    """With where it happened, before what it perhaps means."""
    head, mark, rest = report.message.partition(";")
    return replace(report, message=f"{head} {where}{mark}{rest}")


def say_call(report: Report, lease: Lease, at: int, described: str) -> Report:
    """With the call that it was: as a person would write it, or where nobody could tell, by its digests."""
    call = described or f"the function {_digest(lease.function)} with the arguments {_digest(lease.calls[at])}"
    return say(report, f"while calling {call}")


def stillborn(python: str, news: dict[str, Any], is_late: bool, patience: float, said: str) -> Report:
    """The report on every call of a piece whose runner never said hello."""
    if news["why"] == "memory":
        words = f"{python} needs more memory than the task's limit before it calls anything"
        return Report("", "failed", "out_of_memory", words)
    if is_late:
        words = f"{python} on this host did not begin within {patience:g} s"
    elif news["signal"] is not None:
        words = f"{python} on this host was killed by {outcome.signal_name(news['signal'])} as it began"
    else:
        words = f"{python} on this host ended with exit code {news['exit_code']} as it began"
    last = said.strip().splitlines()[-1:]
    return Report("", "returned", "host_unfit", f"{words}: {last[0]}" if last else words)


def _digest(text: str) -> str:
    """What names a payload: the blob, or the digest of the text."""
    digest = text if text.startswith("sha256:") else "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    return digest[:19]
