"""The ledger of quotas equals a count of everything from the list of what lives, at every step [promise I14]."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from shoal.model.policy import Rule, outward
from shoal.sched.quota import NO_BOUND, Ledger
from shoal.sched.time_windows import occurrence

OWNERS = {"anna": "phys", "bert": "phys.hep", "carl": "", "dora": "chem"}
MOVED = {"anna": "phys.hep", "bert": "chem", "carl": "phys", "dora": ""}
SITES = ["eu", "eu.cern", "eu.desy", "us"]
HOUR = 3600.0

RULE = st.builds(
    Rule,
    who=st.sampled_from(["*", "anna", "bert", "@phys", "@phys.hep", "@chem"]),
    site=st.sampled_from(["*", "*", "eu", "eu.cern", "us"]),
    when=st.sampled_from(["always", "day", "week", "month", "mon-fri 08-18", "sat,sun", "22-06"]),
    cores=st.none() | st.integers(0, 20),
    core_hours=st.none() | st.floats(0, 50),
    queued=st.none() | st.integers(0, 30),
    stored=st.none() | st.integers(0, 1000),
    share=st.none() | st.sampled_from([0.0, 0.1, 0.29, 0.5, 1.0]),
)
STEP = st.tuples(
    st.sampled_from(
        ["start", "start", "start", "end", "end", "spend", "pilot", "queue", "final", "keep", "drop", "change"]
    ),
    st.sampled_from(sorted(OWNERS)),
    st.sampled_from(SITES),
    st.integers(1, 9),
    st.floats(0, 4 * HOUR),
    st.sampled_from([0.0, 0.0, 1.0, 600.0, HOUR, 5 * HOUR, 30 * HOUR]),
)


def end(ledger: Ledger, owner: str, site: str, cores: int, expected: float, now: float, actual: float) -> None:
    """A lease ended after so many core seconds."""
    ledger.start(owner, site, -cores, -expected)
    ledger.spend(owner, site, now, actual)


@dataclass
class Book:
    """Everything that lives, as plain lists."""

    groups: dict[str, str]
    leases: list[tuple[str, str, int, float]] = field(default_factory=list)  # owner, site, cores, expected
    spent: list[tuple[str, str, float, float]] = field(default_factory=list)  # owner, site, when, core seconds
    cores: dict[str, int] = field(default_factory=dict)  # by site
    queued: dict[str, int] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)

    def covers(self, rule: Rule, owner: str, site: str) -> bool:
        """Does a rule cover an owner on a site?"""
        who = rule.who in ("*", owner) or rule.who in ["@" + group for group in outward(self.groups[owner])]
        return who and (rule.site == "*" or site == rule.site or site.startswith(rule.site + "."))

    def most_cores(self, rule: Rule) -> float:
        """How many cores a rule lets run."""
        most = math.inf if rule.cores is None else rule.cores
        if rule.share is not None:
            there = sum(
                n for site, n in self.cores.items() if rule.site == "*" or (site + ".").startswith(rule.site + ".")
            )
            most = min(most, round(rule.share * 100) * there // 100)
        return most

    def running(self, rule: Rule) -> int:
        """Cores that run under a rule."""
        return sum(cores for owner, site, cores, _ in self.leases if self.covers(rule, owner, site))

    def micro(self, rule: Rule, now: float) -> int:
        """Microseconds spent in the window and reserved, under a rule."""
        opens, closes, _ = occurrence(rule.when, now)
        spent = [round(took * 1e6) for owner, site, at, took in self.spent
                 if self.covers(rule, owner, site) and opens <= at < closes]  # fmt: skip
        return sum(spent) + sum(round(hours * 1e6) for o, s, _, hours in self.leases if self.covers(rule, o, s))

    def may_start(self, rules: list[Rule], owner: str, site: str, cores: int, expected: float, now: float) -> bool:
        """Do all rules allow a start?"""
        for rule in rules:
            if not self.covers(rule, owner, site) or not occurrence(rule.when, now)[2]:
                continue
            if self.running(rule) + cores > self.most_cores(rule):
                return False
            if rule.core_hours is not None:
                limit, used = round(rule.core_hours * 3600e6), self.micro(rule, now)
                if used >= limit or used + round(expected * 1e6) > limit:
                    return False
        return True

    def room(self, rules: list[Rule], owner: str, site: str, now: float) -> float:
        """Cores that may start."""
        room = float(NO_BOUND)
        for rule in rules:
            if self.covers(rule, owner, site) and occurrence(rule.when, now)[2]:
                room = min(room, self.most_cores(rule) - self.running(rule))
                if rule.core_hours is not None and self.micro(rule, now) >= round(rule.core_hours * 3600e6):
                    room = 0
        return max(0, room)

    def may_have(self, rules: list[Rule], kind: str, owner: str, more: int, now: float) -> bool:
        """Do all rules allow so many more queued tasks or stored bytes?"""
        counts = self.queued if kind == "queued" else self.stored
        for rule in rules:
            most = rule.queued if kind == "queued" else rule.stored
            if (
                most is None
                or rule.site != "*"
                or not self.covers(rule, owner, "")
                or not occurrence(rule.when, now)[2]
            ):
                continue
            if sum(count for name, count in counts.items() if self.covers(rule, name, "")) + more > most:
                return False
        return True


@given(
    st.lists(RULE, max_size=6),
    st.lists(RULE, max_size=4),
    st.lists(STEP, max_size=60),
    st.floats(1.6e9, 1.8e9),
    st.booleans(),
)
def test_the_ledger_equals_a_recount_at_every_step(
    rules: list[Rule], others: list[Rule],
    steps: list[tuple[str, str, str, int, float, float]], now: float, obeys: bool,
) -> None:  # fmt: skip
    ledger, book = Ledger(rules, OWNERS), Book(OWNERS)
    for kind, owner, site, count, expected, passed in steps:
        now += passed
        fits = book.may_start(rules, owner, site, count, expected, now)
        assert (ledger.blocks(owner, site, count, expected, now) is None) == fits
        assert ledger.room(owner, site, now) == book.room(rules, owner, site, now)
        may_queue = book.may_have(rules, "queued", owner, count, now)
        may_keep = book.may_have(rules, "stored", owner, 40 * count, now)
        assert (ledger.may_queue(owner, count, now) is None) == may_queue
        assert (ledger.may_keep(owner, 40 * count, now) is None) == may_keep
        if kind == "start" and (fits or not obeys):
            ledger.start(owner, site, count, expected)
            book.leases.append((owner, site, count, expected))
        elif kind == "end" and book.leases:
            name, place, cores, guess = book.leases.pop(count % len(book.leases))
            end(ledger, name, place, cores, guess, now, expected)
            book.spent.append((name, place, now, expected))
        elif kind == "spend":
            ledger.spend(owner, site, now, expected)
            book.spent.append((owner, site, now, expected))
        elif kind == "pilot":
            change = count if count % 3 else -book.cores.get(site, 0)
            ledger.capacity(site, change)
            book.cores[site] = book.cores.get(site, 0) + change
        elif kind == "queue" and (may_queue or not obeys):
            ledger.queued(owner, count)
            book.queued[owner] = book.queued.get(owner, 0) + count
        elif kind == "keep" and (may_keep or not obeys):
            ledger.stored(owner, 40 * count)
            book.stored[owner] = book.stored.get(owner, 0) + 40 * count
        elif kind == "final" and book.queued.get(owner):
            ledger.queued(owner, -1)
            book.queued[owner] -= 1
        elif kind == "drop" and book.stored.get(owner):
            ledger.stored(owner, -book.stored.pop(owner))
        elif kind == "change" and not obeys:
            rules, others = others, rules
            book.groups = MOVED if book.groups is OWNERS else OWNERS
            ledger.change(rules, book.groups)
        if obeys and kind in ("start", "queue", "keep"):
            for standing in ledger.standings(now):
                rule = standing.rule
                if standing.kind == "cores" and rule.when in ("always", "day", "week", "month"):
                    assert book.running(rule) == standing.used <= standing.limit, "over by one"
                elif standing.kind == "queued" and rule.site == "*" and rule.when == "always":
                    assert standing.used <= standing.limit, "over by one"
    copy = Ledger(rules, book.groups)
    copy.load([(who, where, math.floor(at / HOUR), took) for who, where, at, took in book.spent])
    for name, place, cores, guess in book.leases:
        copy.start(name, place, cores, guess)
    for owner in OWNERS:
        for site in SITES:
            hours_only = [Rule(rule.who, rule.site, rule.when, core_hours=rule.core_hours) for rule in rules]
            copy.change(hours_only, book.groups)
            expect = book.may_start(hours_only, owner, site, 1, 60.0, now)
            assert (copy.blocks(owner, site, 1, 60.0, now) is None) == expect
