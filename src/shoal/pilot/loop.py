"""The hands of `agent`: one place that performs its actions and tells it what happened.

One thread owns the agent and every attempt; others (lanes, porter, signals) only put a function into the inbox
and wake it. Time is CLOCK_BOOTTIME, which goes on while the machine sleeps.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Optional, Protocol

from shoal.pilot.agent import outcome
from shoal.pilot.agent.agent import Agent
from shoal.pilot.agent.allocation import Allocation
from shoal.pilot.agent.events import (
    Announced,
    Answered,
    Begin,
    Called,
    Complain,
    Contact,
    Ended,
    Event,
    Fetch,
    Fetched,
    Finish,
    Join,
    Joined,
    Leave,
    Noticed,
    Outlived,
    Recall,
    Send,
    Settle,
    Signal,
    Stop,
    Tick,
    Watch,
    Wrote,
)
from shoal.pilot.commands.executor import GUARD_GONE, CommandExecutor
from shoal.pilot.commands.staging import Staging
from shoal.pilot.functions.executor import FunctionExecutor
from shoal.pilot.guard import proctree
from shoal.pilot.guard.channel import Channel
from shoal.pilot.host import memory_files, probe
from shoal.pilot.host.tag_pipes import TagPipes
from shoal.pilot.host.usage import HostUsage
from shoal.pilot.uplink.latency import Latency
from shoal.wire.messages import Exchange, Register

log = logging.getLogger(__name__)

UNFIT, NO_SERVER = 3, 4  # exit codes; 0: a clean end
FIT_LOOK = 2.0  # seconds between two looks whether there is space again
SPIN_GUARD = 0.02  # an agent that asks to be ticked at once, twice running, waits so long


class UplinkProtocol(Protocol):
    """What the loop needs of `uplink.Uplink`."""

    beat: float
    url: str

    def register(self, message: Register) -> None: ...
    def exchange(self, message: Exchange) -> None: ...
    def fetch(self, digest: str, session: str) -> None: ...
    def measure(self, session: str) -> None: ...


class Loop:
    """Performs the agent's actions until it finishes."""

    def __init__(
        self,
        agent: Agent,
        channel: Channel,
        guard_pid: int,
        stage: Staging,
        register: Callable[[Join], Register],
        say: Callable[[str], None],
        umask: int = 0o077,
        idle_end: Optional[float] = None,
        usage: Optional[HostUsage] = None,
        network: Optional[Latency] = None,
        on_session: Optional[Callable[[str], None]] = None,
    ) -> None:
        self.agent = agent
        self.pipes = TagPipes(os.path.join(stage.facts.work, "tags"))
        stage.pipes = self.pipes.paths
        self._usage, self._network, self._on_session = usage, network, on_session
        self.attempts = CommandExecutor(
            channel,
            guard_pid,
            stage,
            umask,
            self._hear_of,
            self.post,
            self._become_unfit,
            lambda: agent.outbox.tail_room,
        )
        self.calls = FunctionExecutor(
            stage, umask, agent.room.cores, channel.send, self._hear_of, self.post, self.attempts.tails
        )
        self.attempts.pause = self.calls.pause = self._pause
        self.attempts.others = self.calls.runners.hear_guard
        self.attempts.blobs = lambda: self.calls.blobs
        self._allocation = Allocation(probe.seconds_left(), proctree.now())
        self.unfit = ""  # why this pilot takes nothing just now; it comes back by itself
        self._fit_at = 0.0
        self.uplink: Optional[UplinkProtocol] = None  # set before `run`
        self.why = ""
        self.successor: Optional[int] = None  # set: an open file, the zip of the pilot to become
        self._zips: dict[str, int] = {}
        self._register, self._say, self._idle_end = register, say, idle_end
        self._work = stage.facts.work
        self._inbox: deque[Callable[[], None]] = deque()
        self._events: deque[Event] = deque()
        self._performing = False
        self._code: Optional[int] = None  # set: the loop is over
        self._least_code = 0  # the agent ends cleanly, but something was wrong
        self._joined_once = self._is_over = False
        self._signals = 0
        self.is_interrupted = False
        self._idle_since = proctree.now()
        self._wake_read, self.wake_fd = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self.wake_fd, False)
        self._perform: dict[type, Callable[[Any], None]] = {
            Join: self._join,
            Send: self._send,
            Begin: self._begin,
            Stop: self._stop,
            Recall: self.attempts.recall,
            Signal: self._signal,
            Watch: self._watch,
            Fetch: self._fetch,
            Complain: lambda action: log.error("%s", action.words),
            Settle: self.attempts.settle,
            Contact: self.attempts.contact,
            Finish: self._finish,
        }

    # --- from other threads and from signal handlers
    def post(self, work: Callable[[], None]) -> None:
        """Have the loop call `work`."""
        self._inbox.append(work)
        with contextlib.suppress(OSError):  # a full pipe wakes as well
            os.write(self.wake_fd, b"x")

    def deliver(self, event: Event) -> None:
        """What the uplink brings."""
        self.post(partial(self._on_uplink, event))

    def interrupt(self, number: int, frame: object = None) -> None:
        """A signal to end: the first finishes what runs (on SIGTERM, tasks with a checkpoint write it at once and go on
        elsewhere), the second stops it."""
        self.is_interrupted = True
        self.post(partial(self._on_signal, number))

    # --- life
    def run(self) -> int:
        """Until the agent finishes; returns the exit code."""
        self._feed(Tick())
        guard = self.attempts.channel
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_read, selectors.EVENT_READ)
            selector.register(guard, selectors.EVENT_READ)
            selector.register(self.calls.runners, selectors.EVENT_READ)
            selector.register(self.pipes, selectors.EVENT_READ)
            fruitless = False
            while self._code is None:
                due = self._deadline()
                wait = None if due is None else max(SPIN_GUARD if fruitless else 0.0, due - proctree.now())
                if self._inbox:
                    wait = 0.0
                ready = [key.fileobj for key, _ in selector.select(wait)]
                fruitless = not ready
                if self._wake_read in ready:
                    os.read(self._wake_read, 4096)
                if guard in ready and not self.attempts.guard_lost:
                    self.attempts.hear_guard()
                if self.calls.runners in ready:
                    self.calls.runners.receive()
                if self.pipes in ready:
                    for attempt, tags in self.pipes.receive(proctree.now()):
                        self._feed(Announced(attempt, tags))
                for _ in range(len(self._inbox)):  # what these bring waits a turn, so the guard is heard too
                    self._inbox.popleft()()
                if due is not None and proctree.now() >= due:
                    self._tick()
                self._say_streams()
                self._watch_guard(selector)
        self.calls.close()
        self.attempts.close()
        self.pipes.close()
        return max(self._code, self._least_code)

    def _watch_guard(self, selector: selectors.BaseSelector) -> None:
        """Listen to the guard while there is one, and write when there is something to write."""
        guard = self.attempts.channel
        if not self.attempts.guard_lost:
            both = selectors.EVENT_READ | selectors.EVENT_WRITE
            selector.modify(guard, both if guard.wants_write else selectors.EVENT_READ)
        elif guard in {key.fileobj for key in selector.get_map().values()}:
            selector.unregister(guard)
            self.calls.runners.abandon(GUARD_GONE)

    def _deadline(self) -> Optional[float]:
        own = self.attempts
        times = (
            self.agent.deadline(), self._idle_deadline(), own.watch_deadline(), own.tails.deadline(), self.calls.deadline(),
            self.pipes.deadline(), self._leave_at(), own.checkpoints.deadline(), self._fit_at if self.unfit else None,
        )  # fmt: skip
        known = [at for at in times if at is not None]
        return min(known) if known else None

    def _leave_at(self) -> Optional[float]:
        return None if self._is_over else self._allocation.leave_at(self.attempts.grace)

    def report_dead(self, sessions: list[str]) -> bool:
        """Report pilots of this host that died: the server would wait for them as long as their lease lasts."""
        if self.agent.registered is None:
            return False
        log.info("siblings ended=%d", len(sessions))
        self._feed(Outlived(tuple(sessions)))
        return True

    def _idle_deadline(self) -> Optional[float]:
        if self._idle_end is None or self.agent.leaving:
            return None
        if self.agent.running or self.agent.waiting:
            self._idle_since = proctree.now()
            return None
        return self._idle_since + self._idle_end

    def _tick(self) -> None:
        idle, now = self._idle_deadline(), proctree.now()
        if idle is not None and now >= idle:
            self._feed(Leave(f"idle for {self._idle_end:g} s"))
        leave = self._leave_at()
        if leave is not None and now >= leave:
            self._is_over = True
            self._feed(Leave(self._allocation.why(now), now=True))
        if self.unfit and now >= self._fit_at:
            self._look_for_space(now)
        self.attempts.watch(now)
        self.attempts.checkpoints.tick(now)
        self.calls.tick(now)
        self.pipes.tick(now)
        self._feed(Tick())

    def _say_streams(self) -> None:
        tails = self.attempts.tails
        said = tuple(tails.read(proctree.now()))
        if said or self.agent.outbox.more != tails.has_more:
            self._feed(Wrote(said, tails.has_more))

    def _feed(self, event: Event) -> None:
        """Tell the agent; do what it says, in order. What that brings about is told after it, not within."""
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

    def _hear_of(self, event: Event) -> None:
        """What becomes of attempts; what they published comes before the word of their end."""
        if type(event) is Ended:
            attempt, tags = event.report.attempt, self.pipes.end(event.report.attempt)
        elif type(event) is Called:
            attempt = event.piece
            tags = self.pipes.end(attempt) if event.over else self.pipes.drain(attempt)
        else:
            attempt, tags = "", {}
        if tags:
            self._feed(Announced(attempt, tags))
        self._feed(event)

    # --- commands and functions
    def _begin(self, action: Begin) -> None:
        self.pipes.open(action.lease.attempt)
        if action.lease.function:
            self.calls.begin(action)
        else:
            self.attempts.begin(action)

    def _stop(self, action: Stop) -> None:
        if not self.calls.runners.stop(action.attempt, action.why):
            self.attempts.stop(action)

    def _signal(self, action: Signal) -> None:
        if not self.calls.runners.signal(action.attempt, action.number):
            self.attempts.signal(action)

    def _watch(self, action: Watch) -> None:
        if not self.calls.watch_stream(action):
            self.attempts.watch_stream(action)

    # --- talking with the server
    def _join(self, action: Join) -> None:
        assert self.uplink is not None
        self.uplink.register(self._register(action))

    def _send(self, action: Send) -> None:
        assert self.uplink is not None
        self.uplink.exchange(action.exchange)

    def _fetch(self, action: Fetch) -> None:
        assert self.uplink is not None and self.agent.registered is not None
        self.uplink.fetch(action.digest, self.agent.registered.session)

    def _on_uplink(self, event: Event) -> None:
        assert self.uplink is not None
        if isinstance(event, Joined):
            told, slots = event.registered, self.agent.room.cores
            log.info("joined pilot=%s server=%s again=%s", told.pilot, self.uplink.url, self._joined_once)
            if not self._joined_once:
                plural = "s" if slots != 1 else ""
                self._say(f"pilot {told.pilot} joined {self.uplink.url} with {slots} slot{plural}")
            self._joined_once = True
            self.uplink.beat = told.beat
            if self._on_session is not None:
                self._on_session(told.session)
            self.attempts.on_joined(told)
            self.calls.on_joined(told)
        elif isinstance(event, Answered):
            self.uplink.beat = event.reply.hold
            unfit = probe.lost_fitness(self._work)
            if unfit:
                self._become_unfit(unfit)
            self._notice()
        elif isinstance(event, Leave):
            self._least_code = NO_SERVER
        elif isinstance(event, Fetched) and event.fits:
            event = self._keep_zip(event)
        self._feed(event)

    def _notice(self) -> None:
        """Look at the host and the network, now that an exchange is about to go out anyway."""
        news = self._usage.changed() if self._usage is not None else {}
        if news:
            self._feed(Noticed(news))
        agent, now = self.agent, proctree.now()
        is_idle = not (agent.running or agent.waiting or agent.leaving)
        if is_idle and agent.registered is not None and self._network is not None and self._network.wants_probe(now):
            assert self.uplink is not None
            self.uplink.measure(agent.registered.session)

    def _keep_zip(self, event: Fetched) -> Fetched:
        try:
            self._zips[event.digest] = memory_files.hold(event.data)
        except OSError as error:
            log.error("the new pilot cannot be kept: %s digest=%s", error.strerror, event.digest)
            return Fetched(event.digest, False)
        return event

    def _on_signal(self, number: int) -> None:
        self._signals += 1
        log.info("signal name=%s count=%d", outcome.signal_name(number), self._signals)
        # A batch system says SIGTERM once, and kills a moment later: no time to finish what can go on elsewhere.
        is_batch = number == signal.SIGTERM
        self._feed(Leave(f"{outcome.signal_name(number)} received", now=self._signals > 1, checkpoint=is_batch))

    def _become_unfit(self, why: str) -> None:
        if self._least_code != UNFIT:
            log.error("%s", why)
            self._least_code = UNFIT
            self._feed(Leave(why))

    def _pause(self, why: str) -> None:
        """There is no space: the server is told to send nothing until there is. What runs goes on."""
        if not self.unfit:
            log.error("%s", why)
            self._say(f"takes no tasks: {why}")
        if self.unfit != why:
            self.unfit = why
            self._feed(Noticed({"unfit": why}))
        self._fit_at = proctree.now() + FIT_LOOK

    def _look_for_space(self, now: float) -> None:
        self._fit_at = now + FIT_LOOK
        if not self.attempts.lack(2 * probe.LEAST_FREE):
            self.unfit = ""
            self._say("takes tasks again: there is space")
            self._feed(Noticed({"unfit": ""}))

    def _finish(self, action: Finish) -> None:
        self._code, self.why = action.code, action.why
        self.successor = self._zips.get(action.renew)
