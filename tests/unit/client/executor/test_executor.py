"""The executor against a pool without sockets: what reaches the server, and what callers get back."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Future, as_completed, wait
from typing import Any

import numpy
import pytest

import shoal
from shoal.client.connection.reconnect import Reconnecting
from shoal.client.executor import executor as module
from shoal.client.executor import result_poll
from shoal.client.executor.outcome import RemoteTraceback, TaskFailed
from shoal.model.errors import BadInput, Refused, TooBusy, Unreachable
from tests.unit.client.fake_pool import Pool, lose

SERVER = "unix:/run/shoal-1"
SOON = 20.0


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


def double(x: int) -> int:
    return 2 * x


def fail(x: int) -> int:
    raise KeyError(x)


def until(condition: Any) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


# --- what is sent
def test_a_call_is_a_task_of_an_open_run(pool: Pool) -> None:
    with executor(name="fit", seed=7, cores=2, memory="1G", env={"A": "b"}, labels={"paper": "2"}) as ex:
        future = ex.submit(double, 21)
        assert future.result(SOON) == 42
        assert ex.run == "r1" and future.task == "r1.1"
    document = pool.run.document
    assert (document["name"], document["open"], document["tasks"], document["seed"]) == ("fit", True, [], 7)
    assert document["labels"]["paper"] == "2" and document["cwd"] == os.getcwd()
    table = pool.run.calls[1][0]
    assert (table["cores"], table["memory"], table["python"]) == (2, "1G", sys.executable)
    assert table["labels"] == {"function": "double"}
    env = table["env"]
    assert env["A"] == "b" and env["SHOAL_RESEED"] == "1"
    assert env["SHOAL_PYTHON_VERSION"] == "{}.{}".format(*sys.version_info[:2])
    assert "" not in env["SHOAL_PYTHONPATH"].split(os.pathsep)
    assert not pool.run.open


def test_nothing_is_made_before_the_first_call(pool: Pool) -> None:
    with executor():
        pass
    assert not pool.asked


def test_a_map_goes_out_in_growing_pieces_and_stays_in_order(pool: Pool) -> None:
    with executor() as ex:
        assert list(ex.map(double, range(9_000))) == [2 * n for n in range(9_000)]
    assert sum(pool.additions()) == 9_000
    assert pool.run.arrays[0]["count"] == 500
    assert len({array["task"]["function"] for array in pool.run.arrays}) == 1


def test_calls_that_come_while_one_is_on_its_way_go_out_together(pool: Pool) -> None:
    gate, inside = threading.Event(), threading.Event()

    def hold(what: str) -> None:
        if what == "add" and not gate.is_set():
            inside.set()
            gate.wait(SOON)

    pool.before = hold
    with executor() as ex:
        first = threading.Thread(target=ex.submit, args=(double, 0))
        first.start()
        assert inside.wait(SOON)
        futures = [ex.submit(double, n) for n in range(100)]
        gate.set()
        assert [f.result(SOON) for f in futures] == [2 * n for n in range(100)]
        first.join()
    assert pool.additions() == [1, 100]
    assert len(pool.run.arrays) == 2


def test_numbers_follow_the_order_of_submission_whatever_goes_together(pool: Pool) -> None:
    pool.auto = False
    with executor() as ex:
        ex.submit(double, 1)
        futures = [ex.submit(double if n % 2 else str, n) for n in range(10)]
        pool.await_calls(11)
        assert [future.task for future in futures] == [f"r1.{n}" for n in range(2, 12)]
        pool.work()


def test_pieces_are_bounded_in_bytes(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PIECE_BYTES", 100_000)
    monkeypatch.setattr("shoal.client.executor.stream.MAX_SENT", 150_000)
    with executor() as ex:
        assert [len(text) for text in ex.map(str, ["x" * 30_000] * 20)] == [30_000] * 20
    assert len(pool.additions()) > 5


# --- values and errors
def test_an_exception_comes_with_its_remote_traceback(pool: Pool) -> None:
    with executor() as ex:
        error = ex.submit(fail, 3).exception(SOON)
    assert isinstance(error, KeyError) and error.args == (3,)
    assert isinstance(error.__cause__, RemoteTraceback) and "in fail" in str(error.__cause__)


def test_a_map_raises_where_the_call_failed(pool: Pool) -> None:
    with executor() as ex:
        results = ex.map(lambda x: 1 // (3 - x), range(6))
        assert [next(results) for _ in range(3)] == [0, 0, 1]
        with pytest.raises(ZeroDivisionError):
            next(results)
        assert list(results) == []


def test_what_cannot_be_pickled_is_told_by_the_future(pool: Pool) -> None:
    with executor() as ex:
        assert isinstance(ex.submit(double, threading.Lock()).exception(SOON), TypeError)
        results = ex.map(str, [1, threading.Lock(), 3])
        assert next(results) == "1"
        with pytest.raises(TypeError):
            next(results)
        lock = threading.Lock()
        assert isinstance(ex.submit(lambda: lock).exception(SOON), TypeError)
        with pytest.raises(TypeError):
            list(ex.map(lambda x: lock, [1, 2]))
        assert ex.submit(double, 1).result(SOON) == 2  # and the pool is well


class Unloadable:
    """Pickles, but raises when it is loaded."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_a_result_that_cannot_be_read_fails_alone(pool: Pool) -> None:
    with executor() as ex:
        error = ex.submit(Unloadable).exception(SOON)
        assert isinstance(error, ValueError) and "r1.1" in error.__notes__[0]
        assert ex.submit(double, 1).result(SOON) == 2


@pytest.mark.parametrize("cause", ["signal", "over_time", "out_of_memory", "pilot_lost", "poison", "host_unfit"])
def test_a_call_that_was_killed_says_why_and_the_pool_is_well(pool: Pool, cause: str) -> None:
    pool.auto = False
    with executor() as ex:
        future = ex.submit(double, 1)
        pool.finish(1, [1, "failed", "", cause, "what happened", 1, "", 0, 0])
        error = future.exception(SOON)
        assert isinstance(error, TaskFailed) and error.cause == cause and error.task == "r1.1"
        assert "what happened" in str(error) and "shoal logs r1.1" in str(error)
        pool.auto = True
        assert ex.submit(double, 1).result(SOON) == 2


def test_large_arguments_and_results_travel_as_blobs(pool: Pool) -> None:
    array = numpy.arange(50_000.0)
    with executor() as ex:
        got = ex.submit(lambda x: x + 1, array).result(SOON)
        assert (got == array + 1).all()
        assert [len(x) for x in ex.map(lambda n: bytes(n), [70_000, 5, 80_000])] == [70_000, 5, 80_000]
    assert len(pool.blobs) >= 4


def test_an_object_is_put_once_and_used_in_many_calls(pool: Pool) -> None:
    with executor() as ex:
        ex.submit(abs, -1).result(SOON)  # with it the modules of this process were put
        before = len([what for what, _ in pool.asked if what == "put"])
        ref = ex.put(numpy.arange(100_000))
        assert list(ex.map(lambda a, n: int(a[n]), [ref] * 50, range(50))) == list(range(50))
        assert ex.submit(lambda d: d["key"].sum(), {"key": ref}).result(SOON) == sum(range(100_000))
    assert len([what for what, _ in pool.asked if what == "put"]) == before + 1


def test_many_threads_may_submit(pool: Pool) -> None:
    with executor() as ex:
        got: list[list[int]] = [[] for _ in range(8)]

        def work(n: int) -> None:
            futures = [ex.submit(double, 1000 * n + k) for k in range(100)]
            got[n] = [future.result(SOON) for future in futures]

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert got == [[2 * (1000 * n + k) for k in range(100)] for n in range(8)]
    assert len(pool.run.calls) == 800


def test_chunks_run_many_calls_as_one_task(pool: Pool) -> None:
    with executor() as ex:
        assert list(ex.map(pow, range(10), [2] * 10, chunksize=4)) == [n * n for n in range(10)]
        with pytest.raises(ValueError, match="chunksize"):
            ex.map(pow, [1], [1], chunksize=0)
    assert len(pool.run.calls) == 3


def test_a_command_ends_with_its_last_line(pool: Pool) -> None:
    with executor(cores=2) as ex:
        assert ex.command(["echo", "hi"], memory="1G").result(SOON) == "ran ['echo', 'hi']"
        assert ex.command("echo $HOME").result(SOON) == "ran echo $HOME"
        with pytest.raises(BadInput, match="memry"):
            ex.command(["x"], memry="1G")
    table = dict(pool.run.calls[1][0])
    assert list(table.pop("visible")) == [os.getcwd()]  # it prefers this directory
    assert table == {"cores": 2, "command": ["echo", "hi"], "memory": "1G"}


# --- prints
def test_what_a_function_prints_is_shown(pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    pool.auto = False
    pool.logs = {("r1.2", "stdout"): b"two\nlines\n", ("r1.2", "stderr"): b"woe\n"}
    none = pool.text_of(None)
    with executor() as ex:
        futures = [ex.submit(double, n) for n in range(4)]
        pool.await_calls(4)
        pool.finish(1, [1, "succeeded", none, "", "", 1, "hällo", len("hällo".encode()) + 1, 0])
        pool.finish(2, [2, "succeeded", none, "", "", 1, "lines", 10, 4])
        pool.finish(3, [3, "succeeded", none, "", "", 1, "", 0, 0])
        pool.finish(4, [4, "succeeded", none, "", "", 1, "no end", 6, 0])
        wait(futures, SOON)
    told = capsys.readouterr()
    assert "hällo\n" in told.out and "no end" in told.out and "two\nlines\n" in told.out
    assert len(told.out) == len("hällo\nno endtwo\nlines\n") and told.err == "woe\n"


def test_prints_can_be_turned_off(pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    pool.auto = False
    with executor(echo=False) as ex:
        future = ex.submit(double, 1)
        pool.finish(1, [1, "succeeded", pool.text_of(None), "", "", 1, "hi", 3, 0])
        future.result(SOON)
    assert capsys.readouterr().out == ""


# --- futures
def test_futures_work_with_wait_and_as_completed(pool: Pool) -> None:
    pool.auto = False
    with executor() as ex:
        futures = [ex.submit(double, n) for n in range(3)]
        pool.await_calls(3)
        assert wait(futures, timeout=0).done == set()
        with pytest.raises(TimeoutError):
            futures[0].result(0.01)
        pool.work(3, 1)
        done = as_completed(futures, SOON)
        assert {next(done), next(done)} == {futures[2], futures[0]}
        pool.work(2)
        assert next(done) is futures[1]


def test_callbacks_may_submit_and_their_errors_are_logged(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    second: list[Future[int]] = []
    more = threading.Event()
    with executor() as ex:

        def again(future: Future[int]) -> None:
            second.append(ex.submit(double, future.result()))
            more.set()
            raise ValueError("from the callback")

        ex.submit(double, 1).add_done_callback(again)
        assert more.wait(SOON) and second[0].result(SOON) == 4
    assert "exception calling callback" in caplog.text


def test_a_waiting_call_can_be_cancelled_a_running_one_not(pool: Pool) -> None:
    pool.auto = False
    with executor() as ex:
        futures = [ex.submit(double, n) for n in range(3)]
        pool.await_calls(3)
        pool.run.running.add(2)
        assert futures[1].running() and not futures[0].running()
        assert not futures[1].cancel() and futures[0].cancel() and futures[0].cancel()
        assert futures[0].cancelled() and not futures[1].cancelled()
        assert futures[0] in wait(futures, 0).done
        with pytest.raises(CancelledError):
            futures[0].result()
        pool.work(2, 3)
        assert futures[1].result(SOON) == 2 and not futures[1].cancel() and not futures[1].running()


def test_a_call_that_was_not_sent_yet_is_cancelled_here(pool: Pool) -> None:
    gate, inside = threading.Event(), threading.Event()

    def hold(what: str) -> None:
        if what == "add" and not gate.is_set():
            inside.set()
            gate.wait(SOON)

    pool.before = hold
    with executor() as ex:
        first = threading.Thread(target=ex.submit, args=(double, 0))
        first.start()
        assert inside.wait(SOON)
        futures = [ex.submit(double, n) for n in range(3)]
        assert futures[1].cancel() and futures[1].cancelled() and not futures[1].running()
        gate.set()
        first.join()
        assert futures[0].result(SOON) == 0 and futures[2].result(SOON) == 4
    assert len(pool.run.calls) == 3


def test_what_is_cancelled_on_the_server_is_cancelled_here(pool: Pool) -> None:
    pool.auto = False
    with executor() as ex:
        future = ex.submit(double, 1)
        results = ex.map(double, [1])
        pool.await_calls(2)
        pool.connect(Reconnecting(SERVER)).cancel(["r1"])
        with pytest.raises(CancelledError):
            future.result(SOON)
        with pytest.raises(CancelledError):
            next(results)


def test_the_rest_of_a_map_nobody_wants_is_cancelled(pool: Pool) -> None:
    pool.auto = False
    with executor() as ex:
        results = ex.map(double, range(2_000))
        pool.await_calls(2_000)
        pool.run.running.add(7)
        pool.work(1)
        assert next(results) == 0
        results.close()  # type: ignore[attr-defined]  # a generator, as in the standard library
        until(lambda: len(pool.run.final) == 1_999)
        pool.work(7)


def test_a_map_may_time_out(pool: Pool) -> None:
    pool.auto = False
    with executor() as ex:
        results = ex.map(double, [1, 2], timeout=0.01)
        pool.await_calls(2)  # on a busy machine the time might be over before they are sent
        with pytest.raises(TimeoutError):
            next(results)
        until(lambda: len(pool.run.final) == 2)


# --- the end
def test_shutdown_waits_and_refuses_more(pool: Pool) -> None:
    ex = executor()
    future = ex.submit(double, 1)
    ex.shutdown()
    assert future.done() and not pool.run.open
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        ex.submit(double, 1)
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        ex.map(double, [1])
    ex.shutdown()
    assert not [
        t for t in threading.enumerate() if t.name.startswith("shoal-") and t.is_alive() and t.name != "shoal-sender"
    ]


def test_shutdown_without_waiting_lets_calls_finish(pool: Pool) -> None:
    pool.auto = False
    ex = executor()
    futures = [ex.submit(double, n) for n in range(3)]
    ex.shutdown(wait=False)
    assert not futures[0].done()
    pool.await_calls(3)
    pool.work()
    assert [future.result(SOON) for future in futures] == [0, 2, 4]
    until(lambda: not pool.run.open)


def test_shutdown_may_cancel_what_has_not_begun(pool: Pool) -> None:
    pool.auto = False
    ex = executor()
    futures = [ex.submit(double, n) for n in range(20)]
    pool.await_calls(20)
    pool.run.running.add(1)
    helper = threading.Thread(target=ex.shutdown, kwargs={"cancel_futures": True})
    helper.start()
    until(lambda: len(pool.run.final) == 19)
    pool.work(1)
    helper.join(SOON)
    assert futures[0].result() == 0 and all(future.cancelled() for future in futures[1:])


def test_shutdown_in_a_callback_does_not_lock_up(pool: Pool) -> None:
    pool.auto = False
    ex = executor()
    future = ex.submit(double, 1)
    called = threading.Event()

    def end(_: object) -> None:
        ex.shutdown(wait=True)
        called.set()

    future.add_done_callback(end)
    pool.work()
    assert called.wait(SOON)
    until(lambda: not pool.run.open)


def test_a_forgotten_executor_closes_its_run_when_its_calls_have_ended(pool: Pool) -> None:
    pool.auto = False
    ex = executor()
    future = ex.submit(double, 1)
    del ex
    gc.collect()
    assert pool.run.open
    pool.work()
    assert future.result(SOON) == 2
    until(lambda: not pool.run.open)


def test_ctrl_c_in_a_with_block_detaches(
    pool: Pool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_WITHIN", 0.0)
    pool.auto = False
    with pytest.raises(KeyboardInterrupt), executor() as ex:
        future = ex.submit(double, 1)
        raise KeyboardInterrupt
    assert future.cancelled() and pool.run.open and not pool.run.final
    assert "detached, 1 call of r1 goes on" in capsys.readouterr().err


def test_a_second_ctrl_c_cancels(pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    pool.auto = False
    ex = executor()
    ex.submit(double, 1)

    def again(seconds: float) -> None:
        raise KeyboardInterrupt

    assert ex._stream is not None
    module._detach(ex._stream, again)
    assert pool.run.final == {1}
    assert "r1: cancelled" in capsys.readouterr().err


@pytest.mark.parametrize("is_typed", [False, True])
def test_at_exit_a_script_waits_and_a_prompt_does_not(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, is_typed: bool
) -> None:
    monkeypatch.setattr(module, "is_interactive", lambda: is_typed)
    pool.auto = False
    ex = executor()
    future = ex.submit(double, 1)
    if is_typed:
        module._at_exit()
        assert future.cancelled() and pool.run.open
    else:
        threading.Timer(0.05, pool.work).start()
        module._at_exit()
        assert future.result(0) == 2 and not pool.run.open


# --- a pool that is gone
def test_a_failed_initializer_breaks_the_executor(pool: Pool) -> None:
    def begin(x: int) -> None:
        raise ValueError("no licence")

    pool.auto = False
    ex = executor(initializer=begin, initargs=(1,))
    futures = [ex.submit(double, n) for n in range(3)]
    pool.await_calls(3)
    pool.work(1)
    for future in futures:
        error = future.exception(SOON)
        assert isinstance(error, BrokenExecutor) and "no licence" in str(error)
        assert isinstance(error.__cause__, ValueError)
    with pytest.raises(BrokenExecutor):
        ex.submit(double, 1)
    with pytest.raises(BrokenExecutor):
        ex.map(double, [1])
    until(lambda: len(pool.run.final) == 3)
    ex.shutdown()
    assert not pool.run.open


def test_an_initializer_is_called_before_the_first_call(pool: Pool) -> None:
    told: list[str] = []
    with executor(initializer=told.append, initargs=("ready",)) as ex:
        assert ex.submit(double, 1).result(SOON) == 2
    assert len(pool.initialized) == 1


def test_a_server_that_stays_away_breaks_the_executor(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    ex = executor()
    ex._link.patience = 0.2
    pool.auto = False
    future = ex.submit(double, 1)
    results = ex.map(double, [1, 2])

    def gone(what: str) -> None:
        raise Unreachable("nobody there")

    pool.before = gone
    with pytest.raises(BrokenExecutor, match="nobody there"):
        future.result(SOON)
    with pytest.raises(BrokenExecutor):
        next(results)
    with pytest.raises(BrokenExecutor):
        ex.submit(double, 1)
    ex.shutdown()


def test_a_server_that_comes_back_is_waited_for(pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    with executor() as ex:
        assert ex.submit(double, 1).result(SOON) == 2
        for what in ("add", "results", "add", "results"):
            pool.before = lose(what, 3)
            assert ex.submit(double, 2).result(SOON) == 4
            pool.before, pool.after = lambda what: None, lose(what, 2)
            assert list(ex.map(double, range(700))) == [2 * n for n in range(700)]
            pool.after = lambda what: None
    assert len(pool.run.calls) == 1 + 4 + 4 * 700


def test_calls_that_the_server_refuses_fail_alone(pool: Pool) -> None:
    with executor() as ex:
        assert ex.submit(double, 1).result(SOON) == 2
        pool.before = lose("add", 1, Refused("the disk is full", code="disk_full"))
        assert isinstance(ex.submit(double, 2).exception(SOON), Refused)
        assert ex.submit(double, 3).result(SOON) == 6
        pool.before = lose("add", 1, Refused("the disk is full", code="disk_full"))
        with pytest.raises(Refused):
            list(ex.map(double, range(10)))
        assert list(ex.map(double, range(10))) == [2 * n for n in range(10)]
    assert len(pool.run.calls) == 12


def test_calls_of_which_it_is_not_known_whether_they_were_added_are_sent_again(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has them, and they wait for space on its disk: others in their place would be refused."""
    monkeypatch.setattr("shoal.client.executor.stream.HASTY", 0.0)
    with executor() as ex:
        assert ex.submit(double, 1).result(SOON) == 2
        pool.after = lose("add", 1, TooBusy("the disk is full"))
        assert ex.submit(double, 2).result(SOON) == 4
        pool.after = lambda what: None
        assert ex.submit(double, 3).result(SOON) == 6
    assert len(pool.run.calls) == 3


def test_a_run_that_is_gone_breaks_the_executor(pool: Pool) -> None:
    ex = executor()
    pool.before = lose("results", 99, Refused("revoked", code="token"))
    future = ex.submit(double, 1)
    assert isinstance(future.exception(SOON), BrokenExecutor)
    ex.shutdown()


def test_a_server_that_ended_for_want_of_work_is_not_started_for_listening(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_poll, "WAIT", 0.01)
    with executor() as ex:
        assert ex.submit(double, 1).result(SOON) == 2
        pool.before = lose("results", 10**6)
        until(lambda: ex._stream is not None and ex._stream._poll._active == 0.0)
        count = len(pool.asked)
        time.sleep(0.05)
        assert len(pool.asked) == count
        pool.before = lambda what: None
        assert ex.submit(double, 2).result(SOON) == 4


# --- options
@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"max_workers": 0}, "max_workers"),
        ({"max_workers": -1}, "max_workers"),
        ({"cores": 0}, "cores"),
        ({"memory": "4XB"}, "memory"),
        ({"rerun": "maybe"}, "rerun"),
        ({"env": {"A=": "b"}}, "cannot be set"),
        ({"initializer": 5}, "callable"),
        ({"python": "/no/such/python"}, "cannot be run"),
    ],
)
def test_wrong_options_are_refused_at_once(options: dict[str, Any], what: str) -> None:
    with pytest.raises((ValueError, TypeError, BadInput), match=what):
        executor(**options)


@pytest.mark.parametrize(("says", "what"), [("3.2\\nyes", "is Python 3.2"), ("{}.{}", "no cloudpickle")])
def test_another_python_is_refused_when_it_is_given(tmp_path: Any, says: str, what: str) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nprintf '{says.format(*sys.version_info[:2])}\\n'\n", encoding="utf-8")
    python.chmod(0o700)
    with pytest.raises(BadInput, match=what):
        executor(python=str(python))


def test_the_same_python_is_taken(pool: Pool) -> None:
    with executor(python=sys.executable, max_workers=4) as ex:
        assert ex._max_workers == 4
        assert ex.submit(double, 4).result(SOON) == 8


# --- the rest
def test_a_forked_child_has_a_run_of_its_own(pool: Pool) -> None:
    with executor() as ex:
        assert ex.submit(double, 1).result(SOON) == 2
        stream = ex._stream
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            said = b"wrong"
            with contextlib.suppress(BaseException):
                pool.news = threading.Condition(threading.RLock())
                fine = ex._stream is None and stream is not None and stream.is_foreign and ex.run == ""
                future = ex.submit(double, 5)
                fine = fine and future.result(SOON) == 10 and future.task == "r2.1"
                ex.shutdown()
                said = b"fine" if fine and pool.runs["r1"].open else b"wrong"
            os.write(writer, said)
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reader, 10) == b"fine"
        os.close(reader)
        os.close(writer)
        assert ex.submit(double, 3).result(SOON) == 6
    assert list(pool.runs) == ["r1"]


def test_importing_shoal_is_cheap() -> None:
    import subprocess

    code = (
        "import shoal, sys; print([m for m in sys.modules if m.startswith('shoal.') or m in ('pickle', 'threading')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_current_task_is_told_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHOAL_TASK", "SHOAL_ATTEMPT", "SHOAL_SEED", "SHOAL_INDEX"):
        monkeypatch.delenv(name, raising=False)
    assert shoal.current_task() is None
    monkeypatch.setenv("SHOAL_TASK", "r12.7")
    monkeypatch.setenv("SHOAL_ATTEMPT", "r12.7#2")
    monkeypatch.setenv("SHOAL_SEED", "99")
    task = shoal.current_task()
    assert task is not None
    assert (task.run, task.task, task.attempt, task.seed, task.index) == ("r12", "r12.7", 2, 99, 7)
    assert repr(task) == "<r12.7#2>"


def test_public_names_are_there() -> None:
    for name in shoal.__all__:
        assert getattr(shoal, name) is not None
    with pytest.raises(AttributeError):
        getattr(shoal, "Exekutor")  # noqa: B009  # it is the looking that fails


def test_results_of_another_history_under_the_same_number_are_not_taken(pool: Pool) -> None:
    """A restored database gave the number to another script, whose results answered this one's futures."""
    with executor() as made:
        assert made.submit(double, 1).result(SOON) == 2
        pool.auto = False
        waiting = made.submit(double, 2)
        until(lambda: any(len(run.calls) == 2 for run in pool.runs.values()))
        ((name, run),) = pool.runs.items()
        with pool.news:
            run.nonce = "b" * 16
            pool.work(run=name)
        with pytest.raises(BrokenExecutor, match="another run now"):
            waiting.result(SOON)


# --- results that come with the answer to an addition
def polls(pool: Pool) -> int:
    return sum(1 for what, _ in pool.asked if what == "results")


def test_a_call_whose_result_comes_with_the_answer_is_not_polled_for(pool: Pool) -> None:
    pool.tells_early = True
    with executor() as ex:
        for n in range(3):  # the first one tells that the server can; after it a poll may be under way
            assert ex.submit(double, n).result(SOON) == 2 * n
        before = polls(pool)
        assert [ex.submit(double, n).result(SOON) for n in range(20)] == [2 * n for n in range(20)]
        assert polls(pool) <= before + 1, "at most the one that was under way"


def test_a_call_that_takes_longer_is_polled_for(pool: Pool) -> None:
    pool.tells_early = True
    with executor() as ex:
        for n in range(3):
            assert ex.submit(double, n).result(SOON) == 2 * n
        pool.auto = False
        waiting = ex.submit(double, 21)
        assert not waiting.done()
        pool.work()
        assert waiting.result(SOON) == 42


def test_a_call_whose_answer_is_lost_is_sent_again_and_polled_for(pool: Pool) -> None:
    pool.tells_early = True
    with executor() as ex:
        for n in range(3):
            assert ex.submit(double, n).result(SOON) == 2 * n
        pool.after = lose("add", 1)
        assert ex.submit(double, 21).result(SOON) == 42


def test_early_results_of_another_history_are_not_taken(pool: Pool) -> None:
    pool.tells_early = True
    with contextlib.suppress(BrokenExecutor), executor() as ex:
        for n in range(3):
            assert ex.submit(double, n).result(SOON) == 2 * n
        pool.run.nonce = "b" * 16
        with pytest.raises(BrokenExecutor, match="another run now"):
            ex.submit(double, 21).result(SOON)
