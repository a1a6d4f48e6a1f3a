"""The outcome of a call: a row of the result pages, as the value to return or the exception to raise."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from shoal.client.unpickle.own_classes import SETS_CLASS, load_keeping_classes
from shoal.client.unpickle.trust import Pair, Trust
from shoal.model.errors import ShoalError
from shoal.wire.payload import load, of_text

SUCCEEDED, CANCELLED = "succeeded", "cancelled"
DIGEST = "sha256:"


class ResultRow(NamedTuple):
    """The end of one element: the columns that the server sends, and how the result is loaded."""

    element: int
    state: str
    result: Any = ""  # a payload text or digest; later the bytes of the blob, or the exception instead of it
    cause: str = ""
    message: str = ""
    attempt: int = 0
    last_line: str = ""
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    # None: by pickle, because the result is from a pilot of one's own; else only plain values and these further names.
    names: frozenset[Pair] | None = frozenset()

    @property
    def is_blob(self) -> bool:
        """True if the result is stored as a blob that is not fetched yet."""
        return isinstance(self.result, str) and self.result.startswith(DIGEST)


COLUMNS = len(ResultRow._fields) - 1  # of a row as the server sends it


class ClosedRange(NamedTuple):
    """Elements `low` to `high - 1`, which ended together and without rows of their own."""

    low: int
    high: int
    state: str
    cause: str | None
    message: str | None

    def row(self, element: int) -> ResultRow:
        """The row of one of the elements."""
        return ResultRow(element, self.state, cause=self.cause or "", message=self.message or "")


class RemoteTraceback(Exception):
    """Where a function failed on its host; shown as the cause of its exception, as the standard library does."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.tb = text  # named as in the standard library

    def __str__(self) -> str:
        return f'\n"""\n{self.tb}"""'


class TaskFailed(ShoalError):
    """The task ended without a result."""

    code = "task_failed"

    def __init__(self, message: str = "", *, task: str = "", cause: str = "", state: str = "failed") -> None:
        self.task = task
        self.cause = cause
        self.state = state
        super().__init__(message, hint=f"see `shoal show {task}`, `shoal logs {task}`" if task else "")

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.message, self.task, self.cause, self.state)


def _unpickled(message: str, task: str, cause: str, state: str) -> TaskFailed:
    return TaskFailed(message, task=task, cause=cause, state=state)


def rows_of_page(page: Mapping[str, Any], trust: Trust) -> Iterator[ResultRow]:
    """The rows of a page of results, each with how its result is to be loaded.

    The server lists the elements that ran on a pilot which is not the reader's own. An older server sends no list; then
    every element may have.
    """
    foreign = page.get("foreign")
    others = frozenset(foreign) if foreign is not None else None
    for columns in page["results"]:
        is_foreign = not trust.is_all and (others is None or columns[0] in others)
        yield ResultRow._make((*columns[:COLUMNS], trust.names if is_foreign else None))


def closed_ranges(page: Mapping[str, Any]) -> Iterator[ClosedRange]:
    """The ranges of a page of results that ended without rows."""
    return (ClosedRange(*columns) for columns in page.get("closed") or ())


def unpack(result: Any, names: frozenset[Pair] | None) -> Any:
    """The object of a result, which is a payload text or the bytes of a blob."""
    if names is not None:
        # Imported here: without other people's pilots it is never needed.
        from shoal.client.unpickle.restricted import load_restricted

        return load_restricted(of_text(result) if isinstance(result, str) else result, names)
    data = of_text(result) if isinstance(result, str) else result
    if SETS_CLASS in data:
        return load_keeping_classes(data)
    if isinstance(result, str):
        return pickle.loads(data)
    return load(data)  # a bytearray, so that arrays, which point into it, can be written to as one expects


def outcome_of(run: str, row: ResultRow) -> tuple[bool, Any]:
    """Whether the call returned, and the value; else the exception."""
    result = row.result
    if isinstance(result, BaseException):
        return False, result
    try:
        if row.state == SUCCEEDED:
            return True, unpack(result, row.names) if result else row.last_line
        if result:
            error, text = unpack(result, row.names)
            if isinstance(error, BaseException) and isinstance(text, str):
                if text:
                    _set_cause(error, RemoteTraceback(text))
                return False, error
    except BaseException as error:  # whatever an object's own code raises while it is built, also SystemExit
        with contextlib.suppress(Exception):  # an exception may refuse notes, as a frozen dataclass does
            error.add_note(f"the result of {run}.{row.element} could not be read here: {row.message}")
        return False, error
    return False, failure_of(run, row)


def _set_cause(error: BaseException, cause: BaseException) -> None:
    """`error.__cause__ = cause`, also for classes that let no attribute be set, such as frozen dataclasses."""
    BaseException.__dict__["__cause__"].__set__(error, cause)


def broken_by_initializer(run: str, row: ResultRow) -> BaseException:
    """What all futures of an executor raise whose initializer failed: as in the standard library, and with its error."""
    from concurrent.futures.process import BrokenProcessPool  # brings multiprocessing, which nothing else here needs

    broken = BrokenProcessPool(row.message)
    _, broken.__cause__ = outcome_of(run, row._replace(result="") if row.is_blob else row)
    return broken


def failure_of(run: str, row: ResultRow) -> TaskFailed:
    """The exception of a call that ended without one of its own: killed, over its limits, lost."""
    task, cause, message = f"{run}.{row.element}", row.cause, row.message
    reason = message if not cause or cause in message else f"{cause}: {message}" if message else cause
    return TaskFailed(f"{task} {row.state}: {reason}", task=task, cause=cause, state=row.state)
