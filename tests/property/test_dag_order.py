"""Workflows of random shape in the engine [promise I19]: a task starts only when everything that it needs has succeeded, what
it waits for in any way has ended, and no more often than its retries allow; cancels and manual retries come between.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import Any

import pytest

from shoal.flow.dag import Vertex, build, document
from shoal.model.ids import TaskId, parse_attempt
from tests.unit.engine.stand import FakePilot, Stand, bad, good

PROVE = os.environ.get("SHOAL_PROVE") == "1"
MANY = 10_000 if PROVE else 120
PARTS = 8
LARGE = (10_000, 10_000, 3_000) if PROVE else (10_000,)
FINALS = ("succeeded", "failed", "cancelled", "lost")


class World:
    """One workflow on one server, and what is known of it from outside."""

    def __init__(self, seed: int, size: int, pilots: int, cores: int) -> None:
        self.rng = rng = Random(seed)
        self.seed = seed
        wide = rng.choice([1, 3, max(1, size // 10)])
        self.after: list[set[int]] = []
        self.after_any: list[set[int]] = []
        vertices = []
        for at in range(size):
            near = range(max(0, at - 3 * wide), at)
            parents = {rng.choice(near) for _ in range(rng.randint(0, 3))} if near else set()
            loose = {rng.choice(near)} - parents if near and rng.random() < 0.1 else set[int]()
            self.after.append(parents)
            self.after_any.append(loose)
            fields: dict[str, Any] = {"command": ["true"], "retries": rng.choice([0, 0, 2])}
            if rng.random() < 0.05:
                fields = {"noop": True}
            needed, ended = (tuple(f"v{parent}" for parent in sorted(some)) for some in (parents, loose))
            vertices.append(Vertex(f"v{at}", fields, needed, ended))
        self.tables = document(build(vertices))["tasks"]
        self.stand = Stand()
        self.run = self.stand.submit(*self.tables)
        self.pilots = [self.stand.pilot(cores) for _ in range(pilots)]
        self.failing = rng.choice([0.0, 0.02, 0.2])
        self.state: dict[int, str] = {}
        self.began: Counter[int] = Counter()  # attempts since the last manual retry
        self.seen = 0

    def take_events(self) -> None:
        """What became final, by the journal; each end is one."""
        for event in self.stand.journal[self.seen :]:
            if event.kind == "task_finished":
                self._end(int(event.task or 0) - 1, event.data["state"])
            elif event.kind == "tasks_closed":
                for low, high in event.data["ranges"]:
                    for element in range(low, high + 1):
                        self._end(element - 1, event.data["state"])
        self.seen = len(self.stand.journal)

    def _end(self, at: int, state: str) -> None:
        assert at not in self.state, (self.seed, at, self.state.get(at), state)
        self.state[at] = state

    def begin(self, attempt: str) -> None:
        """An attempt was handed out: everything that its task waits for is as it must be."""
        at = parse_attempt(attempt).element - 1
        assert at not in self.state, (self.seed, at)
        assert all(self.state.get(parent) == "succeeded" for parent in self.after[at]), (self.seed, at)
        assert all(parent in self.state for parent in self.after_any[at]), (self.seed, at)
        assert "command" in self.tables[at], (self.seed, at)
        self.began[at] += 1
        assert self.began[at] <= 1 + self.tables[at].get("retries", 0), (self.seed, at)

    def work(self) -> bool:
        """Each pilot reports what it holds, and takes more; False if nobody had anything to do."""
        is_busy = False
        for pilot in self.pilots:
            held = [name for name in list(pilot.held) if self.rng.random() < 0.8]
            reports = [bad(name) if self.rng.random() < self.failing else good(name) for name in held]
            known = set(pilot.held)
            pilot.talk(*reports)
            self.take_events()
            for attempt in [name for name in pilot.held if name not in known]:
                self.begin(attempt)
            is_busy = is_busy or bool(held) or bool(pilot.held)
            self.late(pilot)
        return is_busy

    def late(self, but: FakePilot) -> None:
        """What came to other pilots, which waited."""
        for pilot in self.pilots:
            if pilot is not but:
                for lease in pilot.took():
                    self.begin(lease.attempt)

    def disturb(self) -> None:
        """Sometimes somebody cancels a task, or retries the run."""
        chance = self.rng.random()
        if chance < 0.03:
            at = self.rng.randrange(len(self.tables))
            self.stand.cancel(TaskId(self.run, at + 1))
            self.take_events()
            for pilot in self.pilots:  # their guard has killed it by the next exchange
                for name in [name for name in pilot.held if parse_attempt(name).element == at + 1]:
                    del pilot.held[name]
            self.late(self.pilots[0])
        elif chance < 0.05 and not any(pilot.held for pilot in self.pilots):
            self.retry()

    def retry(self) -> None:
        """All that failed or was cancelled is tried again."""
        self.stand.retry(self.run)
        for at in [at for at, state in self.state.items() if state != "succeeded"]:
            del self.state[at]
            self.began[at] = 0
        self.take_events()
        for pilot in self.pilots:
            for lease in pilot.took():
                self.begin(lease.attempt)

    def check_end(self) -> None:
        """Everything is final; what failed without an attempt is behind something that did not succeed."""
        assert set(self.state) == set(range(len(self.tables))), self.seed
        for at, state in self.state.items():
            lost = [parent for parent in self.after[at] if self.state[parent] != "succeeded"]
            if lost:
                assert state in ("failed", "cancelled"), (self.seed, at)
                assert not self.began[at], (self.seed, at)
            elif not self.began[at]:
                assert state == "cancelled" or "noop" in self.tables[at], (self.seed, at, state)
        assert self.stand.engine.state.runs[self.run].finished is not None, self.seed


def play(seed: int, size: int, pilots: int = 2, cores: int = 4, disturbs: bool = True) -> None:
    world = World(seed, size, pilots, cores)
    world.take_events()
    for _ in range(40 * size + 100):
        if disturbs:
            world.disturb()
        if not world.work() and world.stand.engine.state.runs[world.run].finished is not None:
            break
    world.check_end()
    if size < 100:
        assert world.stand.sound()


@pytest.mark.parametrize("part", range(PARTS))
def test_workflows_of_random_shape_keep_their_order(part: int) -> None:
    for seed in range(part, MANY, PARTS):
        play(seed, Random(seed).choice([1, 2, 5, 12, 30]))


@pytest.mark.parametrize("size", LARGE)
def test_a_large_workflow_keeps_its_order(size: int) -> None:
    play(size, size, pilots=1, cores=200, disturbs=False)
