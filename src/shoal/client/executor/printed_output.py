"""Output of functions, written to the standard streams of the program that called them."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from shoal.client.connection.reconnect import Reconnecting, ServerConnection, Stopped
from shoal.client.executor.outcome import ResultRow
from shoal.model.errors import ShoalError

if TYPE_CHECKING:
    from shoal.client.executor.background import Background

_log = logging.getLogger(__name__)


class PrintedOutput:
    """Writes the output of calls: in the order in which they ended, each before its result is there, no line torn.

    A single line of stdout came with the result; more is fetched in the background, and what comes after it waits.
    """

    def __init__(self, link: Reconnecting, background: Background) -> None:
        self._connection, self._background = ServerConnection(link), background
        self._lock = threading.Lock()
        self._queued = 0  # groups of rows that are in the background

    def is_current_thread(self) -> bool:
        """True if the caller is the thread that fetches and writes."""
        return self._background.is_current_thread()

    def show(self, run: str, rows: list[ResultRow], then: Callable[[list[ResultRow]], None]) -> None:
        """Write the output of these calls, and pass their rows on."""
        with self._lock:
            at = 0
            while not self._queued and at < len(rows) and (line := _single_line(rows[at])) is not None:
                write(sys.stdout, line)
                at += 1
            if at < len(rows):
                self._queued += 1
                self._background.put(lambda: self._show_all(run, rows[at:], then))
        if at:
            then(rows[:at])

    def _show_all(self, run: str, rows: list[ResultRow], then: Callable[[list[ResultRow]], None]) -> None:
        for row in rows:
            try:
                self._show(f"{run}.{row.element}", row)
            except Exception:  # the result counts more than what was printed
                _log.exception("the output of %s.%s could not be written", run, row.element)
            then([row])
        with self._lock:
            self._queued -= 1

    def _show(self, task: str, row: ResultRow) -> None:
        line = _single_line(row)
        if line is not None:
            write(sys.stdout, line)
            return
        if row.stdout_bytes:
            write(sys.stdout, self._read(task, "stdout"))
        if row.stderr_bytes:
            write(sys.stderr, self._read(task, "stderr"))

    def _read(self, task: str, stream: str) -> str:
        data, at = b"", 0
        try:
            while True:
                part = self._connection.ask(lambda client, at=at: client.logs(task, stream, offset=at))  # type: ignore[misc]  # bound now
                data += part.data
                if not part.data or part.next <= at:
                    break
                at = part.next
        except Stopped:
            pass
        except ShoalError as error:
            return data.decode("utf-8", "replace") + f"shoal: the {stream} of {task} is not there: {error.line}\n"
        return data.decode("utf-8", "replace")

    def close(self) -> None:
        """Write what is left, and close the connection."""
        self._background.finish()
        self._connection.drop()


def _single_line(row: ResultRow) -> str | None:
    """All that a call wrote, if it was one line of stdout; None if it was more."""
    missing = row.stdout_bytes - len(row.last_line.encode("utf-8", "replace"))
    if row.stderr_bytes or missing not in (0, 1):  # all but perhaps the final newline
        return None
    return row.last_line + "\n" * missing


def write(stream: TextIO | None, text: str) -> None:
    """Write to a stream if it is open; a closed pipe is no reason to lose results."""
    try:
        if stream is not None and text:
            stream.write(text)
            stream.flush()
    except (OSError, ValueError):
        pass
