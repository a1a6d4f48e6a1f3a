"""Who leads a mesh at a site in mode `distributed`, as the server names it: the first member that others reach; when that one is
gone, the one with the lowest id [LBO III.B; promise I17; ADR 0056]."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.engine.pilots.mesh import peer_id, takes_part
from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.engine.windows.site_window import SiteWindow
from shoal.model.ids import start_count
from shoal.model.policy import DISTRIBUTED
from shoal.wire.messages import PROTOCOL, Exchange, Leadership

Mesh = tuple[str, str]  # site, and owner or group
_STARTS, _NAMED = 40, 20  # bits of a term behind the number of the server's start, and behind that of the naming


def is_distributed(state: State, site: str) -> bool:
    """True if meshes of a site have leaders."""
    return state.accounting.policy.data.mode_of(site) == DISTRIBUTED


def mesh_of(pilot: Pilot) -> Mesh:
    """The mesh that a pilot belongs to, if it takes part."""
    return pilot.site, pilot.holder


def members(state: State, mesh: Mesh) -> Iterator[Pilot]:
    """The living pilots of a mesh."""
    roster = state.meshes.get(mesh)
    for member in roster.members.values() if roster is not None else ():
        pilot = state.pilots.get(member.pilot)
        if pilot is not None:
            yield pilot


def keep_leader(state: State, pilot: Pilot) -> None:
    """Name a leader of a pilot's mesh, if it should have one and has none."""
    mesh = mesh_of(pilot)
    window = state.windows.get(mesh)
    if not (takes_part(pilot) and is_distributed(state, pilot.site)):
        if window is not None and window.leadership.id and not is_distributed(state, pilot.site):
            _name(state, mesh, window, None)
        return
    if window is None:
        window = state.windows[mesh] = SiteWindow()
    leader, member = state.pilots.get(window.pilot), state.meshes[mesh].members.get(window.leadership.id)
    if leader is not None and member is not None and not (leader.leaving or leader.draining):
        return
    able = [one for one in members(state, mesh) if _may_lead(state, one)]
    if able:
        is_first = not window.named
        order = (lambda one: (one.joined, one.name)) if is_first else (lambda one: (0.0, peer_id(state, one.name)))
        _name(state, mesh, window, min(able, key=order))
    elif window.pilot:
        _name(state, mesh, window, None)


def without_leader(state: State, mesh: Mesh, window: SiteWindow) -> None:
    """Its leader ended: until another is named, nobody leads."""
    if window.pilot and window.pilot not in state.pilots:
        _name(state, mesh, window, None)


def _may_lead(state: State, pilot: Pilot) -> bool:
    member = state.meshes[mesh_of(pilot)].members.get(peer_id(state, pilot.name))
    is_well = pilot.is_reconciled and not (pilot.leaving or pilot.draining or pilot.suspect)
    return member is not None and bool(member.address) and is_well and pilot.protocol >= PROTOCOL


def _name(state: State, mesh: Mesh, window: SiteWindow, leader: Pilot | None) -> None:
    """From now on this one leads, or nobody: what was granted to the mesh under another leader comes back."""
    window.named += 1
    term = (start_count(state.incarnation) << _STARTS) | (window.named << _NAMED)
    window.pilot, window.leadership = "", Leadership(term, "", "")
    if leader is not None:
        member = state.meshes[mesh].members[peer_id(state, leader.name)]
        window.pilot, window.leadership = leader.name, Leadership(term, member.id, member.address)
        state.emit("leader_named", pilot=leader, term=term, members=len(state.meshes[mesh].members))
    window.closing.update(dict.fromkeys([*window.granted, *window.leaving]))
    window.granted.clear()
    window.leaving.clear()
    window.told.clear()
    window.spoken.clear()
    window.number = window.sent = 0


def tell(state: State, pilot: Pilot, seq: int) -> Leadership | None:
    """Who leads a pilot's mesh, if it was not told; `seq`: of the reply that says it, 0 for a registration."""
    window = state.windows.get(mesh_of(pilot))
    if window is None or not window.named or not takes_part(pilot) or pilot.name in window.told:
        return None
    window.told[pilot.name] = seq
    return window.leadership


def hear(state: State, pilot: Pilot, exchange: Exchange) -> None:
    """A pilot said what it holds; from then on when it knew of the leader it takes nothing from the one before."""
    window = state.windows.get(mesh_of(pilot))
    if window is not None and exchange.ack >= window.told.get(pilot.name, exchange.ack + 1):
        window.spoken[pilot.name] = None
