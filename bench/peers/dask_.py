"""Dask (distributed): a LocalCluster of two processes with a thread each, which is what `Client()` makes on two cores."""

from __future__ import annotations

import importlib
import subprocess
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.peers.processes import resident_mb, settled_mb
from bench.peers.system import CHAINED, FAN, LONG, SHORT, Case, Figures, System
from bench.peers.timing import (
    SLOTS,
    chains,
    fan,
    hold,
    noop,
    queued,
    rate,
    release_and_time,
    release_file,
    round_trips,
    run_true,
    since_start,
    step,
)


def cluster() -> Any:
    """A client of a fresh local cluster."""
    dask = importlib.import_module("distributed")
    return dask.Client(
        dask.LocalCluster(
            n_workers=SLOTS, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        )
    )


def warm(client: Any) -> Any:
    """The same, once its workers have answered."""
    client.wait_for_workers(SLOTS)
    client.gather(client.map(noop, range(50 * SLOTS), pure=False))
    return client


def functions(count: int) -> Figures:
    client = warm(cluster())
    return rate(count, lambda: client.gather(client.map(noop, range(count), pure=False)))


def commands(count: int) -> Figures:
    client = warm(cluster())
    return rate(count, lambda: client.gather(client.map(run_true, range(count), pure=False)))


def round_trip(count: int) -> Figures:
    client = warm(cluster())
    return round_trips(count, lambda: client.submit(noop, pure=False).result())


def round_trip_command(count: int) -> Figures:
    client = warm(cluster())
    return round_trips(count, lambda: client.submit(run_true, pure=False).result())


def dag_fan(_: int) -> Figures:
    client = warm(cluster())
    return fan(partial(client.submit, step, pure=False), client.gather)


def dag_chains(_: int) -> Figures:
    client = warm(cluster())
    return chains(partial(client.submit, step, pure=False), client.gather)


def cold_start(_: int) -> Figures:
    cluster().submit(noop, pure=False).result()
    return since_start()


def known(scheduler: Any) -> int:
    """How many tasks a scheduler knows; called inside it."""
    return len(scheduler.tasks)


def queue(waiting: int) -> Figures:
    """The scheduler as a process of its own (in a LocalCluster it shares the client's)."""
    dask = importlib.import_module("distributed")
    address, release = Path("scheduler.json").absolute(), release_file()

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        base = ["dask", arguments[0], "--scheduler-file", str(address), "--host", "127.0.0.1", "--no-dashboard"]
        return subprocess.Popen([*base, *arguments[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    scheduler = start("scheduler", "--port", "0")
    while not (address.exists() and address.stat().st_size):
        time.sleep(0.02)
    for number in range(SLOTS):
        start("worker", "--nthreads", "1", "--local-directory", f"worker{number}")
    client = warm(dask.Client(scheduler_file=str(address)))
    holding = client.map(hold, [str(release)] * SLOTS, pure=False)
    futures = client.map(noop, range(queued(waiting)), pure=False)
    while client.run_on_scheduler(lambda dask_scheduler: known(dask_scheduler)) < len(futures):
        time.sleep(0.2)
    memory = {"memory_mb": settled_mb(scheduler.pid), "memory_client_mb": resident_mb("self")}
    figures = release_and_time(release, lambda number: dask.wait(futures[:number]))
    del holding
    return {**figures, **memory}


SYSTEMS = (
    System(
        "dask",
        "Dask",
        __name__,
        (
            Case("functions", 5_000, functions),
            Case("commands", 2_000, commands, "a function that calls subprocess.call"),
            Case("round_trip", 300, round_trip),
            Case("round_trip_command", 200, round_trip_command, "a function that calls subprocess.call"),
            Case("cold_start", 1, cold_start, "a call"),
            Case("dag_fan", 1, dag_fan, FAN),
            Case("dag_chains", 1, dag_chains, CHAINED),
            Case("short_queue", SHORT, queue),
            Case("long_queue", LONG, queue, "memory: the scheduler, and the client"),
        ),
        lambda: version("distributed"),
        peer="dask",
    ),
)
