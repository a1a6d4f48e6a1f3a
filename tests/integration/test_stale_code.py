"""Old code never runs: stories in which a person edits, reloads and runs again, with real processes [ADR 0024].

Twelve stories with every test run; SHOAL_PROVE=1 tells two hundred.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import clean_env

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]
STORY = ROOT / "tests" / "integration" / "edit_and_rerun.py"
STORIES = 200 if os.environ.get("SHOAL_PROVE") == "1" else 12
SOON = 90.0


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a person with nothing but an embedded server, which all stories share."""
    home = tmp_path_factory.mktemp("home")
    env = clean_env() | {"XDG_STATE_HOME": str(home), "XDG_CONFIG_HOME": str(home), "HOME": str(home)}
    yield env
    argv = [sys.executable, "-m", "shoal.cli", "server", "stop", "--pilots"]
    subprocess.run(argv, env=env, check=False, timeout=SOON, capture_output=True)


def start(env: dict[str, str], folder: Path, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv], env=env | more, cwd=folder, capture_output=True, text=True, timeout=SOON, check=False
    )


def test_generated_stories_of_edits_have_no_wrong_answer(alone: dict[str, str], tmp_path: Path) -> None:
    for seed in range(STORIES):
        folder = tmp_path / str(seed)
        folder.mkdir()
        for number in range(2):
            done = start(alone, folder, str(STORY), str(seed), str(folder), STORY_START=str(number))
            is_killed = seed % 5 == 0 and number == 0
            said = f"story {seed} start {number}: {done.stdout}{done.stderr}"
            assert done.returncode == (-signal.SIGKILL if is_killed else 0), said
            assert is_killed or done.stdout.startswith("right "), said
