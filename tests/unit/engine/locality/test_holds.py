"""waitForData in the engine: who waits for whom, for how long, and what people are told of it [CMS IV.E]."""

from __future__ import annotations

import pytest

from shoal.cli.output.describe import event_text
from shoal.dht.peers import CLIENT_ONLY
from shoal.engine.pilots.mesh import peer_id
from shoal.model.limits import MAX_OVERTAKEN
from shoal.wire.messages import Neighbour
from tests.unit.engine.locality.hosts_with_files import MB, digest, host, inputs_of, reads, sweep, tell
from tests.unit.engine.stand import FakePilot, Stand, good

IDLE = {"wait": "idle"}


def away(stand: Stand, name: str, *files: str) -> FakePilot:
    """An idle pilot with these files whose next request is on its way: it got an answer, and waits for none."""
    pilot = host(stand, name)
    tell(pilot, *files, size=700 * MB)
    stand.pass_time(10.1)  # its exchange is answered empty
    pilot.took()
    stand.engine.state.pilots[pilot.name].seen = stand.now
    return pilot


def test_a_task_is_not_given_to_a_pilot_without_its_data_while_an_idle_one_has_it() -> None:
    stand = Stand()
    stand.policy(data=IDLE)
    holder, other = away(stand, "n1", "a"), host(stand, "n2")
    run = stand.submit(reads("a", cores=1))
    assert other.pull() == []
    reason = stand.why(run)
    assert reason.code == "waits_for_data"
    assert reason.text == f"it waits up to 1m00s for {holder.name} (n1), which has 667.6M of its inputs: a"
    assert inputs_of(holder.pull()) == ["a"]


def test_a_pilot_gets_another_task_instead_of_one_that_waits() -> None:
    stand = Stand()
    stand.policy(data=IDLE)
    away(stand, "n1", "a")
    other = host(stand, "n2")
    stand.submit(reads("a"), reads("free"))
    assert inputs_of(other.pull()) == ["free"]


def test_a_task_does_not_wait_for_a_busy_pilot() -> None:
    stand = Stand()
    stand.policy(data=IDLE)
    holder, other = host(stand, "n1", "a"), host(stand, "n2")
    stand.submit({})
    assert len(holder.took() or holder.pull()) == 1
    stand.submit(reads("a"))
    assert inputs_of(other.pull()) == ["a"]


def test_waiting_pilots_take_what_waited_when_its_pilot_takes_something_else() -> None:
    stand = Stand()
    stand.policy(data=IDLE)
    other, holder = host(stand, "n2"), host(stand, "n1", "a", "b")
    other.wait()
    stand.submit(reads("a"), reads("b"))
    assert len(inputs_of(holder.took())) == len(inputs_of(other.took())) == 1
    assert stand.sound()


def test_no_task_waits_longer_than_the_policy_says() -> None:
    stand = Stand()
    stand.policy(data={"wait": "idle", "longest": "20s"})
    holder, other = away(stand, "n1", "a"), host(stand, "n2")
    run = stand.submit(reads("a"))
    leases = other.pull()
    assert leases == []
    for _ in range(25):
        stand.engine.state.pilots[holder.name].seen = stand.now  # it lives, and never asks
        stand.now += 1.0
        if leases := other.pull():
            break
    assert inputs_of(leases) == ["a"]
    assert stand.state(run) == "leased"
    assert stand.sound()


def test_a_waiting_pilot_is_looked_at_again_when_the_time_is_over() -> None:
    stand = Stand()
    stand.policy(data={"wait": "idle", "longest": "3s"})
    away(stand, "n1", "a")
    other = host(stand, "n2")
    other.wait()
    stand.submit(reads("a"))
    assert other.took() == []
    began = stand.now
    for _ in range(10):
        due = stand.engine.deadline()
        assert due is not None
        stand.now = max(stand.now, due)
        stand.pass_time(0.0)
        if other.took():
            break
    assert 3.0 <= stand.now - began <= 4.0


def test_by_cost_a_task_waits_for_a_busy_pilot_that_is_soon_free() -> None:
    stand = Stand()
    holder, other = host(stand, "n1"), host(stand, "n2")
    stand.submit({"array": "1-3"})
    for duration in (30.0, 30.0):
        (lease,) = holder.took() or holder.pull()
        holder.run(lease.attempt)
        holder.talk(good(lease.attempt, duration=duration))
    (attempt,) = holder.held
    holder.run(attempt)
    tell(holder, "a", size=7_000 * MB)
    stand.pass_time(29.0)
    holder.talk()
    run = stand.submit(reads("a"))  # the transfer takes ten minutes, the task that runs is over in some ten seconds
    assert other.pull() == []
    assert stand.why(run).code == "waits_for_data"
    stand.policy(data=IDLE)
    assert inputs_of(other.took()) == ["a"], "as the paper, it does not wait for a busy one"


def test_by_cost_a_small_file_is_not_waited_for() -> None:
    stand = Stand()
    holder, other = host(stand, "n1"), host(stand, "n2")
    stand.submit({"array": "1-2"})
    (lease,) = holder.took() or holder.pull()
    holder.run(lease.attempt)
    holder.talk(good(lease.attempt, duration=30.0))
    holder.run(*holder.held)
    tell(holder, "a", size=1000)
    stand.submit(reads("a"))
    assert inputs_of(other.took() or other.pull()) == ["a"]


# --- pilots that are kept
def blocked(stand: Stand) -> int:
    """A task that reads `a` and fits on no pilot that there is."""
    return stand.submit(reads("a", cores=8))


def test_a_pilot_that_alone_has_what_waits_is_not_idle() -> None:
    stand = Stand()
    run = blocked(stand)
    pilot, empty = host(stand, "n1"), host(stand, "n2")
    tell(pilot, "a")
    stand.pass_time(10.1)
    told = {a.pilot: a.reply.kept for a in stand.last.answers}
    assert told[pilot.name] == 30.0
    assert told.get(empty.name, 0.0) == 0.0
    rows = {row.name: row.is_kept for row in stand.engine.demand("ann", stand.now).pilots}
    assert rows == {pilot.name: True, empty.name: False}
    _, (reason, *_) = stand.engine.why(pilot.name, stand.now)
    assert reason.code == "kept_for_data"
    stand.cancel(run)
    assert not any(row.is_kept for row in stand.engine.demand("ann", stand.now).pilots)


def test_a_pilot_is_not_kept_for_what_others_of_its_site_have_nor_for_ever() -> None:
    stand = Stand()
    blocked(stand)
    pilot = host(stand, "n1", "a")
    far = host(stand, "n2", "a", site="far")
    assert all(row.is_kept for row in stand.engine.demand("ann", stand.now).pilots)
    near = host(stand, "n3", "a")
    rows = {row.name: row.is_kept for row in stand.engine.demand("ann", stand.now).pilots}
    assert rows == {pilot.name: False, far.name: True, near.name: False}
    for _ in range(80):
        stand.pass_time(9.0)
        far.took()
        far.talk()
    rows = {row.name: row.is_kept for row in stand.engine.demand("ann", stand.now).pilots}
    assert not rows[far.name]


def test_of_two_pilots_of_one_host_one_is_kept() -> None:
    stand = Stand()
    blocked(stand)
    host(stand, "n1", "a"), host(stand, "n1", "a")
    assert [row.is_kept for row in stand.engine.demand("ann", stand.now).pilots] == [True, False]


# --- tracked and central sites
def test_at_a_tracked_site_a_lease_names_pilots_that_have_the_files() -> None:
    stand = Stand()
    stand.policy(data={"wait": "never", "sites": {"local": "tracked"}})
    near = host(stand, "n1", "a", bound=True, tags={"peer": "10.0.0.1:4711"})
    host(stand, "n2", "a", bound=True, tags={"peer": "10.0.0.2:4711"}, site="far")
    host(stand, "n3", "a", bound=True, tags={"peer": "10.0.0.3:4711"}, owner="bob")
    host(stand, "n4", "a", bound=True, tags={"peer": CLIENT_ONLY})  # no other pilot reaches it
    host(stand, "n5", "a")  # it takes no part in the mesh
    asking = host(stand, "n6", cores=2, bound=True, tags={"peer": "10.0.0.6:4711"})
    stand.submit(reads("a", "b", cores=2))
    (lease,) = asking.pull()
    assert lease.holders == {digest("a"): [Neighbour(peer_id(stand.engine.state, near.name), "10.0.0.1:4711")]}


def test_at_a_central_site_pilots_find_files_by_themselves() -> None:
    stand = Stand()
    stand.policy(data={"wait": "never"})
    host(stand, "n1", "a", tags={"peer": "10.0.0.1:4711"})
    asking = host(stand, "n5", cores=2)
    stand.submit(sweep("a", "b", cores=2))
    (lease,) = asking.pull()
    assert lease.holders == {}


# --- what people are told
def test_the_history_of_a_task_says_where_its_inputs_were() -> None:
    stand = Stand()
    stand.policy(data={"wait": "never"})
    pilot = host(stand, "n1", "a")
    run = stand.submit(reads("a", "b"))
    assert len(pilot.took()) == 1
    stand.commit()
    (leased,) = [event for event in stand.reader.history(run, 1) if event["kind"] == "tasks_leased"]
    assert list(leased["data"]["inputs"].values()) == [[1, 100 * MB, 2, 100 * MB + (1 << 20)]]
    assert "1 of 2 inputs on its host (95.4M of 96.4M)" in event_text(leased)


def test_in_a_crowd_a_task_that_waited_long_enough_goes_to_one_of_those_that_wait() -> None:
    stand = Stand()
    stand.policy(data={"wait": "idle", "longest": "3s"})
    away(stand, "n0", "a")
    crowd = [host(stand, f"n{at}") for at in range(1, 21)]
    for pilot in crowd:
        pilot.wait()
    stand.submit(reads("a"))
    assert sum(len(pilot.took()) for pilot in crowd) == 0
    began, got = stand.now, 0
    while not got and stand.now < began + 10.0:
        stand.now = max(stand.now + 0.01, stand.engine.deadline() or 0.0)
        stand.pass_time(0.0)
        got = sum(len(pilot.took()) for pilot in crowd)
    assert got == 1
    assert 3.0 <= stand.now - began <= 4.1
    assert stand.sound()


@pytest.mark.parametrize("wait", ["idle", "cost"])
def test_no_task_of_a_long_queue_is_starved(wait: str) -> None:
    """Pilots that always have data for something else, and tasks whose data nobody or a silent pilot has: the task at
    place p begins after at most 65 p others, and the seconds that it waits for its data [MAX_OVERTAKEN]."""
    stand = Stand()
    stand.policy(data={"wait": wait, "longest": "5s"})
    names = [f"f{at}" for at in range(300)]
    pilot, silent = host(stand, "n1", *names), away(stand, "n2", "elsewhere")
    order = ["nowhere", "elsewhere", "nowhere too"]
    stand.submit(sweep(*order, *names))
    leases, began = pilot.took() or pilot.pull(), []
    while leases:
        began += inputs_of(leases)
        stand.now += 1.0
        stand.engine.state.pilots[silent.name].seen = stand.now
        leases = pilot.talk(good(leases[0].attempt, duration=60.0)).leases
    assert len(began) == 303
    for place, name in enumerate(order, 1):
        assert began.index(name) <= (MAX_OVERTAKEN + 1) * place + 5
