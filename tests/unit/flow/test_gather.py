"""When enough files wait for a task [CMS C8; ADR 0058]."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.flow.gather import Terms, WaitingFile, next_batch


def files(*sizes: int, since: float = 0.0) -> list[WaitingFile]:
    return [WaitingFile(f"f{at}", size, since + at) for at, size in enumerate(sizes)]


def test_so_many_files_are_enough() -> None:
    assert next_batch(files(1, 1), Terms(3), 100.0) == 0
    assert next_batch(files(1, 1, 1, 1), Terms(3), 100.0) == 3


def test_so_many_bytes_are_enough_whatever_the_count() -> None:
    assert next_batch(files(40, 50), Terms(100, size=100), 0.0) == 0
    assert next_batch(files(40, 60, 1), Terms(100, size=100), 0.0) == 2
    assert next_batch(files(0, 0, 0), Terms(2, size=100), 0.0) == 2, "files of unknown size are counted"


def test_the_names_of_one_task_have_a_length_beyond_which_they_wait_for_the_next() -> None:
    names = [file._replace(length=30) for file in files(1, 1, 1, 1)]
    assert next_batch(names, Terms(9, length=90), 0.0) == 3
    assert next_batch(names[:3], Terms(9, length=90), 0.0) == 0
    assert next_batch(names, Terms(2, length=90), 0.0) == 2
    assert next_batch(names, Terms(9, length=20), 0.0) == 1, (
        "one alone is too long: its task is refused, not waited for"
    )


def test_fewer_are_enough_once_the_first_has_waited_or_no_more_come() -> None:
    assert next_batch(files(1, 1), Terms(9, within=10.0), 9.9) == 0
    assert next_batch(files(1, 1), Terms(9, within=10.0), 10.0) == 2
    assert next_batch(files(1), Terms(9), 0.0, is_rest=True) == 1
    assert next_batch([], Terms(9, within=0.0), 1.0, is_rest=True) == 0


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 8), st.integers(0, 120))
def test_taken_batch_by_batch_every_file_goes_once_in_order(sizes: list[int], most: int, size: int) -> None:
    waiting, taken = files(*sizes), []
    while count := next_batch(waiting, Terms(most, size), 0.0, is_rest=True):
        assert count <= most
        taken += waiting[:count]
        del waiting[:count]
    assert not waiting and taken == files(*sizes)
