"""The pilot's thought: what to start, what to say, when to end. No clock, socket, disk or process in here.

`handle(event, now)` takes what happened and returns what to do; `deadline()` says when to be asked again.
Rules: (1) a report is kept until a reply acknowledges it; (2) an attempt once seen is never begun again;
(3) an exchange that got no answer is sent again unchanged under its number; (4) at most two are in flight,
and a report rides on one of them at a time [contract 5, U4, G1].
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace
from random import Random
from typing import Optional

from shoal.model.limits import MAX_BODY, MAX_IN_FLIGHT, MAX_REPORTS
from shoal.pilot.moves import (
    Action,
    Answered,
    Begin,
    Contact,
    Disowned,
    Ended,
    Event,
    Finish,
    Join,
    Joined,
    Leave,
    NoAnswer,
    Noticed,
    Outdated,
    Send,
    Settle,
    Started,
    Stop,
)
from shoal.wire.messages import (
    PROTOCOL,
    Exchange,
    Former,
    Held,
    Lease,
    Order,
    Registered,
    Reply,
    Report,
    Room,
    TagValue,
    Tail,
)

SEEN_KEPT = 20_000  # attempts remembered so that a lease sent again is known
LAZY = 0.3  # seconds a start may wait for company before it is told
BACKOFF_FIRST, BACKOFF_MOST = 0.2, 5.0


@dataclass
class _Flight:
    """An exchange that was sent and not yet answered."""

    exchange: Exchange
    sent_at: float
    again_at: Optional[float] = None  # set: it failed, send it again then


@dataclass
class _Run:
    lease: Lease
    gpus: tuple[int, ...]
    started: bool = False
    stopping: str = ""


@dataclass
class Agent:
    """One pilot's state and rules."""

    room: Room
    rng: Random
    registered: Optional[Registered] = None
    waiting: deque[Lease] = field(default_factory=deque)
    running: OrderedDict[str, _Run] = field(default_factory=OrderedDict)
    reports: OrderedDict[str, Report] = field(default_factory=OrderedDict)
    leaving: str = ""
    ended: bool = False

    def __post_init__(self) -> None:
        self._flights: OrderedDict[int, _Flight] = OrderedDict()
        self._tails: deque[Tail] = deque()
        self._tags: dict[str, TagValue] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._gpus: list[int] = list(range(self.room.gpus))
        self._seq = 0
        self._ack = 0
        self._failures = 0
        self._joining = False
        self._join_at = 0.0
        self._contact: Optional[float] = None
        self._urgent = False
        self._lazy_at: Optional[float] = None
        self._beat = 10.0
        self._stop_all = False
        self._news_at = 0.0
        self._former: Optional[Former] = None
        self._farewell = False  # the server knows that we leave and hold nothing

    # --- the one entry
    def handle(self, event: Event, now: float) -> list[Action]:
        """Take an event; return what to do, in order."""
        if self.ended:
            return []
        if self._contact is None:
            self._contact = now
        if isinstance(event, (Ended, Leave)):
            self._news_at = now
        actions: list[Action] = []
        if isinstance(event, Joined):
            self._on_joined(event, now)
            actions.append(Contact(now))
        elif isinstance(event, Answered):
            self._on_answered(event.reply, now, actions)
        elif isinstance(event, NoAnswer):
            self._on_no_answer(event.seq, now)
        elif isinstance(event, Outdated):
            self._on_outdated(event.seq)
        elif isinstance(event, Disowned):
            self._on_disowned(event.seq, now)
        elif isinstance(event, Started):
            self._on_started(event.attempt, now)
        elif isinstance(event, Ended):
            self._on_ended(event)
        elif isinstance(event, Leave):
            self._on_leave(event, actions)
        elif isinstance(event, Noticed):
            self._tags.update(event.tags)
            self._lazy_at = self._lazy_at if self._lazy_at is not None else now + LAZY
        self._begin_waiting(actions)
        self._talk(now, actions)
        self._maybe_finish(now, actions)
        return actions

    def deadline(self) -> Optional[float]:
        """When `Tick` is due at the latest."""
        if self.ended:
            return None
        times = [flight.again_at for flight in self._flights.values() if flight.again_at is not None]
        if self.registered is None:
            times += [] if self._joining else [self._join_at]
        elif self._lazy_at is not None and not times and len(self._flights) < MAX_IN_FLIGHT:
            times.append(self._lazy_at)
        if self._contact is not None and not self.running:
            hurried = self.leaving and (self._stop_all or not (self.reports or self._tails))
            times.append(self._since() + (2 * self._beat if hurried else self._patience()) + 0.01)
        return min(times) if times else None

    # --- events
    def _on_joined(self, event: Joined, now: float) -> None:
        self.registered = event.registered
        self._beat = event.registered.beat
        self._joining = False
        self._failures = 0
        # Exchange numbers go on across sessions, so that an answer from an old one cannot be taken for a new one.
        self._flights.clear()
        self._contact = now
        self._urgent = True

    def _on_answered(self, reply: Reply, now: float, actions: list[Action]) -> None:
        flight = self._flights.pop(reply.seq, None)
        if flight is None:
            return  # a duplicate: everything in it was taken already
        self._failures = 0
        for other in self._flights.values():
            if other.again_at is not None:
                other.again_at = now  # the server is back: no reason to wait
        self._ack = max(self._ack, reply.seq)
        self._contact = max(self._contact or 0.0, flight.sent_at)
        self._beat = reply.hold
        actions.append(Contact(self._contact))
        said = flight.exchange
        self._farewell = bool(said.leaving) and not said.held
        verdicts = {v.attempt: v.verdict for v in reply.verdicts}
        for report in flight.exchange.reports:
            if self.reports.pop(report.attempt, None) is not None:
                actions.append(Settle(report.attempt, verdicts.get(report.attempt) in ("recorded", "adopted")))
        for lease in reply.leases:
            self._take(lease, now - flight.sent_at)
        for order in reply.orders:
            self._obey(order, actions)

    def _on_no_answer(self, seq: int, now: float) -> None:
        self._failures += 1
        most = min(BACKOFF_MOST, BACKOFF_FIRST * 2.0 ** min(self._failures, 10))
        again = now + self.rng.uniform(0.5, 1.0) * most
        if seq == 0:
            self._joining = False
            self._join_at = again
        elif seq in self._flights:
            self._flights[seq].again_at = again

    def _on_outdated(self, seq: int) -> None:
        flight = self._flights.pop(seq, None)
        if flight is not None:
            self._tails.extend(flight.exchange.tails)
            self._tags = {**flight.exchange.tags, **self._tags}
            self._urgent = True

    def _on_disowned(self, seq: int, now: float) -> None:
        if seq and seq not in self._flights:
            return  # about a session we already left
        for flight in self._flights.values():
            self._tails.extend(flight.exchange.tails)
            self._tags = {**flight.exchange.tags, **self._tags}
        self._flights.clear()
        self._joining = False
        self._join_at = now
        if self.registered is not None:
            self._former = Former(self.registered.pilot, self.registered.session)
        self.registered = None

    def _on_started(self, attempt: str, now: float) -> None:
        run = self.running.get(attempt)
        if run is not None:
            run.started = True
            self._lazy_at = self._lazy_at if self._lazy_at is not None else now + LAZY

    def _on_ended(self, event: Ended) -> None:
        run = self.running.pop(event.report.attempt, None)
        if run is None:
            return
        self._gpus.extend(run.gpus)
        report = event.report
        if run.stopping and report.outcome == "failed":
            outcome = "returned" if self._stop_all else "cancelled"
            report = replace(report, outcome=outcome, cause="cancelled", message=run.stopping)
        self.reports[report.attempt] = report
        self._tails.extend(event.tails)
        self._urgent = True

    def _on_leave(self, event: Leave, actions: list[Action]) -> None:
        self.leaving = self.leaving or event.why
        self._urgent = True
        while self.waiting:
            self._give_back(self.waiting.popleft(), event.why)
        if event.now:
            self._stop_all = True
            for attempt, run in self.running.items():
                if not run.stopping:
                    run.stopping = event.why
                    actions.append(Stop(attempt, event.why))

    # --- leases and orders
    def _take(self, lease: Lease, age: float) -> None:
        if lease.attempt in self._seen:
            return
        self._seen[lease.attempt] = None
        if len(self._seen) > SEEN_KEPT:
            self._seen.popitem(last=False)
        if self.leaving:
            self._give_back(lease, self.leaving)
        elif lease.rerun != "safe" and self.registered is not None and age > self.registered.kill_after:
            # The lease is the start, and it came too late: another may run it by now [B0.4].
            self._give_back(lease, f"its lease was {age:.0f} s on the way")
        elif lease.room.cores > self.room.cores or lease.room.gpus > self.room.gpus:
            self._give_back(lease, "it is larger than this pilot")
        else:
            self.waiting.append(lease)

    def _give_back(self, lease: Lease, why: str) -> None:
        self.reports[lease.attempt] = Report(lease.attempt, "returned", message=why)
        self._urgent = True

    def _obey(self, order: Order, actions: list[Action]) -> None:
        if order.kind == "drain":
            self._on_leave(Leave(order.why or "told to drain"), actions)
        elif order.kind == "cancel":
            run = self.running.get(order.attempt)
            if run is not None and not run.stopping:
                run.stopping = order.why or "cancelled"
                actions.append(Stop(order.attempt, run.stopping))
            for lease in [lease for lease in self.waiting if lease.attempt == order.attempt]:
                self.waiting.remove(lease)
                self.reports[lease.attempt] = Report(lease.attempt, "cancelled", "cancelled", order.why)
                self._urgent = True

    def free(self) -> Room:
        """Room that neither running nor waiting attempts take."""
        taken = [run.lease.room for run in self.running.values()] + [lease.room for lease in self.waiting]
        return Room(
            max(0, self.room.cores - sum(r.cores for r in taken)),
            max(0, self.room.memory - sum(r.memory for r in taken)),
            max(0, self.room.disk - sum(r.disk for r in taken)),
            max(0, self.room.gpus - sum(r.gpus for r in taken)),
        )

    def _begin_waiting(self, actions: list[Action]) -> None:
        """Start waiting leases in order while they fit; the head never starves behind smaller ones."""
        while self.waiting:
            room = self.waiting[0].room
            taken = [run.lease.room for run in self.running.values()]
            if (
                sum(r.cores for r in taken) + room.cores > self.room.cores
                or sum(r.memory for r in taken) + room.memory > max(self.room.memory, room.memory if not taken else 0)
                or len(self._gpus) < room.gpus
            ):
                return
            lease = self.waiting.popleft()
            gpus, self._gpus = tuple(self._gpus[: room.gpus]), self._gpus[room.gpus :]
            self.running[lease.attempt] = _Run(lease, gpus)
            actions.append(Begin(lease, gpus))

    # --- talking
    def _talk(self, now: float, actions: list[Action]) -> None:
        if self.registered is None:
            if not self._joining and now >= self._join_at:
                self._joining = True
                actions.append(Join(self._former))
            return
        for flight in self._flights.values():
            if flight.again_at is not None and now >= flight.again_at:
                flight.again_at, flight.sent_at = None, now
                actions.append(Send(flight.exchange))
        if any(flight.again_at is not None for flight in self._flights.values()):
            return  # the server is away: no second message until the first got through
        due = self._urgent or (self._lazy_at is not None and now >= self._lazy_at)
        if not self._flights or (due and len(self._flights) < MAX_IN_FLIGHT):
            actions.append(Send(self._exchange(now)))

    def _exchange(self, now: float) -> Exchange:
        assert self.registered is not None
        riding = {r.attempt for flight in self._flights.values() for r in flight.exchange.reports}
        fresh = self._fresh(riding)
        held = [Held(lease.attempt, "leased") for lease in self.waiting]
        held += [Held(a, "running" if run.started else "leased") for a, run in self.running.items()]
        held += [Held(attempt, "done") for attempt in self.reports]
        self._seq += 1
        exchange = Exchange(
            PROTOCOL, self.registered.pilot, self.registered.session, self._seq, self._ack, self.free(),
            held, fresh, self._tags, [self._tails.popleft() for _ in range(min(len(self._tails), 16))], self.leaving,
        )  # fmt: skip
        self._tags = {}
        self._urgent = len(self.reports) > len(riding) + len(fresh)
        self._lazy_at = None
        self._flights[self._seq] = _Flight(exchange, now)
        return exchange

    def _fresh(self, riding: set[str]) -> list[Report]:
        """Reports that ride on no exchange yet, as many as fit into one message."""
        fresh: list[Report] = []
        bytes_ = 0
        for attempt, report in self.reports.items():
            if attempt not in riding:
                bytes_ += 500 + len(report.last_line) + len(report.stderr_tail) + sum(map(len, report.new_files))
                if fresh and (len(fresh) >= MAX_REPORTS or bytes_ > MAX_BODY // 8):
                    break
                fresh.append(report)
        return fresh

    def _maybe_finish(self, now: float, actions: list[Action]) -> None:
        silent = now - self._since()
        if self.leaving and not (self.running or self.waiting):
            away = silent > 2 * self._beat
            if not (self.reports or self._tails) and (self._farewell or self.registered is None or away):
                self._end(actions, 0, self.leaving)
            elif self._stop_all and away:
                self._end(actions, 4, f"{self.leaving}; {len(self.reports)} reports could not be delivered")
        if not self.ended and not self.running and silent > self._patience():
            self._end(actions, 4, f"no contact with the server for {silent:.0f} s")

    def _since(self) -> float:
        """From when silence counts: the last contact, or the latest thing that still has to be said."""
        return max(self._contact or 0.0, self._news_at)

    def _patience(self) -> float:
        """How long to go on without contact [contract 5]."""
        if self.reports:
            return self.registered.spool_end if self.registered is not None else 86_400.0
        return self.registered.idle_end if self.registered is not None else 600.0

    def _end(self, actions: list[Action], code: int, why: str) -> None:
        self.ended = True
        actions.append(Finish(code, why))
