"""How long until a small input of a task is in its directory, on a host that does not see the submitter's files?

In one process with a real server: from the request to the file, in the task's directory, whose bytes were fetched over a
connection that is open, hashed, written durably into the host's cache and copied. And the same when the cache has it.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from bench.emulate import EmulatedPilot
from bench.serving import Serving, bench_directory, report, serving
from shoal.pilot.commands.files import put_input
from shoal.pilot.files.host_cache import HostCache
from shoal.pilot.uplink.blobs import Blobs
from shoal.pilot.uplink.server_address import ServerAddress

SIZE = 10_000
COUNT = 300


def measure(server: Serving, folder: Path) -> tuple[list[float], list[float]]:
    """Seconds of each input that is fetched, and of each that the cache has."""
    with server.client as client:
        digests = [client.put_blob([os.urandom(SIZE)]) for _ in range(COUNT)]
    token = folder / "token"
    token.write_text(server.enrol)
    blobs = Blobs(ServerAddress(url=server.url, token_file=str(token)), HostCache(str(folder / "cache")), str(folder))
    blobs.joined(EmulatedPilot(server.url, server.enrol).session)
    found: list[list[float]] = []
    for turn in ("fetched", "cached"):
        times = []
        for number, digest in enumerate(digests):
            own_dir = folder / turn / str(number)
            own_dir.mkdir(parents=True)
            began = time.perf_counter()
            fetched = blobs.get(digest, SIZE)
            put_input("in", fetched.held, str(own_dir), 0o644)
            fetched.held.close()
            times.append(time.perf_counter() - began)
        found.append(sorted(times))
    blobs.close()
    return found[0], found[1]


def main() -> None:
    """Measure and print."""
    with serving() as server, bench_directory() as folder:
        fetched, cached = measure(server, folder)
        for name, times in (("stage_in_small_ms", fetched), ("stage_in_cached_ms", cached)):
            note = f"an input of {SIZE:,} bytes, {COUNT} times; p95 {1000 * times[int(0.95 * len(times))]:.3g}"
            report(name, 1000 * statistics.median(times), "ms", note)


if __name__ == "__main__":
    main()
