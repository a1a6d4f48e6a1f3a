"""A central server: first come first served, so many at once, a time for each request and each item."""

from __future__ import annotations

from random import Random

import pytest

from shoal.sim.clock import Clock
from shoal.sim.planning.central_queue import CentralServer


def drain(clock: Clock) -> None:
    while clock.step():
        pass


def test_a_request_takes_its_time_and_one_for_each_item() -> None:
    clock, answered = Clock(0.0), list[float]()
    server = CentralServer(clock, 2.0, 0.5)
    server.request(lambda: answered.append(clock.now), items=4)
    server.request(lambda: answered.append(clock.now))
    drain(clock)
    assert answered == [4.0, 6.0], "the second waits for the first"
    assert server.busy_seconds == 6.0 and server.waited_seconds == 4.0 and server.longest_queue == 1


def test_workers_serve_at_the_same_time() -> None:
    clock, answered = Clock(0.0), list[tuple[int, float]]()
    server = CentralServer(clock, 1.0, workers=2)
    for number in range(4):
        server.request(lambda n=number: answered.append((n, clock.now)))  # type: ignore[misc]  # bound now
    drain(clock)
    assert answered == [(0, 1.0), (1, 1.0), (2, 2.0), (3, 2.0)]


def test_an_answer_may_make_the_next_request() -> None:
    clock, times = Clock(0.0), list[float]()
    server = CentralServer(clock, 1.0)

    def again() -> None:
        times.append(clock.now)
        if len(times) < 3:
            server.request(again)

    server.request(again)
    drain(clock)
    assert times == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("seed", range(5))
def test_every_request_is_answered_once_in_order_and_no_worker_is_in_two_places(seed: int) -> None:
    rng, clock, answered = Random(seed), Clock(0.0), list[int]()
    workers = rng.randint(1, 4)
    server = CentralServer(clock, 1.0, workers=workers)
    for number in range(200):
        clock.at(rng.uniform(0, 50), lambda n=number: server.request(lambda: answered.append(n)))  # type: ignore[misc]  # bound now
    drain(clock)
    assert sorted(answered) == list(range(200)) and server.served == 200
    assert server.busy_seconds <= workers * clock.now + 1e-9


@pytest.mark.parametrize(("per_request", "workers"), [(-1.0, 1), (1.0, 0)])
def test_a_server_that_cannot_be_is_refused(per_request: float, workers: int) -> None:
    with pytest.raises(ValueError, match="workers"):
        CentralServer(Clock(0.0), per_request, workers=workers)
