"""Emulated pilots of one core, each with a host and tags of its own: every exchange reports one task and takes one lease.

What a pilot sends is encoded once by the pilot's own codec and then only filled in, and of a reply only what is checked
is decoded, so that the two cores are the server's. Every reply is checked: its status, the verdict on the task that was
reported, and that the lease is of one task.
"""

from __future__ import annotations

import select
import time
from typing import NoReturn

import msgspec

from bench.emulate import connect
from shoal.wire import codec
from shoal.wire.messages import PROTOCOL, Capacity, Exchange, Held, Proof, Register, Registered, Report

SECONDS = 1.0  # that a task says it took: nothing is fetched ahead, so each exchange takes one lease
ROOM = Capacity(1, 1 << 32, 1 << 36, 0)
_REGISTERED = msgspec.json.Decoder(Registered)
_GOOD = b"HTTP/1.1 200 "
_LENGTH = b"\r\nContent-Length: "


class _Verdict(msgspec.Struct):
    attempt: str
    verdict: str


class _Lease(msgspec.Struct):
    attempt: str
    proof: str
    count: int


class _Reply(msgspec.Struct):
    seq: int
    leases: list[_Lease]
    verdicts: list[_Verdict]


_REPLY = msgspec.json.Decoder(_Reply)


def _template(pilot: str, session: str, is_report: bool) -> str:
    """An exchange as the pilot's codec writes it, with `%` where numbers and names are filled in."""
    held, reports, proofs = [], [], []
    if is_report:
        held = [Held("%(attempt)s", "done")]
        reports = [
            Report("%(attempt)s", "succeeded", exit_code=0, started=1.0e9, duration=SECONDS, cpu=0.5, max_rss=1 << 20)
        ]
        proofs = [Proof("%(attempt)s", 1, "%(proof)s")]
    made = Exchange(PROTOCOL, pilot, session, 7_070_707, 8_080_808, ROOM, held, reports, nonce="%(seq)d", proofs=proofs)
    return codec.encode(made).decode().replace("7070707", "%(seq)d").replace("8080808", "%(ack)d")


class SmallPilot:
    """One connection, one core, one task at a time."""

    def __init__(self, url: str, enrol: str, number: int) -> None:
        self.sock = connect(url)
        self._number, self._buffer = number, b""
        self._seq, self._attempt = 0, ""
        self.exchanges = 0
        name = self._join(enrol)
        head = f"POST /v1/pilots/{name.pilot}/exchange HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Authorization: Bearer {name.session}\r\nContent-Type: application/json\r\nContent-Length: "
        self._head = head
        self._asking = _template(name.pilot, name.session, False)
        self._reporting = _template(name.pilot, name.session, True)
        self.ask()

    def _join(self, enrol: str) -> Registered:
        """Register, again and again while the server limits the rate."""
        number, host = self._number, f"node{self._number}.example"
        tags = {
            "arch": "x86_64", "os": "linux", "cpu_mhz": 2_000 + number, "load": number % 97 / 100, "rack": f"r{number % 40}",
        }  # fmt: skip
        register = Register(PROTOCOL, "bench", host, host, ROOM, tags=tags)  # type: ignore[arg-type]
        data = codec.encode(register)
        head = f"POST /v1/pilots HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {enrol}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        while True:
            self.sock.sendall(head.encode() + data)
            while (body := self._body(any_status=True)) is None:
                pass
            if b'"error"' not in body:
                return _REGISTERED.decode(body)
            time.sleep(0.05)

    def _body(self, any_status: bool = False) -> bytes | None:
        """The body of a reply, or None while it is incomplete."""
        data = self._buffer + self.sock.recv(1 << 16) if self._buffer else self.sock.recv(1 << 16)
        end = data.find(b"\r\n\r\n") + 4
        if end < 4:
            self._buffer = data
            return None
        at = data.find(_LENGTH, 0, end) + len(_LENGTH)
        length = int(data[at : data.find(b"\r", at)])
        if len(data) < end + length:
            self._buffer = data
            return None
        self._buffer = b""
        if not data.startswith(_GOOD) and not any_status:
            self._fail(f"was answered {data[:300]!r}")
        return data[end:]

    def _fail(self, why: str) -> NoReturn:
        raise RuntimeError(f"pilot {self._number} {why}")

    def _send(self, body: str) -> None:
        self.exchanges += 1
        self.sock.send(f"{self._head}{len(body)}\r\n\r\n{body}".encode())

    def ask(self) -> None:
        """Ask for work: an exchange without a report, which the server holds until there is some."""
        self._seq += 1
        self._send(self._asking % {"seq": self._seq, "ack": self._seq - 1})

    def step(self) -> int:
        """Take a reply in and send the next exchange; how many tasks the reply recorded."""
        body = self._body()
        if body is None:
            return 0
        reply = _REPLY.decode(body)
        if reply.seq != self._seq:
            self._fail(f"sent {self._seq} and was answered {reply.seq}")
        done = 0
        if self._attempt:
            if [(one.attempt, one.verdict) for one in reply.verdicts] != [(self._attempt, "recorded")]:
                self._fail(f"reported {self._attempt} and got {reply.verdicts}")
            done, self._attempt = 1, ""
        if not reply.leases:
            self.ask()
            return done
        (lease,) = reply.leases
        if lease.count != 1:
            self._fail(f"got {lease}")
        self._attempt = lease.attempt
        self._seq += 1
        filled = {"attempt": lease.attempt, "proof": lease.proof, "seq": self._seq, "ack": self._seq - 1}
        self._send(self._reporting % filled)
        return done


def run_small(pilots: list[SmallPilot], total: int) -> int:
    """Let all pilots work until this many tasks are recorded from now on; the parked ones stay parked."""
    done = 0
    steps = {pilot.sock.fileno(): pilot.step for pilot in pilots}
    with select.epoll() as poll:
        for number in steps:
            poll.register(number, select.EPOLLIN)
        while done < total:
            for number, _ in poll.poll():
                done += steps[number]()
    return done
