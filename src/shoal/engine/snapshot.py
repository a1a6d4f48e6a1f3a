"""What a database hands to a starting engine: everything unfinished, nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.engine.changes import ArrayRow, ChunkRow, HostRow, PilotRow, PlaceRow, PolicyRow, RunRow, TaskRow, UsageRow


@dataclass(frozen=True)
class Snapshot:
    """The memory of record at a start."""

    incarnation: int = 1  # already raised, durably
    lease_key: bytes = b""  # that proofs of leases are made with
    next_run: int = 1
    next_seq: int = 1
    runs: list[RunRow] = field(default_factory=list)  # not finished
    arrays: list[ArrayRow] = field(default_factory=list)  # of those runs
    tasks: list[TaskRow] = field(default_factory=list)  # of those runs, not final
    done: list[tuple[int, int, int, str]] = field(default_factory=list)  # run, low, high, state: final elements
    chunks: list[ChunkRow] = field(default_factory=list)  # of those runs
    pilots: list[PilotRow] = field(default_factory=list)  # not gone
    gone: list[PilotRow] = field(default_factory=list)  # ended lately, oldest first
    hosts: list[HostRow] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)  # owner -> group
    # run, element, winner, the run's nonce, pilot: the latest finals
    settled: list[tuple[int, int, str, str, str]] = field(default_factory=list)
    policy: PolicyRow | None = None  # the newest
    usage: list[UsageRow] = field(default_factory=list)
    places: list[PlaceRow] = field(default_factory=list)
    spent: list[tuple[str, str, int, float]] = field(default_factory=list)  # owner, site, hour, core seconds
