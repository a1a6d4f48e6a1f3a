"""Notes to the person in front of the terminal."""

from __future__ import annotations

import contextlib
import sys

from shoal.model.errors import printable


def say(text: str) -> None:
    """Write a note to standard error, so that standard output can be piped."""
    with contextlib.suppress(OSError, ValueError):  # a closed standard error is no reason to lose results
        print(f"shoal: {printable(text)}", file=sys.stderr, flush=True)
