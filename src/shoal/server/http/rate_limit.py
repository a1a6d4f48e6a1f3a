"""Admission control: token buckets per person, pilot and pool, limits of requests in work, and load shedding
[security S16; promise I21]. Nothing is counted per token: one person may have a thousand.

Pure: time is an argument. Under overload pilots' exchanges come first, then registrations, then people: a refused person
comes back after `Retry-After`, a pilot that cannot report loses work.
"""

from __future__ import annotations

from collections import OrderedDict

from shoal.model import limits
from shoal.model.credentials import ENROL, SESSION, SUBMIT
from shoal.model.lazy_dataclass import dataclass

UNKNOWN = "unknown"
POOL = "pool"  # all pilots of one owner or group together
CALLS = "calls"  # requests of an executor, two for each single call


@dataclass(frozen=True)
class Rate:
    """Sustained rate per second, and burst size."""

    rate: float
    burst: float


RATES = {
    SUBMIT: Rate(limits.MAX_RATE_PEOPLE, 5 * limits.MAX_RATE_PEOPLE),
    CALLS: Rate(limits.MAX_RATE_CALLS, limits.MAX_RATE_CALLS),
    SESSION: Rate(limits.MAX_RATE_PILOT, limits.MAX_RATE_PILOT),
    POOL: Rate(limits.MAX_RATE_POOL, limits.MAX_RATE_POOL),
    ENROL: Rate(limits.MAX_RATE_ENROL, 5 * limits.MAX_RATE_ENROL),
    UNKNOWN: Rate(limits.MAX_RATE_UNKNOWN, 5 * limits.MAX_RATE_UNKNOWN),  # failed authentications of one address
}
LAG_PEOPLE = 0.1  # seconds the event loop may be late before people's requests are refused
LAG_ALL = 2.0  # before registrations are, too
LAG_WEIGHT = 0.3  # of the newest measurement: one late step refuses nobody, three in a row do
LAG_GROWTH = 4.0  # one measurement counts as at most so many times the present lag
BUSY_RETRY = 1.0  # seconds after which most requests in work are done
LONGEST_RETRY = 10.0


class Buckets:
    """Token buckets of one kind, a bounded number of them."""

    def __init__(self, rate: Rate, most: int = limits.MAX_BUCKETS) -> None:
        self._rate, self._most = rate, most
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()  # key -> tokens, and when that was so

    def __len__(self) -> int:
        return len(self._levels)

    def take(self, key: str, now: float) -> float:
        """Take a token: 0.0, or the seconds until there is one."""
        tokens = self._level(key, now)
        wait = 0.0 if tokens >= 1.0 else (1.0 - tokens) / self._rate.rate
        self._set(key, now, tokens if wait else tokens - 1.0)
        return wait

    def charge(self, key: str, now: float, count: int) -> None:
        """Take so many tokens at once, also such as are not there yet: whoever comes next waits for them."""
        self._set(key, now, max(-self._rate.burst, self._level(key, now) - count))

    def _level(self, key: str, now: float) -> float:
        tokens, then = self._levels.get(key, (self._rate.burst, now))
        # A clock that steps back neither gives nor takes.
        return min(self._rate.burst, tokens + max(0.0, now - then) * self._rate.rate)

    def _set(self, key: str, now: float, tokens: float) -> None:
        _, then = self._levels.get(key, (0.0, now))
        self._levels[key] = (tokens, max(now, then))
        self._levels.move_to_end(key)
        if len(self._levels) > self._most:
            self._levels.popitem(last=False)  # the least recently used: most likely full again


class RateLimit:
    """Admission of requests. `done` is called once for each admitted one: when answered, or when it begins to wait."""

    def __init__(self, rates: dict[str, Rate] | None = None) -> None:
        self._buckets = {kind: Buckets(rate) for kind, rate in (rates or RATES).items()}
        self._work: dict[tuple[str, str], int] = {}
        self._people = 0
        self._lag = 0.0

    @property
    def lag(self) -> float:
        """How late the event loop is, smoothed."""
        return self._lag

    def observe_lag(self, seconds: float) -> None:
        """The event loop was so late just now."""
        # A server that was frozen is late once and refuses nobody for it; under overload it is late again and again.
        most = max(LAG_PEOPLE / LAG_WEIGHT, LAG_GROWTH * self._lag)
        self._lag += LAG_WEIGHT * (min(max(0.0, seconds), most) - self._lag)

    def admit(self, kind: str, key: str, now: float, pace: str = "") -> float:
        """Admit a request of this credential: 0.0, else the seconds after which it may come again. `pace` names another
        rate than that of its kind.

        A failed authentication is of kind `unknown`, with the address as its key: it is counted, but never in work.
        """
        if kind == UNKNOWN:
            return self._buckets[kind].take(key, now)
        if (kind == SUBMIT and self._lag > LAG_PEOPLE) or (kind == ENROL and self._lag > LAG_ALL):
            return min(LONGEST_RETRY, BUSY_RETRY + self._lag)
        most = limits.MAX_WORK_PER_POOL if kind == POOL else limits.MAX_WORK_PER_KEY
        if self._work.get((kind, key), 0) >= most or (kind == SUBMIT and self._people >= limits.MAX_PEOPLE_WORK):
            return BUSY_RETRY
        wait = self._buckets[pace or kind].take(key, now)
        if not wait:
            self._work[kind, key] = self._work.get((kind, key), 0) + 1
            self._people += kind == SUBMIT
        return wait

    def charge(self, kind: str, key: str, now: float, count: int) -> None:
        """An admitted request brings so many others."""
        self._buckets[kind].charge(key, now, count)

    def admit_at_once(self, kind: str, key: str, now: float) -> float:
        """The same for a pilot's request that is answered, or waits, before another is looked at: it is never in work."""
        if self._work.get((kind, key), 0) >= (limits.MAX_WORK_PER_POOL if kind == POOL else limits.MAX_WORK_PER_KEY):
            return BUSY_RETRY
        return self._buckets[kind].take(key, now)

    def done(self, kind: str, key: str) -> None:
        """An admitted request is answered, or waits and does no work meanwhile."""
        left = self._work.pop((kind, key)) - 1
        if left:
            self._work[kind, key] = left
        self._people -= kind == SUBMIT
