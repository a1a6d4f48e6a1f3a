"""A source in memory, with the shapes of docs/reference/http.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shoal.model.errors import NotFound
from shoal.report.data_source import outcomes_of
from shoal.wire.task import parse_spec

Json = dict[str, Any]

TASK_FIELDS: Json = {
    "state": "succeeded", "attempt": 1, "winner": "1@1", "retries": 0, "losses": 0, "live": [], "cause": "", "message": "",
    "exit_code": 0, "signal": None, "leased": 1.0, "started": 1.0, "ended": 2.0, "duration": 0.5, "cpu": 0.4,
    "max_rss": 1024, "pilot": "p0001", "host": "laptop", "site": "local", "last_line": "", "new_files": [], "reused": "",
}  # fmt: skip


def task_row(element: int, run: int = 1, **fields: Any) -> Json:
    """A row of a task; succeeded unless told otherwise."""
    return {"run": run, "element": element, **TASK_FIELDS, **fields}


def finished(task: int, state: str = "succeeded", **data: Any) -> dict[str, Any]:
    """The event of a task that became final."""
    return {
        "seq": task,
        "kind": "task_finished",
        "run": 1,
        "task": task,
        "pilot": "p1",
        "data": {"state": state, **data},
    }


def run_info(tasks: Sequence[Mapping[str, Any]], run: str = "r1", **fields: Any) -> Json:
    """A run with the arrays that task tables make."""
    arrays: list[Json] = []
    first = 1
    for task in tasks:
        count = parse_spec(task).count
        arrays.append({"first": first, "count": count, "name": task.get("name", ""), "task": dict(task)})
        first += count
    return {
        "run": run, "owner": "me", "name": "", "created": 100.0, "finished": None, "total": first - 1, "counts": {},
        "cwd": "/data", "seed": 1, "max_fail": None, "labels": {}, "arrays": arrays, "spans": [], **fields,
    }  # fmt: skip


class FakeSource:
    """One run with rows, events and logs; remembers what was asked."""

    def __init__(
        self,
        info: Json,
        rows: Sequence[Json] = (),
        events: Sequence[Json] = (),
        logs: Mapping[tuple[str, str], bytes] | None = None,
        pilots: Sequence[Json] = (),
        reasons: Sequence[Json] = (),
    ) -> None:
        self.info, self.all_rows, self.all_events = info, list(rows), list(events)
        self.all_logs, self.all_pilots, self.reasons = dict(logs or {}), list(pilots), list(reasons)
        self.asked: list[tuple[Any, ...]] = []
        self.accounts: Json = {"by": ["owner"], "since": 0.0, "until": 0.0, "lines": [], "places": None}

    def __enter__(self) -> FakeSource:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def runs(self, state: str = "", name: str = "", limit: int = 50, before: str = "") -> Json:
        self.asked.append(("runs", state, name, limit, before))
        return {"runs": [self.info], "next": None}

    def run(self, run: str) -> Json:
        if run != self.info["run"]:
            raise NotFound(f"there is no run {run}", code="unknown_run")
        return self.info

    def tasks(
        self, run: str, after: int = 0, limit: int = 1000, states: Sequence[str] = (), values: bool = False
    ) -> Json:
        self.asked.append(("tasks", run, tuple(states)))
        found = [r for r in self.all_rows if r["element"] > after and (not states or r["state"] in states)]
        page = found[:limit]
        return {"tasks": page, "next": page[-1]["element"] if len(found) > limit else None}

    def outcomes(self, run: str, values: bool = False) -> Iterator[tuple[Any, ...]]:
        return outcomes_of(self.tasks(run, limit=len(self.all_rows) + 1, values=values)["tasks"])

    def task(self, task: str) -> Json:
        element = int(task.partition(".")[2])
        row = next((r for r in self.all_rows if r["element"] == element), None)
        array = next(a for a in self.info["arrays"] if a["first"] <= element < a["first"] + a["count"])
        span = next((s for s in self.info["spans"] if s["low"] <= element < s["high"]), None)
        state = (row or span or {"state": "ready"})["state"]
        return {
            "run": self.info, "array": array, "task": row, "span": span, "state": state, "events": self.all_events,
        }  # fmt: skip

    def logs(self, task: str, stream: str = "stdout", attempt: int | None = None) -> Iterator[bytes]:
        self.asked.append(("logs", task, stream, attempt))
        return iter([self.all_logs[task, stream]])

    def events(self, run: str = "", after: int = 0, kinds: Sequence[str] = ()) -> Iterator[Json]:
        found = (event for event in self.all_events if event["seq"] > after)
        return (event for event in found if not kinds or event["kind"] in kinds)

    def pilots(self, state: str = "") -> Json:
        return {"pilots": self.all_pilots}

    def acct(self, by: str = "", since: float = 0.0, until: float | None = None) -> Json:
        self.asked.append(("acct", by, since, until))
        return self.accounts

    def partial(self, run: str) -> Json:
        return {"run": run, "tasks": 0, "running": 0, "left_out": 0, "goal": None, "answers": []}

    def why(self, target: str) -> Json:
        return {"target": target, "state": "ready", "reasons": self.reasons}
