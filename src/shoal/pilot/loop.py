"""The event loop: performs the actions of `agent` and delivers events to it.

One thread owns the agent and every attempt; other threads and signal handlers only put a function into the inbox
and wake the loop. Time is CLOCK_BOOTTIME, which goes on while the machine sleeps.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Optional, Protocol

from shoal.pilot.agent import events
from shoal.pilot.agent.agent import BATCH_SIGNALS, Agent
from shoal.pilot.agent.allocation import Allocation
from shoal.pilot.agent.events import Event
from shoal.pilot.commands import peek
from shoal.pilot.commands.executor import CommandExecutor
from shoal.pilot.commands.staging import Staging
from shoal.pilot.executor import Executor
from shoal.pilot.functions.executor import FunctionExecutor
from shoal.pilot.guard import outcome, proctree
from shoal.pilot.guard.guards import Guards
from shoal.pilot.host import memfd, probe
from shoal.pilot.host.emit_files import EmitFiles
from shoal.pilot.host.file_threads import FileThreads
from shoal.pilot.host.tag_pipes import TagPipes
from shoal.pilot.host.usage import HostUsage
from shoal.pilot.uplink.blobs import Blobs
from shoal.pilot.uplink.latency import Latency
from shoal.pilot.uplink.log_upload import LogUpload
from shoal.wire.messages import (
    Accusation,
    Batch,
    Capacity,
    Exchange,
    Lease,
    Proof,
    Register,
    Registered,
    Reply,
    Report,
    Sealed,
    TagValue,
)

log = logging.getLogger(__name__)

UNFIT, NO_SERVER = 3, 4  # exit codes; 0: a clean end
SPACE_EVERY = 2.0  # seconds between two checks whether there is disk space again
MOST_WAIT = 86_400.0  # seconds; the kernel counts a wait in milliseconds of 31 bits: a lifetime may be longer
COPY_EVERY = 1.0  # seconds between two looks at reports that the server does not take
CACHE_EVERY = 0.2  # seconds between two looks at the cache, at least
DOUBT = 1.0  # seconds in which a batch system that ended a task is expected to signal the pilot, too
MIN_WAIT = 0.02  # seconds; keeps an agent whose deadline has passed twice running from spinning


class UplinkProtocol(Protocol):
    """What the loop needs of `uplink.Uplink`."""

    beat: float
    url: str

    def register(self, message: Register) -> None: ...
    def exchange(self, message: Exchange, itself: bool = False) -> None: ...
    def fetch(self, digest: str, session: str) -> None: ...
    def measure(self, session: str) -> None: ...


class MeshProtocol(Protocol):
    """What the loop needs of `mesh.service.Mesh`."""

    def on_joined(self, registered: Registered) -> None: ...
    def on_reply(self, reply: Reply) -> None: ...
    def on_contact(self, at: float) -> None: ...
    def on_state(self, free: Capacity, tags: dict[str, TagValue], leaving: bool) -> None: ...
    @property
    def has_leader(self) -> bool: ...


class KeeperProtocol(Protocol):
    """What the loop needs of `leader.keeper.ReportKeeper`."""

    def on_joined(self, registered: Registered) -> None: ...
    def copy(self, reports: Mapping[str, Report], batches: Mapping[str, Batch], proofs: Sequence[Proof]) -> None: ...
    def settle(self, reports: Mapping[str, Report], batches: Mapping[str, Batch]) -> None: ...
    def offer(self, then: Callable[[list[Sealed]], None]) -> None: ...
    def delivered(self, copies: Iterable[Sealed]) -> None: ...
    def close(self) -> None: ...


class GuestProtocol(Protocol):
    """What the loop needs of `mesh.guest.Guest`."""

    def on_no_answer(self) -> None: ...
    def close(self) -> None: ...


class Loop:
    """Performs the agent's actions until it finishes."""

    uplink: UplinkProtocol  # set before `run`
    keeper: Optional[KeeperProtocol] = None  # likewise; None: reports are nowhere but here until the server has them
    mesh: Optional[MeshProtocol] = None  # likewise; None: this pilot shares no files
    guest: Optional[GuestProtocol] = (
        None  # likewise; None: without the server this pilot does nothing, or it is registered
    )

    def __init__(
        self,
        agent: Agent,
        guards: Guards,
        stage: Staging,
        register: Callable[[events.Join], Register],
        say: Callable[[str], None],
        blobs: Blobs,
        usage: HostUsage,
        network: Latency,
        on_session: Callable[[str], None],
        umask: int = 0o077,
        idle_end: Optional[float] = None,
        lifetime: Optional[float] = None,
    ) -> None:
        self.agent = agent
        self._pipes = TagPipes(os.path.join(stage.facts.work, "tags"))
        stage.pipes = self._pipes.paths
        self._emits = EmitFiles(os.path.join(stage.facts.work, "emit"))
        stage.emits = self._emits.folder
        self._usage, self._network, self._on_session = usage, network, on_session
        self._tails = LogUpload(lambda: agent.outbox.tail_capacity)
        report, pause, tails = self._on_attempt, self._pause, self._tails
        self.functions = FunctionExecutor(
            stage, umask, agent.room.cores, guards.send, report, self.post, pause, tails, blobs
        )
        self.commands = CommandExecutor(
            guards, stage, umask, report, self.post, self._become_unfit, pause, tails, blobs,
            self.functions.on_guard_message,
        )  # fmt: skip
        self._executors: tuple[Executor, ...] = (self.functions, self.commands)
        self._looks = FileThreads(1)
        self._allocation = Allocation(probe.seconds_left(), proctree.now(), lifetime)
        self.unfit = ""  # why this pilot takes no tasks for now
        self._space_at = 0.0  # when to check the disk space next
        self.why = ""
        self.successor: Optional[int] = None  # set: an open file, the zip of the pilot to become
        self._zips: dict[str, int] = {}
        self._register, self._say, self._idle_end = register, say, idle_end
        self._work = stage.facts.work
        self._inbox: deque[Callable[[], None]] = deque()
        self._events: deque[Event] = deque()
        self._performing = False
        self._code: Optional[int] = None  # set: the loop is over
        self._least_code = 0  # the exit code if the agent itself ends cleanly
        self._joined_once = self._is_over = False
        self._signals = 0
        self.is_interrupted = False
        self._copy_at: Optional[float] = (
            None  # when to look whether reports need copies, or whether others' are to be delivered
        )
        self._is_cut_off = False  # when we looked last
        self._doubtful: list[tuple[float, Event]] = []  # ends of attempts, and until when they are not believed
        self._idle_since = proctree.now()
        self._said: Optional[Register] = None
        self._told: tuple[Capacity, bool, str] = (Capacity(), False, "")  # to the leader of our mesh
        self._kept_until = 0.0  # until when the server wants it to stay without a task, for its data
        self._blobs, self._looked_at = blobs, float("-inf")
        self._wake_read, self.wake_fd = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self.wake_fd, False)
        self._perform: dict[type, Callable[[Any], object]] = {
            events.Join: self._join,
            events.Send: lambda action: self.uplink.exchange(action.exchange, action.itself),
            events.Fetch: self._fetch,
            events.Begin: self._begin,
            events.Stop: lambda action: any(executor.stop(action) for executor in self._executors),
            events.Signal: lambda action: any(executor.signal(action) for executor in self._executors),
            events.Watch: lambda action: any(executor.watch(action) for executor in self._executors),
            events.Look: self._look,
            events.Recall: self.commands.recall,
            events.Shorten: self._shorten,
            events.Settle: self.commands.settle,
            events.Delivered: self._on_delivered,
            events.Contact: self._on_contact,
            events.Complain: lambda action: log.error("%s", action.message),
            events.Finish: self._finish,
        }

    # --- from other threads and from signal handlers
    def post(self, work: Callable[[], None]) -> None:
        """Have the loop call `work`."""
        self._inbox.append(work)
        with contextlib.suppress(OSError):  # a full pipe wakes as well
            os.write(self.wake_fd, b"x")

    def deliver(self, event: Event) -> None:
        """Take an event from the uplink."""
        self.post(partial(self._on_uplink, event))

    def interrupt(self, number: int, frame: object = None) -> None:
        """A signal to end: the first finishes what runs (on SIGTERM, tasks with a checkpoint write it at once and go on
        elsewhere), the second stops it."""
        self.is_interrupted = True
        self.post(partial(self._on_signal, number))

    # --- the loop
    def run(self) -> int:
        """Run until the agent finishes; returns the exit code."""
        self._feed(events.Tick())
        receive: dict[Any, Callable[[], object]] = {
            self._wake_read: lambda: os.read(self._wake_read, 4096),
            self.commands: self.commands.receive,  # before the functions: the guard reports on their runners too
            self.functions: self.functions.receive,
            self._pipes: self._read_tags,
        }
        with selectors.DefaultSelector() as selector:
            for source in receive:
                selector.register(source, selectors.EVENT_READ)
            timed_out = False
            while self._code is None:
                due = self._deadline()
                wait = (
                    None if due is None else max(MIN_WAIT if timed_out else 0.0, min(MOST_WAIT, due - proctree.now()))
                )
                ready = [key.fileobj for key, _ in selector.select(0.0 if self._inbox else wait)]
                timed_out = not ready
                for source in receive:
                    if source in ready:
                        receive[source]()
                for _ in range(len(self._inbox)):  # what these post waits a turn, so that the guard is heard too
                    self._inbox.popleft()()
                if due is not None and proctree.now() >= due:
                    self._tick()
                self._send_tails()
                self._watch_guard(selector)
        for executor in self._executors:
            executor.close()
        self._pipes.close()
        return max(self._code, self._least_code)

    def _watch_guard(self, selector: selectors.BaseSelector) -> None:
        """Once a guard is lost, wait for none of them."""
        if self.commands.guard_lost and self.commands in {key.fileobj for key in selector.get_map().values()}:
            selector.unregister(self.commands)
            for executor in self._executors:
                executor.on_guard_lost()

    def _read_tags(self) -> None:
        for attempt, tags in self._pipes.receive(proctree.now()):
            self._feed(events.Announced(attempt, tags))
        for notice in self._pipes.take_notices():
            self.functions.note_waiting(notice.pipe, notice.is_waiting)
            self._feed(events.Waits(*notice))

    def _deadline(self) -> Optional[float]:
        times = (
            self.agent.deadline(), self._idle_deadline(), self._tails.deadline(), self._pipes.deadline(), self._leave_at(),
            self._emits.deadline(), self._copy_at,
            self._space_at if self.unfit else None, self._doubtful[0][0] if self._doubtful else None,
            *(executor.deadline() for executor in self._executors),
        )  # fmt: skip
        return min((at for at in times if at is not None), default=None)

    def _leave_at(self) -> Optional[float]:
        return None if self._is_over else self._allocation.leave_at(self.commands.grace)

    def seconds_left(self) -> Optional[float]:
        """Seconds until the allocation or the lifetime of this pilot ends; None: it has no end."""
        return self._allocation.left(proctree.now(), self.commands.grace)

    def report_dead(self, sessions: list[str]) -> bool:
        """Report pilots of this host that died: the server would wait for them as long as their lease lasts."""
        if self.agent.registered is None:
            return False
        log.info("siblings ended=%d", len(sessions))
        self._feed(events.Outlived(tuple(sessions)))
        return True

    def _idle_deadline(self) -> Optional[float]:
        if self._idle_end is None or self.agent.leaving:
            return None
        if self.agent.running or self.agent.waiting:
            self._idle_since = proctree.now()
            return None
        return max(self._idle_since + self._idle_end, self._kept_until)

    def _tick(self) -> None:
        idle, now = self._idle_deadline(), proctree.now()
        if idle is not None and now >= idle:
            self._feed(events.Leave(f"idle for {self._idle_end:g} s"))
        leave = self._leave_at()
        if leave is not None and now >= leave:
            self._is_over = True
            self._feed(events.Leave(self._allocation.why(now), now=True))
        if self.unfit and now >= self._space_at:
            self._check_space(now)
        self._believe(now)
        self._keep_reports(now)
        for executor in self._executors:
            executor.tick(now)
        self._pipes.tick(now)
        for attempt, text in self._emits.look(now):
            self._feed(events.Emitting(attempt, text))
        self._feed(events.Tick())

    def _send_tails(self) -> None:
        tails = tuple(self._tails.read(proctree.now()))
        if tails or self.agent.outbox.more != self._tails.has_more:
            self._feed(events.Wrote(tails, self._tails.has_more))

    def _feed(self, event: Event) -> None:
        """Deliver an event to the agent and perform its actions in order. An event that an action causes is delivered
        after them, not within."""
        self._events.append(event)
        if self._performing:
            return
        self._performing = True
        try:
            while self._events and self._code is None:
                for action in self.agent.handle(self._events.popleft(), proctree.now()):
                    self._perform[type(action)](action)
        finally:
            self._performing = False
        if self.mesh is not None and self.mesh.has_leader:
            self._tell_leader(self.mesh)

    # --- attempts
    def _on_attempt(self, event: Event) -> None:
        """Deliver what an executor reports; the tags that an attempt published come before the report of its end."""
        is_doubtful = self._is_doubtful(event)
        if self._doubtful or is_doubtful:  # all in order; those behind wait no longer than the last one in doubt
            until = proctree.now() + DOUBT if is_doubtful else self._doubtful[-1][0]
            self._doubtful.append((until, event))
            return
        self._take(event)

    def _take(self, event: Event) -> None:
        self._look_at_cache()
        attempt, tags = "", {}
        if type(event) is events.Ended:
            attempt, tags = event.report.attempt, self._pipes.end(event.report.attempt)
            event = replace(event, report=self._emits.end(event.report))
        elif type(event) is events.Called:
            attempt = event.piece
            tags = self._pipes.end(attempt) if event.over else self._pipes.drain(attempt)
            event = replace(event, reports=self._emits.end_called(attempt, event.batch, event.reports, event.over))
        elif type(event) is events.Saved:
            event = replace(event, emitted=self._emits.so_far(event.attempt))
        if tags:
            self._feed(events.Announced(attempt, tags))
        self._feed(event)

    def _look_at_cache(self) -> None:
        """Tell of files that came or went, before what is sent next; looking costs more with a larger cache."""
        now = proctree.now()
        if now >= self._looked_at + CACHE_EVERY:
            self._looked_at = now
            added, removed = self._blobs.take_changes()
            if added or removed:
                self._feed(events.CacheChanged(tuple(added), tuple(removed)))

    def _is_doubtful(self, event: Event) -> bool:
        """True if a batch system may have ended an attempt together with this pilot, whose own signal comes a moment later:
        such an end is not the task's fault."""
        if self._allocation.ends is None or self.agent.leaving:
            return False
        reports: tuple[Report, ...] = event.reports if type(event) is events.Called else ()
        reports = (event.report,) if type(event) is events.Ended else reports
        return any(one.outcome == "failed" and one.cause == "signal" and one.signal in BATCH_SIGNALS for one in reports)

    def _believe(self, now: float) -> None:
        """Take the events that were in doubt: no signal came for the pilot in time, or one did."""
        while self._doubtful and (self.agent.leaving or now >= self._doubtful[0][0]):
            self._take(self._doubtful.pop(0)[1])

    def _begin(self, action: events.Begin) -> None:
        self._pipes.open(action.lease.attempt)
        self._emits.begin(action.lease)
        executor: Executor = self.functions if action.lease.function else self.commands
        executor.begin(action)

    def _shorten(self, action: events.Shorten) -> None:
        if not self.commands.shorten(action):
            self.functions.shorten(action)

    def _look(self, action: events.Look) -> None:
        """List or read files of an attempt on a thread of their own: a file system may hang."""
        order = action.order
        directory = next(filter(None, (executor.directory(order.attempt) for executor in self._executors)), None)
        if directory is None:
            self._feed(events.Looked(peek.not_running(order)))
        else:
            self._looks.do(lambda: self.post(partial(self._feed, events.Looked(peek.answer(directory, order)))))

    # --- the mesh
    def assign(self, leases: tuple[Lease, ...]) -> None:
        """Tasks of the window of our mesh were given to us; from another thread."""
        self.post(partial(self._feed, events.Assigned(leases)))

    def reserve(self, window: int, seen: int, reserve: int) -> None:
        """The window of our mesh changed; from another thread."""
        self.post(partial(self._feed, events.Reserved(window, seen, reserve)))

    def _tell_leader(self, mesh: MeshProtocol) -> None:
        """Tell the mesh what is free here, if that changed: while the server is away tasks of its window come for it."""
        free = self.agent.free if not self.unfit else Capacity()
        told = free, bool(self.agent.leaving), self.agent.registered.pilot if self.agent.registered else ""
        if told != self._told:
            self._told = told
            mesh.on_state(free, self._facts(), told[1])

    def _facts(self) -> dict[str, TagValue]:
        """What requirements read of this pilot, as the server would."""
        message, room, registered = self._said, self.agent.room, self.agent.registered
        if message is None:
            return {}
        return {
            **message.tags, "pilot": registered.pilot if registered is not None else "",
            "host": message.host, "site": message.site,
            "slots": room.cores, "cores": room.cores, "memory_mb": room.memory >> 20, "disk_mb": room.disk >> 20,
            "gpus": room.gpus,
        }  # fmt: skip

    def _on_contact(self, action: events.Contact) -> None:
        self.commands.contact(action)
        if self.mesh is not None:
            self.mesh.on_contact(action.at)

    # --- the server
    def _join(self, action: events.Join) -> None:
        self._said = self._register(action)
        self.uplink.register(self._said)

    def _fetch(self, action: events.Fetch) -> None:
        assert self.agent.registered is not None
        self.uplink.fetch(action.digest, self.agent.registered.session)

    def _on_uplink(self, event: Event) -> None:
        if isinstance(event, events.Joined):
            self._on_joined(event)
            event = events.Joined(event.registered, self.commands.sees_logs)
        elif isinstance(event, events.Answered):
            self.uplink.beat = event.reply.hold
            if event.reply.kept:
                self._kept_until = proctree.now() + event.reply.kept
            reply = event.reply
            if self.mesh is not None and (reply.neighbours or reply.gone or reply.leader or reply.window_number):
                self.mesh.on_reply(reply)
            unfit = probe.lost_fitness(self._work)
            if unfit:
                self._become_unfit(unfit)
            self._measure()
            self._look_at_cache()
        elif isinstance(event, events.NoAnswer) and self.guest is not None:
            self.guest.on_no_answer()
        elif isinstance(event, events.NoAnswer) and self._copy_at is not None:
            self._copy_at = min(self._copy_at, proctree.now() + COPY_EVERY)
        elif isinstance(event, events.Leave):
            self._least_code = NO_SERVER
        elif isinstance(event, events.Fetched) and event.fits:
            event = self._keep_zip(event)
        self._feed(event)

    def join_as_guest(self, registered: Registered) -> None:
        """The server is away: until it registers us we act as our ticket says; from another thread."""
        self.post(partial(self._on_guest, registered))

    def _on_guest(self, registered: Registered) -> None:
        if self.guest is not None and self.mesh is not None:
            for executor in self._executors:
                executor.on_joined(registered)
            self.mesh.on_joined(registered)

    def _end_guest(self) -> None:
        if self.guest is not None:
            self.guest.close()
            self.guest = None

    def _on_joined(self, event: events.Joined) -> None:
        self._end_guest()
        registered, slots = event.registered, self.agent.room.cores
        log.info("joined pilot=%s server=%s again=%s", registered.pilot, self.uplink.url, self._joined_once)
        if not self._joined_once:
            plural = "s" if slots != 1 else ""
            self._say(f"pilot {registered.pilot} joined {self.uplink.url} with {slots} slot{plural}")
        self._joined_once = True
        self.uplink.beat = registered.beat
        self._on_session(registered.session)
        if self.keeper is not None:
            self.keeper.on_joined(registered)
            self._copy_at = proctree.now() + 2.0 * registered.beat  # what others left here is delivered
        if self.mesh is not None:
            self.mesh.on_joined(registered)
        for executor in self._executors:
            executor.on_joined(registered)

    # --- reports while the server is away
    def _keep_reports(self, now: float) -> None:
        """Have copies made of reports that the server does not take, and deliver those of others once it answers again."""
        if self.keeper is None or self._copy_at is None or now < self._copy_at:
            return
        agent, outbox = self.agent, self.agent.outbox
        was_cut_off, self._is_cut_off = self._is_cut_off, agent.is_cut_off(now)
        if self._is_cut_off:
            self._copy_at = now + COPY_EVERY
            self.keeper.copy(outbox.reports, outbox.batches, agent.proofs.to_send())
            return
        self._copy_at = now + 2.0 * self.uplink.beat  # by then those whose pilots live have come by themselves
        self.keeper.settle(outbox.reports, outbox.batches)
        if not was_cut_off:
            self.keeper.offer(lambda copies: self.post(partial(self._feed, events.Deliver(tuple(copies)))))

    def close_keeper(self) -> None:
        """The pilot ends: what the server has not taken outlives it."""
        if self.keeper is not None:
            outbox = self.agent.outbox
            self.keeper.settle(outbox.reports, outbox.batches)
            self.keeper.copy(outbox.reports, outbox.batches, self.agent.proofs.to_send())
            self.keeper.close()

    def _on_delivered(self, action: events.Delivered) -> None:
        if self.keeper is not None:
            self.keeper.delivered(action.copies)

    def notice(self, tags: dict[str, TagValue]) -> None:
        """Tags of this pilot changed; from another thread."""
        self.post(partial(self._feed, events.Noticed(tags)))

    def accuse(self, accusation: Accusation) -> None:
        """Report a peer; from another thread."""
        self.post(partial(self._feed, events.Accused(accusation)))

    def _measure(self) -> None:
        """Measure the host and the network, now that an exchange is about to go out anyway."""
        changed = self._usage.changed()
        if changed:
            self._feed(events.Noticed(changed))
        agent = self.agent
        is_idle = not (agent.running or agent.waiting or agent.leaving)
        if is_idle and agent.registered and self._network.wants_probe(proctree.now()):
            self.uplink.measure(agent.registered.session)

    def _keep_zip(self, event: events.Fetched) -> events.Fetched:
        try:
            self._zips[event.digest] = memfd.hold(event.data)
        except OSError as error:
            log.error("the new pilot cannot be kept: %s digest=%s", error.strerror, event.digest)
            return events.Fetched(event.digest, False)
        return event

    # --- the end, and pauses
    def _on_signal(self, number: int) -> None:
        self._signals += 1
        log.info("signal name=%s count=%d", outcome.signal_name(number), self._signals)
        # A batch system sends SIGTERM once and kills a moment later: no time to finish what can go on elsewhere.
        is_batch = number == signal.SIGTERM
        why = f"{outcome.signal_name(number)} received"
        self._feed(events.Leave(why, now=self._signals > 1, checkpoint=is_batch))
        self._believe(proctree.now())

    def _become_unfit(self, why: str) -> None:
        if self._least_code != UNFIT:
            log.error("%s", why)
            self._least_code = UNFIT
            self._feed(events.Leave(why))

    def _pause(self, why: str) -> None:
        """There is no disk space: ask the server to send nothing until there is. What runs goes on."""
        if not self.unfit:
            log.error("%s", why)
            self._say(f"takes no tasks: {why}")
        if self.unfit != why:
            self.unfit = why
            self._feed(events.Noticed({"unfit": why}))
        self._space_at = proctree.now() + SPACE_EVERY

    def _check_space(self, now: float) -> None:
        self._space_at = now + SPACE_EVERY
        if not self.commands.lack(2 * probe.LEAST_FREE):
            self.unfit = ""
            self._say("takes tasks again: there is space")
            self._feed(events.Noticed({"unfit": ""}))

    def _finish(self, action: events.Finish) -> None:
        self._code, self.why = action.code, action.why
        self.successor = self._zips.get(action.renew)
