"""A file that is fetched from an http(s) URL: one that a task names, or the storage of the site."""

from __future__ import annotations

import time
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
        """As `Source.fetch`. What breaks off goes on where it did, if the server can."""
        written, pause = 0, PAUSE
        for left in range(TRIES - 1, -1, -1):
            before = written
            try:
                written = self._read_some(write, written, deadline)
                return
            except _Broken as error:
                written = error.written
                if not left:
                    raise SourceFailed(str(error)) from None
            pause = PAUSE if written > before else 2 * pause
            if time.monotonic() + pause > deadline:
                raise SourceFailed("it is too slow")
            time.sleep(pause)

    def _read_some(self, write: Write, written: int, deadline: float) -> int:
        import urllib.error  # few pilots need it, and none to start
        import urllib.request
        from http.client import HTTPException

        headers = {"User-Agent": "shoal", "Accept-Encoding": "identity"}
        if written:
            headers["Range"] = f"bytes={written}-"
        request = urllib.request.Request(self.url, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=min(STALL, max(0.1, deadline - time.monotonic()))) as response:
                skip = 0 if response.status == 206 else written
                length = response.headers.get("Content-Length")
                left = int(length) if length is not None and length.isdigit() else None
                while True:
                    data = response.read(PIECE)
                    if not data:
                        break
                    left = None if left is None else left - len(data)
                    fresh = data[min(skip, len(data)) :]
                    skip -= len(data) - len(fresh)
                    write(fresh)  # which raises nothing that is caught here
                    written += len(fresh)
                if left:
                    raise _Broken("it broke off", written)
                return written
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in _GONE:
                raise NotHere(f"it answered {error.code} {error.reason}") from None
            if error.code == 416 and written:
                raise SourceFailed("it became shorter while it was read") from None
            raise _Broken(f"it answered {error.code} {error.reason}", written) from None
        except urllib.error.URLError as error:
            raise _Broken(_text(error.reason), written) from None
        except (OSError, HTTPException) as error:
            raise _Broken(_text(error), written) from None
        except ValueError as error:
            raise SourceFailed(f"it is no URL that can be fetched: {error}", transient=False) from None


class _Broken(Exception):
    """A transfer broke off; another try may go on."""

    def __init__(self, why: str, written: int) -> None:
        super().__init__(why)
        self.written = written


def _text(error: object) -> str:
    if isinstance(error, TimeoutError) or str(error) == "timed out":  # Python 3.9 has a class of its own
        return f"no byte came for {STALL:.0f} s"
    return (error.strerror if isinstance(error, OSError) else "") or str(error)
