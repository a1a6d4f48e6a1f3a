"""`shoal signal` and `shoal retry` with filters: what is asked for, and the words for what cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cli.conftest import Typed
from tests.unit.client.fake_server import FakeServer


def test_a_signal_is_sent_and_told(typed: Typed, server: FakeServer) -> None:
    server.answers["/v1/signal"] = {"signalled": 1, "not_running": 2}
    assert typed("signal", "10", "r1", "r2.3")[:2] == (0, "USR1 sent to 1 task, 2 do not run\n")
    assert server.sent("/v1/signal") == [{"targets": ["r1", "r2.3"], "signal": "USR1"}]
    server.answers["/v1/runs"] = {"runs": [], "next": None}
    assert typed("signal", "USR1", "x")[0] == 2
    assert typed("signal", "USR1")[2] == "shoal: shoal signal needs RUN|TASK (e.g. shoal signal r12)\n"


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (("r1", "--state", "failed"), {"targets": ["r1"], "where": {"state": "failed"}}),
        (("--exit-code", "0"), {"targets": [], "where": {"exit_code": 0}}),
        (
            ("--cause", "over_time", "--host", "n0*", "--site", "box", "--message", "*lic*"),
            {"targets": [], "where": {"cause": "over_time", "host": "n0*", "site": "box", "message": "*lic*"}},
        ),
    ],
)
def test_a_filter_picks_what_is_retried(
    typed: Typed, server: FakeServer, words: tuple[str, ...], body: dict[str, Any]
) -> None:
    server.answers["/v1/retry"] = {"tasks": 3, "runs": ["r1", "r4"]}
    assert typed("retry", *words)[:2] == (0, "3 tasks ready again: shoal wait r1 r4\n")
    assert server.sent("/v1/retry") == [body]


@pytest.mark.parametrize("words", [(), ("--state", "succeeded"), ("--cause", "over_tim"), ("--exit-code", "x")])
def test_a_filter_that_cannot_be_is_refused_here(typed: Typed, server: FakeServer, words: tuple[str, ...]) -> None:
    status, _, err = typed("retry", *words)
    assert (status, err.count("\n"), server.requests) == (2, 1, [])


def test_what_is_no_run_and_no_name_of_one_is_refused(typed: Typed, server: FakeServer) -> None:
    server.answers["/v1/runs"] = {"runs": [], "next": None}
    hint = "a run looks like r12, a task like r12.7; see `shoal ps`"
    text = f"shoal: 'nope' is neither a run nor a task, and no run has that name ({hint})\n"
    assert typed("retry", "nope") == (2, "", text)


def test_a_filter_that_fits_nothing_says_so(typed: Typed, server: FakeServer) -> None:
    server.answers["/v1/retry"] = {"tasks": 0, "runs": []}
    assert "fits the filter" in typed("retry", "--host", "n*")[1]
