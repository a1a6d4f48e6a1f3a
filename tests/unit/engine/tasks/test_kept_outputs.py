"""What tasks wrote, as inputs of those that wait for them [ADR 0047; ADR 0063]."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.engine.commands import Accept, Submit
from shoal.model.errors import BadInput
from shoal.model.limits import MAX_FAILED_PLACES
from shoal.model.task.kept_files import KeptFile, pack
from shoal.model.task.visible import NOT_VISIBLE, Evidence
from shoal.wire.messages import Capacity, Lease, Report, Step
from shoal.wire.submission import parse_submission
from tests.unit.engine.locality.hosts_with_files import digest, host, tell
from tests.unit.engine.stand import OWNER, FakePilot, Stand, bad, good


def wrote(lease: Lease, *names: str, url: str = "", **more: Any) -> Report:
    """It succeeded, and left these files on the server, or at a URL."""
    return good(lease.attempt, result=pack({name: KeptFile(digest(name), 10, 0o644, url) for name in names}), **more)


def first_of(pilot: FakePilot) -> Lease:
    (lease, *_) = pilot.took() or pilot.pull()
    return lease


def test_a_child_gets_the_files_of_a_directory_that_its_parent_wrote_and_no_others() -> None:
    stand = Stand()
    pilot = host(stand, "n1")
    stand.submit(
        {"name": "make", "outputs": ["out", "x"]},
        {"name": "all", "after": ["make"], "inputs": ["out"]},
        {"name": "part", "after": ["make"], "inputs": ["out/deep", "x"]},
    )
    made = first_of(pilot)
    assert made.shared, "others wait for it"
    pilot.talk(wrote(made, "out/a", "out/deep/b", "x", "undeclared", "outer/c", "out/../evil"))
    leases = {lease.inputs[0]: lease for lease in (*pilot.took(), *pilot.pull())}
    if "out/deep" not in leases:
        pilot.talk(good(leases["out"].attempt))
        leases["out/deep"] = first_of(pilot)
    assert set(leases["out"].kept) == {"out/a", "out/deep/b"} and not leases["out"].shared
    assert set(leases["out/deep"].kept) == {"out/deep/b", "x"}


def test_a_child_gets_the_files_of_a_parent_whose_result_an_earlier_run_has() -> None:
    stand = Stand()
    pilot = host(stand, "n1")
    tables: list[dict[str, Any]] = [
        {"name": "make", "command": ["m"], "outputs": ["x"]},
        {"after": ["make"], "command": ["r"], "inputs": ["x"]},
    ]
    before = stand.submit(*tables)
    pilot.talk(wrote(first_of(pilot), "x"))
    pilot.talk(bad(next(iter(pilot.held))))
    stand.do(Submit(parse_submission({"tasks": tables}), OWNER, "d", reused=((1, stand.row(before)),)))
    stand.commit()
    stand.do(Accept(before + 1))
    assert set(first_of(pilot).kept) == {"x"}
    stand.restart()
    assert set(stand.engine.state.runs[before + 1].kept) == {"x"}


def test_what_was_stored_elsewhere_is_named_with_its_url_also_after_a_restart() -> None:
    stand = Stand()
    pilot = host(stand, "n1")
    stand.submit(
        {"name": "make", "outputs": ["x"], "store": {"x": "file:///s/x"}},
        {"after": ["make"], "inputs": ["x"], "cores": 2},
    )
    made = first_of(pilot)
    assert made.own and made.store == {"x": "file:///s/x"}
    pilot.talk(wrote(made, "x", url="http://elsewhere/"))  # where it is says the task
    stand.restart()
    stand.engine.state.unreconciled.clear()
    child = first_of(host(stand, "n2", cores=2))
    assert child.kept == {"x": f"{digest('x')} 644 10 file:///s/x"}


def test_a_child_goes_where_the_files_are_that_its_parents_wrote() -> None:
    """[CMS C5; LBO D9]."""
    stand = Stand()
    stand.policy(data={"wait": "never"})
    north, south = host(stand, "n1"), host(stand, "n2")
    stand.submit(
        {"name": "make", "command": ["true"], "outputs": ["{f}"], "params": {"f": ["a", "b"]}},
        {"after": ["make"], "command": ["true", "{f}"], "inputs": ["{f}"], "params": {"f": ["a", "b"]}},
    )
    leases = [first_of(north), first_of(south)]
    names = [lease.outputs[0].format(**(lease.params[0] if lease.params else {})) for lease in leases]
    assert sorted(names) == ["a", "b"]
    tell(north, names[0])
    tell(south, names[1])
    north.talk(wrote(leases[0], names[0]), free=Capacity())
    south.talk(wrote(leases[1], names[1]), free=Capacity())
    for pilot, name in ((south, names[1]), (north, names[0])):
        assert set(first_of(pilot).kept) == {name}


def test_a_place_that_did_not_give_a_file_is_told_in_the_journal() -> None:
    stand = Stand()
    pilot = host(stand, "n1")
    stand.submit({"inputs": ["x"]})
    step = Step("stage_in", 1.0, 1, 10, {"server": 10}, {"peer 10.0.0.1:9700": "it is too slow"})
    pilot.talk(good(first_of(pilot).attempt, steps=[step]))
    (event,) = [event for event in stand.journal if event.kind == "place_failed"]
    assert event.data == {"place": "peer 10.0.0.1:9700", "why": "it is too slow"} and event.pilot == pilot.name


@pytest.mark.parametrize("failed", [{"x": "y" * 501}, {str(at): "" for at in range(MAX_FAILED_PLACES + 1)}])
def test_a_report_of_more_places_than_there_may_be_is_refused(failed: dict[str, str]) -> None:
    stand = Stand()
    pilot = host(stand, "n1")
    stand.submit({"inputs": ["x"]})
    with pytest.raises(BadInput):
        pilot.talk(good(first_of(pilot).attempt, steps=[Step("stage_in", 1.0, failed=failed)]))


# --- between hosts that see the submitter's directory and others
WANTED = {"visible": {"/anna": Evidence(False, False, "a" * 16, 7).text}}
NEEDED = {"visible": {"/anna": Evidence(True, False, "a" * 16, 7).text}}


def not_sent(lease: Lease) -> Report:
    """The report of a pilot to which an input was not sent, and that does not see where it is."""
    return bad(lease.attempt, cause="stage_in", message="its content was not sent along", evidence=NOT_VISIBLE)


def far_from(stand: Stand, run: int, gone: FakePilot) -> FakePilot:
    """A pilot that has the second task of a run, and does not see what the first one wrote; the pilot of this has ended."""
    stand.bury(gone)
    far = stand.pilot(host="far")
    (lease,) = far.pull()
    far.talk(not_sent(lease))
    return far


def test_what_was_left_in_the_submitters_directory_is_waited_for_and_no_failure() -> None:
    stand = Stand()
    run = stand.submit(
        {"name": "p", "outputs": ["p.out", "dir"], **WANTED},
        {"name": "q", "after": ["p"], "inputs": ["p.out", "dir/deep"], **WANTED},
    )
    sees = stand.pilot(host="sees")
    made = first_of(sees)
    assert not made.sent_on, "all may run at one place: not everything that tasks hand on goes to the server"
    sees.talk(good(made.attempt))
    far = far_from(stand, run, sees)
    assert far.pull() == [] and stand.why(run, 2).code == "not_visible"
    assert stand.state(run, 2) == "ready" and stand.row(run, 2).retries == 0
    stand.restart()
    stand.engine.state.unreconciled.clear()
    again = stand.pilot(host="again")
    again.talk(good(again.work()))
    assert stand.state(run, 2) == "succeeded" and stand.events("task_retried") == [] and stand.sound()


def test_an_input_that_nobody_was_to_write_fails_where_it_is_not_sent() -> None:
    stand = Stand()
    run = stand.submit(
        {"name": "p", "outputs": ["p.out"], **WANTED}, {"name": "q", "after": ["p"], "inputs": ["typo"], **WANTED}
    )
    sees = stand.pilot(host="sees")
    sees.talk(good(first_of(sees).attempt))
    far_from(stand, run, sees)
    assert stand.state(run, 2) == "failed"


def test_what_is_read_at_another_site_goes_to_the_server_wherever_it_is_written() -> None:
    stand = Stand()
    stand.submit(
        {"name": "p", "outputs": ["p.out"], "site": "here", **WANTED},
        {"name": "q", "outputs": ["q.out"], "site": "here", **NEEDED},
        {"after": ["p"], "inputs": ["p.out"], "site": "there", **WANTED},
        {"after": ["p"], "site": "there", **WANTED},
        {"after": ["q"], "inputs": ["q.out"], "site": "there", **NEEDED},
    )
    leases = stand.pilot(2, host="here", site="here").pull()
    assert {lease.outputs[0]: lease.sent_on for lease in leases} == {"p.out": True, "q.out": False}


def test_a_directory_that_several_tasks_write_in_is_read_whole_wherever_each_ran() -> None:
    stand = Stand()
    stand.submit(
        {"name": "p", "outputs": ["parts/{x}"], "params": {"x": "1..2"}, **WANTED},
        {"name": "q", "after": ["p"], "inputs": ["./parts"], **WANTED},
        {"name": "r", "after": ["p"], "inputs": ["parts/1"], **WANTED},
    )
    pilot = stand.pilot(2, host="n1")
    one, two = pilot.pull()
    assert one.sent_on and two.sent_on
    pilot.talk(wrote(one, "parts/1"), wrote(two, "parts/2"))
    found = {lease.inputs[0]: set(lease.kept) for lease in (*pilot.took(), *pilot.pull())}
    assert found == {"./parts": {"parts/1", "parts/2"}, "parts/1": {"parts/1"}}
