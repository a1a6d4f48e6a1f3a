"""Short commands stand in line behind each other, and come back if the one before them turns out to be long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shoal.pilot.agent.events import Begin, Called, Ended, Leave, Recall, Send, Settle, Shorten, Shortened, Stop
from shoal.pilot.agent.guard_queue import AHEAD, LONG, SHORT
from shoal.pilot.agent.slots import Slots
from shoal.wire.chunk import single
from shoal.wire.messages import Batch, Capacity, Held, Lease, LogPiece, Order, Report
from tests.unit.pilot.agent.test_agent import Driver, only


def commands(count: int, **more: object) -> Lease:
    fields: dict[str, object] = {"command": ["true"], "cwd": "/", "seed": 1, "params": [{"x": n} for n in range(count)]}
    return Lease("r1.1#1@1", Capacity(1), "safe", count=count, **{**fields, **more})  # type: ignore[arg-type]  # a test's brevity


def brisk(cores: int = 2) -> Slots:
    slots = Slots(Capacity(cores, gpus=cores))
    slots.guard_queue.record(SHORT / 2)
    return slots


def order(slots: Slots) -> dict[str, str]:
    return {name.split("#")[0]: run.after.split("#")[0] for name, run in slots.running.items()}


def test_what_is_not_known_to_be_short_waits_here() -> None:
    slots = Slots(Capacity(2))
    slots.add(commands(20))
    assert len(slots.begin(0.0)) == 2
    slots.guard_queue.record(2 * SHORT)
    assert slots.begin(0.0) == []


def test_short_commands_stand_in_line_behind_each_slot_in_turn() -> None:
    slots = brisk()
    slots.add(commands(30))
    begun = slots.begin(0.0)
    assert len(begun) == 2 + 2 * AHEAD
    assert order(slots)["r1.3"] == "r1.1" and order(slots)["r1.4"] == "r1.2" and order(slots)["r1.5"] == "r1.3"
    assert [begin.after for begin in begun[:2]] == ["", ""]


def test_the_line_is_filled_again_when_half_of_it_is_gone() -> None:
    slots = brisk(1)
    slots.add(commands(40))
    slots.begin(0.0)
    for element in range(1, AHEAD // 2):
        assert slots.end(f"r1.{element}#1@1", 1.0) is not None
        assert slots.begin(1.0) == [], "many at a time cost less"
    for element in (AHEAD // 2, AHEAD // 2 + 1):
        slots.end(f"r1.{element}#1@1", 1.0)
    assert len(slots.begin(1.0)) > AHEAD // 2


def test_who_stands_behind_takes_over_when_one_is_over() -> None:
    slots = brisk(1)
    slots.add(commands(3))
    slots.begin(0.0)
    slots.end("r1.1#1@1", 5.0)
    head = slots.running["r1.2#1@1"]
    assert (head.after, head.since, head.behind) == ("", 5.0, "r1.3#1@1")


def test_files_exclusive_tasks_and_other_rooms_do_not_line_up() -> None:
    for lease in (
        commands(5, own=True),
        commands(5, cwd=""),
        Lease("r1.1#1@1", Capacity(1), "exclusive", ["x"], cwd="/"),
    ):
        slots = brisk(1)
        slots.add(lease)
        assert len(slots.begin(0.0)) == 1
    slots = brisk(2)
    slots.add(commands(1))
    slots.add(Lease("r2.1#1@1", Capacity(2), "safe", ["x"], cwd="/"))
    assert len(slots.begin(0.0)) == 1, "a larger one cannot take over the room of a smaller"


def test_behind_a_long_one_they_are_called_back_once_a_slot_is_idle() -> None:
    slots = brisk(2)
    slots.add(commands(6))
    slots.begin(0.0)
    for element in (2, 4, 6):
        slots.end(f"r1.{element}#1@1", 0.05)
    assert slots.recall(0.06) == [] and slots.recall_at() == LONG
    assert slots.recall(LONG) == [Recall("r1.3#1@1"), Recall("r1.5#1@1")]
    assert slots.recall(LONG) == [], "once"
    run = slots.end("r1.3#1@1", 0.2)
    assert run is not None and slots.was_recalled(run, Report("r1.3#1@1", "failed", "cancelled", "stopped"))
    assert [lease.attempt for lease in slots.waiting] == ["r1.3#1@1"]
    assert [begin.lease.attempt for begin in slots.begin(0.2)][:1] == ["r1.3#1@1"], "in the idle slot"


def test_one_that_began_before_it_was_called_back_counts() -> None:
    slots = brisk(1)
    slots.add(commands(2))
    slots.begin(0.0)
    run = slots.end("r1.2#1@1", 1.0)
    assert run is not None
    run.is_recalled = True
    assert not slots.was_recalled(run, Report("r1.2#1@1", "succeeded", exit_code=0, started=1.0, duration=0.001))


def test_nobody_is_called_back_while_every_slot_works_or_more_waits() -> None:
    slots = brisk(1)
    slots.add(commands(4))
    slots.begin(0.0)
    assert slots.recall(9.0) == [] and slots.recall_at() is None


def test_what_goes_before_others_stands_in_no_line_and_has_them_called_back_if_one_takes_long() -> None:
    slots = brisk(1)
    slots.add(commands(20))
    slots.begin(0.0)
    slots.add(Lease("r2.1#1@1", Capacity(1), "safe", command=["true"], cwd="/", precedence=1))
    assert slots.begin(0.01) == [] and slots.recall(0.01) == []
    assert slots.recall_at() == LONG
    called = [one.attempt for one in slots.recall(LONG) if isinstance(one, Recall)]
    assert called and called == [name for name, run in slots.running.items() if run.after]
    assert slots.recall(LONG) == [] and slots.recall_at() is None, "they are called once"
    for name in called:
        run = slots.end(name, LONG)
        assert run is not None and slots.was_recalled(run, Report(name, "failed", "cancelled"))
    slots.end("r1.1#1@1", LONG)
    assert slots.begin(LONG)[0].lease.attempt == "r2.1#1@1"


# --- pieces [ADR 0033]
def known(mean: float = 0.001, cores: int = 2) -> Slots:
    slots = Slots(Capacity(cores, gpus=cores))
    slots.learn(commands(1), [mean])
    return slots


def test_short_commands_of_an_array_go_in_pieces_one_in_each_slot_and_one_behind_it() -> None:
    slots = known()
    slots.add(commands(200))
    begun = slots.begin(0.0)
    assert [(begin.lease.count, begin.after) for begin in begun] == [
        (20, ""), (20, ""), (20, "r1.1#1@1"), (20, "r1.21#1@1"),
    ]  # fmt: skip
    assert begun[0].lease.params == [{"x": n} for n in range(20)], "as it came, not filled in"
    assert slots.begin(0.0) == [] and slots.waiting[0].count == 120
    assert Held("r1.41#1@1", "leased") in slots.held(9.0) and Held("r1.1#1@1", "running") in slots.held(9.0)
    slots.end("r1.1#1@1", 1.0)
    assert [lease.attempt for lease in slots.waiting][:1] == ["r1.1#1@1"], "what never began waits again"


def test_nothing_is_known_of_other_runs_and_long_ones_go_one_by_one() -> None:
    slots = known()
    other = replace(commands(200), attempt="r2.1#1@1")
    slots.add(other)
    assert {begin.lease.count for begin in slots.begin(0.0)} == {1}
    slots = known(mean=0.015)
    slots.add(commands(200))
    assert {begin.lease.count for begin in slots.begin(0.0)} == {1}


def test_what_needs_something_of_its_own_goes_one_by_one() -> None:
    for more in (
        {"stdin": "x"}, {"stdin_data": "eA=="}, {"outputs": ["o"]}, {"inputs": ["i"]}, {"setup": ["a"]}, {"stdout": "o"},
        {"shell": "true"}, {"own": True}, {"cwd": ""}, {"container": "c"}, {"checkpoint": ["c"]}, {"precedence": 1},
    ):  # fmt: skip
        slots = known()
        slots.add(commands(200, **more))
        assert {begin.lease.count for begin in slots.begin(0.0)} == {1}, more


def test_what_goes_before_others_has_pieces_taken_back_at_once() -> None:
    slots = known(cores=1)
    slots.add(commands(100))
    slots.begin(0.0)
    assert slots.recall(0.01) == []
    slots.add(Lease("r2.1#1@1", Capacity(1), "safe", command=["true"], cwd="/", precedence=1))
    assert slots.recall(0.01) == [Shorten("r1.1#1@1"), Recall("r1.21#1@1")]
    assert slots.recall(0.01) == [], "once"
    slots.end("r1.21#1@1", 0.02)
    assert slots.shorten("r1.1#1@1", 3) and slots.waiting[0].attempt == "r2.1#1@1"
    run = slots.running["r1.1#1@1"]
    run.done = 3
    slots.end("r1.1#1@1", 0.02)
    assert [begin.lease.attempt for begin in slots.begin(0.02)] == ["r2.1#1@1"]
    assert sum(lease.count for lease in slots.waiting) == 97


def test_behind_a_long_one_of_a_piece_nothing_waits_longer_than_a_moment() -> None:
    slots = known(cores=1)
    slots.add(commands(100))
    slots.begin(0.0)
    assert slots.recall_at() == LONG
    assert slots.recall(LONG) == [Shorten("r1.1#1@1"), Recall("r1.21#1@1")]
    assert slots.recall_at() is None


def test_nothing_is_queued_again_behind_the_one_it_was_recalled_from() -> None:
    """Pilot and guard sent it to and fro as long as that one ran."""
    slots = known(cores=2)
    slots.add(commands(100))
    slots.begin(0.0)
    slots.recall(LONG)
    first, second = [name for name, run in slots.running.items() if not run.after]
    for name in [name for name, run in slots.running.items() if run.after]:
        slots.end(name, LONG)
    assert slots.begin(LONG) == [] and slots.recall_at() is None
    slots.running[second].done = slots.running[second].lease.count
    slots.end(second, LONG)  # this slot goes on, with one queued behind
    begun = slots.begin(LONG)
    assert [begin.after for begin in begun] == ["", begun[0].lease.attempt] and not slots.running[first].behind


def test_a_piece_that_moved_up_is_asked_again() -> None:
    slots = known(cores=1)
    slots.add(commands(100))
    slots.begin(0.0)
    slots.recall(LONG)
    slots.running["r1.1#1@1"].done = 20
    slots.end("r1.1#1@1", 0.2)  # the guard had begun the next one when it was asked for it
    assert slots.recall(0.2 + LONG) == [Shorten("r1.21#1@1")]


def test_an_order_finds_one_of_a_piece_until_that_has_ended() -> None:
    slots, ending = known(cores=1), dict[str, str]()
    slots.add(commands(100))
    slots.begin(0.0)
    slots.running["r1.1#1@1"].done = 2
    assert slots.runs("r1.3#1@1") and not slots.runs("r1.2#1@1") and not slots.runs("r1.90#1@1")
    assert slots.cancel("r1.1#1@1", "no", ending) == [] == slots.cancel("r1.2#1@1", "no", ending)
    assert slots.cancel("r1.3#1@1", "no", ending) == [Stop("r1.3#1@1", "no")] and ending == {"r1.3#1@1": "no"}


def test_distinct_commands_of_a_run_are_joined_while_they_wait() -> None:
    slots = known(cores=1)
    leases = [
        Lease(
            f"r1.{n}#1@1",
            Capacity(1),
            "safe",
            ["prog", f"{{{n}}}", "a b"],
            cwd="/",
            env={"SHOAL_SEED": str(n)},
            proof=f"p{n}",
        )
        for n in range(1, 61)
    ]
    for lease in leases:
        slots.add(lease)
    assert [lease.count for lease in slots.waiting] == [60]
    first = slots.begin(0.0)[0].lease
    assert [single(first, at) for at in range(20)] == [replace(lease, proof="p1") for lease in leases[:20]]
    others: tuple[dict[str, Any], ...] = (
        {"cwd": "/x"},
        {"command": ["prog"]},
        {"env": {}},
        {"outputs": ["o"]},
        {"attempt": "r1.63#1@1"},
        {"time": 1.0},
    )
    for other in others:
        slots = known()
        slots.add(leases[0])
        slots.add(replace(leases[1], **other))
        assert len(slots.waiting) == 2, other


def not_begun(name: str) -> Ended:
    return Ended(Report(name, "failed", "cancelled", "stopped"))


def brisk_driver() -> Driver:
    """An agent with one slot whose commands were short so far: four of a run, three of them queued in the guard."""
    driver = Driver(Capacity(1))
    driver.begin(Lease("r9.1#1@1", Capacity(1), "safe", ["true"], cwd="/"))
    driver.see(Ended(Report("r9.1#1@1", "succeeded", exit_code=0, started=1.0, duration=SHORT / 2)))
    driver.settle()
    driver.begin(commands(4))
    assert len(driver.agent.running) == 4
    return driver


def test_what_is_queued_in_the_guard_is_taken_back_like_what_waits_here() -> None:
    """`shoal set` counted such a task as changed, and it ran with the old limits."""
    driver = brisk_driver()
    actions = driver.answer(orders=[Order("take_back", "r1.3#1@1", "changed", count=2)])
    assert [action.attempt for action in only(actions, Recall)] == ["r1.3#1@1", "r1.4#1@1"]
    actions = driver.see(not_begun("r1.4#1@1"))
    assert only(actions, Settle) == [Settle("r1.4#1@1", False)]
    report = driver.agent.reports["r1.4#1@1"]
    assert (report.outcome, report.message, report.started) == ("returned", "changed", None)
    driver.see(Ended(Report("r1.3#1@1", "succeeded", exit_code=0, started=1.0, duration=0.01)))
    assert driver.agent.reports["r1.3#1@1"].outcome == "succeeded", "it began before the guard was asked"
    assert list(driver.agent.running) == ["r1.1#1@1", "r1.2#1@1"], "which nobody asked for"
    assert not driver.agent.waiting


def test_take_back_recalls_no_attempt_of_another_name() -> None:
    driver = brisk_driver()
    for name in ("r1.2#2@1", "r1.2#1@2", "r2.2#1@1"):
        assert not only(driver.answer(orders=[Order("take_back", name, "changed", count=3)]), Recall)


def test_a_recalled_command_of_a_pilot_that_leaves_is_given_back_and_not_cancelled() -> None:
    driver = brisk_driver()
    driver.agent.running["r1.4#1@1"].is_recalled = True
    driver.see(Leave("drained"))
    driver.see(not_begun("r1.4#1@1"))
    report = driver.agent.reports["r1.4#1@1"]
    assert (report.outcome, report.message) == ("returned", "drained")


def test_a_recalled_command_costs_the_others_nothing_of_what_they_wrote() -> None:
    driver = brisk_driver()
    driver.agent.running["r1.4#1@1"].is_recalled = True
    piece = LogPiece("r1.9#1@1", "stdout", "x", 0)
    actions = driver.see(Ended(not_begun("r1.4#1@1").report, (piece,), True))
    assert [tail for send in only(actions, Send) for tail in send.exchange.tails] == [piece]


def in_pieces() -> Driver:
    """An agent with one slot and two pieces of ten commands: one runs, one is queued behind it."""
    driver = Driver(Capacity(1))
    driver.begin(Lease("r1.99#1@1", Capacity(1), "safe", ["true"], cwd="/"))
    driver.see(Ended(Report("r1.99#1@1", "succeeded", exit_code=0, started=1.0, duration=0.002)))
    driver.settle()
    driver.begin(commands(20))
    assert [(name, run.lease.count) for name, run in driver.agent.running.items()] == [
        ("r1.1#1@1", 10),
        ("r1.11#1@1", 10),
    ]
    return driver


def test_those_of_pieces_are_taken_back_too_unless_they_begin() -> None:
    """`shoal set` counts them as changed."""
    driver = in_pieces()
    actions = driver.answer(orders=[Order("take_back", "r1.1#1@1", "changed", count=12)])
    assert [type(one) for one in actions if isinstance(one, (Recall, Shorten))] == [Shorten, Recall]
    driver.see(Called("r1.1#1@1", Batch("r1.1#1@1", 2, [1.0] * 2, [0.1] * 2, [0.1] * 2, [1] * 2)))
    driver.see(Shortened("r1.1#1@1", 3))
    given = [f"r1.{element}#1@1" for element in range(4, 11)]
    assert list(driver.agent.reports) == given
    driver.see(Called("r1.11#1@1", over=True))
    assert list(driver.agent.reports) == [*given, "r1.11#1@1", "r1.12#1@1"]
    assert {(report.outcome, report.message) for report in driver.agent.reports.values()} == {("returned", "changed")}
    driver.see(Called("r1.1#1@1", None, (Report("r1.3#1@1", "failed", "task_error", "x", started=1.0),), False))
    driver.see(Called("r1.1#1@1", over=True))
    assert driver.agent.reports["r1.3#1@1"].outcome == "failed", "it had begun"
    left = {at for run in driver.agent.running.values() for at in run.left or [run.lease.attempt]}
    assert left | driver.agent._slots.attempts() == {f"r1.{element}#1@1" for element in range(13, 21)}


def test_where_each_needs_a_directory_of_its_own_they_begin_one_by_one_from_then_on() -> None:
    driver = in_pieces()
    begun = only(driver.see(Called("r1.11#1@1", over=True, apart=True)), Begin)
    begun += only(driver.see(Called("r1.1#1@1", over=True, apart=True)), Begin)
    assert {begin.lease.count for begin in begun} == {1}
    assert not any(run.is_piece for run in driver.agent.running.values())
    assert driver.agent._slots.attempts() == {f"r1.{element}#1@1" for element in range(1, 21)}


def test_one_of_a_piece_is_told_to_end_once() -> None:
    slots, ending = known(cores=1), dict[str, str]()
    slots.add(commands(100))
    slots.begin(0.0)
    slots.cancel("r1.3#1@1", "no", ending)
    assert len(slots.stop_all("leaves", ending, keep=True)) == 39 and len(ending) == 40
    assert slots.stop_all("leaves", ending, keep=True) == [] and ending["r1.3#1@1"] == "no"


def test_nothing_is_queued_behind_what_was_recalled() -> None:
    """The guard may have forgotten it: two would run in one slot."""
    slots = brisk(2)
    slots.add(commands(5, shell="true"))
    slots.begin(0.0)
    for element in (2, 4):
        slots.end(f"r1.{element}#1@1", 0.01)
    assert slots.recall(LONG) == [Recall("r1.3#1@1"), Recall("r1.5#1@1")]
    slots.add(replace(commands(9, shell="true"), attempt="r1.50#1@1"))
    assert {begin.lease.attempt: begin.after for begin in slots.begin(LONG)}["r1.51#1@1"] == "r1.50#1@1"
