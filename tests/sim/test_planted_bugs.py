"""Planted bugs: each must be caught by the false world, in the named way [promises C rule 4]."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from shoal.engine import leasing, losses, parking, pilots, reports, runs
from shoal.engine.state import State
from shoal.pilot.agent import Agent
from shoal.sim.faults import Plan
from shoal.sim.ledger import Broken
from shoal.sim.world import World
from tests.sim.planting import plant
from tests.sim.test_worlds import CALM_PLAN

SEEDS = 150

# name -> (function, what stands there, what the bug makes of it, how the world must complain)
BUGS: dict[str, tuple[Callable[..., Any], str, str, str]] = {
    "no attempt check: any report counts for whatever runs now": (
        reports.judge,
        "live = task.live.get(attempt) if task is not None else None",
        "live = next(iter(task.live.values()), None) if task is not None else None",
        "two winners|published twice|recorded twice|retry burnt|acknowledged before",
    ),
    "reply before commit: a report is acknowledged too early": (
        parking.answer,
        "durable or bool(verdicts)",
        "False",
        "acknowledged before durable",
    ),
    "forgotten held list: nobody asks what a pilot lacks": (
        pilots.talk,
        "lacking = _compare(state, pilot, exchange)",
        "lacking = []",
        "stuck|index|illegal_transition",
    ),
    "the agent begins an attempt it has seen before": (
        Agent._take,
        "if lease.attempt in self._seen:",
        "if False:",
        "started twice|published twice",
    ),
    "the agent forgets a report once it is sent": (
        Agent._exchange,
        "self._flights[self._seq] = _Flight(exchange, now)",
        "self._flights[self._seq] = _Flight(exchange, now); [self.reports.pop(r.attempt) for r in fresh]",
        "stuck|not all final",
    ),
    "an exclusive task is handed out again before its hold ends": (
        losses.lose,
        "if task.array.spec.rerun is Rerun.SAFE:",
        "if task.array.spec.rerun is not Rerun.NEVER:",
        "exclusive overlap",
    ),
    "a lost pilot burns a retry": (
        losses._lose_attempt,
        "state.drop_attempt(task, attempt.id)",
        "state.drop_attempt(task, attempt.id); task.retries += 1",
        "retry burnt",
    ),
    "a late success overturns a cancelled task": (
        reports.judge,
        "if attempt.element in array.done:",
        "if False:",
        "index|recorded twice|terminal state overwritten|KeyError|IllegalTransition",
    ),
    "a child starts on a result that is not durable yet": (
        leasing.fill,
        "or bool(array.spec.after)",
        "",
        "child before parent",
    ),
    "a never task is run again": (
        losses._end_orphan,
        "if task.array.spec.rerun is Rerun.NEVER:",
        "if False:",
        "never started twice",
    ),
    "children are released by the first success of their parents": (
        runs.after_final,
        "if array.complete:",
        "if True:",
        "child before parent|index",
    ),
    "a freed slot is not given back": (
        State.drop_attempt,
        "pilot.free = give(pilot.free, task.array.spec.needs)",
        "pass",
        "index: .*free",
    ),
    "a silent pilot is never given up": (
        losses.watch,
        "if silent > t.lease:",
        "if silent > 1e9:",
        "stuck",
    ),
    "an idempotency key is not looked at": (
        runs.submit,
        "if submission.key and key in state.keys:",
        "if False:",
        "one key, two runs|UNIQUE",
    ),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Play worlds until one breaks; it must break in the way that names this bug."""
    function, old, new, words = BUGS[name]
    plant(monkeypatch, function, old, new)
    for seed in range(SEEDS):
        try:
            World(seed, steps=40_000).run()
        except Broken as broken:
            first = str(broken).splitlines()[0]
            assert re.search(words, first), f"caught, but not for what it is: {first}"
            return
    pytest.fail(f"{SEEDS} worlds did not notice: {name}")


def test_a_retry_beside_a_dying_copy_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancelled exclusive task must not start again before its old copy is dead."""
    plant(monkeypatch, runs.retry, "if row.live and wait > 0:", "if False:")
    many_cancels = Plan(0.0, 0.0, 0.2, 0, 0, 0, 0, 0, 150, 0, 0.0)
    with pytest.raises(Broken, match="exclusive overlap"):
        for seed in range(SEEDS):
            World(seed, many_cancels).run()


def test_a_skipped_quarantine_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a restarted server hands out what a living pilot already runs."""
    plant(monkeypatch, leasing.closed, "if state.unheard and state.now < state.quarantine_until:", "if False:")
    for seed in range(60):
        world = World(seed, CALM_PLAN)
        world.run()
        if any(n > 1 for n in world.ledger.started.values()):
            return
    pytest.fail("no world ran anything twice")
