"""`shoal reproduce` as people type it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cluster import clean_env

pytestmark = pytest.mark.integration


def test_an_experiment_is_run_in_a_folder_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    env = clean_env() | {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "none"), "PATH": os.environ["PATH"]}
    argv = [sys.executable, "-m", "shoal.cli", "reproduce", "u.start", "--seeds", "1"]
    found = subprocess.run(argv, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
    head, row = found.stdout.splitlines()[1:3]
    assert head.split() == ["what", "paper", "Shoal", "agrees?"]
    assert row.startswith("  100 jobs all started") and row.split()[-1] == "no"
    folder = tmp_path / "reproduce" / "u.start"
    assert sorted(path.name for path in folder.iterdir()) == ["data.csv", "plot.png", "plot.svg"]
    assert (folder / "data.csv").read_text().startswith("seed,jobs,series,started_percent\n1,1,")
    assert "<svg" in (folder / "plot.svg").read_text() and not (tmp_path / "none").exists()
