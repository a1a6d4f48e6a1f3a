"""Room on a host; what begins when is proved with the agent."""

from __future__ import annotations

from dataclasses import replace

from shoal.model.ids import parse_attempt
from shoal.pilot.agent.events import Recall, Stop
from shoal.pilot.agent.slots import Slots
from shoal.wire.messages import Capacity, Held, Lease, Report


def lease(number: int, cores: int = 1, gpus: int = 0) -> Lease:
    return Lease(f"r1.{number}#1@1", Capacity(cores, gpus=gpus), "safe")


def test_room_and_devices_come_back_at_the_end_of_an_attempt() -> None:
    slots = Slots(Capacity(2, gpus=1))
    slots.waiting.extend([lease(1, 2, 1), lease(2, 1, 1)])
    assert [begin.gpus for begin in slots.begin(0.0)] == [(0,)]
    assert slots.free() == Capacity(0)
    assert slots.held(0.0) == [Held("r1.2#1@1", "leased"), Held("r1.1#1@1", "leased")]
    assert slots.end("r1.1#1@1") is not None
    assert slots.end("r1.1#1@1") is None
    assert [begin.gpus for begin in slots.begin(0.0)] == [(0,)]


def test_what_is_larger_than_the_pilot_can_never_begin() -> None:
    slots = Slots(Capacity(2, memory=1, gpus=1))
    assert slots.can_ever_hold(Capacity(2, memory=9, gpus=1))
    assert not slots.can_ever_hold(Capacity(3))
    assert not slots.can_ever_hold(Capacity(1, gpus=2))


# --- calls of a function
def calls(first: int, count: int, cores: int = 1) -> Lease:
    return Lease(
        f"r1.{first}#1@1",
        Capacity(cores),
        "safe",
        count=count,
        seed=1,
        function="gAU=",
        calls=[f"c{first + n}" for n in range(count)],
    )


def test_idle_slots_share_the_calls_of_a_chunk_in_pieces() -> None:
    slots = Slots(Capacity(2))
    slots.learn(calls(1, 1), [0.0012])
    slots.add(calls(1, 30))
    begun = slots.begin(5.0)
    assert [(b.lease.attempt, b.lease.count) for b in begun] == [("r1.1#1@1", 15), ("r1.16#1@1", 15)]
    assert begun[1].lease.calls[0] == "c16" and not slots.waiting


def test_a_piece_is_twenty_milliseconds_of_work() -> None:
    slots = Slots(Capacity(1))
    slots.learn(calls(1, 1), [0.004])
    slots.add(calls(1, 30))
    (begun,) = slots.begin(5.0)
    assert begun.lease.count == 5
    assert [(w.attempt, w.count) for w in slots.waiting] == [("r1.6#1@1", 25)]


def test_neighbours_that_come_one_after_another_wait_as_one() -> None:
    slots = Slots(Capacity(1))
    for lease_ in (calls(1, 10), calls(11, 10), calls(31, 5), calls(21, 10)):
        slots.add(lease_)
    assert [(w.attempt, w.count, len(w.calls)) for w in slots.waiting] == [
        ("r1.1#1@1", 20, 20), ("r1.31#1@1", 5, 5), ("r1.21#1@1", 10, 10),
    ]  # fmt: skip


def test_what_is_held_is_told_in_ranges_and_the_call_under_way_only_if_it_takes_a_while() -> None:
    slots = Slots(Capacity(1))
    slots.learn(calls(1, 1), [0.001])
    slots.add(calls(1, 30))
    slots.begin(5.0)
    slots.running["r1.1#1@1"].done = 2
    assert slots.held(5.1) == [
        Held("r1.21#1@1", "leased", 10), Held("r1.3#1@1", "leased"), Held("r1.4#1@1", "leased", 17),
    ]  # fmt: skip
    assert slots.held(6.0)[1] == Held("r1.3#1@1", "running")


def test_what_of_a_piece_never_began_waits_again_in_front() -> None:
    slots = Slots(Capacity(1))
    slots.learn(calls(1, 1), [0.001])
    slots.add(calls(1, 30))
    slots.begin(5.0)
    slots.running["r1.1#1@1"].done = 3
    slots.end("r1.1#1@1")
    assert [(w.attempt, w.count) for w in slots.waiting] == [("r1.4#1@1", 17), ("r1.21#1@1", 10)]


def test_some_of_what_waits_can_be_taken_out() -> None:
    slots = Slots(Capacity(1))
    slots.add(calls(1, 10))
    assert slots.take_out(parse_attempt("r1.4#1@1"), 3) == ["r1.4#1@1", "r1.5#1@1", "r1.6#1@1"]
    assert [(w.attempt, w.count) for w in slots.waiting] == [("r1.1#1@1", 3), ("r1.7#1@1", 4)]
    assert slots.take_out(parse_attempt("r1.4#1@1"), 3) == []
    assert slots.take_out(parse_attempt("r1.1#2@1"), 3) == [], "another attempt"
    assert slots.take_out(parse_attempt("r1.2#1@1"), 8) == [f"r1.{n}#1@1" for n in (2, 3, 7, 8, 9)]


# --- before their time


def begun(*leases: Lease) -> Slots:
    slots = Slots(Capacity(4))
    for one in leases:
        slots.add(one)
    slots.begin(0.0)
    return slots


def test_what_can_go_on_is_moved_once_and_everything_else_stays() -> None:
    slots = begun(replace(lease(1), checkpoint=["state"]), lease(2))
    assert slots.move("r1.1#1@1", "slow here") == [Stop("r1.1#1@1", "slow here", keep=True)]
    assert slots.running["r1.1#1@1"].is_moving
    assert slots.move("r1.1#1@1", "again") == slots.move("r1.2#1@1", "") == slots.move("r1.3#1@1", "") == []
    assert not slots.running["r1.2#1@1"].stopping


def test_who_leaves_keeps_what_commands_wrote_and_who_cancels_does_not() -> None:
    ending: dict[str, str] = {}
    slots = begun(lease(1), lease(2), replace(calls(5, 1), attempt="r2.5#1@1"))
    assert slots.cancel("r1.1#1@1", "unwanted", ending) == [Stop("r1.1#1@1", "unwanted")]
    assert slots.cancel("r1.1#1@1", "unwanted", ending) == []
    stops = slots.stop_all("leaving", ending, keep=True)
    assert stops == [Stop("r1.2#1@1", "leaving", keep=True), Stop("r2.5#1@1", "leaving")]
    assert ending == {"r2.5#1@1": "leaving"} and slots.running["r1.1#1@1"].stopping == "unwanted"


# --- what goes before others
def test_what_has_a_precedence_begins_at_the_next_turnover_and_the_rest_keeps_its_order() -> None:
    slots = Slots(Capacity(1))
    for number in (1, 2, 3):
        slots.add(lease(number))
    slots.begin(0.0)
    slots.add(replace(lease(11), precedence=1))
    slots.add(replace(lease(21), precedence=2))
    slots.add(replace(lease(12), precedence=1))
    begun = []
    for _ in range(6):
        (running,) = slots.running
        begun.append(running)
        slots.end(running)
        slots.begin(0.0)
    assert [name.split("#")[0] for name in begun] == ["r1.1", "r1.21", "r1.11", "r1.12", "r1.2", "r1.3"]


def test_a_wide_task_with_a_precedence_gets_the_slots_as_they_become_free() -> None:
    slots = Slots(Capacity(2))
    for number in (1, 2, 3, 4):
        slots.add(lease(number))
    slots.begin(0.0)
    slots.add(replace(lease(9, cores=2), precedence=1))
    slots.end("r1.1#1@1")
    assert slots.begin(0.0) == [], "no narrow one takes the slot that it waits for"
    slots.end("r1.2#1@1")
    assert [begin.lease.attempt for begin in slots.begin(0.0)] == ["r1.9#1@1"]


def test_the_rest_of_a_piece_waits_behind_what_goes_before_it() -> None:
    slots = Slots(Capacity(1))
    slots.learn(calls(1, 1), [0.004])
    slots.add(calls(1, 30))
    slots.begin(5.0)
    slots.add(replace(calls(91, 1), precedence=1))
    slots.running["r1.1#1@1"].done = 2
    slots.end("r1.1#1@1", 5.1)
    assert [(w.attempt, w.count) for w in slots.waiting] == [("r1.91#1@1", 1), ("r1.3#1@1", 3), ("r1.6#1@1", 25)]
    assert [begin.lease.attempt for begin in slots.begin(5.1)] == ["r1.91#1@1"]


# --- lanes of a run with `max_running`
def lane(first: int, count: int) -> Lease:
    return replace(calls(first, count), lane=f"r1.{first}#1@1")


def test_calls_of_one_lane_are_made_one_after_another_and_hold_no_other_lane_back() -> None:
    slots = Slots(Capacity(4))
    slots.learn(calls(1, 1), [0.004])
    slots.add(lane(1, 8))
    slots.add(lane(21, 3))
    slots.add(lease(30))
    begun = slots.begin(5.0)
    assert [(b.lease.attempt, b.lease.count) for b in begun] == [("r1.1#1@1", 5), ("r1.21#1@1", 3), ("r1.30#1@1", 1)]
    assert slots.begin(5.0) == [], "there is a free slot, and the rest of the first lane waits"
    assert [(w.attempt, w.count) for w in slots.waiting] == [("r1.6#1@1", 3)]
    slots.running["r1.1#1@1"].done = 5
    slots.end("r1.1#1@1")
    assert [(b.lease.attempt, b.lease.count) for b in slots.begin(6.0)] == [("r1.6#1@1", 3)]


def test_lanes_are_not_joined() -> None:
    slots = Slots(Capacity(1))
    slots.add(lane(1, 4))
    slots.add(lane(5, 4))
    assert [(w.attempt, w.count) for w in slots.waiting] == [("r1.1#1@1", 4), ("r1.5#1@1", 4)]


def test_a_piece_has_no_more_calls_than_one_process_may_make() -> None:
    slots = Slots(Capacity(1))
    slots.learn(calls(1, 1), [0.0001])
    slots.add(replace(calls(1, 30), max_tasks_per_child=3))
    (begun,) = slots.begin(5.0)
    assert begun.lease.count == 3


# --- chains: calls that wait for others of their lane
def chain(first: int, parents: list[list[int]]) -> Lease:
    return replace(lane(first, len(parents)), lane="chain", parents=parents)


def failed(element: int) -> dict[str, Report]:
    return {f"r1.{element}#1@1": Report(f"r1.{element}#1@1", "failed")}


def test_what_waits_for_a_call_that_failed_is_removed_and_all_that_waits_for_it() -> None:
    slots = Slots(Capacity(1))
    slots.add(chain(3, [[1, 2], [2, 3], [3, 4], [3, 5]]))
    slots.add(chain(7, [[4, 5], [5, 7]]))
    slots.add(lane(20, 2))
    assert slots.take_behind({"r1.1#1@1": Report("r1.1#1@1", "succeeded")}) == []
    assert slots.take_behind(failed(9)) == [] and slots.take_behind({"r2.1#1@1": Report("r2.1#1@1", "failed")}) == []
    assert slots.take_behind(failed(1)) == [f"r1.{n}#1@1" for n in (3, 5, 6, 8)]
    assert [(w.attempt, w.count, w.parents) for w in slots.waiting] == [
        ("r1.4#1@1", 1, [[2, 3]]), ("r1.7#1@1", 1, [[4, 5]]), ("r1.20#1@1", 2, []),
    ]  # fmt: skip


def test_behind_the_call_at_which_a_runner_stopped_nothing_of_its_chain_goes_on() -> None:
    slots = Slots(Capacity(1))
    slots.learn(calls(1, 1), [0.001])
    slots.add(chain(1, [[], [1, 2], [], [2, 3]]))
    (begun,) = slots.begin(5.0)
    assert begun.lease.parents == [[], [1, 2], [], [2, 3]]
    slots.running["r1.1#1@1"].done = 1
    slots.end("r1.1#1@1")
    assert slots.take_behind({}) == ["r1.2#1@1", "r1.4#1@1"]
    assert [(w.attempt, w.count) for w in slots.waiting] == [("r1.3#1@1", 1)] and slots.take_behind({}) == []


# --- attempts that wait for other tasks
def test_a_waiting_attempt_lends_its_cores_until_it_goes_on_or_ends() -> None:
    slots = Slots(Capacity(1, memory=10))
    slots.add(lease(1))
    slots.begin(0.0)
    slots.add(lease(2))
    assert slots.begin(0.0) == []
    assert slots.set_waiting("r1.1#1@1", "r1.1#1", True) and not slots.set_waiting("r1.1#1@1", "r1.1#1", True)
    assert slots.lending() == ["r1.1#1@1"]
    assert [begin.lease.attempt for begin in slots.begin(0.0)] == ["r1.2#1@1"]
    assert slots.set_waiting("r1.1#1@1", "r1.1#1", False)
    slots.add(lease(3))
    assert slots.free() == Capacity(0, memory=10)
    slots.end("r1.2#1@1")
    assert slots.begin(0.0) == []  # the first one has its core again
    slots.end("r1.1#1@1")
    assert [begin.lease.attempt for begin in slots.begin(0.0)] == ["r1.3#1@1"]
    assert not slots.set_waiting("r1.1#1@1", "r1.1#1", True) and slots.lending() == []


def test_a_wait_of_a_call_ends_with_the_call() -> None:
    slots = Slots(Capacity(1))
    slots.learn(calls(1, 1), [0.001])
    slots.add(calls(1, 3))
    (begun,) = slots.begin(0.0)
    assert begun.lease.count == 3
    assert not slots.set_waiting("r1.1#1@1", "r1.2#1", True)  # it comes before what ended the call before it
    slots.running["r1.1#1@1"].done = 1
    assert slots.lending() == ["r1.2#1@1"]
    slots.running["r1.1#1@1"].done = 2
    assert slots.lending() == [] and not slots.set_waiting("r1.1#1@1", "r1.2#1", True)


def test_calls_behind_one_that_waits_are_made_elsewhere() -> None:
    slots = Slots(Capacity(1))
    slots.learn(calls(1, 1), [0.001])
    slots.add(calls(1, 3))
    slots.begin(0.0)
    slots.set_waiting("r1.1#1@1", "r1.1#1", True)
    assert slots.shorten("r1.1#1@1", 1) == ["r1.2#1@1", "r1.3#1@1"]
    assert [begin.lease.attempt for begin in slots.begin(0.0)] == ["r1.2#1@1"]
    assert slots.held(9.0) == [
        Held("r1.1#1@1", "running"), Held("r1.2#1@1", "running"), Held("r1.3#1@1", "leased"),
    ]  # fmt: skip
    assert slots.shorten("r1.1#1@1", 1) == [] == slots.shorten("r9.9#1@1", 1)


def test_what_a_waiting_attempt_keeps_does_not_hold_up_what_it_may_wait_for() -> None:
    slots = Slots(Capacity(2, gpus=1))
    slots.add(lease(1, gpus=1))
    slots.begin(0.0)
    slots.waiting.extend([lease(2, gpus=1), lease(3)])
    assert slots.begin(0.0) == []
    slots.set_waiting("r1.1#1@1", "r1.1#1", True)
    assert [begin.lease.attempt for begin in slots.begin(0.0)] == ["r1.3#1@1"]


def test_commands_queued_in_the_guard_behind_one_that_waits_are_recalled_at_once() -> None:
    slots = Slots(Capacity(1))
    for _ in range(3):
        slots.guard_queue.record(0.001)
    short = replace(lease(1), cwd="/x")
    slots.waiting.extend([short, replace(short, attempt="r1.2#1@1")])
    assert [begin.after for begin in slots.begin(0.0)] == ["", "r1.1#1@1"]
    assert slots.recall(0.0) == []
    slots.set_waiting("r1.1#1@1", "r1.1#1", True)
    assert slots.recall(0.0) == [Recall("r1.2#1@1")]
