from __future__ import annotations

from collections import Counter
from random import Random

from shoal.dht.records import MAX_HOLDERS, Records
from shoal.dht.routing_table import Contact


def contact(id: int) -> Contact:
    return Contact(id, f"10.0.0.1:{id + 1}")


def ids(records: Records, key: int, now: float = 0.0) -> list[int]:
    return [holder.contact.id for holder in records.holders(key, now)]


def check(records: Records) -> None:
    """Every index can be made anew from the records."""
    held = {key: records._holders[key] for key in records}
    assert all(held.values()), "a record without holders is no record"
    by_holder: dict[int, set[int]] = {}
    for key, holders in held.items():
        for id in holders:
            by_holder.setdefault(id, set()).add(key)
    assert records._keys_of == by_holder
    assert records._told == Counter(holder.source for holders in held.values() for holder in holders.values())
    assert sorted(records._keys) == sorted(held)
    assert {key: records._keys[place] for key, place in records._place.items()} == {key: key for key in held}


def test_a_second_holder_is_appended_and_the_latest_is_named_first() -> None:
    """[LBO D3]: a store of a known key appends."""
    records = Records(Random(1))
    for id in (1, 2, 3, 1):
        assert records.store(9, contact(id), 10.0, id)
    assert ids(records, 9) == [1, 3, 2]


def test_what_has_expired_is_not_told_and_then_forgotten() -> None:
    records = Records(Random(1))
    records.store(9, contact(1), 10.0, 1)
    records.store(9, contact(2), 20.0, 2)
    assert ids(records, 9, 10.0) == [2]
    records.expire(10.0)
    records.expire(20.0)
    assert len(records) == 0
    check(records)


def test_a_renewal_never_shortens() -> None:
    records = Records(Random(1))
    records.store(9, contact(1), 20.0, 1)
    records.store(9, contact(1), 10.0, 2)
    assert ids(records, 9, 15.0) == [1]


def test_a_peer_that_is_gone_holds_nothing() -> None:
    records = Records(Random(1))
    for key in range(5):
        records.store(key, contact(1), 10.0, 1)
        records.store(key, contact(2), 10.0, 2)
    records.remove_holder(1)
    records.withdraw(2, [0, 1, 99])
    assert [ids(records, key) for key in range(5)] == [[], [], [2], [2], [2]]
    check(records)


def test_all_is_bounded_and_one_source_cannot_fill_it() -> None:
    records = Records(Random(1), most=50, most_of_one=30)
    told = [records.store(key, contact(1), 10.0, 1) for key in range(100)]
    assert told.count(True) == 30
    for key in range(1_000):
        assert records.store(1_000 + key, contact(2 + key % 40), 10.0, 2 + key % 40)
    assert len(records) == 50
    for id in range(100):
        records.store(5_000, contact(id), 10.0, 1_000 + id)
    assert len(ids(records, 5_000)) == MAX_HOLDERS
    check(records)


def test_indexes_stay_right_whatever_happens() -> None:
    rng = Random(5)
    records = Records(Random(6), most=20, most_of_one=15)
    for step in range(3_000):
        key, id = rng.randrange(40), rng.randrange(25)
        act = rng.random()
        if act < 0.7:
            records.store(key, contact(id), step + rng.uniform(1.0, 500.0), rng.randrange(25))
        elif act < 0.85:
            records.withdraw(id, [key])
        elif act < 0.95:
            records.remove_holder(id)
        else:
            records.expire(float(step))
        if step % 50 == 0:
            check(records)
    check(records)
