"""How fast does a pilot run small commands, against bare spawning on the same machine in the same minute?

5,000 times /bin/true as one sweep with default settings on an embedded server (the submitter's directory and environment,
two streams, rusage, a row each, durability FULL), from its submission to its end,
over two bare posix_spawn loops that run at the same time; in turn, and
the median of the ratios. The loops run as two processes and as two threads: in each round the faster is the limit.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time

from bench.serving import Serving, events_of, report, serving
from shoal.client.environment import environment_field

COUNT = 5_000
ROUNDS = 3
SLOTS = 2


def _loop(count: int) -> None:
    for _ in range(count):
        os.waitpid(os.posix_spawn("/bin/true", ["/bin/true"], {}), 0)


def bare_threads(count: int) -> float:
    """Commands per second of two threads that do nothing but spawn and wait."""
    threads = [threading.Thread(target=_loop, args=(count // SLOTS,)) for _ in range(SLOTS)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return count / (time.monotonic() - began)


def bare_processes(count: int) -> float:
    """The same as two processes."""
    began = time.monotonic()
    pids = []
    for _ in range(SLOTS):
        pid = os.fork()
        if not pid:
            _loop(count // SLOTS)
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    return count / (time.monotonic() - began)


def shoal(server: Serving, count: int) -> float:
    """The same through Shoal: durable, logged, accounted."""
    table = {"command": ["/bin/true"], "params": {"i": f"1..{count}"}}
    with server.client as client:
        began = time.monotonic()
        run = client.submit({"tasks": [table], "cwd": str(server.state.parent), **environment_field(server.url)})["run"]
        (end,) = [event for event in events_of(client, run) if event["kind"] == "run_finished"]
        took = time.monotonic() - began
    if end["data"]["counts"] != {"succeeded": count}:
        raise RuntimeError(end)
    return count / took


def main() -> None:
    """In turn, and print."""
    if len(os.sched_getaffinity(0)) > SLOTS:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:SLOTS])  # as many slots, and cores, as loops
    with serving("--pilot") as server:
        print(f"# database in {server.state}", file=sys.stderr)
        shoal(server, 500)  # the pilot comes up
        pairs = [(shoal(server, COUNT), max(bare_processes(COUNT), bare_threads(COUNT))) for _ in range(ROUNDS)]
    note = f"{COUNT} x /bin/true, {SLOTS} slots, FULL"
    report("commands_per_s", statistics.median(s for s, _ in pairs), "1/s", note)
    report(
        "bare_spawn_per_s",
        statistics.median(b for _, b in pairs),
        "1/s",
        "two posix_spawn loops, as processes or threads",
    )
    report(
        "commands_vs_spawn_limit", statistics.median(s / b for s, b in pairs), "ratio", f"median of {ROUNDS}, in turn"
    )


if __name__ == "__main__":
    main()
