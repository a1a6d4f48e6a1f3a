"""`shoal acct` as it is typed."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from shoal.cli.admin.acct import parse_moment, sensible
from shoal.cli.main import invoke
from shoal.cli.session import Session
from shoal.model.errors import BadInput
from tests.unit.report.fake_source import FakeSource, run_info

NOW = 1_800_000_000.0
HOUR = 3_600.0
LINE = {
    "useful": 6 * HOUR,
    "failed": HOUR,
    "lost": 0.0,
    "duplicated": 1.0,
    "tasks": 40,
    "queued": 60.0,
    "staging": 90.0,
}


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> FakeSource:
    found = FakeSource(run_info([{"command": ["x"]}]))
    monkeypatch.setattr(Session, "__init__", lambda self, server=None: None)
    monkeypatch.setattr(Session, "source", lambda self: found)
    monkeypatch.setattr("shoal.cli.admin.acct.time.time", lambda: NOW)
    return found


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert invoke(["acct", *words]) == 0
    return capsys.readouterr().out


def by_owner(source: FakeSource) -> None:
    lines = [{"owner": "ann", **LINE}, {"owner": "bob\x1b[31m", **LINE, "tasks": 0, "useful": 0.0}]
    source.accounts = {"by": ["owner"], "since": 0.0, "until": NOW, "lines": lines, "places": None}


def by_site(source: FakeSource) -> None:
    place = {"site": "east", "day": "2027-01-15", "offered": 20 * HOUR, "used": 7 * HOUR}
    lines = [{"site": "east", "day": "2027-01-15", **LINE}]
    source.accounts = {"by": ["site", "day"], "since": NOW - 7200.0, "until": NOW, "lines": lines, "places": [place]}


def test_a_table_has_hours_and_a_total_and_no_idle_column_of_owners(
    source: FakeSource, capsys: pytest.CaptureFixture[str]
) -> None:
    by_owner(source)
    lines = typed(capsys).splitlines()
    assert lines[0] == "core hours"
    assert lines[1].split() == [
        "owner", "useful", "failed", "lost", "duplicated", "tasks", "queue", "transfer", "efficiency", "%",
    ]  # fmt: skip
    assert lines[2].split() == ["ann", "6", "1", "0", "0.0003", "40", "1.5s", "1m30s", "85.7"]
    assert lines[3].startswith("bob\\x1b[31m") and lines[3].split()[5:7] == ["0", "-"]
    assert lines[4].split() == ["total", "6", "2", "0", "0.0006", "40", "3.0s", "3m00s", "75"]
    assert len(lines) == 5 and source.asked == [("acct", "owner", 0.0, None)]


def test_by_site_and_day_idle_time_is_shown(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    by_site(source)
    lines = typed(capsys, "--by", "site,day", "--since", "2h", "--until", "1h").splitlines()
    assert lines[0] == "core hours since 2027-01-15 06:00 UTC"
    assert lines[2].split()[:7] == ["east", "2027-01-15", "6", "1", "0", "0.0003", "13"]
    assert lines[3].split()[:2] == ["total", "6"]
    assert source.asked == [("acct", "site,day", NOW - 7200.0, NOW - 3600.0)]


def test_json_has_rows_and_total(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    by_owner(source)
    found = json.loads(typed(capsys, "--json"))
    assert [row["owner"] for row in found["rows"]] == ["ann", "bob\x1b[31m"]
    assert found["rows"][0]["idle"] is None and found["total"]["useful"] == 6.0


def test_csv_has_units_and_no_total(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    by_site(source)
    rows = list(csv.DictReader(io.StringIO(typed(capsys, "--by", "site,day", "--csv"))))
    assert rows == [
        {
            "site": "east", "day": "2027-01-15", "useful_core_hours": "6.0", "failed_core_hours": "1.0",
            "lost_core_hours": "0.0", "duplicated_core_hours": "0.000278", "idle_core_hours": "13.0", "tasks": "40",
            "queue_mean_s": "1.5", "transfer_s": "90.0", "efficiency": "0.299996",
        }
    ]  # fmt: skip


def test_nothing_is_said_in_words_but_not_in_csv(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing ended yet" in typed(capsys)
    assert "nothing ended in that time" in typed(capsys, "--since", "1h")
    assert typed(capsys, "--csv").startswith("owner,useful_core_hours")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("7d", NOW - 7 * 86_400.0),
        ("90", NOW - 90.0),
        ("3650d", max(0.0, NOW - 3650 * 86_400.0)),
        ("2026-11-01", 1_793_491_200.0),
        (" 2026-11-01T08:00 ", 1_793_520_000.0),
        ("2026-11-01T08:00:00+02:00", 1_793_512_800.0),
        ("1960-01-01", 0.0),
    ],
)
def test_a_time_is_so_long_ago_or_a_date(text: str, moment: float) -> None:
    assert parse_moment(text, "--since", NOW) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "7 days", "-1d", "2026-13-01", "1e9d", "\x1b[31m", "9999999-01-01"])
def test_what_is_no_time_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_moment(text, "--since", NOW)
    assert caught.value.code == "bad_time" and "\n" not in caught.value.line and "7d" in caught.value.line


@pytest.mark.parametrize("words", [("--csv", "--json"), ("--since", "1d", "--until", "2d")])
def test_wrong_use_is_refused(source: FakeSource, words: tuple[str, ...]) -> None:
    assert invoke(["acct", *words]) == 2
    assert source.asked == []


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0.0, 0), (0.000277, 0.0003), (1e-5, 0.0), (0.123456, 0.123), (12.345, 12.3), (123.4, 123), (1e6 + 0.8, 1000001)],
)  # fmt: skip
def test_hours_have_sensible_digits(number: float, shown: Any) -> None:
    assert sensible(number) == shown
