"""Slots: what of this host's capacity is taken by which attempt, and what may begin.

Leases wait as the chunk they came in. Of calls of a function a runner gets a *piece* at a time, of short commands of an
array the guard does [ADR 0033]; a piece takes the capacity of one, because they run one after another. Any other command
is taken out of its chunk when it begins.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from typing import Optional, Union

from shoal.model.ids import AttemptId, parse_attempt
from shoal.model.lazy_dataclass import dataclass
from shoal.pilot.agent.events import Begin, Recall, Shorten, Stop
from shoal.pilot.agent.guard_queue import AHEAD, LONG, GuardQueue, may_piece, may_queue
from shoal.sched.batch_size import piece
from shoal.wire.chunk import follows, is_alike, joined, names, part, shift, single, with_alike
from shoal.wire.messages import Capacity, Held, Lease, Report

REPORT_AFTER = 0.25  # seconds that one of a piece runs before its start is reported
DURATIONS_KEPT = 100  # functions, and runs of commands, whose mean duration is remembered


@dataclass
class RunningAttempt:
    """An attempt, or a piece, that an executor has."""

    lease: Lease
    gpus: tuple[int, ...]
    started: bool = False
    stopping: str = ""
    is_moving: bool = False  # it is stopped to go on elsewhere
    is_piece: bool = False  # so also when only one of it is left
    done: int = 0  # of the piece, those that ended
    since: float = 0.0  # when it began, or the last one of it ended
    after: str = ""  # it is queued in the guard behind this attempt, and takes no capacity yet
    behind: str = ""  # the attempt that is queued behind it
    is_recalled: bool = False  # it, or what has not begun of it, shall leave the guard and wait here again
    asked_back: str = ""  # why it goes back to the server once it has left the guard's queue
    waits_at: Optional[int] = None  # the one of the piece, or 0, that waits for other tasks

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
        """Those of the piece that have not ended."""
        return names(self.lease)[self.done :]


class Slots:
    """The capacity of one pilot, the attempts that take it and those that wait for it."""

    def __init__(self, room: Capacity) -> None:
        self.room = room
        self.waiting: deque[Lease] = deque()
        self.running: OrderedDict[str, RunningAttempt] = OrderedDict()
        self._gpus = list(range(room.gpus))
        self._durations: OrderedDict[str, float] = OrderedDict()  # function, or run of commands -> mean seconds
        self.guard_queue = GuardQueue()
        self.takes_pieces = True  # short commands may go to a guard by the piece [ADR 0033]
        self._apart: OrderedDict[str, None] = OrderedDict()  # runs of commands that must not
        self._broken: list[str] = []  # calls of chains at which a runner stopped

    def add(self, lease: Lease) -> None:
        """Queue a lease before those of a smaller precedence. One that continues the lease before it is joined with it,
        because larger pieces cost less; so are plain commands on neighbouring elements, each with arguments of its own."""
        at = len(self.waiting)
        while at and self.waiting[at - 1].precedence < lease.precedence:
            at -= 1
        if at and follows(self.waiting[at - 1], lease):
            self.waiting[at - 1] = joined(self.waiting[at - 1], lease)
        elif at and self._may_piece(lease) and is_alike(self.waiting[at - 1], lease):
            self.waiting[at - 1] = with_alike(self.waiting[at - 1], lease)
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

    @property
    def holds_unsafe(self) -> bool:
        """True if something is here that must not run twice."""
        leases = (*self.waiting, *(run.lease for run in self.running.values()))
        return any(lease.rerun != "safe" for lease in leases)

    def held(self, now: float) -> list[Held]:
        """Everything here, as exchanges list it. One of a piece is listed as running only if it takes a while."""
        held = [Held(lease.attempt, "leased", lease.count) for lease in self.waiting]
        for attempt, run in self.running.items():
            if not run.is_piece:
                held.append(Held(attempt, "running" if run.started else "leased"))
                continue
            first, left = shift(parse_attempt(attempt), run.done), run.lease.count - run.done
            if left:
                is_long = not run.after and now >= run.since + REPORT_AFTER
                held.append(Held(str(first), "running" if is_long else "leased"))
            if left > 1:
                held.append(Held(str(shift(first, 1)), "leased", left - 1))
        return held

    def attempts(self) -> set[str]:
        """The names of everything here that has not ended."""
        found = {attempt for lease in self.waiting for attempt in names(lease)}
        for attempt, run in self.running.items():
            found.update(run.left if run.is_piece else [attempt])
        return found

    def has_unreported(self, now: float) -> bool:
        """True if one of a piece runs whose start was not yet reported."""
        return True in [run.is_piece and now < run.since + REPORT_AFTER for run in self.running.values()]

    def free(self) -> Capacity:
        """Capacity that neither running nor waiting attempts take."""
        whole = self.room
        cores, memory, disk, gpus = whole.cores, whole.memory, whole.disk, whole.gpus
        taken = [
            (run.lease.room, 0 if run.lends else 1, 1) for run in self.running.values()
        ]  # also queued in the guard
        taken += [(lease.room, lease.count, lease.count) for lease in self.waiting]
        for room, wide, count in taken:
            cores -= room.cores * wide
            memory -= room.memory * count
            disk -= room.disk * count
            gpus -= room.gpus * count
        return Capacity(max(0, cores), max(0, memory), max(0, disk), max(0, gpus))

    def begin(self, now: float) -> list[Begin]:
        """Start waiting leases in order while they fit; smaller ones never overtake the first, unless an attempt waits
        for other tasks: the first may need what that one keeps, and the others be what it waits for."""
        begun: list[Begin] = []
        if not self.waiting:
            return begun
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
            is_piece = bool(lease.function) or lease.count > 1
            self.running[lease.attempt] = RunningAttempt(lease, gpus, is_piece=is_piece, since=now)
            begun.append(Begin(lease, gpus))
        if self.waiting and self.guard_queue.is_worthwhile:
            begun += self._queue_in_guard(now)
        return begun

    def has_work(self, lease: Lease, seconds: float) -> bool:
        """True if what waits at the head is of the kind of this lease, and keeps all slots busy for so long."""
        head = self.waiting[0] if self.waiting else None
        mean = self._mean(lease)
        if head is None or mean is None or _kind(head) != _kind(lease):
            return False
        return head.count * head.room.cores * mean >= seconds * self.room.cores

    def _mean(self, lease: Lease) -> Optional[float]:
        """The seconds that such an attempt takes, if it is known: commands of one run are taken for alike."""
        return self._durations.get(_kind(lease))

    def _fits(self, room: Capacity, cores: int) -> bool:
        """True if something of this size may begin now, when so many cores are free."""
        if room.cores > cores or len(self._gpus) < room.gpus:
            return False
        taken = [run.lease.room for run in self.running.values() if not run.after]
        return sum(r.memory for r in taken) + room.memory <= max(self.room.memory, room.memory if not taken else 0)

    def _queue_in_guard(self, now: float) -> list[Begin]:
        """Send short commands to the guard before there is a free slot for them: a piece behind each slot, or some that
        go one by one."""
        if self._comes_in_pieces(self.waiting[0]):
            return self._queue_pieces(now)
        heads = sum(1 for run in self.running.values() if not run.after)
        left = AHEAD * heads - (len(self.running) - heads)
        if left <= AHEAD * heads // 2:
            return []  # sending many at a time costs less than one after another
        ends = deque(self._ends(now))
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

    def _comes_in_pieces(self, lease: Lease) -> bool:
        return lease.count > 1 and self._may_piece(lease) and self._mean(lease) is not None

    def _queue_pieces(self, now: float) -> list[Begin]:
        begun: list[Begin] = []
        heads = sum(1 for run in self.running.values() if not run.after)
        for before in list(self._ends(now)):
            head = self.waiting[0] if self.waiting else None
            if head is None or not self._comes_in_pieces(head):
                break
            if before.after or before.lease.room != head.room:
                continue
            lease, name = self._take_head(heads), before.lease.attempt
            before.behind = lease.attempt
            self.running[lease.attempt] = RunningAttempt(
                lease, before.gpus, is_piece=lease.count > 1, since=now, after=name
            )
            begun.append(Begin(lease, before.gpus, name))
        return begun

    def _ends(self, now: float) -> Iterator[RunningAttempt]:
        """The last of what runs and is queued for each slot, where more may follow: behind one that takes long it would only
        be recalled, and one that was recalled from its queue the guard may have forgotten, and begin at once."""
        for head in self.running.values():
            if not head.after and not head.lends and now < head.since + LONG:
                run = head
                while run.behind:
                    run = self.running[run.behind]
                if may_queue(run.lease) and not (run.after and run.is_recalled):
                    yield run

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
        """True if something waits whose precedence is greater than that of commands in the guard that have not begun."""
        precedence = self.waiting[0].precedence if self.waiting else 0
        return precedence > 0 and any(
            (run.after or (run.is_piece and not run.lease.function)) and run.lease.precedence < precedence
            for run in self.running.values()
        )

    def recall(self, now: float) -> list[Union[Recall, Shorten]]:
        """What to take back from the guard: what is queued behind one that waits for other tasks; what is queued behind a
        long one, while another slot is idle or something of greater precedence waits. Pieces are taken back, and what
        runs of them ends with the command at hand, also if nobody else has a use for the slot: the server may have; and
        at once if something of greater precedence waits."""
        found: list[Union[Recall, Shorten]] = []
        heads = self._heads_with_more()
        if not heads:
            return found
        is_pressed = self._is_pressed()
        is_wanted = is_pressed or self._is_idle()
        for head in heads:
            is_late = now >= head.since + LONG
            is_over = is_pressed or is_late
            if head.is_piece and not head.lease.function and is_over and not head.is_recalled and len(head.left) > 1:
                head.is_recalled = True
                found.append(Shorten(head.lease.attempt))
            run = self.running.get(head.behind)
            while run is not None:
                if not run.is_recalled and (head.lends or (is_over if run.is_piece else is_late and is_wanted)):
                    run.is_recalled = True
                    found.append(Recall(run.lease.attempt))
                run = self.running.get(run.behind)
        return found

    def _heads_with_more(self) -> list[RunningAttempt]:
        """What runs and is the first of several: of a piece, or of a queue in the guard."""
        return [run for run in self.running.values() if not run.after and (run.behind or run.is_piece)]

    def recall_at(self) -> Optional[float]:
        """When some may have to be recalled."""
        heads = self._heads_with_more()
        if not heads:
            return None
        is_wanted = self._is_idle() or self._is_pressed()
        times = []
        for head in heads:
            behind = self.running.get(head.behind)
            has_rest = head.is_piece and not head.lease.function and not head.is_recalled and len(head.left) > 1
            has_queue = behind is not None and not behind.is_recalled and (is_wanted or behind.is_piece)
            if has_rest or has_queue:
                times.append(head.since + LONG)
        return min(times, default=None)

    def _beginnable(self) -> Iterator[int]:
        """The indices of waiting leases in order, but for those in whose lane a call runs already."""
        lanes: Optional[set[str]] = None
        for at, lease in enumerate(self.waiting):
            if lease.lane and lanes is None:
                lanes = {run.lease.lane for run in self.running.values()}
            if not lease.lane or lanes is None or lease.lane not in lanes:
                yield at

    def _may_piece(self, lease: Lease) -> bool:
        return self.takes_pieces and _kind(lease) not in self._apart and may_piece(lease)

    def keep_apart(self, lease: Lease) -> None:
        """Let commands of this run begin one by one from now on."""
        self._apart[_kind(lease)] = None
        if len(self._apart) > DURATIONS_KEPT:
            self._apart.popitem(last=False)

    def _take_piece(self, at: int, slots: int) -> Lease:
        """Take one command, or as many as guard or runner get at once, given the number of idle slots."""
        self.waiting.rotate(-at)  # what waits for its lane keeps its place
        taken = self._take_head(slots)
        self.waiting.rotate(at)
        return taken

    def _take_head(self, slots: int) -> Lease:
        lease, mean = self.waiting[0], self._mean(self.waiting[0])
        if not lease.function and (mean is None or not self._may_piece(lease)):
            return self._take_some(1)[0]
        # Idle slots share what is here; with more waiting behind, each gets a piece of its own.
        count = piece(mean, lease.count, 1 if lease.lane else slots)
        if not lease.function and count == 1:
            return self._take_some(1)[0]
        count = min(count, lease.max_tasks_per_child or count)  # a runner of its own for each piece, if need be
        self.waiting.popleft()
        if count < lease.count:
            self.waiting.appendleft(part(lease, count, lease.count))
        return part(lease, 0, count)

    def end(self, attempt: str, now: float = 0.0) -> Optional[RunningAttempt]:
        """Remove an attempt, or a piece, that is over; those of it that never began wait again."""
        run = self.running.pop(attempt, None)
        if run is not None:
            before, behind = self.running.get(run.after), self.running.get(run.behind)
            if before is not None:
                before.behind = run.behind
            if behind is not None:
                behind.after, behind.since = run.after, now
                behind.is_recalled = behind.is_recalled and not behind.is_piece  # the rest of it is asked for anew
            elif not run.after:
                self._gpus.extend(run.gpus)
            if run.is_piece and run.done < run.lease.count:
                if run.lease.parents and run.done:  # it does not go on behind a call that did not succeed
                    self._broken.append(str(shift(parse_attempt(attempt), run.done - 1)))
                self._add_again(part(run.lease, run.done, run.lease.count))
        return run

    # --- stops
    def stop_all(self, why: str, ending: dict[str, str], keep: bool) -> list[Stop]:
        """Stop everything because the pilot leaves at once; with `keep` commands may go on elsewhere from a checkpoint
        [GWP G10]. `ending` gets those of pieces that are being stopped, and why."""
        stops: list[Stop] = []
        for attempt, run in self.running.items():
            if run.is_piece:
                left = [call for call in run.left if call not in ending]  # those are being stopped
                ending.update(dict.fromkeys(left, why))
                stops += [Stop(call, why) for call in left]
            elif not run.stopping:
                run.stopping = why
                stops.append(Stop(attempt, why, keep))
        return stops

    def checkpoint_all(self, why: str) -> list[Stop]:
        """Stop what can write a checkpoint and go on elsewhere, because the pilot may soon be killed; the rest runs on."""
        return [stop for attempt in list(self.running) for stop in self.move(attempt, why)]

    def cancel(self, attempt: str, why: str, ending: dict[str, str]) -> list[Stop]:
        """Stop a running attempt, or one of a piece, that was cancelled."""
        run = self.running.get(attempt)
        if run is not None and not run.is_piece and not run.stopping:
            run.stopping = why
        elif attempt not in ending and self.piece_of(parse_attempt(attempt)) is not None:
            ending[attempt] = why
        else:
            return []
        return [Stop(attempt, why)]

    def runs(self, attempt: str) -> bool:
        """True if an executor has this attempt, also as one of a piece, and it has not ended."""
        run = self.running.get(attempt)
        return (run is not None and not run.is_piece) or self.piece_of(parse_attempt(attempt)) is not None

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
            self.learn(run.lease, [report.duration])
        elif run.is_recalled and not run.stopping:
            if not run.asked_back:
                self._add_again(run.lease)
            return True
        return False

    def learn(self, lease: Lease, durations: list[float]) -> None:
        """Update the mean duration of a function's calls, or of the commands of a run."""
        if not durations:
            return
        mean, kind = sum(durations) / len(durations), _kind(lease)
        if not lease.function:
            self.guard_queue.record(mean)
        before = self._durations.pop(kind, mean)
        self._durations[kind] = 0.5 * before + 0.5 * mean
        if len(self._durations) > DURATIONS_KEPT:
            self._durations.popitem(last=False)

    # --- attempts that wait for other tasks
    def set_waiting(self, attempt: str, call: str, is_waiting: bool) -> bool:
        """Note whether an attempt, or this one of a piece, waits; False if nothing changed, as for one that ended."""
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
        """Let those of a piece from `count` on wait here again, because they did not begin; returns their names."""
        run = self.running.get(piece)
        if run is None or count >= run.lease.count:
            return []
        rest = part(run.lease, count, run.lease.count)
        run.lease = part(run.lease, 0, count)
        self._add_again(rest)
        return names(rest)

    def piece_of(self, attempt: AttemptId) -> Optional[RunningAttempt]:
        """The piece that holds this attempt, if that has not ended."""
        for run in self.running.values():
            if run.is_piece:
                first = parse_attempt(run.lease.attempt)
                at = attempt.element - first.element
                if run.done <= at < run.lease.count and shift(first, at) == attempt:
                    return run
        return None

    def take_behind(self, reports: Mapping[str, Report]) -> list[str]:
        """Remove calls of chains that wait for one of these attempts, where it did not succeed, or for another that is removed;
        returns their names."""
        broken, self._broken = self._broken, []
        chained = [lease for lease in self.waiting if lease.parents]
        if not chained:
            return []
        gone = {parse_attempt(name) for name, report in reports.items() if report.outcome != "succeeded"}
        gone.update(map(parse_attempt, broken))
        behind: list[AttemptId] = []
        for lease in chained if gone else ():
            first = parse_attempt(lease.attempt)
            elements = {one.element for one in gone if one.run == first.run and one.nonce == first.nonce}
            for at, spans in enumerate(lease.parents):
                if any(low <= one < high for low, high in zip(spans[::2], spans[1::2]) for one in elements):
                    attempt = shift(first, at)
                    elements.add(attempt.element)
                    gone.add(attempt)
                    behind.append(attempt)
        return [name for attempt in behind for name in self.take_out(attempt)]

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

    def ask_guard(
        self, attempt: AttemptId, count: int, why: str, asked: dict[str, str]
    ) -> list[Union[Recall, Shorten]]:
        """What takes those of `count` neighbouring commands back that the guard has not begun: the server wants them, unless
        they begin before the guard hears of it. `asked` gets those of pieces, and why."""
        found: list[Union[Recall, Shorten]] = []
        meant = {str(shift(attempt, at)) for at in range(count)}
        for name, run in self.running.items():
            if run.is_piece and not run.lease.function:
                # The first of one that is not queued runs, as far as is known here.
                wanted = [one for one in run.left[0 if run.after else 1 :] if one in meant]
                asked.update(dict.fromkeys(wanted, why))
                if wanted and not run.is_recalled:
                    run.is_recalled = True
                    found.append(Recall(name) if run.after else Shorten(name))
            elif run.after and name in meant:
                run.is_recalled, run.asked_back = True, why
                found.append(Recall(name))
        return found


def _kind(lease: Lease) -> str:
    return lease.function or lease.attempt.partition(".")[0]
