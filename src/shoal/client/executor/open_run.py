"""An open run, new or found again, with the calls that an earlier process of the same script submitted to it."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple

from shoal.client.connection.reconnect import ServerConnection
from shoal.client.executor.outcome import SUCCEEDED, ResultRow, closed_ranges, rows_of_page
from shoal.model.lazy_dataclass import dataclass

Call = tuple[Mapping[str, Any], str]  # the table, and the text of the arguments


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
    calls: dict[tuple[str, str], deque[int]] = field(default_factory=dict)  # program and call -> elements
    rows: dict[int, ResultRow] = field(default_factory=dict)  # elements that are finished

    def knows(self, table: Mapping[str, Any], text: str) -> bool:
        """True if this call was submitted earlier; without a call, some call of the function."""
        program = program_of(table)
        return (program, text) in self.calls if text else any(known == program for known, _ in self.calls)

    def reuse(self, table: Mapping[str, Any], text: str) -> EarlierCall | None:
        """An earlier element with this very call, returned once; None if the call is new."""
        return self._take(program_of(table), text) if self.calls else None

    def _take(self, program: str, text: str) -> EarlierCall | None:
        elements = self.calls.get((program, text))
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
        program = program_of(table)
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


def program_of(table: Mapping[str, Any]) -> str:
    """All that decides what the calls of a table compute: calls of another program are never taken for the same.

    That is the function with what it refers to by value, the sources of the submitter's modules, the initializer, the
    interpreter, and the variables and the directory that were asked for.
    """
    parts = [table.get(name) for name in ("function", "modules", "initializer", "python", "env", "cwd")]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def read_run(connection: ServerConnection, run: str) -> OpenRun:
    """Read a run as it is now: its calls, and the results it has."""
    info = connection.ask(lambda client: client.run(run))
    opened = OpenRun(run)
    for array in info.get("arrays") or ():
        table, first = array["task"], int(array["first"])
        opened.first = max(opened.first, first + int(array["count"]))
        program = program_of(table)
        for element, call in enumerate(table.get("calls") or (), first):
            opened.calls.setdefault((program, call), deque()).append(element)
    while True:
        page = connection.ask(lambda client: client.results(run, opened.after))
        opened.rows.update((row.element, row) for row in rows_of_page(page, connection.trust))
        for closed in closed_ranges(page):
            opened.rows.update((n, closed.row(n)) for n in range(closed.low, closed.high))
        opened.after = max(opened.after, int(page["last"]))
        if not page["results"]:
            return opened
