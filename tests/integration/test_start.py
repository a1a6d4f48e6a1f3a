"""The start of an embedded server: several commands at once, and kill -9 of everything at any moment of it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.model.file_names import DATABASE, SERVER_FILE
from tests.integration.cluster import PROVE, clean_env, processes_with

pytestmark = pytest.mark.integration
SHOAL = [sys.executable, "-m", "shoal.cli"]


class Home:
    """A person's directory with an embedded server's state in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "state" / "shoal"
        self.env = {**clean_env(), "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
        folder.mkdir()

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A command in the background."""
        return subprocess.Popen(
            [*SHOAL, *words], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, *words: str) -> str:
        """A command that must succeed."""
        with self.start(*words) as child:
            out, _ = child.communicate(timeout=60)
        assert child.returncode == 0, out
        return out

    def pilots(self) -> list[str]:
        """The pilots that are connected."""
        return [pilot["pilot"] for pilot in json.loads(self.run("pilots", "--json"))["pilots"]]

    def processes(self, word: str) -> set[int]:
        """The processes of this home with such a word in their names or command lines."""
        return {pid for pid, line in processes_with(str(self.folder)) if word in str(line)}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "home")
    yield made
    with made.start("server", "stop", "--pilots") as child:
        child.communicate(timeout=60)
    end = time.monotonic() + 15.0
    while (left := dict(processes_with(str(made.folder)))) and time.monotonic() < end:
        time.sleep(0.05)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left


def test_commands_at_the_same_moment_share_one_server_and_one_pilot(home: Home) -> None:
    children = [home.start("run", "--", "true") for _ in range(3)]
    for child in children:
        out, _ = child.communicate(timeout=60)
        assert child.returncode == 0, out
    assert len(home.pilots()) == 1
    assert (home.state / "server.log").read_text().count("listening") == 1


def test_server_file_pilot_and_secrets_are_private(home: Home) -> None:
    home.run("run", "--", "true")
    assert home.state.stat().st_mode & 0o777 == 0o700
    opened = [path.name for path in home.state.iterdir() if path.is_file() and path.stat().st_mode & 0o077]
    assert not opened


MOMENTS = (0.1, 0.2, 0.3, 0.45, 0.6, 0.9)  # seconds
VICTIMS = ("server", "pilot", "both")
# Each moment once and each victim twice; all of them with SHOAL_PROVE=1.
KILLS = [*itertools.product(VICTIMS, MOMENTS)] if PROVE else [*zip(VICTIMS * 2, MOMENTS, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(("who", "delay"), KILLS)
def test_kill_at_any_moment_of_the_start_does_not_block_the_next(home: Home, who: str, delay: float) -> None:
    with home.start("run", "--", "true") as child:
        time.sleep(delay)
        victims = home.processes("shoal.server") if who != "pilot" else set()
        victims |= home.processes("shoal/pilot/__main__.py") if who != "server" else set()
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        out, _ = child.communicate(timeout=60)  # it may fail, or start another server; it must end
    assert "Traceback" not in out, out
    home.run("run", "--", "true")
    # The record of a pilot whose registration was answered by nobody may stay for a while; a process may not.
    assert len(home.processes("shoal-pilot:")) == 1
    assert (home.state / SERVER_FILE).exists() and (home.state / DATABASE).exists()


def test_a_server_that_cannot_start_leaves_no_pilot(home: Home) -> None:
    home.state.mkdir(mode=0o700, parents=True)
    (home.state / DATABASE).write_bytes(b"this is no database" * 1000)
    with home.start("run", "--", "true") as child:
        out, _ = child.communicate(timeout=60)
    assert child.returncode == 125 and "did not start" in out, out
    assert not dict(processes_with(str(home.folder)))
