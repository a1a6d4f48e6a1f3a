"""Starts that wait for the end of another attempt."""

from __future__ import annotations

from shoal.pilot.guard.messages import Start
from shoal.pilot.guard.queued_starts import QueuedStarts
from shoal.pilot.guard.spawn import Launch


def order(attempt: str, after: str) -> Launch:
    return Launch(Start(attempt, ["true"], "/", {}, "out", "err", 5.0, 0o022, after=after), {})


def names(orders: list[Launch]) -> list[str]:
    return [one.start.attempt for one in orders]


def test_what_waits_begins_with_the_end_of_the_one_before_it_and_only_once() -> None:
    followers = QueuedStarts()
    for attempt, after in (("b", "a"), ("c", "b"), ("d", "a")):
        followers.add(order(attempt, after))
    assert len(followers) == 3 and "c" in followers and "a" not in followers
    assert names(followers.follow("a")) == ["b", "d"]
    assert followers.follow("a") == [] and names(followers.follow("b")) == ["c"]
    assert len(followers) == 0


def test_one_that_is_dropped_leaves_its_place_to_those_behind_it() -> None:
    followers = QueuedStarts()
    for attempt, after in (("b", "a"), ("c", "b"), ("d", "b"), ("e", "a")):
        followers.add(order(attempt, after))
    assert followers.drop("b") == order("b", "a")
    assert followers.drop("b") is None and "b" not in followers
    assert names(followers.follow("a")) == ["c", "d", "e"]


def test_the_last_one_dropped_leaves_nothing() -> None:
    followers = QueuedStarts()
    followers.add(order("b", "a"))
    followers.drop("b")
    assert (len(followers), followers.follow("a")) == (0, [])
