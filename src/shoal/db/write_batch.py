"""A batch of changes sorted by statement, with only the latest version of each row. Touches no database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from shoal.engine import changes as rows
from shoal.engine.changes import (
    AcctAdd,
    ArrayTable,
    Change,
    ChunkDrop,
    ChunkRow,
    PlaceRow,
    RunDrop,
    SpanDrop,
    SpanRow,
    Successes,
)
from shoal.engine.snapshot import SpentRow
from shoal.model.blobs import BLOB_CHANGES, BlobChange
from shoal.model.event import Event
from shoal.model.people import AuditRow, GroupRow, SiteRow, TokenRow, UserRow

EVENT_BYTES = 100  # what an event takes besides its data: columns, index entry, space left in pages
KEYS = AcctAdd._fields.index("useful")  # the fields of an accounting row before this one are its key
# Rows that replace an earlier version: the statement that writes one, and how many of its first fields are its key.
_LATEST: dict[type, tuple[str, int]] = {
    rows.RunRow: ("put_run", 1), rows.TaskRow: ("put_task", 2), rows.PilotRow: ("put_pilot", 1),
    rows.HostRow: ("put_host", 4), rows.UsageRow: ("put_usage", 1),
    rows.PartialRow: ("put_partial", 1), rows.GrowthRow: ("put_growth", 1), rows.GrownRow: ("put_grown", 3),
    rows.PlanRow: ("put_plan", 1),
    PlaceRow: ("put_place", 3), TokenRow: ("put_token", 1),
}  # fmt: skip
_EVERY: dict[type, str] = {  # rows that are all written, in the order given
    rows.ArrayRow: "add_array", rows.PolicyRow: "add_policy", AuditRow: "add_audit", UserRow: "put_user",
    rows.NoticeRow: "add_notice", rows.NoticeDrop: "drop_notice", GroupRow: "put_group", SiteRow: "put_site",
}  # fmt: skip
_encoder = msgspec.json.Encoder()

EventValues = tuple[int, float, str, int | None, int | None, int | None, str | None, str | None, str, str]


class Batch:
    """Rows ready for the tables; tasks and accounts in order of their keys, which is the order of their pages."""

    def __init__(self, changes: Sequence[Change]) -> None:
        latest: dict[str, dict[Any, Any]] = {}
        chunks: dict[ChunkDrop, ChunkRow] = {}
        acct: dict[tuple[Any, ...], AcctAdd] = {}
        self.rows: dict[str, list[Any]] = {}  # statement -> its rows
        self.chunk_drops: list[ChunkDrop] = []
        self.spans: list[SpanRow | SpanDrop] = []  # in the order given: a drop may follow or precede its span
        self.events: list[EventValues] = []
        self.blobs: list[BlobChange] = []  # in the order given, as spans
        self.run_drops: list[RunDrop] = []
        self.tables: list[ArrayTable] = []  # of arrays that are there, or are inserted by this batch
        self.successes: list[Successes] = []  # of elements that had no row, so before `tasks`
        for change in changes:
            kind = type(change)
            if kind in _LATEST:
                statement, fields = _LATEST[kind]
                latest.setdefault(statement, {})[change[:fields]] = change
            elif kind in _EVERY:
                self.rows.setdefault(_EVERY[kind], []).append(change)
            elif isinstance(change, Successes):
                self.successes.append(change)
            elif isinstance(change, Event):
                self.events.append(
                    (
                        change.seq, change.time, change.kind, change.run, change.task, change.attempt, change.pilot,
                        change.site, encode(change.data), change.owner,
                    )
                )  # fmt: skip
            elif isinstance(change, ChunkRow):
                chunks[ChunkDrop(change.run, change.low, change.number, change.incarnation)] = change
            elif isinstance(change, ChunkDrop):
                if chunks.pop(change, None) is None:  # it may have come and gone in one batch
                    self.chunk_drops.append(change)
            elif isinstance(change, AcctAdd):
                key = change[:KEYS]
                acct[key] = added(acct[key], change) if key in acct else change
            elif isinstance(change, RunDrop):
                self.run_drops.append(change)
            elif isinstance(change, ArrayTable):
                self.tables.append(change)
            elif isinstance(change, (SpanRow, SpanDrop)):
                self.spans.append(change)
            else:
                assert isinstance(change, BLOB_CHANGES), change
                self.blobs.append(change)
        self.tasks = sorted(latest.pop("put_task", {}).values())  # the keys differ, so only they are compared
        places = latest.pop("put_place", {}).values()
        self.acct = sorted(acct.values(), key=lambda row: (row.owner, row))
        self.rows |= {statement: list(found.values()) for statement, found in latest.items()}
        self.rows |= {
            "put_chunk": list(chunks.values()), "drop_chunk": self.chunk_drops, "add_spent": _spent(self.acct),
            "put_place": [row for row in places if row.data], "drop_place": [row[:3] for row in places if not row.data],
        }  # fmt: skip

    @property
    def event_bytes(self) -> int:
        """The size that the events are counted with, without those of successes."""
        return sum(len(event[-2]) + EVENT_BYTES for event in self.events)


def added(row: AcctAdd, more: AcctAdd) -> AcctAdd:
    """The sum of two increments of one accounting row."""
    return AcctAdd(*row[:KEYS], *(a + b for a, b in zip(row[KEYS:], more[KEYS:], strict=True)))  # type: ignore[arg-type,operator]  # behind its key are numbers


def _spent(found: list[AcctAdd]) -> list[SpentRow]:
    """Core time by owner, site and hour, whatever it was spent for."""
    sums: dict[tuple[str, str, int], float] = {}
    for row in found:
        key = (row.owner, row.site, row.hour)
        sums[key] = sums.get(key, 0.0) + row.useful + row.failed + row.lost + row.duplicated
    return [SpentRow(*key, seconds) for key, seconds in sums.items() if seconds]


def encode(data: dict[str, Any]) -> str:
    """An event's data as compact JSON."""
    try:
        return _encoder.encode(data).decode()
    except (UnicodeEncodeError, OverflowError):  # a lone surrogate, or a number of more than 64 bits
        return plain(json.dumps(data, separators=(",", ":"), ensure_ascii=False))


def plain(text: str) -> str:
    """The text with `?` for every character that has no UTF-8 form."""
    return text.encode("utf-8", "replace").decode()


def clean(changes: Sequence[Change]) -> list[Change]:
    """The same changes with only characters that can be written."""
    return [_clean(change) for change in changes]


def _clean(change: Change) -> Change:
    if isinstance(change, Successes):
        columns = change.columns
        printed = [plain(line) for line in columns.last_line]
        return change._replace(columns=replace(columns, last_line=printed, result=[plain(t) for t in columns.result]))
    row: Any = change
    cleaned: Change = row._make(plain(value) if isinstance(value, str) else value for value in row)
    return cleaned
