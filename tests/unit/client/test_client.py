"""The client: what it asks, errors, bodies, and how a lost server is survived."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from shoal.client.client import Client, LogPart, encode, error_of
from shoal.model.errors import (
    BadInput,
    Conflict,
    EventsGone,
    NotFound,
    Refused,
    ShoalError,
    TooLarge,
    Unreachable,
)
from tests.unit.client.fake_server import FakeServer, Request

URL = "unix:/run/shoal-1"


def query(request: Request) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(request.target).query))


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, BadInput), (401, Refused), (403, Refused), (404, NotFound), (409, Conflict), (410, Conflict), (413, TooLarge),
     (415, BadInput), (422, BadInput), (429, Refused), (500, Refused), (503, Unreachable), (507, Refused)],
)  # fmt: skip
def test_an_answer_becomes_the_exception_the_server_meant(status: int, kind: type[ShoalError]) -> None:
    body = {"error": {"code": "c", "message": "m", "field": "f", "hint": "h"}}
    error = error_of(status, json.dumps(body).encode(), URL)
    assert type(error) is kind
    assert (error.code, error.message, error.field, error.hint) == ("c", "m", "f", "h")


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b'{"error": 1}', b'{"error": null}', b"\xff"])
def test_an_answer_that_is_not_ours_is_told_by_its_status(answer: bytes) -> None:
    error = error_of(500, answer, URL)
    assert isinstance(error, Refused)
    assert "500" in error.line


def test_a_refused_token_says_how_to_get_the_right_one() -> None:
    assert "shoal login" in error_of(401, b"", URL).hint
    assert "SHOAL_TOKEN" in error_of(401, b"", URL).hint
    told = b'{"error": {"code": "unauthorised", "message": "m", "hint": "send Authorization: Bearer TOKEN"}}'
    assert "shoal login" in error_of(401, told, "https://box:8443").hint


def test_only_what_passes_by_itself_is_transient() -> None:
    assert [status for status in (400, 401, 404, 409, 429, 503) if error_of(status, b"", URL).transient] == [429, 503]


def test_a_body_is_valid_utf8_finite_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert encode({"a": "é"}) == '{"a":"é"}'.encode()
    with pytest.raises(BadInput, match="UTF-8"):
        encode({"a": "\udc80"})
    with pytest.raises(BadInput, match="finite"):
        encode({"a": float("nan")})
    monkeypatch.setattr("shoal.client.client.MAX_BULK_BODY", 5)
    with pytest.raises(TooLarge, match="split"):
        encode({"a": "bcdef"})


def test_the_oldest_kept_event_is_a_field_of_the_refusal() -> None:
    document = {"code": "gone", "message": "old", "field": "", "hint": "the oldest kept is 7", "oldest": 42}
    error = error_of(410, json.dumps({"error": document}).encode(), URL)
    assert isinstance(error, EventsGone) and (error.oldest, error.message) == (42, "old")
    other = error_of(410, json.dumps({"error": {**document, "oldest": None}}).encode(), URL)
    assert type(other) is Conflict and other.hint == "the oldest kept is 7"


def test_following_goes_on_behind_the_last_event() -> None:
    client = Scripted([event(1), event(3)], [], [event(4), event(7)])
    assert list(itertools.islice(client.pages("r1"), 3)) == [[event(1), event(3)], [], [event(4), event(7)]]
    assert client.asked == [0, 3, 3]


class Scripted(Client):
    """A client whose pages of events are given."""

    def __init__(self, *pages: list[dict[str, Any]] | ShoalError) -> None:
        super().__init__(URL)
        self.script, self.asked = list(pages), list[int]()

    def events(
        self, after: int = 0, run: str = "", limit: int = 1000, wait: float = 0.0, kinds: Iterable[str] = ()
    ) -> dict[str, Any]:
        self.asked.append(after)
        page = self.script.pop(0)
        if isinstance(page, ShoalError):
            raise page
        return {"events": page, "last": max([after, *(event["seq"] for event in page)])}


def event(seq: int, kind: str = "task_finished") -> dict[str, Any]:
    return {"seq": seq, "kind": kind, "run": 1}


def test_an_empty_page_may_lead_on() -> None:
    """What is not ours to see is passed by."""
    with FakeServer() as server:
        server.answers["/v1/events"] = [{"events": [], "last": 40}, {"events": [event(41)], "last": 45}]
        with Client(server.url) as client:
            pages = client.pages("r1", kinds=("task_finished", "run_finished"))
            assert [next(pages), next(pages)] == [[], [event(41)]]
    first, second = (query(request) for request in server.requests)
    assert (first["after"], second["after"], first["kind"]) == ("0", "40", "task_finished,run_finished")


def test_a_lost_server_is_waited_for_with_growing_pauses() -> None:
    naps: list[float] = []
    client = Scripted([event(1)], Unreachable("x"), Unreachable("x"), Unreachable("x"), [event(2)])
    pages = client.pages("r1", sleep=naps.append)
    assert [next(pages) for _ in range(5)] == [[event(1)], [], [], [], [event(2)]]
    assert naps == [0.1, 0.2, 0.4]
    assert client.asked == [0, 1, 1, 1, 1]


def test_a_replaced_server_is_followed_from_the_same_place() -> None:
    other = Scripted([event(9)])
    client = Scripted([event(5)], Unreachable("x"))
    pages = client.pages("r1", on_lost=lambda error: other, sleep=lambda pause: None)
    assert [next(pages) for _ in range(3)] == [[event(5)], [], [event(9)]]
    assert other.asked == [5]


def test_patience_with_a_lost_server_ends() -> None:
    client = Scripted(*[Unreachable("gone for good")] * 20)
    with pytest.raises(Unreachable, match="gone for good"):
        list(client.pages("r1", patience=10.0, sleep=lambda pause: None))


def test_a_pruned_journal_is_followed_from_what_is_kept() -> None:
    client = Scripted(EventsGone("old", oldest=41), [event(41)])
    assert next(client.pages("r1")) == [event(41)]
    assert client.asked == [0, 40]


def test_another_refusal_is_not_swallowed() -> None:
    with pytest.raises(NotFound):
        next(Scripted(NotFound("no run")).pages("r1"))


CALLS: list[tuple[Callable[[Client], Any], str, Any]] = [
    (lambda c: c.whoami(), "GET /v1/whoami", None),
    (lambda c: c.users(), "GET /v1/users", None),
    (lambda c: c.add_user("anna", "phys", "user"), "POST /v1/users", {"name": "anna", "group": "phys", "role": "user"}),
    (lambda c: c.groups(), "GET /v1/groups", None),
    (lambda c: c.add_group("phys"), "POST /v1/groups", {"name": "phys"}),
    (lambda c: c.tokens(), "GET /v1/tokens", None),
    (lambda c: c.tokens(all_=True), "GET /v1/tokens?all=1", None),
    (
        lambda c: c.new_token("enrol", site="box", owner=None, group="", uses=1),
        "POST /v1/tokens",
        {"kind": "enrol", "site": "box", "uses": 1},
    ),
    (lambda c: c.revoke(["t1"]), "POST /v1/tokens/revoke", {"tokens": ["t1"]}),
    (lambda c: c.revoke(user="anna"), "POST /v1/tokens/revoke", {"user": "anna"}),
    (lambda c: c.revoke(all_=True), "POST /v1/tokens/revoke", {"all": True}),
    (lambda c: c.audit(5, 7, "t1", "anna"), "GET /v1/audit?limit=5&before=7&token=t1&owner=anna", None),
    (lambda c: c.hosts(10), "GET /v1/hosts?limit=10", None),
    (lambda c: c.signal(["r1"], "USR1"), "POST /v1/signal", {"targets": ["r1"], "signal": "USR1"}),
    (lambda c: c.retry(["r1"]), "POST /v1/retry", {"targets": ["r1"]}),
    (
        lambda c: c.retry([], {"exit_code": 0, "host": "n*"}),
        "POST /v1/retry",
        {"targets": [], "where": {"exit_code": 0, "host": "n*"}},
    ),
    (
        lambda c: c.events(5, "r1", 10, 2.0, ["a", "b"]),
        "GET /v1/events?after=5&run=r1&limit=10&wait=2&kind=a%2Cb",
        None,
    ),
]


@pytest.mark.parametrize(("call", "line", "body"), CALLS)
def test_each_call_is_asked_as_the_reference_says(call: Callable[[Client], Any], line: str, body: Any) -> None:
    with FakeServer() as server, Client(server.url, "secret") as client:
        call(client)
    (request,) = server.requests
    assert f"{request.method} {request.target}" == line
    assert (json.loads(request.body) if request.body else None) == body
    assert request.headers["authorization"] == "Bearer secret"


def test_a_log_comes_in_pieces() -> None:
    with FakeServer() as server, Client(server.url) as client:
        server.answers["/v1/tasks/r1.2/logs"] = [
            (200, b"abc", {"X-Shoal-Next": "103", "X-Shoal-More": "1"}),
            (200, b"de", {}),
        ]
        assert client.logs("r1.2", "stderr", 3, 100, 10.0) == LogPart(b"abc", 103, True)
        assert client.logs("r1.2", offset=103) == LogPart(b"de", 105, False)
    assert query(server.requests[0]) == {"stream": "stderr", "attempt": "3", "offset": "100", "wait": "10"}
