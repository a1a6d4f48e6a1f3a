"""[SPHINX] In, Avery, Cavanaugh et al.: a scheduling middleware over a database; see docs/papers.md.

Each test names the section, a few words of the sentence, and runs what Shoal has of it today.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from shoal.model.errors import IllegalTransition
from shoal.model.states import TASK_TABLE, TaskState, advance
from tests.unit.engine.stand import Stand, bad, good

HOUR = 3600.0


@dataclass
class _Task:
    state: TaskState

    def story(self) -> list[str]:
        return []


def test_a_task_is_a_finite_state_machine_and_nothing_leaves_its_table() -> None:
    """ "The Server": "to function as a finite state machine"."""
    for start in TaskState:
        for end in TaskState:
            task = _Task(start)
            if end in TASK_TABLE[start]:
                advance(task, end)
                assert task.state is end
            else:
                with pytest.raises(IllegalTransition):
                    advance(task, end)
                assert task.state is start


def test_a_crash_resumes_from_the_database() -> None:
    """ "The Server": "a robust recovery system". What was committed goes on where it was, done once."""
    stand = Stand()
    run = stand.submit({"array": "1-3"})
    pilot = stand.pilot()
    first = pilot.work()
    pilot.talk(good(first))
    stand.commit()
    stand.crash()
    assert [stand.state(run, element) for element in (1, 2, 3)] == ["succeeded", "leased", "ready"]
    stand.pass_time(stand.timing.quarantine + stand.timing.lease)  # nobody else comes back
    other = stand.pilot(host="other")
    other.pull()
    while other.held:
        other.talk(*(good(attempt) for attempt in list(other.held)))
    assert [stand.state(run, element) for element in (1, 2, 3)] == ["succeeded"] * 3
    assert len(stand.events("task_finished")) == 3


def test_a_workflow_names_no_place_and_its_tasks_run_after_their_parents() -> None:
    """ "The Scheduling Process": an abstract plan has "the logical I/O dependencies" and no locations; the server decides
    where each task runs, when its parents have succeeded."""
    stand = Stand()
    run = stand.submit(
        {"name": "make", "array": "1-2"}, {"name": "merge", "after": ["make"]}, {"name": "tell", "after": ["merge"]}
    )
    pilots = [stand.pilot(1, host=host) for host in ("one", "two")]
    order = []
    for _ in range(8):
        for pilot in pilots:
            pilot.pull()
            for attempt in list(pilot.held):
                order.append(int(attempt.partition(".")[2].partition("#")[0]))
                pilot.talk(good(attempt))
            stand.commit()
    assert sorted(order[:2]) == [1, 2] and order[2:] == [3, 4]
    assert {stand.state(run, element) for element in range(1, 5)} == {"succeeded"}


def test_quotas_are_over_provider_submitter_and_time_each_a_tree() -> None:
    """ "Policy based scheduling": "resource provider, request submitter, and time", hierarchies with quotas at any level."""
    stand = Stand()
    stand.group("phys.hep", "ann")
    stand.group("phys.bio", "bob")
    stand.policy(
        quota=[
            {"who": "@phys", "site": "eu", "cores": 5},  # a group above theirs, a site above theirs
            {"who": "bob", "cores": 2},
            {"who": "@phys", "site": "eu.cern", "when": "08-18", "cores": 3},
        ]
    )
    stand.now = 10 * 24 * HOUR + 9 * HOUR
    for owner in ("ann", "bob"):
        stand.submit({"array": "1-50"}, owner=owner)
    cern = stand.pilot(16, host="c", group="phys", site="eu.cern")
    desy = stand.pilot(16, host="d", group="phys", site="eu.desy")
    cern.pull()
    desy.pull()
    assert stand.live("ann", "eu.cern") + stand.live("bob", "eu.cern") == 3
    assert stand.live("ann") + stand.live("bob") == 5 and stand.live("bob") <= 2
    stand.now += 9 * HOUR  # in the evening the third rule is none; the first still holds
    cern.talk(*(good(attempt) for attempt in list(cern.held)))
    cern.pull()
    assert stand.live("ann") + stand.live("bob") == 5
    assert stand.live("ann", "eu.cern") + stand.live("bob", "eu.cern") > 0


def test_a_site_where_tasks_run_over_their_time_is_no_longer_good() -> None:
    """ "Experimental results": such a task is "automatically killed, submitted to a different grid-site", and the site
    leaves the list of good ones."""
    stand = Stand()
    run = stand.submit({"array": "1-30", "time": "10s", "retries": 0})
    slow = [stand.pilot(1, host=f"slow{n}", site="slow") for n in range(3)]
    fast = stand.pilot(2, host="fast", site="fast")
    for _ in range(30):
        for pilot in slow:
            pilot.pull()
        for _ in range(5):
            stand.now += 2
            fast.talk(*(good(attempt, duration=2.0) for attempt in list(fast.held)))
        for pilot in slow:
            pilot.talk(*(bad(attempt, cause="over_time", duration=10.0) for attempt in list(pilot.held)))
        stand.pass_time(0.1)
    assert {stand.state(run, element) for element in range(1, 31)} == {"succeeded"}
    retried = [event for event in stand.events("task_retried") if event.site == "slow"]
    assert retried and all(event.data["cause"] == "over_time" for event in retried)
    banned = {(event.data["place"], event.data["name"]) for event in stand.events("place_banned")}
    assert ("site", "slow") in banned and ("site", "fast") not in banned
