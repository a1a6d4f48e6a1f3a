"""What can go wrong in a false world, how often, and a count that it did: a run in which a fault never happened
proves nothing about it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

KINDS = (
    "lose_request",
    "lose_reply",
    "duplicate_request",
    "duplicate_reply",
    "delay",
    "reorder",
    "pilot_death",
    "neighbour_tells",
    "pilot_and_guard_death",
    "pilot_freeze",
    "host_freeze",
    "pilot_drain",
    "server_crash_after_commit",
    "server_crash_in_gap",
    "client_retry",
    "cancel",
    "retry",
    "task_failure",
    "history_rolled_back",
    "history_emptied",
    "foreign_refusal",
    "repeated_refusal",
    "lie",
    "server_freeze",
    "poisonous_command",
)


@dataclass(frozen=True)
class Plan:
    """How bad a world is; drawn from its seed."""

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
    rollbacks: int = 0  # the server starts again from an older copy of its database, or from none
    foreign: float = 0.0  # share of exchanges that something between refuses
    refusals: float = 0.0  # share of reports that the server itself refuses, once or often
    liars: int = 0  # pilots that report what they never had
    server_freezes: int = 0
    both: int = 0  # deaths of pilot and guard together
    certain: float = 0.5  # share of hosts that end everything when pilot and guard die together
    poisons: int = 0  # commands that end half-way by an exception

    @staticmethod
    def draw(rng: Random) -> Plan:
        """Some worlds are calm in one way and bad in another: mixed badness finds more than even badness."""

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
            foreign=rng.choice([0.0, 0.0, 0.05, 0.3]),
            refusals=rng.choice([0.0, 0.0, 0.1, 0.4]),
            liars=rng.choice([0, 0, 2]),
            server_freezes=rng.randint(1, 2) if rng.random() < 0.5 else 0,
            both=some(3),
            certain=rng.choice([0.0, 0.5, 1.0]),
            poisons=some(6),
        )


class Tally(Counter[str]):
    """How often each fault kind happened."""

    def note(self, kind: str) -> None:
        """It happened."""
        assert kind in KINDS, kind
        self[kind] += 1

    def missing(self) -> list[str]:
        """Kinds that never happened."""
        return [kind for kind in KINDS if not self[kind]]
