"""How long is one call of a function that does nothing under way on an idle, warm system?

Also without its waits for the disk: the server adds up how long answers waited for commits, and only one call is under
way at a time, so that the difference before and after is the wait of that very call.
"""

from __future__ import annotations

import os
import re
import statistics
import time

import shoal
from bench.serving import Serving, report, serving
from shoal.client.client import Client

CALLS = 300


def nothing() -> None:
    """A call that costs nothing."""


def waited(client: Client) -> float:
    """Seconds that answers waited for commits so far."""
    found = re.search(r"^shoal_commit_wait_seconds_total (\S+)$", client.metrics(), re.M)
    assert found is not None
    return float(found[1])


def measure(server: Serving) -> tuple[list[float], list[float]]:
    """Seconds of each round trip, and of each without its commits."""
    whole, without = [], []
    os.environ.update(SHOAL_SERVER=server.url, SHOAL_TOKEN=server.token)
    with server.client as client, shoal.Executor(attach=False) as pool:
        for _ in range(50):
            pool.submit(nothing).result()
        before = waited(client)
        for _ in range(CALLS):
            began = time.perf_counter()
            pool.submit(nothing).result()
            took = time.perf_counter() - began
            after = waited(client)
            whole.append(took)
            without.append(took - (after - before))
            before = after
    return sorted(whole), sorted(without)


def main() -> None:
    """Measure and print."""
    with serving("--pilot") as server:
        whole, without = measure(server)
        report("roundtrip_p50_ms", 1000 * statistics.median(whole), "ms", "one call at a time, FULL")
        report("roundtrip_p99_ms", 1000 * whole[int(0.99 * len(whole))], "ms", "the same")
        report("roundtrip_cpu_ms", 1000 * statistics.median(without), "ms", "median of round trip less its own commits")
    with serving("--pilot", "--durability", "normal") as server:
        whole, _ = measure(server)
        report("roundtrip_normal_p50_ms", 1000 * statistics.median(whole), "ms", "durability normal")


if __name__ == "__main__":
    main()
