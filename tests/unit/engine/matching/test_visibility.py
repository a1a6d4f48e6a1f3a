"""A pilot that does not see the submitter's files gets nothing that needs them, and nobody is to blame [ADR 0029]."""

from __future__ import annotations

import pytest

from shoal.engine.matching.visibility import ASK_AFTER, ASK_NEW_RUN_AFTER
from shoal.model.limits import MAX_RETURNS
from shoal.model.task.visible import NOT_VISIBLE, Evidence
from shoal.wire.messages import Report
from tests.unit.engine.stand import Stand, good

NEEDED = {"visible": {"/anna": Evidence(True, False, "a" * 16, 7).text}, "retries": 1}
ELSEWHERE = {"visible": {"/anna": Evidence(True, False, "b" * 16, 7).text}}
PREFERRED = {"visible": {"/anna": Evidence(False, False, "a" * 16, 7).text}}


def blind(attempt: str) -> Report:
    """The report of a pilot that does not see what the attempt needs."""
    return Report(attempt, "returned", message="this host does not see it", evidence=NOT_VISIBLE)


def test_it_is_given_back_without_burning_anything_and_goes_to_another_pilot() -> None:
    stand = Stand()
    run = stand.submit(NEEDED)
    first = stand.pilot(host="n1")
    assert first.talk(blind(first.work())).leases == []
    stand.submit(NEEDED, NEEDED)
    assert first.pull() == [], "it is not offered again, nor is what needs the same"
    assert stand.why(run).code == "not_visible"
    second = stand.pilot(host="n2")
    assert second.verdict(good(second.work())) == "recorded"
    row = stand.row(run)
    assert (row.state, row.retries, row.losses, row.host) == ("succeeded", 0, 0, "n2")
    assert stand.events("task_retried") == stand.events("place_banned") == [] and stand.sound()


@pytest.mark.parametrize("task", [ELSEWHERE, PREFERRED, {}])
def test_what_needs_something_else_is_offered_as_before(task: dict[str, object]) -> None:
    stand = Stand()
    stand.submit(NEEDED)
    pilot = stand.pilot()
    pilot.talk(blind(pilot.work()))
    stand.submit(task)
    assert len(pilot.pull()) == 1


def test_a_pilot_is_asked_again_after_a_while() -> None:
    """A file system may have been mounted meanwhile."""
    stand = Stand()
    stand.submit(NEEDED)
    pilot = stand.pilot()
    pilot.talk(blind(pilot.work()))
    for _ in range(int(ASK_AFTER / 10.0)):
        assert pilot.pull() == []
        stand.pass_time(10.0)
    assert len(pilot.pull()) == 1


def test_a_new_run_makes_it_look_again_but_not_at_once() -> None:
    stand = Stand()
    stand.submit(NEEDED)
    pilot = stand.pilot()
    pilot.talk(blind(pilot.work()))
    stand.submit(NEEDED)
    assert pilot.pull() == []
    stand.pass_time(ASK_NEW_RUN_AFTER)
    stand.submit(NEEDED)
    assert len(pilot.pull()) == 1


def test_a_pilot_that_says_so_of_a_task_that_needs_nothing_is_not_believed() -> None:
    """It would give back everything for ever: it is counted as one that does."""
    stand = Stand()
    stand.submit({})
    pilot = stand.pilot()
    leases = pilot.pull()
    for _ in range(MAX_RETURNS):
        assert len(leases) == 1
        leases = pilot.talk(blind(leases[0].attempt)).leases
    assert leases == [] and stand.engine.state.ban_of(stand.engine.state.pilots[pilot.name]) is not None
