"""The report on an attempt, made from what the guard observed of its process."""

from __future__ import annotations

import signal
from typing import Optional

from shoal.model.limits import MAX_ECHO
from shoal.pilot.guard.messages import Ended, NotStarted
from shoal.pilot.host import disk_space
from shoal.wire.messages import Lease, Report


def judge(lease: Lease, ended: Ended, started: Optional[float]) -> Report:
    """The report on an attempt of which the guard reported the end; outputs are not looked at yet."""
    code, number, why = ended.exit_code, ended.signal, ended.why
    outcome, cause, message = "failed", "task_error", f"exit code {code}"
    if why == "time":
        cause, message = "over_time", f"stopped at its time limit of {lease.time:g} s"
    elif why == "memory":
        cause = "out_of_memory"
        message = f"killed at {_mebi(ended.max_rss)}: its memory limit is {_mebi(lease.room.memory)}"
    elif why == "contact":
        outcome, cause = "returned", "pilot_lost"
        message = "killed because the pilot had no contact with the server for too long (rerun=exclusive)"
    elif why == "stopped":
        cause, message = "cancelled", "stopped"
    elif ended.is_oom:
        cause, message = "out_of_memory", "killed by the system, which ran out of memory"
        if lease.room.memory == 0:
            message += "; state how much it needs"
    elif ended.no_space:
        outcome, cause = "returned", "host_unfit"
        message = disk_space.no_space(ended.folder, ended.no_space, "the task wrote its output")
    elif number == signal.SIGXCPU and lease.time is not None:
        each = f"each of its {lease.room.cores} cores" if lease.room.cores > 1 else "its core"
        cause, message = "over_time", f"used more than {lease.time:g} s on {each}"
    elif number is not None:
        cause, message = "signal", killed_by(number, lease)
    elif code == 0:
        outcome, cause, message = "succeeded", "", ""
    return Report(
        lease.attempt,
        outcome,
        cause,
        message,
        exit_code=code,
        signal=number,
        started=started,
        duration=ended.duration,
        cpu=ended.cpu,
        max_rss=ended.max_rss,
        evidence="no_space" if cause == "host_unfit" else "oom_kill" if cause == "out_of_memory" and not why else "",
    )


def killed_by(number: int, lease: Lease, during: str = "") -> str:
    """How a signal ended a task, during what, and what that perhaps means."""
    message = f"killed by signal {number} ({signal_name(number)}){during and ' ' + during}"
    if number == signal.SIGKILL:
        message += "; perhaps the system ran out of memory"
    elif number == signal.SIGXFSZ and lease.room.disk:
        message += f": a file grew beyond its disk need of {_mebi(lease.room.disk)}"
    return message


def not_started(lease: Lease, failure: NotStarted) -> Report:
    """The report on an attempt that the guard could not start: there never was a process."""
    if failure.cause == "host_unfit":
        evidence = "no_space" if failure.errno in disk_space.FULL else ""
        return Report(lease.attempt, "returned", "host_unfit", failure.message, evidence=evidence)
    return Report(lease.attempt, "failed", failure.cause, failure.message, exit_code=failure.exit_code)


def signal_name(number: int) -> str:
    """`11` -> `SIGSEGV`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"[:MAX_ECHO]


def _mebi(size: int) -> str:
    return f"{size / 1024 / 1024:.0f} MiB"
