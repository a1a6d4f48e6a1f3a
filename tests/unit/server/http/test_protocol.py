"""The HTTP server on loopback: order, framing, bodies, files, and what is not HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from shoal.server.auth.certificate_authority import CertificateAuthority
from shoal.server.http.messages import BodyBroken, FileResponse, Request, Response
from shoal.server.http.protocol import MAX_HEAD, MAX_LINE, MAX_QUEUED, HttpServer

SOON = 60.0
Handle = Callable[[Request], Awaitable[Response]]
CONTENT = bytes(range(256)) * 4_000


class Peer:
    """A client that sends bytes as they are given."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *texts: str, head: str = "Host: x") -> None:
        for text in texts:
            self.writer.write(f"{text} HTTP/1.1\r\n{head}\r\n\r\n".encode())

    async def answer(self, has_body: bool = True) -> tuple[int, dict[str, str], bytes]:
        """Status, headers in lower case, body."""
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), SOON)).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        length = int(headers.get("content-length", 0)) if has_body else 0
        return int(first.split()[1]), headers, await asyncio.wait_for(self.reader.readexactly(length), SOON)

    async def is_closed(self) -> bool:
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(self.reader.read(1), SOON) == b""
        return True


@contextlib.asynccontextmanager
async def serving(
    handle: Handle, authority: CertificateAuthority | None = None, **options: float
) -> AsyncIterator[Callable[[], Awaitable[Peer]]]:
    http = HttpServer(handle, **options)
    listener = await asyncio.get_running_loop().create_server(
        http.make_protocol, "127.0.0.1", 0, ssl=authority.context() if authority else None
    )
    port = listener.sockets[0].getsockname()[1]
    client = ssl.create_default_context(cadata=authority.ca_pem) if authority else None
    made: list[Peer] = []

    async def connect() -> Peer:
        name = "shoal-server" if client else None
        made.append(Peer(*await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=name)))
        return made[-1]

    try:
        yield connect
    finally:
        listener.close()
        await http.close(within=1.0)
        for peer in made:
            peer.writer.close()
        while http._open:
            await asyncio.sleep(0.01)


async def echo(request: Request) -> Response:
    """What was asked for, and the body."""
    body = b"".join([part async for part in request.content.iter_any()])
    return Response(f"{request.method} {request.raw_path} ".encode() + body)


def play(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), SOON))


def test_requests_of_a_connection_are_answered_in_order_however_they_arrive() -> None:
    async def story() -> None:
        async def slow_first(request: Request) -> Response:
            if request.raw_path == "/0":
                await asyncio.sleep(0.05)
            return await echo(request)

        async with serving(slow_first) as connect:
            peer = await connect()
            many = MAX_QUEUED * 5
            peer.send(*(f"GET /{number}" for number in range(many)))  # all at once: reading pauses in between
            for number in range(many):
                assert (await peer.answer())[2] == f"GET /{number} ".encode()
            for byte in b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc":
                peer.writer.write(bytes([byte]))
                await asyncio.sleep(0)
            assert (await peer.answer())[2] == b"POST /slow abc"

    play(story)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("Content-Length: 5", b"hello"),
        ("Transfer-Encoding: chunked", b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"),
        ("Transfer-Encoding: Chunked", b"5;name=value\r\nhello\r\n0\r\nTrailer: x\r\n\r\n"),
    ],
)
def test_a_body_is_whole_whatever_its_framing_and_the_connection_goes_on(head: str, body: bytes) -> None:
    async def story() -> None:
        async with serving(echo) as connect:
            peer = await connect()
            for _ in range(2):
                peer.send("POST /x", head=f"Host: x\r\n{head}")
                peer.writer.write(body)
                assert (await peer.answer())[2] == b"POST /x hello"

    play(story)


def test_a_client_that_expects_a_word_gets_it_when_the_body_is_wanted() -> None:
    async def story() -> None:
        async def picky(request: Request) -> Response:
            return await echo(request) if request.raw_path == "/yes" else Response(b"no", 413)

        async with serving(picky, linger=0.1) as connect:
            peer = await connect()
            peer.send("PUT /yes", head="Host: x\r\nContent-Length: 2\r\nExpect: 100-continue")
            assert (await peer.answer())[0] == 100
            peer.writer.write(b"ab")
            assert (await peer.answer())[2] == b"PUT /yes ab"
            peer.send("PUT /no", head="Host: x\r\nContent-Length: 2\r\nExpect: 100-continue")
            assert (await peer.answer())[0] == 413  # and no word before it
            assert await peer.is_closed()  # the body never came, so what follows could not be told from it
            other = await connect()
            other.send("GET /", head="Host: x\r\nExpect: magic")
            assert (await other.answer())[0] == 417 and await other.is_closed()

    play(story)


def test_a_body_that_nobody_reads_is_skipped_if_it_comes_and_else_the_connection_ends() -> None:
    async def story() -> None:
        async def deaf(request: Request) -> Response:
            return Response(b"", 404)

        async with serving(deaf, linger=0.2) as connect:
            peer = await connect()
            for _ in range(2):
                peer.send("POST /", head=f"Host: x\r\nContent-Length: {len(CONTENT)}")
                peer.writer.write(CONTENT)
                assert (await peer.answer())[0] == 404
            peer.send("POST /", head="Host: x\r\nContent-Length: 10")
            assert (await peer.answer())[0] == 404 and await peer.is_closed()

    play(story)


def test_a_refusal_in_the_middle_of_a_large_body_reaches_its_sender() -> None:
    async def story() -> None:
        async def refuse(request: Request) -> Response:
            await request.content.readany()
            response = Response(b"too large", 413)
            response.force_close()
            return response

        async with serving(refuse, linger=0.5) as connect:
            peer = await connect()
            peer.send("POST /", head="Host: x\r\nContent-Length: 100000000")
            for _ in range(20):
                peer.writer.write(CONTENT)
            status, headers, _ = await peer.answer()
            assert status == 413 and headers["connection"] == "close"

    play(story)


def test_a_body_whose_sender_leaves_is_told_to_be_broken() -> None:
    seen: list[str] = []

    async def story() -> None:
        over = asyncio.Event()

        async def read(request: Request) -> Response:
            try:
                return await echo(request)
            except BodyBroken as error:
                seen.append(str(error))
                return Response()
            finally:
                over.set()

        async with serving(read) as connect:
            for how in ("eof", "abort", "garbage"):
                over.clear()
                peer = await connect()
                chunked = how == "garbage"
                peer.send(
                    "POST /", head="Host: x\r\n" + ("Transfer-Encoding: chunked" if chunked else "Content-Length: 9")
                )
                peer.writer.write(b"zz\r\n" if chunked else b"half")
                await peer.writer.drain()
                if how == "eof":
                    peer.writer.write_eof()
                elif how == "abort":
                    await asyncio.sleep(0.05)
                    peer.writer.transport.abort()
                await over.wait()

    play(story)
    assert len(seen) == 3


def test_heads_old_clients_and_last_responses() -> None:
    async def story() -> None:
        async with serving(echo) as connect:
            peer = await connect()
            peer.send("HEAD /x")
            status, headers, _ = await peer.answer(has_body=False)
            assert status == 200 and headers["content-length"] == "8" and headers["server"] == "shoal"
            peer.send("GET /y")
            assert (await peer.answer())[2] == b"GET /y "
            peer.send("GET /z", head="Host: x\r\nConnection: close")
            assert (await peer.answer())[1]["connection"] == "close" and await peer.is_closed()
            for head, is_kept in (("Host: x", False), ("Host: x\r\nConnection: keep-alive", True)):
                old = await connect()
                old.writer.write(f"GET / HTTP/1.0\r\n{head}\r\n\r\n".encode())
                assert (await old.answer())[1]["connection"] == ("keep-alive" if is_kept else "close")
                assert is_kept or await old.is_closed()
            strange = await connect()
            strange.send("GET /u", head="Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket")
            assert (await strange.answer())[2] == b"GET /u " and await strange.is_closed()

    play(story)


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(
    ("wanted", "status", "first", "end"),
    [
        ("", 200, 0, len(CONTENT)),
        ("bytes=0-", 206, 0, len(CONTENT)),
        ("bytes=5-9", 206, 5, 10),
        ("bytes=700000-99999999", 206, 700_000, len(CONTENT)),
        ("bytes=-7", 206, len(CONTENT) - 7, len(CONTENT)),
    ],
)
def test_a_file_and_its_ranges(tmp_path: Path, is_tls: bool, wanted: str, status: int, first: int, end: int) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    authority = CertificateAuthority.open(tmp_path, [], time.time()) if is_tls else None

    async def give(request: Request) -> Response:
        return FileResponse(tmp_path / "file", SOON, "application/octet-stream")

    async def story() -> None:
        async with serving(give, authority) as connect:
            peer = await connect()
            for _ in range(2):
                peer.send("GET /", head=f"Host: x\r\nRange: {wanted}" if wanted else "Host: x")
                got, headers, body = await peer.answer()
                assert (got, body) == (status, CONTENT[first:end])
                assert status == 200 or headers["content-range"] == f"bytes {first}-{end - 1}/{len(CONTENT)}"

    play(story)


@pytest.mark.parametrize("wanted", ["bytes=9-5", "bytes=-", "bytes=a-b", "lines=1-2", "bytes=1024000-", "bytes=-0"])
def test_a_range_that_is_none_is_told(wanted: str) -> None:
    async def give(request: Request) -> Response:
        try:
            request.range(len(CONTENT))
        except ValueError:
            return Response(b"no such range", 416)
        return Response()

    async def story() -> None:
        async with serving(give) as connect:
            peer = await connect()
            peer.send("GET /", head=f"Host: x\r\nRange: {wanted}")
            assert (await peer.answer())[0] == 416

    play(story)


NOT_HTTP = {
    "a URL too long": b"GET /" + b"a" * MAX_LINE + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "a header too long": b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * MAX_LINE + b"\r\n\r\n",
    "too many headers": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * MAX_HEAD + b"\r\n",
    "headers without an end": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: yyyyyyyyyyyyyyyyyyyy\r\n" * 3_000,
    "no header name": b"GET / HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
    "length and chunks": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "chunks twice": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "not UTF-8": b"GET / HTTP/1.1\r\nHost: x\r\nX: \xff\xfe\r\n\r\n",
    "version 2.0": b"GET / HTTP/2.0\r\nHost: x\r\n\r\n",
    "version 0.9": b"GET /\r\n\r\n",
    "a space before the colon": b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
    "a bare line feed in a header": b"GET / HTTP/1.1\r\nHost: x\r\nX: a\n b\r\n\r\n",
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00",
}


@pytest.mark.parametrize("name", list(NOT_HTTP))
def test_what_is_not_http_is_answered_once_in_our_form_and_nothing_after_it_counts(name: str) -> None:
    handled: list[str] = []

    async def note(request: Request) -> Response:
        handled.append(request.raw_path)
        return Response()

    async def story() -> None:
        async with serving(note, linger=0.1) as connect:
            peer = await connect()
            peer.send("GET /before")
            peer.writer.write(NOT_HTTP[name] + b"GET /after HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await peer.answer())[0] == 200
            status, headers, body = await peer.answer()
            error = json.loads(body)["error"]
            assert (status, error["code"]) == (400, "http") and error["message"].startswith("not HTTP: ")
            assert headers["connection"] == "close" and len(body) < 200
            assert await peer.is_closed()

    play(story)
    assert handled == ["/before"]


def test_a_handler_that_fails_costs_its_own_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(request: Request) -> Response:
        if request.raw_path == "/bad":
            raise RuntimeError("secret")
        return Response()

    async def story() -> None:
        async with serving(fail) as connect:
            peer, other = await connect(), await connect()
            peer.send("GET /bad")
            status, _, body = await peer.answer()
            assert status == 500 and b"secret" not in body and await peer.is_closed()
            other.send("GET /good")
            assert (await other.answer())[0] == 200

    play(story)
    assert "secret" in caplog.text


def test_a_line_break_in_a_header_of_ours_is_never_sent() -> None:
    async def split(request: Request) -> Response:
        return Response(headers={"X": "a\r\nSet-Cookie: b"})

    async def story() -> None:
        async with serving(split) as connect:
            peer = await connect()
            peer.send("GET /")
            assert await peer.is_closed()

    with pytest.raises(ValueError, match="line break"):
        from shoal.server.http.protocol import _head

        _head(Response(headers={"X": "a\r\nb"}), None, False, 0)
    play(story)


def test_idle_connections_end_after_a_while_and_busy_ones_with_their_response() -> None:
    async def story() -> None:
        begun = asyncio.Event()

        async def wait(request: Request) -> Response:
            begun.set()
            await asyncio.sleep(0.1)
            return Response(b"late")

        http = HttpServer(wait)
        listener = await asyncio.get_running_loop().create_server(http.make_protocol, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        idle, busy = [Peer(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(2)]
        idle.send("GET /")
        await idle.answer()
        begun.clear()
        busy.send("GET /")
        await begun.wait()
        listener.close()
        closing = asyncio.ensure_future(http.close(within=SOON))
        assert await idle.is_closed()
        assert (await busy.answer())[2] == b"late" and await busy.is_closed()
        await closing

        async def never(request: Request) -> Response:
            await asyncio.Event().wait()
            return Response()

        http = HttpServer(never)
        listener = await asyncio.get_running_loop().create_server(http.make_protocol, "127.0.0.1", 0)
        stuck = Peer(*await asyncio.open_connection("127.0.0.1", listener.sockets[0].getsockname()[1]))
        stuck.send("GET /")
        await asyncio.sleep(0.05)
        listener.close()
        await http.close(within=0.1)
        assert await stuck.is_closed()
        for peer in (idle, busy, stuck):
            peer.writer.close()

    play(story)
