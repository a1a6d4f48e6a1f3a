"""Parsl: HighThroughputExecutor with LocalProvider, one block of two workers, everything else as it comes."""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import Any

from bench.peers.processes import descendants, resident_mb, settled_mb
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
    since_start,
)


def true_line() -> str:
    """Parsl's way to run a command: an app that gives a line for the shell."""
    return "/bin/true"


def load() -> Any:
    """Parsl, started."""
    parsl = importlib.import_module("parsl")
    executors = importlib.import_module("parsl.executors")
    providers = importlib.import_module("parsl.providers")
    executor = executors.HighThroughputExecutor(
        label="bench",
        max_workers_per_node=SLOTS,
        address="127.0.0.1",
        loopback_address="127.0.0.1",
        provider=providers.LocalProvider(init_blocks=1, max_blocks=1),
    )
    parsl.load(parsl.Config(executors=[executor]))
    return parsl


def warm() -> Any:
    """The same, once it has run some tasks."""
    parsl = load()
    wait_for(parsl.python_app(noop), 100)
    return parsl


def wait_for(app: Any, count: int) -> list[Any]:
    """Submit all, then take every result."""
    return [future.result() for future in [app() for _ in range(count)]]


def functions(count: int) -> Figures:
    app = warm().python_app(noop)
    return rate(count, lambda: wait_for(app, count))


def commands(count: int) -> Figures:
    app = warm().bash_app(true_line)
    return rate(count, lambda: wait_for(app, count))


def round_trip(count: int) -> Figures:
    app = warm().python_app(noop)
    return round_trips(count, lambda: app().result())


def round_trip_command(count: int) -> Figures:
    app = warm().bash_app(true_line)
    return round_trips(count, lambda: app().result())


def cold_start(_: int) -> Figures:
    load().python_app(noop)().result()
    return since_start()


def queue(waiting: int) -> Figures:
    """The interchange is the server; the client's process keeps a record of each task too."""
    parsl, release = warm(), release_file()
    block, call = parsl.python_app(hold), parsl.python_app(noop)
    interchange = descendants("interchange")[-1]
    holding = [block(str(release)) for _ in range(SLOTS)]
    futures = [call() for _ in range(queued(waiting))]
    memory = {"memory_mb": settled_mb(interchange), "memory_client_mb": resident_mb("self")}
    figures = release_and_time(release, lambda number: [future.result() for future in futures[:number]])
    del holding
    return {**figures, **memory}


SYSTEMS = (
    System(
        "parsl",
        "Parsl",
        __name__,
        (
            Case("functions", 5_000, functions),
            Case("commands", 2_000, commands, "a bash_app: through a shell"),
            Case("round_trip", 300, round_trip),
            Case("round_trip_command", 200, round_trip_command, "a bash_app: through a shell"),
            Case("cold_start", 1, cold_start, "a call"),
            Case("short_queue", SHORT, queue),
            Case("long_queue", LONG // 2, queue, "memory: the interchange, and the client"),
        ),
        lambda: version("parsl"),
        peer="parsl",
    ),
)
