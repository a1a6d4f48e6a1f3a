from __future__ import annotations

from random import Random

from shoal.dht.key import BITS
from shoal.dht.routing_table import Contact, RoutingTable


def contact(id: int) -> Contact:
    return Contact(id, f"10.0.0.1:{id % 60_000 + 1}")


def test_a_full_bucket_drops_the_contact_that_was_seen_least_recently() -> None:
    """[LBO D3]: unlike the original, which keeps the oldest."""
    table = RoutingTable(0, 0.0, size=3)
    for id in (0b1000, 0b1001, 0b1010):
        assert table.note_seen(contact(id)) is None
    table.note_seen(contact(0b1000))  # seen again: now the most recent
    assert table.note_seen(contact(0b1011)) == contact(0b1001)
    assert {one.id for one in table} == {0b1000, 0b1010, 0b1011}


def test_a_contact_that_others_name_takes_a_free_place_only() -> None:
    table = RoutingTable(0, 0.0, size=2)
    table.note_seen(contact(0b1000))
    table.note_told(contact(0b1001))
    table.note_told(contact(0b1010))
    assert {one.id for one in table} == {0b1000, 0b1001}
    assert table.note_seen(contact(0b1011)) == contact(0b1001), "one that was only named goes before one that was seen"


def test_our_own_id_is_no_contact_and_a_contact_that_is_gone_is_forgotten() -> None:
    table = RoutingTable(7, 0.0)
    table.note_seen(contact(7))
    table.note_told(contact(7))
    assert len(table) == 0
    assert table.next_refresh(900.0) is None
    table.note_seen(contact(8))
    assert table.remove(8)
    assert not table.remove(8)
    assert len(table) == 0


def test_the_closest_are_those_with_the_smallest_distance() -> None:
    rng = Random(3)
    table, ids = RoutingTable(rng.getrandbits(BITS), 0.0, size=400), [rng.getrandbits(BITS) for _ in range(300)]
    for id in ids:
        table.note_seen(contact(id))
    for _ in range(20):
        key = rng.getrandbits(BITS)
        assert [one.id for one in table.closest(key, 5)] == sorted(ids, key=lambda id: id ^ key)[:5]


def test_the_bucket_without_a_lookup_for_longest_is_refreshed_first() -> None:
    table = RoutingTable(0, 100.0)
    for id in (1, 2, 4):
        table.note_seen(contact(id))
    table.note_lookup(1, 200.0)
    table.note_lookup(2, 150.0)
    assert table.next_refresh(900.0) == (1000.0, 2)
    table.note_lookup(4, 300.0)
    assert table.next_refresh(900.0) == (1050.0, 1)
