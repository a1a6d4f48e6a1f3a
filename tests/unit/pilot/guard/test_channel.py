"""The connection between loop and guard."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from shoal.pilot.guard.channel import Channel
from shoal.pilot.guard.messages import TYPES, Quit, SendSignal, Start, Stop, pack, unpack


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    left, right = (Channel(sock) for sock in socket.socketpair())
    yield left, right
    left.close()
    right.close()


def test_messages_arrive_whole_and_in_order(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    odd = "a\nb\udce9\0é"  # a file name may hold bytes that are no text
    left.send(Stop(odd, 1.0))
    left.send(Quit())
    assert right.receive() == [Stop(odd, 1.0), Quit()]
    assert right.receive() == []


def test_a_full_line_holds_up_nobody_and_loses_nothing(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    sent = [SendSignal("x" * 100_000, n) for n in range(50)]
    for message in sent:
        left.send(message)
    assert left.wants_write
    received: list[object] = []
    while len(received) < len(sent):
        received += right.receive()
        left.flush()
    assert received == sent
    assert not left.wants_write


def test_what_was_said_before_hanging_up_is_still_heard(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    left.send(Quit())
    left.close()
    assert right.receive() == [Quit()]
    assert right.closed
    right.send(Quit())
    assert not right.wants_write


def test_what_is_held_goes_out_together_and_in_order(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    left.hold()
    left.send(SendSignal("a", 1))
    left.send(Quit())
    assert right.receive() == []
    left.flush()
    left.send(Stop("a", None))
    assert right.receive() == [SendSignal("a", 1), Quit(), Stop("a", None)]


def test_every_field_of_a_message_arrives_and_every_message_has_a_number() -> None:
    start = Start("a", ["true"], "/", {"A": "b"}, "out", "err", 5.0, 0o022, memory=7, container="c")
    start.base_env = {"C": "d"}
    assert unpack(pack(start)) == start
    assert len(set(TYPES)) == len(TYPES) == 13
