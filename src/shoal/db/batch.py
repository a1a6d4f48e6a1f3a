"""A batch of changes sorted by table, with only the last word on each row. Touches no database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from shoal.engine.changes import ArrayRow, Change, HostRow, PilotRow, RunRow, SpanDrop, SpanRow, TaskRow
from shoal.model.event import Event
from shoal.model.people import AuditRow, GroupRow, TokenRow, UserRow

EVENT_BYTES = 100  # what an event takes besides its data: columns, index entry, room left in pages
_encoder = msgspec.json.Encoder()

EventValues = tuple[int, float, str, int | None, int | None, int | None, str | None, str | None, str, str]


class Batch:
    """Rows ready for the tables; rows of one table in order of their keys, which is the order of its pages."""

    def __init__(self, changes: Sequence[Change]) -> None:
        runs: dict[int, RunRow] = {}
        tasks: dict[tuple[int, int], TaskRow] = {}
        pilots: dict[str, PilotRow] = {}
        hosts: dict[tuple[str, ...], HostRow] = {}
        tokens: dict[str, TokenRow] = {}
        self.arrays: list[ArrayRow] = []
        self.spans: list[SpanRow | SpanDrop] = []  # in the order given: a drop may follow or precede its span
        self.events: list[EventValues] = []
        self.people: list[UserRow | GroupRow] = []
        self.audit: list[AuditRow] = []
        for change in changes:
            if isinstance(change, TaskRow):
                tasks[change.run, change.element] = change
            elif isinstance(change, Event):
                self.events.append(
                    (
                        change.seq, change.time, change.kind, change.run, change.task, change.attempt, change.pilot,
                        change.site, encode(change.data), change.owner,
                    )
                )  # fmt: skip
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
            elif isinstance(change, AuditRow):
                self.audit.append(change)
            elif isinstance(change, TokenRow):
                tokens[change.token] = change
            else:
                self.people.append(change)
        self.runs = list(runs.values())
        self.pilots = list(pilots.values())
        self.hosts = list(hosts.values())
        self.tokens = list(tokens.values())
        self.tasks = sorted(tasks.values())  # the keys differ, so nothing behind them is ever compared

    @property
    def event_bytes(self) -> int:
        """What the events are counted as."""
        return sum(len(event[-2]) + EVENT_BYTES for event in self.events)


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
    if isinstance(change, Event):
        return replace(
            change,
            kind=plain(change.kind),
            pilot=None if change.pilot is None else plain(change.pilot),
            site=None if change.site is None else plain(change.site),
        )
    row: Any = change
    cleaned: Change = row._make(plain(value) if isinstance(value, str) else value for value in row)
    return cleaned
