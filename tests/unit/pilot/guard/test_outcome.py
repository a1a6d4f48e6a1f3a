"""What the server is told of an end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shoal.pilot.guard import outcome
from shoal.pilot.guard.messages import Ended, NotStarted
from shoal.wire.messages import Capacity, Lease

LEASE = Lease("r1.1#1@1", Capacity(1, memory=100 << 20, disk=10 << 20), "safe", ["x"], time=90.0)


def news(**more: Any) -> Ended:
    return replace(Ended("r1.1#1@1", None, None, "", 2.0, 1.0, 200 << 20), **more)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (news(exit_code=0), ("succeeded", "", "")),
        (news(exit_code=3), ("failed", "task_error", "exit code 3")),
        (news(signal=11), ("failed", "signal", "killed by signal 11 (SIGSEGV)")),
        (news(signal=9), ("failed", "signal", "killed by signal 9 (SIGKILL); perhaps the system ran out of memory")),
        (news(signal=24), ("failed", "over_time", "used more than 90 s on its core")),
        (
            news(signal=25),
            ("failed", "signal", "killed by signal 25 (SIGXFSZ): a file grew beyond its disk need of 10 MiB"),
        ),
        (news(signal=15, why="time"), ("failed", "over_time", "stopped at its time limit of 90 s")),
        (news(exit_code=0, why="time"), ("failed", "over_time", "stopped at its time limit of 90 s")),
        (news(signal=9, why="memory"), ("failed", "out_of_memory", "killed at 200 MiB: its memory limit is 100 MiB")),
        (news(signal=15, why="stopped"), ("failed", "cancelled", "stopped")),
        (news(signal=9, is_oom=True), ("failed", "out_of_memory", "killed by the system, which ran out of memory")),
        (
            news(exit_code=137, is_oom=True),
            ("failed", "out_of_memory", "killed by the system, which ran out of memory"),
        ),
    ],
)
def test_each_end_has_its_cause(told: Ended, expected: tuple[str, str, str]) -> None:
    report = outcome.judge(LEASE, told, 5.0)
    assert (report.outcome, report.cause, report.message) == expected
    assert (report.started, report.duration, report.cpu, report.max_rss) == (5.0, 2.0, 1.0, 200 << 20)


def test_only_the_kernels_own_kill_is_evidence() -> None:
    assert outcome.judge(LEASE, news(signal=9, is_oom=True), 5.0).evidence == "oom_kill"
    assert outcome.judge(LEASE, news(signal=9, why="memory"), 5.0).evidence == ""
    assert outcome.judge(LEASE, news(signal=9), 5.0).evidence == ""


def test_a_task_killed_for_lost_contact_is_given_back() -> None:
    report = outcome.judge(LEASE, news(signal=9, why="contact"), 5.0)
    assert (report.outcome, report.cause) == ("returned", "pilot_lost")


def test_a_start_that_failed_for_the_hosts_sake_is_given_back() -> None:
    host = NotStarted("r1.1#1@1", "host_unfit", "no memory")
    task = NotStarted("r1.1#1@1", "task_error", "command not found: x", 127)
    assert outcome.not_started(LEASE, host).outcome == "returned"
    report = outcome.not_started(LEASE, task)
    assert (report.outcome, report.exit_code, report.started) == ("failed", 127, None)


def test_a_signal_without_a_name_is_no_problem() -> None:
    assert outcome.signal_name(15) == "SIGTERM"
    assert outcome.signal_name(200) == "signal 200"
