"""The latest results of open runs, kept in memory so that followers cost the database nothing.

Only committed results are here. Those that were read, and the oldest when there are too many, are dropped; a follower
that is too late reads them from the database.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from shoal.db.reader import Results
from shoal.engine.changes import Closed, Final
from shoal.model.limits import MAX_RECENT, MAX_RECENT_BYTES

_OVERHEAD = 200  # bytes that an entry takes besides its result


class RunResults:
    """Results of one run after a number of the journal."""

    def __init__(self, since: int) -> None:
        self.since = since  # everything after it is here
        self._entries: list[Final | Closed] = []
        self._bytes = 0

    def add(self, entry: Final | Closed) -> None:
        """Add the latest entry."""
        self._entries.append(entry)
        self._bytes += _weigh(entry)
        if len(self._entries) > MAX_RECENT or self._bytes > MAX_RECENT_BYTES:
            self._drop(len(self._entries) // 2)

    def take(self, after: int, limit: int) -> list[Final | Closed] | None:
        """The entries after a number; None if some of them were dropped. Earlier entries were received, and are dropped."""
        if after < self.since:
            return None
        if after > self.since:
            self._drop(bisect_right(self._entries, after, key=lambda entry: entry.seq))
            self.since = max(self.since, after)
        return self._entries[:limit]

    def _drop(self, count: int) -> None:
        if count:
            self.since = max(self.since, self._entries[count - 1].seq)
            self._bytes -= sum(map(_weigh, self._entries[:count]))
            del self._entries[:count]


def _weigh(entry: Final | Closed) -> int:
    return _OVERHEAD + (len(entry.row.result) if isinstance(entry, Final) else 0)


class RecentResults:
    """The latest results of all open runs that are in memory."""

    def __init__(self) -> None:
        self._runs: dict[int, RunResults] = {}

    def follow(self, run: int, since: int) -> None:
        """Keep the results of a run from this number on."""
        self._runs.setdefault(run, RunResults(since))

    def forget(self, keep: Iterable[int]) -> None:
        """Drop the results of all runs but these."""
        self._runs = {run: self._runs[run] for run in keep if run in self._runs}

    def add(self, finals: Iterable[Final | Closed]) -> None:
        """Add entries that are committed."""
        for entry in finals:
            recent = self._runs.get(entry.run)
            if recent is not None:
                recent.add(entry)

    def take(self, run: int, after: int, limit: int) -> list[Final | Closed] | None:
        """Results of a run after a number; None: read the database."""
        recent = self._runs.get(run)
        return recent.take(after, limit) if recent is not None else None


def page_of(entries: Sequence[Final | Closed], after: int) -> Results:
    """Entries as a page of results; an empty one goes up to `after`."""
    finals = [entry for entry in entries if isinstance(entry, Final)]
    closed = [entry.row for entry in entries if isinstance(entry, Closed)]
    last = entries[-1].seq if entries else after
    return Results([final.row for final in finals], closed, last, [final.holder for final in finals])


def foreign_elements(page: Results, reader: str) -> list[int]:
    """The elements that ran on a pilot which is not the reader's own, as far as something was returned."""
    if page.holders.count(reader) == len(page.holders):
        return []
    pairs = zip(page.rows, page.holders, strict=True)
    return [row.element for row, holder in pairs if holder != reader and row.result]
