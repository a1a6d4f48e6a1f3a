"""What of this host is taken by whom, and what may begin. Pure, like `agent`.

Commands wait and run one by one. Calls of a function wait as the chunk they came in; a runner gets a *piece* of it at
a time, which takes the room of one call, for it makes them one after another.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Optional

from shoal.model.ids import AttemptId, parse_attempt
from shoal.pilot.moves import Begin
from shoal.sched.size import piece
from shoal.wire.chunk import follows, joined, names, part, shift
from shoal.wire.messages import Held, Lease, Room

TOLD = 0.25  # seconds that a call takes before it is told that it began
PACES_KEPT = 100  # functions of which is known how long they take


@dataclass
class Run:
    """An attempt, or a piece, that the hands have."""

    lease: Lease
    gpus: tuple[int, ...]
    started: bool = False
    stopping: str = ""
    done: int = 0  # calls of the piece that ended
    since: float = 0.0  # when it began, or its last call ended

    @property
    def left(self) -> list[str]:
        """Calls of the piece that have not ended."""
        return names(self.lease)[self.done :]


class Slots:
    """The room of one pilot, the attempts in it and those that wait for it."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.waiting: deque[Lease] = deque()
        self.running: OrderedDict[str, Run] = OrderedDict()
        self._gpus = list(range(room.gpus))
        self._paces: OrderedDict[str, float] = OrderedDict()  # function -> seconds of a call

    def add(self, lease: Lease) -> None:
        """It waits. Calls that go on where the last ones end wait with them: larger pieces cost less."""
        if lease.function and self.waiting and follows(self.waiting[-1], lease):
            self.waiting[-1] = joined(self.waiting[-1], lease)
        else:
            self.waiting.append(lease)

    def can_ever_hold(self, room: Room) -> bool:
        """Is this pilot large enough?"""
        return room.cores <= self.room.cores and room.gpus <= self.room.gpus

    def held(self, now: float) -> list[Held]:
        """Everything here, as the server is told. Of calls it is told that they began only if they take a while."""
        held = [Held(lease.attempt, "leased", lease.count) for lease in self.waiting]
        for attempt, run in self.running.items():
            if not run.lease.function:
                held.append(Held(attempt, "running" if run.started else "leased"))
                continue
            first, left = shift(parse_attempt(attempt), run.done), run.lease.count - run.done
            if left:
                held.append(Held(str(first), "running" if now >= run.since + TOLD else "leased"))
            if left > 1:
                held.append(Held(str(shift(first, 1)), "leased", left - 1))
        return held

    def has_untold(self, now: float) -> bool:
        """Is a call under way of which it was not yet told that it began?"""
        return any(run.lease.function and now < run.since + TOLD for run in self.running.values())

    def free(self) -> Room:
        """Room that neither running nor waiting attempts take."""
        taken = [(run.lease.room, 1) for run in self.running.values()]
        taken += [(lease.room, lease.count) for lease in self.waiting]
        return Room(
            max(0, self.room.cores - sum(r.cores * n for r, n in taken)),
            max(0, self.room.memory - sum(r.memory * n for r, n in taken)),
            max(0, self.room.disk - sum(r.disk * n for r, n in taken)),
            max(0, self.room.gpus - sum(r.gpus * n for r, n in taken)),
        )

    def begin(self, now: float) -> list[Begin]:
        """Start waiting leases in order while they fit; the head never starves behind smaller ones."""
        begun: list[Begin] = []
        while self.waiting:
            room = self.waiting[0].room
            taken = [run.lease.room for run in self.running.values()]
            cores = self.room.cores - sum(r.cores for r in taken)
            if (
                room.cores > cores
                or sum(r.memory for r in taken) + room.memory > max(self.room.memory, room.memory if not taken else 0)
                or len(self._gpus) < room.gpus
            ):
                break
            lease = self.waiting.popleft()
            if lease.count > 1:
                # Idle slots share what is here; with more waiting behind, each gets a piece of its own.
                calls = piece(self._paces.get(lease.function), lease.count, cores // max(1, room.cores))
                if calls < lease.count:
                    self.waiting.appendleft(part(lease, calls, lease.count))
                    lease = part(lease, 0, calls)
            gpus, self._gpus = tuple(self._gpus[: room.gpus]), self._gpus[room.gpus :]
            self.running[lease.attempt] = Run(lease, gpus, since=now)
            begun.append(Begin(lease, gpus))
        return begun

    def end(self, attempt: str) -> Optional[Run]:
        """An attempt, or a piece, is over: its room is free, and what of it never began waits again."""
        run = self.running.pop(attempt, None)
        if run is not None:
            self._gpus.extend(run.gpus)
            if run.lease.function and run.done < run.lease.count:
                self.waiting.appendleft(part(run.lease, run.done, run.lease.count))
        return run

    def learn(self, function: str, durations: list[float]) -> None:
        """How long calls of a function take here."""
        if not durations:
            return
        mean = sum(durations) / len(durations)
        before = self._paces.pop(function, mean)
        self._paces[function] = 0.5 * before + 0.5 * mean
        if len(self._paces) > PACES_KEPT:
            self._paces.popitem(last=False)

    def piece_of(self, attempt: AttemptId) -> Optional[Run]:
        """The piece in a runner that holds this call, if it has not ended."""
        for run in self.running.values():
            if run.lease.function:
                first = parse_attempt(run.lease.attempt)
                at = attempt.element - first.element
                if run.done <= at < run.lease.count and shift(first, at) == attempt:
                    return run
        return None

    def take_out(self, attempt: AttemptId, count: int = 1) -> list[str]:
        """Take those of these neighbouring attempts that wait out of what waits; their names."""
        out: list[str] = []
        kept: deque[Lease] = deque()
        for lease in self.waiting:
            first = parse_attempt(lease.attempt)
            low = max(0, attempt.element - first.element)
            high = min(lease.count, attempt.element + count - first.element)
            if low >= high or shift(first, low) != attempt._replace(element=first.element + low):
                kept.append(lease)
                continue
            out += [str(shift(first, at)) for at in range(low, high)]
            if low > 0:
                kept.append(part(lease, 0, low))
            if high < lease.count:
                kept.append(part(lease, high, lease.count))
        if out:
            self.waiting.clear()
            self.waiting.extend(kept)
        return out
