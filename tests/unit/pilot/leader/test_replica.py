"""What members of a mesh keep, and how it comes from the leader to the others [ADR 0056]."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shoal.pilot.leader.messages import GIVEN, GONE, LEFT, MEMBER, TASK, Entry
from shoal.pilot.leader.replica import ANSWER_ENTRIES, Replica
from shoal.wire.messages import Capacity, Lease


def lease(attempt: str, **more: Any) -> Lease:
    return Lease(attempt, Capacity(1), "safe", ["true"], **more)


def catch_up(leader: Replica, follower: Replica) -> int:
    """Send what is new until all is there; how many messages that took."""
    count = 0
    while True:
        entries, more = leader.since(follower.version)
        count += 1
        for entry in entries:
            follower.take(entry)
        if not more:
            return count


def state(replica: Replica) -> object:
    return (
        replica.version,
        replica.members,
        dict(replica.tasks),
        replica.given,
        {k: dict(v) for k, v in replica.given_to.items() if v},
    )


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just(MEMBER), st.sampled_from("abc"), st.sampled_from(("h1:1", "h2:1"))),
        st.tuples(st.just(LEFT), st.sampled_from("abc"), st.just("")),
        st.tuples(st.just(TASK), st.sampled_from("123456"), st.just("")),
        st.tuples(st.just(GIVEN), st.sampled_from("123456"), st.sampled_from("abc")),
        st.tuples(st.just(GONE), st.sampled_from("123456"), st.just("")),
    ),
    max_size=40,
)


@given(changes=CHANGES, joins=st.integers(0, 40))
def test_a_follower_has_what_its_leader_has_whenever_it_joined(changes: list[tuple[str, str, str]], joins: int) -> None:
    leader, early, late = Replica(1), Replica(1), Replica(1)
    for at, (kind, name, value) in enumerate(changes):
        leader.add(kind, name, value, lease(name) if kind == TASK else None)
        catch_up(leader, early)
        if at >= joins:
            catch_up(leader, late)
    catch_up(leader, late)
    leader.version = max(leader.version, late.version)
    assert state(early) == state(leader)
    assert state(late)[1:] == state(leader)[1:]  # type: ignore[index]


def test_a_change_that_came_before_changes_nothing() -> None:
    replica = Replica(1)
    entry = Entry(1, TASK, "r1.1#1", lease=lease("r1.1#1"))
    assert replica.take(entry)
    assert not replica.take(entry)
    assert replica.unstarted() == ["r1.1#1"]


def test_what_is_gone_does_not_come_back() -> None:
    replica = Replica(1)
    replica.add(GONE, "r1.1#1")
    replica.add(TASK, "r1.1#1", lease=lease("r1.1#1"))
    assert not replica.tasks


def test_a_message_is_bounded() -> None:
    leader = Replica(1)
    for number in range(1_000):
        leader.add(TASK, f"r1.{number}#1", lease=lease(f"r1.{number}#1"))
    leader.add(TASK, "r2.1#1", lease=lease("r2.1#1", shell="x" * 30_000))
    follower = Replica(1)
    assert catch_up(leader, follower) > 1_000 // ANSWER_ENTRIES
    assert len(follower.tasks) == 1_001


def test_of_two_that_a_task_was_given_to_the_later_leaders_counts() -> None:
    """The earlier one was not committed: else the later leader had heard of it from a voter."""
    early, late, merged = Replica(1), Replica(2), Replica()
    early.add(GIVEN, "r1.1#1", "a")
    late.add(GIVEN, "r1.1#1", "b")
    for said in (*late.said(), *early.said()):
        merged.hear(said)
    assert merged.given == {"r1.1#1": "b"}
    assert "r1.1#1" not in merged.given_to.get("a", {})
