"""Fair share on the engine itself [promise I13]: many owners, emulated pilots, a virtual clock; what was used against
what was due.

    story = play(setting)          every lease, report and submission is a command to the real engine
    worst_difference(story)        over all windows and owners, as a part of all slots

What is due is computed here once more, the slow way, from the rule in `sched.share` and from what the pilots really ran:
nothing is asked of the tree that the engine uses.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from shoal.engine.changes import Outcome
from shoal.engine.commands import Accept, Cancel, Command, Enrol, Regroup, SetPolicy, Submit, Talk, Tick
from shoal.engine.engine import Engine
from shoal.engine.snapshot import Snapshot
from shoal.model.ids import parse_attempt
from shoal.model.policy import Policy
from shoal.model.timing import Timing
from shoal.sim.clock import Clock
from shoal.wire.chunk import shift, single
from shoal.wire.messages import PROTOCOL, Capacity, Exchange, Held, Lease, Order, Register, Registered, Reply, Report
from shoal.wire.submission import parse_submission

STEP = 5.0  # seconds between two looks
LATENCY = 0.005  # seconds from an event on a host to the exchange that tells it
BACKLOG = 200_000  # tasks of each owner: more than a story can run
POOL = "lab"  # the group whose pilots they are; everybody is in it, or in a group inside it
LEAST_WINDOW = 600.0  # seconds, of the promise
WINDOW_TASKS = 20.0  # mean task times, likewise


@dataclass(frozen=True)
class Person:
    """An owner: its part, when it has work, and what its tasks are like."""

    share: float = 1.0
    group: str = ""  # inside the pool's
    mean: float = 30.0  # seconds
    spread: float = 0.8  # of the logarithm; 0: all of one length
    cores: int = 1
    comes: float = 0.0
    goes: float = math.inf  # from then on it has no more work waiting; what runs goes on

    def draw(self, rng: Random) -> float:
        """The length of a task: log-normal, ten times the mean at most."""
        if not self.spread:
            return self.mean
        return min(10 * self.mean, self.mean * rng.lognormvariate(-(self.spread**2) / 2, self.spread))


@dataclass(frozen=True)
class Setting:
    """A pool and its owners."""

    people: Mapping[str, Person]
    seconds: float
    pilots: int = 5
    slots: int = 4  # of each pilot
    shares: Mapping[str, float] = field(default_factory=dict)  # of groups inside the pool's, by name
    seed: int = 1

    def policy(self) -> Policy:
        """The shares as an administrator would write them."""
        groups = {f"@{POOL}.{name}": share for name, share in self.shares.items()}
        return Policy({**groups, **{name: person.share for name, person in self.people.items()}})


@dataclass(frozen=True)
class Look:
    """Sums at one moment, in core seconds."""

    time: float  # since the beginning
    used: dict[str, float]
    due: dict[str, float]
    awake: frozenset[str]


@dataclass
class Story:
    """What happened."""

    setting: Setting
    looks: list[Look] = field(default_factory=list)
    lengths: dict[str, list[float]] = field(default_factory=dict)  # of tasks that started
    first: dict[str, int] = field(default_factory=dict)  # slots that became free before an owner's first start
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
        """Seconds over which the promise is given."""
        return max(LEAST_WINDOW, WINDOW_TASKS * self.mean)

    @property
    def width(self) -> float:
        """The longest task as a part of all slots in a window."""
        widest = max(
            max(lengths) * self.setting.people[name].cores for name, lengths in self.lengths.items() if lengths
        )
        return widest / (self.all_slots * self.window)


# --- the rule, the slow way
def due_parts(
    awake: frozenset[str], shares: Mapping[str, float], groups: Mapping[str, str], used: Mapping[str, float]
) -> dict[str, float]:
    """What part of the cores is due to each owner with waiting work: at each vertex by share / (1 + U / s)."""

    def divide(owners: list[str], above: str, part: float) -> dict[str, float]:
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
            amount = part * weight[child] / sum(weight.values())
            found.update(divide(inside, child[1:], amount) if child.startswith("@") else {child: amount})
        return found

    return divide(sorted(awake), "", 1.0) if awake else {}


def _inside(child: str, groups: Mapping[str, str], used: Mapping[str, float]) -> list[float]:
    """What an owner used, or everybody inside a group."""
    if not child.startswith("@"):
        return [used.get(child, 0.0)]
    return [use for name, use in used.items() if f"{groups.get(name, '')}.".startswith(f"{child[1:]}.")]


# --- the pool
class _Pilot:
    """Speaks the protocol and pretends to run: a slot is taken for as long as the task's owner says."""

    def __init__(self, pool: _Pool, number: int) -> None:
        self.pool, self.room = pool, Capacity(pool.setting.slots, 1 << 36, 1 << 40, 0)
        register = Register(PROTOCOL, "0", f"host{number}", f"id{number}", self.room)
        registered: Registered = pool.do(Enrol(register, "", "here", POOL)).result
        self.name, self._session = registered.pilot, registered.session
        self._seq = self._ack = 0
        self._free = self.room.cores
        self._queue: deque[Lease] = deque()  # fetched ahead
        self._running: dict[str, Lease] = {}
        self._reports: list[Report] = []
        self._open: set[int] = set()  # exchanges that wait for their answer
        self._wakes = False
        self._wake()

    def _wake(self) -> None:
        if not self._wakes:
            self._wakes = True
            self.pool.clock.after(LATENCY, self._say)

    def _say(self) -> None:
        self._wakes = False
        self._seq += 1
        self._open.add(self._seq)
        held = [Held(attempt, "running") for attempt in self._running]
        held += [Held(lease.attempt, "leased") for lease in self._queue]
        reports, self._reports = self._reports, []
        free = Capacity(self._free, self.room.memory, self.room.disk)
        said = Exchange(PROTOCOL, self.name, self._session, self._seq, self._ack, free, held, reports)
        self.pool.do(Talk(said))

    def hear(self, reply: Reply) -> None:
        """An answer: begin what it brings; there is always an exchange that waits."""
        self._open.discard(reply.seq)
        self._ack = max(self._ack, reply.seq)
        for lease in reply.leases:
            self._queue += [single(lease, at) for at in range(lease.count)]
        self._queue = deque(sorted(self._queue, key=lambda lease: -lease.precedence))
        for order in reply.orders:
            self._obey(order)
        if self._begin() or not self._open:
            self._wake()

    def _obey(self, order: Order) -> None:
        """Give back what was not begun."""
        first = parse_attempt(order.attempt)
        wanted = {str(shift(first, at)) for at in range(order.count)} if order.kind == "take_back" else set()
        given = [lease.attempt for lease in self._queue if lease.attempt in wanted]
        self._queue = deque(lease for lease in self._queue if lease.attempt not in wanted)
        self._reports += [Report(attempt, "returned", message=order.why) for attempt in given]
        self.pool.story.returned += len(given)
        if given:
            self._wake()

    def _begin(self) -> bool:
        began = False
        while self._queue and self._queue[0].room.cores <= self._free:
            lease, began = self._queue.popleft(), True
            self._free -= lease.room.cores
            self._running[lease.attempt] = lease
            start, length = self.pool.clock.now, self.pool.started(lease)
            self.pool.clock.after(length, lambda a=lease.attempt, s=start, n=length: self._end(a, s, n))  # type: ignore[misc]  # bound now
        return began

    def _end(self, attempt: str, started: float, length: float) -> None:
        lease = self._running.pop(attempt)
        self._free += lease.room.cores
        self.pool.ended(lease)
        self._reports.append(Report(attempt, "succeeded", exit_code=0, started=started, duration=length))
        self._begin()
        self._wake()


class _Pool:
    """The engine, its pilots and its people."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.clock, self.story = setting, Clock(), Story(setting)
        self._zero = self._now = self.clock.now
        self._engine = Engine(Snapshot(), Timing(), Random(setting.seed), self.clock.now)
        self._rngs = {name: Random(f"{setting.seed}/{name}") for name in setting.people}
        self._groups = {
            name: f"{POOL}.{person.group}" if person.group else POOL for name, person in setting.people.items()
        }
        self._policy = setting.policy()
        self._fade = math.log(2.0) / self._policy.usage.half_life
        self._owner_of: dict[int, str] = {}
        self._awake: set[str] = set()
        self._came: dict[str, int] = {}
        self._turned = 0
        self._cores = dict.fromkeys(setting.people, 0)
        self._used, self._owed, self._usage = (dict.fromkeys(setting.people, 0.0) for _ in range(3))
        self._due: dict[str, float] = {}
        self._pilots: dict[str, _Pilot] = {}
        self._tick_at: float | None = None

    # --- commands
    def do(self, command: Command) -> Outcome:
        """Tell the engine, and hand its answers out."""
        outcome = self._engine.handle(command, self.clock.now)
        for answer in outcome.answers:
            self._pilots[answer.pilot].hear(answer.reply)
        due = self._engine.deadline()
        if due is not None and (self._tick_at is None or due < self._tick_at or self._tick_at <= self.clock.now):
            self._tick_at = due
            self.clock.at(due, lambda: self._tick(due))
        return outcome

    def _tick(self, due: float) -> None:
        if self._tick_at == due:
            self._tick_at = None
            self.do(Tick())

    def _come(self, name: str, person: Person) -> None:
        task = {"command": ["true"], "array": f"1-{BACKLOG}", "cores": person.cores}
        run = int(self.do(Submit(parse_submission({"tasks": [task]}), name, name)).result["run"][1:])
        self._owner_of[run] = name
        self._advance()
        self._awake.add(name)
        self._came[name] = self._turned
        self._reckon()
        self.do(Accept(run))
        if person.goes < math.inf:
            self.clock.at(self._zero + person.goes, lambda: self._go(name, run))

    def _go(self, name: str, run: int) -> None:
        self._advance()
        self._awake.discard(name)
        self._reckon()
        self.do(Cancel((run,), unless_running=True))

    # --- what really runs
    def started(self, lease: Lease) -> float:
        """A task starts on a host: how long it will take."""
        owner = self._owner_of[parse_attempt(lease.attempt).run]
        self._advance()
        self._cores[owner] += lease.room.cores
        self.story.first.setdefault(owner, self._turned - self._came[owner])
        length = self.setting.people[owner].draw(self._rngs[owner])
        self.story.lengths.setdefault(owner, []).append(length)
        return length

    def ended(self, lease: Lease) -> None:
        """It ended: a slot is free."""
        self._advance()
        self._cores[self._owner_of[parse_attempt(lease.attempt).run]] -= lease.room.cores
        self._turned += 1

    def _advance(self) -> None:
        """Bring all sums up to now."""
        passed, self._now = self.clock.now - self._now, self.clock.now
        if passed <= 0:
            return
        kept = math.exp(-self._fade * passed)
        all_cores = sum(self._cores[owner] for owner in self._awake)
        for owner, cores in self._cores.items():
            self._used[owner] += cores * passed
            self._owed[owner] += self._due.get(owner, 0.0) * all_cores * passed
            self._usage[owner] = self._usage[owner] * kept + cores * (1.0 - kept) / self._fade

    def _reckon(self) -> None:
        self._due = due_parts(frozenset(self._awake), self._policy.shares, self._groups, self._usage)

    def _look(self) -> None:
        self._advance()
        self._reckon()
        at = self.clock.now - self._zero
        self.story.looks.append(Look(at, dict(self._used), dict(self._owed), frozenset(self._awake)))
        self.clock.after(STEP, self._look)

    def play(self) -> Story:
        """From the first pilot to the last second."""
        self.do(SetPolicy(self._policy, "{}", "admin"))
        for name in self.setting.people:
            self.do(Regroup(name, self._groups[name]))
        for name, person in self.setting.people.items():
            self.clock.at(self._zero + person.comes, lambda n=name, p=person: self._come(n, p))  # type: ignore[misc]  # bound now
        for number in range(self.setting.pilots):
            pilot = _Pilot(self, number)
            self._pilots[pilot.name] = pilot
        self._look()
        while self.clock.now < self._zero + self.setting.seconds:
            self.clock.step()
        wrong = self._engine.check()
        assert not wrong, wrong[0]
        return self.story


def play(setting: Setting) -> Story:
    """Play a setting through the engine."""
    return _Pool(setting).play()


# --- what is promised
def differences(story: Story, stride: int = 4) -> dict[str, float]:
    """The largest difference between used and due of each owner, as a part of all slots, over all windows in which it
    had work waiting throughout."""
    frames = math.ceil(story.window / STEP)
    worst: dict[str, float] = {}
    for begin in range(0, len(story.looks) - frames, stride):
        first, last = story.looks[begin], story.looks[begin + frames]
        throughout = frozenset.intersection(*(look.awake for look in story.looks[begin : begin + frames + 1]))
        for owner in throughout:
            got, due = last.used[owner] - first.used[owner], last.due[owner] - first.due[owner]
            off = abs(got - due) / (story.all_slots * frames * STEP)
            worst[owner] = max(worst.get(owner, 0.0), off)
    return worst


def worst_difference(story: Story) -> float:
    """The largest of them."""
    return max(differences(story).values(), default=0.0)


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


def crowd(count: int, kind: str, seconds: float, seed: int = 1, pilots: int = 5) -> Setting:
    """So many owners of one kind, with tasks of 10 s to 2 min in the mean and of very different spread."""
    skewed, grouped, late = KINDS[kind]
    rng, people = Random(f"{seed}/{count}/{kind}"), {}
    for at in range(count):
        people[f"o{at:02}"] = Person(
            share=rng.choice([0.5, 1.0, 2.0, 5.0, 20.0]) if skewed else 1.0,
            group=rng.choice(["", "g", "g.h", "k"]) if grouped else "",
            mean=[10.0, 20.0, 40.0, 120.0][at % 4],
            spread=[0.5, 0.8, 1.2][at % 3],
            comes=rng.uniform(0.0, late) if late and at % 2 else 0.0,
        )
    return Setting(people, seconds, pilots, shares=GROUP_SHARES, seed=seed)
