"""Emulated pilots: the real protocol against a real server, no execution. One thread serves them all over plain sockets."""

from __future__ import annotations

import selectors
import socket
import time
from typing import Any

import msgspec

from shoal.wire.messages import PROTOCOL

TAGS = {"arch": "x86_64", "os": "linux"}  # for expressions, beside those that differ from pilot to pilot
_encode, _decode = msgspec.json.encode, msgspec.json.decode


class EmulatedPilot:
    """Registers, takes leases and reports each as succeeded with its next exchange."""

    def __init__(self, url: str, enrol: str, cores: int = 16, number: int = 0) -> None:
        self._sock = connect(url)
        self._reported: list[dict[str, Any]] = []  # the leases reported last
        self._seq, self.done, self.exchanges, self._buffer = 0, 0, 0, b""
        self._capacity = {"cores": cores, "memory": 1 << 36, "disk": 1 << 36, "gpus": 0}
        register = {
            "protocol": PROTOCOL,
            "version": "bench",
            "host": "bench",
            "identity": "bench",
            "room": self._capacity,
            "tags": {**TAGS, "cpu_mhz": 2_000 + number * 37 % 1_000, "load": number % 10 / 10},
        }
        joined = self._join(register, enrol)
        self._name, self.session = joined["pilot"], joined["session"]
        self._path = f"/v1/pilots/{self._name}/exchange"
        self._unacknowledged = 0
        self.is_waiting = False
        self.send([])  # as a pilot does: until then the connection counts as one of its owner, who has 128 of them

    def _join(self, register: dict[str, Any], enrol: str) -> Any:
        while True:
            self._post("/v1/pilots", register, enrol)
            joined = None
            while joined is None:
                joined = self.receive()
            if "error" not in joined:
                return joined
            time.sleep(0.05)  # the server limits the rate of registrations

    def fileno(self) -> int:
        """For selectors."""
        return self._sock.fileno()

    def _post(self, path: str, body: Any, token: str) -> None:
        data = _encode(body)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        self._sock.sendall(head.encode() + data)

    def receive(self) -> Any:
        """The answer, or None while it is incomplete."""
        self._buffer += self._sock.recv(1 << 18)
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        at = head.lower().index(b"content-length:") + 15
        length = int(head[at:].split(b"\r\n", 1)[0])
        if len(body) < length:
            return None
        self._buffer = body[length:]
        if b" 200 " not in head[:20] and b" 429 " not in head[:20]:
            raise RuntimeError(f"{head[:40]!r} {body[:300]!r}")
        return _decode(body[:length])

    def send(self, leases: list[dict[str, Any]]) -> None:
        """Send the next exchange: all of these succeeded."""
        self._seq += 1
        self._reported = leases or self._reported
        batches = []
        for lease in leases:
            count = lease["count"]
            batches.append(
                {"attempt": lease["attempt"], "count": count, "started": [1.0e9] * count, "duration": [0.001] * count,
                 "cpu": [0.001] * count, "last_line": ["42"] * count}
            )  # fmt: skip
            self._unacknowledged += count
        exchange = {
            "protocol": PROTOCOL, "pilot": self._name, "session": self.session, "seq": self._seq, "ack": self._seq - 1,
            "free": self._capacity, "batches": batches, "nonce": str(self._seq),
        }  # fmt: skip
        self.exchanges += 1
        self.is_waiting = True
        self._post(self._path, exchange, self.session)

    def handle(self, reply: dict[str, Any]) -> list[dict[str, Any]]:
        """Count what the reply acknowledges; its leases."""
        self.is_waiting = False
        self.done, self._unacknowledged = self.done + self._unacknowledged, 0
        leases: list[dict[str, Any]] = reply["leases"]
        return leases

    def reconnect(self, url: str) -> None:
        """Send the last reports to the restarted server once more, and wait for the reply."""
        self._sock.close()
        self._sock, self._buffer = connect(url), b""
        self.send(self._reported)
        while self.receive() is None:
            pass

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()


def connect(url: str) -> socket.socket:
    """A connection to a server on a Unix socket."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.connect(url.removeprefix("unix:"))
    return made


def run_until(pilots: list[EmulatedPilot], total: int) -> int:
    """Let all pilots work until they have finished `total` tasks together from now on; returns how many they did."""
    before = sum(p.done for p in pilots)
    with selectors.DefaultSelector() as selector:
        for pilot in pilots:
            selector.register(pilot, selectors.EVENT_READ, pilot)
            if not pilot.is_waiting:  # else the reply to its last exchange will bring the first leases
                pilot.send([])
        waiting, done = len(pilots), 0
        while waiting:
            for key, _ in selector.select():
                pilot = key.data
                reply = pilot.receive()
                if reply is None:
                    continue
                had = pilot.done
                leases = pilot.handle(reply)
                done += pilot.done - had
                if leases or done < total:
                    pilot.send(leases)
                else:
                    waiting -= 1
            if done >= total:
                break
        # The server still holds some exchanges and answers them later: that is not waited for.
    return sum(p.done for p in pilots) - before
