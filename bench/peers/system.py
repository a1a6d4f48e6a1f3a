"""What a system under measurement is: a name, an interpreter to run in, and cases. No peer is imported here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

REPETITIONS = 3
# In the order in which they are run; within a repetition all systems do one before any does the next.
MEASURES = ("functions", "commands", "round_trip", "cold_start", "queue", "memory")

# Ends of names, the longer ones first.
UNITS = {"_per_s": "1/s", "_growth": "ratio", "_ms": "ms", "_us": "us", "_mb": "MB", "_s": "s"}

# What a case gives: the metric's name with its unit at the end (functions_per_s, cold_start_s, ...), and its value.
Figures = dict[str, float]


@dataclass(frozen=True)
class Case:
    """One measurement of one system; `run` is called in a fresh process of the system's own interpreter."""

    measure: str
    count: int
    run: Callable[[int], Figures]
    note: str = ""
    once: bool = False  # one repetition is enough or all there is time for

    @property
    def key(self) -> str:
        """What this case is called between processes."""
        return f"{self.run.__name__}:{self.count}"

    def label(self, count: int) -> str:
        """What a row without a figure is called."""
        return f"queue_{self.run.__name__}_{count}" if self.measure == "queue" else self.run.__name__

    def scaled(self, scale: float) -> int:
        """How many tasks in a run that is made smaller to try it out."""
        return max(min(self.count, 10), round(self.count * scale))


@dataclass(frozen=True)
class System:
    """A system and what is measured of it."""

    name: str
    title: str
    module: str
    cases: tuple[Case, ...]
    version: Callable[[], str]
    peer: str = ""  # the name it is installed under; empty: it runs in the interpreter of the repository


def unit_of(metric: str) -> str:
    """The unit that a metric's name ends with."""
    return next((unit for end, unit in UNITS.items() if metric.endswith(end)), "")
