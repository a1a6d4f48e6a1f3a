"""How long does it take to give 1,500 pilots a task each, and what does a quick answer cost? [LBO D8]

Ranks are random: uniform, and like data locality (megabytes of a task's inputs that a pilot holds: few distinct values,
mostly none). The gap is 1 - total rank / total rank of the exact assignment, without which no quick way is known to do.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.assignment import exact, exact_sparse, greedy, greedy_plain, greedy_sparse, one_by_one
from bench.serving import report
from shoal.sched.linear_assignment import Pair

ROUNDS = 5
PILOTS = 1_500
TASKS = 10_000

Table = NDArray[Any]


def uniform(rng: np.random.Generator, columns: int) -> Table:
    """Every pair has a rank of its own."""
    return rng.random((PILOTS, columns))


def locality(rng: np.random.Generator, columns: int) -> Table:
    """Each task reads two of 300 files of 100, 200 or 500 MB; each pilot holds three."""
    sizes = rng.choice([100.0, 200.0, 500.0], 300)
    held, read = np.zeros((PILOTS, 300)), np.zeros((300, columns))
    for pilot in held:
        pilot[rng.choice(300, 3, replace=False)] = 1.0
    for task in read.T:
        files = rng.choice(300, 2, replace=False)
        task[files] = sizes[files]
    return np.asarray(held @ read)


def contested(rng: np.random.Generator, columns: int) -> Table:
    """All pilots want the same tasks in nearly the same order: the worst case of the greedy one."""
    return np.asarray(rng.random(columns)[None, :] * 100 + rng.random((PILOTS, columns)))


def timed(work: Callable[[], list[Pair]], expected: int = PILOTS) -> float:
    """Milliseconds, the median of some; all pilots must get something."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        pairs = work()
        times.append(1e3 * (time.perf_counter() - began))
        if len(pairs) != expected:
            raise RuntimeError(f"{len(pairs)} assigned")
    return statistics.median(times)


def total(table: Table, pairs: list[Pair]) -> float:
    """The sum of ranks."""
    return float(sum(table[row, column] for row, column in pairs))


def speed(rng: np.random.Generator) -> None:
    """Time for each way."""
    shape = f"{PILOTS} pilots x {TASKS} tasks"
    large = uniform(rng, TASKS)
    report("greedy_1500x10k_ms", timed(lambda: greedy(large)), "ms", f"{shape}, uniform ranks, numpy")
    for name, kind in (("locality", locality), ("contested", contested)):
        table = kind(rng, TASKS)
        report(f"greedy_1500x10k_{name}_ms", timed(lambda table=table: greedy(table)), "ms", f"{shape}, numpy")  # type: ignore[misc]
    square = uniform(rng, PILOTS)
    report("exact_1500x1500_ms", timed(lambda: exact(square)), "ms", "uniform ranks, scipy")
    report("exact_1500x10k_ms", timed(lambda: exact(large)), "ms", f"{shape}, uniform ranks, scipy")
    rows = large.tolist()
    report("greedy_1500x10k_plain_ms", timed(lambda: greedy_plain(rows)), "ms", f"{shape}, standard library")
    r, c = np.nonzero(rng.random(large.shape) < 0.01)
    v = large[r, c]
    report("greedy_sparse_ms", timed(lambda: greedy_sparse(r, c, v)), "ms", f"{shape}, 1 % of the cells allowed")
    report("exact_sparse_ms", timed(lambda: exact_sparse(r, c, v)), "ms", f"{shape}, 1 % of the cells allowed")


def gaps(rng: np.random.Generator) -> None:
    """What the quick ways lose."""
    for name, kind in (("", uniform), ("_locality", locality)):
        lost: dict[str, list[float]] = {"greedy": [], "one_by_one": []}
        for _ in range(ROUNDS):
            table = kind(rng, PILOTS)
            best = total(table, exact(table))
            lost["greedy"].append(1 - total(table, greedy(table)) / best)
            lost["one_by_one"].append(1 - total(table, one_by_one(table.tolist())) / best)
        for way, values in lost.items():
            note = f"of the exact total rank lost, {PILOTS} x {PILOTS}, {name[1:] or 'uniform'} ranks"
            report(f"{way}_gap{name}", statistics.mean(values), "ratio", note)


def main() -> None:
    """Measure and print."""
    rng = np.random.default_rng(5)
    speed(rng)
    gaps(rng)


if __name__ == "__main__":
    main()
