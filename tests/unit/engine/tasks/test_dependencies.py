"""Tasks that wait for other runs: released, failed, restarted, retried, cancelled."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from shoal.engine.commands import Accept, Close, Retry, Submit
from shoal.engine.tasks.dependencies import outside_of
from shoal.model.errors import Conflict
from shoal.model.ids import TaskId
from shoal.wire.submission import parse_submission
from shoal.wire.task import parse_spec
from tests.unit.engine.stand import OWNER, FakePilot, Stand, bad, good


def next_of(pilot: FakePilot) -> str:
    """The attempt that a pilot has, or is given now."""
    return next(iter(pilot.held), "") or pilot.pull()[0].attempt


def test_a_run_waits_until_the_one_before_has_succeeded() -> None:
    stand = Stand()
    first = stand.submit({"array": "1-2"}, name="make")
    second = stand.submit({"after": [f"r{first}"]})
    pilot = stand.pilot()
    attempt = pilot.work()
    assert stand.state(second) == "waiting"
    assert stand.why(second).text == "it waits for r1 make (0 of 2 done)"
    pilot.talk(good(attempt))
    assert stand.state(second) == "waiting" and stand.sound()
    pilot.talk(good(next_of(pilot)))
    assert next_of(pilot).startswith(f"r{second}.1#")
    assert stand.sound()


def test_a_task_of_another_run_is_enough() -> None:
    stand = Stand()
    first = stand.submit({"name": "a"}, {"name": "b"})
    second = stand.submit({"after": [f"r{first}.1"], "priority": 9})
    pilot = stand.pilot()
    pilot.talk(good(pilot.work()))
    assert stand.engine.state.runs[first].finished is None
    assert stand.state(second) in ("ready", "leased")
    assert stand.sound()


@pytest.mark.parametrize("named", ["r1", "r1.1"])
def test_a_failure_ends_those_that_need_it_and_frees_those_that_do_not(named: str) -> None:
    stand = Stand()
    stand.submit({})
    needs = stand.submit({"name": "x", "after": [named]}, {"name": "y", "after": ["x"]})
    ended = stand.submit({"after_any": [named]})
    pilot = stand.pilot()
    pilot.talk(bad(pilot.work()))
    assert [stand.state(needs, n) for n in (1, 2)] == ["failed", "failed"]
    spans = {span.low: (span.cause, span.message) for span in stand.reader.spans(needs)}
    assert spans == {
        1: ("dependency_failed", f"{named} did not succeed"),
        2: ("dependency_failed", "x did not succeed"),
    }
    assert stand.engine.state.runs[needs].finished is not None
    assert next_of(pilot).startswith(f"r{ended}.1#")
    assert stand.engine.state.dependents == {} and stand.sound()


def test_what_ended_long_ago_is_known_from_the_database() -> None:
    """Runs leave memory a minute after their end; the server's edge looks them up."""
    stand = Stand()
    body = {"tasks": [{"command": ["true"], "after": ["r1"]}, {"command": ["true"], "after_any": ["r1"]}]}
    stand.submit({})
    pilot = stand.pilot()
    pilot.talk(bad(pilot.work()))
    stand.pass_time(61.0)
    assert stand.engine.state.runs == {}
    answer = stand.do(Submit(parse_submission(body), OWNER, "d", outcomes={1: False})).result
    run = int(answer["run"][1:])
    stand.do(Accept(run))
    assert [stand.state(run, n) for n in (1, 2)] == ["failed", "ready"]
    again = stand.do(Submit(parse_submission(body), OWNER, "e", outcomes={1: True})).result
    assert stand.state(int(again["run"][1:])) == "ready" and stand.sound()


def test_a_restart_forgets_no_dependency() -> None:
    stand = Stand()
    stand.submit({"array": "1-2"})
    second = stand.submit({"after": ["r1"]})
    third = stand.submit({"after": ["r2", "r1.1"]})
    pilot = stand.pilot(2)
    attempts = [lease.attempt for lease in pilot.pull()]
    stand.restart()
    assert [stand.state(second), stand.state(third)] == ["waiting", "waiting"]
    assert stand.sound()
    stand.engine.state.unreconciled.clear()
    pilot.talk(good(attempts[0]), good(attempts[1]))
    assert next_of(pilot).startswith("r2.1#")
    stand.restart()
    assert stand.state(third) == "waiting" and stand.sound()
    stand.engine.state.unreconciled.clear()
    pilot.talk(bad(next_of(pilot)))
    assert stand.state(third) == "failed" and stand.sound()


def test_a_cancelled_run_counts_as_not_succeeded() -> None:
    stand = Stand()
    first = stand.submit({"array": "1-3"})
    needs, ended = stand.submit({"after": ["r1"]}), stand.submit({"after_any": ["r1.2"]})
    stand.cancel(TaskId(first, 2))
    assert [stand.state(needs), stand.state(ended)] == ["waiting", "ready"]
    stand.cancel(first)
    assert stand.state(needs) == "failed" and stand.sound()


def test_a_dependent_that_was_cancelled_is_left_alone() -> None:
    stand = Stand()
    stand.submit({})
    second = stand.submit({"after": ["r1"]})
    stand.cancel(second)
    pilot = stand.pilot()
    pilot.talk(good(pilot.work()))
    assert stand.state(second) == "cancelled" and stand.sound()


def test_an_open_run_is_over_when_it_is_closed() -> None:
    stand = Stand()
    first = stand.submit({}, open=True)
    second = stand.submit({"after": [f"r{first}"]})
    pilot = stand.pilot()
    pilot.talk(good(pilot.work()))
    assert stand.state(second) == "waiting"
    stand.do(Close(first))
    assert stand.state(second) in ("ready", "leased") and stand.sound()


def test_inside_a_run_the_end_of_a_table_is_enough_if_it_is_asked_for() -> None:
    stand = Stand()
    run = stand.submit(
        {"name": "a", "array": "1-2"}, {"name": "b", "after": ["a"]}, {"name": "clean", "after_any": ["a", "b"]}
    )
    pilot = stand.pilot()
    pilot.talk(bad(pilot.work()))
    assert [stand.state(run, n) for n in (3, 4)] == ["failed", "waiting"]
    assert stand.why(run, 4).fix == "it becomes ready when they have ended, in whatever way"
    pilot.talk(good(next_of(pilot)))
    assert next_of(pilot).startswith(f"r{run}.4#") and stand.sound()
    pilot.talk(bad(next_of(pilot)))
    assert stand.retry(run) == 3
    assert [stand.state(run, n) for n in (1, 3, 4)] == ["ready", "waiting", "waiting"]
    assert stand.sound()


def test_a_retry_waits_again_or_is_refused() -> None:
    stand = Stand()
    first, second = stand.submit({}), stand.submit({"after": ["r1"]})
    pilot = stand.pilot()
    pilot.talk(bad(pilot.work()))
    stand.commit()
    loaded, failed = stand.database.load_run(second), stand.database.failed_rows(second)
    assert loaded is not None
    stand.engine.load(loaded)
    with pytest.raises(Conflict, match="r1, which it waits for, did not succeed"):
        stand.do(Retry(second, tuple(failed.tasks), tuple(failed.spans), {1: False}))
    assert stand.retry(first) == stand.retry(second) == 1
    assert stand.state(second) == "waiting" and stand.sound()
    pilot.talk(good(pilot.work()))
    assert next_of(pilot).startswith("r2.1#") and stand.sound()


def test_a_table_of_the_same_run_comes_before_a_run_of_that_name() -> None:
    spec = parse_spec({"command": ["true"], "after": ["r1", "r2.3"], "after_any": ["r4", "r2.3"]})
    assert outside_of(spec, {"r1"}) == {TaskId(2, 3): True, 4: False}


@pytest.mark.parametrize("seed", range(40))
def test_in_random_worlds_nothing_starts_before_what_it_waits_for(seed: int) -> None:
    """Runs that wait for tables, runs and tasks, with failures, cancellations and restarts: each start is judged by what
    had ended until then, and each end by what it needed."""
    rng, stand = Random(seed), Stand()
    ends: dict[TaskId, bool] = {}
    needs: dict[TaskId, list[tuple[set[TaskId], bool]]] = {}
    for _ in range(rng.randint(2, 6)):
        _submit(rng, stand, needs)
    pilot = stand.pilot(2)
    while any(run.finished is None for run in stand.engine.state.runs.values()):
        if rng.random() < 0.15:
            stand.restart()
            stand.engine.state.unreconciled.clear()
        if rng.random() < 0.05:
            open_runs = [number for number, run in stand.engine.state.runs.items() if run.finished is None]
            stand.cancel(rng.choice(open_runs))
        leases = [lease.attempt for lease in pilot.pull()] or list(pilot.held)
        for attempt in leases:
            task = _task(attempt)
            if stand.state(*task) not in ("leased", "running"):
                pilot.talk(good(attempt))  # it was cancelled: the report comes too late
                continue
            for group, must_succeed in needs[task]:
                assert all(stand.state(*parent) in ("succeeded", "failed", "cancelled") for parent in group), task
                assert not must_succeed or all(ends.get(parent) for parent in group), task
            ends[task] = rng.random() < 0.7
            pilot.talk(good(attempt) if ends[task] else bad(attempt))
        assert stand.sound()
    for task, groups in needs.items():
        lost = any(must and not all(ends.get(parent) for parent in group) for group, must in groups)
        assert stand.state(*task) in (("failed", "cancelled") if lost else ("succeeded", "failed", "cancelled"))
        assert not (lost and task in ends), task


def _task(attempt: str) -> TaskId:
    run, _, element = attempt.partition("#")[0][1:].partition(".")
    return TaskId(int(run), int(element))


def _submit(rng: Random, stand: Stand, needs: dict[TaskId, list[tuple[set[TaskId], bool]]]) -> None:
    """A run of a few tables, each of which waits for some of what there is."""
    before: dict[int, int] = {}
    for known in needs:
        before[known.run] = max(before.get(known.run, 0), known.element)
    number, tables, first = len(before) + 1, list[dict[str, Any]](), 1
    own: dict[str, set[TaskId]] = {}
    for at in range(rng.randint(1, 3)):
        size = rng.randint(1, 2)
        elements = {TaskId(number, first + n) for n in range(size)}
        groups: list[tuple[set[TaskId], bool]] = []
        table: dict[str, Any] = {"name": f"t{at}", "array": f"1-{size}", "after": [], "after_any": []}
        for field in ("after", "after_any"):
            choices: dict[str, set[TaskId]] = dict(own)
            for run, most in before.items():
                choices[f"r{run}"] = {TaskId(run, n + 1) for n in range(most)}
                some = rng.randint(1, most)
                choices[f"r{run}.{some}"] = {TaskId(run, some)}
            for name in rng.sample(sorted(choices), min(len(choices), rng.randint(0, 2))):
                table[field].append(name)
                groups.append((choices[name], field == "after"))
        needs.update(dict.fromkeys(elements, groups))
        own[f"t{at}"] = elements
        tables.append(table)
        first += size
    assert stand.submit(*tables) == number
