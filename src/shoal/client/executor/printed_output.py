"""What functions print, on the screen of the person who called them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from shoal.client.connection.reconnect import Reconnecting, ServerConnection, Stopped
from shoal.client.executor.outcome import ELEMENT, ERR, LINE, OUT, Row
from shoal.model.errors import ShoalError

if TYPE_CHECKING:
    from shoal.client.executor.background import Background


class PrintedOutput:
    """Writes the output of calls. A single line came with the result; more is fetched aside."""

    def __init__(self, link: Reconnecting, background: Background) -> None:
        self._line, self._background = ServerConnection(link), background

    def show(self, run: str, rows: list[Row]) -> None:
        """Show what these calls wrote."""
        for row in rows:
            out, line = row[OUT], row[LINE]
            if not row[ERR]:
                size = len(line.encode("utf-8", "replace"))
                if out == size or out == size + 1:
                    write(sys.stdout, line + "\n" * (out - size))
                    continue
            self._background.put(lambda row=row: self._fetch(run, row))  # type: ignore[misc]  # this very row

    def _fetch(self, run: str, row: Row) -> None:
        task = f"{run}.{row[ELEMENT]}"
        for stream, size in (("stdout", row[OUT]), ("stderr", row[ERR])):
            if size:
                write(sys.stdout if stream == "stdout" else sys.stderr, self._read(task, stream))

    def _read(self, task: str, stream: str) -> str:
        data, at = b"", 0
        try:
            while True:
                part = self._line.ask(lambda client, at=at: client.logs(task, stream, offset=at))  # type: ignore[misc]  # bound now
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
        """Let the connection go."""
        self._line.drop()


def write(stream: TextIO | None, text: str) -> None:
    """Write if somebody listens; a closed pipe is no reason to lose results."""
    try:
        if stream is not None and text:
            stream.write(text)
            stream.flush()
    except (OSError, ValueError):
        pass
