"""Streams that pilots on other hosts send: written below the log directory, and how much of them has yet to come."""

from __future__ import annotations

import errno
import logging
import os
from binascii import a2b_base64
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.model.file_names import SUFFIX, log_name
from shoal.model.ids import AttemptId, parse_attempt
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_STREAM, MAX_TAIL, STREAMS_KEPT
from shoal.wire.batches import report_of
from shoal.wire.messages import Exchange, LogPiece, Report

log = logging.getLogger(__name__)

ON_ITS_WAY = 30.0  # seconds after its last piece that a stream is waited for
_SLACK = 128 * 1024 * 1024  # by which a stream of a running task may exceed its bound


@dataclass
class _Expected:
    """A stream of which a report came before its last piece."""

    attempt: str
    pilot: str
    size: int
    heard: float  # when the last piece came


class UploadedLogs:
    """Writes the streams of other hosts. What a report said of their sizes is remembered until all of it is here."""

    def __init__(self, folder: Path, has_space: Callable[[int], bool], clock: Callable[[], float]) -> None:
        self._folder, self._has_space, self._clock = folder, has_space, clock
        self._senders: set[str] = set()  # pilots that sent a piece: the others write into the directory themselves
        self._expected: OrderedDict[str, _Expected] = OrderedDict()  # by file

    def has_sent(self, pilot: str) -> bool:
        """True if pieces came from a pilot of this name, so that its reports promise more."""
        return pilot in self._senders

    def receive(self, state: State, pilot: Pilot, exchange: Exchange) -> None:
        """Write the pieces of an exchange, of the pilot's own attempts only, and note what its reports promise."""
        for piece in exchange.tails:
            attempt = parse_attempt(piece.attempt)
            if piece.stream not in SUFFIX:
                continue
            name = log_name(attempt.run, attempt.element, attempt.number, piece.stream)
            expected = self._expected.get(name)
            is_expected = expected is not None and (expected.attempt, expected.pilot) == (piece.attempt, pilot.name)
            if not (is_expected or pilot.holds(attempt) or pilot.ended_lately(attempt)):
                continue
            self._senders.add(pilot.name)
            try:
                self._write(name, piece, _bound(state, attempt))
            except (OSError, ValueError) as error:  # a disk that is full must not keep a pilot from reporting
                log.warning("a log is not kept: attempt=%s stream=%s: %s", attempt.text, piece.stream, error)
            if expected is not None:
                expected.heard = self._clock()
        if pilot.name in self._senders:
            for report in exchange.reports:
                self._expect(pilot.name, report)
            for batch in exchange.batches:
                for at in range(batch.count) if batch.out or batch.err else ():
                    self._expect(pilot.name, report_of(batch, at))

    def missing(self, name: str) -> tuple[int, bool]:
        """How many bytes of a file have not come that a report promised, and whether they may still come."""
        expected = self._expected.get(name)
        left = expected.size - self._size(name) if expected is not None else 0
        if expected is None or left <= 0:
            self._expected.pop(name, None)
            return 0, False
        return left, self._clock() - expected.heard < ON_ITS_WAY

    def _expect(self, pilot: str, report: Report) -> None:
        for stream, size in (("stdout", report.out), ("stderr", report.err)):
            if size:
                attempt = parse_attempt(report.attempt)
                name = log_name(attempt.run, attempt.element, attempt.number, stream)
                if self._size(name) < size:
                    self._expected[name] = _Expected(report.attempt, pilot, size, self._clock())
                    while len(self._expected) > STREAMS_KEPT:
                        self._expected.popitem(last=False)

    def _size(self, name: str) -> int:
        try:
            return (self._folder / name).stat().st_size
        except OSError:
            return 0

    def _write(self, name: str, piece: LogPiece, most: int) -> None:
        data = a2b_base64(piece.data) if piece.data else piece.text.encode("utf-8", "replace")
        if not self._has_space(len(data)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_piece(self._folder / name, data, piece.offset, most)


def _bound(state: State, attempt: AttemptId) -> int:
    """How long a stream of an attempt may be."""
    run = state.runs.get(attempt.run)
    array = run.array_of(attempt.element) if run is not None else None
    return array.spec.max_output if array is not None else MAX_STREAM


def write_piece(path: Path, data: bytes, offset: int, most: int = MAX_STREAM) -> None:
    """Write a part of a stream at its offset; a part that would leave a hole changes nothing."""
    if len(data) > 3 * MAX_TAIL or not 0 <= offset <= most + _SLACK:  # of older pilots one byte may be three here
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if os.fstat(descriptor).st_size < offset:
            return
        os.pwrite(descriptor, data, offset)
        os.ftruncate(descriptor, offset + len(data))
    finally:
        os.close(descriptor)
