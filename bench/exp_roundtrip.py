"""How long is one call of a function, or one command, that does nothing under way on an idle, warm system?

Of a call also without its wait for the disk: its result is durable before it is shown, so one commit is on its path; that
of its submission goes on beside its execution [ADR 0034]. The server adds up how long answers to reports waited for their
commits, and only one call is under way at a time, so that the difference before and after is the wait of that very call.
"""

from __future__ import annotations

import os
import re
import secrets
import statistics
import time

import shoal
from bench.serving import Serving, report, serving
from shoal.client.client import Client

CALLS = 300
COMMANDS = 150


def nothing() -> None:
    """A call that costs nothing."""


def waited(client: Client) -> float:
    """Seconds that answers to reports waited for commits so far."""
    found = re.search(r"^shoal_report_commit_wait_seconds_total (\S+)$", client.metrics(), re.M)
    assert found is not None
    return float(found[1])


def measure(server: Serving) -> tuple[list[float], list[float]]:
    """Seconds of each round trip, and of each without the commit that its result waited for."""
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


def command(client: Client) -> None:
    """Submit /bin/true and wait for its end, as `shoal run` does."""
    tasks = [{"command": ["/bin/true"]}]
    run = str(client.submit({"tasks": tasks, "cwd": "/", "key": secrets.token_hex(8)})["run"])
    for events in client.pages(run, wait=10.0):
        if any(event["kind"] == "run_finished" for event in events):
            return


def measure_commands(server: Serving) -> list[float]:
    """Seconds from the submission of each command to its end."""
    found = []
    with server.client as client:
        for _ in range(30):
            command(client)
        for _ in range(COMMANDS):
            began = time.perf_counter()
            command(client)
            found.append(time.perf_counter() - began)
    return sorted(found)


def main() -> None:
    """Measure and print."""
    with serving("--pilot") as server:
        whole, without = measure(server)
        report("roundtrip_p50_ms", 1000 * statistics.median(whole), "ms", "one call at a time, FULL")
        report("roundtrip_p99_ms", 1000 * whole[int(0.99 * len(whole))], "ms", "the same")
        report("roundtrip_cpu_ms", 1000 * statistics.median(without), "ms", "median of round trip less its own commit")
        commands = measure_commands(server)
        report("command_roundtrip_ms", 1000 * statistics.median(commands), "ms", "one command at a time, FULL")
    with serving("--pilot", "--durability", "normal") as server:
        whole, _ = measure(server)
        report("roundtrip_normal_p50_ms", 1000 * statistics.median(whole), "ms", "durability normal")


if __name__ == "__main__":
    main()
