"""Standard input, output and error of tasks on real servers and pilots: nothing of them is lost without a word."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.model.file_names import LOG_MARK, LOGS
from tests.integration.cluster import PATIENCE, Cluster, is_dead
from tests.integration.test_command_line import SHOAL, Terminal, terminal

pytestmark = pytest.mark.integration
__all__ = ["terminal"]
LONG = 5_000_000  # bytes, and none of them text
_WRITE = "import random,sys; sys.{stream}.buffer.write(random.Random({seed}).randbytes({size}))"


def noise(seed: int, size: int = LONG) -> bytes:
    """The same bytes that the command below writes."""
    return random.Random(seed).randbytes(size)


def writes(seed: int, stream: str = "stdout", size: int = LONG) -> list[str]:
    """A command that writes them."""
    return ["python3", "-c", _WRITE.format(stream=stream, seed=seed, size=size)]


def shoal(
    terminal: Terminal, *words: str, sends: bytes | None = None, **more: Any
) -> subprocess.CompletedProcess[bytes]:
    """A command whose streams are bytes; without `sends` its standard input is empty."""
    source: dict[str, Any] = {"input": sends} if sends is not None else {"stdin": subprocess.DEVNULL}
    source.update(more)
    source.setdefault("cwd", terminal.cwd)
    return subprocess.run([*SHOAL, *words], env=terminal.env, capture_output=True, timeout=120, check=False, **source)


def last(said: subprocess.CompletedProcess[bytes]) -> str:
    """The last line on standard error."""
    return said.stderr.decode().strip().splitlines()[-1]


# --- output
def test_long_binary_output_comes_back_whole_and_each_stream_on_its_own(terminal: Terminal) -> None:
    both = ["sh", "-c", f"{' '.join(map(_quoted, writes(1)))}; {' '.join(map(_quoted, writes(2, 'stderr')))}"]
    said = shoal(terminal, "run", "--quiet", "--", *both)
    assert said.returncode == 0
    assert said.stdout == noise(1) and said.stderr == noise(2)
    task = "r" + str(_latest_run(terminal)) + ".1"
    assert shoal(terminal, "logs", task).stdout == noise(1)
    assert shoal(terminal, "logs", "--follow", "--stderr", task).stdout == noise(2)


def _quoted(word: str) -> str:
    return "'" + word + "'"


def _latest_run(terminal: Terminal) -> int:
    return int(terminal.good("ps", "--json").json()["runs"][0]["run"][1:])


def test_output_beyond_its_bound_is_told_and_is_no_success(terminal: Terminal) -> None:
    said = shoal(terminal, "run", "--max-output", "64K", "--", *writes(3))
    assert said.returncode == 125
    assert b"bytes left out by shoal" in said.stdout and len(said.stdout) <= 64 * 1024
    assert "succeeded, but" in last(said) and "bytes of its stdout were left out" in last(said)
    many = shoal(terminal, "sweep", "--quiet", "x=4,5", "--max-output", "64K", "--", *writes(6), "{x}")
    assert many.returncode == 1
    assert many.stderr.count(b"bytes of its stdout were left out") == 2


def test_a_pilot_that_does_not_see_the_servers_files_sends_every_byte(tmp_path: Path, pilot_zip: Path) -> None:
    cluster = Cluster(tmp_path, pilot_zip)
    try:
        cluster.start_server("--no-pilot")
        (cluster.state / LOGS / LOG_MARK).unlink()
        cluster.start_pilot()
        run = cluster.submit({"command": writes(7)}, {"command": ["echo", "short"]})
        cluster.wait_run(run)
        with cluster.client() as client:
            from shoal.report.data_source import HttpSource

            source = HttpSource(client)
            assert b"".join(source.logs(f"r{run}.1")) == noise(7)
            assert b"".join(source.logs(f"r{run}.2")) == b"short\n"
        assert (cluster.state / f"logs/r{run}/0/1.1.out").read_bytes() == noise(7)
    finally:
        cluster.close()


# --- files for streams
def test_streams_go_to_files_by_parameter_below_the_submitters_directory(terminal: Terminal) -> None:
    script = "echo out $1; echo err $1 >&2"
    words = ["--stdout", "res/{x}/o.txt", "--stderr", "res/{x}.err", "--", "sh", "-c", script, "sh", "{x}"]
    assert shoal(terminal, "sweep", "--quiet", "x=1..3", *words).returncode == 0
    folder = terminal.cwd / "res"
    assert [(folder / f"{x}/o.txt").read_text() for x in (1, 2, 3)] == ["out 1\n", "out 2\n", "out 3\n"]
    assert sorted(path.name for path in folder.iterdir()) == ["1", "1.err", "2", "2.err", "3", "3.err"]
    run = f"r{_latest_run(terminal)}.2"
    said = shoal(terminal, "logs", run)
    assert said.returncode == 3 and "res/2/o.txt" in last(said)


def test_both_streams_may_share_a_file_and_a_failed_command_leaves_what_it_wrote(terminal: Terminal) -> None:
    (terminal.cwd / "both.txt").write_text("of an earlier run")
    words = ["--stdout", "both.txt", "--stderr", "both.txt", "--", "sh", "-c", "echo a; echo b >&2; echo c; exit 5"]
    said = shoal(terminal, "run", *words)
    assert said.returncode == 5 and said.stdout == b""
    assert (terminal.cwd / "both.txt").read_text() == "a\nb\nc\n"
    assert not list(terminal.cwd.glob("both.txt.*"))


def test_a_device_stays_a_device(terminal: Terminal) -> None:
    said = shoal(terminal, "run", "--quiet", "--stdout", "/dev/null", "--", "echo", "unheard")
    assert (said.returncode, said.stdout) == (0, b"")
    assert os.path.exists("/dev/null") and not os.path.isfile("/dev/null")


# --- input
def test_piped_input_reaches_the_task_when_asked_and_is_refused_otherwise(terminal: Terminal) -> None:
    long = noise(8, 300_000)
    for sends in (b"x\n", long):
        said = shoal(terminal, "run", "--quiet", "--stdin", "-", "--", "sha256sum", sends=sends)
        assert said.stdout.split()[0].decode() == hashlib.sha256(sends).hexdigest()
    before = _latest_run(terminal)
    source = terminal.cwd / "list.txt"
    source.write_text("a\nb\n")
    with source.open("rb") as file:
        for more in ({"sends": b"x\n"}, {"stdin": file}):
            said = shoal(terminal, "run", "--", "cat", **more)
            assert said.returncode == 2 and "--stdin -" in last(said), said
    assert _latest_run(terminal) == before, "nothing was submitted"


def test_a_loop_keeps_its_input(terminal: Terminal) -> None:
    """`shoal run` never takes the lines of a `while read` loop; the loop that gives it none goes through all of them."""
    run = " ".join(map(_quoted, [*SHOAL, "run", "-q", "--", "echo"]))
    script = f'printf "a\\nb\\nc\\n" | while read x; do {run} "$x" </dev/null; done'
    said = subprocess.run(
        ["bash", "-c", script], env=terminal.env, cwd=terminal.cwd, capture_output=True, timeout=120, check=False
    )
    assert said.stdout == b"a\nb\nc\n", said


# --- exit status
@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--", "sh", "-c", "exit 7"], 7),
        (["--", "sh", "-c", "kill -TERM $$"], 128 + 15),
        (["--", "no-such-program"], 127),
        (["--", "/etc/hosts"], 126),
        (["--shell", "--", "no-such-program"], 127),
        (["--output", "never-written", "--", "true"], 125),
        (["--array", "1-2", "--", "sh", "-c", "exit 7"], 1),
        (["--no-such-option", "--", "true"], 2),
    ],
)
def test_one_command_ends_shoal_run_with_its_own_status(terminal: Terminal, words: list[str], status: int) -> None:
    said = shoal(terminal, "run", *words)
    assert said.returncode == status, said


def test_a_server_that_does_not_answer_is_no_exit_status_of_the_command(terminal: Terminal) -> None:
    said = shoal(terminal, "run", "--server", f"unix:{terminal.home}/none", "--", "true")
    assert said.returncode == 125, said


# --- waiting
@pytest.fixture
def short_lived(tmp_path: Path, pilot_zip: Path) -> Iterator[Cluster]:
    """An embedded server that ends a second after its last work."""
    cluster = Cluster(tmp_path, pilot_zip)
    try:
        cluster.start_server("--embedded", "--linger", "1")
        yield cluster
    finally:
        cluster.close()


def test_what_can_never_run_does_not_keep_an_embedded_server(short_lived: Cluster) -> None:
    short_lived.submit({"command": ["true"], "require": "colour == 1"})
    short_lived.submit({"command": ["true"], "licences": ["matlab"]})
    short_lived.submit({"command": ["true"], "disk": "1000T"})
    pid = short_lived.server_pid
    short_lived.until(lambda: is_dead(pid), "the server ends", 2 * PATIENCE)


@pytest.mark.parametrize("need", [["--require", "colour == 'red'"], ["--licence", "matlab"]])
def test_a_need_that_nothing_here_can_meet_is_told_at_once_and_ends_the_waiting(
    terminal: Terminal, need: list[str]
) -> None:
    began = time.monotonic()
    said = shoal(terminal, "run", *need, "--", "true")
    assert said.returncode == 125
    assert "cannot run here" in last(said) and "shoal cancel" in last(said)
    assert b"nothing runs: 1 task: " in said.stderr
    assert time.monotonic() - began < 60
    shoal(terminal, "cancel", f"r{_latest_run(terminal)}")


def test_a_deleted_directory_is_told_as_such(terminal: Terminal) -> None:
    gone = terminal.cwd / "gone"
    gone.mkdir()
    script = f"cd {gone} && rmdir {gone} && exec {' '.join(map(_quoted, [*SHOAL, 'run', '--', 'true']))}"
    said = subprocess.run(
        ["bash", "-c", script], env=terminal.env, cwd=terminal.cwd, capture_output=True, timeout=60, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert said.returncode == 2
    assert said.stderr.decode().strip() == "shoal: the current directory was deleted (cd to one that exists)"
