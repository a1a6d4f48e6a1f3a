"""The nearest known name for a misspelt one, or the list of what is known."""

from __future__ import annotations

import difflib

from shoal.model.errors import echo
from shoal.model.limits import MAX_NAME

MAX_SHOWN = 600  # characters of known names in an error: all task fields fit


def did_you_mean(word: str, known: list[str]) -> str:
    """`did you mean cores`, or the list of what is known."""
    close = difflib.get_close_matches(word[:MAX_NAME], known, 1, 0.6)  # its time grows with the word
    if close:
        return f"did you mean {echo(close[0])}"
    shown: list[str] = []
    for name in sorted(known):
        if len(", ".join([*shown, echo(name)])) > MAX_SHOWN:
            return f"known: {', '.join(shown)} and {len(known) - len(shown)} more"
        shown.append(echo(name))
    return f"known: {', '.join(shown)}"
