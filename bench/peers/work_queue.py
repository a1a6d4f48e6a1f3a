"""Work Queue of Debian's coop-computing-tools: our C program (work_queue.c) as its manager, two workers of one core."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from bench.peers.install import work_queue_program
from bench.peers.processes import settled_mb
from bench.peers.system import LONG, SHORT, Case, Figures, System
from bench.peers.timing import (
    FIRST,
    PATIENCE,
    SLOTS,
    WINDOW,
    hold_command,
    percentiles,
    queued,
    release_file,
    since_start,
)

PEERS = "BENCH_PEERS"  # the directory of the peers, set by the harness


@dataclass
class Pair:
    """The program and its workers."""

    program: subprocess.Popen[str]
    workers: list[subprocess.Popen[bytes]]

    def numbers(self, label: str) -> list[float]:
        """Wait for its end; the numbers that it printed behind a label."""
        text, _ = self.program.communicate()
        rows = [line.split() for line in text.splitlines()]
        if self.program.returncode or ["bad", "0"] not in rows:
            raise RuntimeError(f"ended with {self.program.returncode}: {text[-200:]}")
        return [float(row[1]) for row in rows if row[0] == label]


def start(mode: str, count: int, workers: int = SLOTS) -> Pair:
    """Start the program, then the workers on the port it took."""
    port = Path("port")
    command = [str(work_queue_program(Path(os.environ[PEERS]))), str(port), mode, str(count), str(workers), "/bin/true"]
    if mode == "queue":
        command += [hold_command(str(release_file()))[2], str(FIRST), str(WINDOW), str(PATIENCE)]
    program = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    while not port.exists():
        if program.poll() is not None:
            raise RuntimeError(f"ended with {program.returncode}")
        time.sleep(0.001)
    started = []
    for number in range(workers):
        Path(f"worker{number}").mkdir()
        command = ["work_queue_worker", "--cores", "1", "--memory", "100", "--disk", "100", "-s", f"worker{number}"]
        quiet = subprocess.DEVNULL
        command += ["127.0.0.1", port.read_text()]
        started.append(subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet))
    return Pair(program, started)


def commands(count: int) -> Figures:
    return {"per_s": count / start("all", count).numbers("seconds")[0]}


def round_trip_command(count: int) -> Figures:
    return percentiles(start("each", count).numbers("each"))


def cold_start(_: int) -> Figures:
    start("first", 1, workers=1).numbers("seconds")
    return since_start()


def queue(waiting: int) -> Figures:
    """The program collects until the window is through, or for as long as one waits for that."""
    pair = start("queue", queued(waiting))
    program = pair.program
    assert program.stdout is not None
    if not program.stdout.readline().startswith("queued"):
        raise RuntimeError("nothing was queued")
    memory = settled_mb(program.pid)
    release_file().touch()
    return {"per_s": pair.numbers("rate")[0], "memory_mb": memory}


def debian_version() -> str:
    """The package's version."""
    command = ["dpkg-query", "-W", "-f", "${Version}", "coop-computing-tools"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


SYSTEMS = (
    System(
        "work_queue",
        "Work Queue",
        __name__,
        (
            Case("commands", 1_000, commands, "through a shell"),
            Case("round_trip_command", 200, round_trip_command, "through a shell"),
            Case("cold_start", 1, cold_start, "a command, one worker"),
            Case("short_queue", SHORT, queue, "commands"),
            Case("long_queue", LONG, queue, "commands; memory: the program that submits is the server"),
        ),
        debian_version,
        peer="work_queue",
    ),
)
