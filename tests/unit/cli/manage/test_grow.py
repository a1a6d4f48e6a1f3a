"""Files as `shoal grow` names them: seen from the run's directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.cli.manage.grow import file_below, notes_on
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


def test_files_that_no_rule_takes_and_that_are_not_here_are_told(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    for name in ("a.dat", "b.txt"):
        (tmp_path / "raw" / name).touch()
    base = str(tmp_path)
    assert notes_on(["raw/a.dat"], ["raw/*.dat", "*.raw"], base) == []
    assert notes_on(["raw/a.dat", "raw/b.txt", "raw"], ["raw/*.dat"], base) == [
        "note: no rule takes raw/b.txt, raw (pattern: raw/*.dat)"
    ]
    assert notes_on(["raw/none.dat"], ["raw/*.dat"], base) == ["note: raw/none.dat is not here, and taken as elsewhere"]
    assert notes_on([f"{n}.txt" for n in range(5)], ["a", "b"], base) == [
        "note: no rule takes 0.txt, 1.txt, 2.txt and 2 more (patterns: a b)"
    ]
