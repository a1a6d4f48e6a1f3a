"""Does the server stay small and quick under a large array? Memory and listings with 100,000 tasks and more."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

from bench.emulate import run_until
from bench.serving import Serving, report, serving


def memory(server: Serving) -> None:
    """Resident memory after 20,000 and after 200,000 finished elements."""
    pilots = server.pilots(4)
    began = time.monotonic()
    run_until(pilots, 20_000)
    early = server.rss_mb()
    run_until(pilots, 200_000)
    took = time.monotonic() - began
    late = server.rss_mb()
    report("rss_20k_mb", early, "MB")
    report("rss_200k_mb", late, "MB")
    report("rss_growth", late / early, "ratio", "after 200,000 over after 20,000 finished; wanted: <= 1.10")
    report("emulated_per_s", 200_000 / took, "tasks/s", "4 emulated pilots in one Python process share the 2 cores")


def listings(server: Serving) -> None:
    """Wall time of the reading commands with 100,000 finished tasks in one run, median of 5."""
    client = server.client
    client.submit(
        {"tasks": [{"command": ["true", "{i}"], "array": "1-100000"}], "cwd": "/", "name": "listed", "key": "b"}
    )
    client.cancel(["r1"])
    run_until(server.pilots(4), 100_000)
    env = {**os.environ, "XDG_STATE_HOME": str(server.state.parent)}
    commands = {
        "ps": ["ps"], "ps_run": ["ps", "r2"], "show": ["show", "r2.99999"], "why": ["why", "r2.5"], "pilots": ["pilots"],
        "results": ["results", "r2"], "csv": ["results", "r2", "--csv"],
    }  # fmt: skip
    for name, arguments in commands.items():
        times: list[float] = []
        for _ in range(5):
            began = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-m", "shoal.cli", *arguments], env=env, capture_output=True, check=False
            )
            times.append(time.monotonic() - began)
            if done.returncode:
                raise RuntimeError(done.stderr.decode())
        if name == "csv":
            note = f"`shoal results RUN --csv`, the whole process; {min(times):.3g} to {max(times):.3g}"
            report("results_csv_100k_s", statistics.median(times), "s", note)
        else:
            report(f"cli_{name}_s", statistics.median(times), "s", "100,000 finished tasks listed; wanted: < 1")


def main() -> None:
    """All of it on one server."""
    with serving() as server:
        print(f"# database in {server.state}", file=sys.stderr)
        server.submit([{"command": ["true", "{i}"], "array": "1-1000000"}])
        memory(server)
        listings(server)


if __name__ == "__main__":
    main()
