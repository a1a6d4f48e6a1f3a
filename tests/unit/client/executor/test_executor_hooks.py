"""Runs that make their own tasks [DIANE U1]."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import shoal
from shoal.client.connection.reconnect import Reconnecting
from shoal.client.executor import executor as module
from tests.unit.client.fake_pool import Pool

OPTIONS: dict[str, Any] = {"server": "unix:/run/shoal-1", "attach": False}
SOON = 20.0


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    made = Pool()
    monkeypatch.setattr(Reconnecting, "connect", lambda self: made.connect(self))
    monkeypatch.setattr(module, "AGAIN_WITHIN", 0.0)
    yield made
    for stream in list(module._streams):
        stream.detach()
        stream.closed.wait(SOON)
        module._streams.discard(stream)


class Growing(shoal.Run):
    """Each number makes the two below it, until 20 were seen."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def start(self) -> None:
        self.submit(abs, -5).tag = "first"

    def done(self, task: shoal.Task) -> None:
        self.seen.append(task.value)
        self.submit(abs, task.value - 1)
        self.submit(abs, task.value - 2)

    def is_over(self) -> bool:
        return len(self.seen) >= 20

    def result(self) -> int:
        return len(self.seen)


def test_tasks_make_tasks_until_it_is_over(pool: Pool) -> None:
    run = Growing()
    assert run.execute(**OPTIONS) == 20
    assert not pool.run.open and len(pool.run.calls) == len(pool.run.final)


def test_it_ends_when_nothing_is_left(pool: Pool) -> None:
    class Once(shoal.Run):
        total = 0

        def start(self) -> None:
            for n in range(10):
                self.submit(abs, -n)
            self.command(["./sim", "1"], cores=2).tag = "command"

        def done(self, task: Any) -> None:
            assert task.id.startswith("r1.") and task.error is None and task.tries == 1
            if task.tag == "command":
                assert task.value == "ran ['./sim', '1']"
            else:
                self.total += task.value

        def result(self) -> int:
            return self.total

    run = Once()
    assert run.execute(**OPTIONS) == 45
    assert run.unfinished == 0 and run.id == ""
    with pytest.raises(RuntimeError):
        run.submit(abs, 1)


def test_nothing_to_do_is_over_at_once(pool: Pool) -> None:
    assert shoal.Run().execute(**OPTIONS) is None
    assert not pool.asked


class Failing(shoal.Run):
    def __init__(self, policy: str) -> None:
        self.policy, self.tries, self.good = policy, 0, 0

    def start(self) -> None:
        self.submit(lambda: 1 // 0)
        self.submit(abs, -1)

    def done(self, task: Any) -> None:
        self.good += 1

    def failed(self, task: Any) -> str:
        assert isinstance(task.error, ZeroDivisionError)
        self.tries = task.tries
        return self.policy if self.tries < 3 else "ignore"

    def result(self) -> tuple[int, int]:
        return self.good, self.tries


@pytest.mark.parametrize(("policy", "result"), [("ignore", (1, 1)), ("retry", (1, 3))])
def test_a_failure_is_ignored_or_tried_again(pool: Pool, policy: str, result: tuple[int, int]) -> None:
    assert Failing(policy).execute(**OPTIONS) == result


def test_a_failure_ends_the_run_unless_something_else_is_said(pool: Pool) -> None:
    with pytest.raises(ZeroDivisionError):
        Failing("raise").execute(**OPTIONS)
    assert len(pool.run.final) == len(pool.run.calls) and not pool.run.open


def test_an_error_in_a_hook_ends_the_run(pool: Pool) -> None:
    class Wrong(shoal.Run):
        def start(self) -> None:
            self.submit(abs, 1)

        def done(self, task: Any) -> None:
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        Wrong().execute(**OPTIONS)
    assert not pool.run.open


def test_a_task_can_be_taken_back(pool: Pool) -> None:
    pool.auto = False

    class Choosy(shoal.Run):
        def __init__(self) -> None:
            self.values: list[int] = []

        def start(self) -> None:
            self.one, self.two = self.submit(abs, -1), self.submit(abs, -2)
            pool.await_calls(2)
            assert self.two.cancel()
            pool.work(1)

        def done(self, task: Any) -> None:
            self.values.append(task.value)

        def result(self) -> list[int]:
            return self.values

    assert Choosy().execute(**OPTIONS) == [1]


def test_the_answer_so_far_is_there_while_it_goes_on(pool: Pool) -> None:
    pool.auto = False
    heard = threading.Semaphore(0)

    class Sum(shoal.Run):
        total = 0

        def start(self) -> None:
            for n in range(1, 4):
                self.submit(abs, -n)

        def done(self, task: Any) -> None:
            self.total += task.value
            heard.release()

        def result(self) -> int:
            return self.total

    run = Sum()
    future = run.launch(**OPTIONS)
    pool.await_calls(3)
    assert run.id == "r1"
    with pytest.raises(RuntimeError, match="runs already"):
        run.execute(**OPTIONS)
    pool.work(2)
    assert heard.acquire(timeout=SOON) and run.result() == 2 and not future.done()
    pool.work()
    assert future.result(SOON) == 6


def test_an_error_of_a_launched_run_is_told_by_its_future(pool: Pool) -> None:
    assert isinstance(Failing("raise").launch(**OPTIONS).exception(SOON), ZeroDivisionError)
