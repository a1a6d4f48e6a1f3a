"""`shoal pilots` with filters and columns."""

from __future__ import annotations

import json

import pytest

from shoal.cli.main import invoke
from shoal.cli.session import Session
from tests.unit.report.fake_source import FakeSource, run_info
from tests.unit.report.test_pilots import row


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> FakeSource:
    rows = [row(), row("p2", cores=16, site="west", tags={"arch": "arm"}), row("p3", state="gone", cores=32)]
    found = FakeSource(run_info([{"command": ["x"]}]), pilots=rows)
    monkeypatch.setenv("SHOAL_SERVER", "unix:/run/shoal-9")
    monkeypatch.setattr(Session, "source", lambda self: found)
    return found


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = invoke(["pilots", *words])
    seen = capsys.readouterr()
    return status, seen.out, seen.err


def test_a_filter_leaves_the_pilots_for_which_it_holds(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = typed(capsys, "--where", "cores >= 8", "--json")
    assert (status, err) == (0, "") and [found["pilot"] for found in json.loads(out)["pilots"]] == ["p2"]
    _, out, _ = typed(capsys, "--where", "cores >= 8", "--all")
    assert [line.split()[0] for line in out.splitlines()] == ["pilot", "p2", "p3"]


def test_columns_are_tags_and_facts(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = typed(capsys, "--columns", "arch,cores,load")
    assert status == 0
    assert [line.split() for line in out.splitlines()] == [
        ["pilot", "arch", "cores", "load"], ["p1", "x86_64", "4", "0.5"], ["p2", "arm", "16", "-"],
    ]  # fmt: skip
    _, out, _ = typed(capsys, "--columns", "load", "--where", 'arch == "arm"', "--json")
    assert json.loads(out) == {"pilots": [{"pilot": "p2", "load": None}]}


def test_a_tag_that_no_pilot_has_is_noted_and_nothing_found_is_said(
    source: FakeSource, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = typed(capsys, "--where", 'arhc == "arm"')
    assert status == 0 and "did you mean arch" in err and "none fits" in out


@pytest.mark.parametrize("words", [("--where", "cores >="), ("--where", "task.cores > 1"), ("--columns", "a,,b")])
def test_wrong_use_is_one_line_and_status_2(
    source: FakeSource, capsys: pytest.CaptureFixture[str], words: tuple[str, str]
) -> None:
    status, out, err = typed(capsys, *words)
    assert (status, out, err.count("\n")) == (2, "", 1)


def test_banned_and_silent_pilots_are_marked(
    source: FakeSource, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000_000.0
    monkeypatch.setattr("time.time", lambda: now)
    rows = [
        row("p1", joined=now, banned="host h1: five failures in a row", banned_until=now + 90, suspect=False, seen=now),
        row("p2", joined=now, banned="", banned_until=None, suspect=True, seen=now - 40),
        row("p3", joined=now, banned="site east: slow", banned_until=None, suspect=False, seen=now),
        row("p4", joined=now, banned="", banned_until=None, suspect=False, seen=now),
    ]
    found = FakeSource(run_info([{"command": ["x"]}]), pilots=rows)
    monkeypatch.setattr(Session, "source", lambda self: found)
    _, out, _ = typed(capsys)
    one, two, three, four = out.splitlines()[1:]
    assert "idle banned" in one and "banned for 1m30s (host h1: five failures in a row)" in one
    assert "idle silent" in two and "silent for 40.0s" in two
    assert "banned until its trial is over (site east: slow)" in three
    assert "banned" not in four and "silent" not in four
    _, out, _ = typed(capsys, "--json")
    assert json.loads(out)["pilots"][0]["banned"].startswith("host h1")
