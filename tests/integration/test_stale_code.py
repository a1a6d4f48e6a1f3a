"""Old code never runs: stories in which a person edits, reloads and runs again, with real processes [ADR 0024].

Six short stories with every test run; SHOAL_PROVE=1 tells two hundred longer ones.
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
IS_LONG = os.environ.get("SHOAL_PROVE") == "1"
STORIES = 200 if IS_LONG else 6
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
            more = {"STORY_START": str(number), "STORY_LONG": "1" if IS_LONG else ""}
            done = start(alone, folder, str(STORY), str(seed), str(folder), **more)
            is_killed = seed % 5 == 0 and number == 0
            said = f"story {seed} start {number}: {done.stdout}{done.stderr}"
            assert done.returncode == (-signal.SIGKILL if is_killed else 0), said
            assert is_killed or done.stdout.startswith("right "), said


EDITED = """
import shoal, helper
def f(): return helper.WORD
with shoal.Executor(initializer=helper.begin) as ex:
    print(ex.submit(f).result(60), ex.submit(helper.begun).result(60), list(ex.map(helper.tell, range(2))))
"""
HELPER = """
WORD, BEGUN = {word!r}, []
def begin(): BEGUN.append({word!r})
def begun(): return BEGUN
def tell(n): return WORD
"""


def test_a_module_edited_between_two_starts_of_a_script(alone: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(EDITED)
    for word in ("old", "new", "old"):
        (tmp_path / "helper.py").write_text(HELPER.format(word=word))
        os.utime(tmp_path / "helper.py", (1_700_000_000, 1_700_000_000))
        done = start(alone, tmp_path, "script.py", PYTHONDONTWRITEBYTECODE="1")
        assert done.stdout == f"{word} ['{word}'] ['{word}', '{word}']\n", done.stderr


LEFT = """
import multiprocessing, os, shoal, signal
def spoil():
    import builtins
    builtins.left = 1
    os.environ["LEFT"] = "1"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
def use():
    import builtins
    with multiprocessing.Pool(1) as pool:
        return pool.map(abs, [-1, -2]), hasattr(builtins, "left"), "LEFT" in os.environ
for function in (spoil, use):
    with shoal.Executor(attach=False) as ex:
        print(ex.submit(function).result(60))
"""


def test_what_one_executor_leaves_behind_does_not_hang_the_next(alone: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "left.py").write_text(LEFT)
    assert start(alone, tmp_path, "left.py").stdout == "None\n([1, 2], False, False)\n"
