"""The fast path of exchanges: what was checked of a connection's last exchange is not checked again [ADR 0061].

A pilot sends the same headers with each exchange, but for the length of its body. Once a request with these headers has
passed every check of `app.py`, the next one on its connection that begins with the same bytes is neither parsed nor routed
nor authenticated anew, and no task is made for it. What may have changed meanwhile is checked: whether that pilot
still lives, who is locked out, the rates, and everything about the body.

Anything else, such as a body that comes in parts or another request behind it, goes the ordinary way.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from shoal.engine.records import Pilot
from shoal.model.errors import TooBusy
from shoal.model.limits import MAX_SMALL_BODY
from shoal.server.auth.authentication import Caller
from shoal.server.auth.lockout import Sender
from shoal.server.context import Context
from shoal.server.http.messages import Response
from shoal.server.http.protocol import END_OF_HEAD
from shoal.wire import codec_fast
from shoal.wire.messages import Exchange, Reply

_DIGITS = len(str(MAX_SMALL_BODY))  # a body that is read at once is not larger
_EXCHANGE = "an exchange"  # in the log


class Exchanges(Protocol):
    """Handles exchanges whose bodies are decoded."""

    def begin_exchange(self, exchange: Exchange, caller: Caller, named: str) -> asyncio.Future[Reply]: ...
    def end_exchange(self, exchange: Exchange, reply: Reply) -> Response: ...


class Answering(Protocol):
    """Makes the response to an error, and counts exchanges."""

    def refuse(self, error: Exception, caller: Caller | None, what: str) -> Response: ...
    def note_exchange(self, caller: Caller, status: int, began: float) -> None: ...


class ExchangeFastPath:
    """The fast path of one connection, for the exchanges of one living pilot."""

    def __init__(
        self, context: Context, handler: Exchanges, answering: Answering, connection: Any, head: bytes, pilot: Pilot,
        caller: Caller, senders: list[Sender], limits: list[tuple[str, str]],
    ) -> None:  # fmt: skip
        """`limits`: kinds and keys of the rates that it has to keep to."""
        self._context, self._handler, self._answering, self._connection = context, handler, answering, connection
        self._head, self._pilot, self._caller, self._senders, self._limits = head, pilot, caller, senders, limits
        self._exchange: Exchange | None = None  # that is answered next
        self._began = 0.0

    def body_of(self, data: bytes) -> bytes | None:
        """The body, if this is one whole exchange with the known headers, of a pilot that still lives."""
        head = self._head
        if not data.startswith(head):
            return None
        end = data.find(END_OF_HEAD, len(head), len(head) + _DIGITS + len(END_OF_HEAD))
        digits = data[len(head) : end]
        if end < 0 or not digits.isdigit() or int(digits) != len(data) - end - len(END_OF_HEAD):
            return None
        if self._context.service.engine.state.pilots.get(self._pilot.name) is not self._pilot:
            return None
        return data[end + len(END_OF_HEAD) :]

    def begin(self, body: bytes) -> Response | asyncio.Future[Reply]:
        """Handle an exchange: its response, or what `end` makes one of later."""
        context, service = self._context, self._context.service
        context.connections.entered(self._connection)
        self._began = now = service.clock()
        try:
            service.check_database()
            service.check_whole()
            context.lockouts.check(self._senders, now)
            for kind, key in self._limits:
                wait = context.rate_limit.admit_at_once(kind, key, now)
                if wait > 0.0:
                    raise TooBusy("too many requests", after=wait, hint=f"come back in {wait:.1f} s")
            self._exchange = exchange = codec_fast.decode(Exchange, body)
            reply = self._handler.begin_exchange(exchange, self._caller, self._caller.pilot)
        except Exception as error:
            return self._ended(self._answering.refuse(error, self._caller, _EXCHANGE))
        return self.end(reply) if reply.done() else reply

    def end(self, reply: asyncio.Future[Reply]) -> Response:
        """The response, once there is a reply or an error."""
        assert self._exchange is not None
        try:
            response = self._handler.end_exchange(self._exchange, reply.result())
        except Exception as error:
            response = self._answering.refuse(error, self._caller, _EXCHANGE)
        return self._ended(response)

    def _ended(self, response: Response) -> Response:
        self._exchange = None
        self._context.connections.left(self._connection)
        self._answering.note_exchange(self._caller, response.status, self._began)
        return response
