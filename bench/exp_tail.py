"""How close to a perfect schedule do tasks of very different lengths end?

2,000 sleeps as commands, log-normal with mean 0.25 s and sigma 1.5, on 16 slots, over the time that a greedy schedule
without any overhead would take with them in the same order.
"""

from __future__ import annotations

import heapq
import math
import os
import subprocess
import sys
import time
from random import Random

from bench.serving import events_of, real_pilot, report, serving
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


def main() -> None:
    """Measure and print."""
    tasks = lengths()
    with serving() as server, real_pilot(server, SLOTS, "--server-file", str(server.state / SERVER_FILE)):
        path = server.state.parent
        warm_up = [sys.executable, "-m", "shoal.cli", "sweep", "-q", "x=0..20", "--", "true"]
        env = {**os.environ, "XDG_STATE_HOME": str(path)}
        subprocess.run(warm_up, env=env, check=True, capture_output=True)
        with server.client as client:
            table = {"command": ["sleep", "{x}"], "params": {"x": [f"{task:.4f}" for task in tasks]}}
            began = time.monotonic()
            run = client.submit({"tasks": [table], "cwd": str(path), **environment_field(server.url)})["run"]
            ends = [event for event in events_of(client, run) if event["kind"] == "run_finished"]
            took = time.monotonic() - began
    if ends[0]["data"]["counts"] != {"succeeded": TASKS}:
        raise RuntimeError(ends[0])
    ideal = perfect(tasks)
    report("tail_ratio", took / ideal, "ratio", f"{took:.2f} s over {ideal:.2f} s, {TASKS} sleeps on {SLOTS} slots")


if __name__ == "__main__":
    main()
