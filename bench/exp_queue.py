"""Does it matter how much is queued? Submitting, time per task and memory, with a million and with a thousand; and how
soon a killed server answers again with all that in its database."""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

from bench.emulate import EmulatedPilot, run_until
from bench.serving import Serving, kill_and_restart, report, serving

ROUNDS = 3
SOME = 10_000  # tasks by which the time per task is taken


def array(count: int) -> list[dict[str, Any]]:
    """One array."""
    return [{"command": ["true", "{i}"], "array": f"1-{count}"}]


def per_task(server: Serving, pilots: list[EmulatedPilot], count: int) -> float:
    """Seconds per task while so many are done, from now on."""
    began = time.monotonic()
    done = run_until(pilots, count)
    return (time.monotonic() - began) / done


def small(server: Serving, pilots: list[EmulatedPilot]) -> float:
    """Seconds per task when a thousand are queued: ten runs, one after another."""
    times = []
    for _ in range(SOME // 1_000):
        server.submit(array(1_000))
        times.append(per_task(server, pilots, 1_000))
    return statistics.mean(times)


def arrays() -> None:
    """A thousand against a million elements, on two servers, in turns."""
    with serving() as large, serving() as little:
        print(f"# databases in {large.state} and {little.state}", file=sys.stderr)
        one = large.pilots(4)
        other = little.pilots(4)
        times = []
        for _ in range(ROUNDS):
            began = time.monotonic()
            run = large.submit(array(1_000_000))
            times.append(time.monotonic() - began)
            per_task(large, one, SOME)  # how long they take is learnt
            if len(times) < ROUNDS:
                large.client.cancel([run])
        report("array_1m_submit_s", statistics.median(times), "s", "accepted and durable")
        small(little, other)
        pairs = [(per_task(large, one, SOME), small(little, other)) for _ in range(ROUNDS)]
        report(
            "array_flat",
            statistics.median(a / b for a, b in pairs),
            "ratio",
            "time per task, 1,000,000 over 1,000 queued",
        )
        report("array_task_us", 1e6 * statistics.median(a for a, _ in pairs), "us", "with 1,000,000 queued")
        run_until(one, 200_000 - SOME * (ROUNDS + 1))
        report("rss_1m_array_mb", large.rss_mb(), "MB", "server, after 200,000 of 1,000,000 elements")


def distinct(count: int, classes: int) -> list[list[dict[str, Any]]]:
    """Tasks that are all different, in so many classes, as submissions of at most 10,000."""
    tasks = [{"command": ["true", f"--number={n}"], "priority": n % classes} for n in range(count)]
    return [tasks[at : at + 10_000] for at in range(0, count, 10_000)]


def mixed() -> None:
    """A thousand tasks in a hundred classes against a hundred thousand in ten thousand."""
    with serving() as large, serving() as little:
        one = large.pilots(4)
        other = little.pilots(4)
        for part in distinct(100_000, 10_000):
            large.submit(part)
        report("rss_100k_distinct_mb", large.rss_mb(), "MB", "server, 100,000 distinct tasks queued")
        pairs = []
        for _ in range(ROUNDS):
            little.submit(distinct(1_000, 100)[0])
            pairs.append((per_task(large, one, 3_000), per_task(little, other, 1_000)))
        report(
            "distinct_flat", statistics.median(a / b for a, b in pairs), "ratio", "time per task, 100,000 over 1,000"
        )
        report("distinct_task_us", 1e6 * statistics.median(a for a, _ in pairs), "us", "with 100,000 queued")


def restart() -> None:
    """Kill a server with much in its database; from the start of the next one to its first answered exchange."""
    with serving() as server:
        server.submit(array(1_000_000))
        pilots = server.pilots(8)
        run_until(pilots, 200_000)
        for part in distinct(100_000, 10_000):
            server.submit(part)
        took = kill_and_restart(server, pilots[0])
        report("restart_1m_s", took, "s", "kill -9; 1,000,000 elements, 200,000 done, and 100,000 distinct tasks")


def main() -> None:
    """Measure and print."""
    arrays()
    mixed()
    restart()


if __name__ == "__main__":
    main()
