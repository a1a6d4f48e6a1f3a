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
from bench.peers.system import CHAIN, CHAINED, CHAINS, FAN, LONG, SHORT, WIDE, Case, Figures, System
from bench.peers.timing import (
    SLOTS,
    hold,
    hold_command,
    noop,
    queued,
    rate,
    release_and_time,
    release_file,
    round_trips,
    seconds_of,
    since_start,
)

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
    return rate(count, lambda: list(executor.map(noop, range(count))))


def commands(count: int) -> Figures:
    warm_client()
    arguments = ("sweep", "-q", f"i=1..{count}", "--", "/bin/true")
    return rate(count, lambda: cli(*arguments))


def round_trip(count: int) -> Figures:
    executor = warm_executor()
    return round_trips(count, lambda: executor.submit(noop, None).result())


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

    return round_trips(count, one)


def cold_start(_: int) -> Figures:
    return {"s": seconds_of(lambda: cli("run", "--", "true"))}


def cold_start_call(_: int) -> Figures:
    importlib.import_module("shoal").Executor().submit(noop, None).result()
    return since_start()


def workflow(shape: str) -> Figures:
    """Calls that wait for others, submitted as one workflow: each is a task of its own with its row and its event."""
    exp_dag = importlib.import_module("bench.exp_dag")
    dag = importlib.import_module("shoal.flow.dag")
    warm_executor()
    server = client()
    warm = server.submit(
        {**dag.document(dag.build(exp_dag.fan())), "cwd": "/"}
    )  # a pilot knows then how long they take
    wait_until_over(server, warm["run"])
    vertices = getattr(exp_dag, shape)()

    def all_of() -> None:
        run = server.submit({**dag.document(dag.build(vertices)), "cwd": "/"})["run"]
        wait_until_over(server, run)

    return {"per_s": (WIDE + 2 if shape == "fan" else CHAINS * CHAIN) / seconds_of(all_of)}


def wait_until_over(server: Any, run: str) -> None:
    """Wait for the end of a run, all of whose tasks must have succeeded."""
    while not any(server.pages(run, wait=5.0, kinds=("run_finished",))):
        pass
    counts = row_of(server, run)["counts"]
    if counts["succeeded"] != sum(counts.values()):
        raise RuntimeError(f"{run}: {counts}")


def row_of(server: Any, run: str) -> dict[str, Any]:
    """A run as it is listed, without its tasks and calls: to ask for those would cost the server what is measured."""
    return next(dict(row) for row in server.runs()["runs"] if row["run"] == run)


def wait_until_held(server: Any, run: str) -> None:
    """Wait until the tasks that keep the slots busy have all of them."""
    while row_of(server, run)["counts"].get("running", 0) < SLOTS:
        time.sleep(0.02)


def queue(waiting: int) -> Figures:
    """Calls by `map`, as many as the others have futures."""
    executor, server, release = warm_executor(), client(), release_file()
    pid = server.server()["pid"]
    holding = [executor.submit(hold, str(release)) for _ in range(SLOTS)]
    wait_until_held(server, executor.run)
    results, taken = executor.map(noop, range(queued(waiting))), 0
    while row_of(server, executor.run)["total"] < queued(waiting):
        time.sleep(0.1)  # until all of them are with the server
    memory = {"memory_mb": settled_mb(pid), "memory_client_mb": resident_mb("self")}

    def wait_for(number: int) -> None:
        nonlocal taken
        for _ in range(number - taken):
            next(results)
        taken = number

    figures = release_and_time(release, wait_for)
    del holding
    return {**figures, **memory}


def submit_patiently(server: Any, submission: dict[str, Any]) -> str:
    """Submit, and again later if the server refuses because it is busy; the run."""
    errors = importlib.import_module("shoal.model.errors")
    while True:
        try:
            return str(server.submit(submission)["run"])
        except errors.ShoalError as error:
            if not error.transient:
                raise
            time.sleep(0.5)


def queue_commands(waiting: int) -> Figures:
    """Commands, each with a command line and a name of its own."""
    server, release = warm_client(), release_file()
    pid = server.server()["pid"]
    held = server.submit({"tasks": [{"command": hold_command(str(release)), "array": f"1-{SLOTS}"}], "cwd": "/"})
    wait_until_held(server, held["run"])
    runs = []
    for first in range(0, queued(waiting), SPECS):
        last = min(queued(waiting), first + SPECS)
        tasks = [{"name": f"t{n}", "command": ["/bin/true", str(n)]} for n in range(first, last)]
        runs.append(submit_patiently(server, {"tasks": tasks, "cwd": "/"}))
    memory = {"memory_mb": settled_mb(pid)}

    def wait_for(number: int) -> None:
        while row_of(server, runs[0])["counts"].get("succeeded", 0) < number:
            time.sleep(0.01)

    return {**release_and_time(release, wait_for), **memory}


def own_version() -> str:
    """The version of this clone."""
    return str(importlib.import_module("shoal").__version__)


SYSTEMS = (
    System(
        "shoal",
        "Shoal",
        __name__,
        (
            Case("functions", 5_000, functions),
            Case("commands", 2_000, commands, "`shoal sweep`, its own start included"),
            Case("round_trip", 300, round_trip),
            Case("round_trip_command", 200, round_trip_command, "submitted and awaited over HTTP"),
            Case("cold_start", 1, cold_start, "`shoal run -- true`, a command"),
            Case("cold_start_call", 1, cold_start_call, "the first call of an Executor"),
            Case("dag_fan", 1, lambda _: workflow("fan"), FAN),
            Case("dag_chains", 1, lambda _: workflow("chains"), CHAINED),
            Case("short_queue", SHORT, queue),
            Case("long_queue", LONG, queue, "memory: the server, and the client"),
            Case("short_queue_commands", SHORT, queue_commands, "distinct commands"),
            Case("long_queue_commands", LONG, queue_commands, "distinct commands; memory: the server"),
        ),
        own_version,
    ),
)
