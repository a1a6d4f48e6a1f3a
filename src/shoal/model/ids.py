"""Names of runs, tasks, attempts and pilots, and their text forms [protocol 2]."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple, Optional, Union

from shoal.model.errors import BadInput, echo

_RUN = re.compile(r"r([1-9][0-9]{0,17})")
_TASK = re.compile(r"r([1-9][0-9]{0,17})\.([1-9][0-9]{0,17})")
_ATTEMPT = re.compile(
    r"r([1-9][0-9]{0,17})\.([1-9][0-9]{0,17})#([1-9][0-9]{0,8})@([1-9][0-9]{0,17})(?:~([0-9a-f]{16}))?"
)
_PILOT = re.compile(r"p[0-9a-f]{4,16}")


PARENT = "parent"  # the label of a run that names the task which submitted it
LIFE_BITS = 32  # random bits of an incarnation; those above them count the starts of the server


class TaskId(NamedTuple):
    """One task or array element: `r12.7`."""

    run: int
    element: int

    def __str__(self) -> str:
        return f"r{self.run}.{self.element}"


class AttemptId(NamedTuple):
    """One try at a task, with the incarnation of the server that leased it and the nonce of its run: the fence
    [protocol 10].

    People read `r12.7#2`; the wire carries `r12.7#2@INCARNATION~NONCE`. Numbers alone do not name an attempt: a server
    whose database was rolled back or deleted assigns the same run numbers again [ADR 0015]. A name without a nonce,
    as pilots of protocol 4 send it, is equal to none that has one.
    """

    run: int
    element: int
    number: int
    incarnation: int
    nonce: str = ""

    def __str__(self) -> str:
        name = f"r{self.run}.{self.element}#{self.number}@{self.incarnation}"
        return f"{name}~{self.nonce}" if self.nonce else name

    @property
    def task(self) -> TaskId:
        """The task of this attempt."""
        return TaskId(self.run, self.element)

    @property
    def text(self) -> str:
        """The form people read."""
        return f"r{self.run}.{self.element}#{self.number}"

    @property
    def winner(self) -> str:
        """The form in which the database stores the attempt of a task that counts."""
        return f"{self.number}@{self.incarnation}"


def start_count(incarnation: int) -> int:
    """The number of server starts in an incarnation: the part of it that people read and protocol 4 has.

    Databases from before ADR 0015 have incarnations that are nothing but this count.
    """
    return incarnation >> LIFE_BITS or incarnation


def next_incarnation(last: int, salt: int) -> int:
    """The incarnation that follows `last`: greater than it, and with `salt` (LIFE_BITS random bits) never used before,
    also if the database is an older copy of itself."""
    return (start_count(last) + 1) << LIFE_BITS | salt


def run_text(run: int) -> str:
    """`12` -> `r12`."""
    return f"r{run}"


def parse_run(text: str) -> int:
    """`r12` -> 12."""
    found = _RUN.fullmatch(text)
    if not found:
        raise BadInput(f"{echo(text)!r} is not a run", code="bad_id", hint="a run looks like r12; see `shoal ps`")
    return int(found[1])


def parse_task(text: str) -> TaskId:
    """`r12.7` -> TaskId."""
    found = _TASK.fullmatch(text)
    if not found:
        raise BadInput(f"{echo(text)!r} is not a task", code="bad_id", hint="a task looks like r12.7")
    return TaskId(int(found[1]), int(found[2]))


@lru_cache(maxsize=4096)  # an exchange names each of its attempts in several places
def parse_attempt(text: str) -> AttemptId:
    """`r12.7#2@3~5f0c...` -> AttemptId; also without the nonce."""
    found = _ATTEMPT.fullmatch(text)
    if not found:
        raise BadInput(f"{echo(text)!r} is not an attempt", code="bad_id", hint="an attempt looks like r12.7#2@3")
    run, element, number, incarnation, nonce = found.groups()
    return AttemptId(int(run), int(element), int(number), int(incarnation), nonce or "")


def parse_target(text: str) -> Union[int, TaskId]:
    """A run or a task, whichever the text names."""
    if _RUN.fullmatch(text):
        return parse_run(text)
    if _TASK.fullmatch(text):
        return parse_task(text)
    raise BadInput(
        f"{echo(text)!r} is neither a run nor a task", code="bad_id", hint="a run looks like r12, a task like r12.7"
    )


def target_of(text: str) -> Union[int, TaskId, None]:
    """The run or task that a text names by its id; None if it is no id."""
    return parse_target(text) if _RUN.fullmatch(text) or _TASK.fullmatch(text) else None


def parse_place(text: str) -> Optional[tuple[str, str]]:
    """`site:NAME` or `owner:NAME` as a pair; None if the text is neither."""
    kind, colon, name = text.partition(":")
    return (kind, name) if colon and name and kind in ("site", "owner") else None


def is_pilot(text: str) -> bool:
    """True if the text is the name of a pilot."""
    return _PILOT.fullmatch(text) is not None
