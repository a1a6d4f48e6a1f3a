"""Rules as plain data: read, kept, read again [ADR 0058]. What is wrong with one is in tests/unit/engine/tasks/test_growth.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.model.errors import BadInput
from shoal.model.limits import MAX_RULES
from shoal.wire.submission import parse_rules, stored_rule

TABLE = {
    "name": "m", "files": "x/*", "command": ["cat", "{files}"], "gather": 4, "gather_size": "1 MiB", "gather_within": "5m",
    "watch": "1h", "retries": 2,
}  # fmt: skip


def test_what_the_database_keeps_is_the_same_rule() -> None:
    (rule,) = parse_rules([TABLE], (), is_open=False)
    assert (rule.gather, rule.gather_size, rule.gather_within, rule.watch) == (4, 1 << 20, 300.0, 3_600.0)
    again = stored_rule(TABLE)
    assert replace(again, example=rule.example) == rule and vars(again.example) == vars(rule.example)


def test_there_are_not_too_many() -> None:
    with pytest.raises(BadInput):
        parse_rules([{**TABLE, "name": f"m{at}"} for at in range(MAX_RULES + 1)], (), is_open=False)
