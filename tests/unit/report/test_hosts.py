"""Filters and columns of the list of hosts."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.model.errors import BadInput
from shoal.report.hosts import NAMES, check_names, choose, facts_of, parse_columns, values_of
from shoal.report.pilots import parse_where


def host(name: str, **more: Any) -> dict[str, Any]:
    base = {"host": name, "site": "a", "owner": "ann", "group": "", "living": 0, "pilots": 1, "succeeded": 5}
    return {**base, "failed": 0, "lost": 0, "busy": 10.0, "first": 0.0, "seen": 90.0, **more}


def test_every_name_of_a_column_is_a_fact() -> None:
    assert tuple(facts_of(host("h"), 100.0)) == NAMES


def test_hosts_are_chosen_by_site_and_expression() -> None:
    rows = [host("h1"), host("h2", failed=9), host("h3", site="b", failed=9)]
    chosen = choose(rows, parse_where("failed > succeeded"), None, 100.0)
    assert [row["host"] for row in chosen] == ["h2", "h3"]
    assert [row["host"] for row in choose(chosen, parse_where("seen < 60"), "a", 100.0)] == ["h2"]
    assert values_of(rows[1], parse_columns("host,failed,seen"), 100.0) == ["h2", 9, 10.0]


def test_a_name_that_hosts_do_not_have_is_refused_with_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"hosts have no 'fialed' .*did you mean failed"):
        parse_columns("host,fialed")
    with pytest.raises(BadInput, match="--where: hosts have no 'cpu'"):
        check_names(parse_where("cpu > 1").tags, "--where")
