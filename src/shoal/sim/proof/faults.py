"""The kinds of faults in a simulated world, how often each is injected, and a count of those that happened: a run in
which a fault never happened proves nothing about it."""

from __future__ import annotations

from collections import Counter
from random import Random

from shoal.model.lazy_dataclass import dataclass

KINDS = (
    "lose_request",
    "lose_reply",
    "duplicate_request",
    "duplicate_reply",
    "delay",
    "reorder",
    "pilot_death",
    "death_reported_by_successor",
    "pilot_and_guard_death",
    "guard_death",
    "pilot_freeze",
    "host_freeze",
    "pilot_drain",
    "server_crash_after_commit",
    "server_crash_in_gap",
    "submission_undone",
    "client_retry",
    "cancel",
    "retry",
    "task_failure",
    "history_rolled_back",
    "history_emptied",
    "proxy_refusal",
    "repeated_refusal",
    "false_report",
    "server_freeze",
    "failing_command",
    "one_way_cut",
    "partition",
)


@dataclass(frozen=True)
class Plan:
    """How many faults of each kind a world has; drawn from its seed."""

    loss: float
    duplicate: float
    slow: float  # share of messages that take seconds
    deaths: int
    freezes: int
    host_freezes: int
    drains: int
    crashes: int
    cancels: int
    retries: int
    failing: float  # share of attempts that fail
    rollbacks: int = 0  # the server starts again from an older copy of its database, or from an empty one
    proxy_refusals: float = 0.0  # share of exchanges that a proxy between pilot and server refuses
    server_refusals: float = 0.0  # share of reports that the server itself refuses, once or often
    liars: int = 0  # pilots that report what they never ran
    server_freezes: int = 0
    guard_deaths: int = 0  # deaths of guards, most of them together with their pilot
    certain_end: float = 0.5  # share of hosts that end everything when pilot and guard die together
    failing_commands: int = 0  # commands that end half-way by an exception
    cuts: int = 0  # times in which messages of some hosts are lost, both ways or one

    @staticmethod
    def draw(rng: Random) -> Plan:
        """Draw each kind on its own: worlds that lack some kinds and have many of others find more than even ones."""

        def some(most: int) -> int:
            return rng.randint(0, most) if rng.random() < 0.7 else 0

        return Plan(
            loss=rng.choice([0.0, 0.02, 0.1, 0.25]),
            duplicate=rng.choice([0.0, 0.05, 0.2]),
            slow=rng.choice([0.0, 0.05, 0.2]),
            deaths=some(3),
            freezes=some(2),
            host_freezes=some(2),
            drains=some(2),
            crashes=some(4),
            cancels=some(3),
            retries=some(4),
            failing=rng.choice([0.0, 0.1, 0.3]),
            rollbacks=rng.randint(1, 3) if rng.random() < 0.4 else 0,
            proxy_refusals=rng.choice([0.0, 0.0, 0.05, 0.3]),
            server_refusals=rng.choice([0.0, 0.0, 0.1, 0.4]),
            liars=rng.choice([0, 0, 2]),
            server_freezes=rng.randint(1, 2) if rng.random() < 0.5 else 0,
            guard_deaths=some(3),
            certain_end=rng.choice([0.0, 0.5, 1.0]),
            failing_commands=some(6),
        )


class Tally(Counter[str]):
    """How often each fault kind happened."""

    def note(self, kind: str) -> None:
        """Count a fault that happened."""
        assert kind in KINDS, kind
        self[kind] += 1

    def missing(self) -> list[str]:
        """Kinds that never happened."""
        return [kind for kind in KINDS if not self[kind]]
