"""[DIANE] the thesis on a user-level overlay with DIANE and Ganga; see docs/papers.md.

Each test names the section, a few words of the sentence, and runs what Shoal has of it today.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from shoal.model.errors import ShoalError
from shoal.sched.demand import DemandRule, Need, SiteView, plan
from shoal.wire.chunk import single
from tests.integration.cluster import Cluster, _inodes, _listeners, children
from tests.integration.conftest import cluster, pilot_zip
from tests.unit.engine.stand import FakePilot, Stand, bad, good

__all__ = ["cluster", "pilot_zip"]  # fixtures


def _commands(pilot: FakePilot, count: int) -> list[str]:
    """What a pilot with one slot gets, one after the other."""
    names, leases = [], pilot.pull()
    for _ in range(count):
        (lease,) = leases
        names.append(lease.command[-1])
        leases = pilot.talk(good(lease.attempt, duration=50.0)).leases
    return names


def test_tasks_are_dispatched_first_come_first_served() -> None:
    """4.5.6, "on the first-come first-served basis", and "when the queue is empty, the run terminates"."""
    stand = Stand()
    runs = [stand.submit({"command": [name]}) for name in "cab"]
    assert _commands(stand.pilot(), 3) == ["c", "a", "b"]
    assert [event.run for event in stand.events("run_finished")] == runs


def test_failed_and_lost_tasks_are_rescheduled() -> None:
    """4.5.6, "may automatically reschedule failed or lost tasks"."""
    stand = Stand()
    run = stand.submit({"array": "1-2", "retries": 1})
    failing, dying = stand.pilot(host="a"), stand.pilot(host="b")
    failing.talk(bad(failing.work()))
    dying.work()
    stand.pass_time(3)
    stand.bury(dying)
    (lost,) = stand.events("task_lost_pilot")
    assert 2.9 < lost.data["seconds"] < 4.0, "6.5.1: the journal has what the anatomy of a run needs"
    stand.pass_time(1)
    fresh = stand.pilot(host="c")
    for _ in range(4):
        for pilot in (fresh, failing):
            pilot.pull()
            pilot.talk(*(good(attempt) for attempt in list(pilot.held)))
        stand.pass_time(1)
    assert [stand.state(run, element) for element in (1, 2)] == ["succeeded"] * 2
    assert len(stand.events("task_retried")) == len(stand.events("task_lost_pilot")) == 1


def test_a_worker_that_consistently_fails_is_black_listed() -> None:
    """4.5.6, "automatically black-listed": what works elsewhere and fails here bans this host, and no other."""
    stand = Stand()
    stand.submit({"array": "1-500"})
    fine, hole = stand.pilot(host="fine"), stand.pilot(host="hole")
    for _ in range(20):
        stand.now += 0.5
        fine.talk(*(good(attempt, duration=0.5) for attempt in list(fine.held)))
        hole.talk(*(bad(attempt, duration=0.001) for attempt in list(hole.held)))
    banned = {event.data["name"] for event in stand.events("place_banned")}
    assert banned == {"hole", hole.name}
    assert hole.pull() == [] and fine.held


def test_a_worker_that_is_silent_is_lost_and_what_it_says_later_is_ignored() -> None:
    """4.5.3, a silent worker "is marked as lost"; "once a worker is removed, all further connection attempts" count for
    nothing until it registers anew."""
    stand = Stand()
    run = stand.submit({})
    lost = stand.pilot(host="lost")
    attempt = lost.work()
    stand.commit()
    stand.pass_time(stand.timing.lease + 1)
    assert [event.pilot for event in stand.events("pilot_gone")] == [lost.name]
    other = stand.pilot(host="other")
    second = other.work()
    with pytest.raises(ShoalError) as refused:
        lost.talk(good(attempt))
    assert refused.value.code == "re_enrol"
    other.talk(good(second))
    assert stand.state(run) == "succeeded" and Counter(e.kind for e in stand.journal)["task_finished"] == 1


def test_each_task_has_a_seed_of_its_own_made_of_the_runs_seed() -> None:
    """5.1.2, "an array of seeds, one seed per task", from one master seed: the same in every replay, and also for a task
    that is tried again."""

    def seeds(master: int) -> dict[str, str]:
        stand = Stand()
        stand.submit({"array": "1-20", "retries": 1}, seed=master)
        pilot = stand.pilot(32)
        (answer,) = [a.reply for a in [pilot.send(pilot.make())] if a is not None]
        found = [single(lease, at) for lease in answer.leases for at in range(lease.count)]
        return {lease.attempt.partition("#")[0]: lease.env["SHOAL_SEED"] for lease in found}

    first = seeds(42)
    assert len(first) == len(set(first.values())) == 20
    assert seeds(42) == first
    assert not set(seeds(43).values()) & set(first.values())


@pytest.mark.integration
def test_workers_only_call_out_and_a_crash_is_reported_cleanly(cluster: Cluster) -> None:
    """4.5.4, "always unidirectional: from the workers to the master": no process of a pilot listens for anybody.
    4.5.2, "may cleanly report the application crash": a task that dies of a signal is a report, and the pilot works on.
    4.5.6, "CPU and wall-clock times" are measured."""
    cluster.start_server()
    pilot = cluster.start_pilot(1)
    go = cluster.cwd / "go"
    burn = "n = 0\nwhile not os.path.exists(sys.argv[1]) or time.process_time() < 0.2: n += 1"
    run = cluster.submit(
        {"command": ["sh", "-c", "kill -SEGV $$"], "retries": 0},
        {"command": ["python3", "-c", f"import os, sys, time\n{burn}", str(go)]},
    )
    cluster.wait_running(run, [2])
    family = _family(pilot.pid)
    assert len(family) >= 3, "the pilot, its guard and the task"
    assert not {inode for pid in family for inode in _inodes(pid)} & set(_listeners())
    go.touch()
    assert cluster.wait_run(run) == {"failed": 1, "succeeded": 1}
    crashed, worked = cluster.rows(run)
    assert (crashed["state"], crashed["cause"], crashed["signal"]) == ("failed", "signal", 11)
    assert worked["cpu"] >= 0.2 and worked["duration"] >= 0.2
    assert pilot.is_alive


def _family(pid: int) -> list[int]:
    return [pid, *(one for child in children(pid) for one in _family(child))]


def test_the_agent_factory_keeps_the_pool_full_and_no_larger_and_sends_where_agents_do_well() -> None:
    """4.7.2, "maintain the number of active workers as high as possible but not greater than a specified number"; 4.7.3, "a
    CE is chosen randomly with probability proportional to its fitness"."""
    chance = Random(3)

    def sent(policy: str, *sites: SiteView, max_pending: int = 0) -> dict[str, int]:
        rule = DemandRule(policy, pool=300, max_pending=max_pending)
        asks = plan(rule, [Need(9_999)], sites, 0.0, chance.random).asks
        return {name: sum(ask.count for ask in asks if ask.site == name) for name in ("ce1", "ce2", "ce3")}

    ces = [
        SiteView(f"ce{at}", max_pilots=999, max_queued=999, fitness=fit) for at, fit in ((1, 1.0), (2, 0.5), (3, 0.0))
    ]
    assert sum(sent("simple", *ces).values()) == 300
    assert sum(sent("simple", ces[0]._replace(busy=250), *ces[1:]).values()) == 50
    assert sum(sent("heuristic", *ces, max_pending=100).values()) == 100, "MAX_PENDING"
    found = sent("heuristic", *ces)
    for name, share in (("ce1", 1.0), ("ce2", 0.5), ("ce3", 0.0)):
        expected = 300 * (share + 1 / 3) / 2.5  # P(CE) of equation 4.2, and a third of the generic slot
        assert abs(found[name] - expected) < 30
