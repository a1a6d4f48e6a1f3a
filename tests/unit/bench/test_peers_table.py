"""The peers' table: medians with their spread, ratios round by round, and a word for every cell without a figure."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import pytest

from bench.peers.measure import FAILED, NOT_INSTALLED, SYSTEMS, TOO_LONG, Repetition, Step, plan
from bench.peers.results import Results, read
from bench.peers.system import MEASURES, System, unit_of
from bench.peers.table import (
    BEGIN,
    CANNOT,
    COLUMNS,
    END,
    NOT_YET,
    cell,
    comparison,
    first_of,
    main,
    places,
    render,
    round_trip,
)
from bench.provenance import Provenance

FROM = {"commit": "abc123", "date": "2026-11-17 20:00 UTC", "machine": "2 cores"}


def system(name: str) -> System:
    """A system by its name."""
    return next(one for one in SYSTEMS if one.name == name)


def made(values: dict[str, list[float]], **more: Any) -> Results:
    """Results with these values of each round."""
    by_round = {name: dict(enumerate(some, 1)) for name, some in values.items()}
    return Results(Provenance(**FROM), 3, 100.0, values=by_round, units={n: unit_of(n) for n in values}, **more)


def in_column(head: str, name: str, results: Results) -> str:
    """The cell of a system below a head."""
    column = next(one for one in COLUMNS if one.head.startswith(head))
    return cell(column, system(name), results, first_of(column, results))


def test_the_ratio_to_the_best_peer_is_taken_round_by_round() -> None:
    results = made(
        {
            "shoal.round_trip_p50_ms": [3.0, 6.0, 4.0],
            "ray.round_trip_p50_ms": [2.0, 6.0, 5.0],
            "parsl.round_trip_p50_ms": [3.0, 5.0, 4.0],
        }
    )
    assert results.round_trip_ratios() == [1.5, 1.2, 1.0]
    assert "1.20 (1.00 to 1.50); asked <= 1.2, stretch 0.8; holds: yes, in 2 of 3 runs" in round_trip(results)


def test_a_round_without_one_of_the_two_peers_is_left_out() -> None:
    values = {"shoal.round_trip_p50_ms": [3.0, 6.0], "ray.round_trip_p50_ms": [2.0, 6.0]}
    assert made({**values, "parsl.round_trip_p50_ms": [3.0]}).round_trip_ratios() == [1.5]
    assert "missing" in round_trip(made(values))


def test_a_cell_has_median_least_and_most_and_the_best_is_bold() -> None:
    results = made({"ray.functions_per_s": [1400.0, 1300.0, 1500.0], "dask.functions_per_s": [500.0, 510.0]})
    assert in_column("functions", "ray", results) == "**1,400 (1,300 to 1,500)**"
    assert in_column("functions", "dask", results) == "505 (500 to 510), 2 of 3 rounds"


def test_a_figure_of_another_number_of_tasks_says_so() -> None:
    results = made({"hyperqueue.functions_per_s": [12.0, 13.0, 14.0], "ray.functions_per_s": [1400.0] * 3})
    assert in_column("functions", "hyperqueue", results) == "13.0 (12.0 to 14.0), of 50"
    assert ", of" not in in_column("functions", "ray", results)


def test_the_smaller_time_is_the_better_and_baselines_do_not_compete() -> None:
    results = made({"ray.round_trip_p50_ms": [2.0], "parsl.round_trip_p50_ms": [3.0], "pool.round_trip_p50_ms": [0.4]})
    assert in_column("round trip of a call", "ray", results) == "**2.00, 1 of 3 rounds**"
    assert in_column("round trip of a call", "pool", results) == "0.400, 1 of 3 rounds"


@pytest.mark.parametrize(
    ("head", "name", "said"),
    [
        ("long queue", "parsl", "> 100 s"),
        ("functions", "ray", "failed"),
        ("functions", "dask", NOT_INSTALLED),
        ("functions", "work_queue", CANNOT),
        ("memory", "pool", CANNOT),
        ("functions", "shoal", NOT_YET),
    ],
)
def test_a_cell_without_a_figure_says_why(head: str, name: str, said: str) -> None:
    problems = {"parsl.long_queue": f"{TOO_LONG}: no result within 100 s", "ray.functions": f"{FAILED}: Boom"}
    results = made({}, problems=problems, versions={"dask": NOT_INSTALLED})
    assert in_column(head, name, results) == said


def test_the_long_queue_is_compared_with_the_short_one_of_the_same_round() -> None:
    results = made({"ray.long_queue_per_s": [100.0, 300.0, 90.0], "ray.short_queue_per_s": [100.0, 150.0, 100.0]})
    assert in_column("the same over", "ray", results) == "1.00 (0.900 to 2.00)"


def test_memory_is_that_of_server_and_client() -> None:
    values = {
        "ray.long_queue_memory_mb": [200.0, 210.0, 220.0],
        "ray.long_queue_memory_client_mb": [600.0, 610.0, 600.0],
    }
    assert in_column("memory", "ray", made(values)) == "**820 (800 to 820)**"


def test_the_page_says_where_shoal_is_first_and_who_is_elsewhere() -> None:
    values = {"shoal.functions_per_s": [9.0], "ray.functions_per_s": [8.0]}
    values |= {"shoal.cold_start_s": [1.0], "work_queue.cold_start_s": [0.1]}
    assert places(made(values)) == [
        "Shoal is first in: functions/s.",
        "It is not first in: cold start (Work Queue is).",
    ]


def test_a_line_of_the_table_for_each_system() -> None:
    assert len(comparison(made({}))) == 2 + len(SYSTEMS)


def test_what_a_run_wrote_is_read_and_rendered(tmp_path: Path) -> None:
    step = Step(system("ray"), system("ray").cases[0], 500)
    lines = [{"provenance": FROM, "rounds": 3, "scale": 1.0, "limit": 100.0}]
    lines += step.lines(Repetition({"per_s": 1400.0}, "2.60.0", "", 0.5), 1)
    lines += step.lines(Repetition({"per_s": 1500.0}, "2.60.0", "", 0.0), 2)
    lines += step.lines(Repetition(problem=f"{FAILED}: a | b"), 3)
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    results = read(file)
    assert results.of("ray.functions_per_s") == [1400.0, 1500.0] and results.versions == {"ray": "2.60.0"}
    text = render(results)
    assert "the run was broken off" in text and "Commit abc123" in text and "Ray 2.60.0" in text
    assert "| `ray.functions_per_s` | 1,450 (1,400 to 1,500) | 1/s | 2 | 500; others used up to 0.5 cores |" in text
    assert "| `ray.functions` | none | | | failed: a / b |" in text
    file.write_text(file.read_text("utf-8") + '{"seconds": 1380}\n', "utf-8")
    assert "3 rounds, 23.0 minutes in all." in render(read(file))


def test_a_trial_is_printed_and_the_page_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    page, trial, out = tmp_path / "page.md", tmp_path / "trial.jsonl", tmp_path / "out.jsonl"
    page.write_text(f"{BEGIN}\nstale figures\n{END}\n", "utf-8")
    monkeypatch.setattr("bench.peers.table.TRIAL", trial)
    monkeypatch.setattr("bench.peers.table.OUT", out)
    monkeypatch.setattr("sys.argv", ["table", "--last", "--page", str(page), "--rows", str(out)])
    assert main() == 1  # nothing was measured, and the page stays
    trial.write_text(json.dumps({"provenance": FROM, "rounds": 1, "scale": 0.1, "limit": 100.0}) + "\n", "utf-8")
    assert main() == 0
    assert "its figures mean nothing" in capsys.readouterr().out and "stale figures" in page.read_text("utf-8")
    out.write_text(trial.read_text("utf-8").replace("0.1", "1.0"), "utf-8")
    os.utime(trial, (1.0, 1.0))
    assert main() == 0
    assert "stale figures" not in page.read_text("utf-8") and "Commit abc123" in page.read_text("utf-8")


def test_each_round_does_one_measure_of_all_systems_before_the_next(tmp_path: Path) -> None:
    names = [one.name for one in SYSTEMS if not one.peer]
    written: list[dict[str, Any]] = []
    args = argparse.Namespace(systems=[*names, "ray"], measures=MEASURES, scale=0.01, peers=tmp_path)
    steps = plan(args, written.append)
    measures = [step.case.measure for step in steps]
    assert measures == sorted(measures, key=MEASURES.index) and {step.system.name for step in steps} == set(names)
    assert [(line["name"], line["note"]) for line in written] == [("ray.version", NOT_INSTALLED)]


def test_a_system_has_at_most_one_case_of_a_measure_and_shoal_has_all() -> None:
    for one in SYSTEMS:
        measures = [case.measure for case in one.cases]
        assert len(set(measures)) == len(measures) and set(measures) <= set(MEASURES)
    assert {case.measure for case in system("shoal").cases} == set(MEASURES)
