"""The disk of the embedded server's own state is full, or its server does not answer: what a person at a terminal meets."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client.connection.embedded_server import is_alive
from tests.integration.cluster import state_of
from tests.integration.test_command_line import Terminal, fresh
from tests.integration.test_disk import small_disk, stuff

__all__ = ["fresh"]  # a fixture
pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
MIB = 1 << 20
# Takes every byte that becomes free, and never ends by itself.
GREEDY = """
import os
while True:
    try:
        os.write(1, b"x" * 1048576)
    except OSError:
        pass
"""


@pytest.fixture
def cramped(tmp_path: Path) -> Iterator[Terminal]:
    """A shell whose state is on a disk of 40 MiB."""
    shell = Terminal(tmp_path)
    with small_disk(tmp_path / "state", "40m"):
        try:
            yield shell
        finally:
            (tmp_path / "state" / "other").unlink(missing_ok=True)
            shell.close()


def free(shell: Terminal) -> int:
    disk = os.statvfs(shell.home / "state")
    return disk.f_bavail * disk.f_frsize


@pytest.mark.parametrize("manner", ["gives_up", "greedy"])
def test_a_task_whose_output_fills_the_state_disk_ends_with_that_cause_and_gives_its_space_back(
    cramped: Terminal, manner: str
) -> None:
    """Its own log kept the disk full, the second attempt ate the reserve, and nothing was answered any more."""
    words = ["sh", "-c", "echo x >> starts; head -c 60000000 /dev/zero"]
    if manner == "greedy":
        words = ["sh", "-c", f"echo x >> starts; exec {sys.executable} -I -S -c '{GREEDY}'"]
    said = cramped.run("run", "-q", "--", *words, timeout=150.0)
    assert said.status not in (0, 125), said
    (line,) = [line for line in said.err.splitlines() if "r1.1 failed" in line]
    assert "no space left in" in line and "of its stdout were removed, to make space" in line, line
    assert "it has no retries" in line
    assert (cramped.cwd / "starts").read_text().count("x") == 4, "three free tries, and the last"
    assert free(cramped) > 20 * MIB
    (kept, *_) = (cramped.state / "logs" / "r1" / "0").glob("1.*.out")
    assert kept.stat().st_size <= MIB and b"bytes left out by shoal: the disk was full" in kept.read_bytes()
    assert "failed" in cramped.good("ps").out
    cramped.good("prune", "--keep", "1M")
    assert cramped.good("run", "-q", "--", "echo", "back").out == "back\n"


def test_on_a_disk_that_is_full_beyond_the_reserve_commands_are_answered_and_the_server_can_be_ended(
    cramped: Terminal,
) -> None:
    """The server kept its lock without its socket, and only kill -9 helped."""
    run = cramped.submit("--", "sh", "-c", "touch began; while [ ! -e go ]; do sleep 0.05; done")
    pid, other, log = cramped.server_pid(), cramped.home / "state" / "other", cramped.state / "server.log"
    end = time.monotonic() + 60
    while not (cramped.cwd / "began").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    number = 0
    while True:
        assert time.monotonic() < end, log.read_text(encoding="utf-8", errors="replace")
        number += 1
        stuff(other.with_name(f"other{number}"))
        refused = cramped.run("set", run, "--priority", str(number), timeout=30.0)
        if refused.status:  # while the reserve lasts it succeeds
            break
    assert refused.status == 3 and "the disk is full" in refused.err and "shoal prune" in refused.err, refused
    assert run in cramped.good("ps", timeout=15.0).out
    assert "0B of logs" in cramped.good("prune", timeout=25.0).out
    assert is_alive(pid), "it goes on serving"
    cramped.run("server", "stop", timeout=40.0)
    end = time.monotonic() + 20
    while is_alive(pid):
        assert time.monotonic() < end, "it ends, and lets the lock go"
        time.sleep(0.05)
    assert "nobody was told they are done" in log.read_text(encoding="utf-8", errors="replace")
    for path in (cramped.home / "state").glob("other*"):
        path.unlink()
    cramped.good("cancel", run)
    assert cramped.good("run", "-q", "--", "echo", "back").out == "back\n"


def test_a_server_that_stands_still_is_named_with_the_way_out_and_not_called_absent(fresh: Terminal) -> None:
    run = fresh.submit("--", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done")
    pid = fresh.server_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        end = time.monotonic() + 10
        while state_of(pid) != "T" and time.monotonic() < end:
            time.sleep(0.01)
        truth = f"the server (process {pid}) is stopped and does not answer"
        seen = fresh.good("ps")
        assert run in seen.out and truth in seen.err and f"kill -CONT {pid}" in seen.err, seen
        assert "no server is running" not in seen.err
        for words, status in ((("server", "stop"), 4), (("run", "--", "true"), 125), (("prune",), 4)):
            said = fresh.run(*words)
            assert said.status == status and truth in said.err and f"kill -CONT {pid}" in said.err, said
    finally:
        os.kill(pid, signal.SIGCONT)
    (fresh.cwd / "go").touch()
    fresh.good("wait", "-q", run)
