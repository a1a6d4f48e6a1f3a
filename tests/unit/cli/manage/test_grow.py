"""Files as `shoal grow` names them: seen from the run's directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.cli.manage.grow import file_below
from shoal.model.errors import BadInput


def test_names_are_seen_from_the_directory_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run" / "raw").mkdir(parents=True)
    (tmp_path / "run" / "raw" / "a").touch()
    (tmp_path / "b").touch()
    monkeypatch.chdir(tmp_path / "run" / "raw")
    monkeypatch.setenv("PWD", str(tmp_path / "run" / "raw"))
    assert file_below("a", str(tmp_path / "run")) == "raw/a"
    assert file_below("raw/elsewhere", str(tmp_path / "run")) == "raw/elsewhere", "it is on another host"
    with pytest.raises(BadInput):
        file_below(str(tmp_path / "b"), str(tmp_path / "run"))
