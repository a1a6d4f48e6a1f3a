"""Timing of many tasks, of one task many times, and of a start from nothing; and the tasks themselves."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable

from bench.peers.system import Figures

SLOTS = 2  # tasks at a time, in every system
STARTED = "BENCH_STARTED"  # when the harness started this process, in seconds since the epoch


def noop(_: object = None) -> None:
    """The function that every system calls. It is in a module, so systems may send its name or its code."""


def run_true(_: object = None) -> int:
    """The command, for systems that know functions only."""
    return subprocess.call(["/bin/true"])


def sleep_long(_: object = None) -> None:
    """Keeps a slot busy for longer than a case may take."""
    time.sleep(600)


def seconds_of(work: Callable[[], object]) -> float:
    """How long something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def rate(measure: str, count: int, work: Callable[[], object], queue: bool = True) -> Figures:
    """Tasks per second; `queue`: also the time per task with that many queued at once.

    Where the work gives a list, it must be the results of all: None of each function, 0 of each command.
    """
    began = time.perf_counter()
    results = work()
    took = time.perf_counter() - began
    if isinstance(results, list) and (len(results) != count or any(results)):
        raise RuntimeError(f"{len(results)} results of {count}, {sum(map(bool, results))} of them bad")
    figures = {f"{measure}_per_s": count / took}
    return figures | per_task("queue", count, took) if queue else figures


def per_task(kind: str, queued: int, took: float, done: int = 0) -> Figures:
    """Time per task with so many queued; `done`: of how many it was taken, if not of all."""
    return {f"{kind}_{queued}_us": took / (done or queued) * 1e6}


def round_trips(count: int, one: Callable[[], object]) -> Figures:
    """One task at a time, back to back."""
    return percentiles([seconds_of(one) * 1e3 for _ in range(count)])


def percentiles(milliseconds: list[float], name: str = "round_trip") -> Figures:
    """p50 and p99 of these times."""
    times = sorted(milliseconds)
    return {f"{name}_p{p}_ms": times[min(len(times) - 1, len(times) * p // 100)] for p in (50, 99)}


def since_start() -> float:
    """Seconds since the harness started this process: interpreter, imports and all."""
    return time.time() - float(os.environ[STARTED])
