"""Leases as submissions to another server, and ends over there as reports [SPHINX S9; ADR 0060]."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.bridge.translate import report_of, submission_of, why_not
from shoal.wire.messages import Capacity, Lease
from shoal.wire.submission import parse_submission

ATTEMPT = "r5.7#2@3~00112233445566aa"


def lease(**more: Any) -> Lease:
    return Lease(ATTEMPT, Capacity(2, 1 << 30), "safe", **{"command": ["sim", "{x}"], "params": [{"x": 4}], **more})


def test_an_attempt_is_one_run_with_its_name_as_key_and_parameters_filled_in() -> None:
    document = submission_of(lease(env={"A": "1", "SHOAL_RUN": "r5", "OMP_NUM_THREADS": "2"}, time=60.0), "lab")
    (spec,) = parse_submission(document).specs
    assert document["key"] == f"bridge-{ATTEMPT}" and document["labels"]["attempt"] == ATTEMPT
    assert spec.command == ("sim", "4") and spec.env == {"A": "1"} and spec.cwd == "own"
    assert (spec.cores, spec.memory, spec.time, spec.retries) == (2, 1 << 30, 60.0, 0)


def test_values_in_shell_texts_are_quoted_on_this_side() -> None:
    (spec,) = parse_submission(submission_of(lease(command=[], shell="echo {x}", params=[{"x": "a;b"}]), "lab")).specs
    assert spec.shell == "echo 'a;b'"


@pytest.mark.parametrize(
    "more",
    [
        {"outputs": ["x"]}, {"inputs": ["x"]}, {"stdout": "x"}, {"checkpoint": ["x"]}, {"stdin_data": "sha256:00"},
        {"visible": {"/x": "need file a 1 2 b"}}, {"function": "AA=="},
    ],
)  # fmt: skip
def test_what_has_files_stays(more: dict[str, Any]) -> None:
    assert why_not(lease(**more)) and not why_not(lease(visible={"/x": "want dir a 1 2 b"}))


@pytest.mark.parametrize(
    ("state", "cause", "outcome"),
    [
        ("succeeded", "", "succeeded"), ("failed", "task_error", "failed"), ("failed", "over_time", "failed"),
        ("failed", "host_unfit", "returned"), ("failed", "pilot_lost", "returned"), ("cancelled", "cancelled", "returned"),
        ("lost", "", "returned"),
    ],
)  # fmt: skip
def test_only_what_the_task_did_counts_as_its_failure(state: str, cause: str, outcome: str) -> None:
    report = report_of(
        ATTEMPT, {"state": state, "task": {"cause": cause, "exit_code": 3, "duration": 1.5, "signal": None}}
    )
    assert report.outcome == outcome and report.attempt == ATTEMPT
    assert report.cause == (cause if outcome == "failed" else "")


def test_a_task_that_was_cancelled_before_it_began_has_no_row() -> None:
    assert report_of(ATTEMPT, {"state": "cancelled", "task": None}).outcome == "returned"
