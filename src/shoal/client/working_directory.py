"""The directories of tasks: the current one, which may have been deleted under a process that is in it, and others."""

from __future__ import annotations

import os

from shoal.client.config import echo_path
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


def check_directory(path: str) -> None:
    """Refuse a directory that is not there, or that nobody can work in."""
    if not os.path.exists(path):
        wrong, hint = f"there is no directory {echo_path(path)}", "make it first"
    elif not os.path.isdir(path):
        wrong, hint = f"{echo_path(path)} is not a directory", "name the directory that the tasks run in"
    elif not os.access(path, os.X_OK):
        wrong, hint = f"you may not enter the directory {echo_path(path)}", "chmod u+rx it, or choose another"
    else:
        return
    raise BadInput(wrong, code="no_such_directory", field="cwd", hint=hint)
