"""Meshes: the pilots of one site and of one owner or group, which share files among themselves [LBO D1; ADR 0048].

A pilot takes part if it says so by its tag `peer`, and has a certificate. Its id as a peer is made by the server, of the
pilot's name and a secret, so that no pilot can choose it, and it is the same after a restart [promise I16].
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from urllib.parse import quote

from shoal.dht.peers import CLIENT_ONLY, PEER_TAG, mesh_uri
from shoal.engine.pilots.roster import Member, Roster
from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.model.errors import BadInput
from shoal.model.limits import MAX_ACCUSATIONS, MAX_LINE, MAX_PEER_ADDRESS, MAX_SHUT_OUT, PEER_WITNESSES
from shoal.wire.messages import Accusation, Neighbour


def peer_id(state: State, pilot: str) -> str:
    """The id of a pilot as a peer: 64 hexadecimal digits that nobody outside the server can foresee."""
    return hmac.digest(state.lease_key, b"peer " + pilot.encode(), "sha256").hex()


def certified_name(state: State, pilot: Pilot) -> str:
    """What its certificate says of a pilot as a peer: site, owner or group, id."""
    return mesh_uri(quote(pilot.site, safe=""), quote(pilot.holder, safe=""), peer_id(state, pilot.name))


def takes_part(pilot: Pilot) -> bool:
    """True if a pilot asks peers for files."""
    return pilot.bound and bool(pilot.tags.get(PEER_TAG))


def roster_of(state: State, pilot: Pilot) -> Roster:
    """The roster of the mesh that a pilot belongs to."""
    return state.meshes.setdefault((pilot.site, pilot.holder), Roster())


def enter(state: State, pilot: Pilot) -> None:
    """A pilot registered, or says where it is reached now."""
    if not takes_part(pilot):
        roster = state.meshes.get((pilot.site, pilot.holder))
        if roster is not None:
            roster.withdraw(peer_id(state, pilot.name))
            _forget_empty(state, pilot, roster)
        return
    address = str(pilot.tags[PEER_TAG])
    address = "" if address == CLIENT_ONLY or len(address) > MAX_PEER_ADDRESS else address
    roster_of(state, pilot).enter(Member(pilot.name, peer_id(state, pilot.name), address))


def leave(state: State, pilot: Pilot) -> None:
    """A pilot ended: the others are told."""
    roster = state.meshes.get((pilot.site, pilot.holder))
    if roster is None:
        return
    roster.leave(peer_id(state, pilot.name))
    _forget_empty(state, pilot, roster)


def _forget_empty(state: State, pilot: Pilot, roster: Roster) -> None:
    if not (roster.members or roster.shut_out or roster.accusers):
        del state.meshes[pilot.site, pilot.holder]


def invite(state: State, pilot: Pilot) -> tuple[list[Neighbour], list[str]]:
    """What a pilot that registers is told of its mesh: contacts, and whom not to talk to although their certificates are
    good."""
    if not takes_part(pilot):
        return [], []
    roster, id = roster_of(state, pilot), peer_id(state, pilot.name)
    roster.seen[id] = roster.number
    shut_out = [*roster.shut_out]
    shut_out += [
        peer_id(state, name) for name, gone in state.gone.items() if gone.revoked and gone.holder == pilot.holder
    ]
    return [Neighbour(one.id, one.address) for one in roster.contacts(id)], shut_out[-MAX_SHUT_OUT:]


def neighbour(state: State, pilot: Pilot, name: str) -> Neighbour | None:
    """A member of a pilot's mesh that can be reached, by the name of its pilot."""
    roster = state.meshes.get((pilot.site, pilot.holder))
    member = roster.members.get(peer_id(state, name)) if roster is not None else None
    return Neighbour(member.id, member.address) if member is not None and member.address else None


def changes(state: State, pilot: Pilot) -> tuple[list[Neighbour], list[str]]:
    """Who came to a pilot's mesh and who is gone, since it was last told."""
    roster = state.meshes.get((pilot.site, pilot.holder)) if PEER_TAG in pilot.tags else None
    id = peer_id(state, pilot.name) if roster is not None else ""
    if roster is None or roster.seen.get(id) == roster.number:
        return [], []
    came, gone, roster.seen[id] = roster.since(roster.seen.get(id, 0), id)
    return [Neighbour(one.id, one.address) for one in came], gone


def check_accusations(accusations: Sequence[Accusation]) -> None:
    """Refuse more or longer ones than a pilot sends."""
    if len(accusations) > MAX_ACCUSATIONS or any(len(one.why) > MAX_LINE for one in accusations):
        raise BadInput("too many accusations", code="range", field="accusations", hint=f"at most {MAX_ACCUSATIONS}")


def accuse(state: State, pilot: Pilot, accusations: Sequence[Accusation]) -> None:
    """A pilot reports peers of its mesh that gave it wrong bytes again and again. One host alone shuts nobody out: it may be
    the one that lies [promise I15]."""
    roster = state.meshes.get((pilot.site, pilot.holder))
    for accusation in accusations:
        member = roster.members.get(accusation.peer) if roster is not None else None
        accused = state.pilots.get(member.pilot) if member is not None else None
        if roster is None or member is None or accused is None or accused is pilot:
            continue
        accusers = roster.accusers.setdefault(member.id, set())
        if pilot.identity in accusers or accused.identity == pilot.identity:
            continue
        accusers.add(pilot.identity)
        is_shut_out = len(accusers) >= PEER_WITNESSES
        if is_shut_out:
            roster.shut(member.id)
        state.emit("peer_accused", pilot=accused, by=pilot.name, why=accusation.why[:MAX_LINE], shut_out=is_shut_out)
