"""What a task tells its pilot when it waits for other tasks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed, wait
from pathlib import Path

import pytest

from shoal.client import waiting as module
from shoal.client.executor.futures import CallFuture
from shoal.client.waiting import IdleWatch, is_inside, wait_until, waiting

SOON = 30.0


class Pipe:
    """The pipe of a task, as its pilot reads it."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def lines(self) -> list[str]:
        try:
            return os.read(self.fd, 65_536).decode().splitlines()
        except BlockingIOError:
            return []


@pytest.fixture
def pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    made = Pipe(tmp_path / "tags")
    monkeypatch.setenv("SHOAL_TAGS", str(tmp_path / "tags"))
    monkeypatch.setenv("SHOAL_ATTEMPT", "r1.2#1")
    yield made
    os.close(made.fd)


def test_outside_of_tasks_nothing_is_told() -> None:
    assert not is_inside()
    with waiting():
        assert wait_until(lambda most: most is None) and not module._counts


def test_waits_of_threads_and_nested_waits_are_counted(pipe: Pipe) -> None:
    with waiting(), waiting():
        thread = threading.Thread(target=lambda: wait_until(lambda most: most is None))
        thread.start()
        thread.join(SOON)
        assert pipe.lines() == ["!waits r1.2#1"]
    assert pipe.lines() == ["!goes-on r1.2#1"]


def test_a_wait_is_ended_for_the_attempt_that_began_it(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    with waiting():
        monkeypatch.setenv("SHOAL_ATTEMPT", "r1.3#1")  # the runner is at another call by now
        with waiting():
            assert pipe.lines() == ["!waits r1.2#1", "!waits r1.3#1"]
        assert pipe.lines() == ["!goes-on r1.3#1"]
    assert pipe.lines() == ["!goes-on r1.2#1"]


def test_short_waits_are_not_told_and_time_limits_hold(pipe: Pipe) -> None:
    done: CallFuture[int] = CallFuture(None)
    done.set_result(1)
    assert done.result() == 1 and pipe.lines() == []
    with pytest.raises(TimeoutError):
        CallFuture(None).result(0.02)
    assert pipe.lines() == ["!waits r1.2#1", "!goes-on r1.2#1"]
    with pytest.raises(TimeoutError):
        CallFuture(None).exception(0)
    assert pipe.lines() == []


@pytest.mark.parametrize("how", ["result", "exception", "wait", "as_completed"])
def test_every_way_to_wait_for_a_future_is_told(pipe: Pipe, how: str) -> None:
    future: CallFuture[int] = CallFuture(None)
    ways: dict[str, Callable[[], object]] = {
        "result": future.result,
        "exception": future.exception,
        "wait": lambda: wait([future, CallFuture(None)], return_when="FIRST_COMPLETED"),
        "as_completed": lambda: next(as_completed([future])),
    }
    thread = threading.Thread(target=ways[how])
    thread.start()
    told: list[str] = []
    for _ in range(3_000):
        told += pipe.lines()
        if told:
            break
        threading.Event().wait(0.01)
    assert told == ["!waits r1.2#1"]
    future.set_result(1)
    thread.join(SOON)
    assert pipe.lines() == ["!goes-on r1.2#1"]


def test_a_forked_child_begins_to_count_anew(pipe: Pipe) -> None:
    with waiting():
        child = os.fork()
        if not child:
            os._exit(0 if not module._counts and module._lock.acquire(blocking=False) else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert pipe.lines() == ["!waits r1.2#1", "!goes-on r1.2#1"]


def test_a_pilot_that_is_gone_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_TAGS", str(tmp_path / "nothing"))
    monkeypatch.setenv("SHOAL_ATTEMPT", "r1.2#1")
    with waiting():
        pass


def test_a_task_that_computes_nothing_beside_its_calls_lends(pipe: Pipe) -> None:
    """However it waits: here it only looks idle, then computes, then its calls are done."""
    state = {"unfinished": True, "clock": 0.0, "used": 0.0}
    steps: list[float] = [0.0, 0.0, 0.5, 0.0]  # CPU seconds used in each second
    done = threading.Event()

    def clock() -> float:
        if steps:
            state["clock"] += 1.0
            state["used"] += steps.pop(0)
        else:
            state["unfinished"] = False
            done.set()
        return state["clock"]

    watch = IdleWatch(lambda: bool(state["unfinished"]), clock, lambda: state["used"])
    for _ in range(200):
        watch.wake()
        if done.wait(0.02):
            break
    told: list[str] = []
    for _ in range(3_000):
        told += pipe.lines()
        if len(told) >= 4:
            break
        threading.Event().wait(0.01)
    assert told == ["!waits r1.2#1", "!goes-on r1.2#1"] * 2
