"""Room on a host; what begins when is proved with the agent."""

from __future__ import annotations

from shoal.pilot.slots import Slots
from shoal.wire.messages import Held, Lease, Room


def lease(number: int, cores: int = 1, gpus: int = 0) -> Lease:
    return Lease(f"r1.{number}#1@1", Room(cores, gpus=gpus), "safe")


def test_room_and_devices_come_back_at_the_end_of_an_attempt() -> None:
    slots = Slots(Room(2, gpus=1))
    slots.waiting.extend([lease(1, 2, 1), lease(2, 1, 1)])
    assert [begin.gpus for begin in slots.begin()] == [(0,)]
    assert slots.free() == Room(0)
    assert slots.held() == [Held("r1.2#1@1", "leased"), Held("r1.1#1@1", "leased")]
    assert slots.end("r1.1#1@1") is not None
    assert slots.end("r1.1#1@1") is None
    assert [begin.gpus for begin in slots.begin()] == [(0,)]


def test_what_is_larger_than_the_pilot_can_never_begin() -> None:
    slots = Slots(Room(2, memory=1, gpus=1))
    assert slots.can_ever_hold(Room(2, memory=9, gpus=1))
    assert not slots.can_ever_hold(Room(3))
    assert not slots.can_ever_hold(Room(1, gpus=2))
