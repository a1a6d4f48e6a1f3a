"""The pilot's decisions: what to start, what to send, when to end. Pure: no clock, socket, disk or process.

`handle(event, now)` takes an event and returns the actions to perform; `deadline()` says when the next `Tick` is due.
Rules: (1) a report is kept until a reply acknowledges it; (2) an attempt that was received before is never begun again;
(3) an exchange that got no answer is sent again unchanged under its number; (4) at most two are in flight, and a report
is in one of them at a time [protocol 5; DIANE U4; GWP G1]; (5) a lease that was received before, and of which nothing
is here any more, is given back. What waits to be sent is in `outbox`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Optional

from shoal.model.ids import parse_attempt
from shoal.pilot.agent import events
from shoal.pilot.agent.attachments import Attachments
from shoal.pilot.agent.cache_changes import NO_CHANGES, CacheChanges
from shoal.pilot.agent.events import Action, Event
from shoal.pilot.agent.in_flight import InFlight
from shoal.pilot.agent.lease_dedup import LeaseDedup
from shoal.pilot.agent.lease_proofs import LeaseProofs
from shoal.pilot.agent.outbox import NOTHING, Outbox
from shoal.pilot.agent.registration import Registration, back_off, nonce, patience
from shoal.pilot.agent.renewal import Renewal
from shoal.pilot.agent.send_schedule import BATCH_DELAY, PIECE_DELAY, SendSchedule
from shoal.pilot.agent.slots import RunningAttempt, Slots
from shoal.wire.chunk import names
from shoal.wire.messages import (
    PROTOCOL,
    Capacity,
    Checkpoint,
    Exchange,
    FileAnswer,
    Lease,
    Order,
    Registered,
    Report,
)

FOREIGN_TRIES = 3  # an exchange that a proxy refuses is sent so often before it is divided

BATCH_SIGNALS = (9, 15)  # SIGKILL and SIGTERM: what ends an allocation


class Agent:
    """One pilot's state and rules."""

    def __init__(self, room: Capacity, rng: Random) -> None:
        self.room, self.rng = room, rng
        self.registered: Optional[Registered] = None
        self.reports: OrderedDict[str, Report] = OrderedDict()
        self.leaving, self.ended = "", False
        self._slots = Slots(room)
        self.waiting, self.running = self._slots.waiting, self._slots.running
        self._in_flight = InFlight()
        self.outbox = Outbox(self.reports)
        self._renewal = Renewal()
        self._seen = LeaseDedup()
        self.proofs = LeaseProofs()
        self.cache = CacheChanges()
        self._incarnation = 0  # of the server that was told of the cache, and of what tasks emitted
        self._checkpoints = 0  # how many were saved so far, of all attempts
        self._ending: dict[str, str] = {}  # those of pieces that are being stopped, and why
        self._asked: dict[str, str] = {}  # those of pieces that the server wants back, unless they begin, and why
        self._failures, self._registration = 0, Registration(rng)
        self._quiet_until = 0.0  # set: after a refusal nothing is sent before
        self._contact: Optional[float] = None
        self._schedule = SendSchedule()
        self._beat, self._changed_at = 10.0, 0.0
        self._stop_all = False
        self._stop_at: Optional[float] = None  # set: we leave, and end then what still runs
        self._has_signed_off = False  # the server knows that we leave and hold nothing
        self._renewing = ""  # we leave to become the pilot with this digest
        self._mute = False  # the server refuses us for good: nothing is sent any more
        self._attachments = Attachments()
        self._window = events.Reserved(-1, 0, 0)  # of our mesh
        self._on: dict[type, Callable[[Any, float, list[Action]], None]] = {
            events.Joined: self._on_joined,
            events.Answered: self._on_answered,
            events.NoAnswer: self._on_no_answer,
            events.Outdated: self._on_outdated,
            events.Rejected: self._on_rejected,
            events.Disowned: self._on_disowned,
            events.Started: self._on_started,
            events.Ended: self._on_ended,
            events.Saved: self._on_saved,
            events.Called: self._on_called,
            events.Wrote: self._on_wrote,
            events.Leave: self._on_leave,
            events.Fetched: lambda event, now, actions: self._renewal.take(event, now),
            events.Noticed: self._on_noticed,
            events.Announced: self._on_announced,
            events.Emitting: self._on_emitting,
            events.CacheChanged: lambda event, now, actions: self.cache.change(event.added, event.removed),
            events.Outlived: self._on_outlived,
            events.Accused: self._on_accused,
            events.Looked: self._on_looked,
            events.Deliver: self._on_deliver,
            events.Waits: self._on_waits,
            events.Shortened: self._on_shortened,
            events.Assigned: self._on_assigned,
            events.Reserved: self._on_reserved,
            events.Tick: lambda event, now, actions: None,
        }

    @property
    def free(self) -> Capacity:
        """Capacity that nothing here takes."""
        return self._slots.free()

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take an event; returns the actions to perform, in order."""
        if self.ended:
            return []
        if self._contact is None:
            self._contact = now
        actions: list[Action] = []
        self._on[type(event)](event, now, actions)
        if self._stop_at is not None and now >= self._stop_at:
            self._stop_at = None
            self._on_leave(events.Leave(self.leaving, now=True), now, actions)
        if self.waiting:
            self._give_back(self._slots.take_behind(self.reports), "what it waits for did not succeed here")
            begun = self._slots.begin(now)
            actions += begun
            if any(begin.lease.function or begin.lease.count > 1 for begin in begun):
                self._schedule.add_start(now)
            elif begun and not (self.waiting or self._slots.free().cores):
                self._schedule.await_starts(now)
        if self.running:
            actions += self._slots.recall(now)
        self._renew(now, actions)
        self._send(now, actions)
        self._maybe_finish(now, actions)
        return actions

    def is_cut_off(self, now: float) -> bool:
        """True if the server does not answer."""
        is_silent = self._contact is not None and now - self._contact > 2.0 * self._beat
        return self._in_flight.failed or self.registered is None or is_silent

    def deadline(self) -> Optional[float]:
        """When `Tick` is due at the latest."""
        if self.ended:
            return None
        times = self._in_flight.times()
        recall = self._slots.recall_at()
        if self._mute:
            times = []
        elif self.registered is None:
            times += self._registration.deadline()
        elif self._quiet_until:
            times.append(self._quiet_until)
        elif not times and self._in_flight.has_capacity:
            polls = not self._in_flight.may_poll(self._registration.is_new)
            times += self._schedule.times(self._in_flight.carries, polls)
        renewal = self._renewal.deadline()
        if renewal is not None and self._is_idle():
            times.append(renewal)
        if self._contact is not None and not self.running:
            hurried = self.leaving and (self._stop_all or self.outbox.is_empty)
            limit = 2 * self._beat if hurried else self._patience()
            times.append(self._since() + limit + 0.01)
        times += [at for at in (recall, self._stop_at) if at is not None]
        return min(times) if times else None

    # --- events
    def _on_joined(self, event: events.Joined, now: float, actions: list[Action]) -> None:
        self.registered = event.registered
        self._beat = event.registered.beat
        self._slots.takes_pieces = event.sees_logs
        self.cache.forgotten()
        self._incarnation = event.registered.incarnation
        self._registration.on_joined()
        self.outbox.emit_again()
        self._failures = 0
        self._in_flight.clear()
        self._contact = now
        self._schedule.urgent = True
        actions.append(events.Contact(now))

    def _on_answered(self, event: events.Answered, now: float, actions: list[Action]) -> None:
        reply = event.reply
        sent = self._in_flight.remove(reply.seq)
        if sent is None:
            return  # a duplicate reply
        self._failures = 0
        self._registration.on_answered()
        self._in_flight.retry_now(now)
        self._contact = max(self._contact or 0.0, sent.sent_at)
        self._beat = reply.hold
        actions.append(events.Contact(self._contact))
        exchange = sent.exchange
        self.proofs.answered(exchange)
        self.cache.settle(exchange)
        if reply.incarnation != self._incarnation:
            self._incarnation = reply.incarnation
            self.cache.forgotten()  # the server started again, and remembers nothing that was not durable
            self.outbox.emit_again()
        self._schedule.urgent = self._schedule.urgent or self.cache.has_more(self._in_flight.underway)
        actions += self._attachments.answered(exchange, reply)
        self._has_signed_off = bool(exchange.leaving) and not exchange.held
        actions += [events.Settle(*settled) for settled in self.outbox.settle_all(exchange, reply.verdicts)]
        if self.outbox.has_published:
            self._schedule.add_tags(now)
        self._schedule.on_answered(now, reply.leases)
        for lease in reply.leases:
            self._take(lease, now - sent.sent_at)
        for order in reply.orders:
            self._obey(order, now, actions)

    def _on_no_answer(self, event: events.NoAnswer, now: float, actions: list[Action]) -> None:
        self._failures += 1
        not_before = now + event.after * self.rng.uniform(1.0, 1.2) if event.after is not None else 0.0
        retry_at = max(not_before, now + back_off(self.rng, self._failures))
        if event.seq == 0:
            self._registration.postpone(retry_at)
        else:
            self._in_flight.postpone(event.seq, retry_at, not_before)

    def _on_outdated(self, event: events.Outdated, now: float, actions: list[Action]) -> None:
        sent = self._in_flight.remove(event.seq, is_answered=False)
        if sent is not None:
            self.outbox.put_back([sent.exchange])
            self._schedule.urgent = True

    def _on_rejected(self, event: events.Rejected, now: float, actions: list[Action]) -> None:
        if event.seq not in self._in_flight:
            return
        self._failures += 1
        again = now + back_off(self.rng, self._failures)
        if not event.is_sure and self._in_flight.postpone_foreign(event.seq, again, FOREIGN_TRIES):
            return  # a proxy refused it, and may let it through the next time
        sent = self._in_flight.remove(event.seq, is_answered=False)
        assert sent is not None
        exchange = sent.exchange
        has_content = any(
            (exchange.reports, exchange.batches, exchange.tails, exchange.tags, exchange.published, exchange.emitted,
             exchange.checkpoints, exchange.files)
        )  # fmt: skip
        self._attachments.refused()
        if event.is_sure:
            self.cache.refused(exchange, is_alone=not has_content)
        if has_content:
            actions += self.outbox.reject(exchange, event.why, event.is_sure)
            self._schedule.urgent = True
        # Never at once: a short outage must not use up the tries of every report.
        self._quiet_until = again

    def _on_disowned(self, event: events.Disowned, now: float, actions: list[Action]) -> None:
        if event.seq and event.seq not in self._in_flight:
            return  # of a session that is over already
        self.outbox.put_back(self._in_flight.underway)
        self._in_flight.clear()
        self._registration.on_disowned(self.registered, now)
        self.registered = None

    def _on_started(self, event: events.Started, now: float, actions: list[Action]) -> None:
        run = self.running.get(event.attempt)
        if run is not None:
            run.started = True
            self._schedule.on_started(now, all(one.started or one.after for one in self.running.values()))

    def _on_announced(self, event: events.Announced, now: float, actions: list[Action]) -> None:
        run = self.running.get(event.attempt)
        if run is not None:
            self.outbox.publish((run.left or [event.attempt])[0], event.tags)  # of a piece, the one that runs
            self._schedule.add_tags(now)

    def _on_emitting(self, event: events.Emitting, now: float, actions: list[Action]) -> None:
        self.outbox.emit(event.attempt, event.text)
        self._schedule.add_tags(now)

    def _on_noticed(self, event: events.Noticed, now: float, actions: list[Action]) -> None:
        self.outbox.tags.update(event.tags)
        if "unfit" in event.tags:  # its tasks wait for nothing else
            self._schedule.urgent = True

    def _on_waits(self, event: events.Waits, now: float, actions: list[Action]) -> None:
        if self._slots.set_waiting(event.attempt, event.call, event.is_waiting):
            self._on_lending(self.running[event.attempt], actions)

    def _on_lending(self, run: RunningAttempt, actions: list[Action]) -> None:
        """An attempt begins or ceases to lend its cores."""
        self._schedule.urgent = True  # the server has to know what is free, or no longer
        if run.lends and run.lease.count > run.done + 1:
            actions.append(events.Shorten(run.lease.attempt))

    def _on_shortened(self, event: events.Shortened, now: float, actions: list[Action]) -> None:
        if self._slots.shorten(event.piece, event.count):
            self._on_waiting_again()

    def _on_waiting_again(self) -> None:
        """Those of a piece that did not begin wait here again: some may have been stopped meanwhile."""
        for attempt in [*self._ending]:
            if self._slots.take_out(parse_attempt(attempt)):
                self.reports[attempt] = Report(attempt, "cancelled", "cancelled", self._ending.pop(attempt))
                self._schedule.urgent = True
        for attempt in [*self._asked]:
            taken = self._slots.take_out(parse_attempt(attempt))
            if taken:
                self._give_back(taken, self._asked.pop(attempt))
        if self.leaving:
            self._give_back_all(self.leaving)

    def _on_outlived(self, event: events.Outlived, now: float, actions: list[Action]) -> None:
        self._attachments.outlived(event.sessions)
        self._schedule.urgent = True

    def _on_accused(self, event: events.Accused, now: float, actions: list[Action]) -> None:
        self._attachments.accuse(event.accusation)
        self._schedule.urgent = True

    def _on_deliver(self, event: events.Deliver, now: float, actions: list[Action]) -> None:
        self._attachments.deliver(event.copies)
        self._schedule.urgent = True

    def _on_saved(self, event: events.Saved, now: float, actions: list[Action]) -> None:
        if event.attempt in self.running:  # else its report has the checkpoint
            self._checkpoints += 1
            self.outbox.add_checkpoint(Checkpoint(event.attempt, event.files, self._checkpoints, event.emitted))

    def _on_wrote(self, event: events.Wrote, now: float, actions: list[Action]) -> None:
        self.outbox.add_tails(event.tails, event.more)
        self._schedule.urgent = self._schedule.urgent or bool(event.tails)

    def _on_ended(self, event: events.Ended, now: float, actions: list[Action]) -> None:
        self._changed_at = now
        self.outbox.add_tails(event.tails, event.more)  # also of other attempts
        self.outbox.forget_emitted([event.report.attempt])
        run = self._slots.end(event.report.attempt, now)
        if run is None:
            return
        if self._slots.was_recalled(run, event.report):
            actions.append(events.Settle(run.lease.attempt, False))
            if run.asked_back:
                self._give_back([run.lease.attempt], run.asked_back)
            elif self.leaving:
                self._give_back_all(self.leaving)
            return
        report = self._as_stopped(event.report, run.stopping, run.is_moving)
        self.reports[report.attempt] = report
        self._schedule.add_report(now, bool(self.waiting and not self.leaving))

    def _as_stopped(self, report: Report, why: str, is_moving: bool = False) -> Report:
        """What we stopped ourselves did not fail: it was cancelled, or is given back because it goes on elsewhere. Nor did
        what was ended by a signal from outside while we leave: a batch system ends all processes of an allocation."""
        if report.outcome != "failed":
            return report
        if not why:
            is_ended_with_us = self.leaving and report.cause == "signal" and report.signal in BATCH_SIGNALS
            return replace(report, outcome="returned", message=self.leaving) if is_ended_with_us else report
        outcome = "returned" if self._stop_all or is_moving else "cancelled"
        return replace(report, outcome=outcome, cause="cancelled", message=why)

    def _on_called(self, event: events.Called, now: float, actions: list[Action]) -> None:
        self._changed_at = now
        run = self.running.get(event.piece)
        if run is None:
            return
        lent = run.lends
        if self.outbox.has_emitted:
            self.outbox.forget_emitted(names(event.batch) if event.batch is not None else [])
            self.outbox.forget_emitted([report.attempt for report in event.reports])
        if event.batch is not None:
            run.done += event.batch.count
            self.outbox.add_batch(event.batch)
            self._slots.learn(run.lease, event.batch.duration)
            if self._ending or self._asked:
                for attempt in names(event.batch):
                    self._ending.pop(attempt, None)
                    self._asked.pop(attempt, None)
        for report in event.reports:
            run.done += 1
            why = self._ending.pop(report.attempt, "")
            self._asked.pop(report.attempt, None)
            self.reports[report.attempt] = self._as_stopped(report, why)
            if report.started is not None:
                self._slots.learn(run.lease, [report.duration])
        run.since = now
        if event.batch is not None or event.reports:
            is_piece_of_many = not run.lease.function and self._slots.has_work(run.lease, 2 * PIECE_DELAY)
            delay = PIECE_DELAY if is_piece_of_many else BATCH_DELAY
            self._schedule.add_report(now, bool(self.waiting and not self.leaving), delay)
        self._schedule.add_start(now)
        if event.apart:
            self._slots.keep_apart(run.lease)
        if event.over:
            self._slots.end(event.piece, now)
            self._on_waiting_again()
        elif run.lends is not lent:
            self._on_lending(run, actions)

    def _give_back_all(self, why: str) -> None:
        while self.waiting:
            self._give_back(names(self.waiting.popleft()), why)

    def _on_leave(self, event: events.Leave, now: float, actions: list[Action]) -> None:
        self._changed_at = now
        self.leaving = event.why if self._renewing else self.leaving or event.why
        self._renewing = ""
        self._mute = self._mute or event.mute
        self._schedule.urgent = True
        self._give_back_all(event.why)
        if event.now:
            self._stop_all = True
            actions += self._slots.stop_all(event.why, self._ending, keep=not self._mute)
        elif event.checkpoint and not self._mute:
            actions += self._slots.checkpoint_all(event.why)

    # --- the window of our mesh
    def _on_assigned(self, event: events.Assigned, now: float, actions: list[Action]) -> None:
        for lease in event.leases:
            self._take(lease, 0.0)
        self._changed_at = now

    def _on_reserved(self, event: events.Reserved, now: float, actions: list[Action]) -> None:
        self._schedule.urgent = self._schedule.urgent or event.seen != self._window.seen
        self._window = event

    def _patience(self) -> float:
        """Seconds to go on without contact: as long as with reports, while tasks may still come."""
        return patience(self.registered, self.outbox.unacknowledged or self._window.reserve)

    # --- leases and orders
    def _take(self, lease: Lease, age: float) -> None:
        new, again = self._seen.take(lease)
        self.proofs.take(lease)
        refused = ""
        if self.leaving:
            refused = self.leaving
        elif lease.rerun != "safe" and self.registered is not None and age > self.registered.kill_after:
            # The right to run counts from the lease, which came too late: another may run it by now [promise R4].
            refused = f"its lease was {age:.0f} s on the way"
        elif not self._slots.can_ever_hold(lease.room):
            refused = "it is larger than this pilot"
        for one in new:
            if refused:
                self._give_back(names(one), refused)
            else:
                self._slots.add(one)
        if again:
            # The server counts it as ours and it is not here: its report was refused, or acknowledged by a server that
            # has since lost its state. It may have begun here, and will not go on here.
            here = self._slots.attempts() | self.outbox.attempts()
            gone = [attempt for one in again for attempt in names(one) if attempt not in here]
            self._give_back(gone, "this pilot had it before, and has nothing of it any more", started=0.0)

    def _give_back(self, attempts: list[str], why: str, started: Optional[float] = None) -> None:
        for attempt in attempts:
            self.reports[attempt] = Report(attempt, "returned", message=why, started=started)
            self._schedule.urgent = True

    def _obey(self, order: Order, now: float, actions: list[Action]) -> None:
        if order.kind in ("drain", "stop"):
            self._on_leave(events.Leave(order.why or "told to end", checkpoint=order.kind == "stop"), now, actions)
            if order.within is not None and not self._stop_all:
                self._stop_at = min(self._stop_at or float("inf"), now + order.within)
        elif order.kind == "move":
            actions += self._slots.move(order.attempt, order.why)
            self._give_back(self._slots.take_out(parse_attempt(order.attempt)), order.why)
        elif order.kind == "cancel":
            actions += self._slots.cancel(order.attempt, order.why or "cancelled", self._ending)
            for attempt in self._slots.take_out(parse_attempt(order.attempt)):
                self.reports[attempt] = Report(attempt, "cancelled", "cancelled", order.why)
                self._schedule.urgent = True
        elif order.kind == "take_back":
            first = parse_attempt(order.attempt)
            self._give_back(self._slots.take_out(first, order.count), order.why)
            actions += self._slots.ask_guard(first, order.count, order.why or "asked back", self._asked)
        elif order.kind == "signal" and self._slots.runs(order.attempt):
            actions.append(events.Signal(order.attempt, order.signal))
        elif order.kind == "tail" and self._slots.runs(order.attempt):
            actions.append(events.Watch(order.attempt, order.stream))
        elif order.kind in ("list_files", "read_file"):
            self._look(order, now, actions)
        elif order.kind == "renew":
            self._renewal.order(order.why)

    def _look(self, order: Order, now: float, actions: list[Action]) -> None:
        """Have a question about the files of an attempt answered, if it runs here."""
        for attempt, run in self.running.items():
            if order.attempt in (run.left if run.is_piece else [attempt]):
                actions.append(events.Look(order))
                return
        over = FileAnswer(order.request, "it does not run here any more", "not_running")
        self._on_looked(events.Looked(over), now, actions)

    def _on_looked(self, event: events.Looked, now: float, actions: list[Action]) -> None:
        self.outbox.add_file(event.answer)
        self._schedule.urgent = True

    def _is_idle(self) -> bool:
        busy = self.running or self.waiting or self.leaving
        return self.registered is not None and not busy and self.outbox.is_empty

    def _renew(self, now: float, actions: list[Action]) -> None:
        """While idle, fetch the pilot that the server wants us to be; once it is here, leave to become it."""
        if not self._renewal.is_wanted or not self._is_idle():
            return
        digest = self._renewal.fetch(now)
        if digest:
            actions.append(events.Fetch(digest))
        elif self._renewal.ready:
            self._renewing = self._renewal.ready
            self.leaving = f"renewed by the server to {self._renewing[:12]}"
            self._schedule.urgent = True

    # --- sending
    def _send(self, now: float, actions: list[Action]) -> None:
        if self._mute:
            return
        if self.registered is None:
            actions += self._registration.begin(now)
            return
        actions += [events.Send(exchange, itself=True) for exchange in self._in_flight.due(now)]
        if self._in_flight.failed:
            return  # the server does not answer: nothing else until the first retry gets through
        if now < self._quiet_until:
            return
        self._quiet_until = 0.0
        underway = self._in_flight.underway
        due = self._schedule.is_due(now) or self.outbox.has_tail(underway) or self.outbox.has_checkpoint(underway)
        if due and self._in_flight.has_capacity and not self._in_flight.carries:
            actions.append(events.Send(self._exchange(now), self._goes_itself))
        if self._in_flight.may_poll(self._registration.is_new) and now >= self._schedule.poll_at:
            actions.append(events.Send(self._exchange(now, is_poll=self._in_flight.carries), self._goes_itself))

    @property
    def _goes_itself(self) -> bool:
        """True if no leader may come between us and the server: at a farewell, and while we have what must not run twice, of
        which the time without contact counts."""
        return bool(self.leaving) or self._slots.holds_unsafe

    def _exchange(self, now: float, is_poll: bool = False) -> Exchange:
        """Make the next exchange: with everything to send, or only to wait for work beside one with reports."""
        assert self.registered is not None
        underway = self._in_flight.underway
        content = NOTHING if is_poll else self.outbox.pack(underway)
        is_apart = self.outbox.has_suspect and not is_poll  # a report may be sent alone
        cache = NO_CHANGES if is_apart else self.cache.pack(underway, is_alone=content == NOTHING)
        exchange = Exchange(
            PROTOCOL,
            self.registered.pilot,
            self.registered.session,
            self._in_flight.next_number(),
            self._in_flight.ack,
            self._slots.free(),
            self._slots.held(now) + self.outbox.held(),
            leaving=self.leaving,
            nonce=nonce(self.rng),
            proofs=self.proofs.to_send(),
            waits=self._slots.lending(),
            window=self._window.window,
            window_seen=self._window.seen,
            reports=content.reports,
            batches=content.batches,
            tags=content.tags,
            tails=content.tails,
            published=content.published,
            checkpoints=content.checkpoints,
            files=content.files,
            emitted=content.emitted,
            asks=content.may_wait and not (underway or self.running or self.waiting or self.leaving),
            cached=cache.cached,
            uncached=cache.uncached,
            **self._attachments.pack(with_copies=not (is_poll or is_apart)),
        )
        self._in_flight.add(exchange, now)
        if is_poll:
            self._schedule.on_polled(now, self._slots.has_unreported(now))
        else:
            more = self.outbox.has_report(self._in_flight.underway) or self.outbox.has_file
            self._schedule.on_sent(now, more, self._slots.has_unreported(now))
        return exchange

    def _maybe_finish(self, now: float, actions: list[Action]) -> None:
        silence = now - self._since()
        if self.leaving and not (self.running or self.waiting):
            away = silence > 2 * self._beat
            if self.outbox.is_empty and (self._has_signed_off or self.registered is None or away or self._mute):
                self._end(actions, 0, self.leaving)
            elif self._mute or (self._stop_all and away):
                self._end(actions, 4, f"{self.leaving}; {self.outbox.unacknowledged} reports could not be delivered")
        if not self.ended and not self.running and silence > self._patience():
            self._end(actions, 4, f"no contact with the server for {silence:.0f} s")

    def _since(self) -> float:
        """The start of the time without contact: the last contact, or the latest change that has to be sent."""
        return max(self._contact or 0.0, self._changed_at)

    def _end(self, actions: list[Action], code: int, why: str) -> None:
        self.ended = True
        actions.append(events.Finish(code, why, self._renewing if code == 0 else ""))
