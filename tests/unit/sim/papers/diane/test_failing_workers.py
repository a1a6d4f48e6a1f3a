"""The thesis' master with workers that end and outputs that get lost."""

from __future__ import annotations

from shoal.sim.papers.diane.failing_workers import Life, most_at_once, process_with_losses
from shoal.sim.papers.diane.overlay import Master

AT_ONCE = Master(0.0, 0.0)


def test_a_task_of_a_worker_that_ended_goes_to_the_next_one_when_the_loss_is_known() -> None:
    pool = [iter([Life(0.0, 15.0), Life(16.0, 1_000.0)])]
    found = process_with_losses(pool, [10.0, 10.0], AT_ONCE, missed=5.0, is_lost=lambda: False)
    # The second task is lost at 15, missed at 20, and begins then, though the next worker is up since 16.
    assert found.end == 30.0 and found.attempts == 3
    assert found.lives == [Life(0.0, 15.0), Life(16.0, 30.0)]


def test_a_task_whose_output_is_lost_is_done_again() -> None:
    lost = iter([True, False, False])
    found = process_with_losses([iter([Life(0.0, 100.0)])], [3.0, 4.0], AT_ONCE, 5.0, lambda: next(lost))
    assert found.end == 10.0 and found.attempts == 3


def test_an_idle_worker_takes_what_comes_back() -> None:
    pool = [iter([Life(0.0, 5.0)]), iter([Life(0.0, 100.0)])]
    found = process_with_losses(pool, [10.0, 2.0], AT_ONCE, missed=1.0, is_lost=lambda: False)
    assert found.end == 16.0  # lost at 5, back at 6


def test_the_most_workers_at_once() -> None:
    assert most_at_once([Life(0.0, 2.0), Life(2.0, 4.0), Life(1.0, 3.0)]) == 2
