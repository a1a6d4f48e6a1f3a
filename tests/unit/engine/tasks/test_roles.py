"""What workflows need of the engine [ADR 0051]: exit codes that end retries or runs, limits of categories, tasks that do
nothing, final tasks and services."""

from __future__ import annotations

import pytest

from shoal.model.errors import BadInput
from shoal.model.ids import TaskId
from shoal.wire.submission import parse_submission
from tests.unit.engine.stand import FakePilot, Stand, bad, good


def next_of(pilot: FakePilot) -> str:
    """The attempt that a pilot has, or is given now."""
    return next(iter(pilot.held), "") or pilot.pull()[0].attempt


def element_of(attempt: str) -> int:
    return int(attempt.partition("#")[0].partition(".")[2])


def run_all(stand: Stand, pilot: FakePilot, codes: dict[int, list[int]] | None = None) -> list[int]:
    """Have a pilot work until nothing is left; `codes`: how the attempts at an element end, 0 if it is not said. Returns the
    elements in the order of their attempts."""
    codes, order = codes or {}, []
    while pilot.held or pilot.pull():
        attempt = next(iter(pilot.held))
        order.append(element_of(attempt))
        left = codes.get(order[-1], [])
        code = left.pop(0) if left else 0
        pilot.talk(bad(attempt, exit_code=code) if code else good(attempt))
        assert stand.sound()
    return order


def states(stand: Stand, run: int, count: int) -> list[str]:
    return [stand.state(run, element) for element in range(1, count + 1)]


def test_no_retry_follows_an_exit_code_that_ends_it() -> None:
    stand = Stand()
    run = stand.submit({"retries": 5, "unless_exit": [7]})
    assert run_all(stand, stand.pilot(), {1: [1, 7, 1]}) == [1, 1]
    assert states(stand, run, 1) == ["failed"]


def test_an_exit_code_cancels_the_rest_of_the_run_whatever_retries_are_left() -> None:
    stand = Stand()
    run = stand.submit({"retries": 5, "abort_on": [9], "priority": 1}, {"name": "b"}, {"after": ["b"]})
    assert run_all(stand, stand.pilot(), {1: [9]})[0] == 1
    assert states(stand, run, 3) == ["failed", "cancelled", "cancelled"]
    assert len(stand.events("run_aborted")) == 1


def test_a_success_may_end_the_run_too() -> None:
    stand = Stand()
    run = stand.submit({"abort_on": [0], "name": "a"}, {"after": ["a"]})
    assert run_all(stand, stand.pilot()) == [1]
    assert states(stand, run, 2) == ["succeeded", "cancelled"]


@pytest.mark.parametrize("codes", [{}, {1: [1]}])
def test_a_final_task_comes_after_all_others_however_they_ended(codes: dict[int, list[int]]) -> None:
    stand = Stand()
    run = stand.submit({"role": "final", "priority": 9}, {"name": "a"}, {"name": "b", "after": ["a"]})
    codes = {2: codes[1]} if codes else {}
    order = run_all(stand, stand.pilot(), codes)
    assert order[-1] == 1
    assert states(stand, run, 3) == (["succeeded", "failed", "failed"] if codes else ["succeeded"] * 3)


def test_a_final_task_is_told_how_many_failed_by_themselves() -> None:
    stand = Stand()
    stand.submit({"role": "final"}, {"name": "a"}, {"name": "b", "after": ["a"]}, {"name": "c"}, {"name": "d"})
    pilot = stand.pilot()
    leases = pilot.pull()
    while element_of(leases[0].attempt) != 1:
        attempt = leases[0].attempt
        leases = pilot.talk(bad(attempt) if element_of(attempt) in (2, 4) else good(attempt)).leases
    (lease,) = leases
    told = {name: value for name, value in lease.env.items() if name in ("SHOAL_FAILED", "SHOAL_SUCCEEDED")}
    assert told == {"SHOAL_FAILED": "2", "SHOAL_SUCCEEDED": "1"}


def test_a_final_task_runs_after_an_abort_but_not_when_the_run_is_cancelled() -> None:
    stand = Stand()
    pilot = stand.pilot()
    aborted = stand.submit({"role": "final"}, {"abort_on": [3]}, {"priority": -1})
    assert run_all(stand, pilot, {2: [3]}) == [2, 1]
    assert states(stand, aborted, 3) == ["succeeded", "failed", "cancelled"]
    cancelled = stand.submit({"role": "final"}, {})
    stand.cancel(cancelled)
    assert states(stand, cancelled, 2) == ["cancelled", "cancelled"]
    assert stand.sound()


def test_a_final_task_waits_and_says_for_what() -> None:
    stand = Stand()
    run = stand.submit({"role": "final"}, {}, {})
    assert stand.state(run) == "waiting"
    assert "all others of its run" in stand.why(run, 1).text


def test_a_final_task_is_not_forgotten_by_a_crash_at_any_moment() -> None:
    stand = Stand()
    run = stand.submit({"role": "final"}, {"name": "a"}, {"noop": True, "after": ["a"]})
    stand.crash()
    assert states(stand, run, 3) == ["waiting", "ready", "waiting"]
    pilot = stand.pilot()
    pilot.talk(good(next_of(pilot)))
    stand.commit()
    stand.restart()
    assert states(stand, run, 3)[1:] == ["succeeded", "succeeded"]
    assert stand.state(run, 1) in ("ready", "leased", "running")
    assert stand.sound()


def test_a_service_ends_with_the_others_and_that_is_its_success() -> None:
    stand = Stand()
    run = stand.submit({"role": "service", "priority": 9}, {"name": "a"})
    pilot = stand.pilot(cores=2)
    pilot.pull()
    service, other = sorted(pilot.held, key=element_of)
    pilot.run(service)
    pilot.talk(good(other))
    assert states(stand, run, 2) == ["succeeded", "succeeded"]
    assert stand.engine.state.runs[run].finished is not None
    assert stand.sound()


def test_a_service_that_never_began_is_cancelled() -> None:
    stand = Stand()
    run = stand.submit({}, {"role": "service", "priority": -5})
    pilot = stand.pilot()
    pilot.talk(good(next_of(pilot)))
    assert states(stand, run, 2) == ["succeeded", "cancelled"]
    assert stand.sound()


def test_tasks_that_do_nothing_reach_no_pilot_and_release_what_waits_for_them() -> None:
    stand = Stand()
    chain = [{"name": f"n{at}", "noop": True, "after": [f"n{at - 1}"] if at else []} for at in range(3_000)]
    run = stand.submit(*chain, {"after": ["n2999"]})
    assert states(stand, run, 3_001)[2_999:] == ["succeeded", "ready"]
    assert run_all(stand, stand.pilot()) == [3_001]
    assert stand.engine.state.runs[run].finished is not None


def test_a_task_that_does_nothing_waits_for_its_parents() -> None:
    stand = Stand()
    run = stand.submit({"name": "a"}, {"name": "b", "noop": True, "after": ["a"]}, {"after": ["b"]})
    assert states(stand, run, 3) == ["ready", "waiting", "waiting"]
    pilot = stand.pilot()
    assert run_all(stand, pilot, {1: [1]}) == [1]
    assert states(stand, run, 3) == ["failed", "failed", "failed"]
    assert stand.retry(run) == 3
    assert len(pilot.took()) == 1 and stand.sound()
    assert run_all(stand, pilot) == [1, 3]
    assert states(stand, run, 3) == ["succeeded"] * 3


def test_a_task_that_does_nothing_may_be_cancelled_alone_and_retried() -> None:
    stand = Stand()
    run = stand.submit({"name": "a"}, {"name": "b", "noop": True, "after": ["a"]})
    stand.cancel(TaskId(run, 2))
    pilot = stand.pilot()
    assert run_all(stand, pilot) == [1]
    assert states(stand, run, 2) == ["succeeded", "cancelled"]
    assert stand.retry(run) == 1
    assert states(stand, run, 2) == ["succeeded", "succeeded"]
    assert stand.sound()


def test_of_a_category_no_more_run_than_its_limit() -> None:
    stand = Stand()
    run = stand.submit({"category": "io%2", "array": "1-4"}, {"category": "io%2"}, {"array": "1-3"}, max_running=4)
    pilot = stand.pilot(cores=8)
    pilot.pull()
    held = sorted(map(element_of, pilot.held))
    assert held == [1, 2, 6, 7]
    assert "category io" in stand.why(run, 5).text
    assert stand.sound()
    pilot.talk(*(good(attempt) for attempt in list(pilot.held)))
    pilot.pull()
    assert sorted(map(element_of, pilot.held)) == [3, 4, 8]
    stand.restart()
    assert stand.sound()


def test_retries_are_numbered_for_the_task() -> None:
    stand = Stand()
    stand.submit({"retries": 2})
    pilot = stand.pilot()
    (first,) = pilot.pull()
    (second,) = pilot.talk(bad(first.attempt)).leases
    assert ("SHOAL_RETRY" in first.env, second.env["SHOAL_RETRY"]) == (False, "1")


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ([{"role": "boss"}], "not a role"),
        ([{"role": "final", "after": ["a"]}, {"name": "a"}], "waits for nothing"),
        ([{"name": "a", "role": "service"}, {"after": ["a"]}], "nothing waits for it"),
        ([{"category": "io"}], "not a category"),
        ([{"category": "io%2"}, {"category": "io%3"}], "limits 2 and 3"),
        ([{"unless_exit": [256]}], "no exit codes"),
        ([{"abort_on": ["x"]}], "no exit codes"),
        ([{"abort_on": [True]}], "no exit codes"),
        ([{"noop": 1}], "true or false"),
    ],
)  # fmt: skip
def test_wrong_fields_are_refused(tasks: list[dict[str, object]], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse_submission({"tasks": [{"command": ["true"], **task} for task in tasks]})


@pytest.mark.parametrize("rerun", ["safe", "exclusive", "never"])
def test_a_final_task_that_began_before_others_were_retried_is_recorded(rerun: str) -> None:
    stand = Stand()
    pilot = stand.pilot()
    run = stand.submit({"name": "a"}, {"name": "b", "role": "final", "rerun": rerun})
    pilot.talk(bad(pilot.work()))
    (final,) = pilot.held
    pilot.run(final)
    assert stand.retry(run) == 1
    assert pilot.verdict(good(final)) == "recorded" and stand.state(run, 2) == "succeeded" and stand.sound()
