"""Slots: what of this host's capacity is taken by which attempt, and what may begin.

Leases wait as the chunk they came in. A command is taken out of its chunk when it begins. Of calls of a function a
runner gets a *piece* at a time, which takes the capacity of one call because they run one after another.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from shoal.model.ids import AttemptId, parse_attempt
from shoal.pilot.agent.events import Begin, Stop
from shoal.pilot.agent.guard_queue import AHEAD, LONG, GuardQueue, may_queue
from shoal.sched.batch_size import piece
from shoal.wire.chunk import follows, joined, names, part, shift, single
from shoal.wire.messages import Capacity, Held, Lease, Report

REPORT_AFTER = 0.25  # seconds that a call runs before its start is reported
DURATIONS_KEPT = 100  # functions whose mean duration is remembered


@dataclass
class RunningAttempt:
    """An attempt, or a piece, that an executor has."""

    lease: Lease
    gpus: tuple[int, ...]
    started: bool = False
    stopping: str = ""
    is_moving: bool = False  # it is stopped to go on elsewhere
    done: int = 0  # calls of the piece that ended
    since: float = 0.0  # when it began, or its last call ended
    after: str = ""  # it is queued in the guard behind this attempt, and takes no capacity yet
    behind: str = ""  # the attempt that is queued behind it
    is_recalled: bool = False  # it shall leave the guard's queue and wait here again
    asked_back: str = ""  # why it goes back to the server once it has left the guard's queue
    waits_at: Optional[int] = None  # the call of the piece, or 0, that waits for other tasks

    @property
    def lends(self) -> bool:
        """True if what runs of it waits for other tasks, which may have its cores meanwhile."""
        return self.waits_at is not None and self.waits_at == self.done

    @property
    def cores(self) -> int:
        """The cores that it takes now; none while it is queued in the guard, or lends them."""
        return 0 if self.after or self.lends else self.lease.room.cores

    @property
    def left(self) -> list[str]:
        """Calls of the piece that have not ended."""
        return names(self.lease)[self.done :]


class Slots:
    """The capacity of one pilot, the attempts that take it and those that wait for it."""

    def __init__(self, room: Capacity) -> None:
        self.room = room
        self.waiting: deque[Lease] = deque()
        self.running: OrderedDict[str, RunningAttempt] = OrderedDict()
        self._gpus = list(range(room.gpus))
        self._durations: OrderedDict[str, float] = OrderedDict()  # function -> mean seconds of a call
        self.guard_queue = GuardQueue()

    def add(self, lease: Lease) -> None:
        """Queue a lease before those of a smaller precedence. One that continues the lease before it is joined with it,
        because larger pieces cost less."""
        at = len(self.waiting)
        while at and self.waiting[at - 1].precedence < lease.precedence:
            at -= 1
        if at and follows(self.waiting[at - 1], lease):
            self.waiting[at - 1] = joined(self.waiting[at - 1], lease)
        else:
            self.waiting.insert(at, lease)

    def _add_again(self, lease: Lease) -> None:
        """Queue a lease that did not begin after all, first of those of its precedence."""
        at = 0
        while at < len(self.waiting) and self.waiting[at].precedence > lease.precedence:
            at += 1
        self.waiting.insert(at, lease)

    def can_ever_hold(self, room: Capacity) -> bool:
        """True if this pilot is large enough."""
        return room.cores <= self.room.cores and room.gpus <= self.room.gpus

    def held(self, now: float) -> list[Held]:
        """Everything here, as exchanges list it. A call is listed as running only if it takes a while."""
        held = [Held(lease.attempt, "leased", lease.count) for lease in self.waiting]
        for attempt, run in self.running.items():
            if not run.lease.function:
                held.append(Held(attempt, "running" if run.started else "leased"))
                continue
            first, left = shift(parse_attempt(attempt), run.done), run.lease.count - run.done
            if left:
                held.append(Held(str(first), "running" if now >= run.since + REPORT_AFTER else "leased"))
            if left > 1:
                held.append(Held(str(shift(first, 1)), "leased", left - 1))
        return held

    def attempts(self) -> set[str]:
        """The names of everything here that has not ended."""
        found = {attempt for lease in self.waiting for attempt in names(lease)}
        for attempt, run in self.running.items():
            found.update(run.left if run.lease.function else [attempt])
        return found

    def has_unreported(self, now: float) -> bool:
        """True if a call runs whose start was not yet reported."""
        return any(run.lease.function and now < run.since + REPORT_AFTER for run in self.running.values())

    def free(self) -> Capacity:
        """Capacity that neither running nor waiting attempts take."""
        taken = [(run.lease.room, 1) for run in self.running.values()]  # also those that are queued in the guard
        taken += [(lease.room, lease.count) for lease in self.waiting]
        lent = sum(run.lease.room.cores for run in self.running.values() if run.lends)
        return Capacity(
            min(self.room.cores, max(0, self.room.cores + lent - sum(r.cores * n for r, n in taken))),
            max(0, self.room.memory - sum(r.memory * n for r, n in taken)),
            max(0, self.room.disk - sum(r.disk * n for r, n in taken)),
            max(0, self.room.gpus - sum(r.gpus * n for r, n in taken)),
        )

    def begin(self, now: float) -> list[Begin]:
        """Start waiting leases in order while they fit; smaller ones never overtake the first, unless an attempt waits
        for other tasks: the first may need what that one keeps, and the others be what it waits for."""
        begun: list[Begin] = []
        while (at := next(self._beginnable(), None)) is not None:
            cores = self.room.cores - sum(run.cores for run in self.running.values())
            if not self._fits(self.waiting[at].room, cores):
                if not any(run.lends for run in self.running.values()):
                    break
                at = next((at for at in self._beginnable() if self._fits(self.waiting[at].room, cores)), None)
                if at is None:
                    break
            room = self.waiting[at].room
            lease = self._take_piece(at, cores // max(1, room.cores))
            gpus, self._gpus = tuple(self._gpus[: room.gpus]), self._gpus[room.gpus :]
            self.running[lease.attempt] = RunningAttempt(lease, gpus, since=now)
            begun.append(Begin(lease, gpus))
        if self.waiting and self.guard_queue.is_worthwhile:
            begun += self._queue_in_guard(now)
        return begun

    def _fits(self, room: Capacity, cores: int) -> bool:
        """True if something of this size may begin now, when so many cores are free."""
        if room.cores > cores or len(self._gpus) < room.gpus:
            return False
        taken = [run.lease.room for run in self.running.values() if not run.after]
        return sum(r.memory for r in taken) + room.memory <= max(self.room.memory, room.memory if not taken else 0)

    def _queue_in_guard(self, now: float) -> list[Begin]:
        """Send short commands to the guard before there is a free slot for them."""
        heads = sum(1 for run in self.running.values() if not run.after)
        left = AHEAD * heads - (len(self.running) - heads)
        if left <= AHEAD * heads // 2:
            return []  # sending many at a time costs less than one after another
        ends = deque(run for run in self.running.values() if not run.behind and not run.lends and may_queue(run.lease))
        begun: list[Begin] = []
        head = self.waiting[0]
        if not ends or not may_queue(head) or any(run.lease.room != head.room for run in ends):
            return begun
        for lease in self._take_some(left):
            before = ends.popleft()
            run = self.running[lease.attempt] = RunningAttempt(
                lease, before.gpus, since=now, after=before.lease.attempt
            )
            before.behind = lease.attempt
            ends.append(run)
            begun.append(Begin(lease, run.gpus, run.after))
        return begun

    def _take_some(self, most: int) -> list[Lease]:
        """Take commands out of the first waiting chunk, each as a complete lease."""
        lease = self.waiting.popleft()
        count = min(most, lease.count)
        if count < lease.count:
            self.waiting.appendleft(part(lease, count, lease.count))
        return [lease if lease.seed is None and not lease.params else single(lease, at) for at in range(count)]

    def _is_idle(self) -> bool:
        """True if a slot is free, nothing waits for it, and commands are queued in the guard."""
        heads = sum(run.cores for run in self.running.values())
        return not self.waiting and heads < self.room.cores and any(run.after for run in self.running.values())

    def _is_pressed(self) -> bool:
        """True if something waits whose precedence is greater than that of queued commands."""
        precedence = self.waiting[0].precedence if self.waiting else 0
        return precedence > 0 and any(run.after and run.lease.precedence < precedence for run in self.running.values())

    def recall(self, now: float) -> list[str]:
        """Commands to take back from the guard's queue: those behind one that waits for other tasks; and those behind a
        long one, while another slot is idle or something of greater precedence waits."""
        is_wanted = self._is_idle() or self._is_pressed()
        if not (is_wanted or any(run.lends and run.behind for run in self.running.values())):
            return []
        found = []
        for run in self.running.values():
            before = self.running.get(run.after)
            if before is None or before.after or run.is_recalled:
                continue
            if before.lends or (is_wanted and now >= before.since + LONG):
                while True:
                    run.is_recalled = True
                    found.append(run.lease.attempt)
                    if run.behind not in self.running:
                        break
                    run = self.running[run.behind]
        return found

    def recall_at(self) -> Optional[float]:
        """When some may have to be recalled."""
        if not (self._is_idle() or self._is_pressed()):
            return None
        queued = ((run, self.running.get(run.behind)) for run in self.running.values() if not run.after)
        times = (run.since + LONG for run, behind in queued if behind is not None and not behind.is_recalled)
        return min(times, default=None)

    def _beginnable(self) -> Iterator[int]:
        """The indices of waiting leases in order, but for those in whose lane a call runs already."""
        lanes: Optional[set[str]] = None
        for at, lease in enumerate(self.waiting):
            if lease.lane and lanes is None:
                lanes = {run.lease.lane for run in self.running.values()}
            if not lease.lane or lanes is None or lease.lane not in lanes:
                yield at

    def _take_piece(self, at: int, slots: int) -> Lease:
        """Take one command, or as many calls as a runner gets at once, given the number of idle slots."""
        self.waiting.rotate(-at)  # what waits for its lane keeps its place
        taken = self._take_head(slots)
        self.waiting.rotate(at)
        return taken

    def _take_head(self, slots: int) -> Lease:
        lease = self.waiting[0]
        if not lease.function:
            return self._take_some(1)[0]
        # Idle slots share what is here; with more waiting behind, each gets a piece of its own.
        count = piece(self._durations.get(lease.function), lease.count, 1 if lease.lane else slots)
        count = min(count, lease.max_tasks_per_child or count)  # a runner of its own for each piece, if need be
        self.waiting.popleft()
        if count < lease.count:
            self.waiting.appendleft(part(lease, count, lease.count))
        return part(lease, 0, count)

    def end(self, attempt: str, now: float = 0.0) -> Optional[RunningAttempt]:
        """Remove an attempt, or a piece, that is over; calls of it that never began wait again."""
        run = self.running.pop(attempt, None)
        if run is not None:
            before, behind = self.running.get(run.after), self.running.get(run.behind)
            if before is not None:
                before.behind = run.behind
            if behind is not None:
                behind.after, behind.since = run.after, now
            elif not run.after:
                self._gpus.extend(run.gpus)
            if run.lease.function and run.done < run.lease.count:
                self._add_again(part(run.lease, run.done, run.lease.count))
        return run

    # --- stops
    def stop_all(self, why: str, ending: dict[str, str], keep: bool) -> list[Stop]:
        """Stop everything because the pilot leaves at once; with `keep` commands may go on elsewhere from a checkpoint
        [GWP G10]. `ending` gets the calls that are being stopped, and why."""
        stops: list[Stop] = []
        for attempt, run in self.running.items():
            if run.lease.function:
                ending.update(dict.fromkeys(run.left, why))
                stops += [Stop(call, why) for call in run.left]
            elif not run.stopping:
                run.stopping = why
                stops.append(Stop(attempt, why, keep))
        return stops

    def checkpoint_all(self, why: str) -> list[Stop]:
        """Stop what can write a checkpoint and go on elsewhere, because the pilot may soon be killed; the rest runs on."""
        return [stop for attempt in list(self.running) for stop in self.move(attempt, why)]

    def cancel(self, attempt: str, why: str, ending: dict[str, str]) -> list[Stop]:
        """Stop a running attempt, or a call in a piece, that was cancelled."""
        run = self.running.get(attempt)
        if run is not None and not run.stopping:
            run.stopping = why
        elif run is None and self.piece_of(parse_attempt(attempt)) is not None:
            ending[attempt] = why
        else:
            return []
        return [Stop(attempt, why)]

    def move(self, attempt: str, why: str) -> list[Stop]:
        """Stop an attempt so that it goes on elsewhere; one without a checkpoint would only lose its work."""
        run = self.running.get(attempt)
        if run is None or run.stopping or not run.lease.checkpoint:
            return []
        run.stopping, run.is_moving = why or "moved", True
        return [Stop(attempt, run.stopping, keep=True)]

    def was_recalled(self, run: RunningAttempt, report: Report) -> bool:
        """True if an ended command was recalled before it began, and waits again unless the server asked for it; else its
        duration is recorded."""
        if report.started is not None:
            self.guard_queue.record(report.duration)
        elif run.is_recalled and not run.stopping:
            if not run.asked_back:
                self._add_again(run.lease)
            return True
        return False

    def learn(self, function: str, durations: list[float]) -> None:
        """Update the mean duration of a function's calls."""
        if not durations:
            return
        mean = sum(durations) / len(durations)
        before = self._durations.pop(function, mean)
        self._durations[function] = 0.5 * before + 0.5 * mean
        if len(self._durations) > DURATIONS_KEPT:
            self._durations.popitem(last=False)

    # --- attempts that wait for other tasks
    def set_waiting(self, attempt: str, call: str, is_waiting: bool) -> bool:
        """Note whether an attempt, or this call of a piece, waits; False if nothing changed, as for a call that ended."""
        run = self.running.get(attempt)
        if run is None:
            return False
        first, before = parse_attempt(attempt), run.lends
        at = next((at for at in range(run.done, run.lease.count) if shift(first, at).text == call), None)
        if at is None:
            return False
        if is_waiting:
            run.waits_at = at
        elif run.waits_at == at:
            run.waits_at = None
        return run.lends is not before

    def lending(self) -> list[str]:
        """The attempts that wait for other tasks and lend their cores."""
        return [str(shift(parse_attempt(name), run.done)) for name, run in self.running.items() if run.lends]

    def shorten(self, piece: str, count: int) -> list[str]:
        """Let the calls of a piece from `count` on wait here again, because they did not begin; returns their names."""
        run = self.running.get(piece)
        if run is None or count >= run.lease.count:
            return []
        rest = part(run.lease, count, run.lease.count)
        run.lease = part(run.lease, 0, count)
        self._add_again(rest)
        return names(rest)

    def piece_of(self, attempt: AttemptId) -> Optional[RunningAttempt]:
        """The running piece that holds this call, if the call has not ended."""
        for run in self.running.values():
            if run.lease.function:
                first = parse_attempt(run.lease.attempt)
                at = attempt.element - first.element
                if run.done <= at < run.lease.count and shift(first, at) == attempt:
                    return run
        return None

    def take_out(self, attempt: AttemptId, count: int = 1) -> list[str]:
        """Remove those of `count` neighbouring attempts that still wait; returns their names."""
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

    def ask_guard(self, attempt: AttemptId, count: int, why: str) -> list[str]:
        """Those of `count` neighbouring commands that are queued in the guard, to be recalled: the server wants them back,
        unless they begin before the guard hears of it."""
        found = []
        for name, run in self.running.items():
            named = parse_attempt(name)
            is_meant = (
                0 <= named.element - attempt.element < count and named._replace(element=attempt.element) == attempt
            )
            if run.after and is_meant:
                run.is_recalled, run.asked_back = True, why or "asked back"
                found.append(name)
        return found
