"""`shoal reproduce` as it is typed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Typed


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots take longest, and one test looks at them."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("shoal.sim.papers.drawing.draw", lambda found, kind: b"")


def test_without_an_id_the_experiments_are_listed(typed: Typed) -> None:
    status, out, err = typed("reproduce")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["id", "title", "section"]
    assert any(line.startswith("u.start ") and "DIANE 3.3" in line for line in lines)
    status, out, _ = typed("reproduce", "--json")
    assert {"id", "title", "section", "seconds"} == set(json.loads(out)[0])


def test_a_table_data_and_plots_are_made(typed: Typed, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    status, out, err = typed(
        "reproduce", "u.start", "--seeds", "2", "--output", "here", "--parameters", "--page", "page.md"
    )
    assert status == 0 and "here/u.start/data.csv" in err
    folder = tmp_path / "here" / "u.start"
    assert (folder / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert "jobs submitted" in (folder / "plot.svg").read_text()
    rows = (folder / "data.csv").read_text().splitlines()
    assert rows[0] == "seed,jobs,series,started_percent" and {row[0] for row in rows[1:]} == {"1", "2"}
    assert "0.06 %" in out and "a slip by ten" in out and "effect gone?" in out and "equation 3.2" in out
    assert (tmp_path / "page.md").read_text().count("## u.start: ") == 1


@pytest.mark.usefixtures("undrawn")
def test_json_holds_each_seed_and_the_same_seeds_give_the_same(typed: Typed) -> None:
    first, second = (typed("reproduce", "u.start", "--seeds", "2", "--json") for _ in range(2))
    assert first == second
    (told,) = json.loads(first[1])["experiments"]
    assert told["seeds"] == [1, 2] and len(told["rows"][0]["ours"]) == 2
    assert [row["agrees"] for row in told["rows"]] == [False, None]


@pytest.mark.usefixtures("undrawn")
def test_own_waits_take_the_place_of_the_published(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "waits").write_text("10\n20\n3000\n")
    status, out, _ = typed("reproduce", "u.oversub", "--seeds", "1", "--waits", "waits")
    assert status == 0 and "own waits: nothing is judged" in out and " yes" not in out


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("u.stat",), 3, "there is no experiment 'u.stat' (did you mean u.start)"),
        (("z",), 3, "there is no experiment 'z' (known: "),
        (("",), 2, "ID: an ID is empty (`shoal reproduce` lists them)"),
        (("u.start", "--seeds", "0"), 2, "--seeds"),
        (("u.start", "--waits", "none"), 2, "--waits: u.start takes no queue waits (leave it out)"),
        (("u.speedup", "--waits", "none"), 2, "--waits: cannot read none: No such file"),
        (("u.start", "--output", "file"), 3, "cannot write file/u.start/data.csv: "),
        (("u.start", "--page", "bytes"), 3, "cannot read bytes: "),
    ],
)
def test_wrong_input_is_one_line(typed: Typed, tmp_path: Path, words: tuple[str, ...], status: int, told: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "bytes").write_bytes(b"\xff")
    found, _, err = typed("reproduce", *words)
    assert found == status and told in err.splitlines()[-1] and "Traceback" not in err


def test_a_python_without_matplotlib_is_told_before_anything_is_run(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    told = "shoal: reproduce: a figure needs matplotlib, which is not installed (pip install 'shoal[plot]')\n"
    assert typed("reproduce", "u.start") == (2, "", told)
    assert typed("reproduce")[0] == 0
