"""The line between loop and guard."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from shoal.pilot.guard.channel import Channel


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    left, right = (Channel(sock) for sock in socket.socketpair())
    yield left, right
    left.close()
    right.close()


def test_messages_arrive_whole_and_in_order(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    odd = "a\nb\udce9\0é"  # a file name may hold bytes that are no text
    left.send({"n": 1, "text": odd})
    left.send({"n": 2})
    assert right.receive() == [{"n": 1, "text": odd}, {"n": 2}]
    assert right.receive() == []


def test_a_full_line_holds_up_nobody_and_loses_nothing(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    sent = [{"n": n, "text": "x" * 100_000} for n in range(50)]
    for message in sent:
        left.send(message)
    assert left.wants_write
    received: list[dict[str, object]] = []
    while len(received) < len(sent):
        received += right.receive()
        left.flush()
    assert received == sent
    assert not left.wants_write


def test_what_was_said_before_hanging_up_is_still_heard(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    left.send({"last": True})
    left.close()
    assert right.receive() == [{"last": True}]
    assert right.closed
    right.send({"to": "nobody"})
    assert not right.wants_write


def test_what_is_held_goes_out_together_and_in_order(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    left.hold()
    left.send({"n": 1})
    left.send({"n": 2})
    assert right.receive() == []
    left.flush()
    left.send({"n": 3})
    assert right.receive() == [{"n": 1}, {"n": 2}, {"n": 3}]
