"""How many tasks a second can a server lease, take back as reports and commit, all durable?

Emulated pilots speak the real protocol, at most 100 tasks an exchange; nothing is executed. Then the same with a
thousand pilots. Also: is a task as cheap with a million queued as with a thousand?
"""

from __future__ import annotations

import secrets
import statistics
import time

from bench.emulate import EmulatedPilot, run_until
from bench.serving import Serving, line, serving

ROUNDS = 3
TASKS = 40_000


def rate(server: Serving, pilots: list[EmulatedPilot], tasks: int) -> float:
    """Tasks per second with so many queued."""
    # With a key it may be repeated: a server that has just given work to a thousand pilots at once puts people off.
    server.client.submit(
        {"tasks": [{"command": ["true"], "array": f"1-{tasks}"}], "cwd": "/", "key": secrets.token_hex(8)}
    )
    began = time.monotonic()
    done = run_until(pilots, tasks)
    return done / (time.monotonic() - began)


def main() -> None:
    """Measure and print."""
    with serving() as server:
        pilots = [EmulatedPilot(server.url, server.enrol) for _ in range(8)]
        rate(server, pilots, 5_000)
        rates = [rate(server, pilots, TASKS) for _ in range(ROUNDS)]
        line("dispatch_per_s", statistics.median(rates), "1/s", f"8 pilots, {TASKS} tasks, FULL, db in {server.state}")
        exchanges = sum(p.exchanges for p in pilots)
        line("dispatch_tasks_per_exchange", sum(p.done for p in pilots) / exchanges, "tasks", "")
        for pilot in pilots:
            pilot.close()
    with serving() as server:
        pilots = [EmulatedPilot(server.url, server.enrol) for _ in range(1_000)]
        rate(server, pilots, 20_000)
        rates = [rate(server, pilots, TASKS) for _ in range(ROUNDS)]
        line("dispatch_1000_pilots_per_s", statistics.median(rates), "1/s", f"1,000 pilots, {TASKS} tasks, FULL")


if __name__ == "__main__":
    main()
