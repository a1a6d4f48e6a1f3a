"""One request as handlers see it: caller, parameters and body, checked; and how responses are encoded."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

from shoal.model.credentials import redact
from shoal.model.errors import BadInput, Conflict, EventsGone, NotFound, Refused, ShoalError, TooBusy, TooLarge, echo
from shoal.server.auth.authentication import Caller
from shoal.server.http.bodies import Charge
from shoal.server.http.messages import BodyBroken, Request, Response
from shoal.server.http.routes import MAX_TEXT, Query, Route
from shoal.wire import codec, codec_fast
from shoal.wire.did_you_mean import did_you_mean
from shoal.wire.messages import Bundle, Exchange

T = TypeVar("T")
BODY_WITHIN = 30.0  # seconds for a body to arrive whole
_STATUS: list[tuple[type[ShoalError], int]] = [
    (NotFound, 404),
    (EventsGone, 410),
    (Conflict, 409),
    (TooLarge, 413),
    (Refused, 403),
    (TooBusy, 429),
]
# Codes whose status is not their type's.
_CODES = {
    "bad_json": 400, "empty_body": 400, "want_object": 400, "duplicate_key": 400, "not_finite": 400, "number_too_long": 400,
    "too_deep": 400, "bad_utf8": 400, "bad_path": 400, "encoding_refused": 415, "want_json": 415, "unauthorised": 401,
    "token_revoked": 401, "token_expired": 401,
    "too_slow": 408, "wrong_host": 421, "site_full": 429, "disk_full": 507, "quota": 507, "no_length": 411, "want_bytes": 415,
    "no_such_range": 416, "internal_error": 500, "database_gone": 503, "disk_error": 503, "corrupt": 503,
    "pilot_silent": 504,
}  # fmt: skip


def status_of(error: ShoalError) -> int:
    """The status code of an error."""
    if error.code in _CODES:
        return _CODES[error.code]
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 422)


def answer(data: Any, status: int = 200) -> Response:
    """Data as a JSON response."""
    return Response(body=codec_fast.encode(data), status=status, content_type="application/json")


def refusal(error: ShoalError) -> Response:
    """An error as a JSON response [input E0], without secrets that the request had in a wrong field [security S12]."""
    texts = {"code": error.code, "message": error.message, "field": error.field, "hint": error.hint}
    document: dict[str, Any] = {name: redact(text) for name, text in texts.items()}
    if isinstance(error, EventsGone):
        document["oldest"] = error.oldest
    response = answer({"error": document}, status_of(error))
    if response.status == 429:
        response.headers["Retry-After"] = str(math.ceil(error.after) if isinstance(error, TooBusy) else 10)
    if response.status in (401, 408, 411, 413, 415, 421) or error.code == "too_many_bodies":
        response.force_close()  # what is left of the body is not read
    return response


def plain_error(code: str, message: str, status: int) -> Response:
    """An error that needs neither field nor hint."""
    return answer({"error": {"code": code, "message": message, "field": "", "hint": ""}}, status)


class Call:
    """A request, its route and its caller."""

    def __init__(
        self, request: Request, route: Route, caller: Caller, rest: Callable[[], None], again: Callable[[], Caller],
        charge: Charge,
    ) -> None:  # fmt: skip
        self.request, self.route, self.caller = request, route, caller
        self.rest = rest  # to be called before waiting: a waiting request is not counted as work
        self._again = again  # authenticates the caller again
        self._charge = charge  # counts the bytes of its body
        self.about = ""  # what the audit says of it
        self._query = self._read_query()

    def path_part(self, name: str) -> str:
        """A part of the path."""
        return self.request.match_info[name]

    def number(self, name: str) -> int:
        """A whole number of the query that has a default."""
        return cast(int, self._query[name])

    def number_or_none(self, name: str) -> int | None:
        """A whole number of the query, if it was given."""
        return cast("int | None", self._query[name])

    def text(self, name: str) -> str | None:
        """A text of the query, if it was given."""
        return cast("str | None", self._query[name])

    def _read_query(self) -> dict[str, int | str | None]:
        if not self.route.query and "?" not in self.request.raw_path:
            return {}
        known = {query.name: query for query in self.route.query}
        found: dict[str, int | str | None] = {name: query.default for name, query in known.items()}
        for name, text in self.request.query:
            if name not in known:
                hint = did_you_mean(name, list(known)) if known else "there is none"
                raise BadInput(f"unknown parameter {echo(name)!r}", code="unknown_field", field=echo(name), hint=hint)
            found[name] = _number(known[name], text) if known[name].kind is int else _text(known[name], text)
        return found

    def again(self) -> None:
        """Check the caller's token once more, after a body that took long to arrive."""
        self.caller = self._again()

    async def body(self, kind: type[T]) -> T:
        """The body, decoded and checked."""
        return await self._body(lambda data: _decode(kind, data))

    async def object(self, check: Callable[[dict[str, Any]], T]) -> T:
        """The result of `check`, which must be pure, for a body that is any object."""
        return await self._body(lambda data: check(_decode(dict, data)))

    async def _body(self, read: Callable[[bytes], T]) -> T:
        try:
            data = await self.raw()
            self.again()  # a token that ended while the body arrived is refused [security S17]
            return await self._charge.work(lambda: read(data))
        finally:
            self._charge.release()

    async def raw(self) -> bytes:
        """The bytes of the body, within its size limit."""
        request = self.request
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise BadInput("compressed bodies are not taken", code="encoding_refused")
        if request.content_type != "application/json":
            raise BadInput("the body must be JSON", code="want_json", hint="send Content-Type: application/json")
        return await read_body(request, self.route.most, BODY_WITHIN, self._charge.take)


def _decode(kind: type[T], data: bytes) -> T:
    if kind is Exchange or kind is Bundle:
        return codec_fast.decode(kind, data)  # thousands a second: the fast decoder checks the same types
    if kind is dict:
        found = codec.parse(data)
        if not isinstance(found, dict):
            raise BadInput("expected an object", code="want_object")
        return cast(T, found)
    return codec.decode(kind, data)


async def read_body(
    request: Request, most: int, within: float, take: Callable[[bytes], None] = lambda part: None
) -> bytes:
    """The body, at most `most` bytes, received within so many seconds [input E9]; `take` may refuse any part."""
    if request.content_length is not None and request.content_length > most:
        raise _too_large(most)
    whole = request.content.take_whole()
    if whole is not None:  # as of nearly all exchanges: nothing has to be waited for
        if len(whole) > most:
            raise _too_large(most)
        if whole:
            take(whole)
        return whole
    parts, size = [], 0
    try:
        async with asyncio.timeout(within):
            async for part in request.content.iter_any():
                size += len(part)
                if size > most:
                    raise _too_large(most)
                take(part)
                parts.append(part)
    except TimeoutError:
        hint = f"all of it must be here in {within:g} seconds"
        raise Refused("the body came too slowly", code="too_slow", hint=hint) from None
    except (ConnectionError, BodyBroken):  # the client has left: no defect of the server
        raise BadInput("the body is not what its headers say", code="bad_body") from None
    return b"".join(parts)


def _too_large(most: int) -> TooLarge:
    return TooLarge("the body is too large", hint=f"at most {most} bytes")


def _number(query: Query, text: str) -> int:
    good = text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 19
    if not good or not query.low <= int(text) <= query.high:
        raise BadInput(
            f"{echo(text)!r} is out of range", code="range", field=query.name, hint=f"{query.low} to {query.high}"
        )
    return int(text)


def _text(query: Query, text: str) -> str:
    if len(text.encode("utf-8", "replace")) > MAX_TEXT or "\0" in text:
        raise BadInput("too long", code="too_long", field=query.name, hint=f"at most {MAX_TEXT} bytes")
    return text
