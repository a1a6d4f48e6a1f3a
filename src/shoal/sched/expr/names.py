"""The names of the expression language: functions, attributes of a task, keywords, and the nearest of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Optional

from shoal.model.errors import echo
from shoal.model.limits import MAX_NAME
from shoal.sched.expr.tree import Expr

ATTRIBUTES = (
    "cores", "disk_mb", "gpus", "group", "memory_mb", "owner", "priority", "rerun", "time",
)  # fmt: skip
# Known only together: of one task on one pilot. Looked up like tags, with or without empty parentheses.
CONTEXT = ("data_local_fraction", "data_local_mb", "time_left")
NUMERIC = ("abs", "max", "min")
FUNCTIONS = (*CONTEXT, *NUMERIC, "glob", "has")
KEYWORDS = ("and", "or", "not", "in", "true", "false")
OWN = "my."  # before the name of a tag: published by tasks of the same owner


def nearest(word: str, known: Iterable[str]) -> Optional[str]:
    """The known name that is probably meant, if one is close."""
    close = difflib.get_close_matches(word[:MAX_NAME], list(known), 1, 0.6)  # its time grows with the word
    return close[0] if close else None


def meant(word: str, known: Iterable[str]) -> str:
    """`did you mean min`, and the list of what is known."""
    names = sorted(known)
    close = nearest(word, names)
    listed = f"known: {', '.join(echo(name) for name in names)}"
    return f"did you mean {echo(close)}; {listed}" if close else listed


def key_of(name: str, owner: str) -> str:
    """The key in a pilot's tags of a name in an expression of this owner's task."""
    return f"{owner}.{name[len(OWN) :]}" if name.startswith(OWN) else name


def unknown_tags(expr: Expr, known: Iterable[str], owner: str = "") -> list[tuple[str, Optional[str]]]:
    """Tags that no pilot has, each with the nearest known one [input E28]; `my.` ones only if the owner is given."""
    have = sorted({*known, *CONTEXT})
    found: list[tuple[str, Optional[str]]] = []
    for name in sorted(expr.tags):
        if name.startswith(OWN):
            if not owner:
                continue
            mine = [OWN + key[len(owner) + 1 :] for key in have if key.startswith(f"{owner}.")]
            if name not in mine:
                found.append((name, nearest(name, mine)))
        elif name not in have:
            found.append((name, nearest(name, have)))
    return found
