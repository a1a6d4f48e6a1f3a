"""What of this host is taken by whom, and what may begin. Pure, like `agent`."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Optional

from shoal.pilot.moves import Begin
from shoal.wire.messages import Held, Lease, Room


@dataclass
class Run:
    """An attempt that the hands have."""

    lease: Lease
    gpus: tuple[int, ...]
    started: bool = False
    stopping: str = ""


class Slots:
    """The room of one pilot, the attempts in it and those that wait for it."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.waiting: deque[Lease] = deque()
        self.running: OrderedDict[str, Run] = OrderedDict()
        self._gpus = list(range(room.gpus))

    def can_ever_hold(self, room: Room) -> bool:
        """Is this pilot large enough?"""
        return room.cores <= self.room.cores and room.gpus <= self.room.gpus

    def held(self) -> list[Held]:
        """Everything here, as the server is told."""
        held = [Held(lease.attempt, "leased") for lease in self.waiting]
        return held + [Held(a, "running" if run.started else "leased") for a, run in self.running.items()]

    def free(self) -> Room:
        """Room that neither running nor waiting attempts take."""
        taken = [run.lease.room for run in self.running.values()] + [lease.room for lease in self.waiting]
        return Room(
            max(0, self.room.cores - sum(r.cores for r in taken)),
            max(0, self.room.memory - sum(r.memory for r in taken)),
            max(0, self.room.disk - sum(r.disk for r in taken)),
            max(0, self.room.gpus - sum(r.gpus for r in taken)),
        )

    def begin(self) -> list[Begin]:
        """Start waiting leases in order while they fit; the head never starves behind smaller ones."""
        begun: list[Begin] = []
        while self.waiting:
            room = self.waiting[0].room
            taken = [run.lease.room for run in self.running.values()]
            if (
                sum(r.cores for r in taken) + room.cores > self.room.cores
                or sum(r.memory for r in taken) + room.memory > max(self.room.memory, room.memory if not taken else 0)
                or len(self._gpus) < room.gpus
            ):
                break
            lease = self.waiting.popleft()
            gpus, self._gpus = tuple(self._gpus[: room.gpus]), self._gpus[room.gpus :]
            self.running[lease.attempt] = Run(lease, gpus)
            begun.append(Begin(lease, gpus))
        return begun

    def end(self, attempt: str) -> Optional[Run]:
        """An attempt is over: its room is free."""
        run = self.running.pop(attempt, None)
        if run is not None:
            self._gpus.extend(run.gpus)
        return run
