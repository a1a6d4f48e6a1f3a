"""What a task names of its submitter's files, and that a pilot on the same disk recognises it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from shoal.client.sent_files import may_send
from shoal.client.visible_files import VisibleFiles, with_bindings
from shoal.model.task.visible import parse_evidence
from shoal.pilot.commands.visibility import Visibility
from shoal.wire.task import parse_spec

ELSEWHERE = "e" * 16  # another machine: only the look of the files counts


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory with a program and some data."""
    folder = tmp_path / "anna" / "project"
    (folder / "out").mkdir(parents=True)
    for name in ("sim", "data.txt"):
        (folder / name).write_text(name)
    (tmp_path / "anna" / "tool").write_text("tool")
    return folder


def needed(here: Path, **task: Any) -> list[str]:
    """The paths that a task needs, below the directory of the test."""
    found = VisibleFiles().of(parse_spec(task), str(here))
    base = str(here.parent.parent)
    return [path.removeprefix(base) for path, text in found.items() if parse_evidence(text).is_needed]


PROJECT = ["/anna/project"]


@pytest.mark.parametrize(
    ("task", "paths"),
    [
        ({"command": ["./sim"]}, PROJECT),
        ({"command": ["python3", "sim"]}, PROJECT),
        ({"command": ["cat", "--file=data.txt"]}, PROJECT),
        ({"command": ["sh", "-c", "wc -l<data.txt"]}, PROJECT),
        ({"shell": "sort 'data.txt' | uniq"}, PROJECT),
        ({"shell": "echo hi > new.txt"}, PROJECT),
        ({"command": ["bash", "-c", "echo hi >>new.txt"]}, PROJECT),
        ({"command": ["x"], "cwd": "out"}, ["/anna/project/out"]),
        ({"command": ["x"], "stdin": "data.txt"}, PROJECT),
        ({"command": ["x"], "outputs": ["new"]}, PROJECT),
        ({"command": ["x", "-o", "out/{n}.json"], "params": {"n": "1..3"}}, PROJECT),
        ({"command": ["hostname"]}, []),
        ({"command": ["sim"]}, []),  # the program of that name on the PATH
        ({"command": ["sh", "-c", "echo line; echo {x}"], "params": {"x": "1..2"}}, []),
        ({"shell": "echo seen = 1 > $SHOAL_TAGS; echo 2>&1; echo > /dev/null"}, []),
        ({"command": ["/usr/bin/env", "true", "/tmp"]}, []),
        ({"command": ["./sim"], "cwd": "own"}, []),  # it is looked for in the task's own directory
    ],
)
def test_what_a_task_names_is_needed(here: Path, task: dict[str, Any], paths: list[str]) -> None:
    assert needed(here, **task) == paths


@pytest.mark.parametrize(
    ("task", "paths"),
    [
        ({"shell": "mkdir -p out; wc data.txt > out/res", "inputs": ["data.txt"], "outputs": ["out/res"]}, []),
        ({"command": ["mkdir", "./out/"], "outputs": ["out/deep/{x}"], "params": {"x": "1..2"}}, []),
        ({"command": ["x", "out"], "outputs": ["out"]}, []),
        ({"command": ["x", "out"], "outputs": ["out.txt"]}, PROJECT),
        ({"command": ["x", "."], "outputs": ["out/res"]}, PROJECT),
        ({"command": ["x", "out/other"], "outputs": ["out/res"]}, PROJECT),
        ({"command": ["x", "out"], "inputs": ["out/other"], "outputs": ["out/res"]}, PROJECT),  # it may read more there
    ],
)
def test_a_directory_of_outputs_that_come_back_binds_no_task(
    here: Path, task: dict[str, Any], paths: list[str]
) -> None:
    (here / "out" / "other").write_text("")
    found = VisibleFiles().of(parse_spec(task), str(here), is_sent=True)
    assert [path for path, text in found.items() if parse_evidence(text).is_needed] == [
        f"{here.parent.parent}{path}" for path in paths
    ]


def test_a_program_elsewhere_on_the_disk_is_needed_by_itself(here: Path) -> None:
    tool = str(here.parent / "tool")
    assert needed(here, command=[tool], cwd="own") == ["/anna/tool"]
    assert needed(here, shell=f"{tool} --fast") == ["/anna/tool"]


def test_a_directory_that_is_not_needed_is_preferred(here: Path) -> None:
    ((path, text),) = VisibleFiles().of(parse_spec({"command": ["hostname"]}), str(here)).items()
    assert path == str(here) and not parse_evidence(text).is_needed


@pytest.mark.parametrize("change", ["nothing", "outputs", "own files", "empty"])
def test_a_pilot_that_sees_the_same_disk_recognises_it_although_tasks_wrote_there(here: Path, change: str) -> None:
    """One witness that is as it was is enough: its own, or one of a directory above."""
    if change == "empty":
        here = here / "out"
    visible = VisibleFiles(machine=ELSEWHERE).of(parse_spec({"command": ["x"], "cwd": str(here)}), str(here))
    if change != "nothing":
        (here / "new").write_text("1")
    if change == "own files":
        for path in here.iterdir():
            os.utime(path, (1, 1))
    assert Visibility().missing(visible) == ""


def test_equal_paths_with_other_content_are_not_taken_for_the_same(here: Path) -> None:
    """Even with the same names, sizes and times: it is another directory."""
    visible = VisibleFiles(machine=ELSEWHERE).of(parse_spec({"command": ["./sim"]}), str(here))
    times = {path.name: path.stat() for path in here.iterdir()}
    here.rename(here.with_name("before"))
    (here / "out").mkdir(parents=True)
    for name in ("sim", "data.txt"):
        (here / name).write_text(name)
        os.utime(here / name, ns=(times[name].st_atime_ns, times[name].st_mtime_ns))
    sight = Visibility()
    assert sight.missing(visible) == str(here)
    assert sight.covers(visible, str(here)) is False and sight.covers(visible, "/other") is None


def test_a_copy_of_a_program_is_as_good_as_the_program(here: Path) -> None:
    """Where the same software is installed on every host, its directory is another on each."""
    tool = here.parent / "tool"
    visible = VisibleFiles(machine=ELSEWHERE).of(parse_spec({"command": [str(tool)], "cwd": "own"}), str(here))
    tool.rename(tool.with_name("before"))
    tool.write_text("tool")
    os.utime(tool, (5, 5))
    assert Visibility().missing(visible) == ""
    tool.write_text("tool 2")
    here.parent.rename(here.parent.with_name("gone"))
    here.parent.mkdir()
    tool.write_text("tool 2")
    assert Visibility().missing(visible) == str(tool)


def as_somebody_else(look: Callable[[], str]) -> str:
    """What is found by a process that may not write in directories of mode 755 that this one made."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            if not os.getuid():
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            os.write(writing, look().encode() or b"-")
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as told:
        found = told.read()
    os.waitpid(child, 0)
    return found


@pytest.mark.parametrize("machine", ["", ELSEWHERE])
def test_who_may_not_write_where_the_submitter_may_does_not_see_the_same(machine: str) -> None:
    """A task that writes there would fail as if it were its own fault; and what it reads may be there."""
    with TemporaryDirectory() as folder:  # others may enter the directories above it, unlike those of `tmp_path`
        here = Path(folder)
        (here / "data").mkdir()
        (here / "data" / "in.txt").write_text("")
        look = VisibleFiles(machine=machine) if machine else VisibleFiles()
        writes = look.of(parse_spec({"command": ["x"], "outputs": ["new"]}), folder)
        prints = look.of(parse_spec({"command": ["x"], "stdout": "log"}), folder)
        prefers = look.of(parse_spec({"command": ["hostname"]}), folder)
        reads = look.of(parse_spec({"command": ["cat", f"{folder}/data"], "cwd": "own"}), "/")
        assert [Visibility().missing(one) for one in (writes, prints, reads)] == ["", "", ""]
        sight = Visibility()
        here.chmod(0o755 if not os.getuid() else 0o555)
        try:
            assert as_somebody_else(lambda: sight.missing(writes)) == folder
            assert as_somebody_else(lambda: sight.missing(prints)) == folder
            assert as_somebody_else(lambda: str(sight.covers(prefers, folder))) == "False"
            assert as_somebody_else(lambda: sight.missing(reads)) == "-", "a directory that it only reads"
            for_all = look.of(parse_spec({"command": ["ls"], "cwd": "/usr"}), folder)
            assert as_somebody_else(lambda: sight.missing(for_all)) == "-", "root's right to write there means nothing"
            theirs = {path: text.rpartition(".")[0] for path, text in writes.items()}  # the last one says "written"
            assert as_somebody_else(lambda: sight.missing(theirs)) == "-", "the submitter may not write there, either"
        finally:
            here.chmod(0o755)


def test_on_the_submitters_own_machine_a_deleted_directory_is_seen_as_deleted(here: Path) -> None:
    """It is the submitter's doing, and no reason to wait for another pilot."""
    visible = VisibleFiles().of(parse_spec({"command": ["./sim"]}), str(here))
    here.rename(here.with_name("gone"))
    assert Visibility().missing(visible) == ""


@pytest.mark.parametrize(
    ("task", "by"),
    [
        ({"command": ["./sim"]}, "its command names './sim'"),
        ({"shell": "echo hi > ../new.txt", "outputs": ["kept"]}, "its command writes to '../new.txt'"),
        ({"shell": "echo > 'a\"b'", "outputs": ['a"b']}, "its command writes to 'a'"),
        ({"command": ["x"], "cwd": "out"}, "the task asks for this directory (cwd)"),
        ({"command": ["x"], "stdin": "data.txt"}, "the task declares 'data.txt'"),
        ({"command": ["x"], "outputs": ["new"], "stdout": "log"}, "the task declares 'new'"),
        ({"command": ["x"], "stdout": "log"}, "what it prints goes to 'log'"),
    ],
)
def test_what_binds_a_task_to_a_directory_that_no_pilot_sees_is_named(
    here: Path, task: dict[str, Any], by: str
) -> None:
    visible = VisibleFiles().of(parse_spec(task), str(here), may_send(parse_spec(task)))
    path = next(iter(visible))
    run = {"cwd": str(here), "arrays": [{"task": {"command": ["hostname"]}}, {"task": {**task, "visible": visible}}]}
    why = {"reasons": [{"code": "not_visible", "text": f"no pilot sees {path} as you do"}, {"code": "x", "text": "y"}]}
    found = with_bindings(why, lambda: run)["reasons"]
    assert [reason["text"] for reason in found] == [f"no pilot sees {path} as you do; {by}", "y"]
