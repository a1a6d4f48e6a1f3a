"""What makes one task differ from the others of its array. Data; the rules are elsewhere."""

from __future__ import annotations

from dataclasses import field
from typing import Any, NamedTuple

from shoal.model.lazy_dataclass import dataclass


class FailedAt(NamedTuple):
    """Where an attempt failed."""

    host: str
    site: str
    holder: str


@dataclass(slots=True)
class TaskOverrides:
    """What makes a task differ from its array after failures, losses and checkpoints."""

    memory: int = 0  # bytes it gets instead of what it asked for, after it ran out of memory
    base: int = 0  # bytes that the cap of that is counted from, if it asked for none
    raises: int = 0  # of memory
    avoid: list[str] = field(default_factory=list)  # hosts it is not sent to again
    refunds: int = 0  # failures that cost it no retry
    stagings: int = 0  # failures of staging that cost it none
    files: dict[str, str] = field(default_factory=dict)  # its checkpoint: name -> digest
    part: int = 0  # checkpoints so far that ended an attempt
    idle_parts: int = 0  # of those, the last ones that brought it no further
    saved_by: str = ""  # the attempt whose checkpoint arrived while it ran, and
    saved_number: int = 0  # its number, and
    began_with: dict[str, str] = field(default_factory=dict)  # the files that this attempt began with
    avoid_sites: list[str] = field(default_factory=list)  # it is tried at another site first
    failed_at: list[FailedAt] = field(default_factory=list)  # where failures may have been the host's fault
    alone: bool = False  # pilots were lost that held it among others: its next attempt shows whether it is to blame
    changed: dict[str, Any] = field(default_factory=dict)  # task fields that a person gave it since, as they were given
    emitted: str = ""  # what it emitted up to the checkpoint that it goes on from

    @property
    def is_apart(self) -> bool:
        """True if matching has to treat it as a class of its own."""
        return bool(self.memory or self.avoid or self.avoid_sites or self.alone or self.changed)

    def avoids(self, host: str, site: str) -> bool:
        """True if it is to be tried elsewhere first."""
        return host in self.avoid or site in self.avoid_sites
