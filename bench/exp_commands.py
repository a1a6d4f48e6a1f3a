"""How fast does a pilot run small commands, against bare spawning on the same machine in the same minute?

5,000 times /bin/true through `shoal sweep` with default settings on an embedded server (the submitter's directory, two
streams, rusage, a row each, durability FULL), over two bare posix_spawn loops that run at the same time; in turn, and
the median of the ratios. The loops run as two processes and as two threads: in each round the faster is the limit.
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


def shoal(env: dict[str, str], count: int) -> float:
    """The same through Shoal: durable, logged, accounted."""
    began = time.monotonic()
    words = [sys.executable, "-m", "shoal.cli", "sweep", "-q", f"i=1..{count}", "--", "/bin/true"]
    subprocess.run(words, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return count / (time.monotonic() - began)


def main() -> None:
    """In turn, and print."""
    place = Path(tempfile.mkdtemp(prefix="shoal-bench-", dir=os.environ.get("SHOAL_BENCH_DIR", "/var/tmp")))
    env = {**os.environ, "XDG_STATE_HOME": str(place)}
    if len(os.sched_getaffinity(0)) > SLOTS:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:SLOTS])  # as many slots, and cores, as loops
    try:
        shoal(env, 100)  # the server and the pilot come up
        pairs = [(shoal(env, COUNT), max(bare_processes(COUNT), bare_threads(COUNT))) for _ in range(ROUNDS)]
    finally:
        subprocess.run([sys.executable, "-m", "shoal.cli", "server", "stop"], env=env, capture_output=True, check=False)
        shutil.rmtree(place, ignore_errors=True)
    note = f"{COUNT} x /bin/true, {SLOTS} slots, FULL"
    line("commands_per_s", statistics.median(s for s, _ in pairs), "1/s", note)
    line(
        "bare_spawn_per_s",
        statistics.median(b for _, b in pairs),
        "1/s",
        "two posix_spawn loops, as processes or threads",
    )
    line("commands_vs_spawn_limit", statistics.median(s / b for s, b in pairs), "ratio", f"median of {ROUNDS}, in turn")


if __name__ == "__main__":
    main()
