"""What a function raised, as text and as a payload, inside a runner."""

from __future__ import annotations

import contextlib
import os
import pickle
from typing import Any

from shoal.pilot.runner.load import pack

_MESSAGE = 500  # characters
_TRACE = 16 * 1024
_OURS = os.path.join(os.path.dirname(__file__), "")  # how the names of our own files begin


def clean(text: str) -> str:
    """Replace lone surrogates, which JSON takes and UTF-8 does not."""
    return text.encode("utf-8", "replace").decode("utf-8")


def in_one_line(error: BaseException) -> str:
    """`ValueError: text`."""
    name = type(error).__name__
    if isinstance(error, SystemExit):
        return f"SystemExit: the function called sys.exit({error.code!r})"[:_MESSAGE]
    try:
        text = " ".join(str(error).split())
    except BaseException:  # whatever the exception's own code raises, also SystemExit
        text = "(its text cannot be shown)"
    return clean(f"{name}: {text}" if text else name)[:_MESSAGE]


def trace_of(error: BaseException) -> str:
    """The traceback as Python would print it."""
    import traceback  # takes time, and most runners never need it

    try:
        above = error.__traceback__
        while above is not None and above.tb_frame.f_code.co_filename.startswith(_OURS):
            above = above.tb_next  # our own frames are of no use to anybody
        return clean("".join(traceback.format_exception(type(error), error, above)))[-_TRACE:]
    except BaseException:
        return in_one_line(error)


def pack_error(error: BaseException, trace: str) -> Any:
    """(exception, traceback) so that unpickling succeeds: some exceptions can be pickled and not unpickled."""
    with contextlib.suppress(BaseException):
        data = pack((error, trace))
        if not isinstance(data, bytes):
            return data
        pickle.loads(data)
        return data
    try:
        text = repr(error)
    except BaseException:
        text = in_one_line(error)
    return pack((RuntimeError(text[:_TRACE]), trace))
