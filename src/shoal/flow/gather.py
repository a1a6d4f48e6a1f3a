"""How many of the files that wait for a rule go into its next task [CMS C8; ADR 0058]. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class WaitingFile(NamedTuple):
    """A file that no task of a rule has yet."""

    name: str
    size: int  # bytes; 0: not known
    since: float
    length: int = 0  # bytes that its name takes in the command of a task


class Terms(NamedTuple):
    """When enough files wait."""

    most: int  # files of one task
    size: int = 0  # bytes that are enough; 0: they are not counted
    within: float | None = None  # seconds after which fewer are enough
    length: int | None = None  # bytes that the names of one task may take in its command; None: they are not counted


def next_batch(waiting: Sequence[WaitingFile], terms: Terms, now: float, is_rest: bool = False) -> int:
    """How many files, from the first on, make a task now; 0: they wait for more. `is_rest`: no more will come."""
    size = length = 0
    for at, file in enumerate(waiting, 1):
        size += file.size
        length += file.length
        if terms.length is not None and length > terms.length and at > 1:
            return at - 1
        if at == terms.most or (terms.size and size >= terms.size):
            return at
    is_late = terms.within is not None and bool(waiting) and now >= waiting[0].since + terms.within
    return len(waiting) if is_rest or is_late else 0
