"""What the calls of the tests do; each leaves files by which the tests know what truly happened."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from typing import Any


def note(ledger: Path, text: object) -> None:
    """Leave a file with a text; no two calls write the same."""
    (ledger / uuid.uuid4().hex).write_text(str(text), encoding="utf-8")


def notes(ledger: Path) -> list[str]:
    """All texts that were left."""
    return [file.read_text(encoding="utf-8") for file in ledger.iterdir()]


def score(estimator: Any, x: Any, y: Any, ledger: Path) -> float:
    """The score of scikit-learn's own, which leaves the process that computed it."""
    note(ledger, os.getpid())
    return float(estimator.score(x, y))


def square(number: int) -> int:
    return number * number


def fail_at(number: int, wrong: int, ledger: Path) -> int:
    """Raise at one number; the others wait, so that they are there to be cancelled."""
    if number == wrong:
        raise LookupError(f"no {number}")
    note(ledger, number)
    time.sleep(60)
    return number


def overlap(ledger: Path, folder: Path) -> int:
    """How many calls run now, this one among them; the last of them to begin sees all."""
    mine = folder / uuid.uuid4().hex
    mine.touch()
    time.sleep(0.05)
    count = len(list(folder.iterdir()))
    mine.unlink()
    note(ledger, count)
    return count


def describe(array: Any, at: int) -> tuple[float, bool]:
    """An element of an array, and whether one may write into it."""
    return float(array[at]), bool(array.flags.writeable)


def inner(number: int) -> list[int]:
    """A loop inside a call."""
    import joblib

    return list(joblib.Parallel(n_jobs=2)(joblib.delayed(square)(number + n) for n in range(3)))


def variable(name: str) -> str:
    return os.environ[name]
