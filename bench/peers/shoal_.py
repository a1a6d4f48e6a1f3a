"""Shoal itself: functions through its Executor, commands through its command line, on an embedded server of its own.

The harness sets XDG_STATE_HOME to a fresh directory on a real file system: every task is committed there.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from typing import Any

from bench.peers.processes import resident_mb, settled_mb
from bench.peers.system import Case, Figures, System
from bench.peers.timing import SLOTS, noop, per_task, percentiles, rate, round_trips, seconds_of, since_start

WINDOW = 1_000  # of a long array the time per task is taken over so many, while the rest waits
SPECS = 10_000  # distinct tasks per submission, the most that the server takes at once


def cli(*arguments: str) -> None:
    """A command of the command line; its success is certain afterwards."""
    command = [sys.executable, "-m", "shoal.cli", *arguments]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"shoal {arguments[0]} ended with {done.returncode}: {done.stderr.strip()[-150:]}")


def client() -> Any:
    """A client of the embedded server, started if need be."""
    target = importlib.import_module("shoal.client.config").Target()
    return importlib.import_module("shoal.client.connection.embedded_server").connect(target)


def warm_client() -> Any:
    """The same, once it has run some commands."""
    cli("sweep", "-q", "i=1..20", "--", "/bin/true")
    return client()


def warm_executor() -> Any:
    """An Executor that has called some functions."""
    executor = importlib.import_module("shoal").Executor()
    list(executor.map(noop, range(100)))
    return executor


def functions(count: int) -> Figures:
    executor = warm_executor()
    return rate("functions", count, lambda: list(executor.map(noop, range(count))))


def round_trip(count: int) -> Figures:
    executor = warm_executor()
    return round_trips(count, lambda: executor.submit(noop, None).result())


def cold_start_function(_: int) -> Figures:
    importlib.import_module("shoal").Executor().submit(noop, None).result()
    return {"cold_start_function_s": since_start()}


def commands(count: int) -> Figures:
    warm_client()
    arguments = ("sweep", "-q", f"i=1..{count}", "--", "/bin/true")
    return rate("commands", count, lambda: cli(*arguments), queue=False)


def round_trip_command(count: int) -> Figures:
    server = warm_client()
    submission = {"tasks": [{"command": ["/bin/true"]}], "cwd": "/"}

    def one() -> None:
        run, after = server.submit(submission)["run"], 0
        while True:
            page = server.events(after, run, wait=10.0, kinds=["run_finished"])
            if page["events"]:
                return
            after = page["last"]

    return percentiles([seconds_of(one) * 1e3 for _ in range(count)], "round_trip_command")


def cold_start(_: int) -> Figures:
    return {"cold_start_s": seconds_of(lambda: cli("run", "--", "true"))}


def array(count: int) -> Figures:
    """Time per task with so many elements queued: from the submission to the end of the first thousand."""
    server, done = warm_client(), min(count, WINDOW)

    def work() -> None:
        run = server.submit({"tasks": [{"command": ["/bin/true"], "array": f"1-{count}"}], "cwd": "/"})["run"]
        while server.run(run)["counts"].get("succeeded", 0) < done:
            time.sleep(0.02)

    return per_task("array", count, seconds_of(work), done)


def busy_client() -> Any:
    """A client of a server whose slots are all taken for a long time."""
    server = warm_client()
    server.submit({"tasks": [{"command": ["/bin/sleep", "600"], "array": f"1-{SLOTS}"}], "cwd": "/"})
    while server.server()["live"] < SLOTS:
        time.sleep(0.05)
    return server


def server_memory(server: Any, name: str) -> Figures:
    """What the server's process holds now."""
    pid = server.server()["pid"]
    return {f"{name}_mb": settled_mb(pid), f"{name}_peak_mb": resident_mb(pid, peak=True)}


def submit_patiently(server: Any, submission: dict[str, Any]) -> None:
    """Submit, and again later if the server refuses because it is busy."""
    errors = importlib.import_module("shoal.model.errors")
    while True:
        try:
            server.submit(submission)
        except errors.ShoalError as error:
            if not error.transient:
                raise
            time.sleep(0.5)
        else:
            return


def memory(count: int) -> Figures:
    """Each task with a command line of its own."""
    server = busy_client()
    for first in range(0, count, SPECS):
        last = min(count, first + SPECS)
        tasks = [{"name": f"t{n}", "command": ["/bin/true", str(n)]} for n in range(first, last)]
        submit_patiently(server, {"tasks": tasks, "cwd": "/"})
    return server_memory(server, "memory")


def memory_array(count: int) -> Figures:
    """The same number as one array."""
    server = busy_client()
    server.submit({"tasks": [{"command": ["/bin/true", "{i}"], "array": f"1-{count}"}], "cwd": "/"})
    return server_memory(server, "memory_array")


def own_version() -> str:
    """The version of this clone."""
    return str(importlib.import_module("shoal").__version__)


SYSTEMS = (
    System(
        "shoal",
        "Shoal",
        __name__,
        (
            Case("functions", 10_000, functions),
            Case("commands", 5_000, commands, "`shoal sweep`, its own start included"),
            Case("round_trip", 300, round_trip),
            Case("round_trip", 300, round_trip_command, "a command, submitted and awaited over HTTP"),
            Case("cold_start", 1, cold_start, "`shoal run -- true`"),
            Case("cold_start", 1, cold_start_function),
            Case("queue", 1_000, functions),
            Case("queue", 100_000, functions, once=True),
            Case("queue", 1_000, array, "an array of commands"),
            Case("queue", 1_000_000, array, "the first 1,000 commands of an array that long"),
            Case("memory", 100_000, memory, "distinct tasks", once=True),
            Case("memory", 100_000, memory_array, "one array", once=True),
        ),
        own_version,
    ),
)
