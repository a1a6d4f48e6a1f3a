"""How far away the server is, as seen from here: the lag of answers and the speed of transfers [GWP table 2].

Both come from what happens anyway. Only where nothing large is ever moved, an idle pilot fetches its own zip now and
then to see how long that takes. Lanes and porters note what they saw, the loop asks.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Optional

LARGE = 256 * 1024  # bytes; what is smaller says more of the lag than of the speed
NEWEST = 0.2  # weight of the newest in a moving average
FIRST_PROBE = (15.0, 60.0)  # seconds after the join: many pilots that come together do not all ask together
PROBE_EVERY = 1800.0
_KEPT = 100


class Latency:
    """The averages."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._lags: deque[float] = deque(maxlen=_KEPT)  # seconds, not yet in the average
        self._speeds: deque[float] = deque(maxlen=_KEPT)  # bits a second, likewise
        self._lag, self._speed = _Average(), _Average()
        self._probe_at: Optional[float] = None
        self._is_known = False  # something was moved since we last thought of measuring

    # --- on any thread
    def answered(self, seconds: float) -> None:
        """A message that is answered at once was, after so long."""
        self._lags.append(seconds)

    def moved(self, size: int, seconds: float) -> None:
        """So many bytes came or went."""
        if size >= LARGE and seconds > 0:
            self._speeds.append(8 * size / seconds)
            self._is_known = True

    # --- on the loop's
    def tags(self) -> dict[str, float]:
        """What is known, as tags."""
        self._lag.take(self._lags)
        self._speed.take(self._speeds)
        found = {}
        if self._lag.count:
            found["lag_ms"] = _short(1e3 * self._lag.mean)
        if self._speed.count:
            found["bandwidth_mbps"] = _short(1e-6 * self._speed.mean)
        return found

    def wants_probe(self, now: float) -> bool:
        """Is it time to measure the speed? Once asked, it is not for a while."""
        if self._probe_at is None:
            self._probe_at = now + self._rng.uniform(*FIRST_PROBE)
        if now < self._probe_at:
            return False
        self._probe_at = now + PROBE_EVERY * self._rng.uniform(1.0, 1.2)
        is_known, self._is_known = self._is_known, False
        return not is_known  # transfers since the last time tell as much


class _Average:
    """A plain mean of the first few, a moving average later."""

    def __init__(self) -> None:
        self.mean, self.count = 0.0, 0

    def take(self, news: deque[float]) -> None:
        while news:
            self.count += 1
            self.mean += max(NEWEST, 1 / self.count) * (news.popleft() - self.mean)


def _short(number: float) -> float:
    """Three digits are enough."""
    return float(f"{number:.3g}")
