"""Upload and download of a blob: the next request, and the meaning of a response [protocol 6].

Pure: client and pilot bring connection, bytes and time. After a lost connection the client requests how much of an
upload the server has; a download continues behind what was received. Every digest is verified.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Optional

from shoal.model.blobs import Bytes, parse_digest

PIECE = 1 << 20  # bytes sent or read at a time
AT_ONCE = 1 << 20  # bytes up to which a blob is sent without a request for its offset
TRIES = 8  # in a row without progress before the transfer fails
PAUSE, LONGEST_PAUSE = 0.2, 10.0  # seconds after a failed try, doubled each time
CHECKPOINT = "checkpoint"  # `?for=` of an upload: it is held while its task needs it, not for a day
OFFSET = "X-Shoal-Offset"
_LATER = (429, 503)


class _Transfer:
    """One transfer of a blob: the next request, and how many tries are left."""

    def __init__(self, digest: str) -> None:
        self.digest = parse_digest(digest)
        self.path = f"/v1/blobs/{digest}"
        self.pause = 0.0  # seconds to wait before the next request
        self._tries = 0

    def lost(self) -> bool:
        """Note a missing or incomplete response; True if another try is worth it."""
        self._tries += 1
        self.pause = min(PAUSE * 2 ** (self._tries - 1), LONGEST_PAUSE)
        return self._tries < TRIES

    def _later(self, after: Optional[float]) -> bool:
        """Note that the server is overloaded: retry when it said, within limits. True if another try is worth it."""
        may_retry = self.lost()
        self.pause = max(self.pause, min(after or 0.0, LONGEST_PAUSE))
        return may_retry


class Put(_Transfer):
    """An upload."""

    def __init__(self, digest: str, total: int) -> None:
        super().__init__(digest)
        self.total = total
        self.offset: Optional[int] = (
            0 if total <= AT_ONCE else None
        )  # of the bytes to send; None: request only how much is there
        self._most = 0
        self._afresh = False

    def headers(self) -> dict[str, str]:
        """Of the next request, whose body is what `pieces` gives from `offset` on."""
        if self.offset is None:
            return {"Content-Range": f"bytes */{self.total}", "Content-Length": "0"}
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(self.total - self.offset)}
        if self.offset:
            headers["Content-Range"] = f"bytes {self.offset}-{self.total - 1}/{self.total}"
        return headers

    def lost(self) -> bool:
        """Note a broken connection: the next request is for how much arrived."""
        self.offset = None if self.total else 0
        return super().lost()

    def answered(self, status: int, code: str, offset: str, after: Optional[float]) -> bool:
        """True if this response is final. `code` is that of an error, `offset` and `after` are headers."""
        self.pause = 0.0
        if status == 409 and code == "wrong_offset" and offset.isdigit() and int(offset) <= self.total:
            self._go_on(int(offset))
            return self._tries >= TRIES
        if status == 422 and code == "wrong_digest" and self.offset != 0 and not self._afresh:
            self.offset, self._afresh = 0, True  # what the server had was wrong or damaged: send all of it once more
            return False
        if code in ("being_sent", "taken_over"):
            self.offset, self.pause = None, max(after or 0.0, PAUSE)  # another client sends it: wait for its end
            return False
        if status in _LATER:
            return not self._later(after)
        return True

    def go_on(self) -> None:
        """Count tries anew: whoever sends it has a patience of its own."""
        self._tries = 0

    def _go_on(self, offset: int) -> None:
        if offset > self._most:
            self._tries = 0
        elif self.offset is not None:
            self._tries += 1  # it was sent from the offset that the server named
        self._most, self.offset = max(self._most, offset), offset


class Get(_Transfer):
    """A download."""

    def __init__(self, digest: str) -> None:
        super().__init__(digest)
        self.got = 0
        self._hash: Any = hashlib.sha256()

    def headers(self) -> dict[str, str]:
        """Of the next request."""
        return {"Range": f"bytes={self.got}-"} if self.got else {}

    def took(self, data: Bytes) -> None:
        """Take a piece of the response."""
        self._hash.update(data)
        self.got += len(data)
        self._tries = 0

    def answered(self, status: int, after: Optional[float]) -> bool:
        """True if this response is final: its bytes, or a refusal. With 200 all bytes come, whatever was requested."""
        self.pause = 0.0
        if status == 200 and self.got:
            self.got, self._hash = 0, hashlib.sha256()
        if status in _LATER:
            return not self._later(after)
        return True

    @property
    def is_right(self) -> bool:
        """True if the bytes have the requested digest."""
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
