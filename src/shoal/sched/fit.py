"""Does a task fit a pilot? The answer is a reason, which `shoal why` shows as it is."""

from __future__ import annotations

from typing import Optional, Protocol

from shoal.model.quantities import many, show_size
from shoal.wire.messages import Capacity


class Needs(Protocol):
    """What a task takes, as its specification or its lease has it: pilots do not have the table of task fields."""

    @property
    def cores(self) -> int: ...
    @property
    def memory(self) -> int: ...
    @property
    def disk(self) -> int: ...
    @property
    def gpus(self) -> int: ...


def pairs(needs: Needs, room: Capacity) -> tuple[tuple[int, int], ...]:
    """What is needed and what there is, of each resource."""
    return (
        (needs.cores, room.cores), (needs.memory, room.memory), (needs.disk, room.disk), (needs.gpus, room.gpus),
    )  # fmt: skip


def misfit(needs: Needs, room: Capacity) -> Optional[str]:
    """Why a task with these needs does not fit into this capacity; None if it does."""
    if needs.cores > room.cores:
        return f"needs {many(needs.cores, 'core')}, has {room.cores}"
    if needs.memory > room.memory:
        return f"needs {show_size(needs.memory)} of memory, has {show_size(room.memory)}"
    if needs.disk > room.disk:
        return f"needs {show_size(needs.disk)} of disk, has {show_size(room.disk)}"
    if needs.gpus > room.gpus:
        return f"needs {many(needs.gpus, 'graphics device')}, has {room.gpus}"
    return None


def how_many(needs: Needs, room: Capacity) -> int:
    """How many such tasks fit into this capacity at once."""
    if room.cores < 0 or room.memory < 0 or room.disk < 0 or room.gpus < 0:
        return 0
    most = room.cores // needs.cores if needs.cores else None
    for wants, has in ((needs.memory, room.memory), (needs.disk, room.disk), (needs.gpus, room.gpus)):
        if wants and (most is None or has // wants < most):
            most = has // wants
    assert most is not None  # every task takes something
    return most


def take(room: Capacity, needs: Needs, count: int = 1) -> Capacity:
    """The capacity that is left beside so many tasks; below zero where tasks are fetched ahead."""
    return Capacity(
        room.cores - count * needs.cores,
        room.memory - count * needs.memory,
        room.disk - count * needs.disk,
        room.gpus - count * needs.gpus,
    )


def give(room: Capacity, needs: Needs, count: int = 1) -> Capacity:
    """The capacity when they have ended."""
    return take(room, needs, -count)
