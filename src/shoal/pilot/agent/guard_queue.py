"""Short commands stand in line in the guard, each behind the one whose room it takes over. Pure, like `agent`.

A slot is then filled the moment it is free, without a word between two processes. Whoever stands behind a command that
turns out to be long, while another slot is idle, is called back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from shoal.wire.messages import Lease

if TYPE_CHECKING:
    from shoal.pilot.agent.slots import RunningAttempt

BRISK = 0.02  # mean seconds of commands that stand in line
LONG = 0.1  # seconds after which one holds up those behind it
AHEAD = 8  # commands in line for each slot


class GuardQueue:
    """Who stands behind whom, and how long commands took lately."""

    def __init__(self) -> None:
        self._mean: Optional[float] = None

    def note(self, duration: float) -> None:
        """A command took so long."""
        self._mean = duration if self._mean is None else 0.8 * self._mean + 0.2 * duration

    @property
    def is_brisk(self) -> bool:
        """Are commands over in a moment?"""
        return self._mean is not None and self._mean < BRISK

    def may_stand(self, run: RunningAttempt) -> bool:
        """May one that the hands have get another behind it?"""
        return self.may_line_up(run.lease)

    @staticmethod
    def may_line_up(lease: Lease) -> bool:
        """May a command stand in line? What moves files, must not start twice, or may take long, may not."""
        return lease.rerun == "safe" and not (
            lease.precedence or lease.function or lease.own or not lease.cwd or lease.checkpoint or lease.container
        )

    @staticmethod
    def step_out(
        run: RunningAttempt, before: Optional[RunningAttempt], behind: Optional[RunningAttempt], now: float
    ) -> None:
        """One is over, or called back: whoever stood behind it stands behind the one before it."""
        if before is not None:
            before.behind = run.behind
        if behind is not None:
            behind.after, behind.since = run.after, now
