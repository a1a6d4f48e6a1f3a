"""A client whose server is a script: what it answers, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shoal.client.client import Client, LogPart
from shoal.model.errors import NotFound, ShoalError
from tests.unit.report.fake_source import FakeSource

Json = dict[str, Any]
Step = list[Json] | ShoalError | type[BaseException]


class FakeClient(Client):
    """Gives pages of events in order; the run's row is what the last page left."""

    def __init__(self, source: FakeSource, steps: Iterable[Step] = (), facts: Json | None = None) -> None:
        super().__init__("unix:/run/shoal-9")
        self.source, self.steps = source, list(steps)
        self.facts = {"pilots": 1, "slots": 4, "live": 0, "open_runs": 1} if facts is None else facts
        self.submitted: list[Json] = []
        self.cancelled: list[str] = []
        self.already_final = 0
        self.lost: ShoalError | None = None
        self.answer: Json = {"run": "r1", "tasks": source.info["total"], "reused": 0, "reruns": [], "again": False}

    def events(
        self, after: int = 0, run: str = "", limit: int = 1000, wait: float = 0.0, kinds: Iterable[str] = ()
    ) -> Json:
        last: Step = [{"seq": after + 1, "kind": "run_finished", "run": 1, "data": {}}]
        step = self.steps.pop(0) if self.steps else last
        self.lost = step if isinstance(step, ShoalError) else None
        if isinstance(step, ShoalError):
            raise step
        if isinstance(step, type):
            raise step
        for event in step:
            state = event["data"].get("state")
            if event["kind"] == "task_finished":
                counts = self.source.info["counts"]
                counts[state] = counts.get(state, 0) + 1
            if event["kind"] == "run_finished":
                self.source.info["finished"] = self.source.info["created"] + 10.0
        return {"events": step, "last": max([after, *(event["seq"] for event in step)])}

    def submit(self, submission: Mapping[str, Any]) -> Json:
        self.submitted.append(dict(submission))
        return self.answer

    def runs(self, state: str = "", name: str = "", limit: int = 50, before: str = "") -> Json:
        if self.lost is not None:
            raise self.lost
        return {"runs": [self.source.info], "next": None}

    def run(self, run: str) -> Json:
        if run != self.source.info["run"]:
            raise NotFound(f"there is no run {run}", code="unknown_run")
        return self.source.info

    def tasks(
        self, run: str, after: int = 0, limit: int = 1000, states: Iterable[str] = (), values: bool = False
    ) -> Json:
        return self.source.tasks(run, after, limit, tuple(states), values)

    def task(self, task: str) -> Json:
        return self.source.task(task)

    def logs(
        self, task: str, stream: str = "stdout", attempt: int | None = None, offset: int = 0, wait: float = 0.0
    ) -> LogPart:
        data = b"".join(self.source.logs(task, stream, attempt))[offset:]
        return LogPart(data, offset + len(data), False)

    def why(self, target: str) -> Json:
        return self.source.why(target)

    def pilots(self, state: str = "") -> Json:
        return self.source.pilots(state)

    def server(self) -> Json:
        return self.facts

    def cancel(self, targets: Iterable[str], unless_running: bool = False) -> Json:
        self.cancelled += targets
        return {"cancelled": len(self.cancelled), "already_final": self.already_final}

    def retry(self, targets: Iterable[str], where: Mapping[str, Any] | None = None) -> Json:
        return {"tasks": 2, "runs": ["r1"]}


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
