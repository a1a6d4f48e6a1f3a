"""Daemons of a batch system as children of a test: started in the foreground, below one directory, ended by their numbers.

Each of them, and each job that they start, names the directory in its command line or environment. So all of them are
found again at the end, and by a janitor that waits for the end of this process, even by kill -9.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tests.integration.cluster import clean_env, is_dead, processes_with

T = TypeVar("T")
PATIENCE = 60.0  # for what takes a second on an idle machine
LOOK = 0.05  # seconds between two looks
MARK = "BATCH_TEST"  # in the environment of everything started here: the directory

# It holds no file of ours open and reads until nobody else does, too.
_JANITOR = """
import os, sys, time
sys.stdin.read()
needle = os.fsencode(sys.argv[1])
for _ in range(100):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        for name in ("cmdline", "environ"):
            try:
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    if needle in file.read():
                        found.append(int(pid))
                        break
            except OSError:
                pass
    if not found:
        break
    for pid in found:
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass
    time.sleep(0.05)
"""


def missing(programs: Mapping[str, str]) -> str:
    """Why a batch system cannot be started here: the first program (with its package) that is not here; empty if it can."""
    if os.geteuid() != 0:
        return "NOT TRIED: only root starts the daemons of a batch system"
    for program, package in programs.items():
        if find(program) is None:
            return f"NOT TRIED: no {program} (package {package})"
    return ""


def find(program: str) -> str | None:
    """The path of a program, also of those that only root has on its path."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def until(condition: Callable[[], T], what: Callable[[], str] | str, within: float = PATIENCE) -> T:
    """Wait until something is true, and return it."""
    end = time.monotonic() + within
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {within:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(LOOK)
    return found


class Daemons:
    """The daemons below one directory."""

    def __init__(self, directory: Path, env: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.env = {**clean_env(), **(env or {}), MARK: str(directory)}
        self.env["PATH"] = f"{self.env.get('PATH', '')}:/usr/sbin:/sbin"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._janitor = subprocess.Popen(
            [sys.executable, "-I", "-c", _JANITOR, f"{MARK}={directory}"], stdin=subprocess.PIPE, start_new_session=True,
            cwd="/", env=clean_env(),
        )  # fmt: skip

    def spawn(self, name: str, *argv: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a daemon; what it prints goes to NAME.out."""
        assert name not in self._running, f"{name} runs"
        with (self.directory / f"{name}.out").open("ab") as out:
            self._running[name] = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.directory,
                env={**self.env, **(env or {})}, start_new_session=True,
            )  # fmt: skip
        return self._running[name]

    def lives(self, name: str) -> bool:
        """True if a daemon was started and has not ended."""
        return name in self._running and self._running[name].poll() is None

    def pid(self, name: str) -> int:
        """The number of a daemon that lives; 0: it does not."""
        return self._running[name].pid if self.lives(name) else 0

    def wait(self, name: str, condition: Callable[[], T], what: str, within: float = PATIENCE) -> T:
        """Wait until a daemon is ready; fail at once, with what it printed, if it has ended."""

        def looked() -> T:
            assert self.lives(name), f"{name} ended before this: {what}\n{self.story()}"
            return condition()

        return until(looked, lambda: f"{what}\n{self.story()}", within)

    def end(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """End a daemon, and wait until it is gone; one that does not heed the signal is killed."""
        process = self._running.pop(name, None)
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(PATIENCE / 2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE)

    def run(self, *argv: str, check: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command of the system to its end."""
        done = subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env=self.env,
            cwd=self.directory,
            check=False,
        )
        if check:
            said = f"{' '.join(argv)}: status {done.returncode}: {done.stderr}{done.stdout}"
            assert done.returncode == 0, f"{said}\n{self.story()}"
        return done

    def story(self, lines: int = 12) -> str:
        """The ends of all logs."""
        parts = []
        for path in sorted([*self.directory.glob("*.out"), *self.directory.glob("*.log")]):
            tail = path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
            parts.append("\n".join([f"--- {path.name}", *tail]))
        return "\n".join(parts)

    def processes(self) -> dict[int, str]:
        """Every living process that was started below this directory, jobs too."""
        mine = {os.getpid(), self._janitor.pid}
        return {pid: line for pid, line in processes_with(f"{MARK}={self.directory}") if pid not in mine}

    def close(self, order: Sequence[str] = ()) -> None:
        """End the daemons, in this order and then the rest, the last started first; then what is left of their jobs."""
        try:
            for name in [*order, *reversed([name for name in self._running if name not in order])]:
                self.end(name)
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            until(lambda: all(is_dead(pid) for pid in self.processes()), lambda: f"left: {self.processes()}")
        finally:
            assert self._janitor.stdin is not None
            self._janitor.stdin.close()
            self._janitor.wait(PATIENCE)
