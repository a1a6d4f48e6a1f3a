"""When to send the next exchange: at once, soon, or batched with what comes meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from shoal.wire.messages import Lease

FEW, POLL_DELAY = 4, 0.005  # after so few calls the next poll waits so long: it may carry their ends already
BATCH_DELAY = 0.025  # seconds that a report waits for others while there is more to do;
PIECE_DELAY = 0.1  # of commands that run in pieces, while there is twice as much to do: they come by the hundred
STARTS_AWAITED = 0.05  # seconds that asking for work is put off, where no slot is free, to tell of starts with it
START_DELAY = 0.3  # seconds that the start of an attempt may wait before it is reported
TAGS_DELAY, TAGS_INTERVAL = 0.03, 0.5  # seconds until published tags are sent; and between two such exchanges


class SendSchedule:
    """What waits to be sent, and until when."""

    def __init__(self) -> None:
        self.urgent = False
        self._start_at: Optional[float] = None
        self._report_at: Optional[float] = None
        self._tags_at: Optional[float] = None
        self._tags_sent_at = -TAGS_INTERVAL
        self.poll_at = 0.0  # when to ask for more work
        self._awaits_starts = False  # that is put off until all that was begun has started

    def add_start(self, now: float) -> None:
        """The start of an attempt is to be reported; that may wait."""
        self._start_at = self._start_at if self._start_at is not None else now + START_DELAY

    def await_starts(self, now: float) -> None:
        """Processes are being started in the last free slots: their starts may ride on the exchange that asks for work, which
        has no use for work now, instead of on one of their own."""
        self.poll_at, self._awaits_starts = max(self.poll_at, now + STARTS_AWAITED), True

    def on_started(self, now: float, are_all: bool) -> None:
        """A process was started; `are_all`: so was everything else that was begun."""
        self.add_start(now)
        if self._awaits_starts and are_all:
            self.poll_at, self._awaits_starts = min(self.poll_at, now), False

    def add_report(self, now: float, is_busy: bool, delay: float = BATCH_DELAY) -> None:
        """There is a report to send. While more work waits here it may wait for others: an exchange with thirty reports
        costs the same as one with a single report."""
        if not is_busy:
            self.urgent = True
        elif self._report_at is None:
            self._report_at = now + delay

    def add_tags(self, now: float) -> None:
        """A task published tags: others may wait for them, but a task that publishes all the time is rate-limited."""
        if self._tags_at is None:
            self._tags_at = max(now + TAGS_DELAY, self._tags_sent_at + TAGS_INTERVAL)

    def on_answered(self, now: float, leases: Sequence[Lease]) -> None:
        """A reply came: ask for more work at once, or a little later."""
        if self._awaits_starts and not leases:
            return
        is_late = bool(leases) and all(lease.function for lease in leases) and sum(x.count for x in leases) <= FEW
        self.poll_at = now + POLL_DELAY if is_late else now

    def is_due(self, now: float) -> bool:
        """True if something must be sent now."""
        if self.urgent:
            return True
        starts, reports, tags = self._start_at, self._report_at, self._tags_at
        return (
            (starts is not None and now >= starts)
            or (reports is not None and now >= reports)
            or (tags is not None and now >= tags)
        )

    def on_sent(self, now: float, has_more: bool, has_unreported: bool) -> None:
        """Everything was sent, except reports that did not fit and the starts of calls that have only just begun."""
        self.urgent, self._report_at = has_more, None
        if self._tags_at is not None:
            self._tags_at, self._tags_sent_at = None, now
        self.on_polled(now, has_unreported)

    def on_polled(self, now: float, has_unreported: bool) -> None:
        """An exchange was sent with what is held, and without reports."""
        self._start_at, self._awaits_starts = (now + START_DELAY if has_unreported else None), False

    def times(self, carries: bool, polls: bool) -> list[float]:
        """When to send, given what is in flight."""
        content = () if carries else (self._start_at, self._report_at, self._tags_at)
        return [at for at in (*content, None if polls else self.poll_at) if at is not None]
