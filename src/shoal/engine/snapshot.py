"""What a database hands to a starting engine: everything unfinished, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import NamedTuple

from shoal.engine.changes import (
    ArrayRow,
    ChunkRow,
    GrownRow,
    GrowthRow,
    HostRow,
    PartialRow,
    PilotRow,
    PlaceRow,
    PlanRow,
    PolicyRow,
    RunRow,
    TaskRow,
    UsageRow,
)
from shoal.model.lazy_dataclass import dataclass


class FinalRange(NamedTuple):
    """Elements low .. high - 1 of a run that are final, all in one state."""

    run: int
    low: int
    high: int
    state: str


class SettledRow(NamedTuple):
    """Which attempt settled a task, and which pilot reported it."""

    run: int
    element: int
    winner: str
    nonce: str  # of the run
    pilot: str


class SpentRow(NamedTuple):
    """Core time of one owner at one site in one hour, as quotas count it."""

    owner: str
    site: str
    hour: int  # since 1970
    seconds: float  # core seconds


class KeptRow(NamedTuple):
    """A final task whose outputs are on the server."""

    run: int
    element: int
    result: str


class LoadedRun(NamedTuple):
    """One run as a snapshot has it, whether finished or not."""

    run: RunRow
    arrays: list[ArrayRow]
    tasks: list[TaskRow]
    done: list[FinalRange]
    kept: list[KeptRow]
    partials: Sequence[PartialRow] = ()  # one, if its tasks emitted anything
    growths: Sequence[GrowthRow] = ()  # one, if it has rules
    grown: Sequence[GrownRow] = ()
    plans: Sequence[PlanRow] = ()  # one, if the server plans it


@dataclass(frozen=True)
class Snapshot:
    """The memory of record at a start."""

    incarnation: int = 1  # already raised, durably
    lease_key: bytes = b""  # that proofs of leases are made with
    next_run: int = 1
    next_seq: int = 1
    last_time: float = 0.0  # of the newest event: until then the server is known to have run
    runs: list[RunRow] = field(default_factory=list)  # not finished
    arrays: list[ArrayRow] = field(default_factory=list)  # of those runs
    tasks: list[TaskRow] = field(default_factory=list)  # of those runs, not final
    done: list[FinalRange] = field(default_factory=list)
    chunks: list[ChunkRow] = field(default_factory=list)  # of those runs
    kept: list[KeptRow] = field(default_factory=list)  # of those runs
    pilots: list[PilotRow] = field(default_factory=list)  # not gone
    gone: list[PilotRow] = field(default_factory=list)  # ended lately, oldest first
    hosts: list[HostRow] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)  # owner -> group
    settled: list[SettledRow] = field(default_factory=list)  # the latest, oldest first
    policy: PolicyRow | None = None  # the newest
    usage: list[UsageRow] = field(default_factory=list)
    places: list[PlaceRow] = field(default_factory=list)
    spent: list[SpentRow] = field(default_factory=list)
    partials: list[PartialRow] = field(default_factory=list)  # of those runs
    growths: list[GrowthRow] = field(default_factory=list)  # of those runs
    grown: list[GrownRow] = field(default_factory=list)  # of those runs
    plans: list[PlanRow] = field(default_factory=list)  # of those runs
