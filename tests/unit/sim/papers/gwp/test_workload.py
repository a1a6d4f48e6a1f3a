"""The long multiplications of table 5."""

from __future__ import annotations

import pytest

from shoal.sim.papers.gwp.workload import DIANE, GWPILOT, TABLE_6, TASKS, digits, seconds_of, starts

PRINTED = [  # test, task mod 10, seconds on both machines
    ("a", 0, 66.97, 84.50), ("a", 1, 91.18, 115.03), ("a", 6, 269.64, 338.31), ("a", 8, 369.03, 459.81),
    ("a", 9, 419.43, 529.27), ("d", 0, 605.21, 761.04), ("d", 1, 672.86, 851.62), ("d", 6, 1074.32, 1354.96),
    ("d", 8, 1262.12, 1587.38), ("d", 9, 1360.91, 1713.19),
]  # fmt: skip


@pytest.mark.parametrize(("test", "number", "fast", "slow"), PRINTED)
def test_the_square_of_the_digits_gives_table_5(test: str, number: int, fast: float, slow: float) -> None:
    assert seconds_of(test, number, "X5365") == pytest.approx(fast, rel=0.02)
    assert seconds_of(test, number + 10, "E5620") == pytest.approx(slow, rel=0.02)


def test_all_tasks_on_a_thousand_faster_cores_last_as_the_paper_says() -> None:
    for test, hours in (("a", 1.85), ("d", 8.0)):
        total = sum(seconds_of(test, number, "X5365") for number in range(TASKS))
        assert total / 1_000 / 3_600 == pytest.approx(hours, rel=0.01)


def test_ten_sizes_come_in_turn() -> None:
    assert [digits("a", number) for number in (0, 9, 10)] == [30_000, 75_000, 30_000]
    assert digits("f", 19) == 135_000


def test_chances_are_chances() -> None:
    assert all(0.0 < starts(test, system) < 1.0 for test, system in TABLE_6)
    assert starts("e", DIANE) == pytest.approx(4137 / 6435, rel=0.01), "as many as the paper says were enrolled"
    assert starts("a", GWPILOT) != starts("a", DIANE)
