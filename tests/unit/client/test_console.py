"""Standard output that cannot be written ends a command in order; one that is closed by its reader is not told."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from shoal.client.console import OutputLost, telling


def test_what_cannot_be_written_is_told_once_and_nothing_fails_afterwards(tmp_path: Path) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        stream = telling(full)
        stream.write("text")
        with pytest.raises(OutputLost, match="cannot write to standard output: No space left on device"):
            stream.flush()
        stream.write("more")
        stream.close()


def test_a_reader_that_has_ended_is_no_loss(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", encoding="utf-8") as pipe:
        stream = telling(pipe)
        stream.write("text")
        with pytest.raises(BrokenPipeError):
            stream.flush()
        with pytest.raises(BrokenPipeError):
            stream.close()


def test_text_arrives_as_before_and_what_is_no_file_is_left(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w", encoding="ascii", errors="backslashreplace") as file:
        stream = telling(file)
        stream.write("a\u00e4\n")
        stream.flush()
    assert (tmp_path / "file").read_bytes() == b"a\\xe4\n"
    memory = io.StringIO()
    assert telling(memory) is memory
