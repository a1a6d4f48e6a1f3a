"""Quotas over submitter x provider x time [SPHINX policy]: what runs, is spent, waits and is kept, against the limits.

Rules
- A rule counts everything of the owners and sites it covers together. An owner is covered by "*", by its name and by
  the groups it is inside of; a site by "*", by its name and by the sites it is inside of. All rules that cover a start
  must allow it: the tightest one on the path decides.
- Counts are whole numbers (time in microseconds), kept for each owner and site, and as a sum for each rule: the sums
  are only a cache, and a change of rules or groups counts them anew. A limit below what runs already kills nothing;
  nothing starts [input E75].
- A window counts what ended in it. A rule for a part of the week exists only then; what runs on past its end may.
- Hours: what is spent, plus what running tasks reserved (their expectation), plus the new task's expectation.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Callable, NamedTuple, Optional

from shoal.model.lazy_dataclass import dataclass
from shoal.model.policy import Rule, outward
from shoal.model.quantities import many, show_size
from shoal.sched.time_windows import HOUR, occurrence

NO_BOUND = 1 << 60  # cores that may start where no rule limits them
KEPT_HOURS = 32 * 24  # of spent time one by one: a month and a day; before that only the total
_MICRO = 1_000_000
_CORE_HOUR = HOUR * _MICRO


@dataclass(frozen=True)
class Block:
    """Why something may not start, be queued or be kept now."""

    text: str
    lifted: Optional[float]  # when at the latest this rule will allow it again; None: when something ends or changes


@dataclass(frozen=True)
class Standing:
    """One limit of one rule and what of it is used."""

    rule: Rule
    kind: str
    limit: float
    used: float
    open: bool  # does the rule exist at this time?


class Bound(NamedTuple):
    """What a rule leaves to some owners at some sites."""

    owners: frozenset[str]
    sites: frozenset[str]
    cores: Optional[int]  # at once
    core_seconds: Optional[float]  # in what is left of its window


class Counts(NamedTuple):
    """What a ledger counted."""

    running: dict[tuple[str, str], int]  # cores by owner and site
    queued: dict[str, int]  # tasks by owner
    capacity: dict[str, int]  # cores by site


class _Limit:
    """A rule with what it has counted."""

    __slots__ = (
        "at", "capacity", "closes", "micro", "open", "opens", "queued", "reserved", "rule", "running", "spent", "stored",
    )  # fmt: skip

    def __init__(self, at: int, rule: Rule) -> None:
        self.at, self.rule = at, rule
        self.micro = None if rule.core_hours is None else round(rule.core_hours * _CORE_HOUR)
        self.running = self.reserved = self.spent = self.queued = self.stored = self.capacity = 0
        self.opens, self.closes, self.open = math.inf, -math.inf, False  # the occurrence that `spent` is of

    def cores(self) -> Optional[int]:
        """How many cores may run at once; None: as many as there are."""
        rule = self.rule
        if rule.share is None:
            return rule.cores
        part = math.floor(rule.share * self.capacity + 1e-9)  # 0.29 of 100 is 29, whatever the binary fraction is
        return part if rule.cores is None else min(part, rule.cores)


class _Spent:
    """Time spent by one owner on one site, in microseconds: in all, and by hour."""

    __slots__ = ("hours", "newest", "total")

    def __init__(self) -> None:
        self.total = 0
        self.hours: dict[int, int] = {}
        self.newest = -(1 << 62)

    def add(self, hour: int, micro: int) -> None:
        self.total += micro
        if hour > self.newest:
            self.newest = hour
            self.hours = {at: used for at, used in self.hours.items() if at > hour - KEPT_HOURS}
        self.hours[hour] = self.hours.get(hour, 0) + micro

    def within(self, opens: float, closes: float) -> int:
        if opens == -math.inf and closes == math.inf:
            return self.total
        return sum(used for at, used in self.hours.items() if opens <= at * HOUR < closes)


class Ledger:
    """Counts of all owners, and the rules they must stay within."""

    def __init__(self, rules: Iterable[Rule], groups: Mapping[str, str]) -> None:
        """`groups` maps owners to groups and is read when an owner is first seen; `change` takes later ones."""
        self._running: dict[tuple[str, str], int] = {}
        self._reserved: dict[tuple[str, str], int] = {}
        self._spent: dict[tuple[str, str], _Spent] = {}
        self._capacity: dict[str, int] = {}
        self._queued: dict[str, int] = {}
        self._stored: dict[str, int] = {}
        self.change(rules, groups)

    def change(self, rules: Iterable[Rule], groups: Mapping[str, str]) -> None:
        """Other rules or groups from now on: every sum is counted anew."""
        self._groups = groups
        self._limits = [_Limit(at, rule) for at, rule in enumerate(rules)]
        self._index: dict[tuple[str, str], list[_Limit]] = {}
        for limit in self._limits:
            self._index.setdefault((limit.rule.who, limit.rule.site), []).append(limit)
        self._starts: dict[tuple[str, str], tuple[_Limit, ...]] = {}  # what covers an owner on a site
        self._keeps: dict[str, tuple[_Limit, ...]] = {}  # what covers an owner wherever it is
        for (owner, site), cores in self._running.items():
            for limit in self._covering(owner, site):
                limit.running += cores
        for (owner, site), micro in self._reserved.items():
            for limit in self._covering(owner, site):
                limit.reserved += micro
        for site, cores in self._capacity.items():
            self._raise_capacity(site, cores)
        for owner, count in self._queued.items():
            for limit in self._everywhere(owner):
                limit.queued += count
        for owner, count in self._stored.items():
            for limit in self._everywhere(owner):
                limit.stored += count

    # --- which rules
    def _covering(self, owner: str, site: str) -> tuple[_Limit, ...]:
        pair = (owner, site)
        found = self._starts.get(pair)
        if found is None:
            places = ("*", *outward(site))
            hits = [
                limit for who in self._names(owner) for place in places for limit in self._index.get((who, place), ())
            ]
            found = self._starts[pair] = tuple(sorted(hits, key=lambda limit: limit.at))
        return found

    def _everywhere(self, owner: str) -> tuple[_Limit, ...]:
        found = self._keeps.get(owner)
        if found is None:
            hits = [limit for who in self._names(owner) for limit in self._index.get((who, "*"), ())]
            found = self._keeps[owner] = tuple(sorted(hits, key=lambda limit: limit.at))
        return found

    def _names(self, owner: str) -> tuple[str, ...]:
        return ("*", owner, *("@" + group for group in outward(self._groups.get(owner, ""))))

    def _turn(self, limit: _Limit, now: float) -> None:
        """Bring a rule to the occurrence of its window that holds `now`."""
        limit.opens, limit.closes, limit.open = occurrence(limit.rule.when, now)
        limit.spent = 0
        if limit.micro is not None:
            limit.spent = sum(
                spent.within(limit.opens, limit.closes)
                for (owner, site), spent in self._spent.items()
                if limit in self._covering(owner, site)
            )

    # --- what happens
    def start(self, owner: str, site: str, cores: int, expected: float = 0.0) -> None:
        """A lease was granted: its cores run, and the core seconds it is expected to take are reserved. When it ends, the
        same numbers below zero take that back."""
        pair, micro = (owner, site), round(expected * _MICRO)
        self._running[pair] = self._running.get(pair, 0) + cores
        if micro:
            self._reserved[pair] = self._reserved.get(pair, 0) + micro
        for limit in self._covering(owner, site):
            limit.running += cores
            limit.reserved += micro

    def spend(self, owner: str, site: str, now: float, core_seconds: float) -> None:
        """Core seconds were used: they count in the windows that hold `now`."""
        micro, pair = round(core_seconds * _MICRO), (owner, site)
        if not micro:
            return
        spent = self._spent.get(pair)
        if spent is None:
            spent = self._spent[pair] = _Spent()
        hour = math.floor(now / HOUR)
        spent.add(hour, micro)
        for limit in self._covering(owner, site):
            if limit.opens <= hour * HOUR < limit.closes:
                limit.spent += micro

    def capacity(self, site: str, delta: int) -> None:
        """The pilots of a site have so many cores more, or fewer."""
        self._capacity[site] = self._capacity.get(site, 0) + delta
        self._raise_capacity(site, delta)

    def _raise_capacity(self, site: str, delta: int) -> None:
        places = ("*", *outward(site))
        for limit in self._limits:
            if limit.rule.share is not None and limit.rule.site in places:
                limit.capacity += delta

    def queued(self, owner: str, delta: int) -> None:
        """An owner has so many more tasks that are not final."""
        self._queued[owner] = self._queued.get(owner, 0) + delta
        for limit in self._everywhere(owner):
            limit.queued += delta

    def stored(self, owner: str, delta: int) -> None:
        """An owner keeps so many bytes more."""
        self._stored[owner] = self._stored.get(owner, 0) + delta
        for limit in self._everywhere(owner):
            limit.stored += delta

    # --- what may be
    def room(self, owner: str, site: str, now: float) -> int:
        """How many more cores of an owner may start on a site now; what they will spend is for `blocks` to judge."""
        room = NO_BOUND
        for limit in self._covering(owner, site):
            if not limit.opens <= now < limit.closes:
                self._turn(limit, now)
            if not limit.open:
                continue
            most = limit.cores()
            if most is not None and most - limit.running < room:
                room = most - limit.running
            if limit.micro is not None and limit.spent + limit.reserved >= limit.micro:
                room = 0
        return max(0, room)

    def blocks(self, owner: str, site: str, cores: int, expected: float, now: float) -> Optional[Block]:
        """The first rule against starting so many cores that are expected to take so many core seconds; None: go."""
        micro = round(expected * _MICRO)
        for limit in self._covering(owner, site):
            if not limit.opens <= now < limit.closes:
                self._turn(limit, now)
            if not limit.open:
                continue
            most = limit.cores()
            if most is not None and limit.running + cores > most:
                return _no_cores(limit, most, cores)
            if limit.micro is not None:
                used = limit.spent + limit.reserved
                if used >= limit.micro or used + micro > limit.micro:
                    return _no_hours(limit, limit.micro, micro)
        return None

    def bounds(self, owners: Iterable[str], sites: Collection[str], now: float) -> list[Bound]:
        """The open rules that limit how much these owners may run at these sites, and what each of them leaves."""
        covered: dict[_Limit, tuple[set[str], set[str]]] = {}
        for owner in owners:
            for site in sites:
                for limit in self._covering(owner, site):
                    inside = covered.setdefault(limit, (set(), set()))
                    inside[0].add(owner)
                    inside[1].add(site)
        found = []
        for limit, (who, where) in covered.items():
            if not limit.opens <= now < limit.closes:
                self._turn(limit, now)
            hours = None if limit.micro is None else max(0.0, limit.micro - limit.spent - limit.reserved) / _MICRO
            if limit.open and (limit.cores() is not None or hours is not None):
                found.append(Bound(frozenset(who), frozenset(where), limit.cores(), hours))
        return found

    def may_queue(self, owner: str, count: int, now: float) -> Optional[Block]:
        """Why an owner may not submit so many more tasks; None: it may."""

        def describe(most: int, used: int) -> str:
            return f"at most {many(most, 'task')} may wait or run, there are {used:,}, and {count:,} more came"

        return self._may_add(owner, "queued", count, now, describe)

    def may_keep(self, owner: str, size: int, now: float) -> Optional[Block]:
        """Why an owner may not keep so many more bytes; None: it may."""

        def describe(most: int, used: int) -> str:
            return f"at most {show_size(most)} may be kept, there are {show_size(used)}, this is {show_size(size)}"

        return self._may_add(owner, "stored", size, now, describe)

    def _may_add(
        self, owner: str, kind: str, count: int, now: float, describe: Callable[[int, int], str]
    ) -> Optional[Block]:
        for limit in self._everywhere(owner):
            most, used = getattr(limit.rule, kind), getattr(limit, kind)
            if most is not None and used + count > most:
                _, closes, is_open = occurrence(limit.rule.when, now)
                if is_open:
                    return _block(limit, kind, describe(most, used), closes)
        return None

    # --- to be shown and kept
    def standings(self, now: float) -> list[Standing]:
        """Every limit of every rule, in the order of the rules, and what of it is used now."""
        found: list[Standing] = []
        for limit in self._limits:
            if not limit.opens <= now < limit.closes:
                self._turn(limit, now)
            rule = limit.rule
            pairs: tuple[tuple[str, Optional[float], float], ...] = (
                ("cores", rule.cores, limit.running),
                (
                    "share",
                    None if rule.share is None else math.floor(rule.share * limit.capacity + 1e-9),
                    limit.running,
                ),
                ("core_hours", rule.core_hours, (limit.spent + limit.reserved) / _CORE_HOUR),
                ("queued", rule.queued, limit.queued),
                ("stored", rule.stored, limit.stored),
            )
            found += [Standing(rule, kind, most, used, limit.open) for kind, most, used in pairs if most is not None]
        return found

    def counts(self) -> Counts:
        """The counts themselves, for the consistency check."""
        return Counts(self._running, self._queued, self._capacity)

    def load(self, rows: Iterable[tuple[str, str, int, float]]) -> None:
        """Load what the accounts have into an empty ledger: owner, site, hour and core seconds, the oldest hours first. The
        rest is counted again from leases, tasks and blobs."""
        for owner, site, hour, seconds in rows:
            self._spent.setdefault((owner, site), _Spent()).add(hour, round(seconds * _MICRO))
        for limit in self._limits:
            limit.opens, limit.closes = math.inf, -math.inf  # counted again when next used


def _no_cores(limit: _Limit, most: int, cores: int) -> Block:
    rule = limit.rule
    by_share = rule.share is not None and (rule.cores is None or most < rule.cores)
    why = f", {rule.share:g} of {limit.capacity}" if by_share else ""
    text = f"at most {many(most, 'core')} may run{why}, {limit.running} do, and this takes {cores}"
    return _block(limit, "share" if by_share else "cores", text, limit.closes)


def _no_hours(limit: _Limit, most: int, micro: int) -> Block:
    spent, reserved = limit.spent / _CORE_HOUR, limit.reserved / _CORE_HOUR
    text = f"{most / _CORE_HOUR:g} core hours may be used, {spent:.3g} are and {reserved:.3g} are reserved"
    if micro:
        text += f", and this may take {micro / _CORE_HOUR:.3g}"
    return _block(limit, "core_hours", text, limit.closes)


def _block(limit: _Limit, kind: str, text: str, closes: float) -> Block:
    """The end of a window lifts a limit of hours, and every limit of a part of the week."""
    passes = closes < math.inf and (kind == "core_hours" or not occurrence(limit.rule.when, closes)[2])
    return Block(f"{text} (quota of {limit.rule.describe()})", closes if passes else None)
