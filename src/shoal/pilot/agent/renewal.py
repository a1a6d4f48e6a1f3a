"""Whether and when this pilot becomes the one that the server has now [protocol 8]. Pure, like `agent`.

The new pilot is fetched and compared before the old one leaves: one that cannot be had changes nothing.
"""

from __future__ import annotations

import re
from typing import Optional

from shoal.pilot.agent.events import Fetched

AGAIN = 60.0  # seconds until a zip that did not come is asked for again
_DIGEST = re.compile("[0-9a-f]{64}")
_REFUSED_KEPT = 100


class Renewal:
    """One wish of the server at a time: which zip, and how far we got with it."""

    def __init__(self) -> None:
        self.ready = ""  # the digest of what is here, and fits
        self._wanted = ""
        self._is_asked = False
        self._again_at = 0.0
        self._refused: list[str] = []  # what came was something else: not tried again

    def order(self, digest: str) -> None:
        """The server wants us to be the pilot with this digest."""
        if digest != self._wanted and digest not in self._refused and _DIGEST.fullmatch(digest):
            self._wanted, self._again_at = digest, 0.0
            self.ready, self._is_asked = "", False

    def fetch(self, now: float) -> str:
        """The digest of what is to be fetched now; empty if nothing is."""
        if not self._wanted or self.ready or self._is_asked or now < self._again_at:
            return ""
        self._is_asked = True
        return self._wanted

    def take(self, event: Fetched, now: float) -> None:
        """What came of it."""
        if event.digest != self._wanted:
            return
        self._is_asked = False
        if event.fits:
            self.ready = event.digest
        elif event.fits is None:
            self._again_at = now + AGAIN
        else:
            self._refused = [*self._refused[1 - _REFUSED_KEPT :], self._wanted]
            self._wanted = ""

    def deadline(self) -> Optional[float]:
        """When to ask again for what did not come."""
        waits = self._wanted and not self.ready and not self._is_asked and self._again_at
        return self._again_at if waits else None
