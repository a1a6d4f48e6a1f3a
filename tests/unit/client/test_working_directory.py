"""The current directory, also where there is none any more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.client.working_directory import working_directory
from shoal.model.errors import BadInput


def test_it_is_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert working_directory() == str(tmp_path)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            FileNotFoundError(2, "No such file or directory"),
            "the current directory was deleted (cd to one that exists)",
        ),
        (PermissionError(13, "Permission denied"), "the current directory cannot be used: Permission denied"),
    ],
)
def test_one_that_is_gone_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, error: OSError, words: str) -> None:
    def fail() -> str:
        raise error

    monkeypatch.setattr(os, "getcwd", fail)
    with pytest.raises(BadInput) as caught:
        working_directory()
    assert caught.value.line.startswith(words)
