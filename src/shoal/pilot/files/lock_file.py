"""The lock file of a host's cache: its lock, and the log of changes.

The lock is waited for only for some time: who holds it may have been suspended. By the log, who looked before reads what changed
since, not the whole directory again; only who holds the lock uses it:

    number     how many changes there were
    records    a ring of the latest: the number of a change, and the name of the file that came, went or changed its size

A record that is not the one expected (there were too many since, or a pilot of an older version only counted) shows by its
number: then everything has to be looked at.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from typing import Optional

RECORDS = 1024
PAUSE, LONGEST_PAUSE = 0.0005, 0.01  # seconds between two tries to lock
_NUMBER, _RECORD = struct.Struct(">Q"), struct.Struct(">QB32s")
PART, DIGEST = "part ", "sha256:"


def wait_for_lock(fd: int, until: float, folder: str) -> None:
    """Lock an open file, by asking again and again: a thread that waits in the kernel could not give up."""
    pause = PAUSE
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                raise held_for_long(folder) from None
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def held_for_long(folder: str) -> TimeoutError:
    """The error of who waited too long for the lock of a cache."""
    return TimeoutError(errno.ETIMEDOUT, f"another pilot of this host keeps the cache {folder} locked")


def read_number(fd: int) -> int:
    """How many changes there were."""
    return int.from_bytes(os.pread(fd, _NUMBER.size, 0), "big")


def append(fd: int, name: str) -> int:
    """Note that a file (`sha256:HEX`, or `part sha256:HEX` while it is written) changed; returns the number of that change."""
    number, is_part = read_number(fd), name.startswith(PART)
    digest = bytes.fromhex(name.rpartition(":")[2])
    # First the record: if we are killed between the two, another takes its place.
    os.pwrite(fd, _RECORD.pack(number, is_part, digest), _place(number))
    os.pwrite(fd, _NUMBER.pack(number + 1), 0)
    return number


def read_since(fd: int, seen: int, number: int) -> Optional[set[str]]:
    """The names of the files that changed from one number to a later one; None where that is not known any more."""
    if not 0 <= seen <= number <= seen + RECORDS:
        return None
    names = set()
    for at in range(seen, number):
        data = os.pread(fd, _RECORD.size, _place(at))
        if len(data) < _RECORD.size:
            return None
        found, is_part, digest = _RECORD.unpack(data)
        if found != at:
            return None
        names.add(f"{PART if is_part else ''}{DIGEST}{digest.hex()}")
    return names


def _place(number: int) -> int:
    return _NUMBER.size + number % RECORDS * _RECORD.size
