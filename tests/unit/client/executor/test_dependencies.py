"""Futures as arguments of calls, against a pool without sockets."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

import shoal
from shoal.client.connection.reconnect import Reconnecting
from shoal.client.executor import executor as module
from shoal.client.executor.dependencies import DependencyFailed, explain, find_futures
from shoal.client.executor.futures import CallFuture
from shoal.client.executor.outcome import ResultRow
from shoal.model.errors import BadInput
from shoal.wire.payload import Bound, bind, load, to_text
from tests.unit.client.fake_pool import Pool

SERVER = "unix:/run/shoal-1"
SOON = 60.0
MANY = 10_000 if os.environ.get("SHOAL_PROVE") else 500


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    made = Pool()
    monkeypatch.setattr(Reconnecting, "connect", lambda self: made.connect(self))
    yield made
    for stream in list(module._streams):
        stream.detach()
        stream.closed.wait(SOON)
        module._streams.discard(stream)


def executor(**options: Any) -> shoal.Executor:
    return shoal.Executor(server=SERVER, **{"attach": False, **options})


def add(*values: int) -> int:
    return sum(values)


def total(values: list[int]) -> int:
    return sum(values)


def big(size: int) -> bytes:
    return b"x" * size


def test_long_chains_and_many_inputs_need_no_thread_for_each(pool: Pool) -> None:
    with executor() as ex:
        chain = ex.submit(add, 0)
        for _ in range(MANY):
            chain = ex.submit(add, chain, 1)
        wide = ex.submit(total, [ex.submit(add, n) for n in range(MANY)])
        assert threading.active_count() < 20
        assert (chain.result(SOON), wide.result(SOON)) == (MANY, MANY * (MANY - 1) // 2)


def test_a_chain_below_a_failure_or_a_cancelled_future_ends_at_once(pool: Pool) -> None:
    bad: Future[int] = Future()
    gone: Future[int] = Future()
    with executor() as ex:
        ends: list[CallFuture[int]] = []
        for first in (bad, gone):
            last = ex.submit(add, first)
            for _ in range(MANY):
                last = ex.submit(add, last)
            ends.append(last)
        bad.set_exception(KeyError("why"))
        gone.cancel()
        with pytest.raises(KeyError, match="why"):
            ends[0].result(SOON)
        with pytest.raises(CancelledError):
            ends[1].result(SOON)
    assert not pool.run.calls


def test_arguments_are_those_of_the_submission_and_of_the_same_bytes_each_time(pool: Pool) -> None:
    texts = []
    for _ in range(2):
        with executor() as ex:
            waits: Future[int] = Future()
            values: list[Any] = [ex.submit(add, 1), 5, waits]
            last = ex.submit(total, values)
            values.append(100)
            waits.set_result(2)
            assert last.result(SOON) == 8
        texts.append(pool.run.calls[2][1])
    assert texts[0] == texts[1]


def test_what_waits_is_cancelled_by_itself_by_shutdown_and_by_detach(pool: Pool) -> None:
    never: Future[int] = Future()
    ex = executor()
    first, second = ex.submit(add, never), ex.submit(add, never)
    mapped = ex.map(add, [never, never])
    assert first.cancel() and first.cancelled() and not second.done()
    ex.shutdown(wait=True, cancel_futures=True)
    assert second.cancelled()
    with pytest.raises(CancelledError):
        next(mapped)
    other = executor()
    third = other.submit(add, never)
    other.detach()
    assert third.cancelled()
    never.set_result(1)  # nobody waits for it any more
    assert not any(run.calls for run in pool.runs.values())


def test_the_rest_of_a_map_that_nobody_reads_is_dropped(pool: Pool) -> None:
    never: Future[int] = Future()
    with executor() as ex:
        mapped = ex.map(add, [1, never])
        assert next(mapped) == 1
        mapped.close()  # type: ignore[attr-defined]  # it is a generator
        assert ex.submit(add, 3).result(SOON) == 3


def test_large_arguments_and_results_travel_as_blobs(pool: Pool) -> None:
    with executor() as ex:
        large = ex.submit(big, 100_000)
        both = ex.submit(lambda one, two: (len(one), len(two)), large, b"y" * 100_000)
        assert both.result(SOON) == (100_000, 100_000)
        assert not [what for what, _ in pool.asked if what == "get_blob"]
        assert len(large.result(SOON)) == 100_000


def test_results_of_other_peoples_pilots_are_not_passed_on_as_they_are() -> None:
    future: CallFuture[int] = CallFuture(None)
    text = to_text(b"\x80\x05K\x07.")
    future.settle("r1", ResultRow(1, "succeeded", text, names=frozenset()))
    assert (future.result(), future.payload) == (7, "")
    own: CallFuture[int] = CallFuture(None)
    own.settle("r1", ResultRow(1, "succeeded", text, names=None))
    assert own.payload == text


def test_a_future_where_none_can_be_is_told_in_a_sentence(pool: Pool) -> None:
    with executor() as ex:
        future = ex.submit(add, 1)
        captured = ex.submit(lambda: future.result())
        with pytest.raises(TypeError, match="a future cannot be pickled: give it to a call as an argument"):
            captured.result(SOON)
        unpicklable = ex.submit(add, future, threading.Lock())
        with pytest.raises(TypeError, match="lock"):
            unpicklable.result(SOON)
    assert find_futures([1, 2]) is None


def test_the_cause_of_a_dependents_failure_names_what_failed() -> None:
    class Odd(Exception):
        def __init__(self, one: str, two: str) -> None:
            super().__init__(one)

    future: Future[int] = Future()
    same = explain(KeyError("x"), future)
    assert isinstance(same.__cause__, DependencyFailed) and str(same.__cause__) == (
        "a future failed, whose result this call needs"
    )
    odd = Odd("one", "two")
    assert explain(odd, future) is odd and "whose result another call needed" in odd.__notes__[0]


def test_outside_a_runner_bound_arguments_stay_what_they_are() -> None:
    import pickle

    again = load(pickle.dumps(Bound("text", ["value"])))
    assert isinstance(again, Bound) and (again.text, again.values) == ("text", ["value"])
    assert isinstance(bind("a", []), Bound)


# --- needs of single calls
def test_options_are_checked_at_once_and_may_give_a_default_back(pool: Pool) -> None:
    with executor(cores=2, memory="1G", env={"A": "1"}) as ex:
        with pytest.raises(TypeError, match=r"Executor has no option 'core' \(did you mean cores"):
            ex.options(core=1)
        with pytest.raises(
            TypeError, match=r"seed is the same for all calls of an executor: give it to shoal.Executor"
        ):
            ex.options(seed=1)
        with pytest.raises(BadInput, match="cores"):
            ex.options(cores=0)
        narrow = ex.options(cores=1).options(time="10m")
        assert narrow.submit(add, 1, 2).result(SOON) == 3 and list(narrow.map(add, [1])) == [1]
        narrow.shutdown()
        assert ex.submit(add, 1).result(SOON) == 1
        assert narrow.command("true").result(SOON).startswith("ran")
    tables = [table for table, _ in pool.run.calls.values()]
    assert [table.get("cores") for table in tables] == [None, None, 2, 1]
    assert [table.get("memory") for table in tables] == ["1G"] * 4
    assert tables[0]["env"]["A"] == "1" and tables[0]["time"] == "10m"
