"""Tickets: what a pilot is given before it starts, so that the members of its mesh take it for one of them if the server is away
then [ADR 0065].

A ticket goes with an enrolment token of one use. Its id as a peer is made of the token's name: it needs no row, and when the
token is revoked the server can name it to all members [promise I16].
"""

from __future__ import annotations

from urllib.parse import quote

from shoal.dht.peers import mesh_uri
from shoal.engine.pilots.mesh import peer_id
from shoal.engine.state import State
from shoal.engine.windows.leaders import Mesh
from shoal.wire.messages import Neighbour, Registered


def ticket_id(state: State, token: str) -> str:
    """The id as a peer of whoever has the ticket of a token."""
    return peer_id(state, f"ticket {token}")


def make_ticket(state: State, mesh: Mesh, token: str) -> Registered:
    """What a registration would be answered now, but for the name and the session, which only a registration gives."""
    t, (site, holder), id = state.timing, mesh, ticket_id(state, token)
    roster, window = state.meshes.get(mesh), state.windows.get(mesh)
    contacts = roster.contacts(id) if roster is not None else []
    return Registered(
        "", "", state.incarnation, t.beat, t.lease, t.hold, t.kill_after, t.grace, t.idle_end, t.spool_end,
        peer=mesh_uri(quote(site, safe=""), quote(holder, safe=""), id),
        neighbours=[Neighbour(one.id, one.address) for one in contacts],
        leader=window.leadership if window is not None and window.leadership.id else None,
    )  # fmt: skip


def bar(state: State, mesh: Mesh, token: str) -> None:
    """A token was revoked: who joined by its ticket is a member no more. Members that come later are told when they register."""
    roster = state.meshes.get(mesh)
    if roster is not None:
        roster.bar(ticket_id(state, token))
