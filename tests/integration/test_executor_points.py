"""What the Python documentation says of `concurrent.futures`, point by point, of `shoal.Executor` on real pilots.

Executor: (1) submit schedules fn(*args, **kwargs) and returns a Future; (2) map collects iterables at once and calls
may run concurrently; (3) map's iterator raises TimeoutError; (4) an exception of a call is raised when its value is
retrieved; (5) chunksize chops iterables; (6) after shutdown submit and map raise RuntimeError; (7) wait=True returns
when pending futures are done; (8) wait=False returns at once, the program ends when they are done; (9) cancel_futures
cancels what has not started, not what is completed or running; (10) `with` shuts down as with wait=True.
ProcessPoolExecutor: (11) max_workers <= 0 is a ValueError; (12) initializer is called at the start of each worker; a
failing one raises BrokenExecutor for pending and further submits; (13) only picklable objects - here also lambdas and
`__main__`; (14) a worker that dies is an error, not a hang (there BrokenProcessPool; here only that call fails);
(15) exceptions carry the remote traceback as their cause.
Future: (16) cancel; (17) cancelled; (18) running; (19) done; (20) result with TimeoutError, CancelledError and the
call's own exception; (21) exception; (22) add_done_callback: called with the future as the only argument, at once if it
is done, in order, also when cancelled; exceptions are logged and ignored; (23) InvalidStateError on a second result.
Module functions: (24) wait with each return_when and timeout; duplicates are removed; (25) as_completed yields as they
finish, duplicates once, first what finished before, TimeoutError; (26) futures of several executors may be mixed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    InvalidStateError,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from pathlib import Path
from typing import Any

import pytest

import shoal
from tests.integration import functions
from tests.integration.cluster import Cluster

pytestmark = pytest.mark.integration
SOON = 60.0
SLOTS = 2


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory, pilot_zip: Path) -> Iterator[Cluster]:
    """A server and one pilot for the whole module; executors find it by the environment."""
    made = Cluster(tmp_path_factory.mktemp("points") / "cluster", pilot_zip)
    with pytest.MonkeyPatch.context() as patch:
        try:
            made.start_server()
            made.start_pilot(SLOTS)
            patch.setenv("SHOAL_SERVER", made.address()["url"])
            patch.setenv("SHOAL_TOKEN", made.address()["token"])
            yield made
        finally:
            made.close()


@pytest.fixture
def ex(pool: Cluster) -> Iterator[shoal.Executor]:
    with shoal.Executor(attach=False) as made:
        yield made


@pytest.fixture
def gate(pool: Cluster, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file that calls wait for; it is there from the end of the test on, so that nothing waits for ever. Not in
    `tmp_path`, which is removed before the executor is shut down: calls that had not yet seen the file missed it."""
    folder = pool.cwd / request.node.name
    folder.mkdir()
    yield folder / "gate"
    (folder / "gate").touch()


def busy(ex: shoal.Executor, gate: Path, count: int = SLOTS) -> list[Future[Any]]:
    """Calls that hold all slots until the gate opens; they have begun."""
    told = [gate.with_name(f"began{n}") for n in range(count)]
    futures: list[Future[Any]] = [ex.submit(functions.wait_for, str(gate), n, str(path)) for n, path in enumerate(told)]
    end = time.monotonic() + SOON
    while not all(path.exists() for path in told):
        assert time.monotonic() < end
        time.sleep(0.01)
    return futures


def until(condition: Any) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# --- Executor
def test_01_submit_schedules_a_call_and_returns_a_future(ex: shoal.Executor) -> None:
    assert isinstance(ex, Executor)
    future = ex.submit(pow, 323, 1235)
    assert isinstance(future, Future)
    assert future.result(SOON) == 323**1235
    assert ex.submit(dict, [("a", 1)], b=2).result(SOON) == {"a": 1, "b": 2}
    assert ex.submit(dict, fn=1, self=2).result(SOON) == {"fn": 1, "self": 2}


def test_02_map_takes_its_iterables_at_once_and_keeps_their_order(ex: shoal.Executor) -> None:
    numbers = iter(range(50))
    results = ex.map(pow, numbers, range(1, 1000))
    assert list(numbers) == []
    assert list(results) == [n ** (n + 1) for n in range(50)]
    assert list(ex.map(abs, [])) == []


def test_03_map_raises_timeout_error(ex: shoal.Executor, gate: Path) -> None:
    results = ex.map(functions.wait_for, [str(gate), str(gate)], [1, 2], timeout=0.05)
    with pytest.raises(TimeoutError):
        next(results)
    gate.touch()
    assert list(ex.map(abs, [-1], timeout=SOON)) == [1]


def test_04_an_exception_is_raised_when_its_value_is_retrieved(ex: shoal.Executor) -> None:
    results = ex.map(lambda x: 1 // x, [1, 0, 1])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_05_chunksize_makes_one_task_of_several_calls(ex: shoal.Executor, pool: Cluster) -> None:
    assert list(ex.map(pow, range(10), [2] * 10, chunksize=4)) == [n * n for n in range(10)]
    assert pool.run_row(int(ex.run[1:]))["total"] == 3
    with pytest.raises(ZeroDivisionError):
        list(ex.map(divmod, [1, 1, 1], [1, 0, 1], chunksize=2))
    with pytest.raises(ValueError, match="chunksize"):
        ex.map(abs, [1], chunksize=0)


def test_06_after_shutdown_nothing_is_scheduled(pool: Cluster) -> None:
    ex = shoal.Executor(attach=False)
    ex.submit(abs, 1)
    ex.shutdown()
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        ex.submit(abs, 1)
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        ex.map(abs, [1])
    ex.shutdown()


def test_07_shutdown_waits_for_pending_futures(pool: Cluster) -> None:
    ex = shoal.Executor(attach=False)
    futures = [ex.submit(functions.pid, 0.1) for _ in range(6)]
    ex.shutdown(wait=True)
    assert all(future.done() for future in futures)
    until(lambda: pool.run_row(int(ex.run[1:]))["finished"] is not None)


def test_08_shutdown_may_return_at_once(pool: Cluster, gate: Path) -> None:
    ex = shoal.Executor(attach=False)
    future = ex.submit(functions.wait_for, str(gate), 7)
    ex.shutdown(wait=False)
    assert not future.done()
    gate.touch()
    assert future.result(SOON) == 7


def test_09_shutdown_may_cancel_what_has_not_started(pool: Cluster, gate: Path) -> None:
    ex = shoal.Executor(attach=False)
    done = ex.submit(abs, -1)
    done.result(SOON)
    running = busy(ex, gate)
    until(lambda: all(future.running() for future in running))
    waiting = [ex.submit(functions.double, n) for n in range(100)]
    ex.shutdown(wait=False, cancel_futures=True)
    until(lambda: all(future.cancelled() for future in waiting))
    gate.touch()
    assert [future.result(SOON) for future in running] == [0, 1] and done.result() == 1


def test_10_a_with_block_waits(pool: Cluster) -> None:
    with shoal.Executor(attach=False) as ex:
        future = ex.submit(functions.pid, 0.2)
    assert future.done()
    with pytest.raises(LookupError), shoal.Executor(attach=False) as ex:
        future = ex.submit(functions.pid, 0.2)
        raise LookupError
    assert future.done()


# --- ProcessPoolExecutor
def test_11_max_workers_must_be_positive() -> None:
    for number in (0, -1):
        with pytest.raises(ValueError, match="max_workers must be greater than 0"):
            shoal.Executor(max_workers=number)


def test_12_an_initializer_is_called_first_and_a_failing_one_breaks_the_pool(pool: Cluster) -> None:
    with shoal.Executor(initializer=functions.begin, initargs=("hello",), attach=False) as ex:
        assert set(ex.map(lambda _: functions.word(), range(10))) == {"hello"}
    with shoal.Executor(initializer=functions.no_licence, attach=False) as ex:
        futures = [ex.submit(functions.double, n) for n in range(5)]
        for future in futures:
            assert "no licence" in str(future.exception(SOON))
        assert any(isinstance(future.exception(), BrokenExecutor) for future in futures)
        with pytest.raises(BrokenExecutor):
            until(lambda: ex.submit(abs, 1) is None)


def test_13_what_cannot_be_pickled_is_told_by_the_future(ex: shoal.Executor) -> None:
    assert isinstance(ex.submit(abs, threading.Lock()).exception(SOON), TypeError)
    assert isinstance(ex.submit(functions.lock).exception(SOON), Exception)  # a result, on the other side
    base = 40
    assert ex.submit(lambda x: base + x, 2).result(SOON) == 42


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_14_a_call_that_ends_its_process_fails_alone(ex: shoal.Executor, how: str) -> None:
    bad = ex.submit(functions.die, how)
    assert isinstance(bad.exception(SOON), shoal.TaskFailed)
    assert list(ex.map(functions.double, range(20))) == [2 * n for n in range(20)]


def test_15_an_exception_carries_its_remote_traceback(ex: shoal.Executor) -> None:
    error = ex.submit(functions.fail, "x").exception(SOON)
    assert isinstance(error, KeyError) and "in fail" in str(error.__cause__) and "functions.py" in str(error.__cause__)
    assert ex.submit(functions.odd).exception(SOON) is not None
    assert isinstance(ex.submit(functions.exits).exception(SOON), SystemExit)
    assert ex.submit(abs, -1).result(SOON) == 1


# --- Future
def test_16_to_19_cancel_cancelled_running_done(ex: shoal.Executor, gate: Path) -> None:
    running = busy(ex, gate)
    until(lambda: all(future.running() for future in running))
    waiting = ex.submit(functions.double, 1)
    assert not running[0].cancel() and not running[0].cancelled() and not running[0].done()
    assert not waiting.running() and waiting.cancel() and waiting.cancelled() and waiting.done()
    gate.touch()
    assert running[0].result(SOON) == 0
    assert running[0].done() and not running[0].running() and not running[0].cancel()


def test_20_and_21_result_and_exception(ex: shoal.Executor, gate: Path) -> None:
    future = ex.submit(functions.wait_for, str(gate), 5)
    for ask in (future.result, future.exception):
        with pytest.raises(TimeoutError):
            ask(0.01)
    gate.touch()
    assert future.result(SOON) == 5 and future.exception() is None
    failed = ex.submit(functions.fail, 1)
    with pytest.raises(KeyError):
        failed.result(SOON)
    assert isinstance(failed.exception(), KeyError)


def test_20_a_cancelled_future_raises_cancelled_error(ex: shoal.Executor, gate: Path) -> None:
    busy(ex, gate)
    future = ex.submit(abs, 1)
    assert future.cancel()
    for ask in (future.result, future.exception):
        with pytest.raises(CancelledError):
            ask()
    gate.touch()


def test_22_callbacks(ex: shoal.Executor, gate: Path, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []
    future = ex.submit(functions.wait_for, str(gate), 5)

    def wrong(_: Future[Any]) -> None:
        told.append("wrong")
        raise ValueError("from a callback")

    future.add_done_callback(lambda f: told.append(f))
    future.add_done_callback(wrong)
    future.add_done_callback(lambda f: told.append("last"))
    assert told == []
    gate.touch()
    with caplog.at_level(logging.ERROR):
        future.result(SOON)
        until(lambda: len(told) == 3)
    assert told == [future, "wrong", "last"] and "from a callback" in caplog.text
    future.add_done_callback(lambda f: told.append("at once"))
    assert told[-1] == "at once"


def test_22_callbacks_of_a_cancelled_future(ex: shoal.Executor, gate: Path) -> None:
    busy(ex, gate)
    told: list[Any] = []
    future = ex.submit(abs, 1)
    future.add_done_callback(told.append)
    assert future.cancel() and told == [future]
    gate.touch()


def test_23_a_result_is_set_once(ex: shoal.Executor) -> None:
    future = ex.submit(abs, -1)
    future.result(SOON)
    with pytest.raises(InvalidStateError):
        future.set_result(2)


# --- module functions
def test_24_wait(ex: shoal.Executor, gate: Path) -> None:
    slow, quick = ex.submit(functions.wait_for, str(gate), 1), ex.submit(abs, -1)
    found = wait([slow, quick, quick], SOON, return_when=FIRST_COMPLETED)
    assert (found.done, found.not_done) == ({quick}, {slow})
    assert wait([slow], timeout=0.01).not_done == {slow}
    failed = ex.submit(functions.fail, 1)
    found = wait([slow, failed], SOON, return_when=FIRST_EXCEPTION)
    assert failed in found.done and slow in found.not_done
    gate.touch()
    assert wait([slow, quick, failed], SOON, return_when=ALL_COMPLETED).not_done == set()


def test_25_as_completed(ex: shoal.Executor, gate: Path) -> None:
    slow, quick = ex.submit(functions.wait_for, str(gate), 1), ex.submit(abs, -1)
    quick.result(SOON)
    order = as_completed([slow, quick, quick])
    assert next(order) is quick
    gate.touch()
    assert list(order) == [slow]
    gate.unlink()
    with pytest.raises(TimeoutError):
        list(as_completed([ex.submit(functions.wait_for, str(gate), 1)], 0.01))


def test_26_futures_of_several_executors_may_be_mixed(ex: shoal.Executor) -> None:
    with ThreadPoolExecutor(1) as threads, shoal.Executor(attach=False) as other:
        futures = [ex.submit(abs, -1), other.submit(abs, -2), threads.submit(abs, -3)]
        assert {future.result() for future in as_completed(futures, SOON)} == {1, 2, 3}
