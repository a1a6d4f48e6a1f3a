"""Starts that are queued in the guard behind another attempt, whose slot they take over when it ends.

A pilot that has many short tasks queues some ahead, so that a slot is filled the moment it is free, without a message
between two processes.
"""

from __future__ import annotations

from typing import Optional

from shoal.pilot.guard.spawn import Launch


class QueuedStarts:
    """Launches by the attempt that they wait for."""

    def __init__(self) -> None:
        self._behind: dict[str, list[Launch]] = {}
        self._before: dict[str, str] = {}  # attempt that waits -> the one it waits for

    def __len__(self) -> int:
        return len(self._before)

    def __contains__(self, attempt: str) -> bool:
        return attempt in self._before

    def is_followed(self, attempt: str) -> bool:
        """True if something waits for this attempt."""
        return attempt in self._behind

    def add(self, launch: Launch) -> None:
        """Queue a launch behind the attempt that it names."""
        self._before[launch.start.attempt] = launch.start.after
        self._behind.setdefault(launch.start.after, []).append(launch)

    def follow(self, attempt: str) -> list[Launch]:
        """Remove and return what may begin now that an attempt is over."""
        launches = self._behind.pop(attempt, [])
        for launch in launches:
            del self._before[launch.start.attempt]
        return launches

    def drop(self, attempt: str) -> Optional[Launch]:
        """Remove one launch; what waits for it waits for the attempt before it. None: it is not queued."""
        before = self._before.pop(attempt, None)
        if before is None:
            return None
        queue = self._behind[before]
        at = next(at for at, launch in enumerate(queue) if launch.start.attempt == attempt)
        dropped, heirs = queue[at], self._behind.pop(attempt, [])
        queue[at : at + 1] = heirs
        for launch in heirs:
            self._before[launch.start.attempt] = before
        if not queue:
            del self._behind[before]
        return dropped
