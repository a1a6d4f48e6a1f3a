"""URLs of fsspec, with its own file systems in memory and on disk."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

import pytest

from shoal.model.errors import BadInput, Refused
from shoal.storage.fsspec_files import is_stored, read_into, write_from

fsspec = pytest.importorskip("fsspec")


def read(url: str) -> bytes:
    file = io.BytesIO()
    assert read_into(url, file) == len(file.getvalue())
    return file.getvalue()


def test_what_is_written_is_read_again_wherever_it_is(tmp_path: Path) -> None:
    for url in ("memory://bucket/deep/x", f"local://{tmp_path}/deep/x"):
        began = time.time()
        assert not is_stored(url, 3, began - 10)
        write_from(url, io.BytesIO(b"abc"))
        assert read(url) == b"abc"
        assert (
            is_stored(url, 3, began - 10) and not is_stored(url, 4, began - 10) and not is_stored(url, 3, began + 1000)
        )
        write_from(url, io.BytesIO(b""))
        assert read(url) == b""


def test_what_is_wrong_is_one_line_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="there is no file") as gone:
        read("memory://bucket/none")
    assert gone.value.code == "no_such_file"
    with pytest.raises(Refused, match="cannot be read: ValueError: Protocol not known"):
        read("nosuch://bucket/x")
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(Refused) as missing:
        read("gs://bucket/x")
    assert "gcsfs" in missing.value.message and "\n" not in missing.value.line
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(Refused, match="needs fsspec") as absent:
        read("s3://bucket/x")
    assert absent.value.hint == "pip install 'shoal[storage]'"
