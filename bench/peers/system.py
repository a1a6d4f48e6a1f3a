"""What a system under measurement is: a name, an interpreter to run in, and cases. No peer is imported here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# In the order in which they are run; within a round all systems do one before any does the next.
MEASURES = (
    "round_trip",
    "round_trip_command",
    "functions",
    "commands",
    "cold_start",
    "cold_start_call",
    "short_queue",
    "long_queue",
    "short_queue_commands",
    "long_queue_commands",
    "dag_fan",
    "dag_chains",
)
WIDE, CHAINS, CHAIN = 5_000, 50, 100  # of workflows: calls between two; chains, and calls in each
FAN, CHAINED = f"1-{WIDE:,}-1 calls", f"{CHAINS} chains of {CHAIN} calls"
SHORT, LONG = 1_000, 100_000  # tasks that wait in a short and in a long queue

# Ends of names, the longer ones first.
UNITS = {"_per_s": "1/s", "_ms": "ms", "_mb": "MB", "_s": "s"}

# What a case gives: what stands behind the measure in the figure's name, with the unit at its end (per_s, p50_ms, s).
Figures = dict[str, float]


@dataclass(frozen=True)
class Case:
    """One measurement of one system; `run` is called in a fresh process of the system's own interpreter."""

    measure: str
    count: int
    run: Callable[[int], Figures]
    note: str = ""

    def scaled(self, scale: float) -> int:
        """How many tasks in a run that is made smaller to try it out."""
        return max(min(self.count, 10), round(self.count * scale))


@dataclass(frozen=True)
class System:
    """A system and what is measured of it, at most one case for each measure."""

    name: str
    title: str
    module: str
    cases: tuple[Case, ...]
    version: Callable[[], str]
    peer: str = ""  # the name it is installed under; empty: it runs in the interpreter of the repository

    def case(self, measure: str) -> Case | None:
        """The case of a measure; None if the system has no such thing."""
        return next((case for case in self.cases if case.measure == measure), None)


def unit_of(metric: str) -> str:
    """The unit that a metric's name ends with."""
    return next((unit for end, unit in UNITS.items() if metric.endswith(end)), "")
