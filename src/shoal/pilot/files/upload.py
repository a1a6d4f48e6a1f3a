"""Outputs on their way to a place that the task names: a web server that takes PUT, or XRootD."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import IO

from shoal.model.task.url_input import XROOTD
from shoal.pilot.files import xrootd
from shoal.pilot.files.fetch import NoBlob
from shoal.pilot.files.parts import PIECE

STALL = 60.0  # seconds without an answer
TRIES, PAUSE = 4, 0.5  # seconds before the second try, doubled each time
LEAST_RATE = 256 * 1024.0  # bytes a second that a transfer by a command must make
_LATER = (408, 425, 429, 500, 502, 503, 504)


def store(url: str, fd: int) -> None:
    """Store an open file at a URL, in place of what is there; NoBlob says what is wrong."""
    if url.partition(":")[0].lower() in XROOTD:
        xrootd.store_at(url, fd, STALL + os.fstat(fd).st_size / LEAST_RATE)
        return
    pause = PAUSE
    for left in range(TRIES - 1, -1, -1):
        try:
            _put(url, fd)
            return
        except NoBlob as error:
            if not left or not error.transient:
                raise
        time.sleep(pause)
        pause *= 2


def _put(url: str, fd: int) -> None:
    import urllib.error  # few pilots need it, and none to start
    import urllib.request
    from http.client import HTTPException

    size = os.fstat(fd).st_size
    headers = {"User-Agent": "shoal", "Content-Type": "application/octet-stream", "Content-Length": str(size)}
    with open(os.dup(fd), "rb", buffering=0) as file:
        file.seek(0)
        request = urllib.request.Request(url, data=_pieces(file), headers=headers, method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=STALL):
                return
        except urllib.error.HTTPError as error:
            error.close()
            raise NoBlob(f"{url}: it answered {error.code} {error.reason}", error.code in _LATER) from None
        except (OSError, HTTPException) as error:  # `URLError` is an OSError
            raise NoBlob(f"{url}: {getattr(error, 'reason', '') or error}", transient=True) from None
        except ValueError as error:
            raise NoBlob(f"{url}: it is no URL that can be written: {error}") from None


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(PIECE), b"")
