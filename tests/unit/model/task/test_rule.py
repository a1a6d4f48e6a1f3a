"""What a rule takes, and the tasks that it makes [CMS C8; ADR 0058]."""

from __future__ import annotations

import pytest

from shoal.model.task.rule import Rule
from shoal.wire.submission import parse_rules


def rule(**more: object) -> Rule:
    table = {"name": "a", "files": "raw/*.dat", **({} if "shell" in more else {"command": ["do", "{file}"]}), **more}
    return parse_rules([table], (), is_open=False)[0]


@pytest.mark.parametrize(
    ("pattern", "name", "is_taken"),
    [
        ("raw/*.dat", "raw/a.dat", True), ("raw/*.dat", "raw/a/b.dat", False), ("raw/*.dat", "raw/.a.dat", False),
        ("raw/*.dat", "a.dat", False), ("*/x?", "a/x1", True), ("*/x?", "a/X1", False), ("[ab]", "b", True),
    ],
)  # fmt: skip
def test_a_pattern_stays_within_folders(pattern: str, name: str, is_taken: bool) -> None:
    assert rule(files=pattern).takes(name) is is_taken


def test_a_task_of_one_file_has_it_as_a_parameter() -> None:
    table = rule(outputs=["out/{file.stem}.{number}"]).table_of(["raw/{x}.dat"], 7)
    assert table["params"] == [{"file": "raw/{x}.dat", "number": 7}] and table["command"] == ["do", "{file}"]


def test_gathered_files_are_words_of_their_own() -> None:
    table = rule(command=["cat", "{files}", "-"], inputs=["{files}"], gather=3).table_of(["a b", "{c}"], 2)
    assert table["command"] == ["cat", "a b", "{{c}}", "-"] and table["inputs"] == ["a b", "{{c}}"]
    assert table["params"] == [{"number": 2, "count": 2}]


def test_a_task_has_no_more_files_than_its_fields_have_place_for() -> None:
    gather = {"gather": 1_000, "command": ["cat", "{files}"]}
    assert rule(**gather).most == 1_000
    assert rule(**gather, inputs=["{files}", "a", "b"]).most == 998
    assert rule(**{**gather, "command": ["cat", *["{files}"] * 11]}).most == 909
    assert rule().most == 1
    shell = rule(gather=9, shell="cat {files}")
    found = shell.table_of(["raw/a b.dat"] * 5, 1)["params"][0]["files"]
    assert 5 * shell.length_of("raw/a b.dat") == len(found) + 1 and shell.length == 4_097
    command = rule(**gather)
    assert command.length_of("{ä") == 5 and command.length == 1024 * 1024 - 4
    assert rule(gather=9, command=["x"], inputs=["{files}"]).length_of("a") == 0
