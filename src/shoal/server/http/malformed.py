"""Malformed HTTP, which aiohttp refuses before the application sees it: answered in our form, not in aiohttp's words,
which would repeat all of it [input E0]. No response names the software [security S0]."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_server import Server

from shoal.model.credentials import redact
from shoal.model.errors import echo
from shoal.model.limits import MAX_NAME
from shoal.server.http.request import plain_error


class Handler(RequestHandler):
    """aiohttp's handler of one connection, with our form of errors."""

    __slots__ = ()

    def __init__(self, manager: Server, *, loop: asyncio.AbstractEventLoop, **more: Any) -> None:
        super().__init__(manager, loop=loop, **more)
        handle = self._request_handler
        assert handle is not None
        self._request_handler = lambda request: _check_headers(request, handle)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """The response to malformed HTTP."""
        if request.writer.output_size > 0:
            raise ConnectionError("a part of another answer was sent already")
        if status >= 500:
            self.log_exception("the handler of a request failed", exc_info=exc)
            return refused(status, "a defect in the server")
        text = (message or "").partition("\n")[0].partition(":")[0]  # the rest is what was sent, tokens included
        return refused(status, f"not HTTP: {redact(echo(text))}")

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send a response; one that aiohttp made by itself is put in our form before."""
        if isinstance(resp, web.HTTPException):
            resp = refused(resp.status, resp.reason)
        if not resp.prepared:
            resp.headers["Server"] = "shoal"
        return await super().finish_response(request, resp, start_time)


async def _check_headers(
    request: web.BaseRequest, handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuse headers that are not UTF-8, before anybody reads or repeats one, and expectations that are not met: aiohttp
    would repeat them in its response, and fail to write what is not UTF-8."""
    if any(not text.isascii() and _is_broken(text) for pair in request.headers.items() for text in pair):
        return refused(400, "not HTTP: a header that is not UTF-8")
    if len(request.headers.get("Content-Type", "")) > MAX_NAME:  # reading 7,000 semicolons takes half a second
        return refused(400, "not HTTP: too long a Content-Type")
    expect = request.headers.get("Expect")
    if expect is not None and expect.lower() != "100-continue":
        return refused(417, "nothing but Expect: 100-continue is understood")
    return await handle(request)


def _is_broken(text: str) -> bool:
    """True if a header has bytes that are not UTF-8, which aiohttp keeps as lone surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def handlers(server: Server) -> Callable[[], RequestHandler]:
    """What makes a handler for each connection of a server."""
    return lambda: Handler(server, loop=asyncio.get_running_loop(), **server._kwargs)


def refused(status: int, message: str) -> web.Response:
    """A refusal after which nothing more is read."""
    response = plain_error("http", message, status)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.force_close()
    return response
