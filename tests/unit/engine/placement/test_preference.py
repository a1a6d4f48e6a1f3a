"""A plan guides who is offered what, and pins nothing [SPHINX S5; ADR 0057]."""

from __future__ import annotations

import pytest

from shoal.engine.commands import UsePlan
from shoal.engine.placement.preference import LONGEST
from shoal.sched.placement.question import Plan
from tests.unit.engine.stand import Stand, good


def learned(stand: Stand, *tables: dict[str, object]) -> list[int]:
    """Submit tasks of several classes, and have the engine know how long they take; the serials of the classes."""
    found = []
    for table in tables:
        stand.submit({"cores": 1, **table})
    state = stand.engine.state
    for run in state.runs.values():
        for array in run.arrays:
            cls = state.queue.class_of(array)
            cls.mean = 100.0
            found.append(cls.serial)
    return found


def use(stand: Stand, directed: dict[int, dict[str, float]]) -> None:
    stand.do(UsePlan(Plan(directed, {}, 100.0, "by hand")))


def test_a_site_is_offered_first_what_is_directed_to_it() -> None:
    stand = Stand()
    first, second = learned(stand, {"array": "1-4", "command": ["a"]}, {"array": "1-4", "command": ["b"]})
    use(stand, {first: {"far": 4.0}, second: {"near": 4.0}})
    assert [lease.command for lease in stand.pilot(host="n", site="near", cores=2).pull()] == [["b"], ["b"]]
    assert [lease.command for lease in stand.pilot(host="f", site="far", cores=2).pull()] == [["a"], ["a"]]
    assert stand.sound()


def test_what_another_site_could_not_start_sooner_is_started() -> None:
    """Late binding stays: the plan directs everything to a site that has no free slot."""
    stand = Stand()
    (only,) = learned(stand, {"array": "1-8", "command": ["a"]})
    busy = stand.pilot(host="f", site="far", cores=1)
    assert len(busy.pull()) == 1
    use(stand, {only: {"far": 7.0}})
    assert len(stand.pilot(host="n", site="near", cores=3).pull()) == 3


def test_of_two_that_wait_the_one_gets_it_to_which_it_is_directed_and_the_other_when_that_one_is_full() -> None:
    stand = Stand()
    serial = learned(stand, {"array": "1", "command": ["a"]})[0]
    near, far = stand.pilot(host="n", site="near", cores=2), stand.pilot(host="f", site="far", cores=1)
    (lease,) = near.pull()
    near.talk(good(lease.attempt, duration=100.0))
    near.wait()
    far.wait()
    use(stand, {serial: {"far": 3.0}})
    stand.submit({"cores": 1, "array": "1-3", "command": ["a"]})
    answers = {answer.pilot: answer.reply for answer in stand.last.answers}
    assert len(answers[far.name].leases) == 1
    far.hear(answers[far.name])
    if near.name not in answers:
        stand.pass_time(1.1)
    assert near.name in answers or near.took(), "the other site has no free slot any more"


def test_a_class_is_kept_for_a_moment_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand()
    (serial,) = learned(stand, {"array": "1-4", "command": ["a"], "after": []})
    far = stand.pilot(host="f", site="far", cores=4)
    state = stand.engine.state
    # The site to which all is directed waits, and for some reason does not take it.
    near = stand.pilot(host="n", site="near", cores=4)
    state.pilots[far.name].parked = None
    use(stand, {serial: {"far": 4.0}})
    monkeypatch.setitem(state.parked, far.name, state.pilots[far.name])
    assert near.pull() == []
    reason = stand.engine.why(1, stand.now)[1][0]
    assert reason.code == "placed_elsewhere" and "far" in reason.text, reason
    stand.pass_time(LONGEST + 0.1)
    assert near.took() or near.pull(), "a plan is no pin"


def test_the_plan_is_told_by_why_and_in_the_demand() -> None:
    stand = Stand()
    (serial,) = learned(stand, {"array": "1-9", "command": ["a"]})
    stand.pilot(host="n", site="near", cores=1).pull()
    use(stand, {serial: {"near": 3.0, "far": 5.0}})
    (need,) = stand.engine.demand("ann", stand.now).needs
    assert need.directed == {"near": 3.0, "far": 5.0}
    assert "directs of its like 5 to far, 3 to near (by hand)" in stand.engine.why(1, stand.now)[1][-1].text
    use(stand, {})
    assert stand.engine.demand("ann", stand.now).needs[0].directed == {}
