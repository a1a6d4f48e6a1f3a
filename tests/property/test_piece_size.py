"""Pieces of divisible work: every unit once, never an empty piece, and about as good as the best of all equal sizes."""

from __future__ import annotations

import heapq
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from shoal.sched.size import Sizes, Slot, Speed, end_together, next_piece

_SPEED = st.builds(
    Speed, st.floats(1e-3, 1e4), st.floats(1e-3, 1e4), st.floats(0.0, 100.0), st.integers(0, 10**6)
)  # fmt: skip
_SLOTS = st.lists(st.builds(Slot, _SPEED, st.floats(0.0, 1_000.0)), max_size=8)


class Processor:
    """A slot of a list simulation: seconds of a unit, of moving it, and of each piece."""

    def __init__(self, cost: float, moving: float = 0.0, fixed: float = 0.0) -> None:
        self.cost, self.moving, self.fixed = cost, moving, fixed


def simulate(
    units: int, processors: list[Processor], size: int | None = None, noise: float = 0.0
) -> tuple[float, list[tuple[int, int]]]:
    """The makespan with pieces of one size, or made to measure, and the pieces: first unit and count."""
    rng, sizes = Random(1), Sizes()
    began: dict[int, tuple[float, int]] = {}
    heap = [(0.0, at, 0, 0.0) for at in range(len(processors))]
    at_unit, end, pieces = 0, 0.0, []
    while heap:
        now, at, done, computed = heapq.heappop(heap)
        one, left = processors[at], units - at_unit
        end = max(end, now)
        if done:
            del began[at]
            sizes.learn(str(at), done, computed, done * one.moving)
        if not left:
            continue
        if size is None:
            others = [
                Slot(speed, max(0.0, speed.seconds(count) - (now - since)))
                for other, (since, count) in began.items()
                if (speed := sizes.speed(str(other))) is not None
            ]
            count = next_piece(left, sizes.speed(str(at)), others, len(processors))
        else:
            count = min(size, left)
        assert 1 <= count <= left
        computed = one.fixed + count * one.cost * rng.uniform(1.0 - noise, 1.0 + noise)
        pieces.append((at_unit, count))
        began[at] = now, count
        at_unit += count
        heapq.heappush(heap, (now + computed + count * one.moving, at, count, computed))
    return end, pieces


@given(st.integers(1, 2**53 - 1), st.none() | _SPEED, _SLOTS, st.integers(1, 100_000))
def test_a_piece_is_never_empty_and_never_more_than_there_is(
    left: int, speed: Speed | None, others: list[Slot], slots: int
) -> None:
    assert 1 <= next_piece(left, speed, others, slots) <= left


@given(st.integers(2, 10**9), _SPEED, _SLOTS, st.floats(1.0, 100.0))
def test_more_power_is_never_a_smaller_piece(left: int, speed: Speed, others: list[Slot], more: float) -> None:
    slower, faster = speed, speed._replace(power=speed.power * more)
    if end_together(left, [*others, Slot(slower)]) > slower.fixed:  # else it is one unit, whatever it could do
        assert next_piece(left, slower, others, 8) <= next_piece(left, faster, others, 8) + 1


@given(st.integers(1, 20_000), st.lists(st.floats(0.01, 10.0), min_size=1, max_size=12), st.floats(0.0, 20.0))
def test_every_unit_is_in_exactly_one_piece(units: int, costs: list[float], fixed: float) -> None:
    _, pieces = simulate(units, [Processor(cost, 0.01, fixed) for cost in costs], noise=0.2)
    reach = 0
    for first, count in pieces:
        assert first == reach
        reach += count
    assert reach == units


@given(
    st.integers(2_000, 20_000), st.integers(2, 16), st.floats(0.0, 1.5), st.floats(0.0, 2.0), st.integers(0, 10**6)
)  # fmt: skip
def test_never_much_worse_than_the_best_equal_size(
    units: int, count: int, spread: float, fixed: float, seed: int
) -> None:
    """The best size is not known beforehand; what it costs to find it out is bounded."""
    rng = Random(seed)
    processors = [Processor(0.1 * rng.lognormvariate(0.0, spread), 0.02, fixed) for _ in range(count)]
    adaptive, _ = simulate(units, processors, noise=0.1)
    sizes = {max(1, units // parts) for parts in (count, 2 * count, 5 * count, 20 * count, 100 * count)}
    best = min(simulate(units, processors, size, noise=0.1)[0] for size in sizes)
    slowest = max(one.cost + one.moving for one in processors)
    assert adaptive <= 1.15 * best + 4.0 * (fixed + slowest) + 2.0


@given(st.integers(0, 10**6), st.floats(0.6, 1.2))
def test_better_than_any_one_size_in_the_middle_of_very_different_processors(seed: int, spread: float) -> None:
    """Tasks of equal size, two to five for each processor, as people make them."""
    rng = Random(seed)
    processors = [Processor(0.1 * rng.lognormvariate(0.0, spread), 0.02, 0.5) for _ in range(16)]
    adaptive, _ = simulate(16_000, processors)
    for parts in (32, 80):
        assert adaptive < 1.02 * simulate(16_000, processors, 16_000 // parts)[0]


@given(st.floats(0.05, 20.0), st.floats(0.1, 10.0))
def test_the_estimate_follows_a_change_of_speed(cost: float, change: float) -> None:
    sizes = Sizes()
    for units in (5, 40, 100, 100):
        sizes.learn("p", units, 0.5 + units * cost)
    for _ in range(8):
        sizes.learn("p", 100, 0.5 + 100 * cost * change)
    speed = sizes.speed("p")
    assert speed is not None
    assert abs(speed.power * cost * change - 1.0) < 0.15
