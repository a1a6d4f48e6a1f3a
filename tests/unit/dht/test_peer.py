from __future__ import annotations

from random import Random

from shoal.dht import messages as wire
from shoal.dht.key import show_key
from shoal.dht.peer import (
    ANSWER_WITHIN,
    BELIEVED,
    REPUBLISH,
    Action,
    Drop,
    End,
    Failed,
    Find,
    Holders,
    Join,
    Peer,
    Publish,
    Received,
    Send,
    Tick,
    Unpublish,
)
from shoal.dht.routing_table import Contact

A, B, C, STRANGER = (Contact(id, f"10.0.0.{id}:1") for id in (1, 2, 3, 66))
KEY = 7


def peer(own: Contact = A) -> Peer:
    return Peer(own, Random(1), lambda id: id != STRANGER.id, 0.0)


def sent(actions: list[Action], kind: type = object) -> list[Send]:
    return [action for action in actions if isinstance(action, Send) and isinstance(action.message, kind)]


def test_a_stranger_is_neither_answered_nor_remembered() -> None:
    one = peer()
    assert one.handle(Received(STRANGER, wire.FindPeers(1, show_key(KEY))), 1.0) == []
    assert one.handle(Received(A, wire.FindPeers(1, show_key(KEY))), 1.0) == [], "nor a message in our own name"
    assert len(one.table) == 0
    assert one.ignored == 2


def test_messages_that_break_a_bound_are_ignored_and_counted() -> None:
    """Strangers and broken messages cost a counter each, and no answer [input E64]."""
    one = peer()
    many = [wire.PeerAddress(show_key(id), "10.0.0.9:1") for id in range(10_000)]
    one.handle(Join((B,)), 0.0)
    for message in (
        wire.FindPeers(1, "zz"),
        wire.FindHolders(1, show_key(1)[:-1]),
        wire.Store(1, [show_key(1)] * (wire.MAX_KEYS + 1)),
        wire.Found(1, many),
        wire.HandOver(1, show_key(1), many[:3], [1.0]),
    ):
        assert sent(one.handle(Received(B, message), 1.0)) == []
    assert one.ignored == 5
    assert len(one.records) == 0


def test_a_question_gets_the_closest_contacts_but_not_the_asker_and_the_holders() -> None:
    one = peer()
    for contact in (B, C):
        one.handle(Received(contact, wire.Store(5, [show_key(KEY)])), 1.0)
    (answer,) = sent(one.handle(Received(B, wire.FindHolders(9, show_key(KEY))), 2.0))
    assert answer.to == B
    assert isinstance(answer.message, wire.Found)
    assert answer.message.number == 9
    assert [found.id for found in answer.message.contacts] == [show_key(C.id)]
    assert {found.id for found in answer.message.holders} == {show_key(B.id), show_key(C.id)}


def test_a_contact_that_does_not_answer_in_time_is_forgotten_and_the_lookup_goes_on() -> None:
    one = peer()
    one.handle(Join((B,)), 0.0)
    actions = one.handle(Find(4, KEY), 1.0)
    assert [send.to for send in sent(actions, wire.FindHolders)] == [B]
    assert one.deadline() == ANSWER_WITHIN  # of the request of the joining, which is the older one
    actions = one.handle(Tick(), 1.0 + ANSWER_WITHIN)
    assert actions == [Holders(4, (), 1, 0)]
    assert B.id not in one.table


def test_what_is_published_is_published_again_before_it_is_forgotten() -> None:
    one = peer()
    one.handle(Received(B, wire.Done(0)), 0.0)
    (ask,) = sent(one.handle(Publish((KEY,)), 0.0), wire.FindPeers)
    assert isinstance(ask.message, wire.FindPeers)
    (store,) = sent(one.handle(Received(B, wire.Found(ask.message.number)), 0.1), wire.Store)
    assert store.to == B
    assert isinstance(store.message, wire.Store)
    one.handle(Received(B, wire.Done(store.message.number)), 0.2)
    due = one.deadline()
    assert due is not None
    assert due <= REPUBLISH < BELIEVED / 2
    assert len(sent(one.handle(Tick(), REPUBLISH), wire.FindPeers)) >= 1


def test_what_is_given_up_is_withdrawn_where_it_was_stored() -> None:
    one = peer()
    one.handle(Received(B, wire.Done(0)), 0.0)
    (ask,) = sent(one.handle(Publish((KEY,)), 0.0), wire.FindPeers)
    assert isinstance(ask.message, wire.FindPeers)
    one.handle(Received(B, wire.Found(ask.message.number)), 0.1)
    (withdraw,) = sent(one.handle(Unpublish((KEY,)), 1.0), wire.Withdraw)
    assert withdraw.to == B
    assert one.handle(Find(1, KEY), 1.0)[0] != Holders(1, (A,), 0, 0)
    assert not sent(one.handle(Tick(), REPUBLISH), wire.Store)


def test_a_leaver_hands_on_what_it_keeps_and_tells_its_contacts() -> None:
    one = peer()
    for contact in (B, C):
        one.handle(Received(contact, wire.Store(1, [show_key(KEY)])), 0.0)
    actions = one.handle(End(), 10.0)
    assert {send.to for send in sent(actions, wire.HandOver)} == {B, C}
    assert {send.to for send in sent(actions, wire.Leave)} == {B, C}
    assert one.deadline() is None
    assert one.handle(Received(B, wire.FindPeers(1, show_key(KEY))), 11.0) == []
    other = peer(B)
    for send in sent(actions):
        if send.to == B:
            other.handle(Received(A, send.message), 10.0)
    (answer,) = (action for action in other.handle(Find(1, KEY), 11.0) if isinstance(action, Holders))
    assert answer.contacts == (C,), "its own note needs no telling"
    assert A.id not in other.table


def test_a_leaver_is_no_holder_any_more() -> None:
    one = peer()
    one.handle(Received(B, wire.Store(1, [show_key(KEY)])), 0.0)
    one.handle(Received(B, wire.Leave()), 1.0)
    assert not one.records.holders(KEY, 1.0)
    assert B.id not in one.table


def test_a_note_is_believed_for_its_time_only_and_a_handed_on_one_no_longer() -> None:
    """[input E65]."""
    one = peer()
    one.handle(Received(B, wire.Store(1, [show_key(KEY)])), 0.0)
    one.handle(Received(B, wire.HandOver(2, show_key(KEY), [wire.PeerAddress(show_key(C.id), C.address)], [1e9])), 0.0)
    for at, rest in enumerate((-1.0, float("nan"), float("-inf"))):
        one.handle(
            Received(B, wire.HandOver(3 + at, show_key(at + 1), [wire.PeerAddress(show_key(C.id), C.address)], [rest])),
            0.0,
        )
        assert one.records.holders(at + 1, 0.0) == []
    assert len(one.records.holders(KEY, BELIEVED - 1.0)) == 2
    assert one.records.holders(KEY, BELIEVED) == []


def test_who_is_reached_by_nobody_is_answered_and_never_named() -> None:
    one = peer()
    deaf = Contact(B.id, "")
    (answer,) = sent(one.handle(Received(deaf, wire.Store(1, [show_key(KEY)])), 1.0))
    assert answer.message == wire.Done(1)
    (answer,) = sent(one.handle(Received(C, wire.FindHolders(2, show_key(KEY))), 1.0))
    assert answer.message == wire.Found(2, [], [])
    assert [contact.id for contact in one.table] == [C.id]
    deaf_one = wire.Found(0, [wire.PeerAddress(show_key(9), "")])
    number = sent(one.handle(Find(1, KEY), 1.0), wire.FindHolders)[0].message.number  # type: ignore[union-attr]
    one.handle(Received(C, wire.Found(number, deaf_one.contacts)), 1.0)
    assert 9 not in one.table


def test_a_lookup_goes_on_at_once_when_a_message_cannot_be_delivered() -> None:
    one = peer()
    one.handle(Join((B, C)), 0.0)
    for contact in (B, C):
        one.handle(Failed(contact.id), 0.0)
    one.handle(Join((B,)), 0.0)
    (send,) = sent(one.handle(Find(5, KEY), 1.0), wire.FindHolders)
    assert one.handle(Failed(send.to.id), 1.0) == [Holders(5, (), 1, 0)], "nobody is left, and no time has passed"


def test_a_peer_that_is_a_member_no_more_is_no_contact_and_no_holder() -> None:
    one = peer()
    one.handle(Received(B, wire.Store(1, [show_key(KEY)])), 1.0)
    one.handle(Drop(B.id), 1.0)
    assert B.id not in one.table
    assert one.handle(Find(1, KEY), 1.0)[-1] == Holders(1, (), 0, 0)
