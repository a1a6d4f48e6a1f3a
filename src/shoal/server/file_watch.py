"""Looks for files that the rules of runs wait for, in the directories of the runs [CMS C8; ADR 0058].

Only an embedded server does: it runs as the person whose directories these are. A server of several people is told of files
(`shoal grow`). A file counts when two looks in a row found it with the same size and time of change, since most programs
write a file where it will lie; who renames files into their place loses one look by that, no more.
"""

from __future__ import annotations

import asyncio
import glob
import logging
import os
import stat
import time
from collections.abc import Sequence

from shoal.engine.commands import TellFiles
from shoal.engine.records import Run
from shoal.engine.tasks.growth import Growth
from shoal.model.errors import BadInput, ShoalError, echo
from shoal.model.ids import run_text
from shoal.model.limits import MAX_TOLD_FILES
from shoal.model.task.checks import paths
from shoal.server.service import Service

log = logging.getLogger(__name__)
EVERY, SHARE = 0.5, 50  # seconds between two looks at a run, which take at most one part in so many of the time
Look = dict[str, tuple[int, float]]  # file -> size, when it was changed


def find_files(directory: str, patterns: Sequence[str]) -> Look:
    """The plain files below a directory that fit patterns. On a thread of its own."""
    found: Look = {}
    for pattern in patterns:
        for name in glob.iglob(pattern, root_dir=directory):
            try:
                status = os.stat(os.path.join(directory, name))
            except OSError:
                continue  # it was removed, or is a link to nowhere
            if stat.S_ISREG(status.st_mode):
                found[name] = (status.st_size, status.st_mtime)
    return found


class FileWatch:
    """The looks at the directories of all runs that watch."""

    def __init__(self, service: Service, every: float = EVERY) -> None:
        self._service, self._every = service, every
        self._next: dict[int, float] = {}
        self._last: dict[int, Look] = {}
        self._refused: dict[int, set[str]] = {}  # names that were logged

    async def run(self) -> None:
        """Look at one run after another, each in its time."""
        while True:
            await asyncio.sleep(self._every / 2)
            if self._service.is_rebuilding:
                continue
            runs = self._service.engine.state.runs.values()
            watched = {run.number: run for run in runs if run.growth is not None and run.growth.watching and run.cwd}
            self._next = {number: at for number, at in self._next.items() if number in watched}
            self._last = {number: look for number, look in self._last.items() if number in watched}
            self._refused = {number: names for number, names in self._refused.items() if number in watched}
            for number, run in watched.items():
                now = time.monotonic()
                if now >= self._next.get(number, 0.0) and run.growth is not None and not run.growth.stopped:
                    await self._look(run, run.growth)
                    self._next[number] = now + max(self._every, SHARE * (time.monotonic() - now))

    async def _look(self, run: Run, growth: Growth) -> None:
        """Tell a run of the files that did not change since the last look and that it does not know."""
        watching = [one for one in growth.rules if one.rule.watch is not None]
        try:
            found = await asyncio.to_thread(find_files, run.cwd, [one.rule.files for one in watching])
            before, self._last[run.number] = self._last.get(run.number, {}), found
            new = [
                (name, size)
                for name, (size, changed) in sorted(found.items(), key=lambda item: (item[1][1], item[0]))
                if before.get(name) == (size, changed)
                and any(name not in one.seen and one.rule.takes(name) for one in watching)
                and not growth.outputs.has(run, name)
                and self._can_be_told(run, name)
            ]
            for at in range(0, len(new), MAX_TOLD_FILES):
                await self._service.command(TellFiles(run.number, tuple(new[at : at + MAX_TOLD_FILES])))
        except ShoalError as error:  # it was cancelled meanwhile, or the server is full: the next look tries again
            log.info("files of %s are not taken: %s", run_text(run.number), error)
        except Exception as error:  # a look that goes wrong must not end the server
            log.error("the files of %s cannot be looked at: %s: %s", run_text(run.number), type(error).__name__, error)

    def _can_be_told(self, run: Run, name: str) -> bool:
        """False for a name that `shoal grow` would refuse, since no task can have it; that is logged once."""
        try:
            paths([name], "files", 1)
        except BadInput as error:
            refused = self._refused.setdefault(run.number, set())
            if name not in refused:
                log.warning("a file of %s is passed over: %s: %s", run_text(run.number), echo(name), error.line)
            refused.add(name)
            return False
        return True
