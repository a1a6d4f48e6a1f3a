"""What pilots bid for in a round, and who gets it [LBO III.C]."""

from __future__ import annotations

from typing import Any

from shoal.pilot.leader.bidding import assigned, bids_of, kinds_of
from shoal.pilot.leader.messages import KindBid
from shoal.wire.messages import Capacity, Lease

G = 1 << 30


def window(*leases: Lease) -> dict[str, Lease]:
    return {lease.attempt: lease for lease in leases}


def task(run: int, element: int, cores: int = 1, memory: int = 0, **more: Any) -> Lease:
    return Lease(f"r{run}.{element}#1@1~ab", Capacity(cores, memory), "safe", ["true"], **more)


def test_a_pilot_bids_for_what_fits_and_meets_the_requirement_best_rank_first() -> None:
    tasks = window(
        task(1, 1, rank="cpu_mhz"), task(2, 1, rank="2 * cpu_mhz"), task(3, 1, cores=9), task(4, 1, require="gpus > 0"),
        task(5, 1, require='site == "here"'),
    )  # fmt: skip
    kinds = kinds_of(tasks, tasks)
    bids = bids_of(kinds, Capacity(2, G), {"cpu_mhz": 100, "gpus": 0, "site": "here"}, 0)
    runs = [kinds[bid.kind].attempts[0].partition(".")[0] for bid in bids]
    assert runs == ["r2", "r1", "r5"]


def test_tasks_that_are_matched_alike_are_one_kind_in_the_order_of_the_window() -> None:
    tasks = window(*(task(1, element) for element in (9, 8, 7)), task(1, 6, cores=2))
    kinds = kinds_of(tasks, tasks)
    assert [len(kind.attempts) for kind in kinds.values()] == [3, 1]
    assert next(iter(kinds.values())).attempts[0].startswith("r1.9#")


def test_a_rank_that_is_no_number_is_the_worst_and_can_be_sent() -> None:
    tasks = window(task(1, 1, rank="no_such_tag"))
    (bid,) = bids_of(kinds_of(tasks, tasks), Capacity(1), {}, 0)
    assert bid.rank < -1e200


def test_the_best_sum_of_ranks_is_found_and_nobody_gets_more_than_is_free() -> None:
    tasks = window(task(1, 1), task(2, 1))
    kinds = kinds_of(tasks, tasks)
    one, two = kinds
    bidders = {
        "a": (Capacity(1), [KindBid(one, 10.0), KindBid(two, 9.0)]),
        "b": (Capacity(1), [KindBid(one, 9.0), KindBid(two, 1.0)]),
    }
    assert sorted(assigned(kinds, bidders)) == [("a", "r2.1#1@1~ab"), ("b", "r1.1#1@1~ab")]
    greedily = sorted(assigned(kinds, bidders, is_exact=False))
    assert greedily == [("a", "r1.1#1@1~ab"), ("b", "r2.1#1@1~ab")]


def test_of_tasks_of_several_sizes_a_pilot_gets_what_it_has_space_for() -> None:
    tasks = window(*(task(1, element, cores=2) for element in range(4)), *(task(2, element) for element in range(4)))
    kinds = kinds_of(tasks, tasks)
    found = assigned(kinds, {"a": (Capacity(3, G), [KindBid(kind, 1.0) for kind in kinds])})
    assert sum(tasks[attempt].room.cores for _, attempt in found) <= 3
    assert found
