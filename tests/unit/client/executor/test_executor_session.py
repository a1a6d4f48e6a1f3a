"""The same script again, and futures of an earlier process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import as_completed
from typing import Any

import pytest

import shoal
from shoal.client.connection.reconnect import Reconnecting
from shoal.client.executor import executor as module
from shoal.client.executor import script_session
from shoal.model.errors import NotFound
from tests.unit.client.fake_pool import Pool

SERVER = "unix:/run/shoal-1"
SOON = 20.0


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    made = Pool(auto=False)
    monkeypatch.setattr(Reconnecting, "connect", lambda self: made.connect(self))
    monkeypatch.setattr(module, "AGAIN_WITHIN", 0.0)
    yield made
    for stream in list(module._streams):
        stream.detach()
        stream.closed.wait(SOON)
        module._streams.discard(stream)


def double(x: int) -> int:
    return 2 * x


class Life:
    """One start of the script; `die` is how it ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int = 1) -> None:
        self._patch, self._number = monkeypatch, number

    def executor(self, **options: Any) -> shoal.Executor:
        self._patch.setattr(
            script_session, "this_client", lambda: f"{script_session._machine()}:{2**22 + self._number}:1"
        )
        self._patch.setattr(script_session, "script", lambda: "/scripts/fit.py")
        self._patch.setattr(script_session, "_ordinals", {})
        return shoal.Executor(server=SERVER, **options)


def test_a_script_that_was_killed_goes_on_where_it_was(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Life(monkeypatch).executor()
    first.map(double, range(1_200))
    first.submit(double, 5)
    pool.await_calls(1_201)
    pool.work(*range(1, 701))
    first.detach()
    capsys.readouterr()
    second = Life(monkeypatch, 2).executor()
    pool.auto = True
    results = second.map(double, range(1_300))
    future = second.submit(double, 5)
    pool.work()
    assert list(results) == [2 * n for n in range(1_300)]
    assert future.result(SOON) == 10
    assert list(pool.runs) == ["r1"] and len(pool.run.calls) == 1_301
    assert capsys.readouterr().err == "shoal: re-attached to r1: 1,201 calls known, 700 of them finished\n"
    second.shutdown()
    assert not pool.run.open


def test_equal_calls_are_each_matched_once(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Life(monkeypatch).executor()
    [first.submit(double, 1) for _ in range(3)]
    pool.await_calls(3)
    first.detach()
    second = Life(monkeypatch, 2).executor()
    futures = [second.submit(double, 1) for _ in range(5)]
    pool.await_calls(5)
    assert [future.task for future in futures] == [f"r1.{n}" for n in range(1, 6)]
    pool.work()
    second.shutdown()


def test_what_failed_is_tried_again(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Life(monkeypatch).executor()
    [first.submit(double, n) for n in (1, 2, 3)]
    pool.await_calls(3)
    pool.finish(2, [2, "failed", "", "signal", "killed", 1, "", 0, 0])
    first.detach()
    second = Life(monkeypatch, 2).executor()
    futures = [second.submit(double, n) for n in (1, 2, 3)]
    pool.await_calls(4)
    pool.work()
    assert [future.result(SOON) for future in futures] == [2, 4, 6]
    second.shutdown()


@pytest.mark.parametrize(
    "why", ["closed", "alive", "elsewhere", "other name", "other seed", "other arguments", "not wanted", "other calls"]
)
def test_another_run_is_made_if_the_earlier_one_is_none_of_ours(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Life(monkeypatch).executor()
    first.submit(double, 1)
    if why == "closed":
        pool.work()
        first.shutdown()
    else:
        first.detach()
    label = {"alive": script_session.this_client(), "elsewhere": "another-machine:77:1"}.get(why)
    if why == "alive":
        label = f"{script_session._machine()}:{os.getpid()}:{script_session._start_of(os.getpid())}"
    if label:
        pool.run.document["labels"]["client"] = label
    if why == "other arguments":
        monkeypatch.setattr(sys, "argv", [*sys.argv, "--more"])
    capsys.readouterr()
    options: dict[str, Any] = {"other name": {"name": "x"}, "other seed": {"seed": 1}, "not wanted": {"attach": False}}
    second = Life(monkeypatch, 2).executor(**options.get(why, {}))
    pool.auto = True
    assert second.submit(double, 2 if why == "other calls" else 1).result(SOON) == (4 if why == "other calls" else 2)
    assert list(pool.runs) == ["r1", "r2"]
    second.shutdown()
    said = capsys.readouterr().err
    assert ("r1 of this script has other calls and goes on" in said) == (why == "other calls")


def test_other_code_is_told_as_such(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Life(monkeypatch).executor()
    first.submit(lambda x: 2 * x, 1)
    pool.await_calls(1)
    first.detach()
    capsys.readouterr()
    second = Life(monkeypatch, 2).executor(env={"LIMIT": "2"})
    pool.auto = True
    assert second.submit(lambda x: 3 * x, 1).result(SOON) == 3
    second.shutdown()
    said = "r1 of this script was started with other code (differs: the function or what it refers to, the environment)"
    assert said in capsys.readouterr().err


def test_a_result_that_comes_before_its_call_is_made_again_is_kept_for_it(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Life(monkeypatch).executor()
    [first.submit(double, n) for n in (1, 2, 3)]
    pool.await_calls(3)
    first.detach()
    second = Life(monkeypatch, 2).executor()
    future = second.submit(double, 1)
    pool.work(2)
    pool.work(1)
    assert future.result(SOON) == 2  # so that of the second was received, too
    later = second.submit(double, 2)
    assert later.task == "r1.2" and later.result(SOON) == 4
    pool.work()
    second.shutdown()


def test_classes_of_the_script_are_the_same_after_it_was_started_again(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cloudpickle import cloudpickle  # type: ignore[import-untyped]  # it ships no types

    def script() -> tuple[type, Any]:
        class Point:
            def __init__(self, x: int) -> None:
                self.x = x

        return Point, lambda x: Point(x)

    def forget(kind: type) -> None:  # as another process would not know the number
        number = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.pop(kind)
        del cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID[number]

    kind, make = script()
    first = Life(monkeypatch).executor()
    first.submit(make, 1)
    pool.await_calls(1)
    pool.work()
    first.detach()
    forget(kind)
    kind, make = script()
    second = Life(monkeypatch, 2).executor()
    future = second.submit(make, 1)
    assert future.task == "r1.1" and type(future.result(SOON)) is kind
    number = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS[kind]
    assert cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID[number] is kind
    second.shutdown()


def test_a_process_is_known_by_its_start() -> None:
    assert not script_session.is_abandoned(script_session.this_client())
    machine, pid, start = script_session.this_client().split(":")
    assert script_session.is_abandoned(f"{machine}:{pid}:{int(start) + 1}")
    assert script_session.is_abandoned(f"{machine}:{2**22 + 1}:{start}")
    assert not script_session.is_abandoned(f"other:{2**22 + 1}:{start}")
    assert not script_session.is_abandoned("")


def test_prompts_and_notebooks_have_no_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    before = script_session.session_key("x", 1)
    monkeypatch.setattr(sys, "argv", ["/tmp/kernel-1234.json"])
    assert script_session.session_key("x", 1) == before != script_session.session_key("x", 2)


# --- attach
def test_futures_come_back_in_the_order_of_submission(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ex = Life(monkeypatch).executor(name="fit")
    ex.submit(double, 1)
    ex.map(double, range(2, 12))
    ex.command(["echo", "x"])
    pool.await_calls(12)
    pool.work(1, 3)
    ex.detach()
    capsys.readouterr()
    attached = shoal.attach(server=SERVER)
    assert (attached.run, attached.name, len(attached)) == ("r1", "fit", 12)
    assert capsys.readouterr().err == "shoal: attached to r1: 12 calls, 2 of them finished\n"
    assert attached.futures[0].result(SOON) == 2
    pool.work()
    assert set(as_completed(attached.futures, SOON)) == set(attached)
    assert list(attached.results(SOON)) == [*range(2, 23, 2), "ran ['echo', 'x']"]
    assert repr(attached) == "<r1 fit: 12 calls, 12 done>"
    assert pool.run.open  # leaving changes nothing


def test_a_run_is_found_by_name_by_id_or_as_the_latest(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    pool.auto = True
    for name in ("a", "b", "a"):
        with Life(monkeypatch).executor(name=name, attach=False) as ex:
            ex.submit(double, 1).result(SOON)
    pool.connect(Reconnecting(SERVER)).submit({"name": "commands", "labels": {}, "key": "x"})
    assert shoal.attach(server=SERVER).run == "r3"
    assert shoal.attach("b", server=SERVER).run == "r2"
    assert shoal.attach("r1", server=SERVER).run == "r1"
    for name in ("c", "r77"):
        with pytest.raises(NotFound):
            shoal.attach(name, server=SERVER)


def test_an_attached_run_can_be_cancelled(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    ex = Life(monkeypatch).executor()
    ex.submit(double, 1)
    ex.detach()
    attached = shoal.attach(server=SERVER)
    attached.cancel()
    assert attached.futures[0] in set(as_completed(attached.futures, SOON)) and attached.futures[0].cancelled()


def test_more_memory_is_told_once(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    executor = Life(monkeypatch).executor()
    futures = [executor.submit(double, n) for n in range(3)]
    pool.await_calls(3)
    pool.events.append({"kind": "task_retried", "task": 1, "data": {"why": "this is its last retry"}})
    for element, more in ((1, "400M instead of 200M"), (2, "600M instead of 300M"), (3, "8G instead of 4G")):
        row = pool.made(pool.run, element)
        row[5] = 2
        if element > 1:
            pool.events.append({"kind": "task_retried", "task": element, "data": {"memory": 1, "why": more}})
        pool.finish(element, row)
        assert futures[element - 1].result(SOON) == 2 * (element - 1)
    executor.shutdown()
    assert capsys.readouterr().err == (
        "shoal: r1.2 ran out of memory and was tried again with 600M instead of 300M; further ones are not told "
        "(memory= states more, max_memory= bounds it; `shoal events r1`)\n"
    )
