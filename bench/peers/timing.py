"""Timing of many tasks, of one task many times, of a start from nothing, and of a queue; and the tasks themselves."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.peers.system import CHAIN, CHAINS, WIDE, Figures

SLOTS = 2  # tasks at a time, in every system
STARTED = "BENCH_STARTED"  # when the harness started this process, in seconds since the epoch
# With a queue, the rate is that of a window of tasks behind the first ones; so many more as the case says wait behind it
# until its end. What is not through after some seconds is counted as far as it came, where a system tells how far.
FIRST, WINDOW, PATIENCE = 200, 2_000, 12.0
RELEASE = "release"  # the file for which the tasks in front of a queue wait


def noop(_: object = None) -> None:
    """The function that every system calls. It is in a module, so systems may send its name or its code."""


def step(*_: object) -> None:
    """The same behind others: it is given what they returned."""


def run_true(_: object = None) -> int:
    """The command, for systems that know functions only."""
    return subprocess.call(["/bin/true"])


def hold(path: str) -> None:
    """Keeps a slot busy until a file is there."""
    while not os.path.exists(path):
        time.sleep(0.002)


def hold_command(path: str) -> list[str]:
    """The same as a command."""
    return ["/bin/sh", "-c", f"while [ ! -e {path} ]; do sleep 0.01; done"]


def release_file() -> Path:
    """Where the tasks in front of a queue look."""
    return Path(RELEASE).absolute()


def queued(waiting: int) -> int:
    """How many tasks to submit, so that so many still wait at the end of the window."""
    return FIRST + WINDOW + waiting


def release_and_time(path: Path, wait_for: Callable[[int], object]) -> Figures:
    """Let the queue go; tasks per second over the window. `wait_for` returns when the first so many tasks are through."""
    path.touch()
    wait_for(FIRST)
    began = time.perf_counter()
    wait_for(FIRST + WINDOW)
    return {"per_s": WINDOW / (time.perf_counter() - began)}


def seconds_of(work: Callable[[], object]) -> float:
    """How long something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def fan(submit: Callable[..., Any], wait: Callable[[Any], object]) -> Figures:
    """Tasks per second of one call before many before one; `submit` calls `step` behind the calls that it is given."""

    def all_of() -> None:
        first = submit()
        wait(submit(*[submit(first) for _ in range(WIDE)]))

    return {"per_s": (WIDE + 2) / seconds_of(all_of)}


def chains(submit: Callable[..., Any], wait: Callable[[Any], object]) -> Figures:
    """Tasks per second of chains of calls, each of which waits for the one before it."""

    def all_of() -> None:
        ends: list[Any] = [[] for _ in range(CHAINS)]
        for _ in range(CHAIN):
            ends = [[submit(*end)] for end in ends]
        for (end,) in ends:
            wait(end)

    return {"per_s": CHAINS * CHAIN / seconds_of(all_of)}


def rate(count: int, work: Callable[[], object]) -> Figures:
    """Tasks per second.

    Where the work gives a list, it must be the results of all: None of each function, 0 of each command.
    """
    began = time.perf_counter()
    results = work()
    took = time.perf_counter() - began
    if isinstance(results, list) and (len(results) != count or any(results)):
        raise RuntimeError(f"{len(results)} results of {count}, {sum(map(bool, results))} of them bad")
    return {"per_s": count / took}


def round_trips(count: int, one: Callable[[], object]) -> Figures:
    """One task at a time, back to back; the first tenth is not counted."""
    for _ in range(count // 10):
        one()
    return percentiles([seconds_of(one) * 1e3 for _ in range(count)])


def percentiles(milliseconds: list[float]) -> Figures:
    """p50 and p99 of these times."""
    times = sorted(milliseconds)
    return {f"p{p}_ms": times[min(len(times) - 1, len(times) * p // 100)] for p in (50, 99)}


def since_start() -> Figures:
    """Seconds since the harness started this process: interpreter, imports and all."""
    return {"s": time.time() - float(os.environ[STARTED])}
