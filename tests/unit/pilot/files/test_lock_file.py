"""The lock file of a cache: a wait that ends, and all that changed, or that this is not known."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.pilot.files.lock_file import RECORDS, append, read_number, read_since, wait_for_lock


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    made = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    yield made
    os.close(made)


def name(number: int) -> str:
    return f"{'part ' if number % 2 else ''}sha256:{number:064x}"


def test_what_changed_since_is_told_as_long_as_the_ring_has_it(fd: int) -> None:
    assert read_number(fd) == 0 and read_since(fd, 0, 0) == set()
    for number in range(RECORDS + 10):
        assert append(fd, name(number)) == number
    last = read_number(fd)
    assert last == RECORDS + 10
    assert read_since(fd, last - 3, last) == {name(last - 3), name(last - 2), name(last - 1)}
    assert len(read_since(fd, 10, last) or ()) == RECORDS
    assert (
        read_since(fd, 9, last) is None and read_since(fd, -1, last) is None and read_since(fd, last + 1, last) is None
    )


def test_a_pilot_that_only_counted_or_was_killed_before_it_counted_shows(fd: int) -> None:
    append(fd, name(0))
    os.pwrite(fd, (2).to_bytes(8, "big"), 0)  # as pilots of an older version do
    assert read_since(fd, 0, 2) is None and read_since(fd, 0, 1) == {name(0)}
    append(fd, name(2))
    assert read_since(fd, 1, 3) is None and read_since(fd, 2, 3) == {name(2)}
    os.pwrite(fd, (2).to_bytes(8, "big"), 0)  # killed after the record
    append(fd, name(7))
    assert read_since(fd, 2, 3) == {name(7)}


def test_a_lock_is_waited_for_until_it_is_free_or_the_time_is_over(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open("r+b") as holder, (tmp_path / "lock").open("r+b") as waiter:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match="keeps the cache there locked"):
            wait_for_lock(waiter.fileno(), time.monotonic() + 0.05, "there")
        timer = threading.Timer(0.05, lambda: fcntl.flock(holder, fcntl.LOCK_UN))
        timer.start()
        wait_for_lock(waiter.fileno(), time.monotonic() + 60.0, "there")
        timer.join()
