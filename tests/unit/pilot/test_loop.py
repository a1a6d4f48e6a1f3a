"""The loop and its attempts against a guard and an uplink that only note what they are told."""

from __future__ import annotations

import json
import os
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.pilot import loop
from shoal.pilot.agent.agent import Agent
from shoal.pilot.agent.allocation import Allocation
from shoal.pilot.agent.events import Answered, Event, Fetched, Join, Joined, Leave
from shoal.pilot.commands.staging import PilotFacts, Staging
from shoal.pilot.files.host_cache import HostCache
from shoal.pilot.guard import proctree
from shoal.pilot.guard.channel import Channel
from shoal.pilot.guard.guards import Guards
from shoal.pilot.guard.messages import (
    Ended,
    LastContact,
    Message,
    NotStarted,
    Quit,
    SendSignal,
    Start,
    Started,
    Stop,
    ToGuard,
)
from shoal.pilot.guard.spawn import STREAM_SLACK
from shoal.pilot.host.usage import HostUsage
from shoal.pilot.loop import NO_SERVER, UNFIT, Loop
from shoal.pilot.uplink.blobs import Blobs
from shoal.pilot.uplink.latency import Latency
from shoal.pilot.uplink.server_address import ServerAddress
from shoal.wire.batches import report_of
from shoal.wire.messages import Capacity, Exchange, Lease, Order, Register, Registered, Reply, TagValue, Verdict

REGISTERED = Registered(
    "p0001", "s", 1, beat=1.0, lease=10.0, hold=1.0, kill_after=60.0, grace=3.0, idle_end=30.0, spool_end=60.0
)
DIGEST = "d" * 64
NOBODY = 2**22 + 1  # no process has this number


class Told(Channel):
    """The loop's end of the line; the script plays the guard as soon as something is said."""

    def __init__(self, sock: socket.socket, script: Script) -> None:
        super().__init__(sock)
        self._script = script

    def send(self, message: Message) -> None:
        super().send(message)
        self._script.loop.post(self._script.play_guard)


class Quiet(HostUsage):
    """A host of which nothing changes."""

    def changed(self) -> dict[str, TagValue]:
        return {}


class Script:
    """Plays server and guard: each hook is called inside the loop and may answer at once."""

    def __init__(self, root: Path) -> None:
        self.home, self.work = root / "home", root / "work"
        self.home.mkdir()
        self.work.mkdir()
        (root / "env.json").write_text(json.dumps({"PATH": "/bin"}))
        self.env_file = str(root / "env.json")
        self.beat, self.url = 10.0, "unix:/run/shoal-1"
        self.sent: list[Exchange] = []
        self.replies: list[Reply] = []
        self.orders: list[ToGuard] = []
        self.lines: list[str] = []
        self.fetched: list[tuple[str, str]] = []
        self.measured: list[str] = []
        self.zip = Fetched(DIGEST, None)
        self.barred: set[str] = set()  # attempts whose start fails
        self.writes: dict[str, str] = {}  # attempt -> what it writes to its standard output
        self.publishes: dict[str, str] = {}  # attempt -> what it writes into its pipe
        self.ends: dict[str, NotStarted | Ended | None] = {}  # attempt -> how the guard says it went
        ours, theirs = socket.socketpair()
        self.guard = Channel(theirs)
        self.parked: int | None = None
        stage = Staging(PilotFacts(str(self.work), {"PATH": "/bin"}))
        agent = Agent(Capacity(2), random.Random(1))
        blobs = Blobs(ServerAddress(), HostCache(str(self.work / "blobs")))
        network = Latency(random.Random(1))
        usage = Quiet(str(self.work), [os.getpid()], network)
        self.sessions: list[str] = []
        self.loop = Loop(
            agent,
            Guards([(Told(ours, self), NOBODY)]),
            stage,
            self.describe,
            self.lines.append,
            blobs,
            usage,
            network,
            self.sessions.append,
        )
        self.loop.uplink = self

    def describe(self, join: Join) -> Register:
        return Register(2, "0", "h", "i", Capacity(2), former=join.former, nonce=join.nonce)

    def fetch(self, digest: str, session: str) -> None:
        self.fetched.append((digest, session))
        self.loop.deliver(self.zip)

    def measure(self, session: str) -> None:
        self.measured.append(session)

    def register(self, message: Register) -> None:
        self.loop.deliver(Joined(REGISTERED))

    def exchange(self, message: Exchange, itself: bool = False) -> None:
        """Answer what brings news; park the rest until a newer one comes, as a server does."""
        self.sent.append(message)
        carries = bool(message.reports or message.batches)
        if self.parked is not None and not carries:
            self.loop.deliver(Answered(Reply(self.parked, 1, hold=1.0)))
            self.parked = None
        verdicts = [Verdict(report.attempt, "recorded") for report in message.reports]
        verdicts += [Verdict(batch.attempt, "recorded", batch.count) for batch in message.batches]
        over = not self.replies and not message.leaving and all(held.stage == "done" for held in message.held)
        if self.replies:
            reply = self.replies.pop(0)
            self.loop.deliver(Answered(Reply(message.seq, 1, reply.leases, reply.orders, verdicts, hold=1.0)))
        elif carries or (message.leaving and not message.held):
            self.loop.deliver(Answered(Reply(message.seq, 1, verdicts=verdicts, hold=1.0)))
        else:
            self.parked = message.seq
        if over:
            self.deliver_leave(Leave("the script is over"))

    def deliver_leave(self, event: Event) -> None:
        self.loop.post(lambda: self.loop._feed(event))

    def play_guard(self) -> None:
        for order in self.guard.receive():
            self.orders.append(order)
            if isinstance(order, Start):
                if order.attempt in self.writes:
                    os.makedirs(os.path.dirname(order.stdout), exist_ok=True)
                    Path(order.stdout).write_text(self.writes[order.attempt])
                if order.attempt in self.publishes:
                    with open(order.env["SHOAL_TAGS"], "w", encoding="utf-8") as pipe:
                        pipe.write(self.publishes[order.attempt])
                if order.attempt not in self.barred:
                    self.guard.send(Started(order.attempt, 1, time.time()))
                end = self.ends.get(order.attempt, Ended(order.attempt, 0, None, "", 1.0, 1.0, 1))
                if end is not None:
                    self.guard.send(end)
            if isinstance(order, Stop):
                self.guard.send(Ended(order.attempt, None, 15, "stopped", 1.0, 1.0, 1))

    def lease(self, element: int, **more: Any) -> Lease:
        base = {"command": ["x"], "cwd": str(self.home), "env_file": self.env_file}
        return Lease(f"r1.{element}#1@1", Capacity(1), more.pop("rerun", "safe"), **{**base, **more})

    def run(self, *replies: Reply) -> int:
        self.replies = list(replies)
        code = self.loop.run()
        self.play_guard()
        return code

    def outcomes(self) -> dict[str, tuple[str, str]]:
        reports = [r for exchange in self.sent for r in exchange.reports]
        reports += [report_of(b, at) for exchange in self.sent for b in exchange.batches for at in range(b.count)]
        return {r.attempt: (r.outcome, r.cause) for r in reports}

    def done(self, *kinds: type) -> list[Any]:
        return [order for order in self.orders if isinstance(order, kinds)]


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    script = Script(tmp_path)
    yield script
    script.guard.close()
    script.loop.commands.guards.close()


def test_a_lease_becomes_a_start_and_its_end_a_report(script: Script) -> None:
    lease = script.lease(1, env={"A": "b"}, time=9.0, rerun="exclusive")
    assert script.run(Reply(0, 1, [lease])) == 0
    assert script.lines == ["pilot p0001 joined unix:/run/shoal-1 with 2 slots"]
    assert [type(order) for order in script.orders if not isinstance(order, LastContact)] == [Start, Quit]
    (start,) = script.done(Start)
    assert (start.argv, start.cwd, start.time, start.exclusive) == (["x"], str(script.home), 9.0, True)
    assert (start.grace, start.memory, start.env["A"]) == (3.0, 0, "b")
    first = script.done(LastContact, Start)[0]
    assert (type(first), first.kill_after) == (LastContact, 60.0)
    assert script.outcomes() == {"r1.1#1@1": ("succeeded", "")}
    assert script.loop.why == "the script is over"
    assert list(script.work.rglob("*.out")) == []


def test_a_cancelled_attempt_is_stopped_with_the_servers_grace(script: Script) -> None:
    lease = script.lease(1)
    script.ends[lease.attempt] = None
    script.run(Reply(0, 1, [lease]), Reply(0, 1, orders=[Order("cancel", lease.attempt, "enough")]))
    (stop,) = script.done(Stop)
    assert (stop.attempt, stop.grace) == (lease.attempt, 3.0)
    assert script.outcomes() == {lease.attempt: ("cancelled", "cancelled")}


@pytest.mark.parametrize(("is_told", "outcome"), [(True, "returned"), (False, "failed")])
def test_what_a_batch_system_ends_with_its_pilot_is_given_back(
    script: Script, monkeypatch: pytest.MonkeyPatch, is_told: bool, outcome: str
) -> None:
    """scancel signals all processes of an allocation, a task a moment before its pilot."""
    monkeypatch.setattr(loop, "DOUBT", 60.0 if is_told else 0.05)
    script.loop._allocation = Allocation(3600.0, proctree.now())
    lease = script.lease(1)
    script.ends[lease.attempt] = Ended(lease.attempt, None, 15, "", 1.0, 1.0, 1)
    look = script.loop._is_doubtful

    def look_and_signal(event: Event) -> bool:
        found = look(event)
        if found and is_told:
            script.loop.interrupt(15)
        return found

    monkeypatch.setattr(script.loop, "_is_doubtful", look_and_signal)
    script.run(Reply(0, 1, [lease]))
    assert script.outcomes() == {lease.attempt: (outcome, "signal")}


def test_a_signal_reaches_the_guard_unless_there_is_none_of_that_number(script: Script) -> None:
    lease = script.lease(1)
    script.ends[lease.attempt] = None
    orders = [Order("signal", lease.attempt, signal=number) for number in (10, 0, -1, 99)]
    end = Order("cancel", lease.attempt, "enough")
    script.run(Reply(0, 1, [lease]), Reply(0, 1, orders=orders), Reply(0, 1, orders=[end]))
    assert [(order.attempt, order.number) for order in script.done(SendSignal)] == [(lease.attempt, 10)]


def test_limits_follow_from_what_the_task_asked_for(script: Script) -> None:
    bound = Lease("r1.1#1@1", Capacity(2, disk=1 << 30), "safe", ["x"], cwd=str(script.home), time=9.0)
    free = Lease("r1.2#1@1", Capacity(2), "safe", ["x"], cwd=str(script.home))
    script.run(Reply(0, 1, [bound, free]))
    first, second = script.done(Start)
    assert (first.cpu, first.file_size) == (2 * 9.0 + 3.0, (1 << 30) + STREAM_SLACK)
    assert (second.cpu, second.file_size) == (None, None)


def test_a_stream_that_the_server_cannot_read_is_sent_whole_and_then_removed(script: Script) -> None:
    lease = script.lease(1)
    script.writes[lease.attempt] = "line\n" * 300_000
    assert script.run(Reply(0, 1, [lease])) == 0
    text = b""
    for tail in (tail for exchange in script.sent for tail in exchange.tails):
        assert (tail.attempt, tail.stream, tail.offset) == (lease.attempt, "stdout", len(text))
        text += tail.text.encode()
    assert text.decode() == script.writes[lease.attempt]
    assert list(script.work.rglob("*.out")) == []


def test_what_an_attempt_publishes_is_said_with_its_end(script: Script) -> None:
    one, two = script.lease(1), script.lease(2)
    script.publishes = {one.attempt: "x = 1\ny = 2", two.attempt: "x = 3\n"}
    assert script.run(Reply(0, 1, [one, two])) == 0
    said = [(p.attempt, p.tags) for exchange in script.sent for p in exchange.published]
    assert sorted(said) == [(one.attempt, {"x": 1, "y": 2}), (two.attempt, {"x": 3})]
    for exchange in script.sent:
        ended = {r.attempt for r in exchange.reports} | {b.attempt for b in exchange.batches}
        assert not ended or exchange.published or any(p.published for p in script.sent if p.seq < exchange.seq)
    assert list(script.work.joinpath("tags").iterdir()) == []


def test_the_host_is_looked_at_when_an_answer_comes(script: Script) -> None:
    class Looks(HostUsage):
        def __init__(self) -> None: ...
        def changed(self) -> dict[str, TagValue]:
            return {"load": 2.5}

    class Wants(Latency):
        def wants_probe(self, now: float) -> bool:
            return True

    script.loop._usage, script.loop._network = Looks(), Wants(random.Random(1))
    script.run(Reply(0, 1), Reply(0, 1))
    assert {"load": 2.5} in [exchange.tags for exchange in script.sent]
    assert script.measured and set(script.measured) == {"s"}


def test_a_new_pilot_is_kept_in_memory_for_the_end(script: Script) -> None:
    script.zip = Fetched(DIGEST, True, b"zip")
    script.deliver_leave = lambda event: None  # type: ignore[method-assign]
    assert script.run(Reply(0, 1, orders=[Order("renew", why=DIGEST)])) == 0
    assert script.fetched == [(DIGEST, "s")]
    assert script.loop.successor is not None
    assert os.read(script.loop.successor, 10) == b"zip"
    os.close(script.loop.successor)


def test_a_pilot_that_is_told_to_end_has_no_successor(script: Script) -> None:
    script.zip = Fetched(DIGEST, False)
    assert script.run(Reply(0, 1, orders=[Order("renew", why=DIGEST)])) == 0
    assert (script.fetched, script.loop.successor) == ([(DIGEST, "s")], None)


def test_an_attempt_that_cannot_be_staged_never_reaches_the_guard(script: Script) -> None:
    lease = script.lease(1, own=True, inputs=["gone"])
    script.run(Reply(0, 1, [lease]), Reply(0, 1))
    assert script.done(Start) == []
    assert script.outcomes() == {lease.attempt: ("failed", "stage_in")}


def test_starts_that_fail_for_the_hosts_sake_end_the_pilot(script: Script) -> None:
    leases = [script.lease(element) for element in range(1, 6)]
    for lease in leases:
        script.barred.add(lease.attempt)
        script.ends[lease.attempt] = NotStarted(lease.attempt, "host_unfit", "no memory")
    assert script.run(Reply(0, 1, leases)) == UNFIT
    assert {outcome for outcome, _ in script.outcomes().values()} == {"returned"}
    assert len(script.outcomes()) == 5
    assert 3 <= len(script.done(Start)) <= 4


def test_a_vanished_work_directory_ends_the_pilot_and_starts_nothing(script: Script) -> None:
    script.work.rmdir()
    assert script.run(Reply(0, 1, [script.lease(1)])) == UNFIT
    assert script.done(Start) == []
    assert script.outcomes() == {"r1.1#1@1": ("returned", "")}


def test_without_its_guard_the_pilot_gives_back_and_leaves(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.pilot.guard.proctree.kill_children", lambda patience: True)
    leases = [script.lease(element) for element in (1, 2, 3)]
    for lease in leases:
        script.ends[lease.attempt] = None
    exchange = script.exchange

    def hang_up(message: Exchange, itself: bool = False) -> None:
        exchange(message)
        if any(held.stage == "running" for held in message.held):
            script.loop.post(script.guard.close)

    script.exchange = hang_up  # type: ignore[method-assign]
    script.replies = [Reply(0, 1, leases)]
    assert script.loop.run() == UNFIT
    assert script.outcomes() == {
        "r1.1#1@1": ("returned", "host_unfit"),
        "r1.2#1@1": ("returned", "host_unfit"),
        "r1.3#1@1": ("returned", ""),
    }


def test_a_server_that_refuses_us_ends_with_another_code(script: Script) -> None:
    script.exchange = lambda message, itself=False: script.loop.deliver(Leave("refused"))  # type: ignore[method-assign]
    script.register = lambda message: script.loop.deliver(Leave("refused"))  # type: ignore[method-assign]
    assert script.loop.run() == NO_SERVER
    assert script.loop.why == "refused"


def test_an_idle_pilot_stays_while_the_server_wants_its_data(script: Script) -> None:
    script.loop._idle_end = 0.05
    script.replies = []
    began = time.monotonic()
    script.loop.deliver(Joined(REGISTERED))
    script.loop.deliver(Answered(Reply(1, 1, hold=1.0, kept=0.3)))
    script.exchange = lambda message, itself=False: script.sent.append(message)  # type: ignore[method-assign]  # nothing is answered from now on
    assert script.loop.run() == 0
    assert time.monotonic() - began >= 0.3


def test_an_idle_pilot_leaves_when_told_to(script: Script) -> None:
    script.loop._idle_end = 0.05
    script.deliver_leave = lambda event: None  # type: ignore[method-assign]
    assert script.loop.run() == 0
    assert script.loop.why == "idle for 0.05 s"


def test_two_signals_stop_what_runs(script: Script) -> None:
    lease = script.lease(1)
    script.ends[lease.attempt] = None
    exchange = script.exchange

    def interrupt(message: Exchange, itself: bool = False) -> None:
        exchange(message)
        if any(held.stage == "running" for held in message.held):
            script.loop.interrupt(15)

    script.exchange = interrupt  # type: ignore[method-assign]
    script.run(Reply(0, 1, [lease]))
    assert len(script.done(Stop)) == 1
    assert script.outcomes() == {lease.attempt: ("returned", "cancelled")}
