"""The long multiplications of the first experiment: how long each takes, and what table 6 prints of the tests [GWP 6.2]."""

from __future__ import annotations

from typing import NamedTuple

TASKS = 30_000
MANAGED = 1_000  # tasks that an application has in a system at once, and pilots that a system wants
# Seconds of one multiplication over (digits / 10,000)^2, from the first row of each part of table 5.
MACHINES = {"X5365": (66.97 / 9.0, 605.21 / 81.0), "E5620": (84.50 / 9.0, 761.04 / 81.0)}
DIANE, GWPILOT, DIRAC = "DIANE", "GWpilot", "DIRAC"
SYSTEMS = (DIANE, DIRAC, GWPILOT)
SHORT, LONG = "abc", "def"


class Cell(NamedTuple):
    """One system in one test of table 6: two counts that are put in, and what is printed of the outcome."""

    submitted: int  # pilots
    failed: int  # tasks
    makespan: float  # seconds
    filling: float  # per cent
    mean_up: float
    enrolled: int


def _time(hours: int, minutes: int, seconds: int) -> float:
    return 3600.0 * hours + 60.0 * minutes + seconds


TABLE_6: dict[tuple[str, str], Cell] = {
    ("a", DIANE): Cell(2563, 466, _time(4, 6, 49), 99.76, 525.08, 1381),
    ("a", DIRAC): Cell(2165, 4, _time(7, 56, 54), 63.50, 518.73, 1874),
    ("a", GWPILOT): Cell(2490, 82, _time(3, 13, 32), 86.85, 797.72, 1011),
    ("b", DIANE): Cell(3431, 1991, _time(5, 22, 26), 99.80, 428.90, 2797),
    ("b", DIRAC): Cell(2726, 8, _time(9, 3, 1), 62.98, 460.91, 1751),
    ("b", GWPILOT): Cell(2996, 135, _time(3, 27, 1), 86.99, 785.62, 1054),
    ("c", DIANE): Cell(3323, 608, _time(4, 50, 42), 99.75, 421.98, 1570),
    ("c", DIRAC): Cell(2049, 6, _time(8, 21, 56), 68.50, 461.74, 1297),
    ("c", GWPILOT): Cell(4655, 62, _time(4, 6, 42), 87.80, 648.23, 954),
    ("d", DIANE): Cell(1989, 522, _time(13, 16, 2), 98.63, 893.99, 1531),
    ("d", DIRAC): Cell(4226, 486, _time(13, 24, 0), 87.29, 968.97, 3454),
    ("d", GWPILOT): Cell(9032, 183, _time(11, 33, 32), 94.49, 1001.63, 3687),
    ("e", DIANE): Cell(6435, 3140, _time(15, 29, 36), 99.93, 588.45, 4137),
    ("e", DIRAC): Cell(12888, 650, _time(16, 6, 3), 85.43, 953.03, 3095),
    ("e", GWPILOT): Cell(16369, 589, _time(15, 8, 36), 95.18, 670.16, 2213),
    ("f", DIANE): Cell(3919, 2322, _time(12, 16, 17), 99.62, 774.32, 3295),
    ("f", DIRAC): Cell(3135, 822, _time(15, 19, 22), 88.58, 894.35, 2537),
    ("f", GWPILOT): Cell(9444, 151, _time(12, 34, 49), 94.61, 880.0, 2645),
}


# Chance that a pilot which GWpilot submits starts within half an hour: the one with which the model submits as many pilots as
# table 6 says, found by halving intervals with seed 1. The count is put in; makespan and filling are not looked at.
GWPILOT_STARTS = {"a": 0.413, "b": 0.345, "c": 0.187, "d": 0.167, "e": 0.093, "f": 0.153}


def starts(test: str, system: str) -> float:
    """Chance that a submitted pilot starts within half an hour.

    DIANE gives up a pilot that waits longer, and a pool is filled once, with one pilot more for each that is dropped: so many
    of those submitted must have started. DIRAC's pilots go through the same broker as DIANE's, at the same time.
    """
    if system == GWPILOT:
        return GWPILOT_STARTS[test]
    cell = TABLE_6[test, DIANE]
    return (MANAGED + cell.failed) / cell.submitted


def is_long(test: str) -> bool:
    """True for the tests of the larger numbers."""
    return test in LONG


def digits(test: str, number: int) -> int:
    """Digits of the numbers that this task multiplies [GWP 6.2.1]."""
    return (90_000 if is_long(test) else 30_000) + 5_000 * (number % 10)


def seconds_of(test: str, number: int, machine: str) -> float:
    """Seconds that this task takes on a reference machine; the time grows with the square of the digits."""
    return MACHINES[machine][is_long(test)] * (digits(test, number) / 10_000.0) ** 2


def output_bytes(test: str, number: int) -> int:
    """Bytes of the result of this task."""
    return 6 * digits(test, number)
