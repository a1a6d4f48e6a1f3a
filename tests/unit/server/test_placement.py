"""Plans are made beside the server's loop, only where there is something to plan, and a bad one ends nothing."""

from __future__ import annotations

import asyncio
import importlib.metadata
import threading
from pathlib import Path
from typing import Any

import pytest

from shoal.db.sqlite import Database
from shoal.engine.commands import UsePlan
from shoal.model.errors import BadInput
from shoal.model.policy import PlacementRule, Policy
from shoal.model.timing import Timing
from shoal.sched.placement.question import Kind, Place, Plan, Question
from shoal.server import placement as module
from shoal.server.disk_reserve import Reserve
from shoal.server.placement import PlacementLoop, check_objective, make_plan
from shoal.server.service import Service

BOTH = frozenset({"a", "b"})
SOME = Question([Kind(1, 30, 1, 10.0, {}, BOTH)], [Place("a", 20), Place("b", 10)])


def test_a_rule_chooses_how_tasks_are_directed() -> None:
    by_plan = make_plan(SOME, PlacementRule(), 0)
    assert by_plan.directed[1]["a"] == pytest.approx(20.0, abs=3.0) and by_plan.how != "round-robin"
    in_turn = make_plan(SOME, PlacementRule(by="round-robin"), 0)
    assert in_turn.directed[1] == {"a": 15.0, "b": 15.0}


def test_an_objective_that_nobody_brings_is_refused_with_the_nearest() -> None:
    for name in ("completion-time", "cost", "balance"):
        check_objective(name)
    with pytest.raises(BadInput) as refused:
        check_objective("costs")
    assert "cost" in refused.value.hint


class Point:
    """An entry point of another package."""

    name = "cheapest"

    def load(self) -> Any:
        from shoal.sched.vector.placement import price

        return price


def test_another_package_may_bring_an_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry_points(group: str) -> list[Point]:
        return [Point()] if group == "shoal.objectives" else []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    check_objective("cheapest")
    places = [Place("a", 20, price=5.0), Place("b", 10, price=1.0)]
    found = make_plan(SOME._replace(places=places), PlacementRule(objective="cheapest"), 0)
    assert found.directed[1] == {"b": pytest.approx(30.0)}


def test_plans_are_made_on_another_thread_when_something_happened_and_dropped_when_nothing_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Question | None] = [SOME]
    threads, used = list[int](), list[Plan | None]()

    def watched(question: Question, rule: PlacementRule, turn: int) -> Plan:
        threads.append(threading.get_ident())
        return make_plan(question, rule, turn)

    async def story() -> None:
        database = Database.open(tmp_path / "shoal.db", durability="normal")
        service = Service(database, tmp_path, Timing(), "own", Reserve(tmp_path))
        state = service.engine.state
        monkeypatch.setattr(module, "make_plan", watched)
        monkeypatch.setattr(service.engine, "placement_question", lambda now: asked[0])

        async def command(one: Any) -> None:
            assert isinstance(one, UsePlan)
            used.append(one.plan)
            service.engine.handle(one, service.clock())

        monkeypatch.setattr(service, "command", command)
        loop, now = PlacementLoop(service), 1_000_000.0
        await loop.step(now)
        assert len(used) == 1 and state.placed is not None and loop.last is not None
        await loop.step(now + 6.0)
        assert len(used) == 1, "nothing happened, and the interval is not over"
        state.queue.arrivals += 1
        await loop.step(now + 1.0)
        assert len(used) == 1, "not so soon again"
        await loop.step(now + 6.0)
        assert len(used) == 2
        await loop.step(now + 40.0)
        assert len(used) == 3, "the interval is over"
        asked[0] = None
        await loop.step(now + 80.0)
        assert used[-1] is None and service.engine.state.placed is None
        asked[0], state.accounting.policy = SOME, Policy(placement=PlacementRule(by="off"))
        await loop.step(now + 120.0)
        assert len(used) == 4, "it is switched off"
        await service.writer.stop()

    asyncio.run(story())
    assert threads and threading.get_ident() not in threads
