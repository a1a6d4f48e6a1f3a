"""Who may hold a socket: a real HTTP server on loopback, plain and with TLS."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import pytest

from shoal.model.errors import ShoalError
from shoal.model.limits import MAX_CONNECTIONS
from shoal.server.auth.certificate_authority import CertificateAuthority
from shoal.server.http.connections import SPARE_FILES, ConnectionLimits, Connections, address_of, capacity_of, peer_name
from shoal.server.http.messages import Request, Response
from shoal.server.http.protocol import HttpServer
from shoal.server.http.request import read_body

Reply = Callable[[Request], Awaitable[Response]]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
SOON = 60.0  # seconds until a test gives up; nothing here takes so long
BIG = b"x" * (8 * 1024 * 1024)
KNOWN = "Authorization: good\r\n"


class House:
    """A server with a Door, and how to reach it."""

    def __init__(self, connections: Connections, port: int, client: ssl.SSLContext | None) -> None:
        self.connections, self.port, self.client = connections, port, client
        self._sockets: list[socket.socket] = []

    @property
    def seen(self) -> int:
        return self.connections.counts.open + self.connections.counts.refused

    def close(self) -> None:
        for one in self._sockets:
            one.close()

    async def connect(self, source: str = "127.0.0.1") -> Streams:
        name = "shoal-server" if self.client is not None else None
        return await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.client, server_hostname=name, local_addr=(source, 0)
        )

    async def half_open(self, count: int, source: str = "127.0.0.1") -> list[socket.socket]:
        """Sockets that never say anything, not even a word of TLS."""
        before = self.seen
        for number in range(count):
            self._sockets.append(socket.create_connection(("127.0.0.1", self.port), SOON, (source, 0)))
            if number % 50 == 0:
                await asyncio.sleep(0.01)  # the server lives on this very loop
        await until(lambda: self.seen == before + count)
        return self._sockets[-count:]

    async def ask(self, streams: Streams | None = None, head: str = "", source: str = "127.0.0.1") -> bytes:
        """One request, its answer's body."""
        reader, writer = streams or await self.connect(source)
        writer.write(f"GET / HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode())
        status = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SOON)
        length = next(int(line[15:]) for line in status.split(b"\r\n") if line.startswith(b"Content-Length:"))
        body = await asyncio.wait_for(reader.readexactly(length), SOON)
        if streams is None:
            writer.close()
        return body


@contextlib.asynccontextmanager
async def context(
    bounds: ConnectionLimits, authority: CertificateAuthority | None = None, reply: Reply | None = None
) -> AsyncIterator[House]:
    connections = Connections(bounds)

    async def hello(request: Request) -> Response:
        return Response(f"hello {peer_name(request.transport)}".encode())

    async def handle(request: Request) -> Response:
        connections.entered(request.protocol)
        try:
            said = request.headers.get("Authorization")
            if said and not connections.known(request, said, request.headers.get("Pool", "")):
                return Response(b"too many", 429)
            return await (reply or hello)(request)
        except ShoalError as error:
            return Response(error.code.encode())
        finally:
            connections.left(request.protocol)

    http = HttpServer(handle, linger=0.1)
    server = await asyncio.get_running_loop().create_server(
        connections.protocol_factory(http.make_protocol, authority.context() if authority else None),
        "127.0.0.1",
        0,
        backlog=128,
    )
    client = ssl.create_default_context(cadata=authority.ca_pem) if authority else None
    here = House(connections, server.sockets[0].getsockname()[1], client)
    try:
        yield here
    finally:
        here.close()
        server.close()
        await http.close(within=0.1)
        connections.close()
        await until(lambda: len(asyncio.all_tasks()) == 1)  # nothing goes on behind our back
        assert connections.counts.open == connections.counts.unknown == 0


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON):
        while not true():
            await asyncio.sleep(0.01)


async def is_cut(reader: asyncio.StreamReader) -> bool:
    """Was the connection ended by the other side?"""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while await asyncio.wait_for(reader.read(2**20), SOON):
            pass
    return True


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.fixture(params=["plain", "tls"])
def authority(request: pytest.FixtureRequest, tmp_path: Path) -> CertificateAuthority | None:
    return CertificateAuthority.open(tmp_path, [], time.time()) if request.param == "tls" else None


# --- room
def test_honest_client_gets_through_300_half_open_sockets(authority: CertificateAuthority | None) -> None:
    async def story() -> None:
        async with context(ConnectionLimits(), authority) as here:
            await here.half_open(300)
            assert here.connections.counts.unknown == 100
            assert here.connections.counts.refused == 200
            assert await here.ask() == b"hello "
            assert here.connections.counts.open <= 101

    asyncio.run(story())


def test_connection_that_showed_a_token_is_never_pushed_out(authority: CertificateAuthority | None) -> None:
    async def story() -> None:
        async with context(ConnectionLimits(unknown=10, total=40), authority) as here:
            mine = await here.connect()
            await here.ask(mine, KNOWN)
            assert here.connections.counts.unknown == 0
            await here.half_open(100)
            assert await here.ask(mine, KNOWN) == b"hello "
            mine[1].close()

    asyncio.run(story())


def test_half_open_sockets_of_one_address_do_not_push_out_another(authority: CertificateAuthority | None) -> None:
    async def story() -> None:
        async with context(ConnectionLimits(unknown=10), authority) as here:
            mine = await here.connect("127.0.0.3")
            await here.half_open(50, "127.0.0.2")
            assert here.connections.counts.open == 11
            assert await here.ask(mine) == b"hello "
            mine[1].close()

    asyncio.run(story())


def test_full_house_ends_the_oldest_unknown_of_all_to_let_a_newcomer_in() -> None:
    async def story() -> None:
        async with context(ConnectionLimits(unknown=10, total=20)) as here:
            for number in range(2, 6):
                await here.half_open(10, f"127.0.0.{number}")
            assert here.connections.counts.open == 20
            assert await here.ask() == b"hello "

    asyncio.run(story())


def test_house_full_of_known_ones_refuses_the_newcomer() -> None:
    async def story() -> None:
        async with context(ConnectionLimits(total=5)) as here:
            mine = [await here.connect() for _ in range(5)]
            for one in mine:
                await here.ask(one, KNOWN)
            reader, writer = await here.connect()
            assert await is_cut(reader)
            writer.close()
            assert (here.connections.counts.open, here.connections.counts.refused) == (5, 1)
            assert await here.ask(mine[0], KNOWN) == b"hello "
            for one in mine:
                one[1].close()

    asyncio.run(story())


def test_credential_over_its_share_loses_its_oldest_idle_connection() -> None:
    async def story() -> None:
        async with context(ConnectionLimits(per_key=2)) as here:
            mine = [await here.connect() for _ in range(3)]
            for one in mine:
                assert await here.ask(one, KNOWN) == b"hello "
            assert await is_cut(mine[0][0])
            assert await here.ask(mine[1], KNOWN) == await here.ask(mine[2], KNOWN) == b"hello "
            assert await here.ask(head="Authorization: other\r\n") == b"hello "
            for one in mine:
                one[1].close()

    asyncio.run(story())


def test_credential_whose_connections_all_work_is_told_so() -> None:
    async def story() -> None:
        gone = asyncio.Event()

        async def wait(request: Request) -> Response:
            await gone.wait()
            return Response(b"done")

        async with context(ConnectionLimits(per_key=2), reply=wait) as here:
            asked = [asyncio.ensure_future(here.ask(head=KNOWN)) for _ in range(2)]
            await until(lambda: here.connections.counts.open - here.connections.counts.unknown == 2)
            assert await here.ask(head=KNOWN) == b"too many"
            gone.set()
            assert await asyncio.gather(*asked) == [b"done", b"done"]

    asyncio.run(story())


def test_a_pool_of_pilots_grows_only_in_proportion_to_what_is_left() -> None:
    """One owner's pilots filled the house: whoever came next was cut or refused."""

    async def story() -> None:
        async with context(ConnectionLimits(total=20)) as here:
            mine, cut = [], 0
            for number in range(24):
                one = await here.connect()
                mine.append(one)
                with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                    await here.ask(one, f"Authorization: p{number}\r\nPool: hog\r\n")
            cut = sum([await is_cut(one[0]) for one in mine[:7]])
            assert cut == 7  # its oldest idle ones made room for its own newest, not for nobody
            for number in range(2):
                other = await here.connect()
                assert await here.ask(other, f"Authorization: q{number}\r\nPool: other\r\n") == b"hello "
                mine.append(other)
            assert await here.ask(mine[23], "Authorization: p23\r\nPool: hog\r\n") == b"hello "
            for one in mine:
                one[1].close()

    asyncio.run(story())


# --- slow talkers
def test_headers_that_drip_are_cut(authority: CertificateAuthority | None) -> None:
    async def story() -> None:
        async with context(ConnectionLimits(head=0.2, sweep=0.02), authority) as here:
            reader, writer = await here.connect()
            cut = asyncio.ensure_future(is_cut(reader))
            for letter in b"GET / HTTP/1.1\r\nHost: " + b"x" * 1000:
                if cut.done():
                    break
                writer.write(bytes([letter]))
                await asyncio.sleep(0.01)
            assert cut.done()
            assert here.connections.counts.slow == 1
            writer.close()

    asyncio.run(story())


def test_socket_that_says_nothing_is_cut(authority: CertificateAuthority | None) -> None:
    async def story() -> None:
        async with context(ConnectionLimits(head=0.2, handshake=0.2, sweep=0.02), authority) as here:
            await here.half_open(1)
            await until(lambda: here.connections.counts.open == 0)
            assert here.connections.counts.slow == 1

    asyncio.run(story())


def test_rubbish_in_place_of_a_handshake_ends_the_connection(tmp_path: Path) -> None:
    async def story() -> None:
        async with context(ConnectionLimits(), CertificateAuthority.open(tmp_path, [], time.time())) as here:
            (one,) = await here.half_open(1)
            one.sendall(b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda: here.connections.counts.open == 0)
            assert await here.ask() == b"hello "

    asyncio.run(story())


def test_client_that_leaves_within_the_handshake_is_forgotten(tmp_path: Path) -> None:
    async def story() -> None:
        async with context(ConnectionLimits(), CertificateAuthority.open(tmp_path, [], time.time())) as here:
            for one in await here.half_open(20):
                one.close()
            await until(lambda: here.connections.counts.open == 0)
            assert here.connections.counts.slow == here.connections.counts.refused == 0

    asyncio.run(story())


def test_request_in_work_and_idle_connection_are_left_alone_but_its_next_slow_header_is_not(
    authority: CertificateAuthority | None,
) -> None:
    async def wait(request: Request) -> Response:
        await asyncio.sleep(0.3)
        return Response(b"late")

    async def story() -> None:
        async with context(ConnectionLimits(head=0.15, sweep=0.02), authority, wait) as here:
            mine = await here.connect()
            assert await here.ask(mine) == b"late"
            await asyncio.sleep(0.3)
            assert await here.ask(mine) == b"late"
            mine[1].write(b"GET / HTTP/1.1\r\n")
            assert await is_cut(mine[0])
            assert here.connections.counts.slow == 1
            mine[1].close()

    asyncio.run(story())


def test_slowness_of_the_server_itself_is_nobodys_fault() -> None:
    async def story() -> None:
        async with context(ConnectionLimits(head=0.2, sweep=0.02)) as here:
            mine = await here.connect()
            await asyncio.sleep(0.05)
            mine[1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            time.sleep(0.3)  # a stuck event loop
            assert b"200 OK" in await asyncio.wait_for(mine[0].readuntil(b"\r\n\r\n"), SOON)
            mine[1].close()

    asyncio.run(story())


# --- slow readers
async def connect_small(here: House) -> Streams:
    """A client that the kernel takes little for."""
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    small.setblocking(False)
    await asyncio.get_running_loop().sock_connect(small, ("127.0.0.1", here.port))
    name = "shoal-server" if here.client is not None else None
    return await asyncio.open_connection(sock=small, ssl=here.client, server_hostname=name, limit=16 * 1024)


async def big(request: Request) -> Response:
    return Response(body=BIG)


def test_reader_who_takes_nothing_is_cut_and_memory_stays_bounded(authority: CertificateAuthority | None) -> None:
    async def story() -> None:
        async with context(ConnectionLimits(stall=0.5, sweep=0.02), authority, big) as here:
            before = resident()
            reader, writer = await connect_small(here)
            for _ in range(30):
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            most = 0
            async with asyncio.timeout(SOON):
                while (
                    here.connections.counts.open or not here.connections.counts.slow
                ):  # memory may have been there before
                    await asyncio.sleep(0.01)
                    most = max(most, resident() - before)
            assert here.connections.counts.slow == 1
            assert most < 8 * len(BIG)  # thirty answers are 240 MiB
            assert await is_cut(reader)
            writer.close()

    asyncio.run(story())


def test_one_answer_that_is_not_taken_is_seen_although_no_further_is_asked(
    authority: CertificateAuthority | None,
) -> None:
    async def story() -> None:
        async with context(ConnectionLimits(stall=0.2, sweep=0.02), authority, big) as here:
            reader, writer = await connect_small(here)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            await until(lambda: here.connections.counts.slow == 1 and here.connections.counts.open == 0)
            assert await is_cut(reader)
            writer.close()

    asyncio.run(story())


def test_slow_but_steady_reader_gets_all(authority: CertificateAuthority | None) -> None:
    async def story() -> bool:
        """False if this machine kept the reader from reading, so that it was not steady."""
        async with context(ConnectionLimits(stall=1.0, sweep=0.02), authority, big) as here:
            reader, writer = await connect_small(here)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            taken, times = 0, [time.monotonic()]
            with contextlib.suppress(OSError):
                while part := await asyncio.wait_for(reader.read(64 * 1024), SOON):
                    taken += len(part)
                    await asyncio.sleep(0.01)
                    times.append(time.monotonic())
            writer.close()
            if max(later - sooner for sooner, later in pairwise(times)) > 0.3:
                return False
            assert times[-1] - times[0] > 1.0  # longer than a standstill may be
            assert taken > len(BIG)
            assert here.connections.counts.slow == 0
            return True

    assert any(asyncio.run(story()) for _ in range(20)), "this machine is too busy"


def test_client_that_never_says_goodbye_is_cut(tmp_path: Path) -> None:
    async def story() -> None:
        async with context(
            ConnectionLimits(stall=0.2, sweep=0.02), CertificateAuthority.open(tmp_path, [], time.time())
        ) as here:
            reader, writer = await here.connect()
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert await asyncio.wait_for(reader.readuntil(b"hello "), SOON)
            assert isinstance(writer.transport, asyncio.Transport)
            writer.transport.pause_reading()
            await until(lambda: here.connections.counts.open == 0)
            writer.transport.abort()

    asyncio.run(story())


# --- bodies
async def post(here: House, head: str, parts: list[bytes], pause: float = 0.0) -> tuple[bytes, int]:
    """What the server answers, and how many bytes it took before."""
    reader, writer = await here.connect()
    writer.write(f"POST / HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n".encode())
    sent = 0
    answer = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n"))
    for part in parts:
        if answer.done():
            break
        writer.write(part)
        sent += len(part)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        await asyncio.sleep(pause)
    await asyncio.wait_for(answer, SOON)
    code = await asyncio.wait_for(reader.read(100), SOON)
    writer.transport.abort()
    return code, sent


@pytest.mark.parametrize(
    ("head", "parts", "said"),
    [
        ("Content-Length: 5", [b"he", b"llo"], b"5"),
        ("Content-Length: 0", [], b"0"),
        ("Transfer-Encoding: chunked", [b"3\r\nabc\r\n", b"0\r\n\r\n"], b"3"),
        ("Content-Length: 1000", [b"x" * 1000], b"1000"),
        ("Content-Length: 1001", [], b"too_large"),
        ("Content-Length: 1073741824", [], b"too_large"),
        ("Transfer-Encoding: chunked", [b"40000000\r\n", *[b"x" * 500] * 9], b"too_large"),
        ("Transfer-Encoding: chunked", [b"1\r\nx\r\n"] * 100_000, b"too_large"),
        ("Content-Length: 5", [b"he"], b"too_slow"),
        ("Transfer-Encoding: chunked", [b"1\r\nx\r\n"], b"too_slow"),
    ],
)
def test_body_is_read_up_to_its_bound_and_in_time(head: str, parts: list[bytes], said: bytes) -> None:
    async def measure(request: Request) -> Response:
        return Response(str(len(await read_body(request, 1000, 0.2))).encode())

    async def story() -> None:
        async with context(ConnectionLimits(), reply=measure) as here:
            assert (await post(here, head, parts))[0] == said

    asyncio.run(story())


def test_endless_chunks_are_not_read_on() -> None:
    taken = 0

    async def measure(request: Request) -> Response:
        nonlocal taken
        try:
            await read_body(request, 1024 * 1024, SOON)
        finally:
            taken = request.content.received
        raise AssertionError("read to the end")

    async def story() -> None:
        async with context(ConnectionLimits(), reply=measure) as here:
            code, _ = await post(here, "Transfer-Encoding: chunked", [b"10000\r\n" + b"x" * 65536 + b"\r\n"] * 1000)
            assert code == b"too_large"
            assert taken < 2 * 1024 * 1024

    asyncio.run(story())


def test_client_that_leaves_within_its_body_is_no_defect() -> None:
    codes: list[str] = []

    async def measure(request: Request) -> Response:
        try:
            await read_body(request, 1000, SOON)
        except ShoalError as error:
            codes.append(error.code)
        return Response()

    async def story() -> None:
        async with context(ConnectionLimits(), reply=measure) as here:
            _, writer = await here.connect()
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhe")
            await writer.drain()
            await until(lambda: here.connections.counts.open == 1)
            await asyncio.sleep(0.05)
            writer.close()
            await until(lambda: codes == ["bad_body"])

    asyncio.run(story())


# --- the rest
def test_application_sees_the_name_in_a_pilots_certificate(tmp_path: Path) -> None:
    async def story() -> None:
        authority = CertificateAuthority.open(tmp_path, [], time.time())
        async with context(ConnectionLimits(), authority) as here:
            cert, key = authority.pilot_certificate("p3f9c", 3600.0, time.time())
            (tmp_path / "pilot.pem").write_text(key + cert)
            assert here.client is not None
            here.client.load_cert_chain(tmp_path / "pilot.pem")
            assert await here.ask() == b"hello p3f9c"

    asyncio.run(story())


def test_many_requests_over_one_secured_connection(tmp_path: Path) -> None:
    async def story() -> None:
        async with context(ConnectionLimits(), CertificateAuthority.open(tmp_path, [], time.time())) as here:
            mine = await here.connect()
            for _ in range(200):
                assert await here.ask(mine, KNOWN) == b"hello "
            assert here.connections.counts.open == 1
            mine[1].close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("peer", "said"),
    [
        (("10.1.2.3", 5), "10.1.2.3"),
        (("::ffff:10.1.2.3", 5, 0, 0), "10.1.2.3"),
        (("2001:db8:1:2:aaaa::1", 5, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::/64"),
        ("", "local"),
        (None, "local"),
    ],
)
def test_address_counts_for_its_owner(peer: object, said: str) -> None:
    assert address_of(asyncio.BaseTransport({"peername": peer})) == said


def test_connections_leave_files_to_the_rest_of_the_server() -> None:
    assert capacity_of(1024) == 1024 - SPARE_FILES
    assert capacity_of(64) == 32
    assert capacity_of(10**9) == capacity_of(resource.RLIM_INFINITY) == MAX_CONNECTIONS
