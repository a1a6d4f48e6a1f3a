"""What this machine can tell before anything is sent [input E44, E45], and the state of the files it names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.tasks.preflight import awaited_files, check_here, fingerprints
from shoal.cli.tasks.submission import Draft, draft_command
from shoal.client import element_files, file_states
from shoal.model.errors import BadInput, Refused
from shoal.wire.submission import parse_submission
from tests.unit.cli.tasks.test_submission import options


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def draft(words: list[str], axes: tuple[str, ...] = (), **given: Any) -> Draft:
    return draft_command(words, axes, options(**given))


def test_what_is_there_passes(here: Path) -> None:
    (here / "in.txt").write_text("x", encoding="utf-8")
    (here / "sim").write_text("#!/bin/sh\n", encoding="utf-8")
    (here / "sim").chmod(0o755)
    check_here(draft(["./sim"], inputs=("in.txt",), stdin="in.txt"))
    check_here(draft(["cat", "in.txt"]))
    check_here(draft(["/bin/sh"]))


@pytest.mark.parametrize("field", ["inputs", "stdin"])
def test_a_missing_file_is_refused(field: str) -> None:
    """Row 44."""
    given = {"inputs": ("no.txt",)} if field == "inputs" else {"stdin": "no.txt"}
    with pytest.raises(BadInput) as caught:
        check_here(draft(["cat"], **given))
    assert (caught.value.code, caught.value.field) == ("no_such_file", field)
    assert "no.txt" in caught.value.line


def test_an_error_has_the_place_of_its_table_where_that_is_known() -> None:
    with pytest.raises(BadInput, match=r"^w\.dag:1: "):
        check_here(
            draft(["cat"], inputs=("no.txt",)),
            place=lambda error, number: BadInput(f"w.dag:{number + 1}: {error.message}", code=error.code),
        )


def test_inputs_that_nobody_is_known_to_write_are_named(here: Path) -> None:
    (here / "there").touch()
    inputs = ["out/a", "there", "log", "typo.txt"]
    tasks = [
        {"name": "a", "command": ["x"], "outputs": ["out"], "stdout": "log"},
        {"name": "b", "command": ["x"], "after": ["a"], "inputs": inputs},
    ]
    document = {"tasks": tasks, "cwd": str(here)}
    assert awaited_files(Draft(document, parse_submission(document), "")) == [("b", "typo.txt")]


def test_a_pipe_or_device_is_not_an_input_and_a_directory_is_one(here: Path) -> None:
    """Row 45."""
    os.mkfifo(here / "pipe")
    for name in ("/dev/null", "pipe"):
        with pytest.raises(BadInput) as caught:
            check_here(draft(["cat"], inputs=(name,)))
        assert caught.value.code == "not_regular_file"
    check_here(draft(["cat"], inputs=(str(here),)))


def test_files_of_a_sweep_are_looked_up_element_by_element(here: Path) -> None:
    (here / "1.txt").write_text("x", encoding="utf-8")
    with pytest.raises(BadInput, match=r"2\.txt"):
        check_here(draft(["cat"], ("x=1..3",), inputs=("{x}.txt",)))


def test_files_are_looked_for_in_the_directory_of_the_task(here: Path) -> None:
    (here / "sub").mkdir()
    (here / "sub" / "in.txt").write_text("x", encoding="utf-8")
    check_here(draft(["cat"], cwd="sub", inputs=("in.txt",)))


def test_a_missing_directory_is_refused() -> None:
    with pytest.raises(BadInput, match="no directory"):
        check_here(draft(["ls"], cwd="nowhere"))


def test_a_program_that_is_not_there_is_refused(here: Path) -> None:
    (here / "data").write_text("x", encoding="utf-8")
    for word, hint in (
        ("sim-that-is-not", "spelling"),
        ("./sim", "looked for"),
        ("/no/sim", "path"),
        ("./data", "chmod"),
        ("data", "./data"),
    ):
        with pytest.raises(Refused) as caught:
            check_here(draft([word]))
        assert caught.value.code == ("not_executable" if word == "./data" else "no_such_program")
        assert hint in caught.value.hint


def test_a_program_that_cannot_be_known_here_is_not_asked_for() -> None:
    check_here(draft(["./{x}"], ("x=a,b",)))
    check_here(draft(["./sim"], cwd="own"))
    check_here(draft(["whatever | more"], shell=True))
    check_here(draft(["tool"], env=("PATH={x}",), axes=("x=/a,/b",)))


def test_files_that_the_command_names_have_fingerprints(here: Path) -> None:
    for name in ("sim.py", "data.txt", "out.txt", "1.in", "image.sif"):
        (here / name).write_text(name, encoding="utf-8")
    assert set(fingerprints(draft(["sh", "sim.py", "none.txt", "."]))) == {"sim.py"}
    assert set(fingerprints(draft(["sh", "sim.py"], inputs=("data.txt",), stdin="1.in"))) == {
        "sim.py",
        "data.txt",
        "1.in",
    }
    assert set(fingerprints(draft(["sh", "sim.py", "out.txt"], outputs=("out.txt",)))) == {"sim.py"}
    assert set(fingerprints(draft(["sh", "{x}.in"], ("x=1..1",)))) == set()
    assert set(fingerprints(draft(["sh", "x"], ("x=1..1",), inputs=("{x}.in",)))) == set(), "it is noted task by task"
    assert set(fingerprints(draft(["sh"], container="image.sif"))) == {"image.sif"}


def test_a_fingerprint_is_of_the_content_whatever_the_date(here: Path) -> None:
    script = here / "sim.py"
    script.write_text("one", encoding="utf-8")
    first = fingerprints(draft(["sh", "sim.py"]))
    os.utime(script, (9, 9))
    assert fingerprints(draft(["sh", "sim.py"])) == first
    script.write_text("two", encoding="utf-8")
    os.utime(script, (5, 5))
    assert fingerprints(draft(["sh", "sim.py"])) != first


def test_a_file_that_is_too_large_to_be_read_is_told_by_size_date_and_inode(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_states, "MAX_DIGESTED", 5)
    data, other = here / "data", here / "other"
    for file in (data, other):
        file.write_text("123456", encoding="utf-8")
        os.utime(file, (9, 9))
    first = fingerprints(draft(["sh"], inputs=("data",)))
    assert fingerprints(draft(["sh"], inputs=("data",))) == first
    other.rename(data)
    assert fingerprints(draft(["sh"], inputs=("data",))) != first


@pytest.mark.parametrize("words", [{"inputs": ("{x}.in",), "axes": ("x=1..40",)}, {"axes": ("f=*.in",)}])
def test_files_of_a_sweep_that_is_too_large_have_one_fingerprint_together(
    here: Path, monkeypatch: pytest.MonkeyPatch, words: dict[str, Any]
) -> None:
    monkeypatch.setattr(element_files, "MAX_COMPARED", 39)
    for n in range(1, 41):
        (here / f"{n}.in").write_text("x", encoding="utf-8")
    first = fingerprints(draft(["sh", "{f}" if "inputs" not in words else "x"], **words))
    assert list(first) == ["one of 40 files"]
    (here / "17.in").write_text("y", encoding="utf-8")
    assert fingerprints(draft(["sh", "{f}" if "inputs" not in words else "x"], **words)) != first
