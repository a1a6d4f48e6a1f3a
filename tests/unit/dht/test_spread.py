"""One peer in broadcasts of its site: what it passes on, waits for, merges and drops."""

from __future__ import annotations

from random import Random

from shoal.dht import messages as wire
from shoal.dht.key import BITS
from shoal.dht.routing_table import Contact, RoutingTable
from shoal.dht.spread import (
    CONFIRM_WITHIN,
    DEEPEST,
    LEVEL_WAIT,
    Action,
    Answer,
    Arrived,
    Begin,
    Deliver,
    Gathered,
    Send,
    Spread,
    Tick,
    levels_of,
    parts_of,
)

OWN = Contact(0, "own")


def contact(top: int, rest: int = 1) -> Contact:
    """A contact whose id begins with these three bits."""
    return Contact(top << BITS - 3 | rest, f"c{top}.{rest}")


def peer(*contacts: Contact) -> Spread:
    table = RoutingTable(OWN.id, 0.0)
    for one in contacts:
        table.note_seen(one)
    return Spread(OWN, table, Random(1))


def begin(spread: Spread, now: float = 0.0) -> list[Action]:
    return spread.handle(Begin("b", "tasks", ("own",), 1.0, 10), now)


def sent(actions: list[Action], kind: type) -> list[Contact]:
    return [action.to for action in actions if isinstance(action, Send) and isinstance(action.message, kind)]


def answers(to: Spread, sender: Contact, length: int, *items: str, now: float = 0.1, **more: object) -> list[Action]:
    message = wire.Answers("b", length, list(items), **more)  # type: ignore[arg-type]
    return to.handle(Arrived(sender, message), now)


def test_alone_it_is_over_at_once() -> None:
    assert begin(peer()) == [Gathered("b", ("own",), 1, 0)]


def test_what_all_contacts_say_is_merged_with_our_own_answer() -> None:
    one, two = contact(4), contact(2)
    spread = peer(one, two)
    actions = begin(spread)
    assert sorted(sent(actions, wire.Broadcast)) == sorted([one, two])
    length = {action.to: action.message.length for action in actions if isinstance(action, Send)}
    assert answers(spread, one, length[one], "1", "1b", peers=2, missing=1) == []
    assert answers(spread, two, length[two], "2", peers=1) == [Gathered("b", ("own", "1", "1b", "2"), 4, 1)]


def test_of_many_contacts_one_in_each_eighth_gets_it() -> None:
    spread = peer(*(contact(top, rest) for top in range(8) for rest in (1, 2)))
    assert sorted({one.id >> BITS - 3 for one in sent(begin(spread), wire.Broadcast)}) == list(range(8))


def test_a_contact_that_does_not_confirm_is_replaced_and_forgotten_and_the_last_one_missed() -> None:
    one, two = contact(4, 1), contact(4, 2)
    spread = peer(*(contact(top, rest) for top in (1, 2, 3, 5, 6, 7) for rest in (1, 2)), one, two)
    first = next(to for to in sent(begin(spread), wire.Broadcast) if to in (one, two))
    due = spread.deadline()
    assert due == CONFIRM_WITHIN
    other = two if first == one else one
    assert other in sent(spread.handle(Tick(), due), wire.Broadcast)
    alone = peer(contact(4))
    begin(alone)
    assert alone.handle(Tick(), CONFIRM_WITHIN) == [Gathered("b", ("own",), 1, 1)]


def test_a_branch_that_confirmed_and_never_answers_is_missing_after_its_time_and_then_late() -> None:
    one = contact(4)
    spread = peer(one)
    begin(spread)
    assert spread.handle(Arrived(one, wire.Confirm("b", 1)), 0.1) == []
    ends = spread.deadline()
    assert ends == 1.0 + LEVEL_WAIT * levels_of(10)
    assert spread.handle(Tick(), ends) == [Gathered("b", ("own",), 1, 1)]
    assert answers(spread, one, 1, "late", peers=1, now=ends + 1.0) == []
    assert spread.late == 1


def test_a_broadcast_is_delivered_once_and_the_answer_goes_to_the_parent() -> None:
    spread, parent, other = peer(), contact(7), contact(6)
    message = wire.Broadcast("b", "tasks", 3, 2, 1.0)
    actions = spread.handle(Arrived(parent, message), 0.0)
    assert Deliver("b", "tasks") in actions and sent(actions, wire.Confirm) == [parent]
    again = spread.handle(Arrived(parent, message), 0.1)
    assert again == [Send(parent, wire.Confirm("b", 3, had_it=False))], "its confirmation may have been lost"
    assert spread.handle(Arrived(other, message), 0.1) == [Send(other, wire.Confirm("b", 3, had_it=True))]
    assert spread.handle(Answer("b", ("mine",)), 0.2) == [Send(parent, wire.Answers("b", 3, ["mine"], 1, 0))]


def test_a_larger_region_that_comes_later_is_covered_too_without_a_second_answer_of_ours() -> None:
    near, far = contact(0, 5), contact(1)
    spread, parent, other = peer(near, far), contact(7), contact(6)
    spread.handle(Arrived(parent, wire.Broadcast("b", "tasks", 3, 2, 1.0)), 0.0)
    spread.handle(Answer("b", ("mine",)), 0.1)
    actions = spread.handle(Arrived(other, wire.Broadcast("b", "tasks", 2, 2, 1.0)), 0.2)
    assert far in sent(actions, wire.Broadcast)
    assert not [action for action in actions if isinstance(action, Deliver)]


def test_many_answers_travel_in_bounded_messages() -> None:
    spread, parent = peer(), contact(7)
    spread.handle(Arrived(parent, wire.Broadcast("b", "tasks", 3, 2, 1.0)), 0.0)
    items = tuple(map(str, range(2 * wire.MAX_ITEMS + 1)))
    messages = [action.message for action in spread.handle(Answer("b", items), 0.1) if isinstance(action, Send)]
    assert [(len(one.items), one.more) for one in messages if isinstance(one, wire.Answers)] == [
        (wire.MAX_ITEMS, True), (wire.MAX_ITEMS, True), (1, False),
    ]  # fmt: skip


def test_numbers_out_of_bounds_are_ignored() -> None:
    one = contact(4)
    spread = peer(one)
    for length, levels, within in ((-1, 1, 1.0), (BITS + 1, 1, 1.0), (1, DEEPEST + 1, 1.0), (1, 1, 1e9)):
        assert spread.handle(Arrived(one, wire.Broadcast("x", "", length, levels, within)), 0.0) == []
    begin(spread)
    assert answers(spread, one, 1, peers=-1) == []
    assert spread.ignored == 5


def test_texts_are_divided_into_parts_of_a_bounded_size() -> None:
    assert parts_of(["aa", "bb", "c", "dddd"], 4) == [["aa", "bb"], ["c"], ["dddd"]]
    assert parts_of([], 4) == []
