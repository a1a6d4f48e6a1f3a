"""Does it matter how much is queued? Submitting, time per task and memory, with a million and with a thousand; and how
soon a killed server answers again with all that in its database.

Times per task are of the steady state on both sides: windows of as many tasks, in turns, before and after which the
pilots go on. For each thousand tasks done a thousand are submitted, so the queue is as long at the end as it was.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any, NamedTuple

from bench.emulate import EmulatedPilot, run_until
from bench.serving import Serving, kill_and_restart, report, serving

ROUNDS = 5
RESTARTS = 3
SOME = 10_000  # tasks of an array by which the time per task is taken
FEW = 3_000  # of distinct tasks
STEP = 1_000  # tasks that are submitted at once in a steady state, and queued in the short queue at least


def array(count: int) -> list[dict[str, Any]]:
    """One array."""
    return [{"command": ["true", "{i}"], "array": f"1-{count}"}]


class Steady(NamedTuple):
    """A server that works off a queue, which stays as long as it is."""

    server: Serving
    pilots: list[EmulatedPilot]
    more: list[dict[str, Any]]  # what is submitted for each STEP tasks that are done

    def per_task(self, count: int) -> float:
        """Seconds per task while so many are done, from now on."""
        began, done = time.monotonic(), 0
        while done < count:
            self.server.submit(self.more)
            done += run_until(self.pilots, STEP)
        return (time.monotonic() - began) / done


def compare(name: str, large: Steady, small: Steady, count: int, note: str) -> list[float]:
    """Report how much longer a task takes in the large queue; the times there. The first window of each is not counted."""
    pairs = [(large.per_task(count), small.per_task(count)) for _ in range(ROUNDS + 1)][1:]
    ratios = [one / other for one, other in pairs]
    report(name, statistics.median(ratios), "ratio", f"{note}; {spread(ratios)} in windows of {count:,} tasks each")
    return [one for one, _ in pairs]


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
            if len(times) < ROUNDS:
                run_until(one, SOME)
                large.client.cancel([run])
        report("array_1m_submit_s", statistics.median(times), "s", "accepted and durable")
        little.submit(array(STEP))
        more = array(STEP)
        note = "time per task, 1,000,000 over 1,000 queued"
        took = compare("array_flat", Steady(large, one, more), Steady(little, other, more), SOME, note)
        report("array_task_us", 1e6 * statistics.median(took), "us", "with 1,000,000 queued")
        run_until(one, 200_000 - SOME * (ROUNDS + 1))
        report("rss_1m_array_mb", large.rss_mb(), "MB", "server, after 200,000 of 1,000,000 elements")


def spread(values: list[float]) -> str:
    """The least and the most."""
    return f"{min(values):.3g} to {max(values):.3g}"


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
        more = distinct(STEP, 100)[0]
        little.submit(more)
        note = "time per task, 100,000 over 1,000"
        took = compare("distinct_flat", Steady(large, one, more), Steady(little, other, more), FEW, note)
        report("distinct_task_us", 1e6 * statistics.median(took), "us", "with 100,000 queued")


def restart() -> None:
    """Kill a server with much in its database; from the start of the next one to its first answered exchange."""
    with serving() as server:
        server.submit(array(1_000_000))
        pilots = server.pilots(8)
        run_until(pilots, 200_000)
        for part in distinct(100_000, 10_000):
            server.submit(part)
        times = [kill_and_restart(server, pilots[0]) for _ in range(RESTARTS)]
        note = "kill -9; 1,000,000 elements, 200,000 done, and 100,000 distinct tasks"
        report("restart_1m_s", statistics.median(times), "s", f"{note}; {spread(times)} in {RESTARTS} restarts")


def main() -> None:
    """Measure and print."""
    arrays()
    mixed()
    restart()


if __name__ == "__main__":
    main()
