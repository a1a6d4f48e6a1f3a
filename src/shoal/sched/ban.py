"""Bad places: pilots, hosts and sites where tasks fail get no work for a while, longer each time [GWP G7].

A streak begins with a failure that the place is blamed for (`cause.py` says which are) and ends with the first success
there. A ban lasts T_inf * (1 - exp(-dt/C)), dt from the first to the latest failure of the streak. [GWP table 3] prints
1 - exp(+dt/C) and takes dt since the last failure, which is below zero and shrinks while a place gets worse. When a ban
is over the place is on trial: one probe task at a time until one succeeds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from math import exp
from typing import Any, NamedTuple, Optional

from shoal.model.limits import PLACES_KEPT

MIN_BAN = 60.0  # seconds, after a burst: a place that fails in a millisecond has dt = 0, and so no ban by the formula
# failures in a row that a place may have before that: at the fifth its kind waits anyway (`cause`) [promise I12]
BURST = 4
SHORTEST = 1.0  # seconds below which a ban is none: it would only make noise
PROBE_LONG = 300.0  # seconds after which a probe that still runs lets another one begin: a black hole fails quickly
SITE_HOSTS = 3  # hosts in a streak from which on, if they are half of the site's, it is the site's streak too

PILOT, HOST, SITE = "pilot", "host", "site"


class Streak(NamedTuple):
    """Failures of one place since its last success."""

    first: float
    latest: float
    failures: int
    until: float  # when the ban ends; not after `latest` if there never was one
    reason: str  # of the latest failure
    probing: Optional[float] = None  # since when a probe runs there

    @property
    def was_banned(self) -> bool:
        """Has the place been banned in this streak?"""
        return self.until > self.latest


class Banned(NamedTuple):
    """Why a place gets nothing."""

    kind: str
    name: str
    reason: str
    until: float
    probing: bool = False  # the ban is over, but the probe that shows whether the place is good again still runs


def ban_time(dt: float, failures: int, longest: float, scale: float) -> float:
    """Seconds of a ban after so many failures, `dt` seconds from the first to the latest."""
    grown = longest * (1.0 - exp(-dt / scale)) if scale > 0 else (longest if dt > 0 else 0.0)
    if failures > BURST:
        grown = max(grown, MIN_BAN)
    return min(longest, grown) if grown >= SHORTEST else 0.0


def fail(
    streak: Optional[Streak],
    now: float,
    reason: str,
    longest: float,
    scale: float,
    failures: int = 1,
    since: Optional[float] = None,
) -> Streak:
    """The streak after one more failure; `failures`: how many there were, if earlier ones were not counted yet; `since`:
    from when on the place was bad, if that was long before the failure."""
    first, before, latest = now if since is None else min(now, since), 0, now
    if streak is not None:
        first, before, latest = streak.first, streak.failures, max(streak.latest, now)
    count = max(before + 1, failures)
    until = latest + ban_time(latest - first, count, longest, scale)
    return Streak(first, latest, count, max(until, streak.until if streak is not None else until), reason)


def forgive(streak: Streak) -> Optional[Streak]:
    """The streak without one failure that turned out to be the task's own; a single failure is no reason for a ban."""
    if streak.failures <= 1:
        return None
    if streak.failures == 2:
        return streak._replace(failures=1, latest=streak.first, until=streak.first)
    return streak._replace(failures=streak.failures - 1)


def is_banned(streak: Optional[Streak], now: float) -> bool:
    """Does the place get nothing now?"""
    return streak is not None and streak.was_banned and now < streak.until


def is_on_trial(streak: Optional[Streak], now: float) -> bool:
    """Is a ban over that no success has lifted yet?"""
    return streak is not None and streak.was_banned and now >= streak.until


def may_probe(streak: Optional[Streak], now: float) -> bool:
    """May one task be tried at a place on trial?"""
    if streak is None or not is_on_trial(streak, now):
        return False
    return streak.probing is None or now - streak.probing >= PROBE_LONG


class Places:
    """The streaks of all places of one holder, by kind and name; the longest ago that failed are forgotten beyond `kept`.

    Pilots name their hosts and sites themselves, so each owner or group has its own `Places`: a lie bans nothing of others.
    """

    def __init__(self, longest: float, scale: float, kept: int = PLACES_KEPT) -> None:
        self.longest, self.scale, self.kept = longest, scale, kept
        self.streaks: OrderedDict[tuple[str, str], Streak] = OrderedDict()
        self._site_of: dict[str, str] = {}  # hosts in a streak
        self._hosts: dict[str, set[str]] = {}  # the same by site

    def blame(
        self,
        pilot: str,
        host: str,
        site: str,
        now: float,
        reason: str,
        site_hosts: int,
        failures: int = 1,
        since: Optional[float] = None,
        is_sites: bool = False,
    ) -> list[Banned]:
        """A failure that was the place's fault; returns the bans that are in force by it, for events.

        `site_hosts`: how many hosts the site has now. `failures`: how many in a row this one concludes, if those before
        it were left open (`Kinds.in_row`). `since`: as in `fail`. `is_sites`: it is known to be the whole site's fault.
        """
        raised = []
        if self._site_of.get(host, site) != site:
            self._forget(HOST, host)  # it moved
        self._site_of[host] = site
        self._hosts.setdefault(site, set()).add(host)
        kinds = [(PILOT, pilot, failures), (HOST, host, failures)]
        bad = len(self._hosts[site])
        if is_sites or (bad >= SITE_HOSTS and 2 * bad >= site_hosts):
            kinds.append((SITE, site, 1))
        for kind, name, count in kinds:
            streak = fail(self.streaks.get((kind, name)), now, reason, self.longest, self.scale, count, since)
            self.streaks[kind, name] = streak
            self.streaks.move_to_end((kind, name))
            if is_banned(streak, now):
                raised.append(Banned(kind, name, reason, streak.until))
        while len(self.streaks) > self.kept:
            self._forget(*self.streaks.popitem(last=False)[0])
        return raised

    def clear(self, pilot: str, host: str, site: str) -> list[tuple[str, str]]:
        """A success: their streaks end. Returns the places that had been banned, for events."""
        if not self.streaks:
            return []
        lifted = []
        for key in ((PILOT, pilot), (HOST, host), (SITE, site)):
            streak = self.streaks.pop(key, None)
            if streak is not None:
                self._forget(*key)
                if streak.was_banned:
                    lifted.append(key)
        return lifted

    def forgive(self, pilot: str, host: str, site: str) -> list[tuple[str, str]]:
        """A failure they were blamed for was the task's own after all. Returns the places whose ban ends by that."""
        lifted = []
        for key in ((PILOT, pilot), (HOST, host), (SITE, site)):
            streak = self.streaks.get(key)
            if streak is None:
                continue
            left = forgive(streak)
            if left is None:
                del self.streaks[key]
                self._forget(*key)
            else:
                self.streaks[key] = left
            if streak.was_banned and (left is None or not left.was_banned):
                lifted.append(key)
        return lifted

    def verdict(self, pilot: str, host: str, site: str, now: float) -> Optional[Banned]:
        """Why nothing may be sent there now: the ban that ends last, or a probe that must come back first."""
        if not self.streaks:
            return None
        found: Optional[Banned] = None
        for key in ((PILOT, pilot), (HOST, host), (SITE, site)):
            streak = self.streaks.get(key)
            if streak is None or not streak.was_banned:
                continue
            if now < streak.until:
                if found is None or found.probing or streak.until > found.until:
                    found = Banned(*key, streak.reason, streak.until)
            elif found is None and not may_probe(streak, now):
                found = Banned(*key, streak.reason, streak.until, probing=True)
        return found

    def is_on_trial(self, pilot: str, host: str, site: str, now: float) -> bool:
        """Is a task sent there now a probe, so that it must go alone, and `probe` be called for it?"""
        keys = ((PILOT, pilot), (HOST, host), (SITE, site))
        return bool(self.streaks) and any(is_on_trial(self.streaks.get(key), now) for key in keys)

    def probe(self, pilot: str, host: str, site: str, now: float) -> None:
        """A probe is sent to a place on trial."""
        for key in ((PILOT, pilot), (HOST, host), (SITE, site)):
            streak = self.streaks.get(key)
            if streak is not None and is_on_trial(streak, now):
                self.streaks[key] = streak._replace(probing=now)

    def release(self, pilot: str, host: str, site: str) -> None:
        """A probe ended without a result: returned, cancelled, lost, or failed by its own error."""
        for key in ((PILOT, pilot), (HOST, host), (SITE, site)):
            streak = self.streaks.get(key)
            if streak is not None and streak.probing is not None:
                self.streaks[key] = streak._replace(probing=None)

    def dump(self) -> list[list[Any]]:
        """Everything as rows of plain values, oldest first."""
        return [
            [kind, name, self._site_of.get(name, "") if kind == HOST else "", *streak[:5]]
            for (kind, name), streak in self.streaks.items()
        ]

    def load(self, rows: Iterable[list[Any]]) -> None:
        """Replace everything by the rows of a `dump`. Probes are not among them: whether they live is not known."""
        self.streaks.clear()
        self._site_of.clear()
        self._hosts.clear()
        for kind, name, site, first, latest, failures, until, reason in rows:
            self.streaks[kind, name] = Streak(first, latest, failures, until, reason)
            if kind == HOST:
                self._site_of[name] = site
                self._hosts.setdefault(site, set()).add(name)

    def _forget(self, kind: str, name: str) -> None:
        """A streak is gone: the host no longer counts against its site."""
        site = self._site_of.pop(name, None) if kind == HOST else None
        if site is not None:
            self._hosts[site].discard(name)
            if not self._hosts[site]:
                del self._hosts[site]
