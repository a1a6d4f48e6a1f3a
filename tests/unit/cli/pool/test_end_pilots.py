"""Which pilots `shoal pilot drain|stop` means."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.cli.pool.end_pilots import choose
from shoal.model.errors import NotFound

LIVING: list[dict[str, Any]] = [
    {"pilot": "p1a", "host": "n01", "site": "lab"}, {"pilot": "p1b", "host": "n02", "site": "lab"},
    {"pilot": "p2c", "host": "n01", "site": "box"},
]  # fmt: skip


def chosen(*names: str, site: str | None = None, host: str | None = None) -> list[str]:
    return [row["pilot"] for row in choose(LIVING, names, site, host)]


def test_by_name_glob_site_and_host_together() -> None:
    assert chosen("p2c") == ["p2c"]
    assert chosen("p1*", "p2c") == ["p1a", "p1b", "p2c"]
    assert chosen(site="lab") == ["p1a", "p1b"]
    assert chosen(site="lab", host="*1") == ["p1a"]
    assert chosen("p1*", host="n02") == ["p1b"]
    assert chosen() == ["p1a", "p1b", "p2c"]


@pytest.mark.parametrize(("names", "more", "line"), [
    (("p9",), {}, "no pilot p9 is connected (see `shoal pilots`)"),
    (("p1a", "q*"), {}, "no pilot q* is connected (see `shoal pilots`)"),
    ((), {"site": "x"}, "no pilot of site x is connected (see `shoal pilots`)"),
    ((), {"site": "lab", "host": "z*"}, "no pilot of site lab and host z* is connected (see `shoal pilots`)"),
])  # fmt: skip
def test_what_names_no_pilot_is_refused(names: tuple[str, ...], more: dict[str, str], line: str) -> None:
    with pytest.raises(NotFound) as refusal:
        chosen(*names, **more)
    assert refusal.value.line == line
