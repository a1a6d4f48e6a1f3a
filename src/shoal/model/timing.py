"""The times that pilot and server agree on [protocol 5; promise R1-R5]; short in tests, as here in real life."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Seconds, all of them."""

    beat: float = 10.0  # a pilot is heard at least this often; an empty reply is held as long
    suspect: float = 30.0  # silent so long: shown, nothing done
    lease: float = 75.0  # silent so long: lost
    hold: float = 900.0  # an exclusive task is killed at 0.8 of this without contact, re-issued at hold + margin
    margin: float = 15.0
    quarantine: float = 15.0  # after a restart, nothing is matched until all living pilots spoke, or this
    idle_end: float = 600.0  # a pilot without contact that holds nothing ends
    spool_end: float = 86_400.0  # one that holds unacknowledged reports waits so long
    grace: float = 10.0  # from SIGTERM to SIGKILL of a task

    @property
    def kill_after(self) -> float:
        """When the guard ends an exclusive task that lost contact."""
        return 0.8 * self.hold
