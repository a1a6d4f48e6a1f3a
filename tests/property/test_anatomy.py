"""Histories of any runs: busy slots fit into the pool, areas add up, shares are shares."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from shoal.report.anatomy import dissect
from shoal.report.figure import slot_rows
from shoal.report.history import COUNTS, Attempt, Ending, PilotLife, RunRecord, known_pilots, sample, timeline

TIME = st.integers(-200, 1_200).map(lambda tenths: tenths / 10)
NAMES = ("a", "b", "c", "d")
OUTCOMES = (*sorted(COUNTS), "failed", "lost", "returned", "duplicate", "cancelled")


@st.composite
def records(draw: st.DrawFn) -> RunRecord:
    """A run with attempts that may overlap, leave their pilots' lives, or be of pilots that nobody lists."""
    pilots = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        joined = draw(TIME)
        pilots.append(
            PilotLife(name, "", draw(st.integers(1, 4)), joined, draw(st.sampled_from((math.inf, joined + 30.0))))
        )
    attempts, endings, demand = [], [], draw(st.integers(0, 5))
    for task in range(draw(st.integers(0, 12))):
        start, slots = draw(TIME), draw(st.integers(1, 3))
        end = start + draw(st.integers(0, 400)) / 10
        attempts.append(
            Attempt(task, 1, draw(st.sampled_from(NAMES)), start, end, slots, draw(st.sampled_from(OUTCOMES)))
        )
        demand += slots
        if draw(st.booleans()):
            endings.append(Ending(end, 1, slots))
    start = draw(TIME)
    return RunRecord(start, start + draw(st.integers(0, 1_000)) / 10, demand, attempts, pilots, endings)


@given(records(), st.integers(0, 20))
def test_busy_fits_into_the_pool_and_areas_add_up(record: RunRecord, target: int) -> None:
    found = timeline(record)
    for at, pool in enumerate(found.pool):
        assert 0 <= found.useful[at] + found.wasted[at] <= pool
        assert min(found.useful[at], found.wasted[at], found.left[at]) >= 0
    assert found.times == sorted(set(found.times))
    assert (found.times[0], found.times[-1]) == (record.start, record.end)
    anatomy = dissect(found, target)
    assert [phase.end for phase in anatomy.phases[:-1]] == [phase.start for phase in anatomy.phases[1:]]
    assert record.start == anatomy.phases[0].start <= anatomy.phases[0].end <= anatomy.phases[1].end <= record.end
    steps = list(zip(found.pool, found.times, found.times[1:], strict=False))
    whole = sum(max(pool, anatomy.target) * (high - low) for pool, low, high in steps)
    assert math.isclose(anatomy.areas.total, whole, abs_tol=1e-6)
    assert math.isclose(sum(phase.areas.total for phase in anatomy.phases), whole, abs_tol=1e-6)
    for phase in anatomy.phases:
        assert min(phase.areas) >= 0.0 and 0.0 <= anatomy.share(phase.areas.lost) <= 1.0
        length = phase.end - phase.start
        assert phase.areas.total >= anatomy.target * length - 1e-6
    assert 0.0 <= anatomy.utilisation <= 1.0 and 0.0 <= anatomy.share(anatomy.areas.lost) <= 1.0


@given(records(), st.integers(1, 50))
def test_means_keep_the_area(record: RunRecord, parts: int) -> None:
    found = timeline(record)
    shown = sample(found, record.endings, parts)
    steps = list(zip(found.pool, found.times, found.times[1:], strict=False))
    assert math.isclose(sum(shown.pool) * shown.width, sum(p * (b - a) for p, a, b in steps), abs_tol=1e-5)
    assert all(busy <= pool + 1e-9 for busy, pool in zip(shown.busy, shown.pool, strict=True))
    inside = sum(1 for ending in record.endings if record.start <= ending.time <= record.end)
    assert shown.width == 0.0 or math.isclose(sum(shown.rate) * shown.width / 60.0, inside, abs_tol=1e-6)


@given(records())
def test_each_attempt_is_drawn_in_a_row_of_its_pilot(record: RunRecord) -> None:
    pilots = known_pilots(record.pilots, record.attempts)
    low, rows = {}, slot_rows(pilots, record.attempts)
    height = 0
    for life in pilots:
        low[life.pilot] = (height, height + max(1, life.slots))
        height += max(1, life.slots)
    for one, row in zip(record.attempts, rows, strict=True):
        assert low[one.pilot][0] <= row < low[one.pilot][1]
