"""When a pilot has to speak: at once, soon, or when it has company. Pure, like `agent`."""

from __future__ import annotations

from typing import Optional

FEW, ASK_LATE = 4, 0.005  # after so few calls it asks for more so much later: their ends may be told before that
COMPANY = 0.025  # seconds that a report waits for others while there is more to do
LAZY = 0.3  # seconds a start may wait for company before it is told


class Urges:
    """What wants to be said, and by when."""

    def __init__(self) -> None:
        self.urgent = False
        self._lazy_at: Optional[float] = None
        self._report_at: Optional[float] = None
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

    def asked_late(self, now: float, is_late: bool) -> None:
        """An answer came: ask for more at once, or a little later."""
        self.ask_at = now + ASK_LATE if is_late else now

    def is_due(self, now: float) -> bool:
        """Must something be said now?"""
        return self.urgent or any(at is not None and now >= at for at in (self._lazy_at, self._report_at))

    def said(self, now: float, has_more: bool, has_untold: bool) -> None:
        """All of it was said, but for reports that did not fit and calls that have only just begun."""
        self.urgent, self._report_at = has_more, None
        self.asked(now, has_untold)

    def asked(self, now: float, has_untold: bool) -> None:
        """What is held was said, and no reports."""
        self._lazy_at = now + LAZY if has_untold else None

    def times(self, carries: bool, asks: bool) -> list[float]:
        """When to speak, given what is under way."""
        said = () if carries else (self._lazy_at, self._report_at)
        return [at for at in (*said, None if asks else self.ask_at) if at is not None]
