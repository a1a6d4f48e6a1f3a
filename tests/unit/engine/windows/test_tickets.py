"""Tickets: what a pilot that starts while the server is away shows to its mesh, and until when [ADR 0065; promise I16]."""

from __future__ import annotations

from shoal.dht.peers import parse_mesh_uri
from shoal.engine.commands import Expel
from shoal.engine.windows.tickets import make_ticket, ticket_id
from tests.unit.engine.windows.test_window import Site

MESH = ("local", "ann")


def test_a_ticket_names_one_mesh_and_an_id_that_nobody_else_has_and_is_the_same_after_a_restart() -> None:
    site = Site()
    site.lead()
    state = site.stand.engine.state
    made = make_ticket(state, MESH, "t1")
    name = parse_mesh_uri(made.peer)
    assert name is not None and (name.mesh, name.id) == ("local/ann", ticket_id(state, "t1"))
    assert (made.pilot, made.session, made.certificate) == ("", "", ""), "it is no registration"
    assert {one.id for one in made.neighbours} == state.meshes[MESH].members.keys()
    assert made.leader == state.windows[MESH].leadership
    assert name.id not in (ticket_id(state, "t2"), *state.meshes[MESH].members)
    site.stand.restart()
    assert make_ticket(site.stand.engine.state, MESH, "t1").peer == made.peer
    assert make_ticket(site.stand.engine.state, ("far", "@phys"), "t1").neighbours == []


def test_who_has_the_ticket_of_a_token_that_was_revoked_is_no_member_for_any_member() -> None:
    site = Site()
    site.lead()
    state = site.stand.engine.state
    barred = ticket_id(state, "t1")
    site.stand.do(Expel(("t1",), "revoked", (("local", "ann", "t1"), ("local", "bert", "t1"))))
    for pilot in site.pilots:
        pilot.wait()
    site.stand.pass_time(site.stand.timing.beat)
    assert {answer.pilot for answer in site.stand.answers if barred in answer.reply.gone} == {
        pilot.name for pilot in site.pilots
    }
    assert ("local", "bert") not in state.meshes
    assert site.stand.sound()
