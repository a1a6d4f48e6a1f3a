"""How many tasks a second can a server lease, take back as reports and commit, all durable?

Emulated pilots speak the real protocol, at most 100 tasks an exchange; nothing is executed. Then the same with a
thousand pilots. And tasks of a hundred classes, with a requirement and a rank of its own on each, on pilots of different
tags, over as many classes without, in turns.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from bench.emulate import EmulatedPilot, run_until
from bench.serving import Serving, report, serving

ROUNDS = 3
TASKS = 40_000
ARRAYS = 100  # of different classes, where they are several


def expressions(number: int, with_expressions: bool) -> dict[str, Any]:
    """What makes this array a class of its own."""
    own = {"time": f"{3_600 + number}s"}
    if not with_expressions:
        return own
    require = f'memory_mb >= {number} and arch == "x86_64" and has(disk_mb)'
    return {**own, "require": require, "rank": f"cpu_mhz * {number % 7} - load * {number}"}


def rate(
    server: Serving, pilots: list[EmulatedPilot], tasks: int, arrays: int = 1, with_expressions: bool = False
) -> float:
    """Tasks per second with so many queued."""
    each = {"command": ["true"], "array": f"1-{tasks // arrays}"}
    made = [{**each, **expressions(number, with_expressions)} for number in range(arrays)]
    server.submit(made)
    began = time.monotonic()
    done = run_until(pilots, tasks)
    return done / (time.monotonic() - began)


def compared(arrays: int) -> tuple[float, str]:
    """Dispatch with expressions over dispatch without, and a note with both rates."""
    with serving() as server:
        pilots = server.pilots(8)
        pairs = []
        for _ in range(ROUNDS + 2):
            plain = rate(server, pilots, TASKS, arrays)
            pairs.append((rate(server, pilots, TASKS, arrays, with_expressions=True), plain))
        for pilot in pilots:
            pilot.close()
    pairs = pairs[1:]
    ones, others = (statistics.median(some) for some in zip(*pairs, strict=True))
    ratios = [a / b for a, b in pairs]
    note = f"{min(ratios):.2f} to {max(ratios):.2f}; {ones:.0f} over {others:.0f} a second, {TASKS} tasks in {arrays} classes"
    return statistics.median(ratios), note


def main() -> None:
    """Measure and print."""
    with serving() as server:
        pilots = server.pilots(8)
        rate(server, pilots, 5_000)
        rates = [rate(server, pilots, TASKS) for _ in range(ROUNDS)]
        report(
            "dispatch_per_s", statistics.median(rates), "1/s", f"8 pilots, {TASKS} tasks, FULL, db in {server.state}"
        )
        exchanges = sum(p.exchanges for p in pilots)
        report("dispatch_tasks_per_exchange", sum(p.done for p in pilots) / exchanges, "tasks", "")
        for pilot in pilots:
            pilot.close()
    ratio, note = compared(ARRAYS)
    report("dispatch_expr_ratio", ratio, "ratio", note)
    with serving() as server:
        pilots = server.pilots(1_000)
        rate(server, pilots, 20_000)
        rates = [rate(server, pilots, TASKS) for _ in range(ROUNDS)]
        report("dispatch_1000_pilots_per_s", statistics.median(rates), "1/s", f"1,000 pilots, {TASKS} tasks, FULL")


if __name__ == "__main__":
    main()
