"""A file of the cache while it is written, and while it is used; what is wrong with bytes that came [promise I15]."""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING, Any, Optional

from shoal.model.blobs import Bytes
from shoal.pilot.host.disk_space import is_full

if TYPE_CHECKING:
    from shoal.pilot.files.host_cache import HostCache

GROW = 8 << 20  # bytes that are reserved at once for a file of unknown size
PIECE = 1 << 20
FILE_MODE, FOLDER_MODE = 0o444, 0o700
FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


class NoRoom(Exception):
    """The cache has no space for a file; the text says what it has."""


class WrongBytes(Exception):
    """What came is not what the digest names."""


class Held:
    """A whole file that stays while this is open, with verified bytes; nobody may write to it."""

    def __init__(self, path: str, fd: int, size: int, is_private: bool = False) -> None:
        self.path, self.size = path, size
        self.is_private = is_private  # it is in no cache, and goes when this is closed
        self._fd = fd

    @property
    def is_cached(self) -> bool:
        """True if it is a file of the cache, which compares it with its digest again where it was changed. One of the server's
        own, which a pilot beside it reads where it lies, is not."""
        return self._fd >= 0 and not self.is_private

    def descriptor(self) -> int:
        """Another descriptor of it, for which it stays, too; the caller closes it."""
        return os.dup(self._fd)

    def close(self) -> None:
        """Let the cache remove it."""
        if self._fd >= 0:
            if self.is_private:
                with contextlib.suppress(OSError):
                    os.unlink(self.path)
            os.close(self._fd)
            self._fd = -1


class Part:
    """A file that is being written; nobody else sees it before it is whole and right."""

    def __init__(self, cache: HostCache, digest: str, path: str, fd: int, size: Optional[int]) -> None:
        self._cache, self._digest, self._path, self._fd = cache, digest, path, fd
        self._size, self._reserved = size, size or 0
        self.written = 0
        self._hash: Any = hashlib.sha256()

    def write(self, data: Bytes) -> None:
        """Append bytes. WrongBytes: more came than there should be; NoRoom: they have no place."""
        end = self.written + memoryview(data).nbytes
        if self._size is not None and end > self._size:
            raise WrongBytes(f"more came than its {self._size:,} bytes")
        if end > self._reserved:
            wanted = max(end, self._reserved + GROW)
            try:
                self._cache.reserve(self._digest, self._fd, wanted)
            except NoRoom:
                wanted = end
                self._cache.reserve(self._digest, self._fd, wanted)
            self._reserved = wanted
        self._hash.update(data)
        write_all(self._fd, data, self.written, self._cache.folder)
        self.written = end

    def copy_to(self, other: PrivatePart) -> None:
        """Write what came so far into a file beside the cache."""
        for at in range(0, self.written, PIECE):
            other.write(os.pread(self._fd, min(PIECE, self.written - at), at))

    def restart(self) -> None:
        """Forget what was written: another place is tried."""
        self.written, self._hash = 0, hashlib.sha256()

    def is_right(self) -> bool:
        """True if what was written is whole and right."""
        return is_right(self._digest, self._hash)

    def finish(self) -> Held:
        """Put the file into the cache, if it is right."""
        check(self._digest, self._hash, self._size, self.written)
        return self._cache.commit(self._digest, self._path, self._fd, self.written)

    def drop(self) -> None:
        """Give it up."""
        self._cache.drop(self._digest, self._path, self._fd)


class PrivatePart:
    """A file that is being written for one use beside the cache, which has no place for it."""

    def __init__(self, path: str, digest: str, size: Optional[int]) -> None:
        """An empty digest: it is found out, `digest` when it is finished."""
        self._path, self.digest, self._size = path, digest, size
        self.written = 0
        self._hash: Any = hashlib.sha256()
        folder = os.path.dirname(path)
        try:
            os.makedirs(folder, mode=FOLDER_MODE, exist_ok=True)
            disk = os.statvfs(folder)
            if size is not None and size > disk.f_bavail * disk.f_frsize:
                raise NoRoom(f"it has {size:,} bytes, and {disk.f_bavail * disk.f_frsize:,} are free in {folder}")
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | FLAGS, 0o600)
        except OSError as error:
            raise no_room(error, folder) from None

    def write(self, data: Bytes) -> None:
        """Append bytes, as `Part.write`."""
        end = self.written + memoryview(data).nbytes
        if self._size is not None and end > self._size:
            raise WrongBytes(f"more came than its {self._size:,} bytes")
        self._hash.update(data)
        write_all(self._fd, data, self.written, os.path.dirname(self._path))
        self.written = end

    def restart(self) -> None:
        """Forget what was written."""
        self.written, self._hash = 0, hashlib.sha256()

    def is_right(self) -> bool:
        """As `Part.is_right`."""
        return is_right(self.digest, self._hash)

    def finish(self) -> Held:
        """The file, which goes when it is closed."""
        self.digest = self.digest or f"sha256:{self._hash.hexdigest()}"
        check(self.digest, self._hash, self._size, self.written)
        try:
            os.ftruncate(self._fd, self.written)
            os.fchmod(self._fd, FILE_MODE)
        except OSError as error:
            raise no_room(error, os.path.dirname(self._path)) from None
        return Held(self._path, self._fd, self.written, is_private=True)

    def drop(self) -> None:
        """Give it up."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        os.close(self._fd)


def is_right(digest: str, hashed: Any) -> bool:
    """True if this is the hash of the bytes that the digest names."""
    return f"sha256:{hashed.hexdigest()}" == digest


def check(digest: str, hashed: Any, size: Optional[int], written: int) -> None:
    """Raise WrongBytes unless a file is whole and right."""
    if size is not None and written < size:
        raise WrongBytes(f"{written:,} of its {size:,} bytes came")
    if not is_right(digest, hashed):
        raise WrongBytes(f"what came is not {digest}")


def write_all(fd: int, data: Bytes, at: int, folder: str) -> None:
    """Write at a place of a file; NoRoom where the disk has none."""
    left = memoryview(data)
    try:
        while left:
            count = os.pwrite(fd, left, at)
            left, at = left[count:], at + count
    except OSError as error:
        raise no_room(error, folder) from None


def no_room(error: OSError, folder: str) -> NoRoom:
    """The failure of the disk as one of space."""
    what = "no space left" if is_full(error) else (error.strerror or str(error))
    return NoRoom(f"{what} in {folder}")
