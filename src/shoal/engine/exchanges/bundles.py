"""Bundles: exchanges of the members of a mesh that its leader hands on in one request [LBO D8; ADR 0062].

Each exchange is opened by its pilot's seal and then handled as if its pilot had sent it alone; its answer is sealed for that
pilot. What must not pass a leader does not: the pilot asks the server itself, with the same exchange, and gets that answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from shoal.engine.pilots import mesh
from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.model.errors import BadInput, Conflict, Refused, TooLarge
from shoal.model.limits import MAX_BUNDLE, MAX_BUNDLE_BYTES, MAX_NAME, MAX_SEALED
from shoal.wire import codec
from shoal.wire.messages import Bundle, Exchange, Reply, Sealed
from shoal.wire.seal import ANSWER, EXCHANGE, YOURSELF, SealedAnswer, is_genuine, seal


def check_bundle(bundle: Bundle) -> None:
    """Refuse a bundle that is out of bounds; who may send it is asked elsewhere."""
    if len(bundle.items) > MAX_BUNDLE:
        raise BadInput("too many exchanges in a bundle", code="range", field="items", hint=f"at most {MAX_BUNDLE}")
    if any(len(item.pilot) > MAX_NAME or len(item.seal) > MAX_NAME for item in bundle.items):
        raise BadInput("that is no sealed exchange", code="range", field="items")
    if sum(len(item.body) for item in bundle.items) > MAX_BUNDLE_BYTES:
        raise TooLarge("the bundle is too large", hint=f"at most {MAX_BUNDLE_BYTES} bytes of exchanges")


def check_leader(state: State, leader: Pilot, term: int) -> None:
    """Refuse a pilot that does not lead its mesh, or not in this term: one that has not heard of its successor yet
    [promise I17]."""
    window = state.windows.get((leader.site, leader.holder))
    if window is None or window.pilot != leader.name or term < window.leadership.term:
        raise Conflict("another pilot leads this mesh", code="old_term")


class Envelope(NamedTuple):
    """A sealed exchange, and the digest with which its seal is checked."""

    session: str
    item: Sealed


def envelope(state: State, leader: Pilot, item: Sealed) -> Envelope | None:
    """A sealed exchange of a living member of the leader's mesh; None: it is none, and whose it is has to come itself."""
    pilot = state.pilots.get(item.pilot)
    if pilot is None or not (mesh.takes_part(pilot) and mesh.takes_part(leader)):
        return None
    is_ours = (pilot.site, pilot.holder) == (leader.site, leader.holder)
    return Envelope(pilot.session, item) if is_ours else None


def open_exchange(sealed: Envelope, decode: Callable[[type[Exchange], bytes], Exchange] = codec.decode) -> Exchange:
    """The exchange in a sealed message; refused if it is not what its pilot sealed. Pure: any thread may do it."""
    item = sealed.item
    if len(item.body) > MAX_SEALED or not is_genuine(sealed.session, EXCHANGE, item):
        raise Refused("the seal is not of this pilot", code="bad_seal")
    exchange = decode(Exchange, item.body.encode())
    if exchange.pilot != item.pilot or exchange.session:
        raise Refused("the exchange is of another pilot than its seal", code="bad_seal")
    return exchange


def may_pass(reply: Reply) -> bool:
    """True if an answer may pass the leader: what must not run twice is only handed to whoever runs it."""
    return not reply.window and all(lease.rerun == "safe" for lease in reply.leases)


def seal_answer(sealed: Envelope, answer: SealedAnswer) -> Sealed:
    """An answer for its pilot; if it is too large to pass the leader, the word that the pilot has to ask itself."""
    body = answer.pack()
    if answer.status == YOURSELF or len(body.encode()) > MAX_SEALED:
        return ask_yourself(sealed.item.pilot, answer.seq)
    return seal(sealed.session, ANSWER, sealed.item.pilot, body)


def ask_yourself(pilot: str, seq: int) -> Sealed:
    """The word to a pilot that it has to send this exchange to the server itself. It needs no seal: who makes it up does no
    more than not to hand the exchange on."""
    return Sealed(pilot, SealedAnswer(seq, YOURSELF).pack(), "")
