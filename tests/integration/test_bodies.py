"""Large bodies and odd headers: beats are answered meanwhile, memory stays bounded, and no answer is a 5xx [ADR 0016]."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.model.limits import MAX_VALUES
from tests.integration.guests import Guests, serving
from tests.unix_http import connect

pytestmark = pytest.mark.integration
SIZE = 64 * 1024 * 1024
MEMORY = 1_200 * 1024 * 1024  # bytes that the server may take at its peak: it took 2 GB for one such body
BEAT, LONGEST = 1.0, 3.0  # seconds within which a beat is answered meanwhile, and at worst on a busy machine
ODD = (b"x\xfb", b"\xff\xfe", b"caf\xc3\xa9", b"\xed\xa0\x80", b"", b" ", b"x" * 3_000)
HEADERS = (
    b"Expect", b"Authorization", b"Content-Type", b"Content-Encoding", b"Content-Length", b"Transfer-Encoding", b"Host",
    b"Origin", b"Range", b"Connection", b"Upgrade", b"Cookie", b"If-None-Match", b"Accept", b"Accept-Encoding", b"X-Odd",
)  # fmt: skip
METHODS = (
    b"GET",
    b"POST",
    b"PUT",
    b"DELETE",
    b"PATCH",
    b"OPTIONS",
    b"HEAD",
    b"TRACE",
    b"ODD",
    b"G\xcbT",
    b"get",
    b"CONNECT",
)
PATHS = (
    b"/v1/runs",
    b"/v1/health",
    b"/v1/nowhere",
    b"/v1/runs?name=\xfb",
    b"/v1/runs/r\xfb",
    b"*",
    b"/%ff",
    b"/v1/runs?a=%ff",
)


@pytest.fixture
def guests(tmp_path: Path) -> Iterator[Guests]:
    """A server."""
    with serving(tmp_path) as found:
        yield found


def peak_memory(pid: int) -> int:
    """The most memory that a process ever had, in bytes."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmHWM"))) * 1024


def send_large(guests: Guests, token: str, make: Callable[[], Iterator[bytes]], statuses: list[int]) -> None:
    """Send a body of SIZE bytes and note the answer; who is refused half-way may see a broken pipe first."""
    head = (
        f"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {SIZE}\r\n\r\n"
    )
    with connect(guests.url, 120.0) as line:
        with contextlib.suppress(OSError):
            line.sendall(head.encode())
            for part in make():
                line.sendall(part)
        with contextlib.suppress(OSError, ValueError, IndexError):
            statuses.append(int(line.recv(4_096).split()[1]))


def lists() -> Iterator[bytes]:
    """Nothing but empty lists."""
    for _ in range(SIZE // (3 * 1024 * 64)):
        yield b"[]," * (1024 * 64)


def values() -> Iterator[bytes]:
    """As many values as a body may have, so that all of them are decoded; then blanks."""
    begin, end, count = b'{"tasks": [', b"[]]}", MAX_VALUES // 2 - 8
    yield begin
    yield from (b"[]," * 50_000 for _ in range(count // 50_000))
    used = len(begin) + len(end) + 3 * (count // 50_000) * 50_000
    yield from (b" " * 65_536 for _ in range((SIZE - used) // 65_536))
    yield b" " * ((SIZE - used) % 65_536) + end


def text() -> Iterator[bytes]:
    """One long text in a wrong place: few values, and all of it has to be read."""
    begin, end = b'{"tasks": [{"command": ["true"]}], "name": "', b'"}'
    yield begin
    yield from (b"x\\u00e9" * 9_362 for _ in range((SIZE - len(begin) - len(end)) // 65_534))
    yield b"x" * ((SIZE - len(begin) - len(end)) % 65_534)
    yield end


@pytest.mark.timeout(300)
@pytest.mark.parametrize("make", [lists, values, text], ids=["lists", "values", "text"])
def test_beats_are_answered_while_ten_large_bodies_are_sent(
    guests: Guests, make: Callable[[], Iterator[bytes]]
) -> None:
    guests.do("POST", "/v1/users", {"name": "mallory"})
    hostile = guests.mint(owner="mallory").secret
    pilot = guests.join(guests.mint("enrol", site="here").secret, "host")
    statuses: list[int] = []
    senders = [threading.Thread(target=send_large, args=(guests, hostile, make, statuses)) for _ in range(10)]
    for sender in senders:
        sender.start()
    beats = []
    while any(sender.is_alive() for sender in senders):
        began = time.monotonic()
        answer = pilot.talk(
            leaving="", tails=[{"attempt": "r1.1#1@1", "stream": "stdout", "text": ""}]
        )  # answered at once
        beats.append(time.monotonic() - began)
        assert answer.status == 200
    for sender in senders:
        sender.join()
    assert set(statuses) <= {408, 413, 422, 429}, statuses
    beats.sort()
    assert len(beats) > 5, beats
    assert beats[len(beats) * 95 // 100] < BEAT and beats[-1] < LONGEST, f"{len(beats)} beats, the slowest {beats[-3:]}"
    assert peak_memory(guests.pid) < MEMORY


def test_no_odd_header_method_or_path_is_a_defect(guests: Guests) -> None:
    """Bytes that are no text in every header the server reads, in methods and in paths: refused, each with its status."""
    seen = set()
    for method in METHODS:
        seen |= _statuses(guests, method + b" /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    for path in PATHS:
        seen |= _statuses(guests, b"GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    for name in HEADERS:
        for value in (*ODD, b"-1", b"1e3", b"99999999999999999999", b"chunked, gzip", b"100-Continue"):
            for path in (b"/v1/runs", b"/v1/nowhere"):
                others = b"" if name == b"Host" else b"Host: 127.0.0.1\r\n"
                auth = b"" if name == b"Authorization" else b"Authorization: Bearer " + guests.admin.encode() + b"\r\n"
                head = b"POST " + path + b" HTTP/1.1\r\n" + others + auth + name + b": " + value + b"\r\n"
                framed = b"" if name in (b"Content-Length", b"Transfer-Encoding") else b"Content-Length: 2\r\n"
                found = _statuses(guests, head + framed + b"Connection: close\r\n\r\n{}")
                assert all(status < 500 for status in found), (head, found)
                seen |= found
    assert {400, 401, 404, 417} <= seen


def test_an_expectation_that_is_no_text_is_refused_as_what_it_is(guests: Guests) -> None:
    """It was repeated in the answer, which then could not be written: 500."""
    for value, status in ((b"x\xfb", 400), (b"x", 417)):
        found = guests.raw(b"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: " + value + b"\r\n\r\n")
        assert found.split(b" ")[1] == str(status).encode()
        assert json.loads(found.partition(b"\r\n\r\n")[2])["error"]["code"] == "http"


def _statuses(guests: Guests, data: bytes) -> set[int]:
    """The status of each answer to these bytes; none if the connection was closed without one."""
    found = guests.raw(data)
    return {
        int(line.split()[1]) for line in found.split(b"\r\n") if line.startswith(b"HTTP/1.") and b"100 Cont" not in line
    }
