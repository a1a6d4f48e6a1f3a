"""Futures as arguments: the call waits for them and gets their values.

The arguments are pickled when the call is submitted, with a number in the place of each future, wherever it is in them.
When all futures are done, their results are put beside that pickle as payload texts: a large result as its digest, so it
goes from one call to the next without coming home, and a small one as the bytes that its call returned, so a script that
is started again makes the same bytes. What a pilot of others returned is loaded here by the rules for such results first.

A dependent call needs no thread: the last of its futures puts it into the queue of one background thread.
"""

from __future__ import annotations

import copy
import io
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from shoal.client.executor.futures import Batch, CallFuture
from shoal.client.pickling.serialize import PROTOCOL, Put, text_of
from shoal.model.errors import Unreachable
from shoal.model.limits import MAX_INLINE
from shoal.wire.payload import Bound, to_text

if TYPE_CHECKING:
    from shoal.client.executor.stream import Stream


class DependencyFailed(Exception):
    """The cause of a call's failure: a call whose result it needed failed."""


class Arguments:
    """Pickled arguments with numbers in the places of futures."""

    __slots__ = ("data", "futures")

    def __init__(self, data: bytes, futures: list[Future[Any]]) -> None:
        self.data, self.futures = data, futures


def find_futures(value: Any) -> Arguments | None:
    """Pickle arguments that hold futures; None if they hold none. Raises what pickling raises."""
    from shoal.client.pickling import by_value  # it brings cloudpickle, which many programs do not need

    futures: list[Future[Any]] = []
    numbers: dict[int, int] = {}

    class Pickler(by_value.Pickler):
        def persistent_id(self, found: object) -> int | None:
            if not isinstance(found, Future):
                return None
            number = numbers.setdefault(id(found), len(futures))
            if number == len(futures):
                futures.append(found)
            return number

    file = io.BytesIO()
    Pickler(file, PROTOCOL).dump(value)
    return Arguments(file.getvalue(), futures) if futures else None


def text_or_arguments(value: Any, put: Put) -> str | Arguments | Exception:
    """The payload text of arguments; or, if they hold futures, what is to be completed; or why they cannot be pickled."""
    try:
        return text_of(value, put)
    except Unreachable:
        raise
    except Exception as error:  # whatever pickling an object may raise
        return with_futures(value, error)


def with_futures(value: Any, error: Exception) -> Arguments | Exception:
    """Arguments that could not be pickled, because they hold futures; else the error."""
    try:
        return find_futures(value) or error
    except Exception as other:  # it is not the futures that cannot be pickled
        return other


class Dependent:
    """A call that waits for futures; its own result goes to a future or to a position of a batch."""

    def __init__(
        self, table: Mapping[str, Any], arguments: Arguments, put: Put, future: CallFuture[Any] | None,
        batch: Batch | None = None, at: int = 0,
    ) -> None:  # fmt: skip
        self.table, self.future, self.batch, self.at = table, future, batch, at
        self._put = put
        # Sent at once: the arguments of a call are those at its submission, and the rest is small.
        data = arguments.data
        self._text = to_text(data) if len(data) <= MAX_INLINE else put([data])
        self._futures = arguments.futures
        self._missing = len(self._futures)
        self._lock = threading.Lock()

    def watch(self, stream: Stream) -> None:
        """Have the stream send the call when its futures are done, or fail it when the first of them fails."""
        for found in self._futures:
            found.add_done_callback(lambda done: self._on_done(done, stream))

    def _on_done(self, done: Future[Any], stream: Stream) -> None:
        with self._lock:
            self._missing -= 1
            is_ready = self._missing == 0
        if is_ready or failure_of(done) is not None or done.cancelled():
            stream.release_later(self)

    @property
    def is_cancelled(self) -> bool:
        """True if its own future was cancelled meanwhile."""
        return self.future is not None and self.future.cancelled()

    def resolve(self, stream: Stream) -> str | BaseException | None:
        """The text of the call; what its future is to raise if one that it needs failed; None if one was cancelled."""
        futures = self._futures
        if any(found.cancelled() for found in futures if found.done()):
            return None
        for found in futures:
            error = failure_of(found) if found.done() else None
            if error is not None:
                return explain(error, found)
        try:
            values = [self._value(found, stream) for found in futures]
            self._futures = []
            return text_of(Bound(self._text, values), self._put)
        except Exception as error:  # a result that cannot be had or pickled here: it concerns this call only
            return error

    def _value(self, found: Future[Any], stream: Stream) -> str:
        if isinstance(found, CallFuture) and found.payload and found.is_of(stream):
            return found.payload
        return text_of(found.result(), self._put)


def failure_of(done: Future[Any]) -> BaseException | None:
    """What a future that is done raises; a large result is not fetched for it."""
    if done.cancelled():
        return None
    return done.failure if isinstance(done, CallFuture) else done.exception()


def explain(error: BaseException, found: Future[Any]) -> BaseException:
    """The same exception for a call that needed the one which failed, with that one as its cause."""
    name = found.task if isinstance(found, CallFuture) and found.task else "a future"
    try:
        same = copy.copy(error)
    except Exception:  # its constructor takes other arguments
        same = error
    if type(same) is not type(error) or same is error:
        error.add_note(f"it was raised by {name}, whose result another call needed")
        return error
    same.__cause__ = DependencyFailed(f"{name} failed, whose result this call needs")
    same.__cause__.__cause__ = error
    return same
