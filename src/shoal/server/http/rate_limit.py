"""Who may come in now: token buckets per person, pilot and pool, bounds of what is in work, and what is put off under load
[security S16; promise I21]. Nothing is counted per token: one person may have a thousand.

Pure: time is an argument. The order of mercy: pilots' exchanges always, registrations unless all is stuck, people last;
a refused person comes back after `Retry-After`, a pilot that cannot report loses work.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from shoal.model.credentials import ENROL, SESSION, SUBMIT
from shoal.model.limits import (
    MAX_BUCKETS,
    MAX_PEOPLE_WORK,
    MAX_RATE_CALLS,
    MAX_RATE_ENROL,
    MAX_RATE_PEOPLE,
    MAX_RATE_PILOT,
    MAX_RATE_POOL,
    MAX_RATE_UNKNOWN,
    MAX_WORK_PER_KEY,
    MAX_WORK_PER_POOL,
)

UNKNOWN = "unknown"
POOL = "pool"  # all pilots of one owner or group together
CALLS = "calls"  # what an executor asks, twice for each single call


@dataclass(frozen=True)
class Rate:
    """So many a second on average, so many at once."""

    rate: float
    burst: float


RATES = {
    SUBMIT: Rate(MAX_RATE_PEOPLE, 5 * MAX_RATE_PEOPLE),
    CALLS: Rate(MAX_RATE_CALLS, MAX_RATE_CALLS),
    SESSION: Rate(MAX_RATE_PILOT, MAX_RATE_PILOT),
    POOL: Rate(MAX_RATE_POOL, MAX_RATE_POOL),
    ENROL: Rate(MAX_RATE_ENROL, 5 * MAX_RATE_ENROL),
    UNKNOWN: Rate(MAX_RATE_UNKNOWN, 5 * MAX_RATE_UNKNOWN),  # failed authentications of one address
}
LAG_PEOPLE = 0.1  # seconds the event loop may be late before people's requests are put off
LAG_ALL = 2.0  # before registrations are, too
LAG_WEIGHT = 0.3  # of the newest measure: one hiccup refuses nobody, three late ones in a row do
LAG_GROWTH = 4.0  # times the present lag that one measure may count
BUSY_RETRY = 1.0  # seconds; what is in work is done by then, more or less
LONGEST_RETRY = 10.0


class Buckets:
    """Token buckets of one kind, a bounded number of them."""

    def __init__(self, rate: Rate, most: int = MAX_BUCKETS) -> None:
        self._rate, self._most = rate, most
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()  # key -> tokens, and when that was so

    def __len__(self) -> int:
        return len(self._levels)

    def take(self, key: str, now: float) -> float:
        """Take a token: 0.0, or the seconds until there is one."""
        tokens, then = self._levels.get(key, (self._rate.burst, now))
        # A clock that steps back neither gives nor takes.
        tokens = min(self._rate.burst, tokens + max(0.0, now - then) * self._rate.rate)
        wait = 0.0 if tokens >= 1.0 else (1.0 - tokens) / self._rate.rate
        self._levels[key] = (tokens if wait else tokens - 1.0, max(now, then))
        self._levels.move_to_end(key)
        if len(self._levels) > self._most:
            self._levels.popitem(last=False)  # not seen for longest: most likely full again, so nothing is forgotten
        return wait


class RateLimit:
    """Admission of requests. Each that `admit` let in is told `done` once: when answered, or when it begins to wait."""

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
        # A server that was frozen is late once, however long, and refuses nobody for it; overload is late again and again.
        most = max(LAG_PEOPLE / LAG_WEIGHT, LAG_GROWTH * self._lag)
        self._lag += LAG_WEIGHT * (min(max(0.0, seconds), most) - self._lag)

    def admit(self, kind: str, key: str, now: float, pace: str = "") -> float:
        """May a request of this credential come in? 0.0: yes, else the seconds after which it may come again. `pace`
        names another rate than that of its kind.

        Of kind `unknown` is a failed authentication, its key the address: it is only counted, never in work.
        """
        if kind == UNKNOWN:
            return self._buckets[kind].take(key, now)
        if (kind == SUBMIT and self._lag > LAG_PEOPLE) or (kind == ENROL and self._lag > LAG_ALL):
            return min(LONGEST_RETRY, BUSY_RETRY + self._lag)
        most = MAX_WORK_PER_POOL if kind == POOL else MAX_WORK_PER_KEY
        if self._work.get((kind, key), 0) >= most or (kind == SUBMIT and self._people >= MAX_PEOPLE_WORK):
            return BUSY_RETRY
        wait = self._buckets[pace or kind].take(key, now)
        if not wait:
            self._work[kind, key] = self._work.get((kind, key), 0) + 1
            self._people += kind == SUBMIT
        return wait

    def done(self, kind: str, key: str) -> None:
        """A request that was let in is answered, or waits for news and does no work meanwhile."""
        left = self._work.pop((kind, key)) - 1
        if left:
            self._work[kind, key] = left
        self._people -= kind == SUBMIT
