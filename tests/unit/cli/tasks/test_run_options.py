"""`shoal submit` with requirements: what is sent, and what the server thinks wrong is told beside the output."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.conftest import Typed
from tests.unit.client.fake_server import FakeServer

ACCEPTED = {"run": "r1", "tasks": 1, "reused": 0, "reruns": [], "again": False, "warnings": []}


def test_what_the_server_warns_of_goes_to_standard_error(typed: Typed, server: FakeServer) -> None:
    """Row 28."""
    server.answers["/v1/runs"] = {**ACCEPTED, "warnings": ["no pilot has the tag arhc (did you mean arch)"]}
    status, out, err = typed("submit", "--require", "arhc == 'x86_64'", "--", "echo", "hi")
    assert (status, out) == (0, "r1\n")
    told = f"shoal: server {server.url} ($SHOAL_SERVER)\n"
    assert err == f"{told}shoal: note: no pilot has the tag arhc (did you mean arch)\n"
    status, out, err = typed("submit", "--json", "--", "echo", "hi")
    assert json.loads(out)["warnings"] and "arhc" in err


def test_strict_is_sent_only_if_it_was_said(typed: Typed, server: FakeServer) -> None:
    server.answers["/v1/runs"] = ACCEPTED
    assert typed("submit", "--strict", "--", "echo", "hi")[0] == 0
    assert typed("submit", "--", "echo", "hi")[0] == 0
    first, second = server.sent("/v1/runs")
    assert first["strict"] is True and "strict" not in second


def test_an_old_server_that_warns_of_nothing_is_fine(typed: Typed, server: FakeServer) -> None:
    server.answers["/v1/runs"] = {name: value for name, value in ACCEPTED.items() if name != "warnings"}
    assert typed("submit", "--json", "--", "echo", "hi")[::2] == (0, "")


@pytest.mark.parametrize(
    "words",
    [
        ("--require", "cores >"),
        ("--rank", "9**9**9"),
        ("--deadline", "tomorrow"),
        ("--order", "x"),
        ("--container", "a b"),
        ("--licence", "matlab=x"),
        ("--licence", "matlab=0"),
        ("--checkpoint", "../x"),
        ("--setup", ""),
    ],
)
def test_a_wrong_option_is_refused_here_in_one_line(typed: Typed, server: FakeServer, words: tuple[str, ...]) -> None:
    status, _, err = typed("submit", *words, "--", "echo", "hi")
    assert (status, err.count("\n"), server.requests) == (2, 1, [])


def test_they_do_not_go_with_a_task_file(typed: Typed, server: FakeServer) -> None:
    for words in (("--require", "cores > 1"), ("--licence", "matlab"), ("--setup", "true")):
        status, _, err = typed("submit", *words, "tasks.toml")
        assert (status, server.requests) == (2, [])
        assert f"{words[0]} does not go with a task file" in err
