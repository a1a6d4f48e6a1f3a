"""When a pilot has to speak: at once, soon, or when it has company. Pure, like `agent`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from shoal.wire.messages import Lease

FEW, ASK_LATE = 4, 0.005  # after so few calls it asks for more so much later: their ends may be told before that
COMPANY = 0.025  # seconds that a report waits for others while there is more to do
LAZY = 0.3  # seconds a start may wait for company before it is told
TELL, TELL_AGAIN = 0.03, 0.5  # seconds until published tags are told; and after others were


class SendSchedule:
    """What wants to be said, and by when."""

    def __init__(self) -> None:
        self.urgent = False
        self._lazy_at: Optional[float] = None
        self._report_at: Optional[float] = None
        self._tell_at: Optional[float] = None
        self._told_at = -TELL_AGAIN
        self.ask_at = 0.0  # when to ask for more

    def soon(self, now: float) -> None:
        """There is something to tell that may wait for company."""
        self._lazy_at = self._lazy_at if self._lazy_at is not None else now + LAZY

    def report(self, now: float, is_busy: bool) -> None:
        """There is something to report. While more waits to begin here, that can wait for company: a message costs the
        same with one report as with thirty."""
        if not is_busy:
            self.urgent = True
        elif self._report_at is None:
            self._report_at = now + COMPANY

    def tell(self, now: float) -> None:
        """A task published something: others may look for it now, but a task that never ends doing so is heard only
        now and then."""
        if self._tell_at is None:
            self._tell_at = max(now + TELL, self._told_at + TELL_AGAIN)

    def answered(self, now: float, leases: Sequence[Lease]) -> None:
        """An answer came: ask for more at once, or a little later."""
        is_late = 0 < sum(lease.count for lease in leases) <= FEW and all(lease.function for lease in leases)
        self.ask_at = now + ASK_LATE if is_late else now

    def is_due(self, now: float) -> bool:
        """Must something be said now?"""
        times = (self._lazy_at, self._report_at, self._tell_at)
        return self.urgent or any(at is not None and now >= at for at in times)

    def said(self, now: float, has_more: bool, has_untold: bool) -> None:
        """All of it was said, but for reports that did not fit and calls that have only just begun."""
        self.urgent, self._report_at = has_more, None
        if self._tell_at is not None:
            self._tell_at, self._told_at = None, now
        self.asked(now, has_untold)

    def asked(self, now: float, has_untold: bool) -> None:
        """What is held was said, and no reports."""
        self._lazy_at = now + LAZY if has_untold else None

    def times(self, carries: bool, asks: bool) -> list[float]:
        """When to speak, given what is under way."""
        said = () if carries else (self._lazy_at, self._report_at, self._tell_at)
        return [at for at in (*said, None if asks else self.ask_at) if at is not None]
