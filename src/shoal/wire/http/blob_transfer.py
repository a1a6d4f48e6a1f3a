"""How a blob travels between a server and who has or wants it: what to ask next, and what an answer means [protocol 6].

Pure: client and pilot bring connection, bytes and time. After a lost connection the server is asked how much of an
upload it has; a download goes on behind what came. A digest is believed of nobody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Optional

from shoal.model.blobs import Bytes, parse_digest

PIECE = 1 << 20  # bytes sent or read at a time
AT_ONCE = 1 << 20  # bytes up to which a blob is sent without asking first
TRIES = 8  # in a row without a byte more, before one gives up
PAUSE, LONGEST_PAUSE = 0.2, 10.0  # seconds after a try that came to nothing, doubled each time
CHECKPOINT = "checkpoint"  # `?for=` of an upload: it is held while its task needs it, not for a day
OFFSET = "X-Shoal-Offset"
_LATER = (429, 503)


class _Way:
    """One blob on its way: the next request, and how much patience is left."""

    def __init__(self, digest: str) -> None:
        self.digest = parse_digest(digest)
        self.path = f"/v1/blobs/{digest}"
        self.pause = 0.0  # seconds to wait before the next request
        self._tries = 0

    def lost(self) -> bool:
        """No answer, or half of one: is it worth another try?"""
        self._tries += 1
        self.pause = min(PAUSE * 2 ** (self._tries - 1), LONGEST_PAUSE)
        return self._tries < TRIES

    def _later(self, after: Optional[float]) -> bool:
        """The server has no time: come back when it said, but not for ever."""
        worth = self.lost()
        self.pause = max(self.pause, min(after or 0.0, LONGEST_PAUSE))
        return worth


class Put(_Way):
    """A blob on its way to the server."""

    def __init__(self, digest: str, total: int) -> None:
        super().__init__(digest)
        self.total = total
        self.offset: Optional[int] = 0 if total <= AT_ONCE else None  # of the bytes to send; None: only ask
        self._most = 0
        self._afresh = False

    def headers(self) -> dict[str, str]:
        """Of the next request, whose body is what `pieces` gives from `offset` on."""
        if self.offset is None:
            return {"Content-Range": f"bytes */{self.total}", "Content-Length": "0"}
        told = {"Content-Type": "application/octet-stream", "Content-Length": str(self.total - self.offset)}
        if self.offset:
            told["Content-Range"] = f"bytes {self.offset}-{self.total - 1}/{self.total}"
        return told

    def lost(self) -> bool:
        """The connection broke: ask how much came."""
        self.offset = None if self.total else 0
        return super().lost()

    def answered(self, status: int, code: str, offset: str, after: Optional[float]) -> bool:
        """Is this the last word, good or bad? `code` is that of an error, `offset` and `after` are headers."""
        self.pause = 0.0
        if status == 409 and code == "wrong_offset" and offset.isdigit() and int(offset) <= self.total:
            self._go_on(int(offset))
            return self._tries >= TRIES
        if status == 422 and code == "wrong_digest" and self.offset != 0 and not self._afresh:
            self.offset, self._afresh = 0, True  # what lay there was not ours, or is damaged: once more, all of it
            return False
        if code in ("being_sent", "taken_over"):
            self.offset, self.pause = None, max(after or 0.0, PAUSE)  # another sends it: that goes on, or ends
            return False
        if status in _LATER:
            return not self._later(after)
        return True

    def _go_on(self, offset: int) -> None:
        if offset > self._most:
            self._tries = 0
        elif self.offset is not None:
            self._tries += 1  # it was sent from where the server had said
        self._most, self.offset = max(self._most, offset), offset


class Get(_Way):
    """A blob on its way from the server."""

    def __init__(self, digest: str) -> None:
        super().__init__(digest)
        self.got = 0
        self._hash: Any = hashlib.sha256()

    def headers(self) -> dict[str, str]:
        """Of the next request."""
        return {"Range": f"bytes={self.got}-"} if self.got else {}

    def took(self, data: Bytes) -> None:
        """A piece came."""
        self._hash.update(data)
        self.got += len(data)
        self._tries = 0

    def answered(self, status: int, after: Optional[float]) -> bool:
        """Is this the last word: its bytes, or a refusal? With 200 all bytes come, whatever was asked for."""
        self.pause = 0.0
        if status == 200 and self.got:
            self.got, self._hash = 0, hashlib.sha256()
        if status in _LATER:
            return not self._later(after)
        return True

    @property
    def is_right(self) -> bool:
        """Are these the bytes that were asked for?"""
        return f"sha256:{self._hash.hexdigest()}" == self.digest


def pieces(parts: Sequence[Bytes], offset: int) -> Iterator[memoryview]:
    """The bytes of these parts from an offset on, piece by piece and without copying any."""
    for part in parts:
        view = memoryview(part)
        if offset >= view.nbytes:
            offset -= view.nbytes
            continue
        view = view.cast("B")
        for at in range(offset, len(view), PIECE):
            yield view[at : at + PIECE]
        offset = 0
