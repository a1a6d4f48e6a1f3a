"""A file that is fetched from an http(s) URL: one that a task names, or the storage of the site."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Optional

from shoal.data.sources import ORIGIN, Place
from shoal.pilot.files.fetch import NotHere, SourceFailed, Write
from shoal.pilot.files.parts import PIECE

STALL = 30.0  # seconds without a byte [input E66]
TRIES, PAUSE = 4, 0.5  # of a file that breaks off; seconds before the next, doubled each time
_GONE = (401, 403, 404, 410)


class WebSource:
    """One URL. Proxies are those of the environment; certificates are checked."""

    def __init__(self, url: str, kind: str = ORIGIN) -> None:
        self.url, self.place = url, Place(kind, url)

    def fetch(self, digest: str, size: Optional[int], write: Write, deadline: float) -> None:
        """As `Source.fetch`. What breaks off goes on where it did, if the server can, and if it is known to be the same file
        still: by what the server says of it, or afterwards by its digest."""
        transfer, pause = _Transfer(write, bool(digest)), PAUSE
        for left in range(TRIES - 1, -1, -1):
            before = transfer.written
            try:
                self._read_some(transfer, deadline)
                return
            except _Broken as error:
                if not left:
                    raise SourceFailed(str(error)) from None
            pause = PAUSE if transfer.written > before else 2 * pause
            if time.monotonic() + pause > deadline:
                raise SourceFailed("it is too slow")
            time.sleep(pause)

    def _read_some(self, transfer: _Transfer, deadline: float) -> None:
        import urllib.error  # few pilots need it, and none to start
        import urllib.request
        from http.client import HTTPException

        headers = {"User-Agent": "shoal", "Accept-Encoding": "identity", **transfer.headers()}
        request = urllib.request.Request(self.url, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=min(STALL, max(0.1, deadline - time.monotonic()))) as response:
                skip = transfer.begin(response.status, response.headers)
                length = response.headers.get("Content-Length")
                left = int(length) if length is not None and length.isdigit() else None
                while True:
                    data = response.read1(PIECE)  # what is there: who sends a byte now and then must not hold us up
                    if not data:
                        break
                    left = None if left is None else left - len(data)
                    fresh = data[min(skip, len(data)) :]
                    skip -= len(data) - len(fresh)
                    transfer.write(fresh)  # which raises nothing that is caught here
                if left:
                    raise _Broken("it broke off")
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in _GONE:
                raise NotHere(f"it answered {error.code} {error.reason}") from None
            if error.code == 416 and transfer.written:
                raise SourceFailed("it became shorter while it was read") from None
            raise _Broken(f"it answered {error.code} {error.reason}") from None
        except urllib.error.URLError as error:
            raise _Broken(_text(error.reason)) from None
        except (OSError, HTTPException) as error:
            raise _Broken(_text(error)) from None
        except ValueError as error:
            raise SourceFailed(f"it is no URL that can be fetched: {error}", transient=False) from None


class _Broken(Exception):
    """A transfer broke off; another try may go on."""


class _Transfer:
    """What came of a file so far, and of which version of it."""

    def __init__(self, write: Write, has_digest: bool) -> None:
        self._write, self._has_digest = write, has_digest
        self.written = 0
        self._version = ""  # by which the server knows whether it is the same file still; empty: it does not say

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self._write(data)
        self.written += len(data)

    def headers(self) -> dict[str, str]:
        """What asks for the rest of the very file that was begun, else for all of it."""
        if self.written and not (self._version or self._has_digest):
            self._restart()
        if not self.written:
            return {}
        condition = {"If-Range": self._version} if self._version else {}
        return {"Range": f"bytes={self.written}-", **condition}

    def begin(self, status: int, headers: Mapping[str, str]) -> int:
        """Take the head of an answer; returns how many bytes of it are here already."""
        version, range_ = _version(headers), headers.get("Content-Range") or ""
        is_rest = status == 206 and (range_.startswith(f"bytes {self.written}-") or not range_)
        is_same = version == self._version and bool(version or self._has_digest)
        if status == 206 and not (is_rest and (is_same or not version)):
            self._restart()
            raise _Broken("it sent another part than was asked for, or of another file")
        if status != 206 and not is_same:
            self._restart()
            self._version = version
        return 0 if status == 206 else self.written

    def _restart(self) -> None:
        if self.written:
            self._write.restart()
        self.written, self._version = 0, ""


def _version(headers: Mapping[str, str]) -> str:
    """What tells versions of a file apart; a weak tag does not, byte for byte."""
    tag = headers.get("ETag") or ""
    return tag if tag.startswith('"') else headers.get("Last-Modified") or ""


def _text(error: object) -> str:
    if isinstance(error, TimeoutError) or str(error) == "timed out":  # Python 3.9 has a class of its own
        return f"no byte came for {STALL:.0f} s"
    return (error.strerror if isinstance(error, OSError) else "") or str(error)
