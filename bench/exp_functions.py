"""How fast do small Python functions go through, each one a durable task, against the standard library's process pool?

20,000 calls that do nothing by `Executor.map` with defaults; rows and final events are counted afterwards. The same by
ProcessPoolExecutor(2), both with chunks of 100, and with TLS between everybody.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor as StandardExecutor
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

import shoal
from bench.serving import Serving, real_pilot, report, serving
from shoal.model.file_names import DATABASE

CALLS = 20_000
ROUNDS = 3


def nothing(number: int) -> int:
    """A call that costs nothing."""
    return number


def rate(pool: StandardExecutor, calls: int, chunksize: int) -> float:
    """Calls per second, from the call of `map` to the last result."""
    began = time.monotonic()
    results = list(pool.map(nothing, range(calls), chunksize=chunksize))
    took = time.monotonic() - began
    if results != list(range(calls)):
        raise RuntimeError("wrong results")
    return calls / took


@contextmanager
def pool_on(server: Serving, **more: str) -> Iterator[shoal.Executor]:
    """An executor on a server, warm."""
    more = {"SHOAL_SERVER": server.url, "SHOAL_TOKEN": server.token, **more}
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        with shoal.Executor(attach=False) as pool:
            for _ in range(3):
                rate(pool, 2_000, 1)
            yield pool
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def counted(server: Serving, run: str) -> tuple[int, int]:
    """Rows and final events of the calls of a run."""
    with sqlite3.connect(f"file:{server.state / DATABASE}?mode=ro", uri=True) as database:
        rows = database.execute("SELECT count(*) FROM tasks WHERE run = ? AND state = 'succeeded'", (run[1:],))
        ends = database.execute(
            "SELECT count(DISTINCT task) FROM events WHERE run = ? AND kind = 'task_finished'", (run[1:],)
        )
        return int(rows.fetchone()[0]), int(ends.fetchone()[0])


@contextmanager
def tls_pilot(server: Serving) -> Iterator[dict[str, str]]:
    """A pilot with two slots that speaks TLS; the settings of a client that does too."""
    made = server.client.new_token("enrol")
    join = server.state / "join"
    join.write_text(f"{','.join(made['addresses'])}#{made['fingerprint']}#{made['token']}")
    with real_pilot(server, 2, "--join-file", str(join)):
        yield {
            "SHOAL_SERVER": f"https://{made['addresses'][0]}",
            "SHOAL_CA": f"sha256:{made['fingerprint']}",
            "SHOAL_TOKEN": server.token,
        }


def median(measure: Callable[[], float]) -> float:
    """Of a few rounds."""
    return statistics.median(measure() for _ in range(ROUNDS))


def plain() -> float:
    """Everything without TLS; the rate."""
    with serving("--pilot") as server, pool_on(server) as ours, ProcessPoolExecutor(2) as theirs:
        print(f"# database in {server.state}", file=sys.stderr)
        rate(theirs, 1_000, 1)
        before = counted(server, ours.run)[0]
        pairs = [(rate(ours, CALLS, 1), rate(theirs, CALLS, 1)) for _ in range(ROUNDS)]
        time.sleep(0.5)
        rows, ends = counted(server, ours.run)
        if (rows - before, rows - before) != (CALLS * ROUNDS, CALLS * ROUNDS) or ends != rows:
            raise RuntimeError(f"{rows} rows and {ends} final events for {CALLS * ROUNDS} calls more than {before}")
        per_s = statistics.median(a for a, _ in pairs)
        report("functions_per_s", per_s, "1/s", f"{CALLS} calls by map, each its own row and event (counted), FULL")
        report(
            "processpool_per_s", statistics.median(b for _, b in pairs), "1/s", "ProcessPoolExecutor(2), chunksize 1"
        )
        report("functions_vs_processpool", statistics.median(a / b for a, b in pairs), "ratio", "interleaved")
        chunked = [(rate(ours, 5 * CALLS, 100), rate(theirs, 5 * CALLS, 100)) for _ in range(ROUNDS)]
        report(
            "functions_chunk100_vs_processpool", statistics.median(a / b for a, b in chunked), "ratio", "both by 100"
        )
        report(
            "functions_chunk100_per_s", statistics.median(a for a, _ in chunked), "1/s", "calls, a task for each 100"
        )
        return per_s


def main() -> None:
    """Measure and print."""
    plain()
    with (
        serving("--listen", "127.0.0.1:0", "--no-pilot") as server,
        tls_pilot(server) as settings,
        pool_on(server, **settings) as secure,
        serving("--pilot") as other,
        pool_on(other) as open_,
    ):
        pairs = [(rate(secure, CALLS, 1), rate(open_, CALLS, 1)) for _ in range(ROUNDS)]
        report("functions_tls_per_s", statistics.median(a for a, _ in pairs), "1/s", "pilot and client over TLS")
        report(
            "functions_tls_ratio", statistics.median(a / b for a, b in pairs), "ratio", "TLS on over off, interleaved"
        )


if __name__ == "__main__":
    main()
