"""Messages between a pilot and its runners: one line of JSON each, the number in `TYPES` and the field values.

JSON, since the other end may be another Python. Named tuples rather than dataclasses, whose module takes a runner ten
milliseconds to import.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Optional


# --- from runner to pilot
class Hello(NamedTuple):
    """The first message of a runner."""

    name: str
    version: str  # of its Python
    cpu: float  # seconds of processor time so far
    rss: int  # the most memory so far, in bytes


class NeedBlob(NamedTuple):
    """The runner waits for the path of a blob."""

    digest: str


class Progress(NamedTuple):
    """The log has new entries; `is_over`: the piece has ended."""

    is_over: bool
    rss: int


class Stale(NamedTuple):
    """A file that the runner imported has changed: the piece was not begun, and belongs to a new runner."""


class Described(NamedTuple):
    """A call as a person would write it; empty: unknown."""

    text: str


# --- from pilot to runner
class Welcome(NamedTuple):
    """The answer to Hello."""

    path: list[str]  # the submitter's sys.path
    is_theirs: bool  # the interpreter is the submitter's own
    folder: str  # for the files of the streams
    results: str  # how the paths of large results begin
    compiled: str  # folder for compiled code
    env: dict[str, Optional[str]]  # variables that differ from those it was started with; None: not set
    argv: str = ""  # the submitter's sys.argv as JSON


class RunCalls(NamedTuple):
    """A piece: calls of one function, to be made one after another."""

    serial: int  # number of the piece
    run: int
    first: int  # element of the first call
    number: int  # of the attempt
    function: str  # payload texts
    initializer: str
    modules: str
    calls: str  # separated by blanks, which no payload text has: quicker than a list
    cwd: str
    tags: str  # path of the pipe for tags, or nothing
    env: dict[str, str]
    seed: Optional[int]
    indices: list[Any]
    reseed: bool
    skip: list[int]  # calls that must not be made
    rewind: bool  # begin the log anew
    finalizer: str = ""  # a payload text, as the initializer
    emits: str = ""  # how the paths begin into which calls emit values; the element follows, behind a dot
    is_chain: bool = False  # nothing of it is begun behind a call that did not succeed


class Skip(NamedTuple):
    """One call of the piece with this number must not begin."""

    serial: int
    at: int


class Blob(NamedTuple):
    """The answer to NeedBlob: a path, or an error."""

    digest: str
    path: Optional[str]
    error: str


class Describe(NamedTuple):
    """Asks what a call was that killed another runner."""

    function: str
    call: str
    modules: str


TYPES: tuple[type, ...] = (Hello, NeedBlob, Progress, Stale, Described, Welcome, RunCalls, Skip, Blob, Describe)
_NUMBERS = {kind: number for number, kind in enumerate(TYPES)}


def encode(message: tuple[Any, ...]) -> bytes:
    """A line. It is ASCII only, so that the surrogates which stand for odd bytes in file names survive."""
    return json.dumps([_NUMBERS[type(message)], *message]).encode("ascii") + b"\n"


def decode(line: bytes) -> Any:
    """The message in a line; ValueError, LookupError or TypeError if there is none."""
    number, *values = json.loads(line)
    return TYPES[number](*values)


# --- the log of ended calls
class CallEnd(NamedTuple):
    """How a call ended. The log has only the first four fields, as a list, where the others have nothing to tell."""

    began: int = 0  # nanoseconds
    took: int = 0
    cpu: int = 0
    result: str = ""
    file: str = ""  # with a large result
    out: Optional[list[int]] = None  # number and size of the file that it wrote to
    err: Optional[list[int]] = None
    outcome: str = ""  # of a call that failed, as in wire.messages.Report
    cause: str = ""
    message: str = ""
    trace: str = ""
    is_skipped: bool = False
