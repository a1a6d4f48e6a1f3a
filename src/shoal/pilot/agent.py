"""The pilot's thought: what to start, what to say, when to end. No clock, socket, disk or process in here.

`handle(event, now)` takes what happened and returns what to do; `deadline()` says when to be asked again.
Rules: (1) a report is kept until a reply acknowledges it; (2) an attempt once seen is never begun again;
(3) an exchange that got no answer is sent again unchanged under its number; (4) at most two are in flight,
and a report rides on one of them at a time [contract 5, U4, G1]. What is to be said lies in `outbox`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Optional

from shoal.model.limits import MAX_IN_FLIGHT
from shoal.pilot.moves import (
    Action,
    Answered,
    Complain,
    Contact,
    Disowned,
    Ended,
    Event,
    Fetch,
    Fetched,
    Finish,
    Join,
    Joined,
    Leave,
    NoAnswer,
    Noticed,
    Outdated,
    Rejected,
    Send,
    Settle,
    Signal,
    Started,
    Stop,
    Tick,
    Watch,
    Wrote,
)
from shoal.pilot.outbox import Outbox
from shoal.pilot.renewal import Renewal
from shoal.pilot.slots import Slots
from shoal.wire.messages import PROTOCOL, Exchange, Former, Held, Lease, Order, Registered, Report, Room

SEEN_KEPT = 20_000  # attempts remembered so that a lease sent again is known
LAZY = 0.3  # seconds a start may wait for company before it is told
BACKOFF_FIRST, BACKOFF_MOST = 0.2, 5.0


@dataclass
class _Flight:
    """An exchange that was sent and not yet answered."""

    exchange: Exchange
    sent_at: float
    again_at: Optional[float] = None  # set: it failed, send it again then
    not_before: float = 0.0  # the server's own wish


class Agent:
    """One pilot's state and rules."""

    def __init__(self, room: Room, rng: Random) -> None:
        self.room, self.rng = room, rng
        self.registered: Optional[Registered] = None
        self.reports: OrderedDict[str, Report] = OrderedDict()
        self.leaving = ""
        self.ended = False
        self._slots = Slots(room)
        self.waiting, self.running = self._slots.waiting, self._slots.running
        self._flights: OrderedDict[int, _Flight] = OrderedDict()
        self.outbox = Outbox(self.reports)
        self._renewal = Renewal()
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._seq = self._ack = self._failures = 0
        self._joins = 0  # since the last answer: a server that takes us in and disowns us is not asked without end
        self._joining, self._join_at, self._join_nonce = False, 0.0, ""
        self._quiet_until = 0.0  # set: not even an empty exchange is taken
        self._contact: Optional[float] = None
        self._urgent = False
        self._lazy_at: Optional[float] = None
        self._beat = 10.0
        self._stop_all = False
        self._news_at = 0.0
        self._former: Optional[Former] = None
        self._farewell = False  # the server knows that we leave and hold nothing
        self._renewing = ""  # we leave to become the pilot with this digest
        self._mute = False  # nobody listens
        self._on: dict[type, Callable[[Any, float, list[Action]], None]] = {
            Joined: self._on_joined,
            Answered: self._on_answered,
            NoAnswer: self._on_no_answer,
            Outdated: self._on_outdated,
            Rejected: self._on_rejected,
            Disowned: self._on_disowned,
            Started: self._on_started,
            Ended: self._on_ended,
            Wrote: self._on_wrote,
            Leave: self._on_leave,
            Fetched: lambda event, now, actions: self._renewal.take(event, now),
            Noticed: self._on_noticed,
            Tick: lambda event, now, actions: None,
        }

    # --- the one entry
    def handle(self, event: Event, now: float) -> list[Action]:
        """Take an event; return what to do, in order."""
        if self.ended:
            return []
        if self._contact is None:
            self._contact = now
        actions: list[Action] = []
        self._on[type(event)](event, now, actions)
        actions += self._slots.begin()
        self._renew(now, actions)
        self._talk(now, actions)
        self._maybe_finish(now, actions)
        return actions

    def deadline(self) -> Optional[float]:
        """When `Tick` is due at the latest."""
        if self.ended:
            return None
        times = [flight.again_at for flight in self._flights.values() if flight.again_at is not None]
        if self._mute:
            times = []
        elif self.registered is None:
            times += [] if self._joining else [self._join_at]
        elif self._quiet_until:
            times.append(self._quiet_until)
        elif self._lazy_at is not None and not times and len(self._flights) < MAX_IN_FLIGHT:
            times.append(self._lazy_at)
        renewal = self._renewal.deadline()
        if renewal is not None and self._is_idle():
            times.append(renewal)
        if self._contact is not None and not self.running:
            hurried = self.leaving and (self._stop_all or self.outbox.is_empty)
            times.append(self._since() + (2 * self._beat if hurried else self._patience()) + 0.01)
        return min(times) if times else None

    # --- events
    def _on_joined(self, event: Joined, now: float, actions: list[Action]) -> None:
        self.registered = event.registered
        self._beat = event.registered.beat
        self._joining, self._join_nonce = False, ""
        self._failures = 0
        self._joins += 1
        # Exchange numbers go on across sessions, so that an answer from an old one cannot be taken for a new one.
        self._flights.clear()
        self._contact = now
        self._urgent = True
        actions.append(Contact(now))

    def _on_answered(self, event: Answered, now: float, actions: list[Action]) -> None:
        reply = event.reply
        flight = self._flights.pop(reply.seq, None)
        if flight is None:
            return  # a duplicate: everything in it was taken already
        self._failures = self._joins = 0
        for other in self._flights.values():
            if other.again_at is not None:
                other.again_at = max(now, other.not_before)  # the server is back: no reason to wait
        self._ack = max(self._ack, reply.seq)
        self._contact = max(self._contact or 0.0, flight.sent_at)
        self._beat = reply.hold
        actions.append(Contact(self._contact))
        said = flight.exchange
        self._farewell = bool(said.leaving) and not said.held
        verdicts = {v.attempt: v.verdict for v in reply.verdicts}
        for report in flight.exchange.reports:
            if self.outbox.settle(report.attempt):
                actions.append(Settle(report.attempt, verdicts.get(report.attempt) in ("recorded", "adopted")))
        for lease in reply.leases:
            self._take(lease, now - flight.sent_at)
        for order in reply.orders:
            self._obey(order, now, actions)

    def _on_no_answer(self, event: NoAnswer, now: float, actions: list[Action]) -> None:
        self._failures += 1
        wish = now + event.after * self.rng.uniform(1.0, 1.2) if event.after is not None else 0.0
        again = max(wish, now + self._back_off(self._failures))
        if event.seq == 0:
            self._joining = False
            self._join_at = again
        elif event.seq in self._flights:
            self._flights[event.seq].again_at, self._flights[event.seq].not_before = again, wish

    def _back_off(self, failures: int) -> float:
        return self.rng.uniform(0.5, 1.0) * min(BACKOFF_MOST, BACKOFF_FIRST * 2.0 ** min(failures, 10))

    def _on_outdated(self, event: Outdated, now: float, actions: list[Action]) -> None:
        flight = self._flights.pop(event.seq, None)
        if flight is not None:
            self.outbox.put_back([flight.exchange])
            self._urgent = True

    def _on_rejected(self, event: Rejected, now: float, actions: list[Action]) -> None:
        flight = self._flights.pop(event.seq, None)
        if flight is None:
            return
        said = flight.exchange
        if said.reports or said.tails or said.tags:
            lost = self.outbox.reject(said)
            self._urgent = True
            if lost is not None:
                words = f"the server takes no report on this attempt, it is given up: outcome={lost.outcome}"
                actions += [Complain(f"attempt={lost.attempt} {words}"), Settle(lost.attempt, False)]
        else:  # there is nothing to leave out
            self._failures += 1
            self._quiet_until = now + self._back_off(self._failures)

    def _on_disowned(self, event: Disowned, now: float, actions: list[Action]) -> None:
        if event.seq and event.seq not in self._flights:
            return  # about a session we already left
        self.outbox.put_back([flight.exchange for flight in self._flights.values()])
        self._flights.clear()
        self._joining, self._join_nonce = False, ""
        self._join_at = now if self._joins < 2 else now + self._back_off(self._joins)
        if self.registered is not None:
            self._former = Former(self.registered.pilot, self.registered.session)
        self.registered = None

    def _on_started(self, event: Started, now: float, actions: list[Action]) -> None:
        run = self.running.get(event.attempt)
        if run is not None:
            run.started = True
            self._lazy_at = self._lazy_at if self._lazy_at is not None else now + LAZY

    def _on_noticed(self, event: Noticed, now: float, actions: list[Action]) -> None:
        self.outbox.tags.update(event.tags)
        self._lazy_at = self._lazy_at if self._lazy_at is not None else now + LAZY

    def _on_wrote(self, event: Wrote, now: float, actions: list[Action]) -> None:
        self.outbox.add_tails(event.tails, event.more)
        self._urgent = self._urgent or bool(event.tails)

    def _on_ended(self, event: Ended, now: float, actions: list[Action]) -> None:
        self._news_at = now
        run = self._slots.end(event.report.attempt)
        if run is None:
            return
        report = event.report
        if run.stopping and report.outcome == "failed":
            outcome = "returned" if self._stop_all else "cancelled"
            report = replace(report, outcome=outcome, cause="cancelled", message=run.stopping)
        self.reports[report.attempt] = report
        self.outbox.add_tails(event.tails, event.more)
        self._urgent = True

    def _on_leave(self, event: Leave, now: float, actions: list[Action]) -> None:
        self._news_at = now
        self.leaving = event.why if self._renewing else self.leaving or event.why
        self._renewing = ""
        self._mute = self._mute or event.mute
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
        elif not self._slots.can_ever_hold(lease.room):
            self._give_back(lease, "it is larger than this pilot")
        else:
            self.waiting.append(lease)

    def _give_back(self, lease: Lease, why: str) -> None:
        self.reports[lease.attempt] = Report(lease.attempt, "returned", message=why)
        self._urgent = True

    def _obey(self, order: Order, now: float, actions: list[Action]) -> None:
        if order.kind == "drain":
            self._on_leave(Leave(order.why or "told to drain"), now, actions)
        elif order.kind == "cancel":
            run = self.running.get(order.attempt)
            if run is not None and not run.stopping:
                run.stopping = order.why or "cancelled"
                actions.append(Stop(order.attempt, run.stopping))
            for lease in [lease for lease in self.waiting if lease.attempt == order.attempt]:
                self.waiting.remove(lease)
                self.reports[lease.attempt] = Report(lease.attempt, "cancelled", "cancelled", order.why)
                self._urgent = True
        elif order.kind == "signal" and order.attempt in self.running:
            actions.append(Signal(order.attempt, order.signal))
        elif order.kind == "tail" and order.attempt in self.running:
            actions.append(Watch(order.attempt, order.stream))
        elif order.kind == "renew":
            self._renewal.order(order.why)

    def _is_idle(self) -> bool:
        busy = self.running or self.waiting or self.leaving
        return self.registered is not None and not busy and self.outbox.is_empty

    def _renew(self, now: float, actions: list[Action]) -> None:
        """Nothing is under way: fetch the pilot that we should be; once it is here, leave for it."""
        if not self._is_idle():
            return
        digest = self._renewal.fetch(now)
        if digest:
            actions.append(Fetch(digest))
        elif self._renewal.ready:
            self._renewing = self._renewal.ready
            self.leaving = f"renewed by the server to {self._renewing[:12]}"
            self._urgent = True

    def free(self) -> Room:
        """Room that neither running nor waiting attempts take."""
        return self._slots.free()

    # --- talking
    def _talk(self, now: float, actions: list[Action]) -> None:
        if self._mute:
            return
        if self.registered is None:
            if not self._joining and now >= self._join_at:
                self._joining = True
                self._join_nonce = self._join_nonce or self._nonce()
                actions.append(Join(self._former, self._join_nonce))
            return
        for flight in self._flights.values():
            if flight.again_at is not None and now >= flight.again_at:
                flight.again_at, flight.sent_at = None, now
                actions.append(Send(flight.exchange))
        if any(flight.again_at is not None for flight in self._flights.values()):
            return  # the server is away: no second message until the first got through
        if now < self._quiet_until:
            return
        self._quiet_until = 0.0
        due = self._urgent or (self._lazy_at is not None and now >= self._lazy_at)
        due = due or self.outbox.has_tail(self._underway())
        if not self._flights or (due and len(self._flights) < MAX_IN_FLIGHT):
            actions.append(Send(self._exchange(now)))

    def _underway(self) -> list[Exchange]:
        return [flight.exchange for flight in self._flights.values()]

    def _nonce(self) -> str:
        return f"{self.rng.getrandbits(128):032x}"

    def _exchange(self, now: float) -> Exchange:
        assert self.registered is not None
        fresh, tags, tails = self.outbox.pack(self._underway())
        held = self._slots.held() + [Held(attempt, "done") for attempt in self.reports]
        self._seq += 1
        exchange = Exchange(
            PROTOCOL, self.registered.pilot, self.registered.session, self._seq, self._ack, self.free(),
            held, fresh, tags, tails, self.leaving, self._nonce(),
        )  # fmt: skip
        self._urgent = self.outbox.has_report([*self._underway(), exchange])
        self._lazy_at = None
        self._flights[self._seq] = _Flight(exchange, now)
        return exchange

    def _maybe_finish(self, now: float, actions: list[Action]) -> None:
        silent = now - self._since()
        if self.leaving and not (self.running or self.waiting):
            away = silent > 2 * self._beat
            if self.outbox.is_empty and (self._farewell or self.registered is None or away or self._mute):
                self._end(actions, 0, self.leaving)
            elif self._mute or (self._stop_all and away):
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
        actions.append(Finish(code, why, self._renewing if code == 0 else ""))
