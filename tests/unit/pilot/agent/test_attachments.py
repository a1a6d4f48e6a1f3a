"""What goes with exchanges until one is answered."""

from __future__ import annotations

from shoal.model.limits import MAX_SEALED_BYTES, MAX_SEALED_REPORTS
from shoal.pilot.agent.attachments import Attachments
from shoal.pilot.agent.events import Delivered
from shoal.wire.messages import PROTOCOL, Accusation, Capacity, Exchange, Reply, Sealed


def copy(number: int, size: int = 1) -> Sealed:
    return Sealed("p1", "x" * size, str(number))


def packed(attachments: Attachments, with_copies: bool = True) -> Exchange:
    return Exchange(PROTOCOL, "p2", "s", 1, 0, Capacity(), **attachments.pack(with_copies))


def test_everything_is_told_until_an_exchange_with_it_was_answered() -> None:
    attachments = Attachments()
    attachments.outlived(("dead",))
    attachments.accuse(Accusation("peer", "wrong bytes"))
    attachments.deliver((copy(1), copy(2)))
    sent = packed(attachments)
    assert (sent.ended, len(sent.accusations), sent.sealed) == (["dead"], 1, [copy(1), copy(2)])
    assert packed(attachments) == sent
    assert packed(attachments, with_copies=False).sealed == []
    assert attachments.answered(sent, Reply(1, 1, unsealed=["2"])) == [Delivered((copy(2),))]
    assert packed(attachments) == Exchange(PROTOCOL, "p2", "s", 1, 0, Capacity())
    assert attachments.answered(packed(attachments), Reply(1, 1)) == []


def test_copies_in_one_exchange_are_bounded() -> None:
    attachments = Attachments()
    attachments.deliver(tuple(copy(number) for number in range(MAX_SEALED_REPORTS + 3)))
    sent = packed(attachments)
    assert len(sent.sealed) == MAX_SEALED_REPORTS
    attachments.answered(sent, Reply(1, 1))
    assert len(packed(attachments).sealed) == 3
    attachments.refused()
    assert packed(attachments).sealed == []
    attachments.deliver(tuple(copy(number, MAX_SEALED_BYTES // 2) for number in range(3)))
    assert len(packed(attachments).sealed) == 2
