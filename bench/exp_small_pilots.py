"""How many tasks a second get through a server to 1,000 pilots of one core, each task reported alone?

Each pilot has a host and tags of its own. An exchange brings the report of one task and takes the lease of the next;
nothing is executed. Plain tasks, tasks with a requirement and a rank, and tasks of a hundred classes, each with a
requirement and a rank of its own, in turns on one server. The pilots share the machine with the server: their part of
the processor time is printed.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any, NamedTuple

from bench.serving import Serving, report, serving
from bench.small_pilots import SmallPilot, run_small

PILOTS = 1_000
TASKS = 8_000
CLASSES = 100
ROUNDS = 3
_TICK = os.sysconf("SC_CLK_TCK")


class Measured(NamedTuple):
    """One round: tasks a second, and microseconds of processor time for each task."""

    rate: float
    server: float
    pilots: float


def server_seconds(pid: int) -> float:
    """The processor time of a process so far."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def tasks_of(kind: str) -> list[dict[str, Any]]:
    """What is submitted. About one pilot of ten does not meet the requirement, and waits."""
    if kind == "plain":
        return [{"command": ["true"], "array": f"1-{TASKS}"}]
    each = {"command": ["true"], "require": 'cpu_mhz >= 2100 and arch == "x86_64" and has(disk_mb)'}
    if kind == "ranked":
        return [{**each, "array": f"1-{TASKS}", "rank": "cpu_mhz * 0.5 - load * 100"}]
    return [
        {**each, "array": f"1-{TASKS // CLASSES}", "rank": f"cpu_mhz * 0.5 - load * {number + 1}"}
        for number in range(CLASSES)
    ]


def measure(server: Serving, pilots: list[SmallPilot], kind: str) -> Measured:
    """Submit tasks and let the pilots work them off."""
    pid = server.process.pid
    began, used, mine = time.monotonic(), server_seconds(pid), time.process_time()
    server.submit(tasks_of(kind))  # a thousand pilots wait for it, and are matched before it is answered
    done = run_small(pilots, TASKS)
    rate = done / (time.monotonic() - began)
    return Measured(rate, (server_seconds(pid) - used) / done * 1e6, (time.process_time() - mine) / done * 1e6)


def spread(values: list[float], form: str) -> str:
    """The least and the most."""
    return f"{min(values):{form}} to {max(values):{form}}"


def main() -> None:
    """Measure and print."""
    with serving() as server:
        pilots = [SmallPilot(server.url, server.enrol, number) for number in range(PILOTS)]
        for kind in ("plain", "ranked", "classes"):
            measure(server, pilots, kind)
        exchanges = sum(pilot.exchanges for pilot in pilots)
        found: dict[str, list[Measured]] = {"plain": [], "ranked": [], "classes": []}
        for _ in range(ROUNDS):
            for kind, rounds in found.items():
                rounds.append(measure(server, pilots, kind))
        exchanges = sum(pilot.exchanges for pilot in pilots) - exchanges
        for pilot in pilots:
            pilot.sock.close()
    plain = found["plain"]
    rates = [one.rate for one in plain]
    server_us, pilots_us = (statistics.median(some) for some in zip(*(one[1:] for one in plain), strict=True))
    note = f"{spread(rates, '.0f')}; {exchanges / (3 * ROUNDS * TASKS):.2f} exchanges a task"
    note += f"; processor time a task: server {server_us:.0f} us, all pilots {pilots_us:.0f} us"
    report("dispatch_1000_single_per_s", statistics.median(rates), "1/s", note)
    for kind in ("ranked", "classes"):
        ratios = [one.rate / base.rate for one, base in zip(found[kind], plain, strict=True)]
        middle = statistics.median(one.rate for one in found[kind])
        cost = statistics.median(one.server for one in found[kind])
        note = f"{spread(ratios, '.2f')}; {middle:.0f} a second, server {cost:.0f} us a task"
        report(f"dispatch_1000_{kind}_ratio", statistics.median(ratios), "ratio", note)


if __name__ == "__main__":
    main()
