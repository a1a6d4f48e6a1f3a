"""Network measurements: the latency of answers and the bandwidth of transfers [GWP table 2].

Both come from traffic that happens anyway. Only where nothing large is ever transferred, an idle pilot fetches its own
zip now and then to measure the bandwidth. Other threads add measurements, the loop reads them.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Optional

LARGE = 256 * 1024  # bytes; a smaller transfer measures latency rather than bandwidth
NEWEST = 0.2  # weight of the newest in a moving average
FIRST_PROBE = (15.0, 60.0)  # seconds after the join; random, so that many new pilots do not probe together
PROBE_EVERY = 1800.0
_KEPT = 100


class Latency:
    """Moving averages of latency and bandwidth."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._lags: deque[float] = deque(maxlen=_KEPT)  # seconds, not yet in the average
        self._speeds: deque[float] = deque(maxlen=_KEPT)  # bits per second, likewise
        self._lag, self._speed = _Average(), _Average()
        self._probe_at: Optional[float] = None
        self._is_known = False  # there was a transfer since the last probe was due

    # --- on any thread
    def answered(self, seconds: float) -> None:
        """Record the round-trip time of a message that the server answers at once."""
        self._lags.append(seconds)

    def moved(self, size: int, seconds: float) -> None:
        """Record a transfer."""
        if size >= LARGE and seconds > 0:
            self._speeds.append(8 * size / seconds)
            self._is_known = True

    # --- on the loop's thread
    def tags(self) -> dict[str, float]:
        """The averages as tags."""
        self._lag.take(self._lags)
        self._speed.take(self._speeds)
        found = {}
        if self._lag.count:
            found["lag_ms"] = _short(1e3 * self._lag.mean)
        if self._speed.count:
            found["bandwidth_mbps"] = _short(1e-6 * self._speed.mean)
        return found

    def wants_probe(self, now: float) -> bool:
        """True if it is time to measure the bandwidth; then not again for a while."""
        if self._probe_at is None:
            self._probe_at = now + self._rng.uniform(*FIRST_PROBE)
        if now < self._probe_at:
            return False
        self._probe_at = now + PROBE_EVERY * self._rng.uniform(1.0, 1.2)
        is_known, self._is_known = self._is_known, False
        return not is_known  # transfers since the last time measured as much


class _Average:
    """The mean of the first few values, a moving average later."""

    def __init__(self) -> None:
        self.mean, self.count = 0.0, 0

    def take(self, values: deque[float]) -> None:
        while values:
            self.count += 1
            self.mean += max(NEWEST, 1 / self.count) * (values.popleft() - self.mean)


def _short(number: float) -> float:
    """Round to three digits."""
    return float(f"{number:.3g}")
