"""When a leader sends what its followers gave it, and what goes together."""

from __future__ import annotations

from shoal.model.limits import MAX_BUNDLE, MAX_BUNDLE_BYTES, MAX_FORWARDED
from shoal.pilot.leader.bundle_queue import GATHER, INTERVAL, BundleQueue
from shoal.wire.messages import Sealed

NOW = 1_000.0


def sealed(number: int, size: int = 2) -> Sealed:
    return Sealed(f"p{number}", "x" * size, "")


def test_what_comes_at_the_same_moment_goes_together() -> None:
    queue = BundleQueue()
    assert queue.due() is None
    for number in range(3):
        queue.add((f"p{number}", 1), sealed(number), NOW + number * GATHER / 4)
    assert queue.due() == NOW + GATHER
    assert queue.take(NOW + GATHER) == [sealed(0), sealed(1), sealed(2)]
    assert queue.due() is None, "one request waits for the answers"


def test_requests_keep_their_distance_unless_one_is_full() -> None:
    queue = BundleQueue()
    queue.add(("p1", 1), sealed(1), NOW)
    queue.take(NOW)
    queue.add(("p2", 1), sealed(2), NOW + 0.001)
    assert queue.due() == NOW + INTERVAL
    for number in range(MAX_BUNDLE):
        queue.add((f"p{number}", 2), sealed(number), NOW + 0.002)
    assert queue.due() == NOW + 0.001
    assert len(queue.take(NOW)) == MAX_BUNDLE
    queue.answered([])
    queue.answered([])
    assert queue.take(NOW) == [sealed(MAX_BUNDLE - 1)]


def test_a_request_holds_so_many_bytes_and_at_least_one_exchange() -> None:
    queue = BundleQueue()
    for number in range(3):
        queue.add((f"p{number}", 1), sealed(number, MAX_BUNDLE_BYTES * 2 // 3), NOW)
    assert len(queue.take(NOW)) == 1
    assert len(queue.take(NOW)) == 1


def test_while_answers_are_awaited_one_request_waits_for_them() -> None:
    queue = BundleQueue()
    queue.add(("p1", 1), sealed(1), NOW)
    queue.take(NOW)
    queue.answered([])  # a newer request of ours took its place, or the time was over
    assert queue.due() == 0.0
    assert queue.take(NOW) == []
    queue.answered([("p1", 1)])
    assert queue.due() is None


def test_without_an_answer_nothing_is_awaited_any_more() -> None:
    queue = BundleQueue()
    queue.add(("p1", 1), sealed(1), NOW)
    queue.take(NOW)
    assert queue.failed() == {("p1", 1)}
    assert queue.due() is None
    queue.add(("p2", 1), sealed(2), NOW)
    queue.take(NOW)
    queue.add(("p3", 1), sealed(3), NOW)
    assert queue.clear() == {("p2", 1), ("p3", 1)}
    queue.answered([])
    assert queue.due() is None


def test_nobody_waits_for_a_follower_that_left() -> None:
    queue = BundleQueue()
    queue.add(("p1", 1), sealed(1), NOW)
    queue.take(NOW)
    queue.drop(("p1", 1))
    queue.answered([])
    assert queue.due() is None


def test_it_takes_no_more_than_it_can_send() -> None:
    queue = BundleQueue()
    for number in range(MAX_FORWARDED):
        assert not queue.is_full
        queue.add((f"p{number}", 1), sealed(number), NOW)
    assert queue.is_full
