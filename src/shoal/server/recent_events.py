"""The newest events of the journal, kept in memory while somebody follows a small run: that costs the database nothing.

Only committed events are here, without a gap. Who is too late, and who follows a large run, of which a query brings many
events at once, reads the database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from shoal.db.write_batch import encode
from shoal.engine.changes import Change, Successes
from shoal.model.event import Event

MOST = 1_000  # events that are kept
KEPT = 10.0  # seconds that they are kept for the next request of a follower


class RecentEvents:
    """The newest events, oldest first."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._since: int | None = None  # every event after it is here; None: not known
        self._until = 0.0  # somebody follows until then

    def follow(self, until: float) -> None:
        """Keep what comes: somebody follows a run until then, and goes on a moment later."""
        self._until = max(self._until, until + KEPT)

    def add(self, written: Iterable[Sequence[Change]], now: float) -> None:
        """Add the events among changes that are committed."""
        if now >= self._until:
            self._forget()
            return
        events: list[Event] = []
        for changes in written:
            for change in changes:
                kind = type(change)
                if kind is Event:
                    events.append(change)  # type: ignore[arg-type]  # it is one
                elif kind is Successes:  # many events
                    self._forget()
                    return
        for event in events:
            if self._events and event.seq != self._events[-1].seq + 1:
                self._forget()
            if self._since is None:
                self._since = event.seq - 1
            self._events.append(event)
        if len(self._events) > MOST:
            self._since = self._events[-MOST // 2 - 1].seq
            del self._events[: -MOST // 2]

    def _forget(self) -> None:
        self._events, self._since = [], None

    def of_run(
        self, run: int, after: int, limit: int, kinds: Collection[str] | None
    ) -> tuple[int, list[dict[str, Any]]] | None:
        """The newest number, and the events of a run after a number as the database has them; None: read that."""
        if self._since is None or not self._events:
            return None
        found = [event for event in self._events if event.run == run]
        if after < self._since and not (found and found[0].kind == "run_submitted"):
            return None
        wanted = [event for event in found if event.seq > after and (kinds is None or event.kind in kinds)]
        return self._events[-1].seq, [_row(event) for event in wanted[:limit]]


def _row(event: Event) -> dict[str, Any]:
    return {**event._asdict(), "data": msgspec.Raw(encode(event.data).encode())}
