"""What the pilot does for its runners beside the calls themselves."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from shoal.pilot.commands.staging import PilotFacts, Staging
from shoal.pilot.functions.executor import FunctionExecutor


def nothing(*_: object) -> None:
    """Stands for whoever hears what is not looked at here."""


def test_who_waits_for_bytes_is_told_whatever_goes_wrong(tmp_path: Path) -> None:
    def fail(digest: str) -> str:
        raise RecursionError("too deep")

    blobs: Any = SimpleNamespace(fetch=fail, store=fail, close=lambda: None)
    stage = Staging(PilotFacts(str(tmp_path), {}))
    tails: Any = nothing
    executor = FunctionExecutor(stage, 0o77, 1, nothing, nothing, lambda work: work(), nothing, tails, blobs)
    found: list[tuple[str | None, str]] = []
    executor._fetch("sha256:0", lambda path, why: found.append((path, why)))
    executor._store("result", lambda digest, why: found.append((digest, why)))
    executor.close()
    assert found == [(None, "RecursionError: too deep")] * 2
