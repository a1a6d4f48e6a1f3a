"""Blobs on the disk: parts that grow, and whole ones under their names. Called on threads; owners are not known here.

blobs/ab/HEX        whole, 0400: a file with this name is whole and durable, and never changes
blobs/part/KEY/HEX  an upload so far, 0600; KEY stands for its owner. HEX.N: one that cannot be continued
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shoal.db.database_lock import sync_folder
from shoal.model.errors import BadInput, Refused
from shoal.model.file_names import blob_name
from shoal.model.quantities import show_size

PARTS = "part"
READ = 1 << 20
MAX_VECTOR = 512  # buffers of one write: fewer than any system limits
MOST_SPARE = 10 << 30  # bytes of the disk that blobs leave to the database and to other programs: so many,
SPARE_SHARE = 20  # or this fraction of a smaller disk
_HEX = re.compile("[0-9a-f]{64}")


def key_of(owner: str) -> str:
    """The folder of an owner's parts: owner names are not safe as file names."""
    return hashlib.sha256(owner.encode("utf-8", "replace")).hexdigest()[:32]


class Part:
    """One upload that is not whole yet. Its methods block, and are called by one thread at a time."""

    def __init__(self, path: Path, size: int = 0, touched: float = 0.0) -> None:
        self.path, self.size, self.touched = path, size, touched
        self.total = size  # as the last sender announced
        self._fd = -1
        self._hash: Any = None  # None: what is on the disk was written by an earlier server

    @property
    def name(self) -> str:
        """The digest that the whole blob will have."""
        return f"sha256:{self.path.name.partition('.')[0]}"

    def open(self, afresh: bool) -> None:
        """Open the file to append, behind what is here or from the start."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        found = os.fstat(self._fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(None, "not a plain file")
        if afresh or found.st_size < self.size:
            os.ftruncate(self._fd, 0)
            self.size, self._hash = 0, hashlib.sha256()
        elif self._hash is None or found.st_size > self.size:
            self._read_again()
        os.lseek(self._fd, self.size, os.SEEK_SET)

    def _read_again(self) -> None:
        self._hash, self.size = hashlib.sha256(), 0
        os.lseek(self._fd, 0, os.SEEK_SET)
        while data := os.read(self._fd, READ):
            self._hash.update(data)
            self.size += len(data)

    def append(self, pieces: Sequence[bytes]) -> None:
        """Write buffers without joining them first."""
        for piece in pieces:
            self._hash.update(piece)
        views = [memoryview(piece) for piece in pieces]
        while views:
            done = os.writev(self._fd, views[:MAX_VECTOR])
            self.size += done
            while views and done >= len(views[0]):
                done -= len(views.pop(0))
            if done:
                views[0] = views[0][done:]

    def close(self) -> None:
        """Close the file; again is harmless."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def discard(self) -> None:
        """Delete the part."""
        self.close()
        self.size, self._hash = 0, None
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()

    def publish(self, folder: Path, durable: bool) -> None:
        """Make the part the blob, durable before it has its name; with a wrong digest it is deleted."""
        if f"sha256:{self._hash.hexdigest()}" != self.name:
            self.discard()
            raise BadInput(
                f"the bytes that came are not {self.name}", code="wrong_digest", field="digest", hint="send them again"
            )
        target = folder / blob_name(self.name)
        if is_there(target, self.size):
            self.discard()
            return
        os.fchmod(self._fd, 0o400)  # tasks of this account may be handed its path
        if durable:
            os.fsync(self._fd)
        self.close()
        if not target.parent.is_dir():
            target.parent.mkdir(mode=0o700, exist_ok=True)
            if durable:
                sync_folder(folder)
        self.path.rename(target)
        if durable:
            sync_folder(target.parent)


def is_there(path: Path, size: int) -> bool:
    """True if a blob is on the disk, with this size."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == size


def check_space(folder: Path, wanted: int) -> None:
    """Refuse an upload that would leave too little of the disk to everything else."""
    disk = shutil.disk_usage(folder)
    spare = min(MOST_SPARE, disk.total // SPARE_SHARE)
    if wanted and disk.free - wanted < spare:
        raise disk_full(f"{show_size(disk.free)} are free, and {show_size(spare)} must stay so")


def disk_full(why: str) -> Refused:
    """The refusal of a blob for which the server's disk has no space."""
    return Refused(f"no space for this blob: {why}", code="disk_full", hint="free some space on the server's disk")


def scan_parts(folder: Path) -> dict[str, list[Part]]:
    """Key -> parts that earlier servers left; those that cannot be continued are removed."""
    found: dict[str, list[Part]] = {}
    for path in sorted((folder / PARTS).glob("*/*")):
        seen = path.lstat()
        if _HEX.fullmatch(path.name) and stat.S_ISREG(seen.st_mode):
            found.setdefault(path.parent.name, []).append(Part(path, seen.st_size, seen.st_mtime))
        else:
            remove(path)
    return found


def names(folder: Path) -> Iterator[str]:
    """The digests of all whole blobs on the disk; slow with many."""
    for inner in sorted(folder.iterdir()):
        if len(inner.name) == 2 and inner.is_dir():
            with os.scandir(inner) as entries:
                yield from (f"sha256:{entry.name}" for entry in entries if _HEX.fullmatch(entry.name))


def remove(path: Path) -> None:
    """Delete a file, if it is there."""
    with contextlib.suppress(OSError):
        path.unlink()


def remove_all(paths: Sequence[Path]) -> None:
    """Delete files, those that are there."""
    for path in paths:
        remove(path)
