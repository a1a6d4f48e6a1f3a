"""Handles of calls: a Future for each `submit`, a Batch for each `map`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar

from shoal.client.executor.outcome import CANCELLED, SUCCEEDED, ResultRow, outcome_of
from shoal.client.waiting import FutureWaiters, is_inside, wait_until

if TYPE_CHECKING:
    from shoal.client.executor.stream import Stream

R = TypeVar("R")
_once = threading.Lock()  # only one thread marks a future as cancelled


class _Remote:
    """The row of a large result that is on the server; the lock lets one thread fetch it."""

    __slots__ = ("lock", "row")

    def __init__(self, row: ResultRow) -> None:
        self.row, self.lock = row, threading.Lock()


class CallFuture(Future[R]):
    """A Future of the standard library whose call runs somewhere in the pool; `task` is its name there."""

    def __init__(self, stream: Stream | None = None) -> None:
        super().__init__()
        self.stream = stream  # None for a call that was never sent
        self.element = 0  # its number in the run, once it was sent
        self._cancelling = False
        self.payload = ""  # its result as it travels, to be given to other calls; empty: only the value can be
        self._remote: _Remote | None = None  # a large result that nobody asked for yet
        if is_inside():
            self._waiters = FutureWaiters()

    @property
    def task(self) -> str:
        """The id for `shoal show`, `shoal logs`, `shoal why`; empty until the call is sent."""
        return f"{self.stream.run}.{self.element}" if self.stream is not None and self.element > 0 else ""

    def result(self, timeout: float | None = None) -> R:
        """What the call returned; raises what it raised. A task that waits here lends its cores."""
        self._wait(timeout)
        if self._remote is not None:
            self._fetch(self._remote)
        return super().result(0 if timeout is not None else None)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the call raised; None if it returned."""
        self._wait(timeout)
        if self._remote is not None:
            self._fetch(self._remote)
        return super().exception(0 if timeout is not None else None)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """A future stays in its process: only its value travels."""
        raise TypeError("a future cannot be pickled: give it to a call as an argument, and the call gets its value")

    @property
    def failure(self) -> BaseException | None:
        """What it raises, if it is done; a large result counts as returned, without being fetched."""
        return self._exception if self.done() else None

    def is_of(self, stream: Stream) -> bool:
        """True if its result is on the server of this stream."""
        return self.stream is not None and self.stream.address == stream.address

    def _wait(self, timeout: float | None) -> None:
        if not self.done():
            with self._condition:
                wait_until(lambda most: self._condition.wait_for(self.done, most), timeout)

    def cancel(self) -> bool:
        """Cancel the call unless it runs or is done; a call that runs is left alone, as everywhere in Python."""
        if self.stream is None or self.done():
            return super().cancel()
        return self.stream.cancel_future(self)

    def running(self) -> bool:
        """True if the call is executed now. Asks the server, because only the server knows."""
        return not self.done() and self.stream is not None and self.stream.is_running(self.element)

    # --- called by the stream
    def cancel_here(self) -> bool:
        """Mark it as cancelled in this process; False if it is done."""
        with _once:
            again, self._cancelling = self._cancelling, True
        if again or not super().cancel():
            return self.cancelled()
        self.set_running_or_notify_cancel()  # wakes wait() and as_completed()
        return True

    def settle(self, run: str, row: ResultRow) -> None:
        """Set the outcome from the row of its task."""
        if row.state == CANCELLED:
            self.cancel_here()
            return
        if row.state == SUCCEEDED and row.names is None and isinstance(row.result, str):
            self.payload = row.result
        if row.is_blob:
            self._remote = _Remote(row)
            self.settle_as(True, None)
            return
        returned, value = outcome_of(run, row)
        self.settle_as(returned, value)

    def _fetch(self, remote: _Remote) -> None:
        """Fetch and load a large result, once; it is kept from then on."""
        with remote.lock:
            if self._remote is None:
                return
            assert self.stream is not None
            row = remote.row._replace(result=self.stream.get_blob(remote.row.result))
            returned, value = outcome_of(self.stream.run, row)
            with self._condition:
                self._result, self._exception = (value, None) if returned else (None, value)
            self._remote = None

    def settle_as(self, returned: bool, value: Any) -> None:
        """Set its value or exception; a future that was cancelled meanwhile stays cancelled."""
        try:
            if returned:
                self.set_result(value)
            else:
                self.set_exception(value)
        except InvalidStateError:
            pass


class _Marker:
    """Stands for a row that was not received yet, or was given to the reader."""


WAITING, TAKEN = _Marker(), _Marker()


class Batch:
    """The rows of one `map`, in the order of its calls. Results are unpickled when they are read."""

    def __init__(self, stream: Stream) -> None:
        self.rows: list[Any] = []  # ResultRow, an exception, WAITING or TAKEN
        self._stream = stream
        self._changed = threading.Condition(threading.Lock())
        self._wanted: int | None = None  # the position that a reader waits for

    def extend(self, count: int) -> int:
        """Add positions for more rows; returns the first."""
        at = len(self.rows)
        self.rows += [WAITING] * count
        return at

    def wake_reader(self) -> None:
        """Wake the reader if the row that it waits for is there."""
        wanted = self._wanted
        if wanted is not None and self.rows[wanted] is not WAITING:
            with self._changed:
                self._changed.notify_all()

    def fail(self, error: BaseException, first: int = 0, count: int | None = None) -> None:
        """Set an error for all positions, or for some, that have no row yet."""
        for at in range(first, len(self.rows) if count is None else first + count):
            if self.rows[at] is WAITING:
                self.rows[at] = error
        with self._changed:
            self._changed.notify_all()

    def results(self, end: float | None) -> Iterator[Any]:
        """The values in order; raises what a call raised, TimeoutError at `end`; calls without a reader are cancelled."""
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
        with self._changed:
            self._wanted = at
            try:
                left = None if end is None else max(0.0, end - time.monotonic())
                if not wait_until(
                    lambda most: self._changed.wait_for(lambda: self.rows[at] is not WAITING, most), left
                ):
                    raise TimeoutError
                row = self.rows[at]
            finally:
                self._wanted = None
        return row

    def _value(self, row: Any) -> Any:
        if isinstance(row, BaseException):
            raise row
        if row.state == CANCELLED:
            raise CancelledError
        returned, value = outcome_of(self._stream.run, row)
        if returned:
            return value
        try:
            raise value
        finally:
            value = row = None  # no cycle of exception and frame
