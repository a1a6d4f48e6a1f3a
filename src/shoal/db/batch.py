"""A batch of changes sorted by table, with only the last word on each row. Touches no database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from shoal.engine.changes import (
    AcctAdd,
    ArrayRow,
    Change,
    ChunkDrop,
    ChunkRow,
    HostRow,
    PilotRow,
    PlaceRow,
    PolicyRow,
    RunRow,
    SpanDrop,
    SpanRow,
    Successes,
    TaskRow,
    UsageRow,
)
from shoal.model.blobs import BLOB_CHANGES, BlobChange
from shoal.model.event import Event
from shoal.model.people import AuditRow, GroupRow, SiteRow, TokenRow, UserRow

EVENT_BYTES = 100  # what an event takes besides its data: columns, index entry, room left in pages
KEYS = AcctAdd._fields.index("useful")  # of the fields of a line of the accounts, so many say which line it is
_encoder = msgspec.json.Encoder()

EventValues = tuple[int, float, str, int | None, int | None, int | None, str | None, str | None, str, str]


class Batch:
    """Rows ready for the tables; rows of one table in order of their keys, which is the order of its pages."""

    def __init__(self, changes: Sequence[Change]) -> None:
        runs: dict[int, RunRow] = {}
        tasks: dict[tuple[int, int], TaskRow] = {}
        pilots: dict[str, PilotRow] = {}
        hosts: dict[tuple[str, ...], HostRow] = {}
        chunks: dict[tuple[int, int, int, int], ChunkRow] = {}
        self.chunk_drops: list[ChunkDrop] = []
        tokens: dict[str, TokenRow] = {}
        acct: dict[tuple[Any, ...], AcctAdd] = {}
        usage: dict[str, UsageRow] = {}
        places: dict[tuple[str, str, str], PlaceRow] = {}
        self.policies: list[PolicyRow] = []
        self.arrays: list[ArrayRow] = []
        self.spans: list[SpanRow | SpanDrop] = []  # in the order given: a drop may follow or precede its span
        self.events: list[EventValues] = []
        self.people: list[UserRow | GroupRow | SiteRow] = []
        self.audit: list[AuditRow] = []
        self.blobs: list[BlobChange] = []  # in the order given, as spans
        self.successes: list[Successes] = []  # of elements that had no row, so before `tasks`
        for change in changes:
            if isinstance(change, Successes):
                self.successes.append(change)
            elif isinstance(change, TaskRow):
                tasks[change.run, change.element] = change
            elif isinstance(change, Event):
                self.events.append(
                    (
                        change.seq, change.time, change.kind, change.run, change.task, change.attempt, change.pilot,
                        change.site, encode(change.data), change.owner,
                    )
                )  # fmt: skip
            elif isinstance(change, ChunkRow):
                chunks[change.run, change.low, change.number, change.incarnation] = change
            elif isinstance(change, ChunkDrop):
                if chunks.pop(change, None) is None:  # it may have come and gone in one batch
                    self.chunk_drops.append(change)
            elif isinstance(change, AcctAdd):
                key = change[:KEYS]
                acct[key] = added(acct[key], change) if key in acct else change
            elif isinstance(change, RunRow):
                runs[change.run] = change
            elif isinstance(change, PilotRow):
                pilots[change.pilot] = change
            elif isinstance(change, ArrayRow):
                self.arrays.append(change)
            elif isinstance(change, (SpanRow, SpanDrop)):
                self.spans.append(change)
            elif isinstance(change, HostRow):
                hosts[change[:4]] = change
            elif isinstance(change, UsageRow):
                usage[change.owner] = change
            elif isinstance(change, PlaceRow):
                places[change.holder, change.kind, change.name] = change
            elif isinstance(change, PolicyRow):
                self.policies.append(change)
            elif isinstance(change, AuditRow):
                self.audit.append(change)
            elif isinstance(change, BLOB_CHANGES):
                self.blobs.append(change)
            elif isinstance(change, TokenRow):
                tokens[change.token] = change
            else:
                self.people.append(change)
        self.runs = list(runs.values())
        self.pilots = list(pilots.values())
        self.hosts = list(hosts.values())
        self.chunks = list(chunks.values())
        self.tokens = list(tokens.values())
        self.acct = sorted(acct.values(), key=lambda line: (line.owner, line))
        self.spent = _spent(self.acct)
        self.usage = list(usage.values())
        self.places = [place for place in places.values() if place.data]
        self.healed = [place[:3] for place in places.values() if not place.data]
        self.tasks = sorted(tasks.values())  # the keys differ, so nothing behind them is ever compared

    @property
    def event_bytes(self) -> int:
        """What the events are counted as; those of successes are not among them."""
        return sum(len(event[-2]) + EVENT_BYTES for event in self.events)


def added(line: AcctAdd, more: AcctAdd) -> AcctAdd:
    """Two increments of one line as one."""
    return AcctAdd(*line[:KEYS], *(a + b for a, b in zip(line[KEYS:], more[KEYS:], strict=True)))  # type: ignore[arg-type,operator]  # behind its key are numbers


def _spent(lines: list[AcctAdd]) -> list[tuple[str, str, int, float]]:
    """Core time by owner, site and hour, whatever it was spent for."""
    found: dict[tuple[str, str, int], float] = {}
    for line in lines:
        key = (line.owner, line.site, line.hour)
        found[key] = found.get(key, 0.0) + line.useful + line.failed + line.lost + line.duplicated
    return [(*key, seconds) for key, seconds in found.items() if seconds]


def encode(data: dict[str, Any]) -> str:
    """An event's data as compact JSON."""
    try:
        return _encoder.encode(data).decode()
    except (UnicodeEncodeError, OverflowError):  # a lone surrogate, or a number of more than 64 bits
        return plain(json.dumps(data, separators=(",", ":"), ensure_ascii=False))


def values_of(told: Successes) -> tuple[list[Any], list[Any], int]:
    """What differs between rows, and between events, one after another; and what the events are counted as."""
    rows: list[Any] = []
    events: list[Any] = []
    size, seq, data = 0, told.seq, told.data
    for values in told.values():
        element, started, duration, cpu, rss, _, _ = values
        text = _encoder.encode(data(started, duration, cpu, rss)).decode()
        rows += values
        events += (seq, element, text)
        size += len(text) + EVENT_BYTES
        seq += 1
    return rows, events, size


def plain(text: str) -> str:
    """The text with `?` for every character that has no UTF-8 form."""
    return text.encode("utf-8", "replace").decode()


def clean(changes: Sequence[Change]) -> list[Change]:
    """The same changes with only characters that can be written."""
    return [_clean(change) for change in changes]


def _clean(change: Change) -> Change:
    if isinstance(change, Successes):
        said = change.columns
        lines = [plain(line) for line in said.last_line]
        return change._replace(columns=replace(said, last_line=lines, result=[plain(text) for text in said.result]))
    if isinstance(change, Event):
        return change._replace(
            kind=plain(change.kind),
            pilot=None if change.pilot is None else plain(change.pilot),
            site=None if change.site is None else plain(change.site),
        )
    row: Any = change
    cleaned: Change = row._make(plain(value) if isinstance(value, str) else value for value in row)
    return cleaned
