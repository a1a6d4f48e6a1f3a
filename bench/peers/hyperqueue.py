"""HyperQueue through its Python API: the wheel has no `hq` program, so server and worker are threads of one process.

A function is a fresh Python interpreter per task there, and gives no result back.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.peers.processes import settled_mb
from bench.peers.system import LONG, SHORT, Case, Figures, System
from bench.peers.timing import (
    FIRST,
    PATIENCE,
    SLOTS,
    WINDOW,
    hold_command,
    noop,
    queued,
    rate,
    release_file,
    round_trips,
    since_start,
)

STEP = 50  # with a queue, every so many tasks one makes a file, by which one sees how far it is
QUIET = {"stdout": None, "stderr": None}  # by default each task writes two files


class Cluster:
    """A server with one worker of two cores, and a client."""

    def __init__(self) -> None:
        self.hq = importlib.import_module("hyperqueue")
        cluster = importlib.import_module("hyperqueue.cluster")
        function = importlib.import_module("hyperqueue.task.function")
        client: Any = importlib.import_module("hyperqueue.client")
        client.create_progress_callback = lambda: lambda _: None  # no progress bar
        self.cluster = self.hq.LocalCluster()
        self.cluster.start_worker(cluster.WorkerConfig(cores=SLOTS))
        self.client = self.cluster.client(python_env=function.PythonEnv(python_bin=sys.executable))
        self.done = Path("done").absolute()

    def job(self) -> Any:
        """An empty job."""
        return self.hq.Job(max_fails=None, default_workdir=os.getcwd())

    def finish(self, job: Any) -> Any:
        """Submit, and see the end through a last task of lowest priority: the API's own wait looks once a second."""
        self.done.unlink(missing_ok=True)
        job.program(["/usr/bin/touch", str(self.done)], priority=-1000, **QUIET)
        submitted = self.client.submit(job)
        while not self.done.exists():
            time.sleep(0.0005)
        return submitted

    def commands(self, count: int) -> Any:
        """Run /bin/true so many times."""
        job = self.job()
        for _ in range(count):
            job.program(["/bin/true"], **QUIET)
        return self.finish(job)

    def functions(self, count: int) -> Any:
        """Call the function so many times."""
        job = self.job()
        for _ in range(count):
            job.function(noop, **QUIET)
        return self.finish(job)


def warm() -> Cluster:
    """A cluster that has run some tasks."""
    cluster = Cluster()
    cluster.commands(20)
    return cluster


def functions(count: int) -> Figures:
    cluster, jobs = warm(), []
    figures = rate(count, lambda: jobs.append(cluster.functions(count)))
    cluster.client.wait_for_jobs(jobs)  # raises if a task failed
    return figures


def commands(count: int) -> Figures:
    cluster, jobs = warm(), []
    figures = rate(count, lambda: jobs.append(cluster.commands(count)))
    cluster.client.wait_for_jobs(jobs)
    return figures


def round_trip_command(count: int) -> Figures:
    cluster = warm()
    return round_trips(count, lambda: cluster.commands(0))


def cold_start(_: int) -> Figures:
    Cluster().commands(0)
    return since_start()


def queue(waiting: int) -> Figures:
    """How far it is shows in files; with a long queue it may not get through the window in time."""
    cluster, release, steps = warm(), release_file(), Path("steps").absolute()
    steps.mkdir()
    job = cluster.job()
    for _ in range(SLOTS):
        job.program(hold_command(str(release)), priority=1000, **QUIET)
    for number in range(1, queued(waiting) + 1):
        is_step = number % STEP == 0 and FIRST <= number <= FIRST + WINDOW
        job.program(["/usr/bin/touch", str(steps / str(number))] if is_step else ["/bin/true"], **QUIET)
    cluster.client.submit(job)
    del job
    memory = settled_mb(os.getpid())
    release.touch()

    def come_to() -> int:
        return max((int(path.name) for path in steps.iterdir()), default=0)

    while come_to() < FIRST:
        time.sleep(0.001)
    began, first, last = time.perf_counter(), come_to(), 0
    while (last < FIRST + WINDOW and time.perf_counter() - began < PATIENCE) or last <= first:
        time.sleep(0.001)
        last = come_to()
    return {"per_s": (last - first) / (time.perf_counter() - began), "memory_mb": memory}


SYSTEMS = (
    System(
        "hyperqueue",
        "HyperQueue",
        __name__,
        (
            Case("functions", 50, functions, "an interpreter per function, no result comes back"),
            Case("commands", 2_000, commands),
            Case("round_trip_command", 200, round_trip_command),
            Case("cold_start", 1, cold_start, "a command; no server process to start"),
            Case("short_queue", SHORT, queue, "commands"),
            Case("long_queue", LONG, queue, "commands; memory: server, worker and client are one process"),
        ),
        lambda: version("hyperqueue"),
        peer="hyperqueue",
    ),
)
