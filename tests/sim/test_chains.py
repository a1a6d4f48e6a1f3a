"""Worlds of chains: no call begins, or counts, before those that it waits for, whatever fails [ADR 0064]."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import pytest

from shoal.engine.matching import choose_tasks
from shoal.engine.pilots import reconcile
from shoal.engine.placement import chains
from shoal.engine.tasks import runs
from shoal.pilot.agent.agent import Agent
from shoal.sim.proof.chain_world import ChainWorld
from shoal.sim.proof.ledger import BrokenPromise
from tests.sim.planting import plant

PROVE = bool(os.environ.get("SHOAL_PROVE"))
SEEDS = range(400) if PROVE else (3,)


@pytest.mark.timeout(600)
def test_chains_keep_every_promise_whatever_fails() -> None:
    chained, traces = 0, set()
    for seed in (SEEDS[0], *SEEDS):
        world = ChainWorld(seed)
        traces.add(world.run())
        chained += world.chained
    assert chained > 100 * len(SEEDS) and len(traces) == len(SEEDS), "the same seed gives the same trace"


# name -> (function, what stands there, what the bug makes of it, how the world must complain)
BUGS: dict[str, tuple[Callable[..., Any], str, str, str]] = {
    "a pilot goes on behind a call that failed": (
        Agent.handle,
        "self._give_back(self._slots.take_behind(self.reports),",
        "(lambda *_: None)(self.reports,",
        "child before parent",
    ),
    "what a pilot never got of a chain is sent again, without its place in it": (
        reconcile._lacking_of,
        "for array in chunk.arrays if missing else ():",
        "for array in ():",
        "child before parent",
    ),
    "what waits for others, too, goes along with one of them": (
        chains.gather,
        "if not array.unmet <= taken:",
        "if not array.unmet & taken:",
        "child before parent|KeyError",  # its other parent has no lane
    ),
    "who waits for a call is in another lane": (
        chains.divide,
        "lane = lane_of[parts.find(array.first)]",
        "lane = array.first % lanes",
        "child before parent",
    ),
    "a pilot is not told what its calls wait for": (
        chains.parents_of,
        "return found if any(found) else []",
        "return []",
        "child before parent",
    ),
    "what a pilot has behind a failed call stays there": (
        runs._fail_children,
        "_withdraw(state, child, why)",
        "pass",
        "stuck",  # nobody ends it, nor gives it back
    ),
    "a chain begins on results of others that are not durable yet": (
        choose_tasks.LeaseRound.lease_from,
        "self.durable = self.durable or spec.rerun is not Rerun.SAFE or bool(spec.after or spec.after_any)",
        "pass",
        "child before parent",
    ),
}
# The same bug in a second place, where there are two ways for one thing.
ALSO: dict[str, list[tuple[Callable[..., Any], str, str]]] = {
    "a chain begins on results of others that are not durable yet": [
        (chains.shows_results, "return any(", "return False and any("),
    ],
}
# The worlds that noticed soonest are played first.
LATELY = {
    "what a pilot never got of a chain is sent again, without its place in it": 4,
    "what a pilot has behind a failed call stays there": 3,
    "a chain begins on results of others that are not durable yet": 1,
}
STEPS = 15_000  # a sound world ends within 12,000; one that takes more is stuck


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, old, new, words = BUGS[name]
    plant(monkeypatch, function, old, new)
    for also in ALSO.get(name, []):
        plant(monkeypatch, *also)
    for seed in (LATELY.get(name, 0), *range(30)):
        try:
            ChainWorld(seed, steps=STEPS).run()
        except BrokenPromise as broken:
            complaint = str(broken).splitlines()[0]
            assert re.search(words, complaint), f"caught, but not for what it is: {complaint}"
            return
    pytest.fail(f"no world noticed: {name}")
