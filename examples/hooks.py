"""Monte-Carlo pi that adds tasks until the error is small enough: user code that makes tasks while it runs [DIANE U1].

python examples/hooks.py
"""

from __future__ import annotations

import math
import random

import shoal

POINTS = 100_000


def throw(points: int) -> int:
    """How many of so many random points of a square fall into its quarter circle."""
    return sum(random.random() ** 2 + random.random() ** 2 <= 1.0 for _ in range(points))


class Pi(shoal.Run):
    """Throws points until the standard error of pi is below a bound."""

    def __init__(self, error: float) -> None:
        self.bound = error
        self.inside = self.points = 0

    def start(self) -> None:
        """A few tasks to begin with."""
        for _ in range(8):
            self.submit(throw, POINTS)

    def done(self, task: shoal.Task) -> None:
        """Merge a result, and submit another task."""
        self.inside += task.value
        self.points += POINTS
        self.submit(throw, POINTS)
        if self.points % (10 * POINTS) == 0:
            print(f"{self.points:>9,} points: pi is {self.result():.4f} +- {self.error():.4f}")

    def failed(self, task: shoal.Task) -> str:
        """A lost task does not matter here: there are others."""
        return "ignore"

    def error(self) -> float:
        """The standard error so far."""
        share = self.inside / self.points if self.points else 0.5
        return 4 * math.sqrt(share * (1 - share) / max(1, self.points))

    def is_over(self) -> bool:
        """True if the error is small enough."""
        return self.points > 0 and self.error() < self.bound

    def result(self) -> float:
        """The present estimate of pi."""
        return 4 * self.inside / self.points if self.points else math.nan


if __name__ == "__main__":
    run = Pi(error=0.001)
    print(f"pi is {run.execute(name='pi-hooks', seed=1):.4f} after {run.points:,} points")
