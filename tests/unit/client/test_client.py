"""The client without a socket: addresses, errors, bodies, and how a lost server is survived."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shoal.client.client import Client, check_url, encode, error_of, oldest_of
from shoal.model.errors import (
    BadInput,
    Conflict,
    NotFound,
    Refused,
    ShoalError,
    TooLarge,
    Unreachable,
)

URL = "http://127.0.0.1:1"


@pytest.mark.parametrize("url", ["http://127.0.0.1:80", "http://localhost:8443/", "http://[::1]:9", "unix:/run/x.sock"])
def test_addresses_of_this_machine_are_taken(url: str) -> None:
    assert check_url(url) == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    ["", "box", "127.0.0.1:80", "http://", "http://127.0.0.1", "http://127.0.0.1:99999", "http://127.0.0.1:x", "ftp://h:1",
     "http://127.0.0.1:80/path", "unix:relative", "http://box:8443", "https://127.0.0.1:8443", "http://[::1"],
)  # fmt: skip
def test_other_addresses_are_refused_with_the_form_to_write(url: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_url(url)
    assert "127.0.0.1" in caught.value.line


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


def test_a_refused_token_says_where_to_put_the_right_one() -> None:
    assert "SHOAL_TOKEN" in error_of(401, b"", URL).hint


def test_a_body_is_valid_utf8_finite_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert encode({"a": "é"}) == '{"a":"é"}'.encode()
    with pytest.raises(BadInput, match="UTF-8"):
        encode({"a": "\udc80"})
    with pytest.raises(BadInput, match="finite"):
        encode({"a": float("nan")})
    monkeypatch.setattr("shoal.client.client.MAX_BULK_BODY", 5)
    with pytest.raises(TooLarge, match="split"):
        encode({"a": "bcdef"})


def test_a_token_with_a_newline_is_refused_before_it_is_sent() -> None:
    with pytest.raises(BadInput, match="token"):
        Client(URL, "x\r\nEvil: 1")


def test_the_oldest_kept_event_is_read_from_the_refusal() -> None:
    assert oldest_of(Conflict("old", code="gone", hint="the oldest kept is 42")) == 42
    with pytest.raises(Conflict):
        oldest_of(Conflict("other", code="conflict", hint="42"))


class Scripted(Client):
    """A client whose pages of events are given."""

    def __init__(self, *pages: list[dict[str, Any]] | ShoalError) -> None:
        super().__init__(URL)
        self.script, self.asked = list(pages), list[int]()

    def events(self, after: int = 0, run: str = "", limit: int = 1000, wait: float = 0.0) -> dict[str, Any]:
        self.asked.append(after)
        page = self.script.pop(0)
        if isinstance(page, ShoalError):
            raise page
        return {"events": page, "last": 99}


def event(seq: int, kind: str = "task_finished") -> dict[str, Any]:
    return {"seq": seq, "kind": kind, "run": 1}


def test_following_goes_on_behind_the_last_event_until_the_run_is_finished() -> None:
    client = Scripted([event(1), event(3)], [], [event(4), event(7, "run_finished"), event(8)])
    assert [e["seq"] for e in client.follow("r1")] == [1, 3, 4, 7]
    assert client.asked == [0, 3, 3]


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
    client = Scripted(Conflict("old", code="gone", hint="the oldest kept is 41"), [event(41)])
    assert next(client.pages("r1")) == [event(41)]
    assert client.asked == [0, 40]


def test_another_refusal_is_not_swallowed() -> None:
    with pytest.raises(NotFound):
        next(Scripted(NotFound("no run")).pages("r1"))


def test_ctrl_c_in_the_middle_of_an_answer_leaves_a_usable_client(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        closed = False

        def request(self, *_: object) -> None:
            raise KeyboardInterrupt

        def close(self) -> None:
            self.closed = True

    client, connection = Client(URL), Interrupted()

    def connected(timeout: float) -> tuple[Any, bool]:
        client._connection = connection  # type: ignore[assignment]  # a stand-in
        return connection, True

    monkeypatch.setattr(client, "_connected", connected)
    with pytest.raises(KeyboardInterrupt):
        client.cancel(["r1"])
    assert connection.closed
    assert client._connection is None
