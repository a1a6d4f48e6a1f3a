"""The memory that is asked for where tasks state none."""

from __future__ import annotations

from shoal.sched.memory_request import LEAST, STEP, learned_request

GIB = 1 << 30


def test_nothing_is_asked_for_while_nothing_is_known() -> None:
    assert learned_request([]) is None
    assert learned_request([0, 0]) is None, "pilots that cannot measure it report 0"


def test_it_is_the_largest_with_a_margin_in_whole_steps() -> None:
    request = learned_request([GIB // 2, 2 * GIB, GIB])
    assert request is not None
    assert 2.5 * GIB <= request < 2.5 * GIB + STEP
    assert request % STEP == 0


def test_small_tasks_get_what_any_pilot_has() -> None:
    assert learned_request([5_000_000]) == LEAST
