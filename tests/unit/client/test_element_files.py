"""How the files of each task of a sweep look, at a cost that is bounded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from shoal.client.element_files import ABSENT, GONE, ElementFiles
from shoal.model.limits import FINGERPRINT_WIDTH, MAX_COMPARED
from shoal.model.task.spec import Submission
from shoal.wire.submission import parse_submission


def submission(cwd: Path, **table: Any) -> Submission:
    return parse_submission({"cwd": str(cwd), "tasks": [table]})


def parts(text: str) -> list[str]:
    return [text[at : at + FINGERPRINT_WIDTH] for at in range(0, len(text), FINGERPRINT_WIDTH)]


def test_files_that_parameters_name_are_told_apart_and_others_are_absent(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    made = submission(tmp_path, command=["cat", "{f}"], params={"f": ["a", "b", "c", "a"]})
    first, second, third, fourth = parts(ElementFiles(made).read()[0])
    assert first == fourth != second and third == ABSENT
    assert ElementFiles(submission(tmp_path, command=["sim", "{x}"], params={"x": "1..9"})).read() == [""]


def test_a_name_of_several_lines_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a\nb").write_text("first", encoding="utf-8")
    made = submission(tmp_path, command=["cat", "{f}"], params={"f": ["a\nb"]})
    before = ElementFiles(made).read()
    (tmp_path / "a\nb").write_text("second", encoding="utf-8")
    assert ElementFiles(made).read() != before != [""]


def test_a_value_is_looked_at_once_and_a_sweep_that_is_too_large_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = os.stat

    def counted(path: Any, **more: Any) -> os.stat_result:
        asked.append(str(path))
        return real(path, **more)

    (tmp_path / "a").write_text("a", encoding="utf-8")
    monkeypatch.setattr(os, "stat", counted)
    both = {"f": ["a", "b"], "n": "1..50"}
    ElementFiles(submission(tmp_path, command=["cat", "{f}"], params=both)).read()
    assert sorted(asked) == [str(tmp_path / "a"), str(tmp_path / "b")]
    asked.clear()
    large = submission(tmp_path, command=["cat", "{f}"], outputs=["o-{n}"], params={**both, "n": f"1..{MAX_COMPARED}"})
    assert ElementFiles(large).read() == [""] and ElementFiles(large).written(False) == [[]]
    assert asked == []


def test_what_tasks_write_is_gone_or_has_a_date_and_a_shared_file_has_none(tmp_path: Path) -> None:
    (tmp_path / "o-1").write_text("", encoding="utf-8")
    os.utime(tmp_path / "o-1", (50, 50))
    (tmp_path / "all").write_text("", encoding="utf-8")
    made = submission(tmp_path, command=["sim", "{x}"], params={"x": "1..2"}, outputs=["o-{x}", "all"])
    assert ElementFiles(made).written(False) == [[50.0, GONE]]
    shared = submission(tmp_path, command=["sim", "{x}"], params={"x": "1..2"}, outputs=["all"])
    assert ElementFiles(shared).written(False) == [[0.0, 0.0]]
    elsewhere = submission(tmp_path, command=["sim", "{x}"], params={"x": "1..2"}, outputs=["p-{x}"])
    assert ElementFiles(elsewhere).written(True) == [[]], "on a far host they may well be there"


def test_all_that_a_task_of_a_workflow_reads_is_its_own_but_what_another_writes(tmp_path: Path) -> None:
    for name in ("data", "mid", "prog"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    tables = [
        {"name": "a", "command": ["./prog", "data", "-v"], "outputs": ["mid"]},
        {"name": "b", "command": ["cat", "mid"], "inputs": ["mid", "data"], "after": ["a"]},
        {"name": "c", "command": ["cat", "mid", "{x}"], "params": {"x": ["data", "none"]}, "after": ["a"]},
    ]
    first, second, third = ElementFiles(parse_submission({"tasks": tables, "cwd": str(tmp_path)})).read()
    program, data, option = parts(first)
    assert program != ABSENT != data and option == ABSENT
    assert parts(second) == [ABSENT, ABSENT, data]  # cat, mid, data: `mid` is what `a` writes
    assert data in parts(third) and len(parts(third)) % 2 == 0
    alone = ElementFiles(parse_submission({"tasks": [tables[0]], "cwd": str(tmp_path)}))
    assert alone.read() == [""]  # no workflow: its files are those of the run


def test_what_is_stored_elsewhere_is_not_looked_for_here(tmp_path: Path) -> None:
    (tmp_path / "o-1").write_text("", encoding="utf-8")
    os.utime(tmp_path / "o-1", (50, 50))
    given: dict[str, Any] = {"command": ["sim"], "params": {"x": "1..1"}, "outputs": ["o-{x}", "far"]}
    assert ElementFiles(submission(tmp_path, **given)).written(False) == [[GONE]]
    stored = {"far": "file:///store/{x}"}
    assert ElementFiles(submission(tmp_path, **given, store=stored)).written(False) == [[50.0]]
    assert ElementFiles(submission(tmp_path, **given, store={**stored, "o-{x}": "file:///o"})).written(False) == [[]]


def test_files_that_were_renamed_after_they_were_written_have_both_dates(tmp_path: Path) -> None:
    made = submission(tmp_path, command=["sim", "{x}"], params={"x": "1..4"}, outputs=["o-{x}", "all"])
    for name in ("o-1", "o-2", "older", "all"):
        (tmp_path / name).write_text("", encoding="utf-8")
    assert ElementFiles(made).renamed() == [[]], "nothing is sent of files that are as they were written"
    for name in ("o-2", "older", "all"):
        os.utime(tmp_path / name, (50, 50))
    (tmp_path / "o-3").symlink_to("older")
    first, second, third, fourth = ElementFiles(made).renamed()[0]
    assert first == fourth == []
    assert second == [50.0, (tmp_path / "o-2").stat().st_ctime]
    assert third == [50.0, max((tmp_path / "o-3").lstat().st_ctime, (tmp_path / "older").stat().st_ctime)]
