"""Noticing that the server itself did not run: stopped, asleep with its laptop, or held up by a disk or a long step."""

from __future__ import annotations

STALL = 1.0  # seconds without a step of a loop that ticks five times a second


class PauseDetector:
    """When the server was last seen to run. Its clock must count the time of a suspended machine."""

    def __init__(self, now: float) -> None:
        self._last = now

    def gap(self, now: float) -> float:
        """Seconds until now in which the server did not run; 0 if it did. Each gap is told once."""
        passed, self._last = now - self._last, now
        return passed if passed > STALL else 0.0
