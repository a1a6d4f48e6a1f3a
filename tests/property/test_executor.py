"""Whatever is lost, doubled or late between executor and server: each call has one task, each caller its own result."""

from __future__ import annotations

import threading
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal
from shoal.client.connection import reconnect
from shoal.client.connection.reconnect import Reconnecting
from shoal.model.errors import Unreachable
from tests.unit.client.fake_pool import Pool

SOON = 30.0


def double(x: int) -> int:
    return 2 * x


class Faults:
    """Loses requests and answers by a list of choices."""

    def __init__(self, choices: list[bool]) -> None:
        self._choices, self._lock = choices, threading.Lock()

    def __call__(self, what: str) -> None:
        with self._lock:
            if what in ("add", "results", "submit", "close") and self._choices and self._choices.pop():
                raise Unreachable(f"{what} was lost")


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from(["submit", "map", "work", "double", "cancel"]), st.integers(0, 40)), max_size=25),
    before=st.lists(st.booleans(), max_size=20),
    after=st.lists(st.booleans(), max_size=20),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_each_call_has_one_task_and_each_caller_its_result(
    steps: list[tuple[str, int]], before: list[bool], after: list[bool], seed: int
) -> None:
    order = Random(seed)
    pool = Pool(auto=False)
    pool.before, pool.after = Faults(before), Faults(after)
    futures: list[tuple[int, Any]] = []
    maps: list[tuple[int, Any]] = []
    submitted = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reconnecting, "connect", lambda self: pool.connect(self))
        patch.setattr(reconnect, "LONGEST_PAUSE", 0.001)
        with shoal.Executor(server="unix:/run/shoal-1", attach=False) as ex:
            for step, n in steps:
                if step == "submit":
                    futures.append((n, ex.submit(double, n)))
                    submitted += 1
                elif step == "map":
                    maps.append((n, ex.map(double, range(n))))
                    submitted += n
                elif step == "cancel" and futures:
                    futures[n % len(futures)][1].cancel()
                elif pool.runs:
                    with pool.news:
                        ready = [e for e in pool.run.calls if e not in pool.run.final]
                        order.shuffle(ready)
                        for element in ready[:n]:
                            pool.work(element)
                        if step == "double" and pool.run.results:
                            pool.run.results += [list(order.choice(pool.run.results)) for _ in range(n)]
                            pool.news.notify_all()
            pool.auto = True
            finisher = threading.Thread(target=_finish, args=(pool, ex), daemon=True)
            finisher.start()
            for n, results in maps:
                assert list(results) == [2 * k for k in range(n)]
            for n, future in futures:
                assert future.cancelled() or future.result(SOON) == 2 * n
        finisher.join(SOON)
    calls = len(pool.run.calls) if pool.runs else 0
    cancelled = sum(future.cancelled() for _, future in futures)
    assert submitted - cancelled <= calls <= submitted
    assert not pool.runs or not pool.run.open


def _finish(pool: Pool, ex: Any) -> None:
    """Work until nothing is left, as a pool does."""
    while ex._stream is not None and not ex._stream.closed.is_set():
        with pool.news:
            if pool.runs:
                pool.work()
        ex._stream.closed.wait(0.005)
