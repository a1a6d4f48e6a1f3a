"""Fixtures of the tests with sites."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.batch.person import Person


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Callable[..., Person]]:
    """Makes people, each with an embedded server of their own; what they leave behind is ended."""
    made: list[Person] = []

    def make(**env: str) -> Person:
        made.append(Person(tmp_path / f"person{len(made)}", env))
        return made[-1]

    yield make
    for one in made:
        one.end()
