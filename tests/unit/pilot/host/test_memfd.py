"""Files in memory."""

from __future__ import annotations

import os

from shoal.pilot.host import memfd


def test_a_file_in_memory_is_read_by_its_path_and_lies_on_no_disk() -> None:
    fd = memfd.hold(b"key")
    try:
        with open(memfd.path_of(fd), "rb") as file:
            assert file.read() == b"key"
        assert os.read(fd, 10) == b"key"
        assert os.readlink(memfd.path_of(fd)).startswith("/memfd:")
        assert not os.get_inheritable(fd)
    finally:
        os.close(fd)


def test_what_the_next_program_needs_it_gets() -> None:
    fd = memfd.hold(b"zip", inherit=True)
    assert os.get_inheritable(fd)
    os.close(fd)
