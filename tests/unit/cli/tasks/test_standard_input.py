"""Standard input: sent when asked for, refused when it would be lost."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.cli.tasks import standard_input
from shoal.cli.tasks.standard_input import check_unread, read_file, read_standard_input
from shoal.model.errors import BadInput, TooLarge
from shoal.model.limits import MAX_INLINE
from shoal.wire.payload import of_text


@pytest.fixture
def pipe() -> Iterator[int]:
    """Our standard input is a pipe, of which this is the other end."""
    kept, (read, write) = os.dup(0), os.pipe()
    os.dup2(read, 0)
    os.close(read)
    yield write
    os.dup2(kept, 0)
    os.close(kept)


def test_an_empty_pipe_that_was_closed_holds_nothing(pipe: int) -> None:
    os.close(pipe)
    assert not check_unread()


def test_an_open_pipe_may_still_bring_something(pipe: int) -> None:
    assert check_unread()
    os.close(pipe)


def test_a_pipe_with_bytes_is_refused_and_keeps_them(pipe: int) -> None:
    os.write(pipe, b"line\n")
    with pytest.raises(BadInput, match="--stdin - sends it"):
        check_unread()
    os.close(pipe)
    assert of_text(read_standard_input().text) == b"line\n"


def test_a_file_counts_from_where_it_was_read(tmp_path: Path, pipe: int) -> None:
    os.close(pipe)
    (tmp_path / "list").write_text("a\nb\n")
    with (tmp_path / "list").open("rb") as file:
        os.dup2(file.fileno(), 0)
    with pytest.raises(BadInput):
        check_unread()
    os.lseek(0, 0, os.SEEK_END)
    assert not check_unread()


def test_what_is_long_becomes_a_blob(tmp_path: Path) -> None:
    for size in (MAX_INLINE, MAX_INLINE + 1, 3_000_000):
        data = bytes(size)
        (tmp_path / "long").write_bytes(data)
        sent = read_file(str(tmp_path / "long"), "long")
        if size <= MAX_INLINE:
            assert of_text(sent.text) == data and not sent.blob
        else:
            assert sent.text == f"sha256:{hashlib.sha256(data).hexdigest()}" and bytes(sent.blob) == data


def test_what_is_too_long_or_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard_input, "MAX_STDIN", 1 << 20)
    (tmp_path / "long").write_bytes(bytes(1 << 21))
    with pytest.raises(TooLarge, match="long is too long to be sent"):
        read_file(str(tmp_path / "long"), "long")
    with pytest.raises(BadInput, match="cannot read nowhere"):
        read_file(str(tmp_path / "nowhere"), "nowhere")
