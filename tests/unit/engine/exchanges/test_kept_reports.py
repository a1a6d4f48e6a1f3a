"""Reports that other pilots kept and deliver: judged as if their own pilot had sent them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.engine.commands import Expel
from shoal.model.credentials import digest
from shoal.model.errors import BadInput
from shoal.model.limits import MAX_SEALED_REPORTS
from shoal.pilot.leader.report_copies import ReportCopies, ReportsToCopy
from shoal.wire import codec
from shoal.wire.messages import Report, Sealed
from shoal.wire.seal import EXCHANGE, KEPT, seal
from tests.unit.engine.stand import FakePilot, Stand, bad, good
from tests.unit.engine.windows.test_window import Site


def copy(pilot: FakePilot, *reports: Report, kind: str = KEPT) -> Sealed:
    exchange = ReportCopies().message(pilot.name, ReportsToCopy(list(reports), []), pilot.proofs.to_send())
    return seal(digest(pilot.session), kind, pilot.name, codec.encode(exchange).decode())


def deliver(stand: Stand, keeper: FakePilot, *copies: Sealed) -> list[str]:
    return keeper.talk(sealed=list(copies)).unsealed


def begun(stand: Stand) -> tuple[FakePilot, FakePilot, int, str]:
    keeper, pilot = stand.pilot(identity="other", host="keeps"), stand.pilot(host="worked")
    run = stand.submit({})
    return keeper, pilot, run, pilot.work()


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("is_lost", [False, True])
def test_a_report_counts_once_whether_its_pilot_is_gone_or_not(is_lost: bool, is_restarted: bool) -> None:
    stand = Stand()
    keeper, pilot, run, attempt = begun(stand)
    kept = copy(pilot, good(attempt))
    if is_restarted:
        stand.restart()
    if is_lost:
        stand.bury(pilot)
    assert deliver(stand, keeper, kept) == [kept.seal]
    assert stand.state(run) == "succeeded"
    row = stand.row(run)
    assert (row.attempt, row.pilot) == (1, pilot.name)
    assert deliver(stand, keeper, kept) == [kept.seal], "another keeper brings it, too"
    assert len(stand.events("task_finished")) == 1
    assert [event.pilot for event in stand.events("reports_delivered")] == [pilot.name] * 2
    if not is_lost:
        pilot.held.clear()
        assert pilot.verdict(good(attempt)) == "recorded", "its outputs are good"
    assert stand.sound()


def test_a_late_failure_of_a_pilot_that_is_gone_does_not_count() -> None:
    stand = Stand()
    keeper, pilot, run, attempt = begun(stand)
    stand.bury(pilot)
    kept = copy(pilot, bad(attempt))
    assert deliver(stand, keeper, kept) == [kept.seal]
    assert stand.state(run) in ("ready", "leased")


def test_only_what_the_pilot_itself_sealed_counts() -> None:
    stand = Stand()
    keeper, pilot, run, attempt = begun(stand)
    true = copy(pilot, good(attempt))
    false = [
        copy(keeper, good(attempt)),  # the keeper had no such attempt
        replace(true, body=true.body.replace('"exit_code":0', '"exit_code":3')),
        replace(true, pilot=keeper.name),
        replace(copy(keeper, good(attempt)), pilot=pilot.name),
        copy(pilot, good(attempt), kind=EXCHANGE),
        seal(digest(pilot.session), KEPT, pilot.name, "no JSON"),
        seal(digest(pilot.session), KEPT, pilot.name, codec.encode(keeper.make()).decode()),
    ]
    done = deliver(stand, keeper, *false)
    assert done == [one.seal for one in false], "nobody need keep them"
    assert stand.state(run) == "running"
    assert deliver(stand, keeper, true) == [true.seal]
    assert stand.state(run) == "succeeded"


def test_a_copy_of_a_pilot_that_this_server_never_had_is_kept_on() -> None:
    stand = Stand()
    keeper = stand.pilot()
    assert deliver(stand, keeper, Sealed("p00000000", "{}", "0" * 64)) == []


def test_a_pilot_that_was_sent_away_is_not_heard_through_others() -> None:
    stand = Stand()
    keeper, pilot, run, attempt = begun(stand)
    stand.engine.state.pilots[pilot.name].token = "t1"
    stand.do(Expel(("t1",), "revoked"))
    kept = copy(pilot, good(attempt))
    assert deliver(stand, keeper, kept) == [kept.seal]
    assert stand.state(run) != "succeeded"


def test_a_copy_of_a_pilot_that_came_back_under_another_name_counts_as_its_own() -> None:
    stand = Stand()
    keeper, pilot, run, attempt = begun(stand)
    kept = copy(pilot, good(attempt))
    again = stand.pilot(former=pilot)
    assert deliver(stand, keeper, kept) == [kept.seal]
    assert stand.state(run) == "succeeded"
    assert stand.row(run).pilot == again.name


def test_copies_in_one_exchange_are_bounded() -> None:
    stand = Stand()
    keeper = stand.pilot()
    for copies in ([Sealed("p1", "", "")] * (MAX_SEALED_REPORTS + 1), [Sealed("p1", "x" * (1 << 22), "")]):
        with pytest.raises(BadInput):
            keeper.send(keeper.make(sealed=copies))


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_task_of_a_window_that_a_member_ended_while_the_server_was_away_counts_although_it_is_gone(
    is_gone: bool,
) -> None:
    site = Site()
    run = site.stand.submit({"array": "1-30"})
    site.fill()
    lease = list(site.window.values())[-1]
    element = int(lease.attempt.split("#")[0].split(".")[1])
    site.stand.restart()
    worker, keeper = site.pilots[1], site.pilots[2]
    worker.proofs.take(lease)
    kept = copy(worker, good(lease.attempt))
    if is_gone:
        site.stand.bury(worker)
    assert deliver(site.stand, keeper, kept) == [kept.seal]
    assert site.stand.state(run, element) == "succeeded"
    assert site.stand.row(run, element).pilot == worker.name
    assert deliver(site.stand, keeper, kept) == [kept.seal]
    assert len(site.stand.events("task_finished")) == 1
    assert site.stand.sound()
