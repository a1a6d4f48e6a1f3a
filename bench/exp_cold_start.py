"""How long from nothing to the first result, for someone who types `shoal run -- true`?"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

from bench.serving import bench_directory, report

ROUNDS = 5


def cold() -> float:
    """Seconds of one first command: server, pilot, task, result."""
    with bench_directory() as path:
        env = {**os.environ, "XDG_STATE_HOME": str(path)}
        shoal = [sys.executable, "-m", "shoal.cli"]
        try:
            began = time.monotonic()
            subprocess.run([*shoal, "run", "--", "true"], env=env, check=True, capture_output=True)
            return time.monotonic() - began
        finally:
            subprocess.run([*shoal, "server", "stop"], env=env, capture_output=True, check=False)


def main() -> None:
    """Measure and print."""
    cold()  # the interpreter's files are read
    report(
        "cold_start_s", statistics.median(cold() for _ in range(ROUNDS)), "s", "nothing runs; to the result of `true`"
    )


if __name__ == "__main__":
    main()
