"""Sealed exchanges as the server opens them: forged, cut, another pilot's; and what may not pass a leader."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shoal.engine.commands import Talk
from shoal.engine.exchanges.bundles import (
    Envelope,
    ask_yourself,
    check_bundle,
    envelope,
    may_pass,
    open_exchange,
    seal_answer,
)
from shoal.model.credentials import digest
from shoal.model.errors import BadInput, Conflict, Refused, TooLarge
from shoal.model.limits import MAX_BUNDLE, MAX_BUNDLE_BYTES, MAX_SEALED
from shoal.wire import codec
from shoal.wire.messages import Bundle, Capacity, Lease, Reply, Sealed
from shoal.wire.seal import ANSWER, EXCHANGE, YOURSELF, SealedAnswer, is_genuine, parse_answer, seal
from tests.unit.engine.stand import FakePilot, Stand, good


def member(stand: Stand, **more: Any) -> FakePilot:
    return stand.pilot(bound=True, tags={"peer": "127.0.0.1:1"}, **more)


def sealed(pilot: FakePilot, **more: Any) -> Sealed:
    body = codec.encode(replace(pilot.make(**more), session="")).decode()
    return seal(digest(pilot.session), EXCHANGE, pilot.name, body)


def opened(stand: Stand, leader: FakePilot, item: Sealed) -> Envelope | None:
    return envelope(stand.engine.state, stand.engine.state.pilots[leader.name], item)


def test_an_exchange_is_opened_for_a_member_of_the_leaders_mesh_only() -> None:
    stand = Stand()
    leader, ours = member(stand), member(stand)
    theirs, elsewhere = member(stand, owner="bob"), member(stand, site="far")
    assert opened(stand, leader, sealed(ours)) is not None
    for other in (theirs, elsewhere, stand.pilot()):
        assert opened(stand, leader, sealed(other)) is None
    assert opened(stand, leader, Sealed("p00000000", "{}", "")) is None
    stand.bury(ours)
    assert opened(stand, leader, sealed(ours)) is None, "it has to hear itself that it is given up"


def test_what_is_not_as_its_pilot_sealed_it_is_refused() -> None:
    stand = Stand()
    leader, one, two = member(stand), member(stand), member(stand)
    item = sealed(one)
    for wrong in (
        replace(item, body=item.body.replace('"seq":1', '"seq":9')),
        replace(item, body=item.body[:-1]),
        replace(item, seal="0" * 64),
        replace(sealed(two), pilot=one.name),  # another's exchange in its name
        seal(digest(leader.session), EXCHANGE, one.name, item.body),  # sealed by the leader itself
        seal(digest(two.session), EXCHANGE, two.name, item.body),  # a member speaks for another one
        seal(digest(one.session), ANSWER, one.name, item.body),
        seal(digest(one.session), EXCHANGE, one.name, " " * (MAX_SEALED + 1)),
    ):
        found = opened(stand, leader, wrong)
        assert found is not None
        with pytest.raises(Refused) as refused:
            open_exchange(found)
        assert refused.value.code == "bad_seal"
    found = opened(stand, leader, seal(digest(one.session), EXCHANGE, one.name, '{"protocol":5}'))
    assert found is not None
    with pytest.raises(BadInput):
        open_exchange(found)


def test_a_session_never_travels_in_a_sealed_exchange() -> None:
    stand = Stand()
    leader, one = member(stand), member(stand)
    body = codec.encode(one.make()).decode()
    found = opened(stand, leader, seal(digest(one.session), EXCHANGE, one.name, body))
    assert found is not None
    with pytest.raises(Refused):
        open_exchange(found)


def test_repeated_and_reordered_exchanges_change_nothing() -> None:
    stand = Stand()
    leader, one = member(stand), member(stand)
    run = stand.submit({})
    attempt = one.work()
    first = sealed(one, reports=[good(attempt)], held={})
    second = sealed(one)

    def talk(item: Sealed) -> None:
        found = opened(stand, leader, item)
        assert found is not None
        stand.do(Talk(open_exchange(found), is_sealed=True))

    talk(second)
    talk(first)  # overtaken: its reports count, and nothing else
    assert stand.state(run) == "succeeded"
    for _ in range(3):
        talk(first)
        talk(second)
    third = sealed(one)
    talk(third)
    with pytest.raises(Conflict):
        talk(first)
    assert len(stand.events("task_finished")) == 1
    assert stand.sound()


def test_a_leader_that_repeats_an_exchange_does_not_make_its_pilot_live() -> None:
    stand = Stand()
    leader, one = member(stand), member(stand)
    item = sealed(one)
    found = opened(stand, leader, item)
    assert found is not None
    exchange = open_exchange(found)
    stand.do(Talk(exchange, is_sealed=True))
    for _ in range(8):
        stand.pass_time(stand.timing.lease / 6)
        leader.talk()
        if one.name in stand.engine.state.pilots:
            stand.do(Talk(exchange, is_sealed=True))
    assert one.name not in stand.engine.state.pilots


def test_what_must_not_run_twice_does_not_pass_a_leader() -> None:
    def lease(rerun: str) -> Lease:
        return Lease("r1.1#1@1", Capacity(1), rerun)

    assert may_pass(Reply(1, 1, [lease("safe")]))
    assert may_pass(Reply(1, 1))
    for rerun in ("exclusive", "never"):
        assert not may_pass(Reply(1, 1, [lease("safe"), lease(rerun)]))
    assert not may_pass(Reply(1, 1, window=[lease("safe")]))


def test_answers_are_sealed_for_their_pilot_and_large_ones_are_fetched_by_itself() -> None:
    asked = Envelope("5" * 64, Sealed("p1", "{}", ""))
    answer = SealedAnswer(3, 200, "{}")
    given = seal_answer(asked, answer)
    assert is_genuine("5" * 64, ANSWER, given)
    assert parse_answer(given.body) == answer
    for other in (SealedAnswer(3, 200, "x" * MAX_SEALED), SealedAnswer(3, YOURSELF)):
        assert seal_answer(asked, other) == ask_yourself("p1", 3)


def test_a_bundle_is_bounded() -> None:
    item = Sealed("p1", "x", "0")
    check_bundle(Bundle(1, [item] * MAX_BUNDLE))
    for items in ([item] * (MAX_BUNDLE + 1), [Sealed("p" * 300, "", "")], [Sealed("p", "", "0" * 300)]):
        with pytest.raises(BadInput):
            check_bundle(Bundle(1, items))
    with pytest.raises(TooLarge):
        check_bundle(Bundle(1, [Sealed("p1", "x" * (MAX_BUNDLE_BYTES // 4 + 1), "")] * 4))
