"""The hook of the policy: a command that is told when a place is banned and when that is over [GWP G7].

It runs as the server's own account, which is why only administrators name it, and without a shell: what it is told
stands in variables. It can harm the server in no way: few run at once, few a minute, none for long.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from shoal.engine.changes import Notice
from shoal.model.errors import echo

log = logging.getLogger(__name__)
AT_ONCE = 4
MINUTE = 60.0  # seconds
PER_MINUTE = 100  # commands that are started; the rest are counted and logged
WITHIN = 30.0  # seconds for a command to end
GONE_WITHIN = 2.0  # seconds that a killed one is waited for
MAX_OUTPUT = 4_096  # bytes of its output that are logged
MAX_WORD = 1_024  # characters of one variable
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ")  # of the server's variables: no token is among them


class BanHook:
    """Runs the command for each notice."""

    def __init__(
        self, command: Callable[[], tuple[str, ...]], clock: Callable[[], float], folder: Path, within: float = WITHIN
    ) -> None:
        """`command` is asked anew for each notice; empty: nobody wants to be told."""
        self._command, self._clock, self._folder, self._within = command, clock, folder, within
        self._waiting: deque[Notice] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._began, self._started, self._dropped = float("-inf"), 0, 0  # of the minute that counts
        self._complained, self._failed = float("-inf"), 0  # when a failure was logged last, and how many since

    def tell(self, notices: Iterable[Notice]) -> None:
        """Have the command told; returns at once."""
        if not self._command():
            return
        for notice in notices:
            self._turn_minute()
            if self._started >= PER_MINUTE:
                self._drop(notice)
            else:
                self._started += 1
                self._waiting.append(notice)
        self._start()

    def _turn_minute(self) -> None:
        now = self._clock()
        if now - self._began >= MINUTE:
            self._tell_dropped()
            self._began, self._started = now, 0

    def _drop(self, notice: Notice) -> None:
        if not self._dropped:
            log.warning("the ban hook is told no more than %d times a minute: from %s on", PER_MINUTE, _words(notice))
            asyncio.get_running_loop().call_later(MINUTE, self._tell_dropped)
        self._dropped += 1

    def _tell_dropped(self) -> None:
        if self._dropped:
            log.warning("the ban hook was not told of notices=%d", self._dropped)
            self._dropped = 0

    def _start(self) -> None:
        while self._waiting and len(self._running) < AT_ONCE:
            task = asyncio.ensure_future(self._run(self._waiting.popleft()))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            self._start()

    async def _run(self, notice: Notice) -> None:
        command = self._command()
        if not command:
            return
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT, cwd=self._folder, env=variables(notice), start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            self._complain(f"cannot be started: {error}", notice)
            return
        said = bytearray()
        try:
            async with asyncio.timeout(self._within):
                await _gather(process, said)
                status = await process.wait()
        except TimeoutError:
            await _end(process)
            self._complain(f"was ended after {self._within:g} s", notice)
        except asyncio.CancelledError:
            await _end(process)
            raise
        else:
            if status:
                self._complain(f"ended with status {status}", notice)
        finally:
            if said:
                text = bytes(said).decode("utf-8", "replace").strip()
                log.info("the ban hook said: %s", text.encode("unicode_escape").decode())

    def _complain(self, what: str, notice: Notice) -> None:
        """Failures are logged once a minute, with how many there were."""
        now = self._clock()
        self._failed += 1
        if now - self._complained >= MINUTE:
            log.warning("the ban hook %s (%s); failures=%d", what, _words(notice), self._failed)
            self._complained, self._failed = now, 0

    async def close(self) -> None:
        """End what still runs; nothing more is told."""
        self._waiting.clear()
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _gather(process: asyncio.subprocess.Process, said: bytearray) -> None:
    """Read what a command prints to its end, and keep the beginning."""
    assert process.stdout is not None
    while piece := await process.stdout.read(65_536):
        said += piece[: max(0, MAX_OUTPUT - len(said))]


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a command with all that it started (its group is its own, and lives, since its output is still open), and
    wait until it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GONE_WITHIN):
            await _gather(process, bytearray())
            await process.wait()


def variables(notice: Notice) -> dict[str, str]:
    """What the command finds in its surroundings."""
    told = {
        "SHOAL_EVENT": notice.what, "SHOAL_PLACE_KIND": notice.kind, "SHOAL_PLACE": notice.name,
        "SHOAL_REASON": notice.reason, "SHOAL_UNTIL": f"{notice.until:.0f}", "SHOAL_HOLDER": notice.holder,
    }  # fmt: skip
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return kept | {name: _plain(text) for name, text in told.items()}


def _plain(text: str) -> str:
    """A text that a process can be given: reasons come from pilots."""
    return text[:MAX_WORD].replace("\0", " ").encode("utf-8", "replace").decode()


def _words(notice: Notice) -> str:
    return f"{notice.what} {notice.kind} {echo(notice.name)}"
