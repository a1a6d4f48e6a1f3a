"""The virtual clock, its alarms, and the commands that a simulated guard has queued."""

from __future__ import annotations

from collections.abc import Callable

from shoal.sim.clock import Alarm, Clock
from shoal.sim.guard_queue import GuardQueue
from shoal.wire.messages import Capacity, Lease


def run_all(clock: Clock) -> None:
    while clock.step():
        pass


def test_actions_at_one_time_run_in_the_order_in_which_they_were_scheduled() -> None:
    clock, ran = Clock(0.0), list[tuple[float, str]]()
    for delay, name in ((2.0, "c"), (1.0, "a"), (1.0, "b")):
        clock.after(delay, lambda n=name: ran.append((clock.now, n)))  # type: ignore[misc]  # bound now
    clock.at(-5.0, lambda: ran.append((clock.now, "never before now")))
    run_all(clock)
    assert ran == [(0.0, "never before now"), (1.0, "a"), (1.0, "b"), (2.0, "c")]


def test_an_alarm_rings_once_at_its_earliest_deadline() -> None:
    clock, rang = Clock(0.0), list[float]()
    alarm = Alarm(clock, lambda: rang.append(clock.now))
    alarm.set(None)
    for due in (5.0, 3.0, 4.0):
        alarm.set(due)
    run_all(clock)
    assert rang == [3.0]
    alarm.set(9.0)
    alarm.clear()
    run_all(clock)
    assert rang == [3.0]


def test_deadlines_that_move_all_the_time_do_not_fill_the_clock() -> None:
    clock, rang = Clock(0.0), list[float]()
    alarm = Alarm(clock, lambda: rang.append(clock.now))
    for number in range(100):
        alarm.set(clock.now + 600.0)
        alarm.set(clock.now + 1.0)
        clock.step()
        assert rang == [float(n + 1) for n in range(number + 1)]
    left = 0
    while clock.step():
        left += 1
    assert left == 1 and len(rang) == 100, "one look for the hundred deadlines that were put off"


def test_an_alarm_of_a_frozen_process_rings_later_unless_it_was_set_anew() -> None:
    clock, rang, put_off = Clock(0.0), list[float](), list[Callable[[], None]]()
    alarm = Alarm(clock, lambda: rang.append(clock.now), put_off.append)
    alarm.set(1.0)
    run_all(clock)
    alarm.set(8.0)
    run_all(clock)
    assert rang == []
    for ring in put_off:
        ring()
    assert rang == [8.0], "only the deadline that was set last"


def test_a_command_that_leaves_the_guards_queue_lets_the_next_one_move_up() -> None:
    a, b, c = (Lease(f"r1.{n}#1@1", Capacity(1), "safe") for n in (1, 2, 3))
    queue = GuardQueue()
    queue.add(b, a.attempt)
    queue.add(c, b.attempt)
    assert b.attempt in queue and a.attempt not in queue
    assert queue.remove(b.attempt) and not queue.remove(b.attempt)
    assert queue.pop(a.attempt) == c and queue.pop(a.attempt) is None
