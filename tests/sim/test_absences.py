"""Close the lid: what a site loses while its server is away for a night, or often for a while [promise I18; ADR 0056].

A day of work, once with a server that is always there; then the same work with one that is away for 7 hours once, and one
that is away for a quarter of an hour 28 times. At most 5 % more time."""

from __future__ import annotations

import statistics
from random import Random

import pytest

from shoal.sim.proof.absences import ASLEEP, KILLED, Absence, Plan, Site
from tests.integration.cluster import PROVE

HOUR = 3600.0
DAY = Plan(pilots=4, tasks=1_350)  # about 24 hours for the eight slots
SHORT = Plan(pilots=4, tasks=360, median=180.0, spread=0.2)  # two and a third
SEEDS = range(3) if PROVE else range(1)
QUICK = ("asleep once for 7 h", "away 28 times for 15 min")
MOST = 1.05


def once(seed: int, seconds: float, how: str = KILLED) -> list[Absence]:
    """7 hours of a day, which end before the work does."""
    length = seconds * 7 / 24
    start = Random(f"{seed}/once").uniform(0.02, 0.95) * (seconds - length)
    return [Absence(start, length, how)]


def often(seed: int, seconds: float, how: str = KILLED) -> list[Absence]:
    """A quarter of an hour, 28 times a day, each at any moment of its part of the day."""
    rng, length = Random(f"{seed}/often"), HOUR / 4
    count = round(28 * seconds / (24 * HOUR))
    part = 0.97 * seconds / count
    return [Absence(number * part + rng.uniform(0.0, part - length), length, how) for number in range(count)]


@pytest.mark.timeout(3_600)
def test_a_day_with_a_server_that_is_away_takes_at_most_5_percent_more() -> None:
    plan = DAY if PROVE else SHORT
    found: dict[str, list[float]] = {}
    for seed in SEEDS:
        always = Site(seed, plan).run()
        for name, absences in (
            ("away once for 7 h", once(seed, always.seconds)),
            ("away 28 times for 15 min", often(seed, always.seconds)),
            ("asleep once for 7 h", once(seed, always.seconds, ASLEEP)),
            ("asleep 28 times for 15 min", often(seed, always.seconds, ASLEEP)),
        ):
            if not (PROVE or name in QUICK):
                continue
            outcome = Site(seed, plan, absences).run()
            assert (outcome.succeeded, outcome.begun_again) == (plan.tasks, 0)
            assert outcome.begun_away > 0
            found.setdefault(name, []).append(outcome.seconds / always.seconds)
            print(f"seed {seed}: {always.seconds / HOUR:.2f} h, {name}: {outcome.seconds / HOUR:.2f} h {outcome}")
    for name, ratios in found.items():
        middle, low, high = (statistics.median(ratios), min(ratios), max(ratios))
        print(
            f"{name}: {100 * (middle - 1):+.1f} % ({100 * (low - 1):+.1f} to {100 * (high - 1):+.1f}) of {len(ratios)}"
        )
    assert max(max(ratios) for ratios in found.values()) <= MOST, found


def test_without_windows_the_time_in_which_the_server_is_away_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measure sees what it should: with a central server nothing begins meanwhile."""
    monkeypatch.setattr("shoal.sim.proof.absences.MODE", {"data": {"mode": "central"}})
    plan = Plan(pilots=4, tasks=100, median=180.0, spread=0.2)
    always = Site(1, plan).run()
    away = Site(1, plan, [Absence(600.0, 900.0)]).run()
    assert away.begun_away == 0
    assert away.seconds - always.seconds > 400.0
