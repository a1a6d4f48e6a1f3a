"""The embedded server's own pilot: started on this machine beside the server, and again when there is work and no pilot.

Its process outlives the server, so that a crash of the server harms no task; its pid is kept in the state directory, so
that the next server can tell a living pilot from a dead one at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource

from shoal.engine.commands import Bury
from shoal.model.errors import InternalError
from shoal.model.lazy_dataclass import dataclass
from shoal.server.pilot_process import (
    LOG_KEPT,
    PILOT_LOG,
    PilotProcess,
    forget_others,
    is_pilot,
    note_pid,
    read_pids,
    take_ahead,
)
from shoal.server.service import Service

log = logging.getLogger(__name__)
JOIN_WITHIN = 15.0  # seconds in which a pilot of the server before finds this one
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

    def __init__(self, service: Service, original: OriginalSettings) -> None:
        self.service, self._original, self._dir = service, original, service.state_dir
        self._process = take_ahead()
        if self._process is not None:
            self._process.release()
            log.info("local pilot pid=%d, started ahead", self._process.pid)
        self._failures, self._next = 0, 0.0  # starts that failed in a row, and when the next one is due
        self._bury_from = 0.0

    async def run(self) -> None:
        """Check the pilot again and again; never returns."""
        while True:
            self.check()
            await asyncio.sleep(0.05 if self.service.engine.busy else 0.2)

    def check(self) -> None:
        """Bury a dead pilot, and start one if one is needed."""
        if self.service.is_rebuilding or not self._bury():
            return  # the state is half changed: tried again in a moment
        code = self._process.code() if self._process is not None else None
        if self._process is not None and code is not None:
            self._ended(code, self._process.log_from)
            self._process = None
        engine = self.service.engine
        if engine.state.pilots:
            engine.describe_server(trouble="")
            self._failures = 0
        elif (
            self._process is None
            and engine.busy
            and not self._is_joining()
            and self.service.clock() >= max(self._next, self.service.drained_at + DRAINED_PAUSE)
        ):
            try:
                self._start()
            except OSError as error:  # a full disk, or no more processes: the server goes on answering
                self._delay(f"could not be started: {error.strerror}")

    def _is_joining(self) -> bool:
        """True if the pilot of a server before this one lives and may be about to register again."""
        since = self.service.clock() - self.service.started
        return since < JOIN_WITHIN and any(map(is_pilot, read_pids(str(self._dir))))

    def _bury(self) -> bool:
        """Report a dead process of our pilot without waiting for its lease: its guard has ended what it ran. False: the
        command met a defect, which is contained and must not end the server."""
        pids = read_pids(str(self._dir))
        for pid in pids:
            if not is_pilot(pid) and self.service.clock() >= self._bury_from:
                for pilot in list(self.service.engine.state.pilots.values()):
                    if pilot.tags.get("pid") == pid and pilot.host == os.uname().nodename:
                        try:
                            self.service.post(Bury(pilot.name, f"its process {pid} is gone"))
                        except InternalError:
                            self._bury_from = self.service.clock() + BURY_PAUSE
                            return False
        if len(pids) > 1:
            with contextlib.suppress(OSError):  # a full disk: tried again
                forget_others(str(self._dir), pids[-1])
        return True

    def _ended(self, code: int, log_from: int) -> None:
        if code:
            last = self._last_lines(log_from)
            self._delay(f"was killed by signal {-code}" if code < 0 else f"ended with code {code}: {last}")

    def _delay(self, how: str) -> None:
        """Start another pilot a while after one that failed, later each time."""
        self._failures += 1
        pause = PAUSES[min(self._failures, len(PAUSES) - 1)]
        self._next = self.service.clock() + pause
        trouble = f"the pilot on this machine {how}; another is started in {pause:.0f} s"
        self.service.engine.describe_server(trouble=trouble)
        log.error("local pilot failures=%d next_in=%.0f: it %s", self._failures, pause, how)

    def _last_lines(self, log_from: int) -> str:
        """The last lines that the pilot logged before it ended."""
        try:
            with (self._dir / PILOT_LOG).open("rb") as file:
                file.seek(log_from)
                text = file.read(LOG_KEPT).decode("utf-8", "replace")
        except OSError:
            return "it said nothing"
        return " | ".join(line.strip() for line in text.splitlines()[-3:])[-500:] or "it said nothing"

    def _start(self) -> None:
        self._process = PilotProcess(str(self._dir), umask=self._original.umask)
        with contextlib.suppress(ProcessLookupError):
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, (self._original.files, hard))
        with contextlib.suppress(OSError):  # on a full disk its death is found by its lease
            note_pid(str(self._dir), self._process.pid)
        log.info("local pilot pid=%d", self._process.pid)

    async def wait_gone(self, within: float) -> None:
        """Wait until a draining pilot has left."""
        end = self.service.clock() + within
        while self.service.engine.state.pilots and self.service.clock() < end:
            await asyncio.sleep(0.05)
