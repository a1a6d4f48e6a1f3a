"""The batch queue of a simulated site."""

from __future__ import annotations

from shoal.sim.clock import Clock
from shoal.sim.distributions import Constant
from shoal.sim.planning.batch_queue import BatchQueue
from shoal.sim.planning.description import Background, Downtime, Site


def start_times(site: Site, jobs: int, seconds: float, until: float = 1e5) -> list[float]:
    """When jobs start that are queued at once and take so long."""
    clock = Clock(0.0)
    queue = BatchQueue(site, clock, 1)
    started: list[float] = []

    def start() -> None:
        started.append(clock.now)
        clock.after(seconds, queue.release)

    for _ in range(jobs):
        queue.submit(start)
    while len(started) < jobs and clock.now < until and clock.step():
        pass
    return started


def test_jobs_wait_for_hosts_in_order() -> None:
    assert start_times(Site(hosts=2, wait=Constant(5.0)), 5, 10.0) == [5.0, 5.0, 15.0, 15.0, 25.0]


def test_without_a_bound_all_start_at_once() -> None:
    assert start_times(Site(), 100, 10.0) == [0.0] * 100


def test_nothing_starts_in_a_downtime() -> None:
    site = Site(hosts=1, downtimes=(Downtime(5.0, 50.0),))
    assert start_times(site, 3, 10.0) == [0.0, 50.0, 60.0]


def test_jobs_of_others_take_hosts() -> None:
    alone = start_times(Site(hosts=2), 10, 100.0)
    shared = start_times(Site(hosts=2, background=Background(100.0, Constant(60.0))), 10, 100.0)
    assert shared[0] > 0.0  # they were there before
    assert shared[-1] > 1.05 * alone[-1]
