"""The embedded server's state directory and start, with a stand-in for its process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.client.client import Client
from shoal.client.config import Target
from shoal.client.connection import embedded_server
from shoal.model.errors import Refused, Unreachable


@pytest.mark.parametrize("kind", ["nfs4", "fuse.sshfs"])
def test_state_on_a_network_file_system_moves_to_local_disk_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(embedded_server, "_file_system_of", lambda path: kind)
    said: list[str] = []
    assert embedded_server.state_dir(said.append) == Path(f"/var/tmp/shoal-{os.getuid()}")
    assert kind in said[0]


def test_the_state_directory_is_made_private(tmp_path: Path) -> None:
    made = embedded_server.make_private(tmp_path / "a" / "b")
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o755)
    assert embedded_server.make_private(made).stat().st_mode & 0o777 == 0o700


def test_a_state_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(Refused, match="XDG_STATE_HOME"):
        embedded_server.make_private(tmp_path / "file" / "shoal")


def test_a_dead_or_reused_pid_is_not_a_running_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert not embedded_server.is_alive(child.pid)
    assert not embedded_server.is_alive(0)
    assert embedded_server.is_alive(os.getpid())
    (tmp_path / "server.json").write_text(json.dumps({"url": "unix:/run/shoal-9", "token": "t", "pid": os.getpid()}))
    monkeypatch.setattr(Client, "health", lambda self, timeout=2.0: False)
    assert embedded_server.running(tmp_path) is None  # somebody else has the number now


def test_a_broken_server_file_counts_as_none(tmp_path: Path) -> None:
    for text in ("", "{}", "[]", '{"url": 1, "pid": 2}', '{"url": "x", "pid": "2"}'):
        (tmp_path / "server.json").write_text(text, encoding="utf-8")
        assert embedded_server.running(tmp_path) is None


class FakeProcess:
    """A server's process that ends with a code, or lives on."""

    def __init__(self, code: int | None) -> None:
        self.pid, self.code, self.killed = os.getpid(), code, False
        self.tell = -1  # where it says that it answers

    def poll(self) -> int | None:
        return self.code

    def kill(self) -> None:
        self.killed = True

    def wait(self, timeout: float = 0.0) -> int:
        return -9


def fake_spawn(monkeypatch: pytest.MonkeyPatch, code: int | None, log: str = "", url: str = "") -> list[FakeProcess]:
    spawned: list[FakeProcess] = []

    def spawn(state: Path, arguments: list[str]) -> tuple[FakeProcess, int]:
        with (state / "server.log").open("a", encoding="utf-8") as file:
            file.write(log)
        process = FakeProcess(code)
        if url:
            (state / "server.json").write_text(json.dumps({"url": url, "token": "t", "pid": process.pid}))
        spawned.append(process)
        ready, process.tell = os.pipe()
        if url:
            os.write(process.tell, b"1")
        if code is not None:
            os.close(process.tell)  # as the kernel does when it ends
        return process, ready

    monkeypatch.setattr(embedded_server, "spawn", spawn)
    return spawned


def test_a_server_that_answers_is_used_and_not_started_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spawned = fake_spawn(monkeypatch, None, url="unix:/run/shoal-9")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(Client, "health", lambda self, timeout=2.0: True)
    assert embedded_server.connect(Target()).url == "unix:/run/shoal-9"
    assert embedded_server.connect(Target()).url == "unix:/run/shoal-9"
    assert len(spawned) == 1


def test_a_start_on_a_full_disk_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_spawn(monkeypatch, 3, log="2026-01-01 ERROR x\nshoal server: no space left for shoal.db (free some)\n")
    with pytest.raises(Refused) as caught:
        embedded_server.start(tmp_path, [])
    assert caught.value.message == "the server did not start: shoal server: no space left for shoal.db (free some)"
    monkeypatch.setattr(embedded_server, "_is_full", lambda state: True)
    with pytest.raises(Refused) as caught:
        embedded_server.start(tmp_path, [])
    assert caught.value.line == f"the server did not start: the disk of {tmp_path} is full (free some space there)"


def test_a_refused_start_tells_the_end_of_its_own_log_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "server.log").write_text("an old complaint\n", encoding="utf-8")
    fake_spawn(monkeypatch, 3, log="\x1b[31mstarting\nthe database is locked\n\n")
    with pytest.raises(Refused) as caught:
        embedded_server.start(tmp_path, [])
    line = caught.value.line
    assert "the database is locked" in line
    assert "old complaint" not in line
    assert str(tmp_path / "server.log") in line
    assert line.isprintable()


def test_the_command_that_helps_is_told_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fix = f"shoal server restore --state {tmp_path} {tmp_path}/{'d' * 200}/shoal-rescued.db"
    fake_spawn(monkeypatch, 3, log=f"{'x' * 500}\nshoal.db was removed while a server ran (`{fix}`, or delete it)\n")
    with pytest.raises(Refused) as caught:
        embedded_server.start(tmp_path, [])
    assert f"`{fix}`, or delete it)" in caught.value.line and "x" * 201 not in caught.value.line


def test_a_server_that_never_answers_is_ended_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spawned = fake_spawn(monkeypatch, None)
    with pytest.raises(Unreachable, match="it said nothing"):
        embedded_server.start(tmp_path, [], within=0.05)
    assert spawned[0].killed
