"""What `--resume` compares of files, directories, URLs and programs: any change of content shows, and what cannot be known
never looks the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.client import file_states
from shoal.client.element_files import ElementFiles
from shoal.client.file_states import FileStates, parts_of
from shoal.wire.submission import parse_submission


def states(cwd: Path, *tables: dict[str, Any]) -> FileStates:
    given = [{"command": ["x"], **table} for table in tables or ({},)]
    return FileStates(parse_submission({"cwd": str(cwd), "tasks": given}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "d" / "deep").mkdir(parents=True)
    (tmp_path / "d" / "a").write_text("a")
    (tmp_path / "d" / "deep" / "b").write_text("b")
    return tmp_path


def test_a_file_in_a_directory_that_is_changed_added_or_removed_shows(folder: Path) -> None:
    d = folder / "d"

    def now() -> str:
        return states(folder).of(str(d), True)

    seen = [now()]
    assert now() == seen[0] and len(seen[0]) == 64
    changes: list[Callable[[], Any]] = [
        lambda: (d / "deep" / "b").write_text("B"), lambda: (d / "deep" / "c").write_text("c"),
        lambda: (d / "a").unlink(), lambda: (d / "deep" / "c").rename(d / "c"), lambda: (d / "e").symlink_to("none"),
    ]  # fmt: skip
    for change in changes:
        change()
        seen.append(now())
    assert len({*seen}) == len(seen)
    (d / "__pycache__").mkdir()
    (d / "__pycache__" / "a.pyc").write_text("made by python")
    assert now() == seen[-1]


def test_of_a_directory_that_is_no_input_only_a_program_is_looked_into(folder: Path) -> None:
    assert states(folder).of(str(folder / "d")) == "", "tasks may write there"
    (folder / "d" / "__main__.py").write_text("print(1)")
    before = states(folder).of(str(folder / "d"))
    (folder / "d" / "__main__.py").write_text("print(2)")
    assert before and states(folder).of(str(folder / "d")) != before


def test_what_tasks_of_the_submission_write_in_a_directory_does_not_count(folder: Path) -> None:
    table = {"outputs": ["d/out.{x}", "d/new"], "params": {"x": "1..2"}}
    before = states(folder, table).of(str(folder / "d"), True)
    (folder / "d" / "out.2").write_text("2")
    (folder / "d" / "new").mkdir()
    (folder / "d" / "new" / "n").write_text("n")
    assert states(folder, table).of(str(folder / "d"), True) == before
    (folder / "d" / "out.3").write_text("3")
    assert states(folder, table).of(str(folder / "d"), True) != before


def test_a_directory_that_only_tasks_wrote_looks_as_it_did_before_there_was_one(tmp_path: Path) -> None:
    table = {"outputs": ["made/deep/out.{x}"], "params": {"x": "1..2"}}
    made = tmp_path / "made"
    assert states(tmp_path, table).of(str(made), True) == ""
    (made / "deep").mkdir(parents=True)
    (made / "deep" / "out.1").write_text("1")
    assert states(tmp_path, table).of(str(made), True) == ""
    assert states(tmp_path, table).of_url(f"file://{made}") == states(tmp_path, table).of_url(f"file://{made}")
    (made / "deep" / "mine").write_text("1")
    assert states(tmp_path, table).of(str(made), True) != ""


def test_directories_without_files_and_links_to_directories_show(folder: Path) -> None:
    d = folder / "d"
    seen = [states(folder).of(str(d), True)]
    changes: list[Callable[[], Any]] = [
        lambda: (d / "empty").mkdir(), lambda: (d / "one").symlink_to("deep"), lambda: (d / "two").symlink_to("deep"),
        lambda: (d / "empty").rename(d / "other"), lambda: (d / "circle").symlink_to("../d"),
    ]  # fmt: skip
    for change in changes:
        change()
        seen.append(states(folder).of(str(d), True))
    assert len({*seen}) == len(seen)


def test_a_directory_with_too_many_files_never_looks_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_states, "MAX_LISTED", 1)
    assert states(folder).of(str(folder / "d"), True) != states(folder).of(str(folder / "d"), True)


def test_a_url_is_the_same_if_it_has_a_digest_or_its_file_is_seen_and_the_same(folder: Path) -> None:
    one, other = states(folder), states(folder)
    assert one.of_url(f"https://host/f#sha256={'a' * 64}") == ""
    assert one.of_url("https://host/f") != other.of_url("https://host/f"), "who knows?"
    path = folder / "d" / "a"
    before = one.of_url(f"file://{path}")
    assert before == other.of_url(f"file://{path}")
    path.write_text("A")
    assert one.of_url(f"file://{path}") != before
    assert one.of_url("file:///not/there") != other.of_url("file:///not/there")


def test_names_within_words_are_found() -> None:
    found = {
        word: [*parts_of(word)] for word in ("--config=c.ini", "a:b,c", "@l", "-cc.ini", "x", "{x:raw}", "https://h/a")
    }
    assert found == {
        "--config=c.ini": ["--config", "c.ini"], "a:b,c": ["a", "b", "c"], "@l": ["l"], "-cc.ini": ["c.ini"], "x": [],
        "{x:raw}": [], "https://h/a": [],
    }  # fmt: skip
    assert [*parts_of("--in=@{x}.ini")] == ["--in", "@{x}.ini", "{x}.ini"]


def test_a_program_of_ones_own_is_found_by_the_path(folder: Path) -> None:
    tool = folder / "tool"
    tool.write_text("#!/bin/sh\necho 1\n")
    tool.chmod(0o755)
    submission = parse_submission({"cwd": str(folder), "tasks": [{"command": ["tool"], "env": {"PATH": str(folder)}}]})
    looks = FileStates(submission)
    before = looks.of_program("tool", submission.specs[0])
    tool.write_text("#!/bin/sh\necho 2\n")
    assert before and looks.of_program("tool", submission.specs[0]) != before
    plain = parse_submission({"cwd": str(folder), "tasks": [{"command": ["sh"], "env": {"PATH": os.defpath}}]})
    assert looks.of_program("sh", plain.specs[0]) == "", "the system's own"


@pytest.mark.parametrize("has_child", [False, True])
def test_directories_parts_of_words_and_urls_are_compared_task_by_task(folder: Path, has_child: bool) -> None:
    (folder / "a.ini").write_text("1")
    tables: list[dict[str, Any]] = [
        {"name": "p", "command": ["x", "--config={f}.ini"], "inputs": ["{d}", "file://" + str(folder) + "/{f}.ini"],
         "params": [{"d": "d", "f": "a"}, {"d": "no", "f": "no"}]},
    ]  # fmt: skip
    if has_child:
        tables.append({"name": "q", "command": ["x", "--c=a.ini"], "inputs": ["d"], "after": ["p"]})

    def now() -> list[str]:
        return ElementFiles(parse_submission({"cwd": str(folder), "tasks": tables})).read()

    before = now()
    half = len(before[0]) // 2
    assert [one[:half] for one in before] == [one[:half] for one in now()]
    assert before[0][half:] != now()[0][half:], "a file that is not seen never looks the same"
    (folder / "d" / "deep" / "b").write_text("B")
    changed = now()
    assert all(one[:half] != two[:half] for one, two in zip(before, changed, strict=True))
    (folder / "a.ini").write_text("2")
    assert all(one[:half] != two[:half] for one, two in zip(changed, now(), strict=True))
