"""Ray: one local node of two CPUs, without its dashboard."""

from __future__ import annotations

import importlib
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.peers.processes import descendants, resident_mb, settled_mb
from bench.peers.system import Case, Figures, System
from bench.peers.timing import SLOTS, noop, rate, round_trips, run_true, since_start, sleep_long


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
    return rate("functions", count, lambda: ray.get([call.remote() for _ in range(count)]))


def commands(count: int) -> Figures:
    ray = warm()
    call = ray.remote(run_true)
    return rate("commands", count, lambda: ray.get([call.remote() for _ in range(count)]), queue=False)


def round_trip(count: int) -> Figures:
    ray = warm()
    call = ray.remote(noop)
    return round_trips(count, lambda: ray.get(call.remote()))


def cold_start(_: int) -> Figures:
    ray = node()
    ray.get(ray.remote(noop).remote())
    return {"cold_start_s": since_start()}


def memory(count: int) -> Figures:
    """The driver holds the queue of what it submitted; the two daemons are counted as the server."""
    ray = warm()
    block, call = ray.remote(sleep_long), ray.remote(noop)
    daemons = [descendants("raylet/raylet")[0], descendants("gcs_server")[0]]
    futures = [block.remote() for _ in range(SLOTS)] + [call.remote() for _ in range(count)]
    figures = {
        "memory_mb": sum(settled_mb(pid) for pid in daemons),
        "memory_peak_mb": sum(resident_mb(pid, peak=True) for pid in daemons),
        "memory_client_mb": resident_mb("self"),
    }
    del futures
    return figures


SYSTEMS = (
    System(
        "ray",
        "Ray",
        __name__,
        (
            Case("functions", 10_000, functions),
            Case("commands", 5_000, commands, "a function that calls subprocess.call"),
            Case("round_trip", 300, round_trip),
            Case("cold_start", 1, cold_start),
            Case("queue", 1_000, functions),
            Case("queue", 100_000, functions, once=True),
            Case(
                "memory", 100_000, memory, "raylet and GCS; the queue itself is in the client, Ray's driver", once=True
            ),
        ),
        lambda: version("ray"),
        peer="ray",
    ),
)
