"""A piece: some calls of a function that one runner makes one after another, and the reports on them.

Calls are reported in order, neighbours that succeeded as one batch. A large result is first stored as a blob;
until that is done, the calls after it wait. No process in here; files only by way of what is passed in.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Callable, NamedTuple, Optional

from shoal.model.ids import AttemptId, parse_attempt
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_STDERR_TAIL
from shoal.pilot.commands import streams
from shoal.pilot.runner.messages import CallEnd
from shoal.wire.chunk import shift
from shoal.wire.messages import Batch, Lease, Report


class Entries(NamedTuple):
    """Calls that ended one after another, in one of two forms."""

    plain: Sequence[list[Any]] = ()  # the first four fields of CallEnd, where no call has more
    full: Sequence[CallEnd] = ()


Ended = Callable[["Piece", Optional[Batch], tuple[Report, ...], bool], None]
Then = Callable[[Optional[str], str], None]
# Moves a stream's file, given by stream, number, size and new path; returns how many bytes are kept and left out.
Move = Callable[[str, int, int, str], tuple[int, int]]


@dataclass
class _Slot:
    """One ended call; without a report while its result is being stored."""

    report: Optional[Report] = None


class Piece:
    """The calls of one lease that a runner was given."""

    def __init__(
        self,
        lease: Lease,
        ended: Ended,
        store: Callable[[str, Then], None],
        log_paths: Callable[[str], tuple[str, str]],
    ) -> None:
        self.lease, self.attempt, self.count = lease, lease.attempt, lease.count
        self.first: AttemptId = parse_attempt(lease.attempt)
        self.is_renewed = False  # its runner ended before it began, and another has it
        self.pipe = ""  # through which they publish tags
        self.emits = ""  # the file into which the first of them emits values
        self.seen = 0  # calls that have ended; the next one is the one that runs
        self.stops: dict[int, str] = {}  # calls that must not go on, or not begin, and why
        self._ended, self._store, self._log_paths = ended, store, log_paths
        self._slots: deque[_Slot] = deque()
        self._is_over = self._is_done = False

    def name(self, at: int) -> str:
        """The attempt of the call at this index."""
        return str(shift(self.first, at))

    def index(self, which: AttemptId) -> Optional[int]:
        """The index of an attempt in this piece; None: it is not in it."""
        at = which.element - self.first.element
        return at if 0 <= at < self.count and which == self.first._replace(element=which.element) else None

    # --- what a runner logged
    def take(self, entries: Entries, rss: int, move: Move, is_over: bool) -> None:
        """Process calls that ended, from the first not yet seen on; `is_over`: these are the last."""
        self._is_over = self._is_over or is_over
        epoch = time.time() - time.monotonic()
        if self._slots or not entries.plain:
            for end in entries.full or [CallEnd(*row) for row in entries.plain]:
                self._take_one(end, rss, move, epoch)
            self._report()
        else:
            begun, took, cpu, results = zip(*entries.plain)
            count, at = len(entries.plain), self.seen
            self.seen += count
            batch = Batch(
                self.name(at),
                count,
                [epoch + one / 1e9 for one in begun],
                [one / 1e9 for one in took],
                [one / 1e9 for one in cpu],
                [rss] * count,
                result=list(results),
            )
            self._send(batch, (), self._is_over)

    def _take_one(self, end: CallEnd, rss: int, move: Move, epoch: float) -> None:
        if self.seen >= self.count:
            return  # it was taken from this piece before it began
        if end.is_skipped:
            self.fail(self.cancelled(self.seen))
            return
        report = Report(
            self.name(self.seen),
            end.outcome or "succeeded",
            end.cause,
            end.message,
            started=epoch + end.began / 1e9,
            duration=end.took / 1e9,
            cpu=end.cpu / 1e9,
            max_rss=rss,
            result=end.result,
        )
        self.seen += 1
        report = self.put_streams(report, end.out, end.err, move, end.trace)
        slot = _Slot()
        self._slots.append(slot)
        if end.file:
            self._store(end.file, lambda digest, error: self._on_stored(slot, report, digest, error))
        else:
            slot.report = report

    def put_streams(
        self, report: Report, out: Optional[list[int]], err: Optional[list[int]], move: Move, trace: str = ""
    ) -> Report:
        """Move what a call wrote, given by number and size, to its log files, and add it to the report."""
        out_path, err_path = self._log_paths(report.attempt) if out or err else ("", "")
        left_out: dict[str, int] = {}
        if out:
            size, left_out["stdout"] = move("out", out[0], out[1], out_path)
            report = replace(report, out=size, last_line=streams.last_line(out_path))
        tail = ""
        if err:
            size, left_out["stderr"] = move("err", err[0], err[1], err_path)
            report = replace(report, err=size)
            tail = streams.tail(err_path, MAX_STDERR_TAIL)
        if any(left_out.values()):
            cut = {name: count for name, count in left_out.items() if count}
            report = replace(report, message=streams.not_whole(report.message, cut))
        if report.outcome != "succeeded":
            tail = (tail + trace).encode("utf-8")[-MAX_STDERR_TAIL:].decode("utf-8", "ignore")
            report = replace(report, stderr_tail=tail)
        return report

    def _on_stored(self, slot: _Slot, report: Report, digest: Optional[str], error: str) -> None:
        if digest is not None:
            slot.report = replace(report, result=digest)
        elif report.outcome == "succeeded":
            message = f"its result could not be put away: {error}"
            slot.report = replace(report, outcome="failed", cause="stage_out", message=message)
        else:
            slot.report = report
        self._report()

    # --- what the pilot itself decides
    def shorten(self, count: int) -> None:
        """Leave only the first calls in it; the others have not begun, and the runner skips them."""
        self.count = min(self.count, count)

    def cancelled(self, at: int) -> Report:
        """The report on a call that was stopped."""
        return Report(self.name(at), "failed", "cancelled", self.stops.get(at, "cancelled"))

    def fail(self, report: Report) -> None:
        """Add the report on the next call, which did not end by itself."""
        self.seen += 1
        self._slots.append(_Slot(report))

    def fail_all(self, report: Report) -> None:
        """Every call that has not ended ends like this, or as it was stopped."""
        for at in range(self.seen, self.count):
            self.fail(self.cancelled(at) if at in self.stops else replace(report, attempt=self.name(at)))
        self.finish()

    def finish(self) -> None:
        """Report the end of the piece: calls that were not seen never began."""
        self._is_over = True
        self._report()

    # --- reporting
    def _report(self) -> None:
        """Report the calls whose reports are complete, in order; the last report is marked as such."""
        batch: list[Report] = []
        reports: list[Report] = []
        while self._slots and self._slots[0].report is not None:
            report = self._slots[0].report
            self._slots.popleft()
            is_plain = report.outcome == "succeeded" and not report.message
            if is_plain and reports:
                self._send(_batch(batch), tuple(reports), False)
                batch, reports = [], []
            (batch if is_plain else reports).append(report)
        is_last = self._is_over and not self._slots
        if batch or reports or is_last:
            self._send(_batch(batch), tuple(reports), is_last)

    def _send(self, batch: Optional[Batch], reports: tuple[Report, ...], is_last: bool) -> None:
        if not self._is_done:
            self._is_done = is_last
            self._ended(self, batch, reports, is_last)


def _batch(reports: list[Report]) -> Optional[Batch]:
    if not reports:
        return None
    any_out, any_err = any(one.out for one in reports), any(one.err for one in reports)
    return Batch(
        reports[0].attempt,
        len(reports),
        [one.started or 0.0 for one in reports],
        [one.duration for one in reports],
        [one.cpu for one in reports],
        [one.max_rss for one in reports],
        [one.last_line for one in reports] if any_out else [],
        [one.result for one in reports],
        [one.out for one in reports] if any_out else [],
        [one.err for one in reports] if any_err else [],
    )
