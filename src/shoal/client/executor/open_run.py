"""An open run, new or found again, with the calls that an earlier process of the same script submitted to it."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, NamedTuple

from shoal.client.connection.reconnect import ServerConnection
from shoal.client.executor.outcome import SUCCEEDED, ResultRow, closed_ranges, rows_of_page
from shoal.model.errors import ShoalError
from shoal.model.lazy_dataclass import dataclass
from shoal.wire.payload import Bytes, of_text, open_container

Call = tuple[Mapping[str, Any], str]  # the table, and the text of the arguments
# All that decides what the calls of a table compute, by field, and how people are told that it differs.
PROGRAM = {
    "function": "the function or what it refers to", "modules": "your modules", "initializer": "the initializer",
    "python": "the interpreter", "env": "the environment", "cwd": "the directory",
}  # fmt: skip
_PICKLED = ("function", "initializer")  # `modules` are the same bytes in every process
_BLOB = "sha256:"


class EarlierCall(NamedTuple):
    """A call that was submitted earlier: its element, and its row if it is finished."""

    element: int
    row: ResultRow | None


@dataclass
class OpenRun:
    """A run to which calls can be added."""

    run: str
    first: int = 1  # the number of the next new element
    after: int = 0  # the event up to which its results were read
    is_ours: bool = True  # to be closed at the end
    calls: dict[tuple[str, str], deque[int]] = field(default_factory=dict)  # digest of the program and key of the call
    rows: dict[int, ResultRow] = field(default_factory=dict)  # elements that are finished
    get_blob: Callable[[str], Bytes] | None = None
    _programs: dict[str, dict[str, Any]] = field(default_factory=dict)  # of the earlier calls, by digest
    _codes: dict[str, str] = field(default_factory=dict)  # keys of functions and initializers, by text
    _classes: dict[str, dict[bytes, str]] = field(default_factory=dict)  # in the earlier payloads, by key

    def add_earlier(self, table: Mapping[str, Any], first: int) -> None:
        """Note the calls of a table, whose elements begin with `first`."""
        program = self._digest_of(table)
        self._programs[program] = self._program_of(table)
        for element, text in enumerate(table.get("calls") or (), first):
            self.calls.setdefault((program, self._key_of(text)), deque()).append(element)

    def knows(self, table: Mapping[str, Any], text: str) -> bool:
        """True if this call was submitted earlier; without a call, some call of the function."""
        program = self._digest_of(table)
        return (program, self._key_of(text)) in self.calls if text else any(known == program for known, _ in self.calls)

    def differences(self, table: Mapping[str, Any], text: str) -> list[str]:
        """In what an earlier program differs that made this very call; nothing if none did."""
        ours, key = self._program_of(table), self._key_of(text)
        for digest, theirs in self._programs.items():
            if (digest, key) in self.calls:
                return [words for name, words in PROGRAM.items() if ours[name] != theirs[name]]
        return []

    def left(self) -> list[int]:
        """The earlier elements that were not taken yet."""
        return [element for elements in self.calls.values() for element in elements]

    def read_program(self, table: Mapping[str, Any]) -> None:
        """Read what the program of a table is, parts of which may be blobs, before anybody has to wait for it."""
        if self.calls:
            self._program_of(table)

    def reuse(self, table: Mapping[str, Any], text: str) -> EarlierCall | None:
        """An earlier element with this very call, returned once; None if the call is new."""
        return self._take(self._digest_of(table), text) if self.calls else None

    def _program_of(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """All that decides what the calls of a table compute: calls of another program are never taken for the same.

        That is the function with what it refers to by value, the sources of the submitter's modules, the initializer,
        the interpreter, and the variables and the directory that were asked for.
        """
        return {name: self._code_of(table.get(name)) if name in _PICKLED else table.get(name) for name in PROGRAM}

    def _digest_of(self, table: Mapping[str, Any]) -> str:
        return hashlib.sha256(json.dumps(self._program_of(table), sort_keys=True).encode()).hexdigest()

    def _code_of(self, text: str | None) -> str | None:
        """The key of a function or an initializer, which may be a blob."""
        if text is None:
            return None
        if text not in self._codes:
            self._codes[text] = self._key_of(text, self.get_blob)
        return self._codes[text]

    def _key_of(self, text: str, get_blob: Callable[[str], Bytes] | None = None) -> str:
        """What is compared of a payload text: the same in every process of an unchanged script. Of a blob that is only the
        case if it is read."""
        # Only a script that is started again compares.
        from shoal.client.pickling.fingerprint import fingerprint
        from shoal.client.unpickle.own_classes import know_again

        buffers: list[memoryview] = []
        try:
            if not text.startswith(_BLOB):
                data = of_text(text)
            elif get_blob is None:
                return text
            else:
                pickled, buffers = open_container(get_blob(text))
                data = bytes(pickled)
        except (ShoalError, ValueError):
            return text
        found = fingerprint(data)
        if found is None:
            return text
        key = " ".join([found.digest, *(hashlib.sha256(one).hexdigest() for one in buffers)])
        earlier = self._classes.setdefault(key, found.classes)
        if earlier is not found.classes:
            know_again({earlier[digest]: number for digest, number in found.classes.items() if digest in earlier})
        return key

    def _take(self, program: str, text: str) -> EarlierCall | None:
        elements = self.calls.get((program, self._key_of(text)))
        while elements:
            element = elements.popleft()
            row = self.rows.pop(element, None)
            # A failed call is submitted again: that is why a script is started a second time.
            if row is None or row.state == SUCCEEDED:
                return EarlierCall(element, row)
        return None

    def split(
        self, table: Mapping[str, Any], texts: list[str]
    ) -> tuple[list[tuple[int, int]], list[tuple[int, EarlierCall]]]:
        """Ranges of the calls that are new, and the positions of the others with their earlier calls."""
        if not self.calls:
            return [(0, len(texts))], []
        program = self._digest_of(table)
        ranges: list[tuple[int, int]] = []
        earlier: list[tuple[int, EarlierCall]] = []
        for at, text in enumerate(texts):
            found = self._take(program, text)
            if found is not None:
                earlier.append((at, found))
            elif ranges and ranges[-1][1] == at:
                ranges[-1] = ranges[-1][0], at + 1
            else:
                ranges.append((at, at + 1))
        return ranges, earlier


def read_run(connection: ServerConnection, run: str, compares: bool = True) -> OpenRun:
    """Read a run as it is now: its calls, and the results it has. `compares`: to find calls among them again."""
    info = connection.ask(lambda client: client.run(run))
    opened = OpenRun(run, get_blob=lambda digest: connection.ask(lambda client: client.get_blob(digest)))
    for array in info.get("arrays") or ():
        table, first = array["task"], int(array["first"])
        opened.first = max(opened.first, first + int(array["count"]))
        if compares:
            opened.add_earlier(table, first)
    while True:
        page = connection.ask(lambda client: client.results(run, opened.after))
        opened.rows.update((row.element, row) for row in rows_of_page(page, connection.trust))
        for closed in closed_ranges(page):
            opened.rows.update((n, closed.row(n)) for n in range(closed.low, closed.high))
        opened.after = max(opened.after, int(page["last"]))
        if not page["results"]:
            return opened
