"""What reading a `.dag` file needs of the outside, and how lines and errors are placed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from shoal.model.errors import BadInput
from shoal.model.lazy_dataclass import dataclass

MAX_INCLUDED = 64  # files inside files: more is a file that includes itself


class Line(NamedTuple):
    """One logical line: its place, and its text without what surrounds it."""

    where: str  # FILE:LINE
    text: str


@dataclass
class Surroundings:
    """What is read beside the file itself. Names are seen from the directory in which the run is submitted."""

    read: Callable[[str], str]  # the text of a file; raises BadInput
    exists: Callable[[str], bool]
    match: Callable[[str, str], Sequence[str]] = lambda pattern, kind: ()  # names by a pattern: files, dirs or any
    env: Mapping[str, str] = field(default_factory=dict)
    subdag: Sequence[str] = ("shoal", "dag")  # the command that runs another `.dag` file inside a task
    folder: str = "/"  # the directory of the run


def wrong(where: str, what: str, hint: str = "") -> BadInput:
    """An error in a file, with its place."""
    return BadInput(f"{where}: {what}", code="bad_dag", hint=hint)


_ENDS_OPEN = re.compile(r"\\[ \t]*$")


def logical_lines(text: str, name: str) -> Iterator[Line]:
    """The lines of a file that say something: continued ones joined, empty ones and comments left out."""
    held, first = "", 0
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if held:
            line = held + line
        else:
            first = number
            if not line or line[0] == "#":
                continue
        if line[-1] == "\\" and _ENDS_OPEN.search(line):
            held = line[:-1].rstrip() + " "
            continue
        held = ""
        yield Line(f"{name}:{first}", line)
    if held.strip():
        yield Line(f"{name}:{first}", held.strip())
