"""Retention of logs beside the database [protocol 7]; `Database.prune` deletes events. Runs and results stay, and so do
the environments of runs: a retry years later still needs them."""

from __future__ import annotations

import shutil
from pathlib import Path

from shoal.db.reader import Reader
from shoal.model.file_names import LOGS
from shoal.model.ids import run_text
from shoal.model.limits import MAX_PAGE

KEEP_SECONDS, KEEP_BYTES = 30 * 86_400.0, 2 << 30


def drop_logs(state_dir: Path, run: int) -> int:
    """Delete the logs of a run; returns the bytes that were freed."""
    folder = state_dir / LOGS / run_text(run)
    size = _size(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return size


def runs_over(reader: Reader, state_dir: Path, budget: int) -> list[int]:
    """Finished runs whose logs must go, oldest first, so that what is left is within the budget.

    Before any of them, logs of a replaced database (`r12.lost-1`) are deleted here, because no run has them.
    """
    left = sum(_size(folder) for folder in (state_dir / LOGS).glob("r*"))
    for folder in sorted((state_dir / LOGS).glob("r*.lost-*"), key=lambda lost: lost.stat().st_mtime):
        if left <= budget:
            break
        size = _size(folder)
        shutil.rmtree(folder, ignore_errors=True)
        left -= size - _size(folder)
    over: list[int] = []
    for run in _finished(reader):
        if left <= budget:
            break
        left -= _size(state_dir / LOGS / run_text(run))
        over.append(run)
    return over


def _finished(reader: Reader) -> list[int]:
    found: list[int] = []
    before: int | None = None
    while page := reader.runs(limit=MAX_PAGE, before=before, state="finished"):
        found += [row["run"] for row in page]
        before = found[-1]
    return found[::-1]


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) if folder.is_dir() else 0
