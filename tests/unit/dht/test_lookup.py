from __future__ import annotations

from random import Random

from shoal.dht.key import BITS
from shoal.dht.lookup import MAX_ASKED, PARALLEL, Lookup
from shoal.dht.routing_table import BUCKET_SIZE, Contact


def contact(id: int) -> Contact:
    return Contact(id, "10.0.0.1:1")


def play(lookup: Lookup, world: list[int], rng: Random, dead: frozenset[int] = frozenset()) -> list[int]:
    """Answer a lookup as peers would that know everybody; returns whom it asked, in order."""
    asked, waiting = [], []
    while True:
        queries = lookup.next_queries()
        asked += [query.contact.id for query in queries]
        waiting += [query.contact.id for query in queries]
        if not waiting:
            assert lookup.is_done
            return asked
        id = waiting.pop(rng.randrange(len(waiting)))
        if id in dead:
            lookup.note_failure(id)
        else:
            known = rng.sample(world, min(len(world), 40))
            closest = sorted(known, key=lambda one: one ^ lookup.key)[:BUCKET_SIZE]
            lookup.note_answer(id, [contact(one) for one in closest])


def test_it_ends_asks_nobody_twice_and_few_at_a_time() -> None:
    for seed in range(30):
        rng = Random(seed)
        world = [rng.getrandbits(BITS) for _ in range(200)]
        dead = frozenset(rng.sample(world, 40))
        lookup = Lookup(rng.getrandbits(BITS), 1, [contact(id) for id in world[:5]], wants_holders=False)
        asked = play(lookup, world, rng, dead)
        assert len(asked) == len(set(asked)) <= MAX_ASKED
        assert not dead & {one.id for one in lookup.closest()}
    lookup = Lookup(0, 1, [contact(id) for id in range(2, 40)], wants_holders=False)
    assert len(lookup.next_queries()) == PARALLEL
    assert lookup.next_queries() == []
    assert not lookup.is_done


def test_it_ends_with_the_first_holder_that_is_named() -> None:
    lookup = Lookup(0, 1, [contact(2), contact(3)], wants_holders=True)
    lookup.next_queries()
    lookup.note_answer(2, [contact(4)], [contact(9)])
    assert lookup.next_queries() == []
    assert lookup.is_done
    assert list(lookup.holders) == [9]


def test_an_answer_that_nobody_asked_for_or_that_is_late_counts_for_nothing() -> None:
    lookup = Lookup(0, 1, [contact(2)], wants_holders=True)
    lookup.next_queries()
    lookup.note_answer(3, [], [contact(9)])
    lookup.note_failure(2)
    lookup.note_answer(2, [], [contact(9)])
    assert not lookup.holders
    assert lookup.is_done


def test_disjoint_paths_share_no_peer_and_one_liar_misleads_one_path_only() -> None:
    liars = list(range(1 << 20, (1 << 20) + 200))  # that name each other, closer to the key than all honest ones
    honest = [(index + 1) << 30 for index in range(9)]
    lookup = Lookup(1 << 20, 1, [contact(liars[-1]), *map(contact, honest)], wants_holders=True, paths=3)
    asked: list[int] = []
    while queries := lookup.next_queries():
        for query in queries:
            id = query.contact.id
            asked.append(id)
            if id in liars:
                lookup.note_answer(id, [contact(one) for one in liars if one not in asked][:BUCKET_SIZE])
            else:
                lookup.note_answer(id, [], [contact(77)] if id == honest[4] else [])
    assert len(asked) == len(set(asked)) <= MAX_ASKED
    assert sum(1 for id in asked if id in liars) > 3, "one path was led astray"
    assert list(lookup.holders) == [77], "another one found it"
