"""A pilot of a group that lies about results: what it returns never runs in the caller's program [SECURITY.md].

The server is real, the caller is a real executor, and the pilot says what a hostile one would.
"""

from __future__ import annotations

import itertools
import json
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import shoal
from shoal.client.unpickle.rules import UntrustedResult
from shoal.wire.payload import to_text
from tests.integration import functions
from tests.integration.cluster import FAST
from tests.integration.guests import ANNA, MONA, PHYS, Guests, Pilot, serving

pytestmark = pytest.mark.integration
SOON = 60.0
_numbers = itertools.count(1)


class Evil:
    """Touches a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


class Point:
    """A class of the caller's own."""

    def __init__(self, x: int) -> None:
        self.x = x


@pytest.fixture(scope="module")
def guests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guests]:
    timing = json.dumps({**FAST, "lease": 60.0})  # short beats, so that an emulated pilot hears soon that it may go
    with serving(tmp_path_factory.mktemp("guests"), "--listen", "127.0.0.1:0", "--timing", timing) as made:
        made.do("POST", "/v1/groups", {"name": PHYS})
        made.add_person(ANNA, PHYS)
        made.add_person(MONA, PHYS, "manager")
        yield made


@pytest.fixture
def anna(guests: Guests, monkeypatch: pytest.MonkeyPatch) -> Guests:
    """Executors are Anna's."""
    monkeypatch.setenv("SHOAL_SERVER", guests.url)
    monkeypatch.setenv("SHOAL_TOKEN", guests.people[ANNA].token)
    return guests


class Liar:
    """A pilot that returns what it likes, one value for each call."""

    def __init__(self, pilot: Pilot, answers: dict[int, Any]) -> None:
        self._pilot, self._answers, self._stop = pilot, answers, threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def _live(self) -> None:
        reports: list[Any] = []
        while reports or not self._stop.is_set():
            leases = self._pilot.talk(free={"cores": 1}, reports=reports).json["leases"]
            reports = [report for lease in leases for report in self._answer(lease)]
            self._pilot.held.clear()

    def _answer(self, lease: Any) -> Iterator[Any]:
        name, _, number = lease["attempt"].partition("#")
        run, _, first = name.partition(".")
        for element in range(int(first), int(first) + lease.get("count", 1)):
            value = self._answers[element]  # also if it is tried again
            failed = isinstance(value, BaseException)
            data = pickle.dumps((value, "where it failed") if failed else value, 5)
            how = {"outcome": "failed", "cause": "task_error", "message": "so"} if failed else {"outcome": "succeeded"}
            yield {"attempt": f"{run}.{element}#{number}", "result": to_text(data), "duration": 0.1, **how}

    def close(self) -> None:
        """End it; once."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join(SOON)
            self._pilot.leave()


@pytest.fixture
def liar(anna: Guests) -> Iterator[Callable[..., Liar]]:
    """Starts a lying pilot that the group's manager let in, or Anna herself."""
    made: list[Liar] = []

    def start(answers: list[Any], own: bool = False) -> Liar:
        by = anna.people[ANNA if own else MONA].token
        # Failures told by one of them must not count against the next: each has a host and a site of its own.
        word = f"liar{next(_numbers)}"
        token = anna.mint("enrol", by=by, site=word, **({} if own else {"group": PHYS}))
        made.append(Liar(anna.join(token.secret, word), dict(enumerate(answers, 1))))
        return made[-1]

    yield start
    for one in made:
        one.close()


def call(count: int, **options: Any) -> list[Any]:
    """Results or exceptions of so many calls, in order."""
    with shoal.Executor(attach=False, **options) as ex:
        futures = [ex.submit(functions.double, n) for n in range(count)]
        return [future.exception(SOON) or future.result() for future in futures]


def test_a_malicious_pickle_of_a_groups_pilot_is_refused_on_its_future_and_the_others_are_fine(
    liar: Callable[..., Liar], tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    liar([1, Evil(mark), {"a": [2.5]}, numpy.arange(3), Point(7), KeyError("x"), SystemExit(0)])
    first, evil, plain, array, point, error, leaving = call(7)
    assert (first, plain, array.tolist()) == (1, {"a": [2.5]}, [0, 1, 2])
    assert isinstance(evil, UntrustedResult) and f"it needs {os.system.__module__}.system" in evil.message
    assert 'trust = "group"' in evil.hint and "trust=[...]" in evil.hint
    assert isinstance(point, UntrustedResult) and "Point" in point.message
    assert type(error) is KeyError and error.args == ("x",) and "where it failed" in str(error.__cause__)
    assert isinstance(leaving, UntrustedResult), "it cannot end the caller's program"
    assert not mark.exists()


def test_with_trust_in_the_group_values_of_own_classes_load_and_so_does_anything(
    liar: Callable[..., Liar], tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    liar([Point(7), Evil(mark)])
    point, evil = call(2, trust="group")
    assert type(point) is Point and point.x == 7
    assert evil == 0 and mark.exists(), "this is what the word means"


def test_classes_that_the_owner_names_load_and_nothing_else(liar: Callable[..., Liar], tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    liar([Point(7), Evil(mark), [Point(8)]])
    point, evil, points = call(3, trust=[Point])
    assert (type(point), point.x, points[0].x) == (Point, 7, 8)
    assert isinstance(evil, UntrustedResult) and not mark.exists()


def test_results_of_ones_own_pilot_load_as_before(liar: Callable[..., Liar]) -> None:
    liar([Point(7)], own=True)
    (point,) = call(1)
    assert type(point) is Point and point.x == 7


def test_results_read_later_from_the_database_are_told_apart_too(
    liar: Callable[..., Liar], anna: Guests, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    pilot = liar([3, Evil(mark)])
    with shoal.Executor(name="later") as ex:
        futures = [ex.submit(functions.double, n) for n in range(2)]
        assert [type(future.exception(SOON)) for future in futures] == [type(None), UntrustedResult]
        run = ex.run
    pilot.close()
    anna.stop()  # what was in memory is gone
    anna.start()
    attached = shoal.attach(run, server=anna.url)
    assert attached.futures[0].result(SOON) == 3
    assert isinstance(attached.futures[1].exception(SOON), UntrustedResult)
    assert not mark.exists()
