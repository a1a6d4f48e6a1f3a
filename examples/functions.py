"""Python functions through `shoal.Executor`: the executor of the standard library, with the pool behind it.

    python examples/functions.py

Without a server of your own it starts one for you; it ends a minute after the last call.
"""

from __future__ import annotations

import random

import shoal


def throw(points: int) -> int:
    """How many of so many random points of a square fall into its quarter circle."""
    return sum(random.random() ** 2 + random.random() ** 2 <= 1.0 for _ in range(points))


with shoal.Executor(name="pi", seed=42) as pool:  # a seed: the same numbers each time, others for each call
    one = pool.submit(throw, 10_000)
    print("one call:", one.result(), "of 10000 inside, task", one.task)
    calls, points = 200, 20_000
    inside = sum(pool.map(throw, [points] * calls))
    print(f"pi is about {4 * inside / (calls * points):.4f}")
