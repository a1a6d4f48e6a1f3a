"""An open run as it was found or made, and the calls of an earlier life of the same script that are known in it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shoal.client.connection.reconnect import ServerConnection
from shoal.client.executor.outcome import ELEMENT, STATE, SUCCEEDED, Row, closed_row, rows_of_page

Claim = tuple[int, Row | None]  # an element, and its row if it is finished


@dataclass
class OpenRun:
    """A run that takes calls."""

    run: str
    first: int = 1  # the number of the next new element
    after: int = 0  # how far its results were read
    is_ours: bool = True  # to be closed at the end
    calls: dict[tuple[str, str], deque[int]] = field(default_factory=dict)  # function and call -> elements
    rows: dict[int, Row] = field(default_factory=dict)  # elements that are finished

    def knows(self, function: str, call: str) -> bool:
        """Was there such a call?"""
        return (function, call) in self.calls

    def claim(self, table: Mapping[str, Any], text: str) -> Claim | None:
        """An earlier element with this very call, used once; None if the call is new."""
        if not self.calls:
            return None
        elements = self.calls.get((table.get("function", ""), text))
        while elements:
            element = elements.popleft()
            row = self.rows.pop(element, None)
            # What failed then is tried again: that is why a script is started a second time.
            if row is None or row[STATE] == SUCCEEDED:
                return element, row
        return None

    def split(
        self, table: Mapping[str, Any], texts: list[str]
    ) -> tuple[list[tuple[int, int]], list[tuple[int, Claim]]]:
        """Calls taken apart: ranges of new ones, and places with the earlier element that they are."""
        if not self.calls:
            return [(0, len(texts))], []
        ranges: list[tuple[int, int]] = []
        claims: list[tuple[int, Claim]] = []
        for at, text in enumerate(texts):
            found = self.claim(table, text)
            if found is not None:
                claims.append((at, found))
            elif ranges and ranges[-1][1] == at:
                ranges[-1] = ranges[-1][0], at + 1
            else:
                ranges.append((at, at + 1))
        return ranges, claims


def read_run(line: ServerConnection, run: str) -> OpenRun:
    """A run as it is now: its calls, and the results it has."""
    told = line.ask(lambda client: client.run(run))
    opened = OpenRun(run)
    for array in told.get("arrays") or ():
        table, first = array["task"], int(array["first"])
        opened.first = max(opened.first, first + int(array["count"]))
        for element, call in enumerate(table.get("calls") or (), first):
            opened.calls.setdefault((table.get("function", ""), call), deque()).append(element)
    while True:
        page = line.ask(lambda client: client.results(run, opened.after))
        opened.rows.update((row[ELEMENT], row) for row in rows_of_page(page, line.trust))
        for low, high, *how in page.get("closed") or ():
            opened.rows.update((n, closed_row(n, *how)) for n in range(low, high))
        opened.after = max(opened.after, int(page["last"]))
        if not page["results"]:
            return opened
