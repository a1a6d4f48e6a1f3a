"""The bounds of a site, which no policy crosses: pilots, pilots in its queue, budget, bans, and the pause after empty pilots."""

from __future__ import annotations

from typing import Optional

from shoal.sched.provisioning.view import Ask, DemandRule, SiteView


class SiteBounds:
    """What may still be asked for at one site, and what was. A bound that held something back is remembered."""

    def __init__(self, rule: DemandRule, site: SiteView, now: float) -> None:
        self.site = site
        self.asks: list[Ask] = []
        self.held_back = ""  # the bound, as a part of a sentence
        self._budget = site.budget_left
        self._open = self._first_bound(rule, now)

    def _first_bound(self, rule: DemandRule, now: float) -> int:
        site = self.site
        if site.is_banned:
            self.held_back = "it is banned"
            return 0
        if site.empty > 0:
            pause = min(rule.longest_pause, rule.empty_pause * 2.0 ** min(site.empty - 1, 30))
            if site.empty_at is not None and now < site.empty_at + pause:
                self.held_back = f"its last {site.empty} pilots got no task, so it rests for {pause:.0f} s"
                return 0
        limit = site.max_queued >> min(site.empty, 30) if site.empty else site.max_queued
        if site.empty:
            limit = min(site.max_queued, max(1, limit))
        return max(0, min(limit - site.queued, site.max_pilots - site.pilots))

    @property
    def open(self) -> int:
        """Pilots that may still be asked for, in whole allocations."""
        hosts = max(1, self.site.hosts)
        return self._open // hosts * hosts

    @property
    def asked(self) -> int:
        """Pilots that were asked for."""
        return sum(one.count for one in self.asks)

    @property
    def asked_cores(self) -> int:
        """Cores of the pilots that were asked for."""
        return sum(one.count * one.cores for one in self.asks)

    def ask(
        self, cores: int, seconds: float, count: int, why: str, least: Optional[float] = None, memory: int = 0,
        is_learned: bool = False,
    ) -> int:  # fmt: skip
        """Ask for pilots of this shape, as many as the bounds allow, in whole allocations; how many they are. `least`: wall
        time to which a budget that does not suffice for one allocation may shorten it."""
        site = self.site
        cores = max(1, min(cores, site.pilot_cores))
        wall = int(max(min(seconds, site.max_seconds), min(site.min_seconds, site.max_seconds), 1.0))
        hosts = max(1, site.hosts)
        allowed = max(0, min(-(-count // hosts), self._open // hosts))  # allocations
        if allowed * hosts < count and not self.held_back:
            self.held_back = self._full(allowed * hosts)
        if self._budget is not None and allowed:
            together = cores * hosts
            if least is not None and together * wall > self._budget:
                wall = int(
                    max(least, min(site.min_seconds, site.max_seconds), min(wall, self._budget // together), 1.0)
                )
            affordable = int(max(0.0, self._budget) // (together * wall))
            if affordable < allowed:
                allowed, self.held_back = affordable, "its budget is used up"
            self._budget -= allowed * together * wall
        if allowed:
            self._open -= allowed * hosts
            self._add(Ask(site.name, cores, wall, allowed * hosts, why, memory, is_learned))
        return allowed * hosts

    def _add(self, ask: Ask) -> None:
        for at, one in enumerate(self.asks):
            if one._replace(count=ask.count) == ask:
                self.asks[at] = one._replace(count=one.count + ask.count)
                return
        self.asks.append(ask)

    def _full(self, allowed: int) -> str:
        """The bound that is reached with so many more."""
        site = self.site
        if site.pilots + self.asked + allowed >= site.max_pilots:
            return f"it has all of its {site.max_pilots} pilots"
        if site.empty:
            return f"its last {site.empty} pilots got no task, so few wait there at once"
        return f"{site.max_queued} pilots wait in its queue, as many as may"

    def reason(self, otherwise: str) -> str:
        """The sentence about this site."""
        if self.asks:
            return f"{self.asked} asked for: {self.asks[0].why}" + (
                f"; no more, since {self.held_back}" if self.held_back else ""
            )
        return f"none asked for: {self.held_back or otherwise}"
