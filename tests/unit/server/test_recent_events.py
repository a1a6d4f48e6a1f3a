"""The newest events in memory: as the database has them, without a gap, and only while somebody follows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal.db.reader import Reader
from shoal.db.sqlite import Database
from shoal.engine.changes import Successes
from shoal.engine.commands import Cancel, Submit
from shoal.model.event import Event
from shoal.model.timing import Timing
from shoal.server import recent_events
from shoal.server.disk_reserve import Reserve
from shoal.server.recent_events import KEPT, RecentEvents
from shoal.server.service import Service
from shoal.wire.submission import parse_submission


def event(seq: int, run: int | None = 1, kind: str = "task_finished") -> Event:
    return Event(seq, 5.0, kind, run, seq, 1, "p1", "local", {"state": "succeeded"}, "anna")


def seqs(kept: RecentEvents, run: int, after: int, limit: int = 99, kinds: list[str] | None = None) -> list[int] | None:
    found = kept.of_run(run, after, limit, kinds)
    return [row["seq"] for row in found[1]] if found is not None else None


def following() -> RecentEvents:
    kept = RecentEvents()
    kept.follow(100.0)
    return kept


def test_they_are_what_the_database_has(tmp_path: Path) -> None:
    async def story() -> None:
        service = Service(Database.open(tmp_path / "shoal.db"), tmp_path, Timing(), "own", Reserve(tmp_path))
        try:
            service.events.follow(service.clock())
            for number in (1, 2):
                body: dict[str, Any] = {"tasks": [{"command": ["true"], "array": "1-3"}], "name": f"n{number}"}
                await service.command(Submit(parse_submission(body), "anna", f"d{number}"))
            await service.command(Cancel((2,)))
            for run, after, limit, kinds in (
                (1, 0, 9, None), (2, 0, 9, None), (2, 0, 1, None), (2, 2, 9, None), (2, 0, 9, ["run_finished"]),
            ):  # fmt: skip
                found = service.events.of_run(run, after, limit, kinds)
                assert found is not None and found[0] == service.reader.last_seq()
                rows = Reader(tmp_path / "shoal.db").events(after=after, limit=limit, run=run, kinds=kinds, raw=True)
                assert msgspec.json.encode(found[1]) == msgspec.json.encode(rows) and rows
        finally:
            await service.close()

    asyncio.run(story())


def test_nothing_is_kept_if_nobody_follows() -> None:
    kept = following()
    kept.add([[event(4)]], 99.0)
    assert seqs(kept, 1, 3) == [4]
    kept.add([[event(5)]], 100.0 + KEPT)
    assert kept.of_run(1, 3, 9, None) is None


def test_who_begins_before_them_reads_the_database_unless_the_run_began_here() -> None:
    kept = following()
    kept.add([[event(4), event(5, run=2, kind="run_submitted")], [event(6, run=2), event(7, run=None)]], 1.0)
    assert seqs(kept, 1, 2) is None and seqs(kept, 1, 3) == [4] and seqs(kept, 1, 7) == []
    assert seqs(kept, 2, 0) == [5, 6] and seqs(kept, 2, 0, limit=1) == [5]
    assert seqs(kept, 2, 0, kinds=["task_finished"]) == [6]
    assert seqs(kept, 3, 0) is None and seqs(kept, 3, 3) == []


def test_after_successes_that_are_written_together_or_a_gap_they_begin_anew() -> None:
    kept = following()
    kept.add([[event(4)]], 1.0)
    together = Successes._make([0] * len(Successes._fields))
    kept.add([[event(5)], [together]], 1.0)
    assert seqs(kept, 1, 4) is None
    kept.add([[event(9)]], 1.0)
    assert seqs(kept, 1, 8) == [9] and seqs(kept, 1, 7) is None
    kept.add([[event(12)]], 1.0)
    assert seqs(kept, 1, 11) == [12] and seqs(kept, 1, 8) is None


def test_they_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_events, "MOST", 10)
    kept = following()
    for seq in range(1, 12):
        kept.add([[event(seq)]], 1.0)
    assert seqs(kept, 1, 6) == [7, 8, 9, 10, 11] and seqs(kept, 1, 5) is None
