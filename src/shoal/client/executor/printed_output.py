"""Output of functions, written to the standard streams of the program that called them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from shoal.client.connection.reconnect import Reconnecting, ServerConnection, Stopped
from shoal.client.executor.outcome import ResultRow
from shoal.model.errors import ShoalError

if TYPE_CHECKING:
    from shoal.client.executor.background import Background


class PrintedOutput:
    """Writes the output of calls. A single line came with the result; more is fetched in the background."""

    def __init__(self, link: Reconnecting, background: Background) -> None:
        self._connection, self._background = ServerConnection(link), background

    def show(self, run: str, rows: list[ResultRow]) -> None:
        """Write the output of these calls."""
        for row in rows:
            if not row.stderr_bytes:
                missing = row.stdout_bytes - len(row.last_line.encode("utf-8", "replace"))
                if missing in (0, 1):  # all but perhaps the final newline is here
                    write(sys.stdout, row.last_line + "\n" * missing)
                    continue
            self._background.put(lambda row=row: self._fetch(run, row))  # type: ignore[misc]  # this very row

    def _fetch(self, run: str, row: ResultRow) -> None:
        task = f"{run}.{row.element}"
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
        """Close the connection."""
        self._connection.drop()


def write(stream: TextIO | None, text: str) -> None:
    """Write to a stream if it is open; a closed pipe is no reason to lose results."""
    try:
        if stream is not None and text:
            stream.write(text)
            stream.flush()
    except (OSError, ValueError):
        pass
