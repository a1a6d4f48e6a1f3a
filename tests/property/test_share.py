"""Fair share: the tree equals a naive recomputation, and in simulated pools everybody gets what is due to it
[promise I13]."""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.model.policy import UsageRule
from shoal.sched.share import Tree

STEP = 5.0  # seconds between two looks of the naive reckoning
FEWER = settings(
    max_examples=settings.default.max_examples // 10 if settings.default else 10
)  # a look at a pool is long


# --- the policy, computed the slow way
def path_of(owner: str, groups: dict[str, str]) -> list[str]:
    """The vertices from below the root down to an owner."""
    parts = groups[owner].split(".") if groups.get(owner) else []
    return ["@" + ".".join(parts[: depth + 1]) for depth in range(len(parts))] + [owner]


def naive_due(
    active: list[str], shares: dict[str, float], groups: dict[str, str], used: dict[str, float]
) -> dict[str, float]:
    """What is due to each active owner, by the formula as it stands in the rules."""
    paths = {owner: path_of(owner, groups) for owner in {*active, *used}}
    use: dict[str, float] = {}
    for owner, amount in used.items():
        for vertex in paths[owner]:
            use[vertex] = use.get(vertex, 0.0) + amount

    def divide(owners: list[str], depth: int, part: float) -> dict[str, float]:
        children: dict[str, list[str]] = {}
        for owner in owners:
            children.setdefault(paths[owner][depth], []).append(owner)
        share = {child: shares.get(child, 1.0) for child in children}
        all_shares, all_use = sum(share.values()), sum(use.get(child, 0.0) for child in children if share[child] > 0)
        weight = dict.fromkeys(children, 1.0)
        if all_shares > 0:
            for child, own in share.items():
                U = use.get(child, 0.0) / max(1.0, all_use)
                weight[child] = own / (1 + U / (own / all_shares)) if own > 0 else 0.0
        due: dict[str, float] = {}
        for child, inside in children.items():
            amount = part * weight[child] / sum(weight.values())
            due.update(divide(inside, depth + 1, amount) if child.startswith("@") else {child: amount})
        return due

    return divide(active, 0, 1.0) if active else {}


def naive_usage(leases: list[tuple[float, float, float, float]], rule: UsageRule, now: float) -> float:
    """Use of leases (start, end, cores, core seconds taken) as it weighs now; the end is inf while it runs."""
    total = 0.0
    for start, end, cores, took in leases:
        if rule.kind == "half_life":
            fade = math.log(2) / rule.half_life
            rate = cores if end > now else took / (end - start) if end > start else 0.0
            until = min(end, now)
            total += rate * (math.exp(-fade * (now - until)) - math.exp(-fade * (now - start))) / fade
            if end == start:
                total += took * math.exp(-fade * (now - end))
        elif end > now:
            total += cores * (now - start)
        else:
            frame = rule.window / rule.buckets
            age = math.floor(now / frame) - math.floor(end / frame)
            total += took * max(0.0, 1 - age / rule.buckets)
    return total


NAMES = ["a", "b", "c", "d", "e", "f"]
SHARE = st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0, 10.0])
SHARES = st.dictionaries(st.sampled_from([*NAMES, "@g", "@g.h", "@k"]), SHARE)
GROUPS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["", "g", "g.h", "k"]))
RULES = st.sampled_from([UsageRule(half_life=600.0), UsageRule("window", window=1_000.0, buckets=5)])
MOVES = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(0, 8), st.floats(0, 300), st.floats(0, 2), st.booleans()), max_size=40
)


@given(SHARES, GROUPS, GROUPS, RULES, MOVES, st.sets(st.sampled_from(NAMES), min_size=1), st.integers(0, 40))
def test_usage_and_due_equal_a_recomputation_from_all_leases(
    shares: dict[str, float], groups: dict[str, str], later: dict[str, str], rule: UsageRule,
    moves: list[tuple[str, int, float, float, bool]], active: set[str], change: int,
) -> None:  # fmt: skip
    tree, now = Tree(shares, groups, rule), 1_000_000.0
    leases: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in NAMES}
    for at, (name, cores, passed, took, ends) in enumerate(moves):
        now += passed
        if at == change:
            tree.reshape(shares, later, now)
            groups = later
        running = [at for at, lease in enumerate(leases[name]) if lease[1] == math.inf]
        if ends and running:
            start, _, held, _ = leases[name][running[0]]
            actual = held * (now - start) * took
            tree.end(name, now, held, start, actual)
            leases[name][running[0]] = (start, now, held, actual)
        else:
            tree.start(name, now, cores)
            leases[name].append((now, math.inf, cores, 0.0))
    used = {name: naive_usage(leases[name], rule, now) for name in NAMES}
    for name in NAMES:
        assert math.isclose(tree.usage(name, now), used[name], rel_tol=1e-6, abs_tol=1e-3)
    expected = naive_due(sorted(active), shares, groups, used)
    found = tree.due(active, now)
    assert found.keys() == expected.keys() and math.isclose(sum(found.values()), 1.0, rel_tol=1e-9)
    assert all(math.isclose(found[name], expected[name], rel_tol=1e-3, abs_tol=1e-6) for name in active)
    copy = Tree(shares, groups, rule)
    copy.load(tree.rows())
    for name in NAMES:
        for start, end, held, _ in leases[name]:
            if end == math.inf:
                copy.start(name, now, held, start)
    for name in [*NAMES, "@g", "@k"]:
        later_on = now + 250.0
        assert math.isclose(copy.usage(name, later_on), tree.usage(name, later_on), rel_tol=1e-6, abs_tol=1e-3)


# --- simulated pools
@dataclass(frozen=True)
class Who:
    """An owner of a pool: what is its part, when it has work, and how long its tasks take."""

    share: float = 1.0
    group: str = ""
    mean: float = 30.0
    spread: float = 0.0  # of the logarithm; 0: all tasks are of one length
    awake: tuple[tuple[float, float], ...] = ((0.0, math.inf),)

    def draw(self, rng: random.Random) -> float:
        """The length of a task: skewed, ten times the mean at most."""
        if not self.spread:
            return self.mean
        return min(10 * self.mean, self.mean * rng.lognormvariate(-(self.spread**2) / 2, self.spread))


@dataclass
class Look:
    """Sums at one moment of a simulation."""

    time: float
    used: dict[str, float]
    due: dict[str, float]
    stuck: float
    awake: frozenset[str]


@dataclass
class Story:
    """What happened in a simulated pool."""

    looks: list[Look] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)
    first: dict[str, int] = field(default_factory=dict)  # slots that became free before an owner's first start


def simulate(slots: int, people: dict[str, Who], until: float, seed: int, shares: dict[str, float]) -> Story:
    """Run a pool whose free slots go to whoever the tree says, and reckon beside it what was due.

    `stuck` is what owners run beyond their due with tasks that started before the last one came: nobody can give those
    slots away before the tasks end.
    """
    rng, story = random.Random(seed), Story()
    groups = {name: who.group for name, who in people.items()}
    shares = {**shares, **{name: who.share for name, who in people.items()}}
    rule = UsageRule()
    tree = Tree(shares, groups, rule)
    fade = math.log(2) / rule.half_life
    events: list[tuple[float, int, str, float]] = []
    for name, who in people.items():
        for begin, end in who.awake:
            events += [(begin, 0, name, 0.0), (end, 1, name, 0.0)]
    events += [(STEP * at, 2, "", 0.0) for at in range(int(until / STEP) + 1)]
    heapq.heapify(events)
    now, free, turned, number = 0.0, slots, 0, 3
    awake: set[str] = set()
    came: dict[str, int] = {}
    cores = dict.fromkeys(people, 0)
    used, owed, usage = dict.fromkeys(people, 0.0), dict.fromkeys(people, 0.0), dict.fromkeys(people, 0.0)
    due: dict[str, float] = {}
    old, last_came, stuck = dict(cores), 0.0, 0.0
    while events[0][0] <= until:
        time, kind, name, began = heapq.heappop(events)
        if time > now:
            gone, run_by_awake = math.exp(-fade * (time - now)), sum(cores[owner] for owner in awake)
            stuck += sum(max(0.0, old[owner] - due[owner] * run_by_awake) for owner in awake) * (time - now)
            for owner, count in cores.items():
                used[owner] += count * (time - now)
                owed[owner] += due.get(owner, 0.0) * run_by_awake * (time - now)
                usage[owner] = usage[owner] * gone + count * (1 - gone) / fade
            now = time
        if kind == 0:
            awake.add(name)
            came.setdefault(name, turned)
            tree.wake(name, now)
            old, last_came = dict(cores), now
        elif kind == 1:
            awake.discard(name)
            tree.rest(name, now)
        elif kind == 2:
            story.looks.append(Look(now, dict(used), dict(owed), stuck, frozenset(awake)))
        else:
            tree.end(name, now, 1, began)
            cores[name] -= 1
            old[name] -= began < last_came
            free, turned = free + 1, turned + 1
        if kind <= 2:
            due = naive_due(sorted(awake), shares, groups, usage)
        if events[0][0] == now and events[0][1] <= 2:
            continue  # all who come at one moment come before anything starts
        while free and awake:
            owner = tree.order(awake, now)[0]
            story.first.setdefault(owner, turned - came[owner])
            length = people[owner].draw(rng)
            story.lengths.append(length)
            tree.start(owner, now, 1)
            cores[owner], free, number = cores[owner] + 1, free - 1, number + 1
            heapq.heappush(events, (now + length, number, owner, now))
    return story


def check_due(story: Story, slots: int, mean: float) -> float:
    """Hold every window of every owner with backlog against what was due; give the worst difference."""
    frames = math.ceil(max(600.0, 20 * mean) / STEP)
    window, worst = frames * STEP, 0.0
    for begin in range(0, len(story.looks) - frames, 4):
        first, last = story.looks[begin], story.looks[begin + frames]
        throughout = frozenset.intersection(*(look.awake for look in story.looks[begin : begin + frames + 1]))
        allowed = 0.05 + (max(story.lengths) + last.stuck - first.stuck) / (slots * window)
        for owner in throughout:
            got, due = last.used[owner] - first.used[owner], last.due[owner] - first.due[owner]
            worst = max(worst, abs(got - due) / (slots * window))
            assert abs(got - due) / (slots * window) <= allowed, (owner, first.time, last.time, got, due)
    return worst


@st.composite
def pools(draw: st.DrawFn) -> dict[str, Who]:
    """Two to fifty owners: skewed lengths, groups, late arrivals, some who go and come back."""
    count = draw(st.integers(2, 50))
    rng = random.Random(draw(st.integers(0, 1 << 30)))
    kinds, grouped = draw(st.sampled_from([[1.0], [1.0, 2.0, 5.0], [0.1, 1.0, 20.0]])), draw(st.booleans())
    lateness = draw(st.sampled_from([0.0, 300.0, 1500.0]))
    people = {}
    for at in range(count):
        begin = rng.choice([0.0, rng.uniform(0, lateness)]) if at else 0.0
        awake: tuple[tuple[float, float], ...] = ((begin, math.inf),)
        if at and rng.random() < 0.1:
            awake = ((begin, begin + 700.0), (begin + 1000.0, math.inf))
        group = rng.choice(["", "g", "g.h", "k"]) if grouped else ""
        people[f"o{at:02}"] = Who(
            rng.choice(kinds), group, rng.choice([10.0, 30.0, 60.0]), rng.choice([0, 0.5, 1.2]), awake
        )
    return people


@FEWER
@given(st.integers(20, 30), pools(), st.integers(0, 1 << 30))
def test_everybody_gets_what_is_due_and_nobody_waits_long_for_the_first_start(
    slots: int, people: dict[str, Who], seed: int
) -> None:
    """Within 5 points [promise I13], with the mean of the owner with the longest tasks."""
    longest = max(who.mean for who in people.values())
    story = simulate(slots, people, 3 * max(600.0, 20 * longest), seed, {"@g": 2.0, "@g.h": 0.5})
    check_due(story, slots, longest)
    for owner, turned in story.first.items():
        assert turned <= len(people), owner
    assert story.first.keys() == people.keys(), "nobody starves"


@FEWER
@given(st.integers(2, 50), st.integers(20, 30), st.integers(0, 1 << 30))
def test_equal_shares_are_used_equally(count: int, slots: int, seed: int) -> None:
    """[promise I13]: Jain's index of what each used, with tasks of different lengths."""
    people = {f"o{at:02}": Who(mean=[5.0, 20.0, 40.0][at % 3], spread=0.8) for at in range(count)}
    story = simulate(slots, people, 3_000.0, seed, {})
    used = list(story.looks[-1].used.values())
    assert sum(used) ** 2 / (len(used) * sum(each**2 for each in used)) >= 0.98
    check_due(story, slots, sum(story.lengths) / len(story.lengths))


def test_tasks_that_are_two_hundred_times_longer_get_no_less_and_no_more() -> None:
    people = {"long": Who(mean=1_000.0), "short": Who(mean=5.0, spread=0.5)}
    story = simulate(20, people, 6_000.0, 1, {})
    assert check_due(story, 20, sum(story.lengths) / len(story.lengths)) < 0.02


def test_a_group_of_many_gets_no_more_than_one_owner_with_the_same_share() -> None:
    people = {f"g{at}": Who(group="g", spread=0.5) for at in range(9)}
    people["one"] = Who(spread=0.5)
    story = simulate(20, people, 3_000.0, 1, {})
    used = story.looks[-1].used
    assert abs(used["one"] / sum(used.values()) - 0.5) < 0.02
