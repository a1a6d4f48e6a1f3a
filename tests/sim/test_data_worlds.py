"""Worlds with files: no task is lost or starved because it waits for its data, whatever fails [CMS IV.E]."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import pytest

from shoal.engine.locality import holds
from shoal.engine.locality.index import DataIndex
from shoal.engine.pilots import losses
from shoal.engine.records import Array
from shoal.model.policy import COST, IDLE
from shoal.pilot.agent.agent import Agent
from shoal.sched import hold
from shoal.sim.proof.data_world import DataWorld
from shoal.sim.proof.faults import Plan
from shoal.sim.proof.ledger import BrokenPromise
from tests.sim.planting import plant
from tests.sim.test_worlds import CALM_PLAN

PROVE = bool(os.environ.get("SHOAL_PROVE"))
SEEDS = range(400) if PROVE else (0, 2)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("wait", [IDLE, COST])
def test_no_task_is_lost_or_starved_by_waiting_for_its_data(wait: str) -> None:
    waited = 0
    for seed in SEEDS:
        world = DataWorld(seed, wait=wait)
        world.run()
        waited += world.waited
    assert waited


def test_the_same_seed_gives_the_same_trace() -> None:
    assert DataWorld(2).run() == DataWorld(2).run()


# name -> (function, what stands there, what the bug makes of it, how the world must complain, a world that notices)
Planted = tuple[Callable[..., Any], str, str, str, int]
BUGS: dict[str, Planted] = {
    "the server forgets that a file left a cache": (
        DataIndex.change,
        "for digest in removed:",
        "for digest in ():",
        "cache told wrong",
        5,
    ),
    "the pilot tells nothing again after the server started again": (
        Agent._on_answered,
        "self.cache.forgotten()  # the server",
        "pass  # the server",
        "cache told wrong",
        4,
    ),
    "a task waits for a busy pilot": (
        holds.expected_wait,
        "if how_many(cls.needs, pilot.free) > 0:",
        "if True:",
        "kept for no reason",
        6,
    ),
    "a task waits for a pilot that has no more of its data": (
        hold._idle,
        "one.has.files > here.files",
        "one.has.files >= here.files",
        "kept for no reason",
        5,
    ),
    "a task waits for its data without end": (
        hold.hold,
        "most = rule.longest",
        "most = 1e6",
        "kept for no reason",
        0,
    ),
    "a task stays in the index when it is leased or ends": (
        Array.take_todo,
        "self.inputs.index.was_taken(self.inputs, low, high, is_last=not self.todo)",
        "pass",
        "index: .*reads sha256",
        0,
    ),
    "what a pilot told counts when it is gone": (
        losses.end,
        "state.data.forget_pilot(pilot)",
        "pass",
        "index: .*it is gone",
        2,
    ),
}
PLANS = {"the pilot tells nothing again after the server started again": CALM_PLAN}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Play worlds until one breaks; it must break in the way that names this bug."""
    function, old, new, words, lately = BUGS[name]
    plant(monkeypatch, function, old, new)
    plan: Plan | None = PLANS.get(name)
    for seed in (lately, *range(60)):
        try:
            DataWorld(seed, plan).run()
        except BrokenPromise as broken:
            complaint = str(broken).splitlines()[0]
            assert re.search(words, complaint), f"caught in {seed}, but not for what it is: {complaint}"
            return
    pytest.fail(f"60 worlds did not notice: {name}")
