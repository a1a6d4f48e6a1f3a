"""Meshes as the server keeps them: who is a member, what members are told, and who is shut out [ADR 0048]."""

from __future__ import annotations

from typing import Any, NamedTuple

from shoal.dht.peers import CLIENT_ONLY, parse_mesh_uri
from shoal.engine.commands import Expel
from shoal.engine.consistency import check
from shoal.engine.pilots import mesh
from shoal.engine.pilots.roster import Member, Roster
from shoal.engine.why.pilots_and_sites import why_pilot
from shoal.model.limits import MAX_NEIGHBOURS, MAX_ROSTER_CHANGES, SMALL_MESH
from shoal.wire.messages import Accusation
from tests.unit.engine.stand import FakePilot, Stand


def peer(stand: Stand, at: int, **more: Any) -> FakePilot:
    """A pilot on a host of its own, which takes part in the mesh of its site."""
    more = {"bound": True, "identity": f"host{at}", "tags": {"peer": f"10.0.0.{at}:7000"}, **more}
    return stand.pilot(**more)


def id_of(stand: Stand, pilot: FakePilot) -> str:
    return mesh.peer_id(stand.engine.state, pilot.name)


def invited(stand: Stand, pilot: FakePilot) -> set[str]:
    """Addresses of the contacts that a pilot gets when it registers."""
    state = stand.engine.state
    return {one.address for one in mesh.invite(state, state.pilots[pilot.name])[0]}


def why(stand: Stand, pilot: FakePilot) -> set[str]:
    """Codes of what is said of a pilot."""
    state = stand.engine.state
    return {reason.code for reason in why_pilot(state, state.pilots[pilot.name])}


class Told(NamedTuple):
    """What replies said of a mesh."""

    neighbours: list[str]  # their addresses
    gone: list[str]


def told(stand: Stand, pilot: FakePilot) -> Told:
    """What the replies from now on say to a pilot."""
    before = len(stand.answers)
    pilot.talk(tags={"load": stand.now})
    stand.pass_time(stand.timing.beat)
    replies = [one.reply for one in stand.answers[before:] if one.pilot == pilot.name]
    came = [one.address for reply in replies for one in reply.neighbours]
    return Told(came, [id for reply in replies for id in reply.gone])


def test_contacts_are_of_the_same_site_and_the_same_owner_or_group() -> None:
    stand = Stand()
    first = peer(stand, 1)
    peer(stand, 2, site="elsewhere")
    peer(stand, 3, owner="bob")
    peer(stand, 4, group="phys")
    stand.pilot(tags={"peer": "10.0.0.5:7000"})  # without a certificate
    peer(stand, 6, tags={})  # takes no part
    peer(stand, 7, tags={"peer": CLIENT_ONLY})
    last = peer(stand, 8)
    assert invited(stand, last) == {"10.0.0.1:7000"}
    assert invited(stand, first) == {"10.0.0.8:7000"}
    assert check(stand.engine.state) == []


def test_a_pilot_is_named_by_its_mesh_and_an_id_that_a_restart_keeps() -> None:
    stand = Stand()
    pilot = peer(stand, 1, group="phys", site="uni b")
    state = stand.engine.state
    uri = mesh.certified_name(state, state.pilots[pilot.name])
    named = parse_mesh_uri(uri)
    assert named is not None
    assert named.mesh == "uni%20b/%40phys"
    stand.restart()
    state = stand.engine.state
    assert mesh.certified_name(state, state.pilots[pilot.name]) == uri
    assert invited(stand, peer(stand, 2, group="phys", site="uni b")) == {"10.0.0.1:7000"}


def test_members_are_told_who_came_and_who_ended() -> None:
    stand = Stand()
    first = peer(stand, 1)
    invited(stand, first)
    assert told(stand, first).neighbours == []
    second = peer(stand, 2)
    assert told(stand, first).neighbours == ["10.0.0.2:7000"]
    assert told(stand, first).neighbours == [], "once"
    stand.bury(second)
    assert told(stand, first).gone == [id_of(stand, second)]
    assert told(stand, first).gone == []


def test_a_pilot_that_is_not_reached_any_more_is_named_to_nobody() -> None:
    stand = Stand()
    first = peer(stand, 1)
    first.talk(tags={"peer": CLIENT_ONLY})
    assert invited(stand, peer(stand, 2)) == set()
    assert check(stand.engine.state) == []


def test_pilots_of_a_revoked_token_are_no_members_whatever_they_show() -> None:
    stand = Stand()
    first, second = peer(stand, 1), peer(stand, 2, token="t1")
    invited(stand, first)
    stand.do(Expel(("t1",), "stolen"))
    assert told(stand, first).gone == [id_of(stand, second)]
    for _ in range(2):
        third = peer(stand, 3)
        state = stand.engine.state
        assert mesh.invite(state, state.pilots[third.name])[1] == [id_of(stand, second)]
        stand.restart()


def test_one_host_alone_shuts_nobody_out_and_two_do() -> None:
    stand = Stand()
    liar, one, two = (peer(stand, at) for at in (1, 2, 3))
    twin = peer(stand, 2)
    for pilot in (one, two):
        invited(stand, pilot)
    accusation = Accusation(id_of(stand, liar), "3 wrong files")
    for pilot in (one, one, twin):
        pilot.talk(accusations=[accusation])
    assert [event.data["shut_out"] for event in stand.journal if event.kind == "peer_accused"] == [False]
    assert "10.0.0.1:7000" in invited(stand, peer(stand, 4))
    assert "mesh_accused" in why(stand, liar)
    assert "mesh_accused" not in why(stand, one)
    two.talk(accusations=[accusation, Accusation("f" * 64, "nobody")])
    assert [event.data["shut_out"] for event in stand.journal if event.kind == "peer_accused"] == [False, True]
    assert "mesh_shut_out" in why(stand, liar)
    fifth = peer(stand, 5)
    assert "10.0.0.1:7000" not in invited(stand, fifth)
    assert id_of(stand, liar) in told(stand, one).gone
    liar.talk(tags={"peer": "10.0.0.9:7000"})
    assert "10.0.0.9:7000" not in invited(stand, fifth), "another address helps nothing"
    liar.talk(tags={"peer": ""})
    liar.talk(tags={"peer": "10.0.0.9:7000"})
    assert "10.0.0.9:7000" not in invited(stand, fifth), "nor to go and come back"
    assert check(stand.engine.state) == []


def test_what_is_told_at_once_is_bounded_and_the_rest_follows() -> None:
    roster = Roster()
    for at in range(SMALL_MESH):
        roster.enter(Member(f"p{at}", f"{at:064x}", f"h{at}:1"))
    assert len(roster.contacts("0")) == MAX_NEIGHBOURS
    gone = MAX_ROSTER_CHANGES + 10 - SMALL_MESH
    for at in range(gone):
        roster.leave(f"{at:064x}")
    came, went, number = roster.since(0, "x")
    assert len(came) == SMALL_MESH - gone
    assert went == []
    assert roster.since(number, "x") == ([], [f"{at:064x}" for at in range(gone)], roster.number)
