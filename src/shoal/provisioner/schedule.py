"""When a site's batch system is asked for states: one command for all allocations, seldom, and soon after news."""

from __future__ import annotations

from shoal.model.lazy_dataclass import dataclass

EVERY = 30.0  # seconds between two queries at least: batch systems suffer from more
EVERY_HERE = 5.0  # where the process table of a machine takes the place of a batch system
SOON = 3.0  # after a submission or an unexpected end
LONGEST = 600.0


@dataclass
class QuerySchedule:
    """The times of the queries of one site."""

    every: float = EVERY
    last: float = float("-inf")
    soon: float | None = None
    failures: int = 0

    def note_news(self, now: float) -> None:
        """An allocation was submitted, or a pilot ended that should not have: ask once, a little later."""
        if self.soon is None:
            self.soon = now + SOON

    def is_due(self, now: float, is_open: bool) -> bool:
        """Is it time to ask? `is_open`: there are allocations, or may be."""
        pause = min(LONGEST, self.every * 2**self.failures)
        if self.soon is not None and not self.failures and now >= self.soon:
            return True
        return is_open and now - self.last >= pause

    def note_query(self, now: float, is_good: bool) -> None:
        """The batch system was asked."""
        self.last = now
        self.soon = None
        self.failures = 0 if is_good else min(self.failures + 1, 5)

    def note_answer(self) -> None:
        """The batch system took a submission: it is there again, so nobody need wait for long to ask it."""
        self.failures = 0
