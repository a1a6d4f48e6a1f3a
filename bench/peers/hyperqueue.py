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

from bench.peers.processes import resident_mb, settled_mb
from bench.peers.system import Case, Figures, System
from bench.peers.timing import SLOTS, noop, rate, round_trips, since_start

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
    figures = rate("functions", count, lambda: jobs.append(cluster.functions(count)), queue=False)
    cluster.client.wait_for_jobs(jobs)  # raises if a task failed
    return figures


def commands(count: int) -> Figures:
    cluster, jobs = warm(), []
    figures = rate("commands", count, lambda: jobs.append(cluster.commands(count)))
    cluster.client.wait_for_jobs(jobs)
    return figures


def round_trip(count: int) -> Figures:
    cluster = warm()
    return round_trips(count, lambda: cluster.commands(0))


def cold_start(_: int) -> Figures:
    Cluster().commands(0)
    return {"cold_start_s": since_start()}


def memory(count: int) -> Figures:
    cluster = warm()
    job = cluster.job()
    for _ in range(SLOTS):
        job.program(["/bin/sleep", "600"], **QUIET)
    for _ in range(count):
        job.program(["/bin/true"], **QUIET)
    cluster.client.submit(job)
    del job
    return {"memory_mb": settled_mb(os.getpid()), "memory_peak_mb": resident_mb("self", peak=True)}


SYSTEMS = (
    System(
        "hyperqueue",
        "HyperQueue",
        __name__,
        (
            Case("functions", 100, functions, "an interpreter per function, no result comes back"),
            Case("commands", 5_000, commands),
            Case("round_trip", 300, round_trip, "a command"),
            Case("cold_start", 1, cold_start, "a command; no server process to start"),
            Case("queue", 1_000, commands, "commands"),
            Case("queue", 10_000, commands, "commands", once=True),
            Case("memory", 100_000, memory, "server, worker and client are one process", once=True),
        ),
        lambda: version("hyperqueue"),
        peer="hyperqueue",
    ),
)
