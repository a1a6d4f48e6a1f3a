"""The request of a leader: the exchanges of its followers, and their answers [LBO D8; ADR 0062]."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from shoal.engine.exchanges.bundles import (
    Envelope,
    ask_yourself,
    check_bundle,
    check_leader,
    envelope,
    may_pass,
    open_exchange,
    seal_answer,
)
from shoal.engine.pilots.exchange import disowned
from shoal.model.errors import InternalError, ShoalError
from shoal.model.limits import MAX_SMALL_BODY
from shoal.server.auth.authentication import unauthorised
from shoal.server.auth.lockout import Sender
from shoal.server.context import CallHandler
from shoal.server.exchanges.content import begin
from shoal.server.http.messages import Response
from shoal.server.http.rate_limit import POOL
from shoal.server.http.request import Call, answer, plain_error, refusal
from shoal.wire import codec_fast
from shoal.wire.messages import PROTOCOL, Bundle, BundleReply, Exchange, Sealed
from shoal.wire.old_protocol import for_protocol
from shoal.wire.seal import YOURSELF, SealedAnswer

log = logging.getLogger(__name__)
NO_EXCHANGE = 0  # the number of what could not be read as one


class BundlesHandler(CallHandler):
    """Bundles of exchanges."""

    async def bundle(self, call: Call) -> Response:
        """Exchanges of followers; answered as soon as there is an answer for one of them, also of an earlier bundle."""
        if not call.caller.pilot or call.caller.pilot != call.path_part("pilot"):
            raise unauthorised()  # before the body is read
        bundle = await call.body(Bundle)
        self.service.check_whole()
        state = self.service.engine.state
        leader = state.pilots.get(call.caller.pilot)
        if leader is None:  # it ended meanwhile
            raise disowned()
        check_leader(state, leader, bundle.term)
        check_bundle(bundle)
        self.context.rate_limit.charge(POOL, leader.holder, self.service.clock(), len(bundle.items))
        call.rest()
        found = [(item, envelope(state, leader, item)) for item in bundle.items]
        size = sum(len(item.body) for item in bundle.items)
        opened = await asyncio.to_thread(_open_all, found) if size > MAX_SMALL_BODY else _open_all(found)
        # An idle one is forgotten: nothing is awaited until it is used.
        mailbox = self.context.mailboxes.of(leader.name, state.pilots)
        for item, (sealed, exchange) in zip(bundle.items, opened, strict=True):
            if sealed is None or exchange is None:
                self.context.metrics.refused("bad_seal")
                log.warning("leader=%s handed on what pilot=%s did not seal", leader.name, item.pilot[:40])
                mailbox.put(ask_yourself(item.pilot, NO_EXCHANGE))
            elif not mailbox.expects((exchange.pilot, exchange.seq)):
                mailbox.expect((exchange.pilot, exchange.seq), self._answer(sealed, exchange))
        self.context.metrics.bundled += len(bundle.items)
        return answer(BundleReply(await mailbox.take(self.service.timing.beat)))

    async def _answer(self, sealed: Envelope, exchange: Exchange) -> Sealed:
        """Carry out one exchange, and seal what its pilot would have been answered by itself."""
        pilot = exchange.pilot
        senders = [Sender(f"pilot:{pilot}", 1)]
        try:
            self.context.lockouts.check(senders, self.service.clock())
            reply = await begin(self.context, exchange, is_sealed=True)
            self.context.metrics.exchanges += 1
            if not may_pass(reply):
                return ask_yourself(pilot, exchange.seq)
            is_old = exchange.protocol != PROTOCOL
            response = answer(for_protocol("Reply", reply, exchange.protocol) if is_old else reply)
        except ShoalError as error:
            if isinstance(error, InternalError):  # whose exchange met a defect is counted, and not who handed it on
                self.context.lockouts.strike(senders, self.service.clock())
            response = refusal(error)
            self.context.metrics.refused(error.code)
        except asyncio.CancelledError:  # the server ends
            return seal_answer(sealed, SealedAnswer(exchange.seq, YOURSELF))
        except Exception:
            log.exception("an exchange of pilot=%s failed", pilot)
            response = plain_error("internal_error", "a defect in the server", 500)
        return seal_answer(sealed, SealedAnswer(exchange.seq, response.status, response.body.decode()))


def _open_all(found: list[tuple[Sealed, Envelope | None]]) -> list[tuple[Envelope | None, Exchange | None]]:
    """The exchanges in these; None where there is none."""
    opened: list[tuple[Envelope | None, Exchange | None]] = []
    for _, sealed in found:
        exchange = None
        if sealed is not None:
            with contextlib.suppress(ShoalError):
                exchange = open_exchange(sealed, codec_fast.decode)
        opened.append((sealed, exchange))
    return opened
