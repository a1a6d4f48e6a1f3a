"""The HTTP/1.1 server: one protocol for each connection, on the parser of Node.js (llhttp, by httptools) [ADR 0032].

Requests of a connection are answered one after another, in order. A body is read as far as the application reads it. What
is not HTTP is answered in our own form, without repeating any of it [input E0], and nothing more is read after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, BinaryIO, NoReturn, Protocol

import httptools

from shoal.model.limits import MAX_NAME
from shoal.server.http.messages import Body, BodyBroken, FileResponse, Headers, Request, Response
from shoal.server.http.request import plain_error

log = logging.getLogger(__name__)
Handle = Callable[[Request], Awaitable[Response]]
MAX_LINE = 8_190  # bytes of a URL, and of one header
MAX_HEAD = 32 * 1024  # bytes of all headers of a request
MAX_QUEUED = 16  # requests of a connection that wait for the one before; then the socket is not read
FILE_PIECE = 256 * 1024
SWEEP = 5.0  # seconds between looks for connections that are idle too long
_ONCE = {name.lower(): name for name in ("Host", "Content-Length", "Transfer-Encoding")}  # headers that have one value
_LENGTH, END_OF_HEAD = b"\r\nContent-Length: ", b"\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
# No version of anything: an outsider learns nothing [security S0].
_ALWAYS = "Server: shoal\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n"


def refused(status: int, message: str) -> Response:
    """The answer to what is not HTTP, after which nothing more is read."""
    response = plain_error("http", message, status)
    response.force_close()
    return response


class FastPath(Protocol):
    """Answers requests that are like one which the application has let in."""

    def body_of(self, data: bytes) -> bytes | None: ...
    def begin(self, body: bytes) -> Response | asyncio.Future[Any]: ...
    def end(self, reply: asyncio.Future[Any]) -> Response: ...


class HttpServer:
    """The connections of a server, and what handles their requests."""

    def __init__(self, handle: Handle, keep_alive: float = 75.0, linger: float = 1.0) -> None:
        self.handle, self.linger = handle, linger
        self._keep_alive = keep_alive  # seconds that a connection may be idle between two requests
        self._open: set[HttpProtocol] = set()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(SWEEP, self._sweep)

    def make_protocol(self) -> HttpProtocol:
        """The protocol of a new connection."""
        return HttpProtocol(self, self._loop)

    async def close(self, within: float) -> None:
        """End idle connections at once, the others when they are answered or so many seconds are over."""
        self._timer.cancel()
        tasks = [task for one in list(self._open) if (task := one.stop()) is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=within)
        for one in list(self._open):
            one.abort()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _sweep(self) -> None:
        self._timer = self._loop.call_later(SWEEP, self._sweep)
        before = self._loop.time() - self._keep_alive
        for one in [one for one in self._open if one.idle_since is not None and one.idle_since < before]:
            one.stop()


class HttpProtocol(asyncio.Protocol):
    """One connection. All methods but `_work` and what it calls are called by the event loop."""

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server, self._loop = server, loop
        self.transport: asyncio.Transport | None = None
        self.proven: Any = None  # what the application keeps of the sender of the requests on it
        self.fast_path: FastPath | None = None  # for requests like one that the application has let in
        self._on_fast_path: asyncio.Future[Any] | None = None  # what one of these waits for
        self._chunk = b""  # that began with the head of a request, while nothing else was under way
        self.idle_since: float | None = None  # since when it waits for a second request; None: it does not
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[Request | Response] = deque()  # what is to be answered, and refusals of the parser
        self._task: asyncio.Task[None] | None = None  # answers what is in the queue
        self._url, self._pairs = b"", list[tuple[str, str]]()  # of the request that arrives
        self._head = self._parsed = (
            0  # bytes that came before its headers were whole, and bytes of those that were read
        )
        self._is_in_head = True
        self._trouble = ""  # why the parser was stopped by us
        self._body: Body | None = None  # that arrives
        self._is_expected = False  # the client sends that body when it was told to
        self._is_deaf = False  # nothing more is parsed
        self._is_stopping = False  # closed after the response
        self._is_paused = False  # reading
        self._drained: asyncio.Future[None] | None = None  # while too much waits to be written
        self._left: asyncio.Future[None] | None = None  # while we wait for the client to close the connection

    # --- the connection
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._server._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport, self._is_deaf = None, True
        self._server._open.discard(self)
        if self._body is not None and not self._body.is_over:
            self._body.end(BodyBroken("the connection was lost"))
        self._wake_writer()
        self._note_left()

    def stop(self) -> asyncio.Future[Any] | None:
        """Close it, now or after the response; returns what that waits for."""
        self._is_stopping = True
        if not self._is_answering and self.transport is not None:
            self.transport.close()
        return self._task or self._on_fast_path

    @property
    def _is_answering(self) -> bool:
        return self._task is not None or self._on_fast_path is not None

    def abort(self) -> None:
        """End it now."""
        if self.transport is not None:
            self.transport.abort()

    def pause_writing(self) -> None:
        self._drained = self._drained or self._loop.create_future()

    def resume_writing(self) -> None:
        self._wake_writer()

    def _wake_writer(self) -> None:
        waiter, self._drained = self._drained, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # --- what arrives
    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        self.idle_since = None
        self._chunk = b""
        if self._is_in_head and not self._head and not self._is_answering:
            if self.fast_path is not None and self._drained is None:
                body = self.fast_path.body_of(data)
                if body is not None:
                    self._take_fast_path(self.fast_path, body)
                    return
            self._chunk = data
        self._head += len(data) if self._is_in_head else 0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._is_deaf = True  # the request is answered as any other; what follows it is of another protocol
        except httptools.HttpParserError as error:
            self._refuse(self._trouble or str(error) or "it cannot be read")
            return
        if self._is_in_head and self._head > MAX_HEAD:
            self._refuse("its headers are too long")
        elif len(self._queue) > MAX_QUEUED:
            self._read(False)

    def eof_received(self) -> bool:
        """The client sends no more; it may still wait for responses."""
        if self._body is not None and not self._body.is_over:
            self._body.end(BodyBroken("the connection ended"))
        self._is_deaf = self._is_stopping = True
        self._note_left()
        return self._is_answering

    def _note_left(self) -> None:
        if self._left is not None and not self._left.done():
            self._left.set_result(None)

    def _refuse(self, why: str) -> None:
        self._is_deaf = True
        body = self._body
        if body is not None and not body.is_over:
            self._is_stopping = True
            body.end(BodyBroken(why))  # its request is answered by whoever reads the body
            return
        self._put(refused(400, f"not HTTP: {why}"))

    def _read(self, is_on: bool) -> None:
        if is_on == self._is_paused and self.transport is not None and not self.transport.is_closing():
            self._is_paused = not is_on
            (self.transport.resume_reading if is_on else self.transport.pause_reading)()

    # --- called by the parser
    def on_message_begin(self) -> None:
        self._url, self._pairs, self._parsed, self._is_in_head = b"", [], 0, True

    def on_url(self, url: bytes) -> None:
        self._url += url
        if len(self._url) > MAX_LINE:
            self._stop_parser("its URL is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) + len(value) > MAX_LINE:
            self._stop_parser("too long a header")
        self._parsed += len(name) + len(value) + 4
        if self._parsed > MAX_HEAD:
            self._stop_parser("its headers are too long")
        try:
            self._pairs.append((name.decode("ascii").lower(), value.decode("utf-8").strip()))
        except UnicodeDecodeError:
            self._stop_parser("a header that is not UTF-8")

    def on_headers_complete(self) -> None:
        parser, headers = self._parser, Headers(self._pairs)
        self._is_in_head, self._head = False, 0
        version = parser.get_http_version()
        if version not in ("1.1", "1.0"):
            self._stop_parser("its version is not 1.1")
        for name in headers.repeated():
            if name in _ONCE:
                self._stop_parser(f"more than one {_ONCE[name]}")
        if "Content-Length" in headers and "Transfer-Encoding" in headers:
            self._stop_parser("two ways to tell the length of its body")
        if len(headers.get("Content-Type")) > MAX_NAME:
            self._stop_parser("too long a Content-Type")
        expected = headers.get("Expect").lower()
        self._is_expected = expected == "100-continue" and version == "1.1"
        self._body = Body(self._read, self._encourage)
        try:
            method, target = parser.get_method().decode("ascii"), self._url.decode("utf-8")
        except UnicodeDecodeError:
            self._stop_parser("a URL that is not UTF-8")
        keep = parser.should_keep_alive() and not parser.should_upgrade()
        request = Request(method, target, version, headers, self._body, self, keep)
        if expected not in ("", "100-continue"):
            self._is_deaf = True
            self._put(refused(417, "nothing but Expect: 100-continue is understood"))
        else:
            self._put(request)

    def on_body(self, data: bytes) -> None:
        self._is_expected = False
        if self._body is not None:
            self._body.feed(data)

    def on_message_complete(self) -> None:
        if self._body is not None:
            self._body.end()
        self._is_in_head, self._head = True, 0

    def _stop_parser(self, why: str) -> NoReturn:
        self._trouble = why
        raise httptools.HttpParserError(why)

    def _encourage(self) -> None:
        """The application wants a body that its client may not send before it is told to."""
        if self._is_expected and self.transport is not None:
            self._is_expected = False
            self.transport.write(CONTINUE)

    # --- what is answered
    def _put(self, item: Request | Response) -> None:
        self._queue.append(item)
        if not self._is_answering:
            self._task = self._loop.create_task(self._work())

    # --- the fast path
    def beginning_of(self, request: Request) -> bytes | None:
        """The bytes with which further requests begin that differ from this one in their body only: up to its length. None if
        that does not come last, or if there is more to this request than its headers."""
        data, headers = self._chunk, request.headers
        if request.version != "1.1" or not request.keep_alive or "Expect" in headers or "Transfer-Encoding" in headers:
            return None
        end = data.find(END_OF_HEAD)
        start = data.rfind(_LENGTH, 0, max(0, end)) + len(_LENGTH)
        length = data[start:end] if start >= len(_LENGTH) else b""
        is_whole = length.isdigit() and int(length) == len(data) - end - len(END_OF_HEAD)
        return data[:start] if is_whole else None

    def _take_fast_path(self, path: FastPath, body: bytes) -> None:
        found = path.begin(body)
        if isinstance(found, Response):
            self._send_fast(found)
        else:
            self._on_fast_path = found
            found.add_done_callback(self._end_fast_path)

    def _end_fast_path(self, reply: asyncio.Future[Any]) -> None:
        self._on_fast_path = None
        if reply.cancelled():
            self.abort()  # the server hangs up
        elif self.fast_path is not None:
            self._send_fast(self.fast_path.end(reply))

    def _send_fast(self, response: Response) -> None:
        if self.transport is None:
            return  # the client has left
        is_last = response.is_last or self._is_stopping
        self.transport.write(_head(response, None, is_last, len(response.body)) + response.body)
        if is_last:
            self._is_deaf = True
            self.transport.close()
        elif self._queue:
            self._task = self._loop.create_task(self._work())
        else:
            self.idle_since = self._loop.time()

    async def _work(self) -> None:
        """Answer what is in the queue, in order."""
        try:
            while self._queue and self.transport is not None:
                item = self._queue.popleft()
                if len(self._queue) <= MAX_QUEUED // 2:
                    self._read(True)
                request = item if isinstance(item, Request) else None
                response = await self._answer(item) if isinstance(item, Request) else item
                is_last = response.is_last or self._is_stopping or (request is not None and not request.keep_alive)
                await self._send(request, response, is_last)
                if request is not None and not is_last and not request.content.is_over:
                    is_last = not await self._skip_rest(request.content)
                if is_last:
                    await self._finish(request is None or not request.content.is_over)
                    return
            self.idle_since = self._loop.time()
        except ConnectionError:
            self.abort()  # the client has left
        except Exception:
            log.exception("a response could not be sent")
            self.abort()
        finally:
            self._task = None

    async def _answer(self, request: Request) -> Response:
        try:
            return await self._server.handle(request)
        except Exception:
            log.exception("the handler of a request failed")
            return refused(500, "a defect in the server")

    async def _send(self, request: Request | None, response: Response, is_last: bool) -> None:
        if isinstance(response, FileResponse) and request is not None:
            await self._send_file(request, response, is_last)
            return
        body = response.body
        head = _head(response, request, is_last, len(body))
        await self._write(head + body if request is None or request.method != "HEAD" else head)

    async def _write(self, data: bytes) -> None:
        if self.transport is None:
            raise ConnectionResetError("the connection was lost")
        self.transport.write(data)
        if self._drained is not None:
            await self._drained

    async def _send_file(self, request: Request, response: FileResponse, is_last: bool) -> None:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(await asyncio.to_thread(response.path.open, "rb"))
            size = os.fstat(file.fileno()).st_size
            wanted = request.range(size)
            first, end = wanted or (0, size)
            if wanted is not None:
                response.status = 206
                response.headers["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
            try:
                async with asyncio.timeout(response.within):
                    await self._write(_head(response, request, is_last, end - first))
                    if request.method != "HEAD" and end > first:
                        await self._send_bytes(file, first, end - first)
            except TimeoutError:  # who reads too slowly is cut off, and may come back for the rest
                raise ConnectionAbortedError("read too slowly") from None

    async def _send_bytes(self, file: BinaryIO, first: int, count: int) -> None:
        if self.transport is None:
            raise ConnectionResetError("the connection was lost")
        if self.transport.get_extra_info("sslcontext") is None:
            await self._loop.sendfile(self.transport, file, first, count)
            return
        file.seek(first)
        while count:  # over TLS `sendfile` reads 16 KiB at a time
            data = await asyncio.to_thread(file.read, min(FILE_PIECE, count))
            if not data:
                raise ConnectionAbortedError("the file became shorter")
            await self._write(data)
            count -= len(data)

    async def _skip_rest(self, body: Body) -> bool:
        """Skip what the application did not read of a body; False: too much of it is still to come."""
        body.discard()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._server.linger):
                await body.wait()
        return body.is_over and not self._is_stopping

    async def _finish(self, is_unread: bool) -> None:
        """Close the connection. If it has data that nobody read, closing it would destroy the response on its way."""
        transport = self.transport
        self._is_deaf = True
        if transport is None:
            return
        if is_unread:
            self._read(True)
            if transport.can_write_eof():
                transport.write_eof()
            self._left = self._loop.create_future()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._server.linger):
                    await self._left
        transport.close()


def _head(response: Response, request: Request | None, is_last: bool, length: int) -> bytes:
    """The status line and headers of a response."""
    lines = _LINES.get(response.status) or f"HTTP/1.1 {response.status} -\r\n"
    for name, value in response.headers.items():
        if "\n" in value or "\r" in value:
            raise ValueError(f"a line break in {name}")
        lines += f"{name}: {value}\r\n"
    if "Content-Length" not in response.headers:
        lines += f"Content-Length: {length}\r\n"
    if is_last:
        lines += "Connection: close\r\n"
    elif request is not None and request.version == "1.0":
        lines += "Connection: keep-alive\r\n"
    return f"{lines}{_ALWAYS}\r\n".encode()
