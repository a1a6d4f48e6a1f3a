"""`shoal events`: one line per event, filters, and following to a run's end."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from shoal.model.limits import MAX_LOOK
from tests.unit.cli.conftest import Typed
from tests.unit.client.fake_server import FakeServer


def event(seq: int, kind: str = "task_finished", **fields: Any) -> dict[str, Any]:
    return {
        "seq": seq,
        "time": 1.0,
        "kind": kind,
        "run": 1,
        "task": None,
        "attempt": None,
        "pilot": None,
        "data": {},
        **fields,
    }


@pytest.fixture
def run(server: FakeServer) -> dict[str, Any]:
    info = {"run": 1, "finished": 5.0}
    server.answers["/v1/runs/r1"] = info
    server.answers["/v1/server"] = {"last_seq": 9}
    return info


def asked(server: FakeServer) -> list[dict[str, list[str]]]:
    parts = [urlsplit(request.target) for request in server.requests]
    return [parse_qs(part.query) for part in parts if part.path == "/v1/events"]


def test_events_are_told_in_words_and_hostile_text_is_escaped(
    typed: Typed, server: FakeServer, run: dict[str, Any]
) -> None:
    failed = event(4, task=7, attempt=2, pilot="p1", data={"state": "failed", "message": "\x1b[31m"})
    server.answers["/v1/events"] = {"events": [event(3, "pilot_joined", run=None), failed], "last": 9}
    status, out, _ = typed("events")
    first, second = out.splitlines()
    assert status == 0
    assert first.split()[0] == "3"
    assert first.endswith("-           pilot joined")
    assert "r1.7" in second
    assert "task finished #2 on p1: state failed, message \\x1b[31m" in second


def test_all_pages_are_read_past_those_that_show_nothing(typed: Typed, server: FakeServer, run: dict[str, Any]) -> None:
    first, second = MAX_LOOK, 2 * MAX_LOOK  # so many does the server look through at once
    pages: list[Any] = [{"events": [event(1)], "last": first}, {"events": [], "last": second}]
    server.answers["/v1/events"] = [*pages, {"events": [event(second + 8)], "last": second + 9}]
    lines = typed("events", "--run", "r1", "--kind", "task_finished", "--after", "0", "--json")[1].splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [1, second + 8]
    assert [query["after"] for query in asked(server)] == [["0"], [str(first)], [str(second)]]
    assert asked(server)[0]["kind"] == ["task_finished"]


def test_following_a_run_ends_with_it_even_if_the_end_was_filtered_out(
    typed: Typed, server: FakeServer, run: dict[str, Any]
) -> None:
    pages: list[Any] = [{"events": [event(1)], "last": 1}, {"events": [event(2, "run_finished")], "last": 2}]
    server.answers["/v1/events"] = pages
    status, out, _ = typed("events", "--run", "r1", "--follow", "--kind", "task_finished", "--json")
    assert status == 0
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [1]
    assert asked(server)[0] == {
        "after": ["0"], "run": ["r1"], "limit": ["1000"], "wait": ["10"], "kind": ["task_finished,run_finished"],
    }  # fmt: skip


def test_a_run_that_goes_on_after_an_earlier_end_is_followed_on(
    typed: Typed, server: FakeServer, run: dict[str, Any]
) -> None:
    server.answers["/v1/runs/r1"] = [{"run": 1, "finished": end} for end in (None, None, 5.0)]
    pages: list[Any] = [{"events": [event(n, "run_finished")], "last": n} for n in (1, 2)]
    server.answers["/v1/events"] = pages
    assert len(typed("events", "--run", "r1", "-f")[1].splitlines()) == 2


def test_following_everything_begins_now(typed: Typed, server: FakeServer, run: dict[str, Any]) -> None:
    server.answers["/v1/events"] = [{"events": [event(10)], "last": 10}, (403, b"{}", {})]
    status, out, _ = typed("events", "--follow")
    assert (status, len(out.splitlines())) == (3, 1)
    assert asked(server)[0]["after"] == ["9"]


def test_an_unknown_kind_is_answered_with_the_nearest(typed: Typed, server: FakeServer) -> None:
    status, _, err = typed("events", "--kind", "task_finishd")
    assert (status, server.requests) == (2, [])
    assert "did you mean task_finished" in err


def test_without_a_server_the_file_is_read(typed: Typed) -> None:
    assert typed("events") == (0, "", "")
