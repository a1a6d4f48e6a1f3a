"""Whether something can be read from an open file."""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Iterator

import pytest

from shoal.wire.http.connection import is_readable

BEYOND = 1_100  # `select` takes no file with a number of 1,024 or more


@pytest.fixture
def many_files() -> Iterator[None]:
    """Files with higher numbers than usual may be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= BEYOND:
        pytest.skip(f"no process may open more than {hard} files here (ulimit -Hn)")
    if soft <= BEYOND:
        resource.setrlimit(resource.RLIMIT_NOFILE, (BEYOND + 100, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_program_with_thousands_of_open_files_sees_what_can_be_read(many_files: None) -> None:
    reading, writing = os.pipe()
    high = fcntl.fcntl(reading, fcntl.F_DUPFD, BEYOND)
    try:
        assert not is_readable(high, 0.0) and not is_readable(high, 0.01)
        os.write(writing, b"x")
        assert is_readable(high, 0.0)
        os.read(high, 1)
        os.close(writing)
        assert is_readable(high, 0.0), "its end is seen"
    finally:
        os.close(reading)
        os.close(high)
