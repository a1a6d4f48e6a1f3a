"""The times that pilot and server agree on [protocol 5; promise R1-R5]; tests use shorter ones."""

from __future__ import annotations

from shoal.model.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Timing:
    """Times in seconds."""

    beat: float = 10.0  # a pilot sends an exchange at least this often; an empty reply is held as long
    suspect: float = 30.0  # a pilot silent for so long is shown as suspect
    lease: float = 75.0  # a pilot silent for so long is lost
    hold: float = (
        900.0  # an exclusive task is killed after 0.8 of this without contact, and leased again after hold + margin
    )
    margin: float = 15.0
    quarantine: float = (
        15.0  # after a restart, nothing is matched until every living pilot has sent an exchange, or for so long
    )
    idle_end: float = 600.0  # a pilot without contact that holds nothing ends after this
    spool_end: float = 86_400.0  # one with unacknowledged reports ends after this
    grace: float = 10.0  # from SIGTERM to SIGKILL of a task

    @property
    def kill_after(self) -> float:
        """When the guard ends an exclusive task that lost contact."""
        return 0.8 * self.hold
