"""The ban hook of the policy: a command that runs when a pilot, host or site is banned and when a ban ends [GWP G7].

It runs as the server's own account, which is why only administrators set it, and without a shell: the notice is in
environment variables. Its load is limited: few run at once, few a minute, none for long.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from shoal.engine.changes import Notice
from shoal.model.errors import echo
from shoal.server.hooks.child_command import run_command

log = logging.getLogger(__name__)
AT_ONCE = 4
MINUTE = 60.0  # seconds
PER_MINUTE = 100  # commands that are started; the rest are counted and logged
WITHIN = 30.0  # seconds for a command to end
MAX_VALUE = 1_024  # characters of one variable


class BanHook:
    """Runs the command for each notice."""

    def __init__(
        self, command: Callable[[], tuple[str, ...]], clock: Callable[[], float], folder: Path, within: float = WITHIN
    ) -> None:
        """`command` is called for each notice; empty: there is no hook."""
        self._command, self._clock, self._folder, self._within = command, clock, folder, within
        self._waiting: deque[Notice] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._began, self._started, self._dropped = float("-inf"), 0, 0  # of the present minute
        self._logged, self._failed = float("-inf"), 0  # when a failure was logged last, and how many since

    def notify(self, notices: Iterable[Notice]) -> None:
        """Run the command for each notice; returns at once."""
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
            self._log_dropped()
            self._began, self._started = now, 0

    def _drop(self, notice: Notice) -> None:
        if not self._dropped:
            log.warning("the ban hook runs no more than %d times a minute: from %s on", PER_MINUTE, _describe(notice))
            asyncio.get_running_loop().call_later(MINUTE, self._log_dropped)
        self._dropped += 1

    def _log_dropped(self) -> None:
        if self._dropped:
            log.warning("the ban hook did not run for notices=%d", self._dropped)
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
        ended = await run_command(command, variables(notice), self._folder, self._within)
        if ended.wrong:
            self._log_failure(ended.wrong, notice)
        if ended.output:
            log.info("the ban hook printed: %s", ended.output.encode("unicode_escape").decode())

    def _log_failure(self, what: str, notice: Notice) -> None:
        """Log failures once a minute, with how many there were."""
        now = self._clock()
        self._failed += 1
        if now - self._logged >= MINUTE:
            log.warning("the ban hook %s (%s); failures=%d", what, _describe(notice), self._failed)
            self._logged, self._failed = now, 0

    async def close(self) -> None:
        """End the commands that still run; no more are started."""
        self._waiting.clear()
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def variables(notice: Notice) -> dict[str, str]:
    """What the command is told, as environment variables."""
    values = {
        "SHOAL_EVENT": notice.what, "SHOAL_PLACE_KIND": notice.kind, "SHOAL_PLACE": notice.name,
        "SHOAL_REASON": notice.reason, "SHOAL_UNTIL": f"{notice.until:.0f}", "SHOAL_HOLDER": notice.holder,
    }  # fmt: skip
    return {name: _plain(text) for name, text in values.items()}


def _plain(text: str) -> str:
    """A text that can be in an environment variable: reasons come from pilots."""
    return text[:MAX_VALUE].replace("\0", " ").encode("utf-8", "replace").decode()


def _describe(notice: Notice) -> str:
    return f"{notice.what} {notice.kind} {echo(notice.name)}"
