"""Accounting: who runs how much where (quota), who is next (share), licences, and evidence of failures [SPHINX S4;
GWP G12].

Every live attempt is counted from its lease to its end, so that a limit holds for leases, copies included [promise I14].
What it took goes into the accounts of its hour with the same commit as its report.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping

from shoal.engine.changes import PlaceRow, UsageRow
from shoal.engine.snapshot import SpentRow
from shoal.model.limits import HOLDERS_KEPT
from shoal.model.policy import Policy
from shoal.model.task.spec import Needs
from shoal.sched.ban import Places
from shoal.sched.failure_cause import Kinds
from shoal.sched.quota import Ledger
from shoal.sched.share import Tree

USAGE_EVERY = 1.0  # seconds


class Evidence:
    """Failures of pilots, hosts and sites of one holder: the owner or group that they were enrolled for. Pilots name their
    hosts and sites themselves, so evidence is kept for each holder: invented failures or names harm only the group that
    enrolled the pilot [ADR 0020]."""

    def __init__(self, policy: Policy) -> None:
        self.places = Places(policy.ban.longest, policy.ban.scale)
        self.kinds = Kinds()  # outcomes of tasks by kind and place
        self.setups = Kinds()  # the same of set-up lines
        self.written: dict[tuple[str, str], str] = {}  # places as the database has them


class Accounting:
    """The counts of one server under one policy."""

    def __init__(self, policy: Policy, groups: Mapping[str, str]) -> None:
        self.policy, self._groups = policy, groups
        self.tree = Tree(policy.shares, groups, policy.usage)
        self.ledger = Ledger(policy.quotas, groups)
        self.evidence: OrderedDict[str, Evidence] = OrderedDict()  # by holder
        self.licences: dict[str, int] = {}  # in use
        self.running: dict[str, int] = {}  # attempts by site
        self._used: set[str] = set()  # owners whose usage changed
        self._written = float("-inf")  # when usage was
        self._touched: set[str] = set()  # holders whose places changed

    def change(self, policy: Policy, now: float) -> bool:
        """Use another policy or other groups from now on; counts stay. False: usage is counted in another way, so that
        running cores have to be added to the new tree."""
        before, self.policy = self.policy, policy
        self.ledger.change(policy.quotas, self._groups)
        for evidence in self.evidence.values():
            evidence.places.longest, evidence.places.scale = policy.ban.longest, policy.ban.scale
        if before.usage == policy.usage:
            self.tree.reshape(policy.shares, self._groups, now)
            return True
        self.tree = Tree(policy.shares, self._groups, policy.usage)
        return False

    # --- live attempts
    def enter(self, owner: str, site: str, needs: Needs, count: int, expected: float) -> None:
        """Count attempts that are leased, each of which is expected to take so many core seconds."""
        self.ledger.start(owner, site, count * needs.cores, count * expected)
        self.running[site] = self.running.get(site, 0) + count
        for name, each in needs.licences:
            self.licences[name] = self.licences.get(name, 0) + count * each

    def strike(self, owner: str, site: str, needs: Needs, count: int, expected: float) -> None:
        """Remove attempts that ended from the counts."""
        self.enter(owner, site, needs, -count, expected)

    def lend(self, owner: str, site: str, cores: int, attempts: int) -> None:
        """Attempts wait for other tasks, or with negative numbers go on: meanwhile they count as if they had ended, or a
        limit would keep what they wait for from starting. Their licences stay in use."""
        self.ledger.start(owner, site, -cores, 0.0)
        self.running[site] = self.running.get(site, 0) - attempts

    @property
    def is_limited(self) -> bool:
        """True if the end of an attempt may let another one start elsewhere."""
        return bool(self.policy.quotas or self.policy.licences or self.policy.match.max_running)

    def may_start(self, owner: str, site: str, needs: Needs, most: int, expected: float, now: float) -> int:
        """How many tasks, up to `most`, the policy lets an owner start at a site now."""
        if self.policy.match.max_running:
            most = min(most, self.policy.match.max_running - self.running.get(site, 0))
        for name, each in needs.licences:
            most = min(most, (self.policy.licences.get(name, 0) - self.licences.get(name, 0)) // each)
        if most > 0 and self.policy.quotas:
            most = min(most, self.ledger.room(owner, site, now) // needs.cores)
            while most > 0 and self.ledger.blocks(owner, site, most * needs.cores, most * expected, now) is not None:
                most //= 2
        return max(0, most)

    # --- usage
    def spend(self, owner: str, site: str, now: float, core_seconds: float) -> None:
        """Count what ended attempts took."""
        self.ledger.spend(owner, site, now, core_seconds)
        self._used.add(owner)

    def rows(self, now: float) -> list[UsageRow | PlaceRow]:
        """What changed since the last call, to be written. Usage only once a second: a crash that loses the last second
        changes nobody's turn, and quotas are counted from the accounts, which are written with the reports."""
        found: list[UsageRow | PlaceRow] = []
        if self._used and now >= self._written + USAGE_EVERY:
            self._written = now
            found += [UsageRow(owner, json.dumps(row)) for owner, row in self.tree.rows(self._used).items()]
            self._used.clear()
        for holder in sorted(self._touched):
            evidence = self.evidence_of(holder)
            kept = {(row[0], row[1]): json.dumps(row) for row in evidence.places.dump()}
            found += [PlaceRow(holder, *key, text) for key, text in kept.items() if evidence.written.get(key) != text]
            found += [PlaceRow(holder, *key, "") for key in evidence.written if key not in kept]
            evidence.written = kept
        self._touched.clear()
        return found

    # --- what failures showed
    def evidence_of(self, holder: str) -> Evidence:
        """The evidence of one owner or group. Beyond so many holders, those without bans are forgotten."""
        found = self.evidence.get(holder)
        if found is None:
            found = self.evidence[holder] = Evidence(self.policy)
            if len(self.evidence) > HOLDERS_KEPT:
                plain = next((h for h, e in self.evidence.items() if e is not found and not e.written), None)
                if plain is not None:
                    del self.evidence[plain]
                    self._touched.discard(plain)
        return found

    def touch_places(self, holder: str) -> None:
        """Have changed places of a holder written."""
        self._touched.add(holder)

    def load(self, usage: list[UsageRow], places: list[PlaceRow], spent: list[SpentRow]) -> None:
        """Take over what the database remembers; live attempts are entered after it."""
        self.tree.load({row.owner: json.loads(row.data) for row in usage})
        by_holder: dict[str, list[PlaceRow]] = {}
        for row in places:
            by_holder.setdefault(row.holder, []).append(row)
        for holder, rows in by_holder.items():
            evidence = self.evidence_of(holder)
            evidence.written = {(row.kind, row.name): row.data for row in rows}
            evidence.places.load([json.loads(row.data) for row in rows])
        hours = sorted(spent, key=lambda row: row.hour)
        self.ledger.load(hours)
