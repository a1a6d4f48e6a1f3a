"""Chunks are only a faster way [ADR 0009]: whatever pilots and people do, an engine that leases neighbours together and
one that never does hand out the same attempts, give the same verdicts and write the same ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.engine.matching import choose_tasks
from shoal.model.ids import TaskId, parse_attempt
from shoal.wire.batches import merge
from shoal.wire.messages import Report
from tests.unit.engine.stand import FakePilot, Stand

PROVE = os.environ.get("SHOAL_PROVE") == "1"
COLUMNS = ("state", "attempt", "winner", "retries", "losses", "cause", "exit_code", "duration", "last_line", "result")


@contextmanager
def without_chunks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose_tasks, "may_chunk", lambda spec, protocol: False)
        yield


class Play:
    """One engine and its pilots, played by a seed."""

    def __init__(self, seed: int, batched: bool) -> None:
        self.rng, self.batched = Random(seed), batched
        self.stand = Stand()
        self.pilots: list[FakePilot] = [self.stand.pilot(self.rng.randint(1, 4)) for _ in range(2)]
        self.runs = [
            self.stand.submit({"array": f"1-{self.rng.randint(3, 30)}{self.rng.choice(['', '', '%3'])}", "retries": 1}),
            self.stand.submit(
                {"name": "a", "array": f"1-{self.rng.randint(2, 9)}"}, {"name": "b", "after": ["a"], "array": "1-4"}
            ),
        ]
        self.totals = {run: self.stand.engine.state.runs[run].total for run in self.runs}
        self.told: list[Any] = []

    def step(self) -> None:
        """Something happens."""
        pilot = self.rng.choice(self.pilots)
        deed = self.rng.choice(["pull", "pull", "finish", "finish", "finish", "start", "fail", "back", "cancel", "lose",
                                "restart", "time"])  # fmt: skip
        if deed == "pull":
            self._hear(pilot, [])
        elif deed in ("finish", "fail", "back"):
            some = sorted(pilot.held, key=parse_attempt)[: self.rng.randint(1, 8)]
            outcome = {"finish": "succeeded", "fail": "failed", "back": "returned"}[deed]
            self._hear(pilot, [self._report(attempt, outcome) for attempt in some])
        elif deed == "start" and pilot.held:
            pilot.held[self.rng.choice(sorted(pilot.held))] = "running"
            self._hear(pilot, [])
        elif deed == "cancel" and self.rng.random() < 0.3:
            run = self.rng.choice(self.runs)
            self.told.append(self.stand.cancel(TaskId(run, self.rng.randint(1, 3))))
        elif deed == "lose" and self.rng.random() < 0.2:
            self.stand.bury(pilot)
            self.pilots.remove(pilot)
            self.pilots.append(self.stand.pilot(2))
        elif deed == "restart" and self.rng.random() < 0.2:
            self.stand.restart()
            for one in self.pilots:
                self._hear(one, [])
        elif deed == "time":
            self.stand.pass_time(0.2)
        self.stand.commit()
        assert self.stand.sound()

    def _report(self, attempt: str, outcome: str) -> Report:
        code = {"succeeded": 0, "failed": 1}.get(outcome)
        return Report(attempt, outcome, exit_code=code, started=5.0, duration=0.01, last_line=attempt)

    def _hear(self, pilot: FakePilot, reports: list[Report]) -> None:
        for report in reports:
            pilot.held.pop(report.attempt, None)
        alone, batches = merge(reports) if self.batched else (reports, [])
        reply = pilot.talk(*alone, batches=batches)
        for order in reply.orders:
            if order.kind == "cancel":
                pilot.held.pop(order.attempt, None)
        verdicts = {}
        for verdict in reply.verdicts:
            first = parse_attempt(verdict.attempt)
            for at in range(verdict.count):
                verdicts[str(first._replace(element=first.element + at))] = verdict.verdict
        self.told.append((pilot.name, [lease.attempt for lease in reply.leases], verdicts,
                          sorted((order.kind, order.attempt) for order in reply.orders)))  # fmt: skip

    def ends(self) -> list[Any]:
        """What is on record of every element."""
        found: list[Any] = []
        for run in self.runs:
            for element in range(1, self.totals[run] + 1):
                state = self.stand.state(run, element)
                final = state in ("succeeded", "failed", "cancelled", "lost")
                row = self.stand.reader.task(run, element) if final else None
                found.append((run, element, state, [row.get(name) for name in COLUMNS] if row else None))
        counts = [(self.stand.reader.run(run) or {})["counts"] for run in self.runs]
        finals = sorted((e.run, e.task, e.attempt, e.data["state"]) for e in self.stand.events("task_finished"))
        return [found, counts, finals]


@given(st.integers(0, 10**9), st.integers(5, 60))
@settings(max_examples=60 if PROVE else 20, deadline=None)
def test_an_engine_with_chunks_and_one_without_do_the_same(seed: int, steps: int) -> None:
    chunked, batched = Play(seed, batched=True), Play(seed, batched=False)
    with without_chunks():
        plain = Play(seed, batched=False)
    for _ in range(steps):
        chunked.step()
        batched.step()
        with without_chunks():
            plain.step()
        assert chunked.told == batched.told == plain.told
    assert chunked.ends() == batched.ends() == plain.ends()


def test_the_play_does_lease_chunks() -> None:
    """Else the comparison above would say nothing."""
    play = Play(3, batched=True)
    for _ in range(40):
        play.step()
    chunks = [event for event in play.stand.events("tasks_leased") if event.data.get("chunks")]
    assert len(chunks) > 3
