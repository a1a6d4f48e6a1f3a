"""No attempt stays without an end, whatever the other server answers [ADR 0060]."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from shoal.bridge import peer
from shoal.bridge.peer import Peer
from shoal.model.errors import EventsGone, InternalError, Refused, ShoalError
from shoal.wire.messages import Capacity, Lease, Report

WITHIN = 30.0  # seconds in which a thread does what it has to, on a busy machine


def attempt(number: int) -> str:
    return f"r5.{number}#1@3~00112233445566aa"


def lease(number: int) -> Lease:
    return Lease(attempt(number), Capacity(1), "safe", command=["sim"])


class OtherServer:
    """Stands for the client of the other server: it refuses what a test says."""

    def __init__(self) -> None:
        self.refuses: dict[str, Exception] = {}  # by the request
        self.asked: list[str] = []
        self.states: dict[str, str] = {}  # of runs
        self.last = 0
        self.changed = threading.Condition()

    def _ask(self, request: str) -> None:
        self.asked.append(request)
        if request in self.refuses:
            raise self.refuses[request]

    def finish(self, run: str) -> None:
        with self.changed:
            self.states[run] = "succeeded"
            self.last += 1
            self.changed.notify_all()

    def server(self) -> dict[str, Any]:
        self._ask("server")
        return {"last_seq": self.last}

    def events(self, after: int, wait: float, kinds: object) -> dict[str, Any]:
        with self.changed:
            self._ask("events")
            self.changed.wait_for(lambda: self.last > after or "events" in self.refuses, wait)
            self._ask("events")
            return {
                "events": [{"run": int(run[1:])} for run in self.states] if self.last > after else [],
                "last": self.last,
            }

    def task(self, task: str) -> dict[str, Any]:
        self._ask("task")
        return {"state": self.states[task.partition(".")[0]], "task": {}}

    def submit(self, document: dict[str, Any]) -> dict[str, Any]:
        self._ask("submit")
        run = f"r{len(self.states) + 1}"
        self.states[run] = "running"
        return {"run": run}

    def runs(self, *_: object) -> dict[str, Any]:
        self._ask("runs")
        return {"runs": [{"run": run} for run, state in self.states.items() if state == "running"]}

    def cancel(self, targets: list[str]) -> None:
        self._ask("cancel")
        self.states.update(dict.fromkeys(targets, "cancelled"))

    def refuse(self, *requests: str, error: Exception) -> None:
        with self.changed:
            self.refuses = dict.fromkeys(requests, error)
            self.changed.notify_all()

    def close(self) -> None:
        pass

    interrupt = close


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> OtherServer:
    made = OtherServer()

    class Link:
        patience = 0.0

        def __init__(self, *_: object) -> None:
            pass

        def connect(self) -> OtherServer:
            return made

    monkeypatch.setattr(peer, "Reconnecting", Link)
    monkeypatch.setattr(peer, "PAUSE", 0.01)
    monkeypatch.setattr(peer, "HELD", 0.2)
    return made


class Bridge:
    """A peer, and what it reports."""

    def __init__(self) -> None:
        self.reports: SimpleQueue[Report] = SimpleQueue()
        self.began: SimpleQueue[str] = SimpleQueue()
        self.peer = Peer("https://lab", "home", self.reports.put, self.began.put)
        self.peer.start()

    def run(self, number: int) -> None:
        self.peer.take(lease(number))
        assert self.began.get(timeout=WITHIN) == attempt(number)


@pytest.fixture
def bridge(there: OtherServer) -> Iterator[Bridge]:
    made = Bridge()
    yield made
    there.refuse(error=Refused())
    made.peer.close()


@pytest.mark.parametrize(
    "requests", [("events",), ("events", "server"), ("task", "events")], ids=lambda requests: "+".join(requests)
)
@pytest.mark.parametrize("error", [InternalError("a defect"), EventsGone("gone", oldest=9), KeyError("events")])
def test_what_ends_while_news_are_refused_is_reported_afterwards(
    there: OtherServer, bridge: Bridge, requests: tuple[str, ...], error: Exception
) -> None:
    bridge.run(1)
    there.refuse(*requests, error=error)
    asked = len(there.asked)
    wait_until(lambda: len(there.asked) > asked + 8)
    there.finish("r1")
    wait_until(lambda: len(there.asked) > asked + 16)
    there.refuse(error=error)
    report = bridge.reports.get(timeout=WITHIN)
    assert (report.attempt, report.outcome) == (attempt(1), "succeeded")


def test_where_our_token_ended_attempts_are_given_back_and_withdrawn_once_it_is_mended(
    there: OtherServer, bridge: Bridge
) -> None:
    bridge.run(1)
    there.refuse("events", "server", "task", "submit", "cancel", "runs", error=Refused("the token expired"))
    report = bridge.reports.get(timeout=WITHIN)
    assert (report.attempt, report.outcome) == (attempt(1), "returned") and "the token expired" in report.message
    assert bridge.peer.refused == "the token expired", "nothing more is asked for at home"
    bridge.peer.take(lease(2))
    assert bridge.reports.get(timeout=WITHIN).outcome == "returned"
    there.refuse(error=Refused())
    bridge.run(3)
    assert there.states["r1"] == "cancelled", "what runs elsewhere by now"
    there.finish("r2")
    report = bridge.reports.get(timeout=WITHIN)
    assert (report.attempt, report.outcome) == (attempt(3), "succeeded")


@pytest.mark.parametrize("error", [Refused("no"), InternalError("a defect")])
def test_who_is_cancelled_here_has_an_end_also_where_that_is_refused_there(
    there: OtherServer, bridge: Bridge, error: ShoalError
) -> None:
    bridge.run(1)
    there.refuse("cancel", error=error)
    bridge.peer.withdraw(attempt(1), "by anna")
    report = bridge.reports.get(timeout=WITHIN)
    assert (report.attempt, report.cause, report.message) == (attempt(1), "cancelled", "by anna")


def test_a_lease_that_cannot_be_sent_is_given_back_and_those_behind_it_are_sent(
    there: OtherServer, bridge: Bridge
) -> None:
    there.refuse("submit", error=ValueError("what no client expects"))
    bridge.peer.take(lease(1))
    assert bridge.reports.get(timeout=WITHIN).outcome == "returned"
    there.refuse(error=Refused())
    bridge.run(2)


def wait_until(is_so: Callable[[], bool]) -> None:
    done = threading.Event()
    for _ in range(int(WITHIN / 0.01)):
        if is_so():
            return
        done.wait(0.01)
    raise AssertionError("it does not become so")
