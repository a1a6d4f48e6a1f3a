"""How soon does an urgent task start behind a queue of short ones, which a pilot fetches ahead? [protocol 5.3]

A server and a pilot of two slots; the queue holds more `sleep` commands of 1, 10, 100 or 1,000 ms than can be run. Now and
then a task of a higher priority is submitted: from there to the moment at which its process began, by the process's own
clock. Every second one is of a class that was never seen before, so that nobody knows how long it takes.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Iterator

from bench.serving import Serving, events_of, repetitions, report_median, serving
from shoal.client.client import Client
from shoal.client.environment import environment_field

LENGTHS = {0.001: 60_000, 0.01: 12_000, 0.1: 2_000, 1.0: 300}  # seconds -> tasks in the queue
TRIES = 12  # the slowest of them stands for the 95th percentile
WANTED = 1.5  # seconds


def first_start(client: Client, cwd: str, extra: dict[str, object], priority: float) -> float:
    """Seconds from the submission of an urgent task to its start."""
    task = {"command": ["date", "+%s.%N"], "priority": priority}
    came = time.time()
    run = client.submit({"tasks": [task], "cwd": cwd, **extra})["run"]
    for event in events_of(client, run):
        if event["kind"] == "run_finished" and event["data"]["counts"] != {"succeeded": 1}:
            raise RuntimeError(event)
    return float(client.task(f"{run}.1")["task"]["last_line"]) - came


def slowest_start(
    server: Serving, client: Client, length: float, rng: random.Random, priorities: Iterator[int]
) -> float:
    """The slowest of some urgent tasks behind a queue of tasks of this length."""
    cwd, extra = str(server.state.parent), environment_field(server.url)
    table = {"command": ["sleep", f"{length}"], "params": {"i": f"1..{LENGTHS[length]}"}}
    queue = client.submit({"tasks": [table], "cwd": cwd, **extra})["run"]
    time.sleep(2.0)  # the pilot comes up, and fetches ahead
    waits = []
    for at in range(TRIES):
        time.sleep(rng.uniform(0.0, 0.3))
        waits.append(first_start(client, cwd, extra, 10 if at % 2 else next(priorities)))
    if client.run(queue)["finished"] is not None:
        raise RuntimeError("the queue ran dry")
    client.cancel([queue])
    return max(waits)


def main() -> None:
    """One queue after the other, and all of them again."""
    rng, priorities = random.Random(1), itertools.count(1_000)
    found: dict[float, list[float]] = {length: [] for length in LENGTHS}
    with serving("--pilot") as server, server.client as client:
        print(f"# database in {server.state}", file=sys.stderr)
        for _ in range(repetitions()):
            for length, slowest in found.items():
                slowest.append(slowest_start(server, client, length, rng, priorities))
    for length, slowest in found.items():
        note = f"slowest of {TRIES}, behind {LENGTHS[length]} x sleep {length}, 2 slots"
        report_median(f"fair_first_start_{int(length * 1000)}ms_s", slowest, "s", note)
    worst = [max(one) for one in zip(*found.values(), strict=True)]
    note = f"first start of an urgent task, slowest of {TRIES} of the worst of four lengths; wanted at most {WANTED}"
    report_median("fair_short_p95_s", worst, "s", note)


if __name__ == "__main__":
    main()
