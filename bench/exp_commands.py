"""How fast does a pilot run small commands, against bare spawning on the same machine in the same minute?

2,000 times /bin/true through `shoal sweep` on an embedded server, over two bare posix_spawn loops; interleaved,
median of the ratios. A report, not a goal of this stage.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.serving import line

COUNT = 2_000
ROUNDS = 3


def bare() -> float:
    """Commands per second of two loops that do nothing but spawn and wait."""

    def loop() -> None:
        for _ in range(COUNT // 2):
            os.waitpid(os.posix_spawn("/bin/true", ["/bin/true"], {}), 0)

    threads = [threading.Thread(target=loop) for _ in range(2)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return COUNT / (time.monotonic() - began)


def shoal(env: dict[str, str]) -> float:
    """The same through Shoal: durable, logged, accounted."""
    began = time.monotonic()
    words = [sys.executable, "-m", "shoal.cli", "sweep", "-q", f"i=1..{COUNT}", "--", "/bin/true"]
    subprocess.run(words, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return COUNT / (time.monotonic() - began)


def main() -> None:
    """Interleave and print."""
    place = Path(tempfile.mkdtemp(prefix="shoal-bench-", dir=os.environ.get("SHOAL_BENCH_DIR", "/var/tmp")))
    env = {**os.environ, "XDG_STATE_HOME": str(place)}
    try:
        shoal(env)  # the server and the pilot come up
        pairs = [(shoal(env), bare()) for _ in range(ROUNDS)]
    finally:
        subprocess.run([sys.executable, "-m", "shoal.cli", "server", "stop"], env=env, capture_output=True, check=False)
        shutil.rmtree(place, ignore_errors=True)
    line("commands_per_s", statistics.median(s for s, _ in pairs), "1/s", f"{COUNT} x /bin/true, 2 slots, FULL")
    line("bare_spawn_per_s", statistics.median(b for _, b in pairs), "1/s", "two posix_spawn loops in one process")
    line("commands_vs_spawn", statistics.median(s / b for s, b in pairs), "ratio", "interleaved, median of 3")


if __name__ == "__main__":
    main()
