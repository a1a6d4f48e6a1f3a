"""Which logs go when there are too many."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from shoal.db.retention import runs_over
from shoal.model.file_names import LOGS


class Finished:
    """A reader that knows of finished runs."""

    def __init__(self, *runs: int) -> None:
        self._runs = sorted(runs, reverse=True)

    def runs(self, limit: int, before: int | None, state: str) -> list[dict[str, int]]:
        return [{"run": run} for run in self._runs if before is None or run < before][:limit]


def keep(state: Path, name: str, size: int, age: float = 0.0) -> Path:
    folder = state / LOGS / name
    folder.mkdir(parents=True)
    (folder / "1.out").write_bytes(b"x" * size)
    os.utime(folder, (1_000.0 - age, 1_000.0 - age))
    return folder


def test_logs_of_lost_histories_go_first_and_the_oldest_of_them_before_others(tmp_path: Path) -> None:
    reader: Any = Finished(1, 2)
    for name in ("r1", "r2"):
        keep(tmp_path, name, 100)
    young, old = keep(tmp_path, "r1.lost-1", 100, age=5.0), keep(tmp_path, "r2.lost-1", 100, age=9.0)
    assert runs_over(reader, tmp_path, 400) == [] and old.exists()
    assert runs_over(reader, tmp_path, 300) == [] and young.exists() and not old.exists()
    assert runs_over(reader, tmp_path, 100) == [1] and not young.exists()
    assert (tmp_path / LOGS / "r1").exists(), "whoever asked deletes what runs have"
