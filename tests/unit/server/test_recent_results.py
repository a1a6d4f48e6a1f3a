"""The latest finals in memory: nothing is told twice or left out, and who comes too late is sent to the database."""

from __future__ import annotations

import pytest

from shoal.db.reader import Results
from shoal.engine.changes import Closed, ClosedRow, Final, ResultRow
from shoal.server import recent_results
from shoal.server.recent_results import RecentResults, foreign_elements, page_of


def final(seq: int, run: int = 1, text: str = "gAU=") -> Final:
    return Final(run, seq, ResultRow(seq, "succeeded", text, "", "", 1, "", 0, 0))


def test_what_comes_after_a_place_is_told_and_what_was_heard_goes() -> None:
    kept = RecentResults()
    kept.follow(1, 10)
    kept.add([final(11), final(12), final(13, run=2), final(14)])
    assert kept.take(2, 0, 9) is None, "nobody follows that run"
    assert [e.seq for e in kept.take(1, 10, 2) or ()] == [11, 12]
    assert [e.seq for e in kept.take(1, 12, 9) or ()] == [14]
    assert kept.take(1, 10, 9) is None, "it was heard, and is gone"
    assert kept.take(1, 14, 9) == []


def test_who_begins_before_the_memory_is_sent_to_the_database() -> None:
    kept = RecentResults()
    kept.follow(1, 10)
    assert kept.take(1, 9, 5) is None
    kept.follow(1, 50)
    assert kept.take(1, 10, 5) == [], "following twice changes nothing"


def test_too_many_drop_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_results, "MAX_RECENT", 10)
    kept = RecentResults()
    kept.follow(1, 0)
    kept.add(final(seq) for seq in range(1, 25))
    assert kept.take(1, 0, 100) is None
    found = kept.take(1, 20, 100)
    assert found is not None and [e.seq for e in found] == [21, 22, 23, 24]


def test_too_many_bytes_drop_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_results, "MAX_RECENT_BYTES", 5_000)
    kept = RecentResults()
    kept.follow(1, 0)
    kept.add(final(seq, text="x" * 1000) for seq in range(1, 9))
    assert kept.take(1, 0, 100) is None and len(kept.take(1, 7, 100) or ()) == 1


def test_runs_that_left_memory_take_theirs_with_them() -> None:
    kept = RecentResults()
    kept.follow(1, 0)
    kept.follow(2, 0)
    kept.forget([2])
    assert (kept.take(1, 0, 1), kept.take(2, 0, 1)) == (None, [])


def test_ranges_are_told_apart_from_single_ones() -> None:
    closed = Closed(1, 5, ClosedRow(3, 9, "cancelled", "cancelled", "why"))
    assert page_of([final(4), closed], 3) == Results([final(4).row], [closed.row], 5, [""])
    assert page_of([], 3) == Results([], [], 3, [])


def test_elements_of_others_pilots_are_named_where_something_was_returned() -> None:
    rows = [final(1).row, final(2).row, final(3, text="").row, final(4).row]
    assert foreign_elements(Results(rows, [], 4, ["anna", "", "", "mike"]), "anna") == [2, 4]
    assert foreign_elements(Results(rows, [], 4, ["anna"] * 4), "anna") == []
    assert foreign_elements(Results([], [], 4, []), "anna") == []
