"""The figure of a report: its formats, what it says of itself, and how it bounds what it draws."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree

import pytest

from shoal.model.errors import BadInput
from shoal.report.figure import MAX_BARS, MAX_DOTS, draw, figure_format, slot_rows, thinning
from shoal.report.history import Ending, RunRecord
from shoal.report.run_report import make_report
from tests.unit.report.test_history import attempt, pilot, small_run
from tests.unit.report.test_run_report import found_of

matplotlib = pytest.importorskip("matplotlib")  # an extra: `make test-oldest` has none


def test_a_file_name_asks_for_its_format() -> None:
    assert [figure_format(f"a/b.{kind}") for kind in ("png", "svg", "HTML")] == ["png", "svg", "html"]
    for name in ("a", "a.pdf", "png", "a.svg.gz", ""):
        with pytest.raises(BadInput) as refused:
            figure_format(name)
        assert refused.value.code == "bad_figure" and ".png, .svg or .html" in refused.value.hint


def test_a_python_without_matplotlib_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BadInput) as refused:
        figure_format("a.png")
    assert refused.value.code == "no_matplotlib" and "pip install 'shoal[plot]'" in refused.value.hint


def test_each_format_is_what_it_says() -> None:
    report = make_report(found_of(small_run(), name="a <b> $x$ & c"))
    assert draw(report, "png").startswith(b"\x89PNG")
    svg = draw(report, "svg")
    texts = "".join(ElementTree.fromstring(svg).itertext())
    assert "r1 a <b> $x$ & c: 3 tasks in 10.0s, 2 pilots, 2 slots, 67% busy" in texts
    assert "a bar for each attempt" in texts and "tail 5.0s" in texts and "25% lost" in texts
    page = draw(report, "html").decode()
    assert page.startswith("<!DOCTYPE html>") and "<svg" in page and "<?xml" not in page
    assert "<title>r1 a &lt;b&gt; $x$ &amp; c:" in page
    for word in ("<script", "src=", "@import", "<link"):
        assert word not in page, "it needs no network"
    assert draw(report, "svg") == svg, "the same run gives the same bytes"


def test_names_may_be_in_any_script_and_hold_no_control_characters() -> None:
    svg = draw(make_report(found_of(small_run(), name="\u6f22\u5b57 \x1b[31m")), "svg").decode()
    assert "\u6f22\u5b57 \\x1b[31m: 3 tasks" in svg and "\x1b" not in svg


@pytest.mark.parametrize("record", [RunRecord(0.0, 0.0), RunRecord(0.0, 5.0, 2)])
def test_a_run_in_which_nothing_happened_can_be_drawn(record: RunRecord) -> None:
    assert draw(make_report(found_of(record)), "svg").startswith(b"<?xml")


def test_of_very_many_attempts_a_part_is_drawn_and_the_figure_says_so() -> None:
    assert [thinning(count) for count in (0, MAX_BARS, MAX_DOTS, MAX_DOTS + 1, 100_000)] == [1, 1, 1, 2, 10]
    count = 2 * MAX_DOTS
    work = [attempt(i, "a", float(i), i + 1.0) for i in range(count)]
    ends = [Ending(i + 1.0, 1, 1) for i in range(count)]
    svg = draw(make_report(found_of(RunRecord(0.0, float(count), count, work, [pilot("a", 0.0)], ends))), "svg")
    assert f"1 of 2 shown ({count:,} in all)".encode() in svg
    assert svg.count(b"<use ") < MAX_DOTS + 1_000


def test_attempts_that_run_at_once_have_rows_of_their_own() -> None:
    pilots = [pilot("a", 0.0, slots=2), pilot("b", 1.0, slots=1)]
    work = [attempt(1, "a", 0.0, 4.0), attempt(2, "a", 1.0, 2.0), attempt(3, "b", 1.0, 9.0), attempt(4, "a", 2.0, 5.0)]
    assert slot_rows(pilots, work) == [0, 1, 2, 1]
