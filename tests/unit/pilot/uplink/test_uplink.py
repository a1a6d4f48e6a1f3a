"""What answers of the server mean, and with which secret each question is asked [security S1; input E57, E59-E63]."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from random import Random

import pytest

from shoal.model import credentials
from shoal.pilot.agent.events import Answered, Disowned, Event, Fetched, Joined, Leave, NoAnswer, Outdated, Rejected
from shoal.pilot.uplink.latency import LARGE, Latency
from shoal.pilot.uplink.server_address import ServerAddress
from shoal.pilot.uplink.uplink import MAX_BROKEN, Answer, Uplink, read_after, read_answer, read_error, report_unfit
from shoal.wire import codec
from shoal.wire.join import Join
from shoal.wire.messages import Capacity, Exchange, FormerPilot, Lease, Register, Registered, Reply, Report
from tests.unit.pilot.small_server import DAY, Authority, Request, Response, SmallServer, error

REGISTERED = Registered("p0001", "s", 1, 1.0, 10.0, 1.0, 60.0, 1.0, 30.0, 60.0)
TOKEN = credentials.make(credentials.ENROL, "t" * 43)
SESSION = credentials.make(credentials.SESSION, "s" * 43)
HELLO = Register(2, "0", "h", "i", Capacity(1), nonce="n")
REVOKED = Leave("the server refused this pilot: so", now=True, mute=True)


@pytest.mark.parametrize(
    ("status", "body", "seq", "event"),
    [
        (200, codec.encode(REGISTERED), 0, Joined(REGISTERED)),
        (201, codec.encode(REGISTERED), 0, Joined(REGISTERED)),
        (200, codec.encode(Reply(7, 1)), 7, Answered(Reply(7, 1))),
        (200, codec.encode(Reply(6, 1)), 7, NoAnswer(7)),
        (200, codec.encode(REGISTERED), 7, NoAnswer(7)),
        (200, b"", 7, NoAnswer(7)),
        (200, b"{", 7, NoAnswer(7)),
        (200, b"\xff\xfe", 7, NoAnswer(7)),
        (200, codec.encode(Reply(7, 1, [Lease("../../etc", Capacity(1), "safe")])), 7, NoAnswer(7)),
        (401, error("unauthorised"), 7, Disowned(7)),
        (401, error("unauthorised"), 0, NoAnswer(0)),
        (403, error("revoked"), 7, REVOKED),
        (403, error("forbidden"), 7, NoAnswer(7)),
        (403, error("revoked"), 0, NoAnswer(0)),
        (409, error("re_enrol"), 7, Disowned(7)),
        (409, error("session_in_use"), 7, Disowned(7)),
        (409, error("replay"), 7, Outdated(7)),
        (409, error("other"), 7, NoAnswer(7)),
        (400, error("bad_json"), 7, Rejected(7, "so")),
        (400, b"<html>", 7, Rejected(7, "<html>", is_sure=False)),
        (400, b'{"error": {"code": 400, "message": "so"}}', 7, Rejected(7, "so", is_sure=False)),
        (413, b"<html>", 7, Rejected(7, "<html>", is_sure=False)),
        (415, error("x"), 7, Rejected(7, "so")),
        (422, error("range"), 7, Rejected(7, "so")),
        (401, b"<html>", 7, NoAnswer(7)),
        (404, b"<html>", 7, NoAnswer(7)),
        (422, error("range"), 0, NoAnswer(0)),
        (500, b"<html>", 7, NoAnswer(7)),
        (503, b'{"error": "text"}', 7, NoAnswer(7, 5.0)),
        (429, error("too_many"), 7, NoAnswer(7, 5.0)),
        (429, error("site_full"), 0, NoAnswer(0, 5.0)),
        (302, b"", 0, NoAnswer(0)),
    ],
)
def test_an_answer_means_one_thing(status: int, body: bytes, seq: int, event: Event) -> None:
    assert read_answer(Answer(status, body, 5.0), seq) == event


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(None, None), ("7", 7.0), ("0", 1.0), ("86400", 60.0), ("soon", None), ("-3", None), ("", None)],
)
def test_the_server_may_say_when_to_come_back_within_bounds(text: str | None, seconds: float | None) -> None:
    assert read_after(text) == seconds


def test_an_error_is_read_whatever_it_holds() -> None:
    assert read_error(error("x")) == ("x", "so")
    assert read_error(b"\x1b[31mred") == ("", "\\x1b[31mred")
    assert len(read_error(b"y" * 10_000)[1]) <= 80
    assert TOKEN[12:] not in read_error(error("x", f"token {TOKEN} is bad"))[1]


class Pipe:
    """An uplink to a server that gives prepared answers; events come back one by one."""

    def __init__(self, folder: Path, authority: Authority | None = None, token: str = TOKEN) -> None:
        self.answers: list[Response | None] = []
        self.authority = authority
        self.server = SmallServer(self._answer, folder, authority)
        self.events: list[Event] = []
        self.said: list[str] = []
        self.arrived = threading.Condition()
        address = f"127.0.0.1:{self.server.port}" if authority else self.server.url
        join = Join((address,), authority.fingerprint if authority else "", token)
        self.place = ServerAddress(join=join)
        self.network = Latency(Random(1))
        self.uplink = Uplink(self.place, self._take, self.said.append, self.network)
        self.uplink.start()

    def _answer(self, request: Request) -> Response | None:
        if request.path == "/v1/ca":
            assert self.authority is not None
            return Response(body=self.authority.pem)
        return self.answers.pop(0)

    def _take(self, event: Event) -> None:
        with self.arrived:
            self.events.append(event)
            self.arrived.notify_all()

    def until(self, count: int) -> list[Event]:
        """The events so far; there are to be so many."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.events) >= count, 10), self.events
            return list(self.events)

    def exchange(self, seq: int, *answers: Response | None) -> Event:
        count = len(self.events)
        self.answers += answers
        self.uplink.exchange(Exchange(2, "p0001", SESSION, seq, 0, Capacity(1)))
        return self.until(count + 1)[-1]

    def register(self, *answers: Response | None, former: bool = False, events: int = 1) -> list[Event]:
        count = len(self.events)
        self.answers += answers
        self.uplink.register(replace(HELLO, former=FormerPilot("p0001", SESSION) if former else None))
        return self.until(count + events)[count:]

    @property
    def asked(self) -> list[tuple[str, str]]:
        """(path, bearer) of everything but the CA."""
        return [(r.path, r.bearer) for r in self.server.requests if r.path != "/v1/ca"]


Open = Callable[..., Pipe]


@pytest.fixture
def open_pipe(tmp_path: Path) -> Iterator[Open]:
    opened: list[Pipe] = []

    def begin(**more: object) -> Pipe:
        opened.append(Pipe(tmp_path, **more))  # type: ignore[arg-type]
        return opened[-1]

    yield begin
    for pipe in opened:
        pipe.uplink.close()
        pipe.server.close()


OK = Response(200, codec.encode(Reply(1, 1)))
IN = Response(200, codec.encode(REGISTERED))


# --- which secret
def test_a_pilot_enrols_with_the_token_and_speaks_with_its_session(open_pipe: Open) -> None:
    pipe = open_pipe()
    assert pipe.register(IN) == [Joined(REGISTERED)]
    assert pipe.exchange(1, OK) == Answered(Reply(1, 1))
    assert pipe.asked == [("/v1/pilots", TOKEN), ("/v1/pilots/p0001/exchange", SESSION)]
    assert codec.decode(Register, pipe.server.requests[0].body) == HELLO


def test_who_was_here_before_enrols_again_with_its_session(open_pipe: Open) -> None:
    pipe = open_pipe()
    assert pipe.register(IN, former=True) == [Joined(REGISTERED)]
    assert pipe.asked == [("/v1/pilots", SESSION)]


@pytest.mark.parametrize("status", [401, 403, 409])
def test_a_session_that_does_not_count_any_more_is_followed_by_the_token(open_pipe: Open, status: int) -> None:
    pipe = open_pipe()
    assert pipe.register(Response(status, error("x")), IN, former=True) == [Joined(REGISTERED)]
    assert [bearer for _, bearer in pipe.asked] == [SESSION, TOKEN]


def test_a_server_that_fails_under_the_session_is_not_asked_with_the_token(open_pipe: Open) -> None:
    pipe = open_pipe()
    assert pipe.register(Response(500), former=True) == [NoAnswer(0)]
    assert [bearer for _, bearer in pipe.asked] == [SESSION]


def test_the_token_refused_three_times_ends_the_pilot(open_pipe: Open) -> None:
    pipe = open_pipe()
    no = Response(401, error("unauthorised"))
    assert pipe.register(no) == [NoAnswer(0)]
    assert pipe.register(no, Response(403, error("x")), former=True) == [NoAnswer(0)]
    assert pipe.register(no, events=2) == [Leave("the server refused this pilot: so"), NoAnswer(0)]


def test_a_full_site_is_waited_for_and_its_words_are_said_once(open_pipe: Open) -> None:
    pipe = open_pipe()
    full = Response(429, error("site_full", "box has its 10 pilots"), {"Retry-After": "30"})
    assert pipe.register(full) + pipe.register(full) == [NoAnswer(0, 30.0)] * 2
    assert pipe.said == ["the server lets no more pilots in now: box has its 10 pilots"]


# --- connections
def test_a_lost_reply_is_no_answer_and_the_next_try_has_its_own_connection(open_pipe: Open) -> None:
    pipe = open_pipe()
    assert pipe.exchange(1, None) == NoAnswer(1)
    assert pipe.exchange(1, OK) == Answered(Reply(1, 1))


def test_nobody_there_is_no_answer(open_pipe: Open) -> None:
    pipe = open_pipe()
    pipe.server.close()
    assert pipe.exchange(1) == NoAnswer(1)


def test_a_busy_server_says_when_to_come_back(open_pipe: Open) -> None:
    pipe = open_pipe()
    assert pipe.exchange(1, Response(503, b"", {"Retry-After": "3"})) == NoAnswer(1, 3.0)


# --- TLS
def test_the_certificate_that_the_server_made_is_shown_from_then_on(open_pipe: Open) -> None:
    authority = Authority()
    pipe = open_pipe(authority=authority)
    certificate, key = authority.make("p0001")
    told = replace(REGISTERED, certificate=certificate, key=key)
    pipe.register(Response(200, codec.encode(told)))
    assert pipe.exchange(1, OK) == Answered(Reply(1, 1))
    assert pipe.exchange(2, Response(200, codec.encode(Reply(2, 1)))) == Answered(Reply(2, 1))
    assert [r.shown for r in pipe.server.requests if r.path != "/v1/ca"] == ["", "p0001", "p0001"]


def test_a_certificate_that_is_not_taken_any_more_makes_us_enrol_again(open_pipe: Open) -> None:
    authority = Authority()
    pipe = open_pipe(authority=authority)
    pipe.place.trust.identify(*authority.make("p0001", -2 * DAY, -DAY))
    events = [pipe.exchange(1)]
    while events[-1] == NoAnswer(1):  # the alert may be lost behind the broken connection
        events.append(pipe.exchange(1))
    assert events[-1] == Disowned(1) and len(events) <= MAX_BROKEN
    assert pipe.register(IN, former=True) == [Joined(REGISTERED)]
    assert pipe.asked == [("/v1/pilots", TOKEN)], "without the certificate that closes the door"


def test_a_false_server_ends_the_pilot(open_pipe: Open) -> None:
    pipe = open_pipe(authority=Authority())
    pipe.authority = Authority()
    assert pipe.register() == [Leave("server certificate does not match the join string", now=True, mute=True)]
    assert pipe.asked == []


def test_a_wrong_clock_is_named_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    authority = Authority()
    chain = authority.make(ends=-DAY / 2)
    server = SmallServer(lambda request: Response(body=authority.pem), tmp_path, authority, chain)
    events: SimpleQueue[Event] = SimpleQueue()
    join = Join((f"127.0.0.1:{server.port}",), authority.fingerprint, TOKEN)
    uplink = Uplink(ServerAddress(join=join), events.put, print, Latency(Random(1)))
    uplink.start()
    uplink.register(HELLO)
    assert events.get(timeout=10) == NoAnswer(0)
    uplink.close()
    server.close()
    assert "is the clock right?" in caplog.text


# --- the new pilot
def test_a_new_pilot_is_fetched_under_the_session_and_compared(open_pipe: Open) -> None:
    pipe = open_pipe()
    digest = hashlib.sha256(b"zip").hexdigest()
    for answer in (Response(200, b"zip"), Response(200, b"other"), Response(404), None):
        count = len(pipe.events)
        pipe.answers.append(answer)
        pipe.uplink.fetch(digest, SESSION)
        pipe.until(count + 1)
    assert pipe.events == [
        Fetched(digest, True, b"zip"), Fetched(digest, False), Fetched(digest, None), Fetched(digest, None),
    ]  # fmt: skip
    assert set(pipe.asked) == {("/v1/pilot.pyz", SESSION)}


# --- how far away the server is
def test_the_lag_is_that_of_answers_which_do_not_wait_for_news(open_pipe: Open) -> None:
    pipe = open_pipe()
    assert pipe.exchange(1, Response(200, codec.encode(Reply(1, 1)))) == Answered(Reply(1, 1))
    assert pipe.network.tags() == {}, "it may have been held at the server"
    pipe.answers.append(Response(200, codec.encode(Reply(2, 1))))
    pipe.uplink.exchange(Exchange(2, "p0001", SESSION, 2, 0, Capacity(1), reports=[Report("r1.1#1@1", "succeeded")]))
    pipe.until(2)
    assert 0.0 < pipe.network.tags()["lag_ms"] < 10_000.0


def test_a_registration_tells_the_lag(open_pipe: Open) -> None:
    pipe = open_pipe()
    pipe.register(Response(503))
    assert pipe.network.tags() == {}
    pipe.register(Response(200, codec.encode(REGISTERED)))
    assert "lag_ms" in pipe.network.tags()


def test_the_speed_is_measured_beside_the_lanes(open_pipe: Open) -> None:
    pipe = open_pipe()
    pipe.answers.append(Response(200, bytes(LARGE)))
    pipe.uplink._measure(SESSION)
    assert pipe.network.tags()["bandwidth_mbps"] > 0.0
    assert pipe.asked == [("/v1/pilot.pyz", SESSION)]
    for answer in (Response(404, bytes(LARGE)), None):
        pipe.answers.append(answer)
        pipe.uplink._measure(SESSION)
    assert pipe.events == []


# --- unfit
def test_an_unfit_host_is_told_of_once_and_without_insisting(open_pipe: Open) -> None:
    pipe = open_pipe()
    pipe.answers.append(IN)
    assert report_unfit(pipe.place, HELLO)
    assert pipe.asked == [("/v1/pilots", TOKEN)]
    pipe.server.close()
    assert not report_unfit(pipe.place, HELLO)


def test_no_secret_is_logged_whatever_happens(open_pipe: Open, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    pipe = open_pipe()
    pipe.register(Response(500, TOKEN.encode()))
    pipe.exchange(1, Response(409, error("x", f"{SESSION} unknown")))
    pipe.exchange(1, Response(200, b'{"session": "' + SESSION.encode() + b'"}'))
    pipe.server.close()
    pipe.exchange(1)
    assert "no answer" in caplog.text
    for secret in (TOKEN, SESSION):
        assert secret not in caplog.text and secret not in repr(pipe.place)
