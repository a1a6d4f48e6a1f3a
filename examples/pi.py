"""Estimate pi by throwing points into a square: a small real task for the examples.

Prints one line of JSON, which `shoal results` takes apart. The random numbers follow --seed, else the seed that Shoal
gives every task, so a run can be repeated exactly. --flaky makes some first attempts fail, to show what retries do.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys


def estimate(points: int, seed: int) -> float:
    """Four times the share of random points that fall into the quarter circle."""
    throw = random.Random(seed).random
    inside = sum(throw() ** 2 + throw() ** 2 <= 1.0 for _ in range(points))
    return 4.0 * inside / points


def main() -> None:
    """Read the options, estimate, print."""
    parser = argparse.ArgumentParser(description="Estimate pi with random points.")
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SHOAL_SEED", "1")))
    parser.add_argument("--flaky", action="store_true", help="fail the first attempt of every fifth seed")
    chosen = parser.parse_args()
    if chosen.flaky and chosen.seed % 5 == 0 and os.environ.get("SHOAL_ATTEMPT", "1").rpartition("#")[2] == "1":
        sys.exit(f"the dice of seed {chosen.seed} fell off the table")
    value = estimate(chosen.points, chosen.seed)
    print(json.dumps({"pi": round(value, 6), "error": round(abs(value - math.pi), 6)}))


if __name__ == "__main__":
    main()
