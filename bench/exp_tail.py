"""How close to a perfect schedule do tasks of very different lengths end?

2,000 sleeps as commands, log-normal with mean 0.25 s and sigma 1.5, on 16 slots, over the time that a greedy schedule
without any overhead would take with them in the same order. Three times, one after another on one server.
"""

from __future__ import annotations

import heapq
import math
import os
import subprocess
import sys
import time
from random import Random

from bench.serving import Serving, events_of, real_pilot, repetitions, report_median, serving
from shoal.client.client import Client
from shoal.client.environment import environment_field
from shoal.model.file_names import SERVER_FILE

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


def seconds_of_run(server: Serving, client: Client, tasks: list[float]) -> float:
    """From the submission of all of them to the end of the last."""
    cwd = str(server.state.parent)
    table = {"command": ["sleep", "{x}"], "params": {"x": [f"{task:.4f}" for task in tasks]}}
    began = time.monotonic()
    run = client.submit({"tasks": [table], "cwd": cwd, **environment_field(server.url)})["run"]
    ends = [event for event in events_of(client, run) if event["kind"] == "run_finished"]
    took = time.monotonic() - began
    if ends[0]["data"]["counts"] != {"succeeded": len(tasks)}:
        raise RuntimeError(ends[0])
    return took


def main() -> None:
    """Measure and print."""
    tasks = lengths()
    with serving() as server, real_pilot(server, SLOTS, "--server-file", str(server.state / SERVER_FILE)):
        warm_up = [sys.executable, "-m", "shoal.cli", "sweep", "-q", "x=0..20", "--", "true"]
        env = {**os.environ, "XDG_STATE_HOME": str(server.state.parent)}
        subprocess.run(warm_up, env=env, check=True, capture_output=True)
        with server.client as client:
            times = [seconds_of_run(server, client, tasks) for _ in range(repetitions())]
    ideal = perfect(tasks)
    note = f"over {ideal:.2f} s, {TASKS} sleeps on {SLOTS} slots"
    report_median("tail_ratio", [took / ideal for took in times], "ratio", note)


if __name__ == "__main__":
    main()
