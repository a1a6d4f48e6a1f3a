"""An open run, new or found again, with the calls that an earlier process of the same script submitted to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shoal.client.connection.reconnect import ServerConnection
from shoal.client.executor.outcome import SUCCEEDED, ResultRow, closed_ranges, rows_of_page


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
    calls: dict[tuple[str, str], deque[int]] = field(default_factory=dict)  # function and call -> elements
    rows: dict[int, ResultRow] = field(default_factory=dict)  # elements that are finished

    def knows(self, function: str, call: str) -> bool:
        """True if this call was submitted earlier; without a call, some call of the function."""
        if not call:
            return bool(function) and any(known == function for known, _ in self.calls)
        return (function, call) in self.calls

    def reuse(self, table: Mapping[str, Any], text: str) -> EarlierCall | None:
        """An earlier element with this very call, returned once; None if the call is new."""
        if not self.calls:
            return None
        elements = self.calls.get((table.get("function", ""), text))
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
        ranges: list[tuple[int, int]] = []
        earlier: list[tuple[int, EarlierCall]] = []
        for at, text in enumerate(texts):
            found = self.reuse(table, text)
            if found is not None:
                earlier.append((at, found))
            elif ranges and ranges[-1][1] == at:
                ranges[-1] = ranges[-1][0], at + 1
            else:
                ranges.append((at, at + 1))
        return ranges, earlier


def read_run(connection: ServerConnection, run: str) -> OpenRun:
    """Read a run as it is now: its calls, and the results it has."""
    info = connection.ask(lambda client: client.run(run))
    opened = OpenRun(run)
    for array in info.get("arrays") or ():
        table, first = array["task"], int(array["first"])
        opened.first = max(opened.first, first + int(array["count"]))
        for element, call in enumerate(table.get("calls") or (), first):
            opened.calls.setdefault((table.get("function", ""), call), deque()).append(element)
    while True:
        page = connection.ask(lambda client: client.results(run, opened.after))
        opened.rows.update((row.element, row) for row in rows_of_page(page, connection.trust))
        for closed in closed_ranges(page):
            opened.rows.update((n, closed.row(n)) for n in range(closed.low, closed.high))
        opened.after = max(opened.after, int(page["last"]))
        if not page["results"]:
            return opened
