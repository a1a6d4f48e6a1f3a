"""Who goes first starts first, though pilots fetch short tasks ahead [protocol 5.3; promise I13; ADR 0019]."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from shoal.engine.matching import choose_tasks, prefetch
from shoal.engine.records import Array
from shoal.engine.state import State
from shoal.model.ids import AttemptId, parse_attempt
from shoal.pilot.agent.slots import Slots
from shoal.sim.host import Host
from shoal.sim.proof import world as worlds
from shoal.sim.proof.faults import Plan
from shoal.sim.proof.ledger import BrokenPromise
from shoal.sim.proof.world import World
from tests.sim.fair import Result, Setting, simulate
from tests.sim.planting import plant

PROVE = bool(os.environ.get("SHOAL_PROVE"))
LENGTHS = (0.001, 0.01, 0.1, 1.0, 60.0, 3_600.0)
POOLS = {"2 slots": (1, 2), "200 pilots": (200, 1)}
# A second of 200 pilots with tasks of a millisecond takes minutes to play, an hour of them a minute.
HEAVY = {("200 pilots", length) for length in (0.001, 0.01, 0.1, 3_600.0)}
CASES = [
    (pool, length, calls, newcomer)
    for pool in POOLS
    for length in LENGTHS
    for calls in (False, True)
    for newcomer in (False, True)
    if PROVE or pool == "2 slots" or (calls is newcomer and ((pool, length) not in HEAVY or length == 0.1))
]


def check(result: Result, most: float = math.inf) -> None:
    """It started within one turnover of a slot and a second, after at most so many others, and nothing was begun twice."""
    others = sum(0.0 <= at < result.wait for at, _ in result.starts)
    assert others <= most, f"{others} began before it"
    assert result.wait <= result.turnover + 1.0, (result.wait, result.turnover)
    assert set(result.begun.values()) == {1}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("pool", "length", "calls", "newcomer"), CASES)
def test_the_first_start_comes_within_one_turnover_and_a_second(
    pool: str, length: float, calls: bool, newcomer: bool
) -> None:
    pilots, slots = POOLS[pool]
    result = simulate(Setting(length, pilots, slots, calls, newcomer))
    check(result)
    assert not result.returned, "nobody has to give anything back for one short task"


OTHERS: dict[str, dict[str, Any]] = {
    "exclusive": {"rerun": "exclusive"},
    "never": {"rerun": "never"},
    "a pilot of protocol 4": {"protocol": 4},
    "wide": {"cores": 2},
    "wide and exclusive": {"cores": 2, "rerun": "exclusive"},
    "wide on several pilots": {"pilots": 4, "slots": 4, "cores": 3},
    "lengths that differ": {"spread": 1.5, "seed": 0},
    "many that are long": {"urgent": 10, "urgent_length": 30.0},
}


@pytest.mark.parametrize("length", [0.001, 0.02, 0.4] if PROVE else [0.005, 0.4])
@pytest.mark.parametrize("newcomer", [False, True])
@pytest.mark.parametrize("kind", OTHERS)
def test_also_of_other_kinds(kind: str, newcomer: bool, length: float) -> None:
    for seed in range(5 if PROVE else 1):
        check(simulate(Setting(**{"length": length, "newcomer": newcomer, "seed": seed, **OTHERS[kind]})))


# --- under faults
class Hasty(World):
    """A world of short tasks, some of which are urgent: what is fetched ahead is overtaken and taken back."""

    def script(self, host: Host, attempt: AttemptId) -> tuple[float, bool]:
        """Most tasks take a moment, a few of them long."""
        rng = Random(f"{self.seed}/{attempt.task}/{attempt.number}")
        length = rng.choice([0.01] * 30 + [0.3, 5.0])
        return length, rng.random() < self.plan.failing / 10


def draw_hasty(rng: Random) -> list[tuple[float, list[dict[str, Any]]]]:
    """Long queues, and urgent tasks that come into them."""
    found: list[tuple[float, list[dict[str, Any]]]] = []
    for _ in range(2):
        at = rng.uniform(0.0, 20.0)
        queue: dict[str, Any] = {"command": ["payload"], "array": f"1-{rng.randint(100, 400)}"}
        if rng.random() < 0.5:
            queue = {"function": "gAU=", "calls": ["gAU="] * rng.randint(100, 400)}
        found.append((at, [{**queue, "retries": 3}]))
        for _ in range(3):
            urgent: dict[str, Any] = {
                "command": ["urgent"],
                "rerun": rng.choice(["safe", "safe", "exclusive", "never"]),
            }
            urgent |= {
                "priority": rng.choice([1, 5]),
                "array": f"1-{rng.randint(1, 3)}",
                "cores": rng.choice([1, 1, 2]),
            }
            found.append((at + rng.uniform(0.1, 4.0), [urgent]))
    return found


@pytest.mark.timeout(600)
def test_nothing_is_lost_or_doubled_where_tasks_overtake_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "draw_submissions", draw_hasty)
    seen = {"overtaken": 0, "taken back": 0}
    note, take_back = prefetch.note_overtaken, prefetch.take_back

    def count_overtaken(state: State, pilot: Any) -> None:
        seen["overtaken"] += 1
        note(state, pilot)

    def count_taken(state: State, pilot: Any, *args: Any) -> None:
        before = len(pilot.orders)
        take_back(state, pilot, *args)
        seen["taken back"] += sum(order.count for order in pilot.orders[before:])

    monkeypatch.setattr(choose_tasks, "note_overtaken", count_overtaken)
    monkeypatch.setattr(prefetch, "take_back", count_taken)
    for seed in range(60 if PROVE else 5):
        Hasty(seed, None if seed % 2 else Plan(0.02, 0.05, 0.0, 1, 1, 0, 1, 2, 0, 0, 0.1)).run()
    assert min(seen.values()) >= 8, seen


# --- planted bugs
MOST = 40  # tasks that may begin before the urgent one in these settings: what stands in the guard's two lines
BUGS: dict[str, tuple[Callable[..., Any], str, str, dict[str, Any]]] = {
    "fetch-ahead ignores who waits": (
        choose_tasks.LeaseRound.most,
        "if most <= 0 and self._may_overtake(cls):",
        "if False:",
        {},
    ),
    "the pilot begins its leases as they came": (
        Slots.add,
        "self.waiting[at - 1].precedence < lease.precedence",
        "False",
        {"length": 0.005},
    ),
    "a task's place counts for nothing": (
        choose_tasks.LeaseRound._goes_before,
        "return listed is not None and listed < ",
        "return listed is None and None is ",
        {},
    ),
    "an exclusive task waits for a slot that is never free": (
        choose_tasks.LeaseRound._pass_over,
        "return self._make_room(cls)",
        "return False",
        {"rerun": "exclusive"},
    ),
    "a cleared pilot fetches ahead": (
        choose_tasks.LeaseRound._ahead,
        "if self._works_off or self._is_spent or not self._may_ahead(cls):",
        "if self._is_spent or not self._may_ahead(cls):",
        {"rerun": "exclusive", "length": 0.4, "spread": 0.3},
    ),
    "another owner's turn counts for nothing": (
        choose_tasks.LeaseRound._goes_before,
        "turns[other] = is_next(other)",
        "turns[other] = False",
        {"newcomer": True},
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, old, new, more = BUGS[name]
    settings = [Setting(**{"length": 0.02, "seed": seed, **more}) for seed in range(3)]
    most = MOST if "rerun" not in more else math.inf
    for setting in settings:
        check(simulate(setting), most)
    plant(monkeypatch, function, old, new)
    if name == "a cleared pilot fetches ahead":
        plant(
            monkeypatch,
            choose_tasks.LeaseRound._make_room,
            "return self._is_full",
            "self._is_full = False; return False",
        )
    late = 0
    for setting in settings:
        try:
            check(simulate(setting), most)
        except AssertionError:
            late += 1
    assert late, "the yardstick did not notice"


def in_order() -> bool:
    """Does a queue on one slot begin in its order, although some of it was given back for an exclusive task?"""
    result = simulate(Setting(0.05, slots=1, spread=0.3, rerun="exclusive", after=2.0, seed=3))
    check(result)
    assert result.returned > 1
    begun = [parse_attempt(attempt) for _, attempt in result.starts]
    elements = [attempt.element for attempt in begun if attempt.run == 1]
    return elements == list(range(1, len(elements) + 1))


def test_what_is_given_back_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_order()
    new = "next((e for e in {0}.todo if e not in {0}.tasks), {0}.todo.first())"
    plant(monkeypatch, Array.first_plain, "self.todo.first()", new.format("self"))
    assert not in_order(), "the yardstick sees it if what was given back goes last"


def test_the_world_notices_a_task_that_is_given_back_and_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "draw_submissions", draw_hasty)
    plant(monkeypatch, State.back_to_ready, "array.put_todo(task.element, task.element + 1)", "pass")
    with pytest.raises(BrokenPromise, match=r"index|stuck"):
        for seed in range(20):
            Hasty(seed, Plan(0.0, 0.0, 0.0, 0, 0, 0, 0, 0, 0, 0, 0.0)).run()
