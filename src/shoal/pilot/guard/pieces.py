"""A piece: short commands of an array that the guard runs one after another in a slot, by itself [ADR 0033].

Each of them is a task process like any other, started, limited, swept and ended by the same rules. A success that wrote
nothing is only a row of columns, which go to the pilot together; any other end is reported as that of a single command.
"""

from __future__ import annotations

from itertools import count
from typing import Optional

from shoal.model.ids import AttemptId, parse_attempt
from shoal.pilot.commands.streams import log_paths_of
from shoal.pilot.guard.messages import Ended, Ran, Start, StartPiece


class Piece:
    """Which command of a piece is next, and what is to be reported of those before it."""

    def __init__(self, message: StartPiece) -> None:
        self.name = message.attempt
        self.template = Start(*message.start)
        self.count = len(message.envs)
        self.begun = 0  # the last of these runs, or has just ended
        self._first = parse_attempt(message.attempt)
        self._envs, self._argvs, self._folder = message.envs, message.argvs, message.folder
        self._stopped: set[int] = set()
        self.log_folder = ""  # where the one that runs writes
        self._row_at = 0  # index of the first in the columns
        self._clear()

    def _clear(self) -> None:
        self._columns: tuple[list[float], list[float], list[float], list[int]] = ([], [], [], [])

    def index(self, attempt: str) -> Optional[int]:
        """Where an attempt is in it; None: it is none of it, or no more."""
        which = parse_attempt(attempt)
        at = which.element - self._first.element
        return at if 0 <= at < self.count and which == self._named(at) else None

    def _named(self, at: int) -> AttemptId:
        run, element, number, incarnation, nonce = self._first
        return AttemptId(run, element + at, number, incarnation, nonce)

    def stop(self, attempt: str) -> None:
        """Let one of them not begin."""
        at = self.index(attempt)
        if at is not None:
            self._stopped.add(at)

    def next(self) -> Optional[tuple[Start, bool]]:
        """The next command, and whether it was stopped before it began; None: it was the last."""
        at = self.begun
        if at >= self.count:
            return None
        self.begun += 1
        which = self._named(at)
        start = Start.__new__(Start)  # a copy of the template, several times as fast as by its fields
        start.__dict__.update(self.template.__dict__)
        start.attempt, start.env = str(which), self._envs[at]
        start.stdout, start.stderr = log_paths_of(self._folder, which)
        self.log_folder = start.stdout.rpartition("/")[0]
        if self._argvs:
            start.argv = self._argvs[at]
        return start, at in self._stopped

    def shorten(self) -> int:
        """Begin no more of them; returns how many are left in it."""
        self.count = min(self.count, self.begun)
        return self.count

    def add(self, started: float, duration: float, cpu: float, max_rss: int) -> None:
        """The one that ran has succeeded, and wrote nothing."""
        begun, took, used, peaks = self._columns
        if not begun:
            self._row_at = self.begun - 1
        begun.append(started)
        took.append(duration)
        used.append(cpu)
        peaks.append(max_rss)

    def report(self) -> Optional[Ran]:
        """What to report now, if there is anything."""
        return self._take(over=False) if self._columns[0] else None

    def as_lost(self, ran: Ran, number: int) -> list[Ended]:
        """What ran while the disk was full, each for itself: it may have failed to write, and not have noticed."""
        rows = zip(count(self._row_at), ran.started, ran.duration, ran.cpu, ran.max_rss)
        return [
            Ended(
                str(self._named(at)), 0, None, "", took, cpu, rss, [], no_space=number, folder=self.log_folder,
                piece=self.name, started=started,
            )
            for at, started, took, cpu, rss in rows
        ]  # fmt: skip

    def end(self) -> Ran:
        """The last report on it."""
        return self._take(over=True)

    def _take(self, over: bool) -> Ran:
        ran = Ran(self.name, *self._columns, over)
        self._clear()
        return ran
