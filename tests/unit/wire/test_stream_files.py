"""Two tasks of a run never write a stream to the same file."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.model.errors import BadInput
from shoal.wire.submission import parse_submission


def submit(*tasks: dict[str, Any]) -> None:
    parse_submission({"tasks": [{"command": ["x"], **task} for task in tasks]})


@pytest.mark.parametrize(
    "tasks",
    [
        [{"stdout": "a.txt"}],
        [{"stdout": "a.txt", "stderr": "a.txt"}],
        [{"params": {"x": "1..3"}, "stdout": "{x}.out", "stderr": "{x}.err"}],
        [{"params": {"x": "1..3"}, "stdout": "{x}", "stderr": "{x}"}],
        [{"params": {"x": "1..3", "y": "1"}, "stdout": "{x}"}],
        [{"array": "1-5", "stdout": "{i}"}, {"stdout": "6"}],
        [{"params": {"x": "1..1000", "y": "1..200"}, "stdout": "{x}-{y}"}],
        [{"stdout": "a"}, {"stdout": "b/a"}],
    ],
)
def test_files_of_their_own_are_fine(tasks: list[dict[str, Any]]) -> None:
    submit(*tasks)


@pytest.mark.parametrize(
    ("tasks", "field"),
    [
        ([{"params": {"x": "1..3"}, "stdout": "a.txt"}], "stdout"),
        ([{"params": {"x": "1,11", "y": "1,11"}, "stdout": "{x}{y}"}], "stdout"),
        ([{"params": {"x": "1..3"}, "stdout": "{x}", "stderr": "all"}], "stderr"),
        ([{"params": {"x": "a,b"}, "stdout": "{x}", "stderr": "./b"}], "stdout"),
        ([{"stdout": "a"}, {"stderr": "sub/../a"}], "tasks[1].stderr"),
        ([{"params": {"x": "1..1000", "y": "1..200"}, "stdout": "{x}"}], "stdout"),
        ([{"params": {"x": "1..1000", "y": "1..200"}, "stdout": "{y}"}], "stdout"),
    ],
)
def test_one_file_for_two_tasks_is_refused_before_anything_runs(tasks: list[dict[str, Any]], field: str) -> None:
    with pytest.raises(BadInput, match="two tasks would write to") as caught:
        submit(*tasks)
    assert (caught.value.code, caught.value.field) == ("same_file", field)


@pytest.mark.parametrize("name", ["out/", "{x}"])
def test_what_is_no_file_is_refused(name: str) -> None:
    with pytest.raises(BadInput) as caught:
        submit({"params": {"x": [""]}, "stdout": name})
    assert caught.value.code == "bad_path_value"


def test_input_is_given_in_one_way() -> None:
    with pytest.raises(BadInput, match="stdin and stdin_data together"):
        submit({"stdin": "a", "stdin_data": "eA=="})
    with pytest.raises(BadInput, match="too little"):
        submit({"max_output": "1K"})
