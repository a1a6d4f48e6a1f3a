"""Whether and when this pilot becomes the version that the server has now [protocol 8].

The new pilot is fetched and verified before the old one leaves: one that cannot be fetched changes nothing.
"""

from __future__ import annotations

import re
from typing import Optional

from shoal.pilot.agent.events import Fetched

RETRY = 60.0  # seconds until a zip that did not come is requested again
_DIGEST = re.compile("[0-9a-f]{64}")
_REFUSED_KEPT = 100


class Renewal:
    """The latest order of the server to renew: which zip, and how far we got with it."""

    def __init__(self) -> None:
        self.ready = ""  # the digest of a zip that is here and verified
        self._wanted = ""
        self._is_pending = False
        self._retry_at = 0.0
        self._refused: list[str] = []  # digests for which another zip came: not tried again

    def order(self, digest: str) -> None:
        """The server wants us to be the pilot with this digest."""
        if digest != self._wanted and digest not in self._refused and _DIGEST.fullmatch(digest):
            self._wanted, self._retry_at = digest, 0.0
            self.ready, self._is_pending = "", False

    @property
    def is_wanted(self) -> bool:
        """True if the server wants another pilot here."""
        return bool(self._wanted)

    def fetch(self, now: float) -> str:
        """The digest of the zip to fetch now; empty if there is none."""
        if not self._wanted or self.ready or self._is_pending or now < self._retry_at:
            return ""
        self._is_pending = True
        return self._wanted

    def take(self, event: Fetched, now: float) -> None:
        """Take the outcome of a fetch."""
        if event.digest != self._wanted:
            return
        self._is_pending = False
        if event.fits:
            self.ready = event.digest
        elif event.fits is None:
            self._retry_at = now + RETRY
        else:
            self._refused = [*self._refused[1 - _REFUSED_KEPT :], self._wanted]
            self._wanted = ""

    def deadline(self) -> Optional[float]:
        """When to request again what did not come."""
        waits = self._wanted and not self.ready and not self._is_pending and self._retry_at
        return self._retry_at if waits else None
