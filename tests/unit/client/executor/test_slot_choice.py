"""Free slots for a run that picks its next task itself."""

from __future__ import annotations

from typing import Any

from shoal.client.executor.slot_choice import free_slots


def pilot(name: str, free: int, **more: Any) -> dict[str, Any]:
    own = {"pilot": name, "state": "idle", "host": "h", "site": "s", "owner": "ann", "cores": 4, "memory": 0, "gpus": 0}
    return {**own, "free": free, "tags": {"disk": "ssd"}, **more}


def names(rows: list[dict[str, Any]], cores: int = 1, on_the_way: int = 0) -> list[str]:
    return [str(slot["pilot"]) for slot in free_slots(rows, cores, on_the_way)]


def test_each_free_slot_is_offered_once_the_emptiest_pilot_first() -> None:
    assert names([pilot("p1", 1), pilot("p2", 3)]) == ["p2", "p2", "p2", "p1"]
    assert names([pilot("p1", 1), pilot("p2", 3)], cores=2) == ["p2"]


def test_tasks_that_are_on_the_way_have_their_slots() -> None:
    assert names([pilot("p1", 2)], on_the_way=1) == ["p1"]
    assert names([pilot("p1", 2)], on_the_way=5) == []


def test_pilots_that_take_nothing_offer_nothing() -> None:
    shut: list[dict[str, Any]] = [
        {"state": "gone"},
        {"state": "draining"},
        {"suspect": True},
        {"banned": "host h: it failed"},
    ]
    assert names([pilot("p1", 2, **one) for one in shut]) == []


def test_where_no_pilot_is_one_task_goes_ahead_since_a_pilot_may_be_started_for_it() -> None:
    assert free_slots([], 1, 0) == [{}]
    assert free_slots([], 1, 1) == []


def test_a_slot_tells_the_tags_of_its_pilot() -> None:
    (slot,) = free_slots([pilot("p1", 1)], 1, 0)
    assert (slot["disk"], slot["host"], slot["free_cores"]) == ("ssd", "h", 1)
