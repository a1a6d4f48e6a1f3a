"""Order on a pilot and in the engine, whatever comes: nothing begins before what goes first [ADR 0019]."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.engine.matching.prefetch import _merged
from shoal.model.ids import AttemptId, parse_attempt
from shoal.pilot.agent.slots import Slots
from shoal.wire.chunk import names
from shoal.wire.messages import Capacity, Lease
from tests.sim.fair import Setting, simulate

_DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 6), st.integers(0, 3)),
        st.tuples(st.just("end"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("take"), st.integers(1, 60), st.integers(1, 5)),
    ),
    max_size=60,
)


@given(_DEEDS, st.integers(1, 3), st.booleans())
def test_a_pilot_begins_by_precedence_and_then_as_they_came_and_loses_nothing(
    deeds: list[tuple[str, int, int]], cores: int, calls: bool
) -> None:
    slots = Slots(Capacity(cores))
    came: dict[str, tuple[int, int]] = {}  # attempt -> how it stands: -precedence, number of its coming
    gone: set[str] = set()
    element = 1
    for deed, one, two in deeds:
        if deed == "add":
            lease = Lease(f"r1.{element}#1@1", Capacity(1), "safe", count=one, seed=1, cwd="/", precedence=two)
            if calls:
                lease = replace(lease, function="gAU=", calls=["gAU="] * one)
            came |= {name: (-two, at) for at, name in enumerate(names(lease), start=element)}
            element += one + 1  # not neighbours
            slots.add(lease)
        elif deed == "end" and slots.running:
            run = slots.running[list(slots.running)[one % len(slots.running)]]
            run.done = run.lease.count if calls else 0
            gone |= set(names(run.lease))
            slots.end(run.lease.attempt)
        elif deed == "take":
            gone |= set(slots.take_out(parse_attempt(f"r1.{one}#1@1"), two))
        waiting = [name for lease in slots.waiting for name in names(lease)]
        assert [came[name] for name in waiting] == sorted(came[name] for name in waiting)
        begun = [name for begin in slots.begin(0.0) for name in names(begin.lease)]
        assert begun == waiting[: len(begun)], "what stands first begins first"
        running = {name for run in slots.running.values() for name in names(run.lease)}
        here = running | {name for lease in slots.waiting for name in names(lease)}
        assert here | gone == set(came) and not here & gone


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 60), st.integers(1, 2), st.integers(1, 5)), max_size=30))
def test_orders_for_neighbours_are_put_together_and_name_the_same_attempts(
    spans: list[tuple[int, int, int, int]],
) -> None:
    free: dict[tuple[int, int, int], int] = {}
    given_ = []
    for run, element, number, count in spans:
        keys = [(run, element + at, number) for at in range(count)]
        if not any(key in free for key in keys):
            free |= dict.fromkeys(keys, 1)
            given_.append((AttemptId(run, element, number, 1), count))
    merged = _merged(given_)
    named = [(first.run, first.element + at, first.number) for first, count in merged for at in range(count)]
    assert sorted(named) == sorted(free)
    ends = {(first.run, first.element + count, first.number) for first, count in merged}
    assert not ends & {(first.run, first.element, first.number) for first, _ in merged}, "none could be longer"


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from([0.005, 0.03, 0.2, 0.45]),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from(["safe", "safe", "exclusive"]),
    st.integers(0, 1_000),
)
def test_nothing_begins_for_long_while_something_waits_that_could_have_had_its_slot(
    length: float, slots: int, calls: bool, newcomer: bool, spread: float, rerun: str, seed: int
) -> None:
    """From a second and one turnover after the urgent task came, nothing else has begun before it."""
    rerun = "safe" if calls else rerun
    setting = Setting(
        length, 1, slots, calls, newcomer, rerun=rerun, spread=spread, seed=seed, urgent_length=0.5, after=0.2
    )
    result = simulate(setting)
    late = result.turnover + 1.0
    assert not [at for at, attempt in result.starts if late < at < result.wait]
    assert max(result.begun.values()) == 1
