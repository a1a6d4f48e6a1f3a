"""How fast is this machine at this time? Without it, milliseconds of two days cannot be compared."""

from __future__ import annotations

import statistics
import time

from bench.serving import report

LOOPS = 15
ADDITIONS = 1_000_000


def loop() -> float:
    """Seconds of processor time of a bare loop in Python."""
    began, total = time.process_time(), 0
    for number in range(ADDITIONS):
        total += number
    return time.process_time() - began


def main() -> None:
    """Measure and print."""
    taken = [1000 * loop() for _ in range(LOOPS)]
    report("machine_loop_ms", statistics.median(taken), "ms", f"{min(taken):.0f} to {max(taken):.0f}")


if __name__ == "__main__":
    main()
