"""The table of figures: bounds are read as numbers, what falls short or is missing is visible, and the run is named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench.figures import (
    BEGIN,
    END,
    FIGURES,
    MISSING,
    NO_BOUND,
    SHORT,
    Bound,
    Figure,
    Row,
    Run,
    collect,
    number,
    number_beside,
    put_between,
    read,
    spread,
    summary,
    table,
    verdict,
)
from bench.provenance import Provenance, provenance

BENCH = Path(__file__).resolve().parents[3] / "bench"
FROM = Provenance("abc123", "2026-11-17 20:00 UTC", "2 cores")
RATE = Figure("rate", "tasks a second", ">= 18,000, stretch 30,000")
WAIT = Figure("wait", "seconds", "<= 0.75")


def run_of(values: dict[str, list[float]], rounds: int = 3, **more: Any) -> Run:
    """A run in which each figure came from one experiment."""
    rows = [Row(name, value, "exp_one", "this") for name, some in values.items() for value in some]
    return Run(FROM, rounds, rows, **more)


def cells(run: Run, figure: Figure) -> list[str]:
    """The cells of a figure's line."""
    return [cell.strip() for cell in table(run, [figure]).splitlines()[2].strip("|").split("|")]


@pytest.mark.parametrize(
    ("asked", "bound"),
    [
        (">= 18,000", Bound(True, 18_000.0, None)),
        ("<= 0.75, stretch 0.4", Bound(False, 0.75, 0.4)),
        (">= 0.65, stretch 0.80", Bound(True, 0.65, 0.8)),
        ("reported", None),
    ],
)
def test_what_was_asked_for_is_read_as_numbers(asked: str, bound: Bound | None) -> None:
    assert Figure("a", "b", asked).bound == bound


@pytest.mark.parametrize("asked", ["", "> 3", ">=3", "<= 0.05 + one task", ">= 3, perhaps 5", "3"])
def test_what_cannot_be_read_as_a_bound_is_refused(asked: str) -> None:
    with pytest.raises(ValueError, match="asked for"):
        _ = Figure("a", "b", asked).bound


def test_every_figure_has_a_bound_that_can_be_read_and_a_name_of_its_own() -> None:
    for figure in FIGURES:
        assert figure.bound is None or figure.bound.limit >= 0
        assert figure.bound is None or figure.bound.stretch is None or figure.bound.holds(figure.bound.stretch)
    assert len({figure.name for figure in FIGURES}) == len(FIGURES)


def test_every_figure_is_printed_by_an_experiment() -> None:
    text = "".join(path.read_text("utf-8") for path in BENCH.glob("exp_*.py"))
    names = {
        name for name in re.findall(r"\"(\w*(?:\{[^{}\"]+\}\w*)*)\"", text) if len(re.sub(r"\{[^}]*\}", "", name)) >= 3
    }
    patterns = [re.sub(r"\{[^}]*\}", r"\\w*", name) for name in names]
    assert not [f.name for f in FIGURES if not any(re.fullmatch(pattern, f.name) for pattern in patterns)]


@pytest.mark.parametrize(
    ("figure", "values", "said"),
    [
        (RATE, [17_000.0, 18_500.0, 19_000.0], "yes, in 2 of 3 runs"),
        (RATE, [17_000.0, 17_999.0, 19_000.0], SHORT),
        (RATE, [18_000.0, 18_000.0, 19_000.0], "yes"),
        (RATE, [29_000.0, 31_000.0, 32_000.0], "yes, and the stretch"),
        (WAIT, [0.7, 0.75, 0.74], "yes"),
        (WAIT, [0.7, 0.76, 0.77], SHORT),
        (Figure("a", "b"), [1.0], NO_BOUND),
        (RATE, [], MISSING),
    ],
)
def test_the_median_decides_and_runs_that_differ_are_told(figure: Figure, values: list[float], said: str) -> None:
    assert verdict(figure, values) == said


def test_a_line_has_the_bound_the_spread_and_the_verdict() -> None:
    line = cells(run_of({"rate": [17_000.0, 16_000.0, 19_000.0]}), RATE)
    assert line == [
        "rate", "tasks a second", RATE.asked, "17,000 (16,000 to 19,000)", SHORT, "3", "exp_one",
    ]  # fmt: skip


def test_a_figure_that_no_run_printed_has_a_line() -> None:
    assert cells(run_of({}), WAIT)[3:6] == [MISSING, MISSING, "0 of 3"]


def test_a_figure_that_some_runs_did_not_print_says_so() -> None:
    assert cells(run_of({"wait": [0.5, 0.6]}), WAIT)[4:6] == ["yes", "2 of 3"]


def test_a_number_is_never_rounded_over_its_bound() -> None:
    bound = Figure("a", "b", ">= 0.65").bound
    assert (number(0.6496), number_beside(bound, 0.6496), number_beside(bound, 0.651)) == ("0.650", "0.6496", "0.651")
    assert cells(run_of({"wait": [0.7504]}, 1), WAIT)[3] == "0.7504"


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.00412, "0.00412"), (1.0, "1.00"), (57.82, "57.8"), (57_819.4, "57,819"), (-0.5, "-0.500")]
)  # fmt: skip
def test_numbers_have_three_figures_or_separators(value: float, text: str) -> None:
    assert number(value) == text


def test_spread_has_least_and_most_unless_there_is_one_value() -> None:
    assert (spread([3.0, 1.0, 2.0]), spread([2.0])) == ("2.00 (1.00 to 3.00)", "2.00")


def test_one_name_from_two_experiments_is_refused() -> None:
    rows = [Row("a", 1.0, "exp_one", "this"), Row("a", 2.0, "exp_two", "this")]
    with pytest.raises(ValueError, match="two things of one name"):
        collect(rows)


def test_the_other_checkout_is_not_in_the_table() -> None:
    assert collect([Row("a", 1.0, "exp_one", "this"), Row("a", 9.0, "exp_one", "other")]) == {"a": ("exp_one", [1.0])}


def test_the_summary_names_commit_shortfalls_failures_and_time() -> None:
    run = run_of({"rate": [20_000.0]}, 1, seconds={1: 372.0}, failed=["exp_two in round 1"])
    text = summary(run, [RATE, WAIT, Figure("slow", "x", "<= 1"), Figure("free", "y")])
    run.rows.append(Row("slow", 2.0, "exp_one", "this"))
    assert "Of 3 figures that were asked for, 1 hold." in text and "Missing: wait, slow." in text
    assert "Short: slow." in summary(run, [Figure("slow", "x", "<= 1")])
    assert "Commit abc123, 2026-11-17" in text and "Failed: exp_two in round 1." in text
    assert "Rounds: 1 of 1, 6.2 minutes each." in text


def test_a_run_is_read_with_its_provenance_times_and_failures(tmp_path: Path) -> None:
    extra = {"run": 1, "experiment": "exp_one", "checkout": "this"}
    lines: list[dict[str, Any]] = [
        {"provenance": FROM._asdict(), "rounds": 3},
        {"name": "wait", "value": 0.5, "unit": "s", "note": "", **extra},
        {**extra, "seconds": 10.5, "code": 0},
        {**extra, "experiment": "exp_two", "seconds": 2.0, "code": 1},
        {**extra, "checkout": "other", "seconds": 99.0, "code": 1},
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    run = read(file)
    assert (run.provenance, run.rounds, run.rows) == (FROM, 3, [Row("wait", 0.5, "exp_one", "this")])
    assert (run.seconds, run.failed) == ({1: 12.5}, ["exp_two in round 1"])


def test_only_what_is_between_the_marks_changes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", "utf-8")
    assert put_between(page, BEGIN, END, "new")
    assert page.read_text("utf-8") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    page.write_text("no marks", "utf-8")
    assert not put_between(page, BEGIN, END, "new")
    assert page.read_text("utf-8") == "no marks"


def test_provenance_has_a_commit_and_no_host_name() -> None:
    found = provenance()
    assert re.fullmatch(r"(unknown|[0-9a-f]{12})( with uncommitted changes)?", found.commit)
    assert "cores" in found.machine and re.match(r"20\d\d-\d\d-\d\d ", found.date)
