"""Options of an executor are checked where they are given."""

from __future__ import annotations

import pytest

from shoal.client.executor.options import fields_of
from shoal.model.errors import BadInput


def test_only_what_differs_from_the_default_is_sent() -> None:
    assert fields_of({"cores": 1, "require": None, "rank": None, "deadline": None}) == {}
    given = {"cores": 2, "require": "memory_mb >= 4000", "rank": "cpu_mhz", "deadline": "2h"}
    assert fields_of(given) == given


@pytest.mark.parametrize("field", ["require", "rank"])
@pytest.mark.parametrize("text", ["cores >", "().__class__", "task.colour"])
def test_an_expression_that_cannot_be_read_is_told_at_once(field: str, text: str) -> None:
    with pytest.raises(BadInput) as found:
        fields_of({field: text})
    assert found.value.field == field
