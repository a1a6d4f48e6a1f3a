"""The process of a server's own pilot: what is known of it across starts that were cut off anywhere."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.model.file_names import PILOT_PIDS, SERVER_FILE
from shoal.server import pilot_process
from shoal.server.pilot_process import forget_others, is_pilot, note_pid, read_pids, started_ahead, take_ahead


class FakePilot:
    """A pilot that was started ahead."""

    def __init__(self, state: str, waits: bool) -> None:
        self.state, self.waits, self.is_ended, self.pid = state, waits, False, 2**22 + 7

    def end(self) -> None:
        self.is_ended = True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[FakePilot]:
    made: list[FakePilot] = []

    def start(state: str, *, waits: bool) -> FakePilot:
        made.append(FakePilot(state, waits))
        return made[-1]

    monkeypatch.setattr(pilot_process, "PilotProcess", start)
    return made


@pytest.fixture
def other_pilot(tmp_path: Path) -> Iterator[int]:
    """A process that looks like a pilot."""
    words = ["--server-file", str(tmp_path / SERVER_FILE)]
    with subprocess.Popen([sys.executable, "-c", "input()", *words], stdin=subprocess.PIPE) as process:
        while not is_pilot(process.pid):  # a moment after exec its arguments are not there yet
            time.sleep(0.001)
        yield process.pid
        process.kill()


def test_an_embedded_server_has_its_pilot_started_ahead_and_takes_it_over(
    tmp_path: Path, started: list[FakePilot]
) -> None:
    with started_ahead(["--embedded", "--state", str(tmp_path)]):
        assert (started[0].state, started[0].waits) == (str(tmp_path), True)
        assert read_pids(str(tmp_path)) == [started[0].pid]
        taken: object = take_ahead()
        assert taken is started[0]
        assert take_ahead() is None
    assert not started[0].is_ended


def test_the_pilot_of_a_server_that_does_not_start_is_ended(tmp_path: Path, started: list[FakePilot]) -> None:
    with pytest.raises(ZeroDivisionError), started_ahead(["--embedded", "--state", str(tmp_path)]):
        raise ZeroDivisionError
    assert started[0].is_ended


@pytest.mark.parametrize("argv", [["--state", "DIR"], ["--embedded", "--no-pilot", "--state", "DIR"], ["--embedded"]])
def test_other_servers_start_none_ahead(argv: list[str], tmp_path: Path, started: list[FakePilot]) -> None:
    with started_ahead([str(tmp_path) if word == "DIR" else word for word in argv]):
        assert not started


def test_none_is_started_beside_one_that_outlived_its_server(
    tmp_path: Path, started: list[FakePilot], other_pilot: int
) -> None:
    note_pid(str(tmp_path), other_pilot)
    with started_ahead(["--embedded", "--state", str(tmp_path)]):
        assert not started
    assert is_pilot(other_pilot) and not is_pilot(os.getpid())


def test_a_state_directory_that_cannot_be_used_is_left_to_the_server_to_tell(tmp_path: Path) -> None:
    with started_ahead(["--embedded", "--state", str(tmp_path / "none")]):
        assert take_ahead() is None


def test_earlier_processes_are_known_until_they_are_buried(tmp_path: Path) -> None:
    """A server that is killed right after it started a pilot leaves the number of the one before, too."""
    state = str(tmp_path)
    assert read_pids(state) == []
    note_pid(state, 11)
    note_pid(state, 12)
    assert read_pids(state) == [11, 12]
    forget_others(state, 12)
    assert read_pids(state) == [12]
    assert stat.S_IMODE((tmp_path / PILOT_PIDS).stat().st_mode) & 0o077 == 0
    (tmp_path / PILOT_PIDS).write_text("half a num")
    assert read_pids(state) == []
