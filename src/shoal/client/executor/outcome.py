"""What became of a call: a row of the results feed as a value or as the exception to raise."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.client.unpickle.trust import Pair, Trust
from shoal.model.errors import ShoalError
from shoal.wire.payload import load, of_text

# element, state, result, cause, message, attempt, last line, bytes of stdout and of stderr, and how the result is loaded:
# None: by pickle, for it comes from a pilot of one's own; else only plain values and these further names
Row = list[Any]
Closed = Sequence[Any]  # low, high, state, cause, message: elements low .. high - 1 ended without rows of their own
ELEMENT, STATE, RESULT, CAUSE, MESSAGE, ATTEMPT, LINE, OUT, ERR, NAMES = range(10)
COLUMNS = ERR + 1  # of a row as the server sends it
SUCCEEDED, CANCELLED = "succeeded", "cancelled"
INITIALIZER = "initializer failed:"
DIGEST = "sha256:"


class RemoteTraceback(Exception):
    """Where a function failed on its host; shown as the cause of its exception, as the standard library does."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class TaskFailed(ShoalError):
    """The task ended without a result."""

    code = "task_failed"

    def __init__(self, message: str = "", *, task: str = "", cause: str = "", state: str = "failed") -> None:
        self.task = task
        self.cause = cause
        self.state = state
        super().__init__(message, hint=f"see `shoal show {task}`, `shoal logs {task}`" if task else "")

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (self.message, self.task, self.cause, self.state)


def _made_again(message: str, task: str, cause: str, state: str) -> TaskFailed:
    return TaskFailed(message, task=task, cause=cause, state=state)


def closed_row(element: int, state: str, cause: str | None, message: str | None) -> Row:
    """The row of an element that has none."""
    return [element, state, "", cause or "", message or "", 0, "", 0, 0, frozenset()]


def rows_of_page(page: Mapping[str, Any], trust: Trust) -> list[Row]:
    """The rows of a page of results, each with how its result is to be loaded.

    The server says which of them were made on a pilot that is not the reader's own; one that does not say is of an older
    kind, and then all may be.
    """
    rows: list[Row] = page["results"]
    foreign = page.get("foreign")
    if trust.is_all or foreign == []:
        return [[*row[:COLUMNS], None] for row in rows]
    others = set(foreign) if foreign is not None else {row[ELEMENT] for row in rows}
    return [[*row[:COLUMNS], trust.names if row[ELEMENT] in others else None] for row in rows]


def unpack(result: Any, names: frozenset[Pair] | None) -> Any:
    """The object behind a result: a text, or the bytes of its blob."""
    if names is not None:
        from shoal.client.unpickle.restricted import (
            load_restricted,  # where nobody else's pilots are it is never loaded
        )

        return load_restricted(of_text(result) if isinstance(result, str) else result, names)
    if isinstance(result, str):
        return pickle.loads(of_text(result))
    return load(result)  # a bytearray, so that arrays, which point into it, can be written to as one expects


def outcome_of(run: str, row: Row) -> tuple[bool, Any]:
    """Whether the call returned, and the value; else the exception."""
    result = row[RESULT]
    if isinstance(result, BaseException):
        return False, result
    try:
        if row[STATE] == SUCCEEDED:
            return True, unpack(result, row[NAMES]) if result else row[LINE]
        if result:
            error, text = unpack(result, row[NAMES])
            if isinstance(error, BaseException) and isinstance(text, str):
                if text:
                    error.__cause__ = RemoteTraceback(text)
                return False, error
    except Exception as error:  # whatever an object's own code raises while it is built
        error.add_note(f"the result of {run}.{row[ELEMENT]} could not be read here: {row[MESSAGE]}")
        return False, error
    return False, failure_of(run, row)


def failure_of(run: str, row: Row) -> TaskFailed:
    """A call that ended without an exception of its own: killed, over its limits, lost."""
    task, cause, message = f"{run}.{row[ELEMENT]}", row[CAUSE], row[MESSAGE]
    words = message if not cause or cause in message else f"{cause}: {message}" if message else cause
    return TaskFailed(f"{task} {row[STATE]}: {words}", task=task, cause=cause, state=row[STATE])
