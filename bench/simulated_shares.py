"""Fair share on the engine itself [promise I13]: many owners on a simulated pool; what they used against what was due.

    result = simulate(setting)       every lease, report and submission is a command to the real engine
    worst_difference(result)         over all windows and owners, as a fraction of all slots

What is due is computed here a second time, the slow way, from the rule in `sched.share` and from what the pilots really
ran: nothing comes from the tree that the engine uses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from shoal.engine.commands import Cancel, Regroup, SetPolicy
from shoal.model.ids import parse_attempt
from shoal.model.policy import Policy
from shoal.sim.pool import GROUP, SimPool
from shoal.wire.messages import Lease

INTERVAL = 5.0  # seconds between two samples
BACKLOG = 200_000  # tasks of each owner: more than a simulation can run
MIN_WINDOW = 600.0  # seconds, of the promise
WINDOW_TASKS = 20.0  # mean task times, likewise


@dataclass(frozen=True)
class Owner:
    """The share of an owner, when it has work, and how long its tasks are."""

    share: float = 1.0
    group: str = ""  # inside the group that the pilots belong to
    mean: float = 30.0  # seconds
    spread: float = 0.8  # of the logarithm; 0: all of one length
    cores: int = 1
    arrives: float = 0.0
    leaves: float = math.inf  # from then on it has no more work waiting; what runs goes on

    def draw(self, rng: Random) -> float:
        """The length of a task: log-normal, ten times the mean at most."""
        if not self.spread:
            return self.mean
        return min(10 * self.mean, self.mean * rng.lognormvariate(-(self.spread**2) / 2, self.spread))


@dataclass(frozen=True)
class Setting:
    """A pool and its owners."""

    owners: Mapping[str, Owner]
    seconds: float
    pilots: int = 5
    slots: int = 4  # of each pilot
    shares: Mapping[str, float] = field(default_factory=dict)  # of groups inside the one that the pilots belong to
    seed: int = 1

    def policy(self) -> Policy:
        """The shares as an administrator would write them."""
        groups = {f"@{GROUP}.{name}": share for name, share in self.shares.items()}
        return Policy({**groups, **{name: owner.share for name, owner in self.owners.items()}})


@dataclass(frozen=True)
class Sample:
    """Sums at one moment, in core seconds."""

    time: float  # since the beginning
    used: dict[str, float]
    due: dict[str, float]
    waiting: frozenset[str]  # owners with waiting work


@dataclass
class Result:
    """What the owners used and what was due to them."""

    setting: Setting
    samples: list[Sample] = field(default_factory=list)
    lengths: dict[str, list[float]] = field(default_factory=dict)  # of tasks that started
    first: dict[str, int] = field(
        default_factory=dict
    )  # slots that became free from an owner's arrival to its first start
    returned: int = 0  # tasks that were fetched ahead and given back

    @property
    def all_slots(self) -> int:
        """Cores of all pilots."""
        return self.setting.pilots * self.setting.slots

    @property
    def mean(self) -> float:
        """Seconds of a task, over all that started."""
        every = [length for lengths in self.lengths.values() for length in lengths]
        return sum(every) / len(every)

    @property
    def window(self) -> float:
        """Seconds over which the promise holds."""
        return max(MIN_WINDOW, WINDOW_TASKS * self.mean)

    @property
    def width(self) -> float:
        """The longest task as a fraction of all slots in a window."""
        widest = max(
            max(lengths) * self.setting.owners[name].cores for name, lengths in self.lengths.items() if lengths
        )
        return widest / (self.all_slots * self.window)


# --- the rule, the slow way
def due_fractions(
    waiting: frozenset[str], shares: Mapping[str, float], groups: Mapping[str, str], used: Mapping[str, float]
) -> dict[str, float]:
    """The fraction of the cores that is due to each owner with waiting work: at each node by share / (1 + U / s)."""

    def divide(owners: list[str], above: str, fraction: float) -> dict[str, float]:
        children: dict[str, list[str]] = {}
        for owner in owners:
            group = groups.get(owner, "")
            rest = group[len(above) :].lstrip(".") if group.startswith(above) else ""
            step = rest.partition(".")[0]
            children.setdefault("@" + f"{above}.{step}".lstrip(".") if step else owner, []).append(owner)
        share = {child: shares.get(child, 1.0) for child in children}
        use = {child: sum(_inside(child, groups, used)) if share[child] > 0 else 0.0 for child in children}
        all_shares, all_used = sum(share.values()), sum(use.values())
        weight = {}
        for child, own in share.items():
            taken = use[child] / all_used if all_used > 0 else 0.0  # U
            weight[child] = own / (1.0 + taken * all_shares / own) if own > 0 else 0.0
        if not all_shares:
            weight = dict.fromkeys(children, 1.0)
        found: dict[str, float] = {}
        for child, inside in children.items():
            amount = fraction * weight[child] / sum(weight.values())
            found.update(divide(inside, child[1:], amount) if child.startswith("@") else {child: amount})
        return found

    return divide(sorted(waiting), "", 1.0) if waiting else {}


def _inside(child: str, groups: Mapping[str, str], used: Mapping[str, float]) -> list[float]:
    """What an owner used, or each owner inside a group."""
    if not child.startswith("@"):
        return [used.get(child, 0.0)]
    return [use for name, use in used.items() if f"{groups.get(name, '')}.".startswith(f"{child[1:]}.")]


# --- the pool
class _Pool(SimPool):
    def __init__(self, setting: Setting) -> None:
        super().__init__(setting.seed, setting.pilots, setting.slots)
        self.setting, self.result = setting, Result(setting)
        self._begin = self._now = self.clock.now
        self._rngs = {name: Random(f"{setting.seed}/{name}") for name in setting.owners}
        self._groups = {name: f"{GROUP}.{owner.group}".rstrip(".") for name, owner in setting.owners.items()}
        self._policy = setting.policy()
        self._decay = math.log(2.0) / self._policy.usage.half_life
        self._owner_of: dict[int, str] = {}
        self._waiting: set[str] = set()  # owners with waiting work
        self._arrived_at: dict[str, int] = {}  # slots that had become free when an owner came
        self._freed = 0
        self._cores = dict.fromkeys(setting.owners, 0)
        self._used, self._owed, self._usage = (dict.fromkeys(setting.owners, 0.0) for _ in range(3))
        self._due: dict[str, float] = {}

    # --- owners come and go
    def _arrive(self, name: str, owner: Owner) -> None:
        run = self.submit(name, {"command": ["true"], "array": f"1-{BACKLOG}", "cores": owner.cores})
        self._owner_of[run] = name  # its first leases are still on their way
        self._advance()
        self._waiting.add(name)
        self._arrived_at[name] = self._freed
        self._set_due()
        if owner.leaves < math.inf:
            self.clock.at(self._begin + owner.leaves, lambda: self._leave(name, run))

    def _leave(self, name: str, run: int) -> None:
        self._advance()
        self._waiting.discard(name)
        self._set_due()
        self.do(Cancel((run,), unless_running=True))

    # --- what really runs
    def started(self, lease: Lease) -> float:
        """Count its cores for its owner, who draws its length."""
        owner = self._owner_of[parse_attempt(lease.attempt).run]
        self._advance()
        self._cores[owner] += lease.room.cores
        self.result.first.setdefault(owner, self._freed - self._arrived_at[owner])
        length = self.setting.owners[owner].draw(self._rngs[owner])
        self.result.lengths.setdefault(owner, []).append(length)
        return length

    def ended(self, lease: Lease) -> None:
        """Its cores are free."""
        self._advance()
        self._cores[self._owner_of[parse_attempt(lease.attempt).run]] -= lease.room.cores
        self._freed += 1

    def _advance(self) -> None:
        """Bring all sums up to now."""
        passed, self._now = self.clock.now - self._now, self.clock.now
        if passed <= 0:
            return
        kept = math.exp(-self._decay * passed)
        all_cores = sum(self._cores[owner] for owner in self._waiting)
        for owner, cores in self._cores.items():
            self._used[owner] += cores * passed
            self._owed[owner] += self._due.get(owner, 0.0) * all_cores * passed
            self._usage[owner] = self._usage[owner] * kept + cores * (1.0 - kept) / self._decay

    def _set_due(self) -> None:
        self._due = due_fractions(frozenset(self._waiting), self._policy.shares, self._groups, self._usage)

    def _sample(self) -> None:
        self._advance()
        self._set_due()
        at = self.clock.now - self._begin
        self.result.samples.append(Sample(at, dict(self._used), dict(self._owed), frozenset(self._waiting)))
        self.clock.after(INTERVAL, self._sample)

    def simulate(self) -> Result:
        """From the first pilot to the last second."""
        self.do(SetPolicy(self._policy, "{}", "admin"))
        for name, group in self._groups.items():
            self.do(Regroup(name, group))
        self.start_pilots()
        self._begin = self._now = self.clock.now
        for name, owner in self.setting.owners.items():
            self.clock.after(owner.arrives, lambda n=name, o=owner: self._arrive(n, o))  # type: ignore[misc]  # bound now
        self._sample()
        self.run_for(self.setting.seconds)
        self.check()
        self.result.returned = self.returned
        return self.result


def simulate(setting: Setting) -> Result:
    """Simulate a setting with the engine and agents."""
    return _Pool(setting).simulate()


# --- what is promised
def differences(result: Result, stride: int = 4) -> dict[str, float]:
    """The largest difference between used and due of each owner, as a fraction of all slots, over all windows in which
    it had work waiting throughout."""
    frames = math.ceil(result.window / INTERVAL)
    worst: dict[str, float] = {}
    for begin in range(0, len(result.samples) - frames, stride):
        first, last = result.samples[begin], result.samples[begin + frames]
        throughout = frozenset.intersection(*(sample.waiting for sample in result.samples[begin : begin + frames + 1]))
        for owner in throughout:
            got, due = last.used[owner] - first.used[owner], last.due[owner] - first.due[owner]
            off = abs(got - due) / (result.all_slots * frames * INTERVAL)
            worst[owner] = max(worst.get(owner, 0.0), off)
    return worst


def worst_difference(result: Result) -> float:
    """The largest difference of any owner."""
    return max(differences(result).values(), default=0.0)


def jain(amounts: list[float]) -> float:
    """Jain's index of fairness: 1 if all are equal, 1 / n if one has everything."""
    return sum(amounts) ** 2 / (len(amounts) * sum(amount**2 for amount in amounts))


# --- settings
GROUP_SHARES = {"g": 2.0, "g.h": 0.5}
LATE = 900.0  # seconds in which the second half of the owners comes
KINDS: dict[str, tuple[bool, bool, float]] = {  # skewed shares, groups in groups, late arrivals
    "equal": (False, False, 0.0),
    "skewed": (True, False, 0.0),
    "nested": (True, True, 0.0),
    "late": (False, False, LATE),
    "all": (True, True, LATE),
}


def mixed_owners(count: int, kind: str, seconds: float, seed: int = 1, pilots: int = 5) -> Setting:
    """So many owners of one kind, with tasks of 10 s to 2 min in the mean and of very different spread."""
    skewed, grouped, late = KINDS[kind]
    rng, owners = Random(f"{seed}/{count}/{kind}"), {}
    for at in range(count):
        owners[f"o{at:02}"] = Owner(
            share=rng.choice([0.5, 1.0, 2.0, 5.0, 20.0]) if skewed else 1.0,
            group=rng.choice(["", "g", "g.h", "k"]) if grouped else "",
            mean=[10.0, 20.0, 40.0, 120.0][at % 4],
            spread=[0.5, 0.8, 1.2][at % 3],
            arrives=rng.uniform(0.0, late) if late and at % 2 else 0.0,
        )
    return Setting(owners, seconds, pilots, shares=GROUP_SHARES, seed=seed)
