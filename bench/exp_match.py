"""What does the expression language cost? Requirement and rank of 10,000 classes on 1,500 pilots, with undefined values,
against the same written by hand in numpy."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.serving import report
from shoal.sched.expr.parse import parse
from shoal.sched.expr.tree import Expr
from shoal.sched.vector.expr import Batch, Table

CLASSES, PILOTS, ROUNDS = 10_000, 1_500, 9
REQUIRE = 'memory_mb >= task.memory_mb and arch == "x86_64" and not (site in ["a", "b"]) and scratch_mb > {disk}'
RANK = "cpu_mhz * 0.5 - load * task.memory_mb / 1000"
Answer = tuple[NDArray[np.bool_], NDArray[np.float64]]


def make_pilots(rng: random.Random) -> list[dict[str, Any]]:
    """Pilots of which some lack a tag, or have it in another kind."""
    made = []
    for _ in range(PILOTS):
        tags: dict[str, Any] = {
            "memory_mb": rng.randrange(1_000, 64_000),
            "arch": rng.choice(["x86_64", "x86_64", "aarch64"]),
            "site": rng.choice(["a", "b", "c", "d"]),
            "scratch_mb": rng.choice([float(rng.randrange(100_000)), "full"]),
            "cpu_mhz": rng.randrange(1_000, 4_000),
            "load": rng.random() * 8,
        }
        for name in list(tags):
            if rng.random() < 0.1:
                del tags[name]
        made.append(tags)
    return made


def by_hand(pilots: list[dict[str, Any]], tasks: list[dict[str, Any]], disks: list[int]) -> Callable[[], Answer]:
    """The bare numpy expression; its columns are ready, NaN where there is no number."""

    def numbers(name: str) -> NDArray[np.float64]:
        return np.array([v if isinstance(v := tags.get(name), int | float) else np.nan for tags in pilots])

    memory, scratch, mhz, load = (numbers(name) for name in ("memory_mb", "scratch_mb", "cpu_mhz", "load"))
    arch = np.array([tags.get("arch", "") for tags in pilots])
    site = np.array([tags.get("site", "") for tags in pilots])
    need = np.array([float(task["memory_mb"]) for task in tasks])[:, None]
    disk = np.array([float(value) for value in disks])[:, None]

    def run() -> Answer:
        elsewhere = (site != "a") & (site != "b") & (site != "")
        fits = (memory >= need) & (arch == "x86_64") & elsewhere & (scratch > disk)
        ranks = mhz * 0.5 - load * need / 1000
        return fits, np.where(np.isnan(ranks), -np.inf, ranks)

    return run


def timed(run: Callable[[], Answer]) -> tuple[float, Answer]:
    """Seconds and the answer."""
    began = time.perf_counter()
    answer = run()
    return time.perf_counter() - began, answer


def main() -> None:
    """Measure and print."""
    rng = random.Random(1)
    pilots = make_pilots(rng)
    tasks = [{"owner": "ann", "memory_mb": rng.randrange(500, 64_000)} for _ in range(CLASSES)]
    disks = [rng.randrange(100_000) for _ in range(CLASSES)]
    requires: list[Expr | None] = [parse(REQUIRE.format(disk=disk)) for disk in disks]
    ranks: list[Expr | None] = [parse(RANK, "rank")] * CLASSES
    bare = by_hand(pilots, tasks, disks)
    batch, table = Batch(requires, ranks, tasks), Table(pilots)

    def ready() -> Answer:
        return batch.match(table)

    def fresh() -> Answer:
        return Batch(requires, ranks, tasks).match(Table(pilots))

    rows = []
    for _ in range(ROUNDS):
        by_bare, expected = timed(bare)
        by_ready, answer = timed(ready)
        assert np.array_equal(expected[0], answer[0])
        assert np.array_equal(expected[1], answer[1])
        del answer
        by_fresh, answer = timed(fresh)
        assert np.array_equal(expected[0], answer[0])
        assert np.array_equal(expected[1], answer[1])
        rows.append((by_bare, by_ready, by_fresh))
        del answer, expected
    fitting = int(bare()[0].sum())
    assert 0 < fitting < CLASSES * PILOTS
    size = f"{CLASSES:,} classes x {PILOTS:,} pilots, {fitting:,} fit"
    fresh_ms = 1e3 * statistics.median(c for _, _, c in rows)
    report("match_vs_bare", statistics.median(c / a for a, _, c in rows), "ratio", f"over numpy by hand, {size}")
    report("match_10kx1500_ms", fresh_ms, "ms", "columns made from 10,000 parsed requirements and 1,500 pilots")
    report("match_kept_vs_bare", statistics.median(b / a for a, b, _ in rows), "ratio", "columns kept, as by hand")
    report("match_bare_ms", 1e3 * statistics.median(a for a, _, _ in rows), "ms", "numpy by hand, columns kept")


if __name__ == "__main__":
    main()
