"""The report on an attempt, made from what the guard observed of its process."""

from __future__ import annotations

import signal
from typing import Any, Optional

from shoal.model.limits import MAX_ECHO
from shoal.pilot.host import disk_space
from shoal.wire.messages import Lease, Report


def judge(lease: Lease, news: dict[str, Any], started: Optional[float]) -> Report:
    """The report on an attempt of which the guard said `ended`; outputs are not looked at yet."""
    code: Optional[int] = news["exit_code"]
    number: Optional[int] = news["signal"]
    outcome, cause, message = "failed", "task_error", f"exit code {code}"
    why = news["why"]
    if why == "time":
        cause, message = "over_time", f"stopped at its time limit of {lease.time:g} s"
    elif why == "memory":
        cause = "out_of_memory"
        message = f"killed at {_mebi(news['max_rss'])}: its memory limit is {_mebi(lease.room.memory)}"
    elif why == "contact":
        outcome, cause = "returned", "pilot_lost"
        message = "killed because the pilot had no contact with the server for too long (rerun=exclusive)"
    elif why == "stopped":
        cause, message = "cancelled", "stopped"
    elif news.get("oom"):
        cause, message = "out_of_memory", "killed by the system, which ran out of memory"
        if lease.room.memory == 0:
            message += "; state how much it needs"
    elif news.get("no_space"):
        outcome, cause = "returned", "host_unfit"
        message = disk_space.no_space(news["folder"], news["no_space"], "the task wrote its output")
    elif number == signal.SIGXCPU and lease.time is not None:
        cause, message = "over_time", f"used more than {lease.time:g} s on each of its {lease.room.cores} cores"
    elif number is not None:
        cause, message = "signal", f"killed by signal {number} ({signal_name(number)})"
        if number == signal.SIGKILL:
            message += "; perhaps the system ran out of memory"
        elif number == signal.SIGXFSZ and lease.room.disk:
            message += f": a file grew beyond its disk need of {_mebi(lease.room.disk)}"
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
        duration=news["duration"],
        cpu=news["cpu"],
        max_rss=news["max_rss"],
        evidence="no_space" if cause == "host_unfit" else "oom_kill" if cause == "out_of_memory" and not why else "",
    )


def not_started(lease: Lease, news: dict[str, Any]) -> Report:
    """The report on an attempt of which the guard said `failed`: there never was a process."""
    if news["cause"] == "host_unfit":
        evidence = "no_space" if news.get("errno") in disk_space.FULL else ""
        return Report(lease.attempt, "returned", "host_unfit", news["message"], evidence=evidence)
    return Report(lease.attempt, "failed", news["cause"], news["message"], exit_code=news["exit_code"])


def signal_name(number: int) -> str:
    """`11` -> `SIGSEGV`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"[:MAX_ECHO]


def _mebi(size: int) -> str:
    return f"{size / 1024 / 1024:.0f} MiB"
