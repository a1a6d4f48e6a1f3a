"""Calls that wait to be sent, and the futures and batches that wait for their results.

Plain records without a lock of their own: everything here is called under the lock of the stream that owns it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from shoal.client.executor.futures import WAITING, Batch, CallFuture
from shoal.client.executor.outcome import ResultRow
from shoal.model.limits import MAX_BULK_BODY, MAX_CALLS

MAX_SENT = MAX_BULK_BODY // 2  # bytes of one addition: the rest of the body is small, but not nothing
CANCELLED_UNSENT = -1  # the element of a future that was cancelled before it was sent


class Piece:
    """Consecutive calls of one function, or one command; their results go to futures or to a batch."""

    __slots__ = ("at", "batch", "calls", "futures", "size", "table")

    def __init__(
        self, table: Mapping[str, Any], calls: list[str], futures: list[CallFuture[Any]] | None,
        batch: Batch | None = None, at: int = 0,
    ) -> None:  # fmt: skip
        self.table, self.calls, self.futures, self.batch, self.at = table, calls, futures, batch, at
        self.size = sum(map(len, calls)) + 3 * len(calls) + 4_096

    @property
    def count(self) -> int:
        """The number of elements."""
        return len(self.futures) if self.futures is not None else len(self.calls)

    def takes(self, table: Mapping[str, Any], text: str) -> bool:
        """True if another call may be added."""
        return (
            self.table is table and bool(text) and self.futures is not None
            and len(self.calls) < MAX_CALLS and self.size + len(text) < MAX_SENT
        )  # fmt: skip

    def add(self, text: str, future: CallFuture[Any]) -> None:
        """Add a call."""
        assert self.futures is not None
        self.calls.append(text)
        self.futures.append(future)
        self.size += len(text) + 3

    def drop_cancelled(self) -> None:
        """Remove calls that were cancelled while they waited here."""
        if self.futures is not None and any(future.element == CANCELLED_UNSENT for future in self.futures):
            kept = [n for n, future in enumerate(self.futures) if future.element != CANCELLED_UNSENT]
            self.futures = [self.futures[n] for n in kept]
            self.calls = [self.calls[n] for n in kept] if self.calls else []

    def document(self) -> Mapping[str, Any]:
        """The table that is sent."""
        return {**self.table, "calls": self.calls} if self.calls else self.table


class _Span:
    """Consecutive elements whose rows go to consecutive positions of a batch."""

    __slots__ = ("at", "batch", "end", "first", "left")

    def __init__(self, first: int, count: int, batch: Batch, at: int) -> None:
        self.first, self.end, self.batch, self.at, self.left = first, first + count, batch, at, count


class Position(NamedTuple):
    """One position of a batch."""

    batch: Batch
    at: int


class MatchedRows:
    """Rows with the futures and batches that get them."""

    __slots__ = ("batches", "count", "singles")

    def __init__(self) -> None:
        self.singles: list[tuple[CallFuture[Any], ResultRow]] = []
        self.batches: dict[int, Batch] = {}
        self.count = 0


class Waiters:
    """The future or batch that waits for each element: futures one by one, batches by spans."""

    def __init__(self) -> None:
        self._single: dict[int, CallFuture[Any] | Position] = {}
        self._starts: list[int] = []
        self._spans: list[_Span] = []

    def add_future(self, element: int, future: CallFuture[Any]) -> None:
        """A future waits for an element."""
        future.element = element
        self._single[element] = future

    def add_position(self, element: int, batch: Batch, at: int) -> None:
        """A position of a batch waits for an element."""
        self._single[element] = Position(batch, at)

    def is_future(self, element: int) -> bool:
        """True if a future waits for an element."""
        return isinstance(self._single.get(element), CallFuture)

    def add_piece(self, first: int, piece: Piece) -> None:
        """Register the waiters of a piece whose elements begin with `first`; later pieces have higher numbers."""
        if piece.futures is not None:
            for element, future in enumerate(piece.futures, first):
                self.add_future(element, future)
        elif piece.batch is not None:
            self._starts.append(first)
            self._spans.append(_Span(first, piece.count, piece.batch, piece.at))

    def has(self, element: int) -> bool:
        """True if something waits for an element."""
        if element in self._single:
            return True
        span = self._span_of(element)
        return span is not None and span.batch.rows[span.at + element - span.first] is WAITING

    def find(self, rows: Iterable[ResultRow]) -> MatchedRows:
        """Match rows with their waiters, which are then removed; repeated and unwanted rows are dropped."""
        found, span = MatchedRows(), None
        for row in rows:
            element = row.element
            if span is None or not span.first <= element < span.end:
                single = self._single.pop(element, None)
                if single is not None:
                    self._match(single, row, found)
                    continue
                span = self._span_of(element)
                if span is None:
                    continue
            position = Position(span.batch, span.at + element - span.first)
            if span.batch.rows[position.at] is not WAITING:
                continue
            self._match(position, row, found)
            span.left -= 1
            if not span.left:
                at = self._starts.index(span.first)
                del self._starts[at], self._spans[at]
                span = None
        return found

    @staticmethod
    def _match(waiter: CallFuture[Any] | Position, row: ResultRow, found: MatchedRows) -> None:
        if isinstance(waiter, CallFuture):
            found.singles.append((waiter, row))
        else:
            waiter.batch.rows[waiter.at] = row
            found.batches[id(waiter.batch)] = waiter.batch
        found.count += 1

    def _span_of(self, element: int) -> _Span | None:
        at = bisect_right(self._starts, element) - 1
        return self._spans[at] if at >= 0 and element < self._spans[at].end else None

    def elements(self, batch: Batch | None = None) -> list[int]:
        """The elements that are waited for, by anybody or by one batch."""
        spans = [span for span in self._spans if batch is None or span.batch is batch]
        found = [
            n for span in spans for n in range(span.first, span.end)
            if span.batch.rows[span.at + n - span.first] is WAITING
        ]  # fmt: skip
        for element, single in self._single.items():
            if batch is None or (isinstance(single, Position) and single.batch is batch):
                found.append(element)
        return found

    def clear(self) -> tuple[list[CallFuture[Any]], list[Batch]]:
        """Remove and return all waiters."""
        singles = list(self._single.values())
        batches = {id(span.batch): span.batch for span in self._spans}
        batches |= {id(single.batch): single.batch for single in singles if isinstance(single, Position)}
        self._single.clear()
        self._starts.clear()
        self._spans.clear()
        return [single for single in singles if isinstance(single, CallFuture)], list(batches.values())
