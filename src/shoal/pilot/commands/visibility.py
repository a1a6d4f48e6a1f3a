"""Whether this host sees the submitter's files: the evidence in a lease against what is on the disk [ADR 0029]."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from typing import Optional

from shoal.model.task.visible import MOST_ENTRIES, Evidence, folder_of, levels, machine, parse_evidence, witness

MOST_KEPT = 1_000
SEEN = 0.0
LOOK_AGAIN = 5.0  # seconds: what is not seen may be mounted at any time
MOST_READ = 64 << 20  # bytes of a file whose content is compared
_BOOT, _NAMESPACE = "/proc/sys/kernel/random/boot_id", "/proc/self/ns/mnt"


class Visibility:
    """What this host was found to see. May be asked by several threads."""

    def __init__(self) -> None:
        self._machine = _own_machine()
        self._known: dict[tuple[str, str], float] = {}  # path and evidence -> until when it is not seen; `SEEN`: it is

    def is_known(self, visible: Mapping[str, str]) -> bool:
        """True if an answer needs no long look at the disk."""
        return all(item in self._known or parse_evidence(item[1]).machine == self._machine for item in visible.items())

    def missing(self, visible: Mapping[str, str]) -> str:
        """The first path that a task needs and that this host does not see; empty if it sees all."""
        for path, text in visible.items():
            if self._known.get((path, text)) != SEEN and parse_evidence(text).is_needed and not self.sees(path, text):
                return path
        return ""

    def sees(self, path: str, text: str) -> bool:
        """True if this path is here what it is to the submitter."""
        known = self._known.get((path, text))
        if known is not None and (known == SEEN or time.monotonic() < known):
            return known == SEEN
        found = _is_same(path, parse_evidence(text), self._machine)
        if len(self._known) >= MOST_KEPT:
            self._known.clear()
        self._known[path, text] = SEEN if found else time.monotonic() + LOOK_AGAIN
        return found

    def covers(self, visible: Mapping[str, str], folder: str) -> Optional[bool]:
        """True if a directory is seen by the evidence on it or on one above it; None if there is no such evidence."""
        above = [path for path in visible if folder == path or folder.startswith(path.rstrip("/") + "/")]
        if not above:
            return None
        nearest = max(above, key=len)
        return self.sees(nearest, visible[nearest])


def _own_machine() -> str:
    """The name of this kernel start and mount namespace; empty if the kernel does not tell."""
    try:
        with open(_BOOT, encoding="ascii") as file:
            return machine(file.read(), os.readlink(_NAMESPACE))
    except OSError:
        return ""


def _is_same(path: str, evidence: Evidence, ours: str) -> bool:
    if evidence.is_written and os.path.isdir(path) and not os.access(path, os.W_OK | os.X_OK):
        return False  # the submitter may write there: what a task writes would be its failure
    if evidence.machine == ours:
        # It sees what the submitter sees: also that something was deleted. But another account may not enter.
        try:
            os.stat(os.path.join(folder_of(path, evidence.is_file), "."))
        except PermissionError:
            return False
        except OSError:
            return True
        return True
    try:
        folder = os.stat(folder_of(path, evidence.is_file))
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    if stat.S_ISREG(mode) != evidence.is_file or not stat.S_ISDIR(folder.st_mode):
        return False
    if evidence.digest and _content(path) == evidence.digest:
        return True
    if folder.st_ino != evidence.inode or not os.access(folder_of(path, evidence.is_file), os.X_OK):
        return False
    wanted = frozenset(evidence.witnesses)
    return any(found in wanted for found in _looks(folder_of(path, evidence.is_file), folder.st_dev))


def _looks(folder: str, device: int) -> Iterator[str]:
    """The looks of a directory and its entries, and of those above it on the same file system."""
    for level in levels(folder):
        with contextlib.suppress(OSError):
            own = os.stat(level)
            if own.st_dev != device:
                return
            yield witness(level, True, 0, own.st_mtime_ns, own.st_ino)
            with os.scandir(level) as entries:
                for count, entry in enumerate(entries):
                    if count >= MOST_ENTRIES:
                        break
                    with contextlib.suppress(OSError):
                        found = entry.stat(follow_symlinks=False)
                        is_directory = stat.S_ISDIR(found.st_mode)
                        yield witness(entry.path, is_directory, found.st_size, found.st_mtime_ns, found.st_ino)


def _content(path: str) -> str:
    """The digest of a file's content; empty if it is large or cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            data = file.read(MOST_READ + 1)
    except OSError:
        return ""
    return f"sha256:{hashlib.sha256(data).hexdigest()}" if len(data) <= MOST_READ else ""
