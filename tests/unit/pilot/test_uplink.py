"""What answers of the server mean, and where the server is."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import pytest

from shoal.pilot.moves import Answered, Disowned, Event, Joined, Leave, NoAnswer, Outdated
from shoal.pilot.uplink import NoPlace, Place, Uplink, check_url, read_answer, read_error
from shoal.wire import codec
from shoal.wire.messages import Exchange, Lease, Registered, Reply, Room

REGISTERED = Registered("p0001", "s", 1, 1.0, 10.0, 1.0, 60.0, 1.0, 30.0, 60.0)


def error(code: str) -> bytes:
    return json.dumps({"error": {"code": code, "message": "so"}}).encode()


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
        (200, codec.encode(Reply(7, 1, [Lease("../../etc", Room(1), "safe")])), 7, NoAnswer(7)),
        (409, error("re_enrol"), 7, Disowned(7)),
        (409, error("session_in_use"), 7, Disowned(7)),
        (409, error("replay"), 7, Outdated(7)),
        (409, error("other"), 7, NoAnswer(7)),
        (500, b"<html>", 7, NoAnswer(7)),
        (503, b'{"error": "text"}', 7, NoAnswer(7)),
        (302, b"", 0, NoAnswer(0)),
    ],
)
def test_an_answer_means_one_thing(status: int, body: bytes, seq: int, event: Event) -> None:
    assert read_answer(status, body, seq) == event


def test_an_error_is_read_whatever_it_holds() -> None:
    assert read_error(error("x")) == ("x", "so")
    assert read_error(b"\x1b[31mred") == ("", "\\x1b[31mred")
    assert len(read_error(b"y" * 10_000)[1]) <= 80


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "http://localhost:1", "http://[::1]:9", "unix:/run/x.sock"])
def test_this_host_may_be_spoken_to_in_the_clear(url: str) -> None:
    assert check_url(url) == url


@pytest.mark.parametrize(
    "url", ["http://10.0.0.1:80", "http://127.0.0.1", "ftp://127.0.0.1:1", "http://127.0.0.1:x", "", "unix:x"]
)
def test_no_other_may(url: str) -> None:
    with pytest.raises(NoPlace, match="no address"):
        check_url(url)


def test_the_place_is_read_anew_each_time(tmp_path: Path) -> None:
    file = tmp_path / "server.json"
    place = Place(server_file=str(file))
    with pytest.raises(NoPlace, match=r"server\.json"):
        place.read()
    file.write_text('{"url": "http://127.0.0.1:1", "token": "t", "pid": 3}')
    assert place.read() == ("http://127.0.0.1:1", "t")
    file.write_text('{"url": "http://127.0.0.1:2/", "token": "u"}')
    assert place.read() == ("http://127.0.0.1:2", "u")
    for bad in ("", "[]", '{"url": 3}', '{"url": "http://127.0.0.1:1"}'):
        file.write_text(bad)
        with pytest.raises(NoPlace):
            place.read()


def test_the_token_may_have_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    place = Place(url="unix:/s", token_file=str(tmp_path / "token"))
    assert place.read() == ("unix:/s", "secret")
    assert "secret" not in str(place)


class Scripted:
    """A server on a Unix socket that gives prepared answers, one connection at a time."""

    def __init__(self, path: Path, answers: list[bytes]) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(4)
        self.answers, self.requests, self.connections = answers, list[bytes](), 0
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while self.answers:
            connection, _ = self.listener.accept()
            self.connections += 1
            with connection:
                while self.answers and (request := self.read(connection)):
                    self.requests.append(request)
                    answer = self.answers.pop(0)
                    if not answer:
                        break  # hang up without a word
                    connection.sendall(answer)
        self.listener.close()

    def read(self, connection: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                return b""
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(body) < length:
            body += connection.recv(65536)
        return head + b"\r\n\r\n" + body


def http(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


class Pipe:
    """An uplink to a scripted server; events come back one by one."""

    def __init__(self, folder: Path, answers: list[bytes]) -> None:
        (folder / "token").write_text("secret")
        self.server = Scripted(folder / "s", answers)
        self.events: list[Event] = []
        self.arrived = threading.Condition()
        self.uplink = Uplink(Place(url=f"unix:{folder / 's'}", token_file=str(folder / "token")), self.take)
        self.uplink.start()

    def take(self, event: Event) -> None:
        with self.arrived:
            self.events.append(event)
            self.arrived.notify_all()

    def exchange(self, seq: int, count: int) -> None:
        self.uplink.exchange(Exchange(1, "p0001", "s", seq, 0, Room(1)))
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.events) >= count, 10)


def test_an_exchange_is_posted_with_the_token_and_answered(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path, [http(200, codec.encode(Reply(1, 1)))])
    pipe.exchange(1, 1)
    assert pipe.events == [Answered(Reply(1, 1))]
    (request,) = pipe.server.requests
    assert request.startswith(b"POST /v1/pilots/p0001/exchange HTTP/1.1\r\n")
    assert b"Authorization: Bearer secret\r\n" in request
    pipe.uplink.close()


def test_a_lost_reply_is_no_answer_and_the_next_try_has_its_own_connection(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path, [b"", http(200, codec.encode(Reply(1, 1)))])
    pipe.exchange(1, 1)
    pipe.exchange(1, 2)
    assert pipe.events == [NoAnswer(1), Answered(Reply(1, 1))]
    assert pipe.server.connections == 2
    pipe.uplink.close()


def test_three_refusals_in_a_row_end_the_pilot(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path, [http(401, error("unauthorised"))] * 3)
    for count in (1, 2, 4):
        pipe.exchange(1, count)
    assert pipe.events == [NoAnswer(1), NoAnswer(1), Leave("the server refused this pilot: so"), NoAnswer(1)]
    pipe.uplink.close()


def test_nobody_there_is_no_answer(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path, [])
    pipe.server.thread.join()
    (tmp_path / "s").unlink()
    pipe.exchange(1, 1)
    assert pipe.events == [NoAnswer(1)]
    pipe.uplink.close()
