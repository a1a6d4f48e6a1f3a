"""Several guards of one pilot: which gets what, and that they stand and fall together."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from shoal.pilot.guard.channel import Channel
from shoal.pilot.guard.guards import Guards, how_many
from shoal.pilot.guard.messages import Ended, LastContact, Quit, Start, StartPiece, Stop

NOBODY = 2**22 + 1  # no process has this number


class Stand:
    def __init__(self, count: int) -> None:
        pairs = [socket.socketpair() for _ in range(count)]
        self.guards = Guards([(Channel(ours), NOBODY) for ours, _ in pairs])
        self.far = [Channel(theirs) for _, theirs in pairs]

    def start(self, name: str, after: str = "", plain: bool = True, base: int = 1) -> None:
        message = Start(name, ["x"], "/", {}, "", "", 1.0, 0, base=base, after=after)
        self.guards.start(message, base, {"A": "b"}, plain)

    def got(self) -> list[list[str]]:
        return [[getattr(one, "attempt", type(one).__name__) for one in channel.receive()] for channel in self.far]


@pytest.fixture
def stands() -> Iterator[Callable[[int], Stand]]:
    """Makes a stand with so many guards."""
    made: list[Stand] = []

    def make(count: int) -> Stand:
        made.append(Stand(count))
        return made[-1]

    yield make
    for stand in made:
        stand.guards.close()
        for channel in stand.far:
            channel.close()


def test_as_many_as_there_are_slots_but_never_more_than_four() -> None:
    assert [how_many(cores) for cores in (1, 2, 4, 64)] == [1, 2, 4, 4]


def test_plain_commands_go_to_the_guard_that_has_least_and_others_to_the_first(stands: Callable[[int], Stand]) -> None:
    stand = stands(2)
    for name in ("a", "b", "c"):
        stand.start(name)
    assert stand.got() == [["a", "c"], ["b"]]
    for name in ("a", "c"):
        stand.guards.over(name)
    stand.start("d")
    stand.start("e", plain=False)
    stand.guards.send(LastContact(1.0, 2.0))
    assert stand.got() == [["d", "e", "LastContact"], []]


def test_what_is_queued_or_said_later_goes_where_it_belongs(stands: Callable[[int], Stand]) -> None:
    stand = stands(2)
    stand.start("a")
    stand.start("b")
    stand.start("c", after="b")
    stand.guards.send(Stop("c", None))
    stand.guards.send_to("b", Stop("b2", 1.0))
    assert stand.got() == [["a"], ["b", "c", "c", "b2"]]


def test_each_guard_gets_a_shared_environment_once(stands: Callable[[int], Stand]) -> None:
    stand = stands(2)
    for name in ("a", "b", "c", "d"):
        stand.start(name)
    first = Start("e", ["x"], "/", {}, "", "", 1.0, 0, base=2)
    stand.guards.start(StartPiece("e", list(vars(first).values()), [{}], [], "/l"), 2, {"C": "d"}, True)
    starts = [one for channel in stand.far for one in channel.receive()]
    assert [one.base_env for one in starts if isinstance(one, Start)] == [{"A": "b"}, None] * 2
    assert [Start(*one.start).base_env for one in starts if isinstance(one, StartPiece)] == [{"C": "d"}]


def test_all_are_heard_and_the_loss_of_one_is_the_loss_of_all(stands: Callable[[int], Stand]) -> None:
    stand = stands(3)
    for at, channel in enumerate(stand.far):
        channel.send(Ended(f"a{at}", 0, None, "", 1.0, 1.0, 1))
    assert [one.attempt for one in stand.guards.receive()] == ["a0", "a1", "a2"]
    assert not stand.guards.closed
    stand.guards.quit()
    assert all(isinstance(one, Quit) for channel in stand.far for one in channel.receive())
    stand.far[1].close()
    assert stand.guards.receive() == [] and stand.guards.closed
