"""The files into which running tasks emit values: $SHOAL_EMIT names one for each attempt, which the task makes itself by
its first line [DIANE U13; ADR 0053].

A file, not a pipe: a task that emits nothing costs nothing, none ever waits for a reader, and no line of an attempt can be
taken for another's. What comes after its attempt is over is deleted. Runs on the loop's thread; how much is read at once
is bounded.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Optional

from shoal.model.ids import AttemptId, parse_attempt
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_EMITTED, MAX_EMITTED_LINE
from shoal.sched.partial.contribution import read, values_of
from shoal.wire.chunk import shift
from shoal.wire.messages import Batch, Lease, Report

log = logging.getLogger(__name__)

LOOK_EVERY = 1.0  # seconds between two looks at the files of running tasks
READ = 32 * 1024  # bytes of one file in one look
READ_ALL = 256 * 1024  # and of all files
COUNTED = 16 * 1024 * 1024  # bytes behind the limit of which the lines are counted
_NAME = re.compile(r"r([0-9]+)~([0-9a-f]*)@([0-9]+)#([0-9]+)\.([0-9]+)")


def file_name(which: AttemptId) -> str:
    """The name of an attempt's file; what differs between neighbours is its element, behind the only dot."""
    return f"r{which.run}~{which.nonce}@{which.incarnation}#{which.number}.{which.element}"


def _attempt_of(name: str) -> Optional[AttemptId]:
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    return AttemptId(int(found[1]), int(found[5]), int(found[4]), int(found[3]), found[2])


@dataclass
class _Open:
    """A lease of which something runs."""

    first: AttemptId
    count: int
    reduce: Mapping[str, str]
    emitted: str
    done: int = 0  # of them that are over, in order

    def has(self, which: AttemptId) -> bool:
        """True if this is one of those that are not over."""
        at = which.element - self.first.element
        return self.done <= at < self.count and which == shift(self.first, at)


class _EmitFile:
    """One file, as far as it was read."""

    def __init__(self, before: str) -> None:
        self.contribution = read(before)
        self.is_new = False  # something was read that was not sent
        self._offset = 0
        self._rest = b""

    def read_on(self, path: str, element: int, reduce: Mapping[str, str], most: int, is_over: bool = False) -> int:
        """Take what was written since; returns how many bytes that was."""
        most = min(most, MAX_EMITTED - self._offset)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return 0
        try:
            if os.fstat(fd).st_size < self._offset:
                self._offset, self._rest = 0, b""  # it was written anew, not appended to: these are more values
            data = os.pread(fd, max(0, most), self._offset)
        except OSError:  # it is no file
            return 0
        finally:
            os.close(fd)
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if is_over and self._rest.strip():
            lines.append(self._rest)
            self._rest = b""
        if len(self._rest) > MAX_EMITTED_LINE:
            self._rest = self._rest[: MAX_EMITTED_LINE + 1]  # is refused when its end comes
        self._take(lines, element, reduce)
        return len(data)

    def count_rest(self, path: str) -> None:
        """The attempt is over: count the lines behind the limit, of a very long rest as many as its beginning lets expect."""
        lines = seen = 0
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as file:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    return
                rest = os.fstat(file.fileno()).st_size - file.seek(MAX_EMITTED)
                while seen < COUNTED and (data := file.read(min(READ_ALL, COUNTED - seen))):
                    seen, lines = seen + len(data), lines + data.count(b"\n")
        except OSError:
            return
        if rest > 0 and seen:
            self.contribution.left_out += max(1, round(lines * rest / seen))
            log.warning("a task emitted more than %d bytes: the rest is left out", MAX_EMITTED)

    @property
    def is_full(self) -> bool:
        """True if no more of it is read."""
        return self._offset >= MAX_EMITTED

    def _take(self, lines: Sequence[bytes], element: int, reduce: Mapping[str, str]) -> None:
        found = []
        for line in lines:
            values = values_of(line) if len(line) <= MAX_EMITTED_LINE else None
            if values is not None:
                found += values
            elif line.strip():
                self.contribution.left_out += 1
        if found:
            self.contribution.add(found, element, reduce)
        self.is_new = self.is_new or bool(lines)


class EmitFiles:
    """The files of all attempts of a pilot."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._open: dict[str, _Open] = {}
        self._files: dict[AttemptId, _EmitFile] = {}
        self._look_at = 0.0
        self._is_made = False

    # --- attempts
    def begin(self, lease: Lease) -> None:
        """Attempts begin: what they emit is looked for."""
        if not self._is_made:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            self._is_made = True
        self._open[lease.attempt] = _Open(parse_attempt(lease.attempt), lease.count, lease.reduce, lease.emitted)

    def end(self, report: Report) -> Report:
        """The report of an attempt, with what it emitted in all; its file is removed."""
        one = self._open.pop(report.attempt, None)
        return self._finish(one, report) if one is not None else report

    def end_called(
        self, piece: str, batch: Optional[Batch], reports: Sequence[Report], over: bool
    ) -> tuple[Report, ...]:
        """Attempts of a piece are over: adds to the batch what they emitted, and returns their reports with it."""
        one = self._open.get(piece)
        if one is None:
            return tuple(reports)
        if batch is not None:
            texts = self._of_batch(one, batch)
            if any(texts):
                batch.emitted.extend(texts)
            one.done += batch.count
        found = tuple(self._finish(one, report) for report in reports)
        one.done += len(reports)
        if over:
            del self._open[piece]
        return found

    def _of_batch(self, one: _Open, batch: Batch) -> list[str]:
        """What each of these emitted, whose reports are one message."""
        first = parse_attempt(batch.attempt)
        try:
            names = set(os.listdir(self.folder))
        except OSError:
            names = set()
        if not names:
            return []
        return [
            self._close(one, which) if file_name(which) in names else "" for which in _neighbours(first, batch.count)
        ]

    def _finish(self, one: _Open, report: Report) -> Report:
        text = self._close(one, parse_attempt(report.attempt))
        if not text or report.outcome not in ("succeeded", "checkpointed"):
            return report
        return replace(report, emitted=text)

    def _close(self, one: _Open, which: AttemptId) -> str:
        file, path = self._files.pop(which, None), os.path.join(self.folder, file_name(which))
        if file is None and not one.emitted and not os.path.lexists(path):
            return ""  # as most are
        file = file or _EmitFile(one.emitted)
        while file.read_on(path, which.element, one.reduce, READ_ALL) == READ_ALL:
            pass
        file.read_on(path, which.element, one.reduce, 0, is_over=True)
        if file.is_full:
            file.count_rest(path)
        with contextlib.suppress(OSError):
            os.unlink(path)
        return file.contribution.travelling_text()

    def so_far(self, attempt: str) -> str:
        """What an attempt has emitted by now."""
        one = self._open.get(attempt)
        if one is None:
            return ""
        file = self._file(one, one.first)
        file.read_on(os.path.join(self.folder, file_name(one.first)), one.first.element, one.reduce, READ_ALL)
        return file.contribution.travelling_text()

    def _file(self, one: _Open, which: AttemptId) -> _EmitFile:
        return self._files.setdefault(which, _EmitFile(one.emitted))

    # --- while they run
    def deadline(self) -> Optional[float]:
        """When to look at the files again."""
        return self._look_at if self._open else None

    def look(self, now: float) -> list[tuple[str, str]]:
        """Attempts that emitted something since the last look, and what they emitted so far."""
        if now < self._look_at or not self._open:
            return []
        self._look_at = now + LOOK_EVERY
        try:
            names = os.listdir(self.folder)
        except OSError:
            return []
        left = READ_ALL
        for name in names:
            which = _attempt_of(name)
            one = next((one for one in self._open.values() if which is not None and one.has(which)), None)
            path = os.path.join(self.folder, name)
            if one is None or which is None:
                with contextlib.suppress(OSError):
                    os.unlink(path)  # it came after the end of its attempt
            elif left > 0:
                left -= self._file(one, which).read_on(path, which.element, one.reduce, min(READ, left))
        found = [(str(which), file) for which, file in self._files.items() if file.is_new]
        for _, file in found:
            file.is_new = False
        return [(attempt, file.contribution.travelling_text()) for attempt, file in found]


def _neighbours(first: AttemptId, count: int) -> Iterator[AttemptId]:
    for at in range(count):
        yield shift(first, at)
