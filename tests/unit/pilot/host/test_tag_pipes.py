"""Pipes of attempts: who is told apart from whom, and that no task can do harm by what it writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.model.limits import MAX_TASK_TAGS
from shoal.pilot.host import tag_pipes
from shoal.pilot.host.tag_pipes import LINE, MOST_IDLE, READ, REST, Notice, TagPipes

ONE, TWO, OTHER = "r1.1#1@1", "r1.2#1@1", "r2.1#1@1"


@pytest.fixture
def pipes(tmp_path: Path) -> Iterator[TagPipes]:
    made = TagPipes(str(tmp_path / "tags"))
    yield made
    made.close()


def write(path: str, data: bytes) -> int:
    """As a task would, but for waiting when the pipe is full; returns how much went in."""
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        return os.write(fd, data)
    except BlockingIOError:
        return 0
    finally:
        os.close(fd)


def test_each_attempt_has_a_pipe_of_its_own_and_is_told_apart(pipes: TagPipes) -> None:
    one, two = pipes.open(ONE), pipes.open(TWO)
    assert one != two and pipes.paths == {ONE: one, TWO: two}
    write(one, b"x = 1\ny = true\n")
    write(two, b"x = 2\n")
    assert dict(pipes.receive(0.0)) == {ONE: {"x": 1, "y": True}, TWO: {"x": 2}}
    assert pipes.receive(0.0) == []
    assert os.stat(one).st_mode & 0o777 == 0o600
    assert os.stat(os.path.dirname(one)).st_mode & 0o777 == 0o700


def test_a_line_may_come_in_pieces_and_the_last_one_without_its_end(pipes: TagPipes) -> None:
    path = pipes.open(ONE)
    write(path, b"name = a")
    assert pipes.receive(0.0) == []
    write(path, b"bc\nnext = 1")
    assert pipes.receive(0.0) == [(ONE, {"name": "abc"})]
    assert pipes.end(ONE) == {"next": 1}
    assert pipes.paths == {}
    assert pipes.end(ONE) == {}


def test_a_line_that_was_cut_off_takes_no_tag_away(pipes: TagPipes) -> None:
    path = pipes.open(ONE)
    write(path, b"x =\n")
    assert pipes.receive(0.0) == [(ONE, {"x": ""})]
    write(path, b"x = ")
    assert pipes.end(ONE) == {}


def test_what_an_attempt_wrote_last_is_found_at_its_end(pipes: TagPipes) -> None:
    path = pipes.open(ONE)
    write(path, b"x = 1\n" + b"".join(b"t%d = 1\n" % number for number in range(1000)) + b"x = 2\n")
    told = pipes.end(ONE)
    assert told["x"] == 2 and len(told) == MAX_TASK_TAGS


def test_a_pipe_is_used_again_by_attempts_of_its_run_only(pipes: TagPipes) -> None:
    path = pipes.open(ONE)
    pipes.end(ONE)
    assert pipes.open(OTHER) != path
    assert pipes.open(TWO) == path
    write(path, b"x = 1\n")
    assert pipes.receive(0.0) == [(TWO, {"x": 1})]


def test_words_that_come_after_the_end_are_nobodys(pipes: TagPipes) -> None:
    path = pipes.open(ONE)
    pipes.end(ONE)
    write(path, b"x = 1\nhalf")
    assert pipes.receive(0.0) == []
    assert pipes.open(TWO) == path
    write(path, b"y = 2\n")
    assert pipes.receive(0.0) == [(TWO, {"y": 2})]


def test_too_long_lines_and_too_many_tags_are_dropped_and_counted(pipes: TagPipes) -> None:
    path = pipes.open(ONE)
    write(path, b"x" * 3 * LINE)
    assert pipes.receive(0.0) == []
    write(path, b"x" * LINE + b" = 1\nafter = 1\nnonsense\n")
    assert pipes.receive(0.0) == [(ONE, {"after": 1})]
    write(path, b"".join(b"t%d = 1\n" % number for number in range(100)))
    assert sum(len(told) for _, told in pipes.receive(0.0)) == MAX_TASK_TAGS - 1
    write(path, b"after = 2\n")
    assert pipes.receive(0.0) == [(ONE, {"after": 2})], "what it has it may change"
    assert pipes._by_attempt[ONE].dropped == 2 + 100 - (MAX_TASK_TAGS - 1)


def test_who_floods_its_pipe_is_left_alone_for_a_while_and_others_are_heard(pipes: TagPipes) -> None:
    one, two = pipes.open(ONE), pipes.open(TWO)
    while write(one, b"x = 1\n" * 600):  # as much as goes in whole or not at all
        pass
    assert pipes.receive(100.0) == [(ONE, {"x": 1})]
    assert pipes.deadline() == 100.0 + REST
    write(two, b"y = 1\n")
    assert pipes.receive(100.0) == [(TWO, {"y": 1})], "one read at a time, and not of the one that rests"
    assert pipes.receive(100.0) == []
    pipes.tick(100.0 + REST / 2)
    assert pipes.receive(100.0) == []
    pipes.tick(100.0 + REST)
    assert pipes.deadline() is None
    assert pipes.receive(101.0) == [(ONE, {"x": 1})]
    assert pipes.end(ONE) == {"x": 1}
    assert pipes.open("r1.3#1@1") == one


def test_a_pipe_into_which_somebody_goes_on_writing_is_not_used_again(
    pipes: TagPipes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tag_pipes, "DRAIN", READ)
    path = pipes.open(ONE)
    while write(path, b"x = 1\n" * 600):
        pass
    assert pipes.end(ONE) == {"x": 1}
    assert not os.path.exists(path)
    assert pipes.open(TWO) != path


def test_a_writer_never_waits_for_a_reader_and_never_dies_of_one_that_left(pipes: TagPipes) -> None:
    path = pipes.open(ONE)
    pipes.end(ONE)
    with open(path, "a", encoding="ascii") as file:  # returns at once, though nobody reads
        file.write("x = 1\n")
    with open(path, "w", encoding="ascii") as file:
        file.write("x = 1\n")


def test_idle_pipes_are_bounded(pipes: TagPipes) -> None:
    for number in range(3 * MOST_IDLE):
        pipes.open(f"r{number}.1#1@1")
        pipes.end(f"r{number}.1#1@1")
    assert len(os.listdir(pipes._folder)) == len(pipes._by_fd) <= MOST_IDLE


def test_where_pipes_run_out_attempts_of_one_run_share_and_others_have_none(tmp_path: Path) -> None:
    pipes = TagPipes(str(tmp_path / "tags"), most=1)
    path = pipes.open(ONE)
    assert (pipes.open(TWO), pipes.open(OTHER)) == (path, "")
    write(path, b"x = 1\n")
    assert pipes.receive(0.0) == [(ONE, {"x": 1})]
    write(path, b"y = 1\n")
    assert pipes.end(ONE) == {"y": 1}
    write(path, b"z = 1\n")
    assert pipes.receive(0.0) == [(TWO, {"z": 1})]
    assert pipes.end(OTHER) == {}
    pipes.end(TWO)
    assert pipes.open(OTHER) not in ("", path), "what is idle makes room"
    pipes.close()


def test_without_a_directory_there_is_no_pipe_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    pipes = TagPipes(str(tmp_path / "file" / "tags"))
    assert pipes.open(ONE) == "" and pipes.paths == {}
    assert pipes.end(ONE) == {}
    pipes.close()


def test_a_task_says_through_its_pipe_that_it_waits(pipes: TagPipes) -> None:
    path = pipes.open(ONE)
    write(path, b"x = 1\n!waits r1.1#1\n!goes-on r1.1#1\n!nonsense\n")
    assert pipes.receive(0.0) == [(ONE, {"x": 1})]
    assert pipes.take_notices() == [Notice(ONE, "r1.1#1", True), Notice(ONE, "r1.1#1", False)]
    assert pipes.take_notices() == []
    write(path, b"!waits r1.1#1\n")
    pipes.end(ONE)
    pipes.open(ONE)
    assert pipes.receive(0.0) == [] and pipes.take_notices() == []  # a wait ends with its attempt
