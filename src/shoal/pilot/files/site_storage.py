"""The storage of a site as a place of files, by their names: a directory that its hosts see, a web server, or XRootD [CMS C7].

What is there may have changed since, or be another file of that name: the digest decides, as everywhere.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from typing import Optional

from shoal.data.sources import STORAGE, Place, Rule, places_of
from shoal.model.task.url_input import XROOTD
from shoal.pilot.files.fetch import NotHere, Source, SourceFailed, Write
from shoal.pilot.files.parts import PIECE
from shoal.pilot.files.web_source import WebSource


class StorageFile:
    """One file in a directory that this host sees."""

    def __init__(self, path: str) -> None:
        self._path, self.place = path, Place(STORAGE, path)

    def fetch(self, digest: str, size: Optional[int], write: Write, deadline: float) -> None:
        """As `Source.fetch`."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise NotHere(error.strerror or str(error)) from None
        with open(fd, "rb", buffering=0) as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or (size is not None and found.st_size != size):
                raise NotHere("it is another file")  # most likely a newer one: no fault of the storage
            while data := self._read(file.read):
                write(data)

    def _read(self, read: Callable[[int], Optional[bytes]]) -> bytes:
        try:
            return read(PIECE) or b""
        except OSError as error:
            raise SourceFailed(error.strerror or str(error)) from None


def storage_of(name: str, rules: Iterable[Rule]) -> list[Source]:
    """Where the site's storage may have a file, by its name."""
    return [source_at(place) for place in places_of(name, rules)]


def source_at(place: str, kind: str = STORAGE) -> Source:
    """A path or a URL as a place of one file."""
    if place.startswith("/"):
        return StorageFile(place)
    if place.partition(":")[0].lower() in XROOTD:
        from shoal.pilot.files.xrootd import XrootdSource  # few sites have one

        return XrootdSource(place, kind)
    return WebSource(place, kind)
