"""The embedded server's own pilot: started on this machine when there is work and no pilot.

Its process outlives the server, so that a crash of the server harms no task; its pid is kept in the state directory, so
that the next server can tell a living pilot from a dead one at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

from shoal.engine.commands import Bury
from shoal.model.errors import InternalError
from shoal.model.file_names import PILOT_ZIP, SERVER_FILE
from shoal.server.service import Service

log = logging.getLogger(__name__)
PID_FILE, PILOT_LOG = "pilot.pid", "pilot.log"
LOG_KEPT = 1024 * 1024
BURY_PAUSE = 60.0  # seconds after a Bury that met a defect: each costs a rebuild, and its lease ends the pilot, too
DRAINED_PAUSE = 5.0  # seconds after somebody drained all pilots: most likely the server is to be stopped, too
PAUSES = (0.0, 1.0, 5.0, 15.0, 60.0)  # seconds before the next start, by the number of failures


@dataclass(frozen=True)
class OriginalSettings:
    """Settings that the server changed for itself; its pilot gets the original ones, so that tasks run as by hand."""

    umask: int
    files: int  # the soft limit of open files: some programs still use `select`, which breaks above 1,024


class OwnPilot:
    """Keeps one pilot on this machine while there is work."""

    def __init__(self, service: Service, original: OriginalSettings, building: asyncio.Future[None]) -> None:
        self.service, self._original, self._dir = service, original, service.state_dir
        self._process: asyncio.subprocess.Process | None = None
        self._failures, self._next = 0, 0.0  # starts that failed in a row, and when the next one is due
        self._bury_from = 0.0
        self._log_from = 0  # the offset in the log where the present pilot begins
        self._building: asyncio.Future[None] | None = building  # of the pilot's zip

    async def run(self) -> None:
        """Check the pilot again and again; never returns."""
        while True:
            await self.check()
            await asyncio.sleep(0.05 if self.service.engine.busy else 0.2)

    async def check(self) -> None:
        """Bury a dead pilot, and start one if one is needed."""
        if self._building is not None:
            await self._building
            self._building = None
        if self.service.is_rebuilding or not self._bury():
            return  # the state is half changed: tried again in a moment
        if self._process is not None and self._process.returncode is not None:
            self._ended(self._process.returncode)
            self._process = None
        engine = self.service.engine
        if engine.state.pilots:
            engine.describe_server(trouble="")
            self._failures = 0
        elif (
            self._process is None
            and engine.busy
            and self.service.clock() >= max(self._next, self.service.drained_at + DRAINED_PAUSE)
        ):
            try:
                await self._start()
            except OSError as error:  # a full disk, or no more processes: the server goes on answering
                self._delay(f"could not be started: {error.strerror}")

    def _bury(self) -> bool:
        """Report a dead process of our pilot without waiting for its lease: its guard has ended what it ran. False: the
        command met a defect, which is contained and must not end the server."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self._dir / PID_FILE).read_text())
            if not _is_pilot(pid) and self.service.clock() >= self._bury_from:
                for pilot in list(self.service.engine.state.pilots.values()):
                    if pilot.tags.get("pid") == pid and pilot.host == os.uname().nodename:
                        try:
                            self.service.post(Bury(pilot.name, f"its process {pid} is gone"))
                        except InternalError:
                            self._bury_from = self.service.clock() + BURY_PAUSE
                            return False
        return True

    def _ended(self, code: int) -> None:
        if code:
            self._delay(
                f"was killed by signal {-code}" if code < 0 else f"ended with code {code}: {self._last_lines()}"
            )

    def _delay(self, how: str) -> None:
        """Start another pilot a while after one that failed, later each time."""
        self._failures += 1
        pause = PAUSES[min(self._failures, len(PAUSES) - 1)]
        self._next = self.service.clock() + pause
        trouble = f"the pilot on this machine {how}; another is started in {pause:.0f} s"
        self.service.engine.describe_server(trouble=trouble)
        log.error("local pilot failures=%d next_in=%.0f: it %s", self._failures, pause, how)

    def _last_lines(self) -> str:
        """The last lines that the pilot logged before it ended."""
        try:
            with (self._dir / PILOT_LOG).open("rb") as file:
                file.seek(self._log_from)
                text = file.read(LOG_KEPT).decode("utf-8", "replace")
        except OSError:
            return "it said nothing"
        return " | ".join(line.strip() for line in text.splitlines()[-3:])[-500:] or "it said nothing"

    async def _start(self) -> None:
        path = self._dir / PILOT_LOG
        with contextlib.suppress(OSError):
            if path.stat().st_size > LOG_KEPT:
                path.replace(path.with_suffix(".log.old"))
        self._log_from = path.stat().st_size if path.exists() else 0
        output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", str(self._dir / PILOT_ZIP), "--server-file", str(self._dir / SERVER_FILE),
                stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/",
                umask=self._original.umask,
            )  # fmt: skip
        finally:
            os.close(output)
        with contextlib.suppress(ProcessLookupError):
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, (self._original.files, hard))
        with contextlib.suppress(OSError):  # on a full disk its death is found by its lease
            (self._dir / PID_FILE).write_text(str(self._process.pid))
        log.info("local pilot pid=%d", self._process.pid)

    async def wait_gone(self, within: float) -> None:
        """Wait until a draining pilot has left."""
        end = self.service.clock() + within
        while self.service.engine.state.pilots and self.service.clock() < end:
            await asyncio.sleep(0.05)


def _is_pilot(pid: int) -> bool:
    """True if this process exists and is a pilot, not another process with the same number."""
    try:
        argv = Path(f"/proc/{pid}/cmdline").read_bytes()
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return PILOT_ZIP.encode() in argv and status.rpartition(")")[2].split()[0] != "Z"
