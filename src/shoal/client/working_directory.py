"""The current directory, which may have been deleted or closed to us under a process that is in it."""

from __future__ import annotations

import os

from shoal.model.errors import BadInput


def working_directory() -> str:
    """The current directory; one clear error where there is none."""
    try:
        return os.getcwd()
    except OSError as error:
        gone = isinstance(error, FileNotFoundError)
        raise BadInput(
            "the current directory was deleted" if gone else f"the current directory cannot be used: {error.strerror}",
            code="no_such_directory", hint="cd to one that exists",
        ) from None  # fmt: skip
