"""Looks at the files of a running attempt: everything inside its directory, nothing outside."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from shoal.model.limits import MAX_ENTRIES, MAX_PEEK
from shoal.pilot.commands import peek
from shoal.wire.messages import FileAnswer, Order


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The directory of an attempt, with a secret beside it."""
    inside = tmp_path / "task"
    (inside / "out").mkdir(parents=True)
    (inside / "out" / "x").write_bytes(b"0123456789")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "task2").mkdir()
    (tmp_path / "task2" / "x").write_text("of a neighbour whose name begins like ours")
    return inside


def read(home: Path, path: str, offset: int = 0, count: int = MAX_PEEK) -> FileAnswer:
    return peek.answer(str(home), Order("read_file", "r1.1#1", path=path, offset=offset, count=count, request="q"))


def listed(home: Path, path: str = "") -> FileAnswer:
    return peek.answer(str(home), Order("list_files", "r1.1#1", path=path, request="q"))


def data(answer: FileAnswer) -> bytes:
    assert not answer.error
    return base64.b64decode(answer.data)


def test_a_file_is_read_from_an_offset_and_from_its_end(home: Path) -> None:
    assert data(read(home, "out/x")) == b"0123456789"
    assert (data(read(home, "out/x", 7)), read(home, "out/x", 7).offset) == (b"789", 7)
    assert (data(read(home, "out/x", -3)), read(home, "out/x", -3).offset) == (b"789", 7)
    assert data(read(home, "out/x", -300)) == b"0123456789"
    assert data(read(home, "out/x", 2, 3)) == b"234"
    assert data(read(home, "out/x", 10**15)) == b""
    assert read(home, "out/x").size == 10


def test_every_byte_travels_and_no_more_than_the_limit(home: Path) -> None:
    content = bytes(range(256)) * (MAX_PEEK // 256 + 10)
    (home / "large").write_bytes(content)
    assert data(read(home, "large", count=10**9)) == content[:MAX_PEEK]
    assert read(home, "large").size == len(content)


def test_a_directory_is_listed_with_kinds_and_sizes_and_up_to_a_limit(home: Path) -> None:
    (home / "link").symlink_to("out/x")
    os.mkfifo(home / "pipe")
    found = {entry.name: (entry.kind, entry.size) for entry in listed(home).entries}
    assert found == {"link": ("link", 0), "out": ("directory", 0), "pipe": ("other", 0)}
    assert [entry.name for entry in listed(home, "out").entries] == ["x"]
    for number in range(MAX_ENTRIES + 5):
        (home / "out" / f"f{number:05}").touch()
    many = listed(home, "out")
    assert (len(many.entries), many.size) == (MAX_ENTRIES, MAX_ENTRIES + 6)


@pytest.mark.parametrize("path", ["../secret", "out/../../secret", "/etc/passwd", "..", "out/x\0"])
def test_a_path_that_leads_out_is_refused(home: Path, path: str) -> None:
    for answer in (read(home, path), listed(home, path)):
        assert (answer.code, answer.data, answer.entries) == ("leads_out", "", [])
        assert "leads out of the task's directory" in answer.error


def test_links_are_followed_inside_and_refused_outward(home: Path) -> None:
    (home / "inside").symlink_to("out/x")
    (home / "far").symlink_to(home / "out")
    (home / "outside").symlink_to("../secret")
    (home / "neighbour").symlink_to("../task2")
    assert data(read(home, "inside")) == b"0123456789"
    assert data(read(home, "far/x")) == b"0123456789"
    assert read(home, "outside").code == "leads_out"
    assert f"to {home.parent}/secret" in read(home, "outside").error
    assert read(home, "neighbour/x").code == "leads_out", "a name that only begins like ours is another"
    assert listed(home, "neighbour").code == "leads_out"


def test_what_is_no_file_is_not_waited_for(home: Path) -> None:
    os.mkfifo(home / "pipe")
    assert read(home, "pipe").code == "not_regular_file"
    assert read(home, "out").code == "not_regular_file"
    assert read(home, "nothing").code == "no_such_file"
    assert listed(home, "out/x").code == "not_directory"
    (home / "loop").symlink_to("loop")
    assert read(home, "loop").error


def test_a_task_in_the_root_directory_does_not_show_the_secrets_of_the_pilot() -> None:
    for path in ("proc/self/environ", "proc/self/cmdline", f"proc/{os.getpid()}/maps", "sys/kernel/mm/ksm/run"):
        answer = peek.answer("/", Order("read_file", "r1.1#1", path=path, count=100, request="q"))
        assert answer.data == ""
        assert answer.error
    assert peek.answer("/", Order("list_files", "r1.1#1", path="proc/self", request="q")).code == "leads_out"


def test_a_name_that_is_not_utf8_is_listed_all_the_same(home: Path) -> None:
    Path(os.fsdecode(bytes(home / "out") + b"/\xff")).touch()
    assert [entry.name for entry in listed(home, "out").entries] == ["x", "\\udcff"]


def test_a_directory_that_was_removed_is_an_answer_too(tmp_path: Path) -> None:
    assert listed(tmp_path / "gone").error
