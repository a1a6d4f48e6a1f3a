"""Ray: one local node of two CPUs, without its dashboard."""

from __future__ import annotations

import importlib
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.peers.processes import descendants, resident_mb, settled_mb
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


def node() -> Any:
    """Ray, started; its sockets have long names, so its directory has a short one."""
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")
    ray = importlib.import_module("ray")
    ray.init(
        num_cpus=SLOTS,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        log_to_driver=False,
        logging_level=50,
        _temp_dir=str(Path("r").absolute()),
    )
    return ray


def warm() -> Any:
    """The same, once it has run some tasks."""
    ray = node()
    call = ray.remote(noop)
    ray.get([call.remote() for _ in range(200)])
    return ray


def functions(count: int) -> Figures:
    ray = warm()
    call = ray.remote(noop)
    return rate(count, lambda: ray.get([call.remote() for _ in range(count)]))


def commands(count: int) -> Figures:
    ray = warm()
    call = ray.remote(run_true)
    return rate(count, lambda: ray.get([call.remote() for _ in range(count)]))


def round_trip(count: int) -> Figures:
    ray = warm()
    call = ray.remote(noop)
    return round_trips(count, lambda: ray.get(call.remote()))


def round_trip_command(count: int) -> Figures:
    ray = warm()
    call = ray.remote(run_true)
    return round_trips(count, lambda: ray.get(call.remote()))


def dag_fan(_: int) -> Figures:
    ray = warm()
    call = ray.remote(step)
    return fan(call.remote, ray.get)


def dag_chains(_: int) -> Figures:
    ray = warm()
    call = ray.remote(step)
    return chains(call.remote, ray.get)


def cold_start(_: int) -> Figures:
    ray = node()
    ray.get(ray.remote(noop).remote())
    return since_start()


def queue(waiting: int) -> Figures:
    """The driver holds the queue of what it submitted; the two daemons are counted as the server."""
    ray, release = warm(), release_file()
    block, call = ray.remote(hold), ray.remote(noop)
    daemons = [descendants("raylet/raylet")[0], descendants("gcs_server")[0]]
    holding = [block.remote(str(release)) for _ in range(SLOTS)]
    futures = [call.remote() for _ in range(queued(waiting))]
    memory = {"memory_mb": sum(settled_mb(pid) for pid in daemons), "memory_client_mb": resident_mb("self")}
    figures = release_and_time(release, lambda number: ray.get(futures[:number]))
    del holding
    return {**figures, **memory}


SYSTEMS = (
    System(
        "ray",
        "Ray",
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
            Case(
                "long_queue", LONG, queue, "memory: raylet and GCS, and the client, Ray's driver, which has the queue"
            ),
        ),
        lambda: version("ray"),
        peer="ray",
    ),
)
