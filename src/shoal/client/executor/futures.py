"""What callers hold while calls run: a Future for each `submit`, a Batch for each `map`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import TYPE_CHECKING, Any, TypeVar

from shoal.client.executor.outcome import CANCELLED, STATE, Row, outcome_of

if TYPE_CHECKING:
    from shoal.client.executor.stream import Stream

R = TypeVar("R")
_once = threading.Lock()  # a future is told only once that it is cancelled


class CallFuture(Future[R]):
    """A Future of the standard library whose call runs somewhere in the pool; `task` is its name there."""

    def __init__(self, stream: Stream | None = None) -> None:
        super().__init__()
        self.stream = stream  # where it runs; None for one that never will
        self.element = 0  # its number in the run, once it was sent
        self._cancelling = False

    @property
    def task(self) -> str:
        """The id for `shoal show`, `shoal logs`, `shoal why`; empty while the call is on its way."""
        return f"{self.stream.run}.{self.element}" if self.stream is not None and self.element > 0 else ""

    def cancel(self) -> bool:
        """Cancel the call unless it runs or is done; a call that runs is left alone, as everywhere in Python."""
        if self.stream is None or self.done():
            return super().cancel()
        return self.stream.cancel_future(self)

    def running(self) -> bool:
        """Is it being executed now? Asks the server, for only the server knows."""
        return not self.done() and self.stream is not None and self.stream.is_running(self.element)

    # --- from the stream
    def cancel_here(self) -> bool:
        """Cancelled, as far as this process is concerned; False if it is done."""
        with _once:
            again, self._cancelling = self._cancelling, True
        if again or not super().cancel():
            return self.cancelled()
        self.set_running_or_notify_cancel()  # wakes wait() and as_completed()
        return True

    def settle(self, run: str, row: Row) -> None:
        """Its row came."""
        if row[STATE] == CANCELLED:
            self.cancel_here()
            return
        returned, value = outcome_of(run, row)
        self.settle_as(returned, value)

    def settle_as(self, returned: bool, value: Any) -> None:
        """Its value or exception came; if it was cancelled meanwhile, nothing changes."""
        try:
            if returned:
                self.set_result(value)
            else:
                self.set_exception(value)
        except InvalidStateError:
            pass


class _Nothing:
    """What stands for a row that did not come yet, or was handed over."""


WAITING, TAKEN = _Nothing(), _Nothing()


class Batch:
    """The rows of one `map`, in the order of its calls. Objects are made when they are asked for."""

    def __init__(self, stream: Stream) -> None:
        self.rows: list[Any] = []  # Row, an exception, WAITING or TAKEN
        self._stream = stream
        self._news = threading.Condition(threading.Lock())
        self._wanted: int | None = None  # the row that somebody waits for

    def extend(self, count: int) -> int:
        """Room for more rows; returns the place of the first."""
        at = len(self.rows)
        self.rows += [WAITING] * count
        return at

    def tell(self) -> None:
        """Rows came."""
        wanted = self._wanted
        if wanted is not None and self.rows[wanted] is not WAITING:
            with self._news:
                self._news.notify_all()

    def fail(self, error: BaseException, first: int = 0, count: int | None = None) -> None:
        """Nothing more will come, for all or for some places."""
        for at in range(first, len(self.rows) if count is None else first + count):
            if self.rows[at] is WAITING:
                self.rows[at] = error
        with self._news:
            self._news.notify_all()

    def results(self, end: float | None) -> Iterator[Any]:
        """The values in order; raises what a call raised, TimeoutError at `end`; what is not needed is cancelled."""
        try:
            for at in range(len(self.rows)):
                row = self.rows[at]
                if row is WAITING:
                    row = self._wait(at, end)
                self.rows[at] = TAKEN  # no result is kept longer than its reader wants it
                yield self._value(row)
                row = None
        finally:
            if WAITING in self.rows:
                self._stream.cancel_unstarted(self)

    def _wait(self, at: int, end: float | None) -> Any:
        with self._news:
            self._wanted = at
            try:
                while (row := self.rows[at]) is WAITING:
                    left = None if end is None else end - time.monotonic()
                    if left is not None and left <= 0:
                        raise TimeoutError
                    self._news.wait(left)
            finally:
                self._wanted = None
        return row

    def _value(self, row: Any) -> Any:
        if isinstance(row, BaseException):
            raise row
        if row[STATE] == CANCELLED:
            raise CancelledError
        returned, value = outcome_of(self._stream.run, row)
        if returned:
            return value
        try:
            raise value
        finally:
            value = row = None  # no cycle of exception and frame
