from __future__ import annotations

from typing import Any

from shoal.cli.output.describe import describe_run


def run(*tasks: dict[str, Any]) -> dict[str, Any]:
    arrays = [{"first": at, "count": 1, "name": task["name"], "task": task} for at, task in enumerate(tasks, 1)]
    return {
        "run": "r1", "name": "w", "counts": {}, "total": len(tasks), "finished": None, "created": 1.0, "cwd": "/x",
        "seed": 1, "labels": {}, "arrays": arrays, "spans": [],
    }  # fmt: skip


def test_tasks_that_wait_one_by_one_are_shown_with_their_values() -> None:
    found = dict(describe_run(run({"name": "fit.7", "command": ["fit", "{x}"], "params": [{"x": 7}]})))
    assert found["r1.1"] == "fit.7: fit 7"
    assert not any("row" in str(text) for text in found.values())


def test_of_many_that_are_waited_for_the_first_are_named() -> None:
    after = [f"make.{at}" for at in range(1, 5_001)]
    found = dict(describe_run(run({"name": "sum", "command": ["sum"], "after": after})))
    assert str(found[""]).endswith("make.8 and 4,992 more")
