"""What the first tasks of a bag, its scouts, and the last ones taught about the others: time, memory, output."""

from __future__ import annotations

from typing import NamedTuple

from shoal.engine.matching.classes import TaskClass, quantile
from shoal.sched.memory_request import learned_request


class Learned(NamedTuple):
    """What one task of a class takes, by the last samples; each may stand for several short tasks."""

    samples: int
    median: float  # seconds
    p95: float  # seconds
    memory: int  # bytes, of the largest; 0: not known
    request: int  # bytes that are asked for with it where tasks state none; 0: not known
    output: int  # bytes of its streams, of the largest


def learned_of(cls: TaskClass) -> Learned | None:
    """What is known of a class; None if none of its tasks succeeded yet."""
    recent = cls.base.recent
    if not recent:
        return None
    durations = [sample.duration for sample in recent]
    return Learned(
        len(recent), quantile(durations, 0.5), quantile(durations, 0.95), max(sample.memory for sample in recent),
        request_of(cls), max(sample.output for sample in recent),
    )  # fmt: skip


def request_of(cls: TaskClass) -> int:
    """Memory to ask for with a task of a class: what it states, or what was learned; 0: nothing is known."""
    return cls.needs.memory or learned_request(sample.memory for sample in cls.base.recent) or 0
