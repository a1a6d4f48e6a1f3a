"""What the machine gives without any task system: ProcessPoolExecutor, and two bare posix_spawn loops."""

from __future__ import annotations

import os
import platform
from concurrent.futures import ProcessPoolExecutor

from bench.peers.system import LONG, SHORT, Case, Figures, System
from bench.peers.timing import (
    SLOTS,
    hold,
    noop,
    queued,
    rate,
    release_and_time,
    release_file,
    round_trips,
    run_true,
    since_start,
)


def pool() -> ProcessPoolExecutor:
    """A pool whose processes have started."""
    executor = ProcessPoolExecutor(SLOTS)
    list(executor.map(noop, range(100)))
    return executor


def functions(count: int) -> Figures:
    executor = pool()
    return rate(count, lambda: list(executor.map(noop, range(count))))


def commands(count: int) -> Figures:
    executor = pool()
    return rate(count, lambda: list(executor.map(run_true, range(count))))


def round_trip(count: int) -> Figures:
    executor = pool()
    return round_trips(count, lambda: executor.submit(noop).result())


def round_trip_command(count: int) -> Figures:
    executor = pool()
    return round_trips(count, lambda: executor.submit(run_true).result())


def cold_start(_: int) -> Figures:
    ProcessPoolExecutor(SLOTS).submit(noop).result()
    return since_start()


def queue(waiting: int) -> Figures:
    executor, release = pool(), release_file()
    for _ in range(SLOTS):
        executor.submit(hold, str(release))
    futures = [executor.submit(noop) for _ in range(queued(waiting))]
    return release_and_time(release, lambda number: [future.result() for future in futures[:number]])


def spawn_loops(count: int) -> Figures:
    """Processes that do nothing but spawn and wait."""

    def loops() -> None:
        loops = []
        for _ in range(SLOTS):
            pid = os.fork()
            if pid == 0:
                for _ in range(count // SLOTS):
                    os.waitpid(os.posix_spawn("/bin/true", ["/bin/true"], {}), 0)
                os._exit(0)
            loops.append(pid)
        for pid in loops:
            os.waitpid(pid, 0)

    return rate(count, loops)


SYSTEMS = (
    System(
        "pool",
        "ProcessPoolExecutor",
        __name__,
        (
            Case("functions", 5_000, functions),
            Case("commands", 2_000, commands, "a function that calls subprocess.call"),
            Case("round_trip", 300, round_trip),
            Case("round_trip_command", 200, round_trip_command, "a function that calls subprocess.call"),
            Case("cold_start", 1, cold_start, "a call"),
            Case("short_queue", SHORT, queue),
            Case("long_queue", LONG, queue),
        ),
        platform.python_version,
    ),
    System(
        "spawn",
        "two posix_spawn loops",
        __name__,
        (Case("commands", 2_000, spawn_loops, "no queue, no result"),),
        platform.python_version,
    ),
)
