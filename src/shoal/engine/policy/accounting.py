"""What policy keeps count of: who runs how much where (quota), who is next (share), licences, and the accounts
[SPHINX S4; GWP G12].

Every live attempt is entered when it is leased and struck out when it ends, so that a limit holds for leases that were
granted, copies included [promise I14]. What it took goes into the accounts of its hour with the same commit as its
report.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping

from shoal.engine.changes import AcctAdd, PlaceRow, UsageRow
from shoal.engine.snapshot import SpentRow
from shoal.model.limits import HOLDERS_KEPT
from shoal.model.policy import Policy
from shoal.model.spec import Needs
from shoal.sched.ban import Places
from shoal.sched.cause import Kinds
from shoal.sched.quota import Ledger
from shoal.sched.share import Tree

HOUR = 3600.0
USAGE_EVERY = 1.0  # seconds


class Evidence:
    """What is held against pilots, hosts and sites of one holder: the owner or group that they were enrolled for.

    Hosts and sites are named by pilots themselves. So what one holder's pilots report is kept apart from what others'
    do: whoever invents failures, or names, harms nobody but the group that let them in [ADR 0020].
    """

    def __init__(self, policy: Policy) -> None:
        self.places = Places(policy.ban.longest, policy.ban.scale)
        self.kinds = Kinds()  # how tasks alike fared where
        self.setups = Kinds()  # the same of what comes before the command
        self.told: dict[tuple[str, str], str] = {}  # places as the database has them


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
        """Another policy from now on, or other groups; what was counted stays. False: usage is to be counted in another
        way, so that the cores which run have to be told to the new tree."""
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
        """So many attempts are leased, each of which is expected to take so many core seconds."""
        self.ledger.start(owner, site, count * needs.cores, count * expected)
        self.running[site] = self.running.get(site, 0) + count
        for name, each in needs.licences:
            self.licences[name] = self.licences.get(name, 0) + count * each

    def strike(self, owner: str, site: str, needs: Needs, count: int, expected: float) -> None:
        """So many attempts ended, however they did."""
        self.enter(owner, site, needs, -count, expected)

    def may_start(self, owner: str, site: str, needs: Needs, most: int, expected: float, now: float) -> int:
        """How many of at most so many tasks the policy lets an owner start there now."""
        if self.policy.match.max_running:
            most = min(most, self.policy.match.max_running - self.running.get(site, 0))
        for name, each in needs.licences:
            most = min(most, (self.policy.licences.get(name, 0) - self.licences.get(name, 0)) // each)
        if most > 0 and self.policy.quotas:
            most = min(most, self.ledger.room(owner, site, now) // needs.cores)
            while most > 0 and self.ledger.blocks(owner, site, most * needs.cores, most * expected, now) is not None:
                most //= 2
        return max(0, most)

    # --- what it took
    def account(
        self, owner: str, site: str, host: str, pilot: str, run: int, now: float, took: float, fate: str, tasks: int = 1,
        queued: float = 0.0, staging: float = 0.0,
    ) -> AcctAdd:  # fmt: skip
        """The line of the accounts for work that ended; `fate` is useful, failed, lost or duplicated."""
        self.ledger.spend(owner, site, now, took)
        self._used.add(owner)
        return AcctAdd(
            int(now // HOUR), owner, site, host, pilot, run, took if fate == "useful" else 0.0,
            took if fate == "failed" else 0.0, took if fate == "lost" else 0.0, took if fate == "duplicated" else 0.0,
            tasks, queued, staging,
        )  # fmt: skip

    def rows(self, now: float) -> list[UsageRow | PlaceRow]:
        """What changed since the last time, to be written: usage once a second, for a crash that takes the last second of
        it changes nobody's turn; what quotas count stands in the accounts, which are written with the reports."""
        found: list[UsageRow | PlaceRow] = []
        if self._used and now >= self._written + USAGE_EVERY:
            self._written = now
            found += [UsageRow(owner, json.dumps(row)) for owner, row in self.tree.rows(self._used).items()]
            self._used.clear()
        for holder in sorted(self._touched):
            evidence = self.evidence_of(holder)
            kept = {(row[0], row[1]): json.dumps(row) for row in evidence.places.dump()}
            found += [PlaceRow(holder, *key, text) for key, text in kept.items() if evidence.told.get(key) != text]
            found += [PlaceRow(holder, *key, "") for key in evidence.told if key not in kept]
            evidence.told = kept
        self._touched.clear()
        return found

    # --- what failures showed
    def evidence_of(self, holder: str) -> Evidence:
        """What is known of the places of one owner or group. Beyond so many holders, those without bans are forgotten."""
        found = self.evidence.get(holder)
        if found is None:
            found = self.evidence[holder] = Evidence(self.policy)
            if len(self.evidence) > HOLDERS_KEPT:
                plain = next((h for h, e in self.evidence.items() if e is not found and not e.told), None)
                if plain is not None:
                    del self.evidence[plain]
                    self._touched.discard(plain)
        return found

    def touch_places(self, holder: str) -> None:
        """Something was held against a place, or no longer is."""
        self._touched.add(holder)

    def load(self, usage: list[UsageRow], places: list[PlaceRow], spent: list[SpentRow]) -> None:
        """Take over what the database remembers; live attempts are entered after it."""
        self.tree.load({row.owner: json.loads(row.data) for row in usage})
        by_holder: dict[str, list[PlaceRow]] = {}
        for row in places:
            by_holder.setdefault(row.holder, []).append(row)
        for holder, rows in by_holder.items():
            evidence = self.evidence_of(holder)
            evidence.told = {(row.kind, row.name): row.data for row in rows}
            evidence.places.load([json.loads(row.data) for row in rows])
        hours = sorted(spent, key=lambda row: row.hour)
        self.ledger.load(hours)
