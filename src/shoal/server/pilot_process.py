"""The process of a server's own pilot: how it is started, also before the server itself, and how it is recognised.

It runs from the installed package, whose byte code is there already. This module is imported before everything else of
the server, so it imports little.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from shoal.model.file_names import PILOT_PIDS, SERVER_FILE

PILOT_LOG = "pilot.log"
LOG_KEPT = 1024 * 1024
END_WITHIN = 3.0  # seconds
_PROGRAM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "pilot", "__main__.py")


class PilotProcess:
    """A pilot that this server started."""

    def __init__(self, state: str, *, umask: int = -1, waits: bool = False) -> None:
        """`waits`: it connects when `release` is called; `umask`: for its tasks, if it is not this process's."""
        path = os.path.join(state, PILOT_LOG)
        with contextlib.suppress(OSError):
            if os.stat(path).st_size > LOG_KEPT:
                os.replace(path, f"{path}.old")
        output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self.log_from = os.fstat(output).st_size  # the offset in the log where this pilot begins
            # -S: it needs nothing that `site` prepares, and appends the directory of this package itself.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", _PROGRAM, "--server-file", os.path.join(state, SERVER_FILE)]
                + ["--wait-stdin"] * waits,
                stdin=subprocess.PIPE if waits else subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd="/",
                umask=umask,
            )
        finally:
            os.close(output)
        self.pid = self._process.pid

    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def release(self) -> None:
        """Let it connect: the server listens. If it reads the end without this byte, the server died before."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(b".")
                self._process.stdin.close()

    def end(self) -> None:
        """End it: there will be no server."""
        self.release()
        self._process.terminate()
        try:
            self._process.wait(END_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its guard ends by itself
            self._process.wait()


_ahead: PilotProcess | None = None  # started before the server, and not taken over by it yet


@contextlib.contextmanager
def started_ahead(argv: list[str]) -> Iterator[None]:
    """Start the pilot of an embedded server before the server imports itself; end it if the server does not start."""
    global _ahead
    state = os.path.abspath(argv[argv.index("--state") + 1]) if "--state" in argv[:-1] else ""
    with contextlib.suppress(OSError):  # no such directory, or a full disk: the server says what is wrong
        if state and "--embedded" in argv and "--no-pilot" not in argv and not any(map(is_pilot, read_pids(state))):
            _ahead = PilotProcess(state, waits=True)
            note_pid(state, _ahead.pid)
    try:
        yield
    finally:
        left = take_ahead()
        if left is not None:
            left.end()


def take_ahead() -> PilotProcess | None:
    """The pilot that was started ahead; from now on the caller keeps it."""
    global _ahead
    taken, _ahead = _ahead, None
    return taken


def read_pids(state: str) -> list[int]:
    """The processes of this server's pilots, the latest last: also those that ended before somebody noticed it."""
    try:
        with open(os.path.join(state, PILOT_PIDS), encoding="ascii") as file:
            return [int(line) for line in file.read().split()]
    except (OSError, ValueError):
        return []


def note_pid(state: str, pid: int) -> None:
    """Add a process to those of this server's pilots. Earlier ones stay until `forget_others`: who died must be buried."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    with open(os.open(os.path.join(state, PILOT_PIDS), flags, 0o600), "a", encoding="ascii") as file:
        file.write(f"{pid}\n")


def forget_others(state: str, pid: int) -> None:
    """Keep only this one."""
    path = os.path.join(state, PILOT_PIDS)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with open(os.open(f"{path}.part", flags, 0o600), "w", encoding="ascii") as file:
        file.write(f"{pid}\n")
    os.replace(f"{path}.part", path)


def is_pilot(pid: int) -> bool:
    """True if this process exists and is a pilot by a server's file, not another process with the same number."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            argv = file.read().split(b"\0")
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state = file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return b"--server-file" in argv and state != "Z"
