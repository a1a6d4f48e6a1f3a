"""Fair share: which of the owners with work is next, so that each gets what is due to it by the policy.

Rules
- A tree: root, groups (dotted names nest), owners. Each vertex has a share, 1 unless the policy says otherwise.
- Due: at each vertex what is due is divided among the children with waiting work, in proportion to
  share / (1 + U / s); U is a child's part of what these children used, s its part of their shares. Who used no more
  and no less than its part has weight share / 2, who used nothing share: a newcomer gets up to twice its part until
  usages level out, and nobody starves. A share of 0 runs when nobody else can use the slot.
- Next is the owner that lacks the most cores: due x cores + credit / horizon - its own running cores. `cores` are those
  that owners with waiting work run; `credit` is the integral of (due x cores - own cores), in core seconds.
  The difference of cores steers at once, without knowing how long tasks will take; the credit makes up in the long run
  for parts of a core, for wide tasks and for tasks that end late.
  (Stride scheduling over expected core seconds was tried first: an owner whose tasks are much longer than the others'
  gets its slots back one at a time, and in simulation it missed its due by up to 0.7 instead of the promised 0.05.)
- Credit is bounded by what doubles or stops an owner's part for one horizon, so that a long disturbance is not paid
  back for hours; the fading usage does that. The debt of one task beyond the due is not bounded: where less than a core
  is due, who has long tasks waits after each for as long as the others need to catch up. Idleness earns no credit: who
  rests loses it and keeps debt.
- Who comes with nothing running and no debt starts first, once, in the order of coming; where less than a core is due
  to it, that is an advance of one mean task which it pays back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Optional

from shoal.model.policy import UsageRule
from shoal.sched.usage import Usage, make_usage

HORIZON = 1.0  # mean task times in which credit is paid back, but at least
LEAST_HORIZON = 10.0  # seconds
FIRST_MEAN = 30.0  # seconds a task takes, while none has ended
MEMORY = 0.02  # weight of the last task in the mean
STALE = 1.0  # seconds after which what is due is computed again
SETTLE = 0.05  # seconds that who comes and goes may wait for it
LEAST_USE = 1.0  # core seconds of all children: below that their parts of it mean nothing
FRESH, LATER, LAST = 0, 1, 2  # first start, in turn, only if nobody else

Key = tuple[int, float, str]  # smallest first


class _Vertex:
    """The root, a group or an owner."""

    __slots__ = ("name", "parent", "share", "usage")

    def __init__(self, name: str, parent: Optional[_Vertex], share: float, usage: Usage) -> None:
        self.name, self.parent, self.share, self.usage = name, parent, share, usage


class _Owner(_Vertex):
    """A leaf, with what steers its turns."""

    __slots__ = ("awake", "cores", "credit", "due", "fresh", "settled", "stamp", "total", "used", "width")

    def __init__(self, name: str, parent: _Vertex, share: float, usage: Usage, settled: Usage) -> None:
        super().__init__(name, parent, share, usage)
        self.settled = settled  # use of what has ended: the part that is kept over a restart
        self.cores = 0.0  # running
        self.awake = False
        self.fresh = 0  # number of its coming, until its first start
        self.due = 0.0
        self.credit = 0.0  # core seconds, as of the last reckoning
        self.total = 0.0  # what all had used then
        self.used = 0.0  # by itself since then, up to the stamp
        self.stamp = 0.0
        self.width = 1.0  # cores of the task that started last


class Tree:
    """Shares, usage and turns of all owners."""

    def __init__(self, shares: Mapping[str, float], groups: Mapping[str, str], rule: UsageRule) -> None:
        """`shares` by owner or "@group", `groups` from owner to group; both are read when an owner is first seen."""
        self._shares, self._groups, self._rule = shares, groups, rule
        self._root = _Vertex("", None, 1.0, make_usage(rule))
        self._vertices: dict[str, _Vertex] = {}  # groups by "@name"
        self._owners: dict[str, _Owner] = {}
        self._awake: dict[str, _Owner] = {}
        self._cores = 0.0  # running, of those awake
        self._total = 0.0  # core seconds that those awake used, up to the stamp
        self._stamp = 0.0
        self._reckoned = 0.0
        self._dirty = self._unknown = False
        self._comings = 0
        self._mean = FIRST_MEAN
        self._horizon = max(LEAST_HORIZON, HORIZON * FIRST_MEAN)

    # --- the tree
    def _group(self, name: str) -> _Vertex:
        """The vertex of a group; made, with those it is inside of, when first needed."""
        if not name:
            return self._root
        key = "@" + name
        found = self._vertices.get(key)
        if found is None:
            parent = self._group(name.rpartition(".")[0])
            found = _Vertex(key, parent, self._shares.get(key, 1.0), make_usage(self._rule))
            self._vertices[key] = found
        return found

    def _owner(self, name: str) -> _Owner:
        found = self._owners.get(name)
        if found is None:
            parent = self._group(self._groups.get(name, ""))
            share = self._shares.get(name, 1.0)
            found = _Owner(name, parent, share, make_usage(self._rule), make_usage(self._rule))
            self._owners[name] = found
        return found

    def reshape(self, shares: Mapping[str, float], groups: Mapping[str, str], now: float) -> None:
        """Other shares or groups from now on; usage and turns stay. (Another usage rule wants a new tree.)"""
        self._reckon(now)
        self._shares, self._groups = shares, groups
        self._vertices = {}
        for owner in self._owners.values():
            owner.share = shares.get(owner.name, 1.0)
            owner.parent = self._group(groups.get(owner.name, ""))
            above: Optional[_Vertex] = owner.parent
            while above is not None and above is not self._root:
                above.usage.take_in(owner.usage, now)
                above = above.parent
        self._reckon(now)

    # --- what is due
    def due(self, active: Iterable[str], now: float) -> dict[str, float]:
        """What part of the cores is due to each of these owners, if they are the ones with waiting work."""
        children: dict[_Vertex, list[_Vertex]] = {}
        for name in active:
            vertex: _Vertex = self._owner(name)
            while vertex.parent is not None:
                beside = children.get(vertex.parent)
                if beside is not None:
                    beside.append(vertex)
                    break
                children[vertex.parent] = [vertex]
                vertex = vertex.parent
        found: dict[str, float] = {}
        parts = [(self._root, 1.0)] if children else []
        for vertex, part in parts:  # grows while it is walked
            below = children.get(vertex)
            if below is None:
                found[vertex.name] = part
            else:
                parts += zip(below, _divide(below, part, now))
        return found

    def _reckon(self, now: float) -> None:
        """Settle all credits up to now and compute anew what is due."""
        due = self.due(self._awake, now)
        owners = list(self._awake.values())
        if self._dirty:  # an owner came or went just after the last computation: the new parts count since then
            for owner in owners:
                owner.due = due[owner.name]
        credits = [self._credit(owner, now) for owner in owners]
        # Only differences count. They are kept around zero, so that an owner without credit is in the middle.
        middle = sum(credits) / len(credits) if credits else 0.0
        total = self._all_used(now)
        for owner, credit in zip(owners, credits):
            owner.due = due[owner.name]
            most = (1.0 + owner.due * self._cores) * self._horizon
            is_one = owner.cores <= owner.due * self._cores + owner.width
            least = -math.inf if is_one else min(-most, owner.credit)
            owner.credit = min(most, max(least, credit - middle)) if owner.due > 0 else 0.0
            owner.total, owner.used, owner.stamp = total, 0.0, now
        self._reckoned, self._dirty, self._unknown = now, False, False

    def _fresh_enough(self, now: float) -> None:
        age = now - self._reckoned
        if age >= STALE or (self._dirty and age >= SETTLE) or age < 0:
            self._reckon(now)

    def _all_used(self, now: float) -> float:
        if now > self._stamp:
            self._total += self._cores * (now - self._stamp)
            self._stamp = now
        return self._total

    def _credit(self, owner: _Owner, now: float) -> float:
        used = owner.used + owner.cores * max(0.0, now - owner.stamp)
        return owner.credit + owner.due * (self._all_used(now) - owner.total) - used

    # --- who is next
    def key(self, name: str, now: float) -> Key:
        """The turn of an owner that is awake: the smallest is next. It changes with each start and end."""
        if self._unknown:
            self._reckon(now)
        return self._keys([self._awake[name]], now)[0]

    def order(self, active: Iterable[str], now: float) -> list[str]:
        """These owners, the next one first. Who was not awake is woken."""
        names = list(active)
        for name in names:
            if name not in self._awake:
                self.wake(name, now)
        if len(names) < 2:
            return names
        if self._unknown:
            self._reckon(now)
        self._fresh_enough(now)
        awake = self._awake
        return [key[2] for key in sorted(self._keys([awake[name] for name in names], now))]

    def _keys(self, owners: Sequence[_Owner], now: float) -> list[Key]:
        found: list[Key] = []
        total, cores, horizon = self._all_used(now), self._cores + 1.0, self._horizon
        for owner in owners:
            due = owner.due
            if due <= 0:
                found.append((LAST, owner.cores, owner.name))
            elif owner.fresh:
                found.append((FRESH, owner.fresh, owner.name))
            else:  # the credit as in `_credit`, written out: this is the inner loop of matching
                running = owner.cores
                credit = owner.credit + due * (total - owner.total) - owner.used - running * (now - owner.stamp)
                found.append((LATER, running - due * cores - credit / horizon, owner.name))
        return found

    # --- what happens
    def wake(self, name: str, now: float) -> None:
        """An owner has waiting work that could start: from now on something is due to it."""
        if name in self._awake:
            return
        self._fresh_enough(now)
        owner = self._owner(name)
        known = owner.due > 0 and 0 <= now - owner.stamp < STALE  # it was away for a moment only
        owner.total, owner.used, owner.stamp = self._all_used(now), 0.0, now
        self._awake[name] = owner
        self._cores += owner.cores
        self._unknown = self._unknown or not known
        if not owner.cores and owner.credit >= 0:
            self._comings += 1
            owner.fresh = self._comings
        self._dirty = True

    def rest(self, name: str, now: float) -> None:
        """An owner has no more waiting work that could start; what it runs goes on."""
        owner = self._awake.get(name)
        if owner is None:
            return
        self._fresh_enough(now)
        owner.credit = min(0.0, self._credit(owner, now))
        owner.fresh = 0
        del self._awake[name]
        self._cores -= owner.cores
        if not self._awake:
            self._cores = 0.0
        self._dirty = True

    def start(self, name: str, now: float, cores: float, began: Optional[float] = None) -> None:
        """Cores of an owner run from now, or since `began` after a restart. What is only fetched ahead holds no slot: it is
        started with 0 cores, and counted at its end."""
        owner = self._owner(name)
        since = now if began is None else began
        vertex: Optional[_Vertex] = owner
        while vertex is not None:
            vertex.usage.run(now, cores, since)
            vertex = vertex.parent
        if name in self._awake:
            self._all_used(now)
            self._cores += cores
            owner.used += owner.cores * max(0.0, now - owner.stamp)
            owner.stamp = now
            if owner.fresh:
                owner.fresh = 0
                owner.credit -= max(0.0, cores - owner.due * self._cores) * self._mean
        owner.cores += cores
        owner.width = cores or owner.width

    def end(self, name: str, now: float, cores: float, began: float, actual: Optional[float] = None) -> None:
        """What was started with these cores at `began` has ended and took `actual` core seconds (none: all the time)."""
        owner = self._owner(name)
        held = cores * max(0.0, now - began)
        took = held if actual is None else actual
        vertex: Optional[_Vertex] = owner
        while vertex is not None:
            vertex.usage.stop(now, cores, began, took)
            vertex = vertex.parent
        owner.settled.stop(now, 0.0, began, took)
        if name in self._awake:
            self._all_used(now)
            self._cores -= cores
            self._total += took - held
            owner.used += owner.cores * max(0.0, now - owner.stamp) + took - held
            owner.stamp = now
        owner.cores -= cores
        if cores > 0:
            self._mean += MEMORY * (now - began - self._mean)
            self._horizon = max(LEAST_HORIZON, HORIZON * self._mean)

    # --- to be shown and kept
    def usage(self, name: str, now: float) -> float:
        """What an owner, a "@group" or, with no name, everybody used, as it weighs now, in core seconds."""
        vertex = self._root if not name else self._vertices.get(name) or self._owners.get(name)
        return vertex.usage.at(now) if vertex is not None else 0.0

    def standing(self, name: str, now: float) -> tuple[float, float]:
        """What part of the cores is due to an owner that is awake, and what part it has."""
        self._fresh_enough(now)
        owner = self._awake[name]
        return owner.due, owner.cores / self._cores if self._cores > 0 else 0.0

    def cores(self) -> dict[str, float]:
        """Running cores by owner, for the consistency check."""
        return {name: owner.cores for name, owner in self._owners.items()}

    def rows(self, names: Optional[Iterable[str]] = None) -> dict[str, list[float]]:
        """What is to be kept of these owners, or of all: a few numbers. What still runs is not in it."""
        wanted = self._owners if names is None else names
        found = {name: self._owners[name].settled.dump() for name in wanted if name in self._owners}
        return {name: row for name, row in found.items() if row}

    def load(self, rows: Mapping[str, Sequence[float]]) -> None:
        """Load what was kept; `start` adds what still runs."""
        for name, row in rows.items():
            vertex: Optional[_Vertex] = self._owner(name)
            self._owners[name].settled.load(row)
            while vertex is not None:
                vertex.usage.load(row)
                vertex = vertex.parent


def _divide(children: Sequence[_Vertex], part: float, now: float) -> list[float]:
    """A part divided among the children of a vertex, by share and by what they have used."""
    if len(children) == 1:
        return [part]
    shares = sum(child.share for child in children)
    if shares <= 0:
        return [part / len(children)] * len(children)
    used = [child.usage.at(now) if child.share > 0 else 0.0 for child in children]
    # U / s, with both sums drawn out: usage of all / shares of all is what one share of 1 has used.
    level = max(LEAST_USE, sum(used)) / shares
    weights = [
        child.share / (1.0 + use / (child.share * level)) if use > 0 else child.share
        for child, use in zip(children, used)
    ]
    all_weights = sum(weights)
    return [part * weight / all_weights for weight in weights]
