"""How long does someone wait who types `shoal run -- true`: with nothing running, and with a server up?"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.serving import bench_directory, report

ROUNDS = 5
WARM_ROUNDS = 7  # commands of one server; the first of them finds no server, and is not counted
SHOAL = [sys.executable, "-m", "shoal.cli"]


def rounds(state: Path, count: int) -> list[float]:
    """Seconds of each of so many commands, one after another; the first starts server and pilot."""
    env = {**os.environ, "XDG_STATE_HOME": str(state)}
    took = []
    try:
        for _ in range(count):
            began = time.monotonic()
            subprocess.run([*SHOAL, "run", "--", "true"], env=env, check=True, capture_output=True)
            took.append(time.monotonic() - began)
    finally:
        subprocess.run([*SHOAL, "server", "stop"], env=env, capture_output=True, check=False)
    return took


def cold() -> float:
    """Seconds of one first command: server, pilot, task, result."""
    with bench_directory() as path:
        return rounds(path, 1)[0]


def warm() -> float:
    """Seconds of one command for which server and pilot are there, its own start and end included."""
    with bench_directory() as path:
        return statistics.median(rounds(path, 1 + WARM_ROUNDS)[1:])


def main() -> None:
    """Measure and print."""
    cold()  # the interpreter's files are read
    report(
        "cold_start_s", statistics.median(cold() for _ in range(ROUNDS)), "s", "nothing runs; to the result of `true`"
    )
    report("warm_run_s", warm(), "s", "the whole process, with a server up")


if __name__ == "__main__":
    main()
