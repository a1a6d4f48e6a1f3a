"""Small charts of text: columns of block characters, or of plain ASCII where those cannot be shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII = " .:#"  # of a cell: empty, up to a third, up to two thirds, full
DEFAULT_COLUMNS, MAX_COLUMNS, MIN_COLUMNS = 80, 120, 40


def columns() -> int:
    """The width for text: of the terminal or as COLUMNS says, within reason."""
    import shutil

    found = shutil.get_terminal_size((DEFAULT_COLUMNS, 24)).columns
    return max(MIN_COLUMNS, min(MAX_COLUMNS, found))


def shows_blocks() -> bool:
    """True if standard output is a terminal that can show block characters."""
    if not sys.stdout.isatty() or os.environ.get("TERM") in (None, "", "dumb", "linux"):
        return False
    try:
        BLOCKS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def chart(values: Sequence[float], height: int, most: float, blocks: bool) -> list[str]:
    """Lines of a chart, top first, with one column for each value; `most` fills the whole height."""
    levels = BLOCKS if blocks else ASCII
    steps = len(levels) - 1
    lines = []
    for row in range(height - 1, -1, -1):
        line = ""
        for value in values:
            share = min(1.0, value / most) if most > 0.0 else 0.0
            filled = share * height * steps
            # What is there at all is seen, if only by the smallest mark in the lowest row.
            level = max(round(filled), 1 if value > 0.0 else 0) - row * steps
            line += levels[max(0, min(steps, level))]
        lines.append(line.rstrip())
    return lines
