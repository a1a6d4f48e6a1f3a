"""How runs and tasks ended that others wait for, on a real database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.db.reader import Reader
from shoal.db.sqlite import Database
from shoal.engine.changes import SpanRow
from shoal.model.ids import TaskId
from shoal.server.submission.dependencies import outcome, targets_of
from shoal.wire.submission import parse_submission
from tests.contract.db.rows import run_row, task_row


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with Database.open(tmp_path / "shoal.db", durability="normal") as database:
        database.apply([
            run_row(1, total=2, finished=9.0, counts=json.dumps({"succeeded": 2})),
            run_row(2, total=3, finished=9.0, counts=json.dumps({"succeeded": 1, "failed": 2})),
            run_row(3, total=5, finished=None, counts=json.dumps({"succeeded": 1})),
            task_row(2, 1, "succeeded"), task_row(2, 2, "failed"),
            SpanRow(2, 3, 4, "failed", "dependency_failed", "", 9.0),
            task_row(3, 1, "succeeded"), task_row(3, 2, "running"),
        ])  # fmt: skip
        with Reader.on(database) as reader:
            yield reader


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (1, True), (2, False), (3, None), (4, False),  # the last was deleted, which only what is over can be
        (TaskId(2, 1), True), (TaskId(2, 2), False), (TaskId(2, 3), False),
        (TaskId(3, 1), True), (TaskId(3, 2), None), (TaskId(3, 3), None), (TaskId(4, 1), False),
    ],
)  # fmt: skip
def test_an_outcome_is_read_from_rows_and_spans(reader: Reader, target: int | TaskId, expected: bool | None) -> None:
    assert outcome(reader, target) is expected


def test_the_targets_of_a_submission_are_those_outside_of_it() -> None:
    tables = [
        {"name": "r7", "command": ["true"], "after": ["r1", "r2.3"]},
        {"command": ["true"], "after": ["r7", "r1"], "after_any": ["r9"]},
    ]
    assert set(targets_of(parse_submission({"tasks": tables}).specs)) == {1, TaskId(2, 3), 9}
