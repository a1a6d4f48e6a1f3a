"""Many clients at once over TLS: honest pilots that report, and users who flood the server with requests.

Run as a process of its own (`python -m bench.storm pilots|flood ...`), so that its CPU time and memory are not the
server's. Prints one line of JSON at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import ssl
import sys
import time
from pathlib import Path
from typing import Any

from shoal.wire.messages import PROTOCOL

IDLE_ADDRESS = "127.0.0.66"  # idle sockets come from another address than honest ones
REQUESTS = ("/v1/runs", "/v1/pilots?limit=50", "/v1/events?limit=100")
CAPACITY = {"cores": 1, "memory": 1 << 34, "disk": 1 << 36, "gpus": 0}


class Connection:
    """One kept connection; writes HTTP by hand, for that is cheapest."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext) -> None:
        self._address, self._context = (host, port), context
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(self, method: str, path: str, token: str, body: Any = None) -> tuple[int, bytes]:
        """Status and body of the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(
                *self._address, ssl=self._context, server_hostname="shoal-server"
            )
        reader, writer = self._streams
        data = json.dumps(body).encode() if body is not None else b""
        head = f"{method} {path} HTTP/1.1\r\nHost: shoal-server\r\nAuthorization: Bearer {token}\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        try:
            writer.write(head.encode() + b"\r\n" + data)
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            size = next((int(x[15:]) for x in lines if x.lower().startswith("content-length:")), 0)
            answer = await reader.readexactly(size)
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            raise
        return int(lines[0].split()[1]), answer

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


def trust(ca: str) -> ssl.SSLContext:
    """A context that trusts this CA."""
    return ssl.create_default_context(cadata=Path(ca).read_text())


# --- honest pilots
class StormPilot:
    """Registers over TLS with its own certificate, runs each task for a while, reports it, and notes how long that took."""

    def __init__(self, chosen: argparse.Namespace, number: int) -> None:
        self._chosen, self._number = chosen, number
        self.late: list[tuple[float, float]] = []  # time, and seconds until a report was acknowledged
        self.done = self.lost = self.errors = 0

    async def run(self, end: float) -> None:
        """Exchange and report until the end."""
        chosen = self._chosen
        connection = Connection(chosen.host, chosen.port, trust(chosen.ca))
        register = {
            "protocol": PROTOCOL,
            "version": "storm",
            "host": f"h{self._number}",
            "identity": f"i{self._number}",
            "room": CAPACITY,
        }
        status, body = await connection.request("POST", "/v1/pilots", chosen.token, register)
        if status != 200:
            raise RuntimeError(body.decode())
        joined = json.loads(body)
        connection.close()
        connection = Connection(chosen.host, chosen.port, _with_key(chosen.ca, joined["certificate"], joined["key"]))
        seq = 0
        reports: list[dict[str, Any]] = []
        while time.time() < end:
            seq += 1
            exchange = {
                "protocol": PROTOCOL, "pilot": joined["pilot"], "session": joined["session"], "seq": seq, "ack": seq - 1,
                "free": CAPACITY, "reports": reports, "nonce": str(seq),
            }  # fmt: skip
            while True:
                began = time.monotonic()
                try:
                    status, body = await connection.request(
                        "POST", f"/v1/pilots/{joined['pilot']}/exchange", joined["session"], exchange
                    )
                    break
                except (OSError, asyncio.IncompleteReadError):
                    self.errors += 1
                    await asyncio.sleep(0.2)
            if status != 200:
                self.lost += 1
                return
            if reports:
                self.late.append((time.time(), time.monotonic() - began))
                self.done += len(reports)
            leases = json.loads(body)["leases"]
            if leases:
                await asyncio.sleep(chosen.pause)
            reports = [
                {"attempt": lease["attempt"], "outcome": "succeeded", "exit_code": 0, "duration": 1.0}
                for lease in leases
            ]


def _with_key(ca: str, certificate: str, key: str) -> ssl.SSLContext:
    context = trust(ca)
    descriptor = os.memfd_create("key")
    with open(descriptor, "w", closefd=True) as file:
        file.write(certificate + key)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    return context


async def pilots(chosen: argparse.Namespace) -> dict[str, Any]:
    """So many pilots until the end."""
    all_of_them = [StormPilot(chosen, number) for number in range(chosen.count)]

    async def later(pilot: StormPilot, after: float) -> None:
        await asyncio.sleep(after)
        await pilot.run(chosen.until)

    await asyncio.gather(*(later(pilot, at * 0.02) for at, pilot in enumerate(all_of_them)))
    return {
        "late": [x for pilot in all_of_them for x in pilot.late], "done": sum(p.done for p in all_of_them),
        "lost": sum(p.lost for p in all_of_them), "errors": sum(p.errors for p in all_of_them),
    }  # fmt: skip


# --- users who flood the server
async def flood(chosen: argparse.Namespace) -> dict[str, Any]:
    """Send requests as fast as possible over many connections, ignore every request to wait, and leave sockets open."""
    seen: dict[int, int] = {}
    accepted = 0
    context = trust(chosen.ca)

    async def send(number: int) -> None:
        nonlocal accepted
        connection = Connection(chosen.host, chosen.port, context)
        while time.time() < chosen.until:
            try:
                if number % 4 == 0:
                    body = {"tasks": [{"command": ["true"]}]}
                    status, _ = await connection.request("POST", "/v1/runs", chosen.token, body)
                    accepted += status == 200
                else:
                    status, _ = await connection.request("GET", REQUESTS[number % 3], chosen.token)
                seen[status] = seen.get(status, 0) + 1
            except (OSError, asyncio.IncompleteReadError):
                seen[0] = seen.get(0, 0) + 1
                await asyncio.sleep(0.05)

    async def hang(rate: float) -> None:
        """Connect and send nothing."""
        kept: list[socket.socket] = []
        loop = asyncio.get_running_loop()
        while time.time() < chosen.until:
            with contextlib.suppress(OSError):
                sock = socket.socket()
                sock.setblocking(False)
                sock.bind((IDLE_ADDRESS, 0))
                await loop.sock_connect(sock, (chosen.host, chosen.port))
                kept.append(sock)
                seen[-1] = seen.get(-1, 0) + 1
            while len(kept) > 500:
                kept.pop(0).close()
            await asyncio.sleep(1 / rate)

    async def dawdle() -> None:
        """Request much and read nothing."""
        while time.time() < chosen.until:
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                _, writer = await asyncio.open_connection(
                    chosen.host, chosen.port, ssl=context, server_hostname="shoal-server"
                )
                head = f"GET /v1/events?limit=1000 HTTP/1.1\r\nHost: shoal-server\r\nAuthorization: Bearer {chosen.token}\r\n\r\n"
                writer.write(head.encode() * 50)
                seen[-2] = seen.get(-2, 0) + 1
                await asyncio.sleep(15)
                writer.transport.abort()

    await asyncio.gather(*(send(n) for n in range(chosen.count)), hang(chosen.hang), *(dawdle() for _ in range(20)))
    return {"seen": seen, "accepted": accepted}


def main() -> int:
    """One kind of clients until a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("pilots", "flood"))
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ca", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--until", type=float, required=True)
    parser.add_argument("--pause", type=float, default=2.0)
    parser.add_argument("--hang", type=float, default=65.0)
    chosen = parser.parse_args()
    chosen.token = sys.stdin.readline().strip()
    work = pilots(chosen) if chosen.what == "pilots" else flood(chosen)
    print(json.dumps(asyncio.run(work)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
