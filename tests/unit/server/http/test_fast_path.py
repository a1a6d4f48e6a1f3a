"""The fast path of exchanges on real sockets: what takes it, that its answers are those of the ordinary way, and that
whatever may have changed since the first exchange is seen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from shoal.db.sqlite import Database
from shoal.engine.commands import Bury, Enrol, Submit
from shoal.model import limits
from shoal.model.timing import Timing
from shoal.server.auth.authentication import Authentication
from shoal.server.blobs.registry import Blobs
from shoal.server.blobs.uploads import Uploads
from shoal.server.context import Context
from shoal.server.disk_reserve import Reserve
from shoal.server.http.app import make_app
from shoal.server.http.connections import ConnectionLimits, Connections
from shoal.server.http.listen import bind_local
from shoal.server.http.protocol import HttpProtocol, HttpServer
from shoal.server.http.rate_limit import RateLimit
from shoal.server.metrics import Metrics
from shoal.server.service import Service
from shoal.wire import codec
from shoal.wire.messages import PROTOCOL, Capacity, Exchange, Held, Register, Registered, Report
from shoal.wire.submission import parse_submission

ROOM = Capacity(2, 1 << 30, 1 << 30)
SOON = 60.0


class Answer(NamedTuple):
    """A response: its status, whether the connection stays, and its document."""

    status: int
    is_kept: bool
    document: dict[str, Any]


class World:
    """A server with one pilot, and a connection to it."""

    def __init__(self, context: Context, server: HttpServer, path: Path, parsed: list[str]) -> None:
        self.context, self.service, self.server, self.path = context, context.service, server, path
        self.parsed = parsed  # requests that went through the parser
        self.seq = 0
        self.pilot: Registered
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def join(self) -> None:
        register = Register(PROTOCOL, "0", "host", "id", ROOM, nonce=f"n{self.seq}")
        self.pilot = await self.service.command(Enrol(register, "anna", "local"))

    async def connect(self) -> None:
        if self.seq:
            self.writer.close()
        self.reader, self.writer = await asyncio.open_unix_connection(str(self.path))

    async def submit(self, **fields: Any) -> None:
        submission = parse_submission({"tasks": [{"command": ["true"], **fields}]})
        await self.service.command(
            Submit(submission, "anna", "d"), lambda r: self.service.accept(int(r["run"][1:]), 1, 1)
        )

    def exchange(self, **more: Any) -> bytes:
        """The body of the next exchange."""
        self.seq += 1
        made = {"pilot": self.pilot.pilot, "session": self.pilot.session, "free": ROOM, **more}
        return codec.encode(Exchange(PROTOCOL, seq=self.seq, ack=self.seq - 1, **made))

    def request(self, body: bytes, token: str = "", extra: str = "") -> bytes:
        head = f"POST /v1/pilots/{self.pilot.pilot}/exchange HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Authorization: Bearer {token or self.pilot.session}\r\nContent-Type: application/json\r\n{extra}"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def answer(self) -> Answer:
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), SOON)).decode()
        length = int(head.lower().partition("content-length: ")[2].partition("\r")[0])
        body = await asyncio.wait_for(self.reader.readexactly(length), SOON)
        return Answer(int(head.split()[1]), "Connection: close" not in head, json.loads(body))

    async def ask(self, *, fast: bool, **more: Any) -> Answer:
        """The answer to an exchange that needs no waiting, and whether it took the fast path."""
        return await self.send(self.request(self.exchange(**{"reports": [UNKNOWN], **more})), fast=fast)

    async def send(self, data: bytes, *, fast: bool) -> Answer:
        before = len(self.parsed)
        self.writer.write(data)
        found = await self.answer()
        assert (len(self.parsed) == before) == fast
        return found


UNKNOWN = Report("r99.1#1@1", "succeeded")  # a verdict on it comes at once


def play(folder: Path, monkeypatch: pytest.MonkeyPatch, story: Callable[[World], Awaitable[None]]) -> None:
    """Have a story happen to a server on a Unix socket, with a pilot whose first exchange went the ordinary way."""
    parsed: list[str] = []
    real = HttpProtocol.on_headers_complete

    def note(protocol: HttpProtocol) -> None:
        parsed.append(protocol._url.decode())
        real(protocol)

    monkeypatch.setattr(HttpProtocol, "on_headers_complete", note)

    async def main() -> None:
        database = Database.open(folder / "shoal.db", durability="normal")
        people, held = database.people(0.0), database.blobs()
        service = Service(database, folder, Timing(), "own", Reserve(folder))
        blobs = Blobs(folder / "blobs", held, service.writer.put, service.clock, 1 << 30, durable=False, restored=0.0)
        connections = Connections(ConnectionLimits())
        access = Authentication(people, lambda rows: service.writer.put(rows))
        context = Context(
            service, access, connections, RateLimit(), Metrics("0"), lambda: None, blobs, Uploads(blobs)
        )  # fmt: skip
        server = HttpServer(make_app(context))
        listener = await bind_local(connections, server, folder / "sock")
        world = World(context, server, folder / "sock", parsed)
        try:
            await world.join()
            await world.connect()
            assert (await world.ask(fast=False)).status == 200
            await story(world)
        finally:
            listener.close()
            service.hang_up()
            await server.close(within=1.0)
            connections.close()
            context.bodies.close()
            blobs.close()
            await service.close()
            world.writer.close()

    asyncio.run(asyncio.wait_for(main(), SOON))


def test_exchanges_after_the_first_are_neither_parsed_nor_routed_and_are_answered_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        for _ in range(3):
            found = await world.ask(fast=True)
            assert found.status == 200 and found.is_kept and found.document["seq"] == world.seq
            assert [one["verdict"] for one in found.document["verdicts"]] == ["unknown"]
        (path,) = set(world.parsed)
        metrics = world.context.metrics
        assert metrics.exchanges == 4 and metrics.requests["/v1/pilots/{pilot}/exchange", "200"] == 4
        assert sum(world.context.access._counts.values()) == 3, "the audit has them all; the first is written already"
        # One that waits is answered when there is work, and a request behind it after that.
        world.writer.write(world.request(world.exchange()) + b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await world.submit()
        (lease,) = (await world.answer()).document["leases"]
        assert (await world.answer()).document == {"ok": True}
        held = [Held(lease["attempt"], "done")]
        done = Report(lease["attempt"], "succeeded", exit_code=0, started=1.0, duration=1.0)
        found = await world.ask(fast=True, reports=[done], held=held)
        assert [one["verdict"] for one in found.document["verdicts"]] == ["recorded"]
        await world.service.writer.settled()
        assert world.service.reader.run_row(1).finished is not None  # type: ignore[union-attr]
        assert path == f"/v1/pilots/{world.pilot.pilot}/exchange"

    play(tmp_path, monkeypatch, story)


def test_what_differs_in_any_way_goes_the_ordinary_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        reports = [UNKNOWN]
        two = [world.request(world.exchange(reports=reports)) for _ in range(2)]
        world.writer.write(b"".join(two))  # in one piece
        assert [(await world.answer()).document["seq"] for _ in two] == [2, 3]
        data = world.request(world.exchange(reports=reports))
        for part in (data[:40], data[40:300], data[300:-5], data[-5:]):
            world.writer.write(part)
            await world.writer.drain()
            await asyncio.sleep(0.01)
        assert (await world.answer()).document["seq"] == 4
        assert len(world.parsed) == 4
        await world.ask(fast=True)  # the next one is again like the first
        (fast_path,) = [one.fast_path for one in world.server._open]
        assert fast_path is not None
        for extra in ("X-Other: 1\r\n", "Expect: 100-continue\r\n", "X-Other: 2\r\n", "Connection: close\r\n"):
            found = await world.send(world.request(world.exchange(reports=reports), extra=extra), fast=False)
            assert found.document["seq"] == world.seq and found.is_kept == ("close" not in extra)
        for length in (b"+9", b" 9", b"9\r\nX: 1", b"0x9", b"9" * 40):
            body = world.exchange(reports=reports)
            data = world.request(body)
            at = data.rindex(b"Content-Length: ") + len(b"Content-Length: ")
            changed = data[:at] + length + data[data.index(b"\r\n\r\n") :]
            assert fast_path.body_of(data) is not None and fast_path.body_of(changed) is None

    play(tmp_path, monkeypatch, story)


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"pilot": "p00000000"}, 422, "range"),
        ({"session": "shoal_ses_" + "x" * 43}, 401, "unauthorised"),
        ({"free": Capacity(99)}, 422, "range"),
        ({"seq": "many"}, 422, "wrong_type"),
        (b"{", 400, "bad_json"),
    ],
)
def test_a_wrong_body_is_refused_as_on_the_ordinary_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any] | bytes, status: int, code: str
) -> None:
    async def story(world: World) -> None:
        def data() -> bytes:
            if isinstance(change, bytes):
                return change
            made = json.loads(world.exchange(**{n: v for n, v in change.items() if n == "free"}))
            return json.dumps({**made, **{n: v for n, v in change.items() if n != "free"}}).encode()

        fast = await world.send(world.request(data()), fast=True)
        if not fast.is_kept:
            await world.connect()
        slow = await world.send(world.request(data(), extra="X-Other: 1\r\n"), fast=False)
        assert fast == slow and fast.status == status and fast.document["error"]["code"] == code
        assert world.context.metrics.refusals[code] == 2

    play(tmp_path, monkeypatch, story)


def test_what_changed_since_the_first_exchange_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        service = world.service
        await world.ask(fast=True)
        world.context.rate_limit._buckets["session"]._levels[world.pilot.pilot] = (0.0, service.clock() + 100.0)
        found = await world.ask(fast=True)
        assert (found.status, found.document["error"]["code"]) == (429, "too_busy")
        del world.context.rate_limit._buckets["session"]._levels[world.pilot.pilot]

        now = service.clock()
        for _ in range(limits.MAX_WORK_PER_KEY):
            world.context.rate_limit.admit("session", world.pilot.pilot, now)
        assert (await world.ask(fast=True)).status == 429, "others of its requests are in work"
        for _ in range(limits.MAX_WORK_PER_KEY):
            world.context.rate_limit.done("session", world.pilot.pilot)

        world.context.lockouts._until[f"pilot:{world.pilot.pilot}"] = service.clock() + 100.0
        found = await world.ask(fast=True)
        assert found.document["error"]["code"] == "locked_out"
        world.context.lockouts._until.clear()

        service.writer.gone = "it was removed"
        found = await world.ask(fast=True)
        assert (found.status, found.document["error"]["code"]) == (503, "database_gone")
        service.writer.gone = ""
        assert (await world.ask(fast=True)).status == 200

        service.post(Bury(world.pilot.pilot, "gone"))
        found = await world.ask(fast=False)
        assert (found.status, found.document["error"]["code"]) == (409, "re_enrol")

    play(tmp_path, monkeypatch, story)


@pytest.mark.parametrize("who", ["client", "server"])
def test_the_end_of_a_client_or_a_server_while_an_exchange_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    async def story(world: World) -> None:
        world.writer.write(world.request(world.exchange()))
        while not world.service._waiting:
            await asyncio.sleep(0.001)
        assert all(one.idle_since is None for one in world.server._open), "it waits: it is not idle"
        if who == "server":
            world.service.hang_up()
            assert await asyncio.wait_for(world.reader.read(), SOON) == b""
        else:
            world.writer.close()
            await world.submit()  # the reply has nobody to go to
        while world.server._open:
            await asyncio.sleep(0.001)

    play(tmp_path, monkeypatch, story)
