"""How close to a perfect schedule do tasks of very different lengths end?

2,000 sleeps as commands, log-normal with mean 0.25 s and sigma 1.5, on 16 slots, over the time that a greedy schedule
without any overhead would take with them in the same order.
"""

from __future__ import annotations

import heapq
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from bench.serving import events_of, line
from shoal.client.client import Client
from shoal.client.environment import environment_field

TASKS, SLOTS, MEAN, SIGMA = 2_000, 16, 0.25, 1.5


def lengths() -> list[float]:
    """Seconds of each task."""
    rng = Random(7)
    mu = math.log(MEAN) - SIGMA**2 / 2
    return [round(rng.lognormvariate(mu, SIGMA), 4) for _ in range(TASKS)]


def perfect(tasks: list[float]) -> float:
    """Each task goes to the slot that is free first, at no cost."""
    slots = [0.0] * SLOTS
    for task in tasks:
        heapq.heappush(slots, heapq.heappop(slots) + task)
    return max(slots)


def main() -> None:
    """Measure and print."""
    tasks = lengths()
    place = Path(tempfile.mkdtemp(prefix="shoal-bench-", dir=os.environ.get("SHOAL_BENCH_DIR", "/var/tmp")))
    env = {**os.environ, "XDG_STATE_HOME": str(place)}
    shoal = [sys.executable, "-m", "shoal.cli"]
    server = subprocess.Popen(
        [sys.executable, "-m", "shoal.server", "--embedded", "--no-pilot", "--state", str(place / "shoal")],
        stderr=subprocess.DEVNULL,
    )
    pilot: subprocess.Popen[bytes] | None = None
    try:
        while not (place / "shoal" / "server.json").exists():
            time.sleep(0.01)
        while not (place / "shoal" / "pilot.pyz").exists():
            time.sleep(0.01)
        pilot = subprocess.Popen(
            [sys.executable, str(place / "shoal" / "pilot.pyz"), "--server-file", str(place / "shoal" / "server.json"),
             "--cores", str(SLOTS)], stderr=subprocess.DEVNULL,
        )  # fmt: skip
        subprocess.run([*shoal, "sweep", "-q", "x=0..20", "--", "true"], env=env, check=True, capture_output=True)
        told = json.loads((place / "shoal" / "server.json").read_text())
        with Client(told["url"], told["token"]) as client:
            table = {"command": ["sleep", "{x}"], "params": {"x": [f"{task:.4f}" for task in tasks]}}
            began = time.monotonic()
            run = client.submit({"tasks": [table], "cwd": str(place), **environment_field(told["url"])})["run"]
            ends = [event for event in events_of(client, run) if event["kind"] == "run_finished"]
            took = time.monotonic() - began
        if ends[0]["data"]["counts"] != {"succeeded": TASKS}:
            raise RuntimeError(ends[0])
    finally:
        if pilot is not None:
            pilot.terminate()
            pilot.wait(60)
        server.terminate()
        server.wait(60)
        shutil.rmtree(place, ignore_errors=True)
    ideal = perfect(tasks)
    line("tail_ratio", took / ideal, "ratio", f"{took:.2f} s over {ideal:.2f} s, {TASKS} sleeps on {SLOTS} slots")


if __name__ == "__main__":
    main()
