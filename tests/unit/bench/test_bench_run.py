"""`python -m bench` writes down what an experiment printed, how long it took and how it ended."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import run
from bench.serving import REPETITIONS, repetitions, report_median

EXPERIMENT = """
import os
print("a line of a server")
print('{"name": "rate", "value": 3.0, "unit": "1/s", "note": "%s"}' % os.environ.get("SHOAL_BENCH_REPETITIONS"))
raise SystemExit(CODE)
"""
EXTRA = {"run": 1, "experiment": "exp_made", "checkout": "this"}


@pytest.mark.parametrize(("code", "repeated", "note"), [(0, {}, "None"), (3, {REPETITIONS: "1"}, "1")])
def test_rows_and_the_end_of_an_experiment_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, repeated: dict[str, str], note: str
) -> None:
    monkeypatch.delenv(REPETITIONS, raising=False)
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "exp_made.py").write_text(EXPERIMENT.replace("CODE", str(code)), "utf-8")
    lines: list[dict[str, Any]] = []
    assert run("exp_made", sys.executable, tmp_path, EXTRA, lines.append, repeated) is (code == 0)
    row, end = lines
    assert row == {"name": "rate", "value": 3.0, "unit": "1/s", "note": note, **EXTRA}
    assert {**end, "seconds": 0} == {**EXTRA, "seconds": 0, "code": code} and end["seconds"] >= 0


def test_a_slow_experiment_repeats_unless_the_whole_run_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REPETITIONS, raising=False)
    assert repetitions() == 3
    monkeypatch.setenv(REPETITIONS, "1")
    assert repetitions() == 1


def test_repetitions_are_printed_as_median_least_and_most(capsys: pytest.CaptureFixture[str]) -> None:
    report_median("tail", [1.04, 1.01, 1.02], "ratio", "sleeps")
    report_median("tail", [1.04], "ratio", "sleeps")
    assert '"value": 1.02' in (text := capsys.readouterr().out) and "sleeps; median of 3, 1.01 to 1.04" in text
    assert '"note": "sleeps"' in text
