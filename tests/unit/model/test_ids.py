"""Names of runs, tasks, attempts and pilots: there and back, and nothing else is taken for one."""

from __future__ import annotations

import pytest

from shoal.model.errors import BadInput
from shoal.model.ids import (
    AttemptId,
    TaskId,
    is_pilot,
    parse_attempt,
    parse_run,
    parse_target,
    parse_task,
    run_text,
)

LARGEST = 10**18 - 1


@pytest.mark.parametrize("run", [1, 12, LARGEST])
def test_a_run_is_read_as_it_is_written(run: int) -> None:
    assert parse_run(run_text(run)) == run


@pytest.mark.parametrize("task", [TaskId(1, 1), TaskId(12, 7), TaskId(LARGEST, LARGEST)])
def test_a_task_is_read_as_it_is_written(task: TaskId) -> None:
    assert parse_task(str(task)) == task


def test_an_attempt_is_read_as_the_wire_carries_it() -> None:
    attempt = AttemptId(12, 7, 2, 3)
    assert str(attempt) == "r12.7#2@3"
    assert parse_attempt("r12.7#2@3") == attempt


def test_people_read_an_attempt_without_its_incarnation() -> None:
    attempt = AttemptId(12, 7, 2, 3)
    assert attempt.text == "r12.7#2"
    assert attempt.task == TaskId(12, 7)


def test_a_target_is_a_run_or_a_task() -> None:
    assert parse_target("r12") == 12
    assert parse_target("r12.7") == TaskId(12, 7)


@pytest.mark.parametrize(
    "text", ["", "12", "r", "r0", "r01", "r-1", "R1", "r1 ", " r1", "r1\n", "r1.5", "r1" + "0" * 18]
)
def test_what_is_not_a_run_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_run(text)
    assert caught.value.code == "bad_id"
    assert "r12" in caught.value.hint


@pytest.mark.parametrize("text", ["", "r1", "r1.", "r1.0", "r1.01", "r0.1", "r1.1#1", "r1.1\n", "r1.٣", "1.1"])
def test_what_is_not_a_task_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_task(text)
    assert caught.value.code == "bad_id"


@pytest.mark.parametrize(
    "text", ["r1.1", "r1.1#1", "r1.1#0@1", "r1.1#1@0", "r1.1#1@1\n", "r1.1#1@1@1", "r1.1#9999999999@1"]
)
def test_what_is_not_an_attempt_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_attempt(text)
    assert caught.value.code == "bad_id"


@pytest.mark.parametrize("text", ["", "x", "p3f9c", "r1.2.3", "r1#2"])
def test_what_is_neither_run_nor_task_is_refused_with_both_forms(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_target(text)
    assert "r12.7" in caught.value.hint


def test_an_endless_id_is_not_echoed_whole() -> None:
    with pytest.raises(BadInput) as caught:
        parse_task("r" + "1" * 10_000)
    assert len(caught.value.line) < 250


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("p3f9c", True), ("p0123456789abcdef", True), ("p3f9a", True), ("p3f", False), ("P3f9c", False), ("p3f9g", False),
     ("r12", False), ("p3f9c\n", False), ("p" + "0" * 17, False)],
)  # fmt: skip
def test_pilots_are_known_by_their_form(text: str, is_one: bool) -> None:
    assert is_pilot(text) is is_one
