"""The engine's records: runs, arrays, live tasks, attempts and pilots. Data and lookups; the rules are elsewhere.

A run is a sequence of arrays; a single task is an array of one. An element is in exactly one of three sets: `todo`
(waiting or ready, according to its array), `tasks` with a live attempt, or `done`. A Task object exists only for elements
that have a row: live ones, and ready ones with a history. Nothing finished is kept [ADR 0001].
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right, insort_right
from collections import OrderedDict, deque
from collections.abc import Sized
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.dht.peers import PEER_TAG
from shoal.engine.changes import PlanRow
from shoal.engine.run_bound import Lane, RunBound
from shoal.engine.shared_empty import EmptyDict, EmptyList, EmptyRanges, EmptySet
from shoal.engine.spec_digest import trait_of
from shoal.engine.task_overrides import TaskOverrides
from shoal.model.ids import AttemptId, TaskId
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import KEPT_REPLIES
from shoal.model.rangeset import RangeSet
from shoal.model.states import UNFINISHED, PilotState, TaskState
from shoal.model.task.spec import FIELDS, Needs, Spec
from shoal.model.task.visible import View
from shoal.wire.messages import PROTOCOL, Capacity, Order, Reply, TagValue

if TYPE_CHECKING:
    from shoal.engine.locality.index import ArrayInputs
    from shoal.engine.matching.classes import TaskClass
    from shoal.engine.matching.element_order import ElementOrder
    from shoal.engine.matching.eligibility import Eligibility
    from shoal.engine.matching.lease_message import SharedLease
    from shoal.engine.pilots.lease_proofs import Proofs
    from shoal.engine.tasks.divisible import Work
    from shoal.engine.tasks.growth import Growth
    from shoal.engine.tasks.partial import Partial

NOT_QUEUED = 0  # in place of the serial of an entry
NESTED = 4e9  # more than two priorities can differ by


class ClassKey(NamedTuple):
    """Everything matching looks at [ADR 0011]: to every pilot, tasks with one key are alike."""

    owner: str
    needs: Needs
    priority: float
    rerun: str
    kind: str  # program or function
    require: str = ""
    rank: str = ""
    site: str = ""  # names of sites with commas; empty: any
    time: float | None = None
    surroundings: str = ""  # the other task fields that matching looks at, such as set-up and container
    avoid: tuple[str, ...] = ()  # hosts
    avoid_sites: tuple[str, ...] = ()
    alone: bool = False  # it must be the only task of its pilot
    visible: tuple[View, ...] = ()  # what a pilot must see
    run: int = 0  # the run whose `max_running`, or limit of a category, bounds it; 0: none does
    depth: int = 0  # how many tasks wait above it, each for the next
    category: str = ""  # of that run, whose limit bounds it

    @property
    def level(self) -> float:
        """Its priority in its owner's queue: what a task waits for goes before all else, since that task keeps its process
        and memory meanwhile."""
        return self.priority + NESTED * self.depth


NO_NEEDS = Needs(cores=0)
MESH = "mesh:"  # before site and owner or group: the holder of attempts in a window, in place of a pilot's name


@dataclass(slots=True)
class Attempt:
    """A live attempt: leased to a pilot that may or may not have begun it."""

    id: AttemptId
    pilot: str
    leased: float
    running: bool = False
    reply_seq: int = 0  # the reply that carried its lease; 0: not known, so it is sent again if the pilot lacks it
    started: float | None = None
    orphaned: float | None = None  # its pilot is gone, the right to run ends then (exclusive, never)
    site: str | None = None  # at which quotas count it; None: not counted
    cores: int = 0  # that its owner's share counts as running, since
    counted: float = 0.0
    took: float | None = None  # core seconds, once they are reported
    resent: int = 0  # times that its lease was sent again to a pilot that neither holds nor reports it
    assigned: str = ""  # how a round chose its pilot, if several could have had it
    reserved: float = 0.0  # core seconds that its owner's quota is charged with while it is leased
    was_alone: bool = False  # its pilot is gone, and held nothing else
    is_suspect: bool = True  # its pilot is gone, and this task may have been what ended it
    precedence: int = 0  # as in its lease
    is_ahead: bool = False  # no slot was free for it when it was leased
    needs: Needs = NO_NEEDS  # what it takes of its pilot, also if its task was given others since
    lends: bool = False  # it waits for other tasks, which may have its cores meanwhile


@dataclass(slots=True)
class Task:
    """A task that is live or has a history."""

    array: Array
    element: int
    state: TaskState = TaskState.READY
    number: int = 0  # highest attempt number used
    retries: int = 0
    losses: int = 0
    live: dict[AttemptId, Attempt] = field(default_factory=dict)
    past: dict[AttemptId, str] = field(default_factory=dict)  # attempts given up as lost, and their pilots
    note: str = ""  # message of its last failure or loss
    cause: str = ""
    lost_on: list[str] = field(default_factory=list)
    special: TaskOverrides | None = None
    lane: Lane | None = None
    own: Spec | None = None  # its array's spec with what was changed for this task alone

    @property
    def spec(self) -> Spec:
        """Its fields: those of its array, unless some were changed for it alone."""
        return self.array.spec if self.own is None else self.own

    def set_own(self) -> None:
        """Make its own spec anew of its array's and of what was changed for it."""
        changed = self.special.changed if self.special is not None else {}
        values = {name: FIELDS[name].read(value, name) for name, value in changed.items()}
        self.own = replace(self.array.spec, **values) if values else None

    @property
    def needs(self) -> Needs:
        """The capacity that its next attempt takes of a pilot."""
        needs = self.spec.needs
        return replace(needs, memory=self.special.memory) if self.special is not None and self.special.memory else needs

    @property
    def differences(self) -> TaskOverrides:
        """What makes it differ from its array, created when first needed."""
        if self.special is None:
            self.special = TaskOverrides()
        return self.special

    @property
    def id(self) -> TaskId:
        """`r12.7`."""
        return TaskId(self.array.run.number, self.element)

    def story(self) -> list[str]:
        """Details for the error of an illegal transition."""
        return [str(self.id), f"attempts {self.number}", f"live {[str(a) for a in self.live]}", self.note]


@dataclass(slots=True, eq=False)
class Chunk:
    """Neighbouring elements leased together, none of which has begun as far as is known [ADR 0009]."""

    array: Array
    low: int
    high: int
    number: int
    incarnation: int
    pilot: str
    leased: float
    reply_seq: int  # as in Attempt
    left: RangeSet  # elements still in it
    reserved: float = 0.0  # as in Attempt, for each element
    resent: int = 0  # as in Attempt
    precedence: int = 0  # as in its lease
    is_ahead: bool = False  # no slot was free for it when it was leased
    lane: Lane | None = None
    several: list[Array] = field(default_factory=list)  # of a chain's: all arrays of its elements [ADR 0064]

    @property
    def arrays(self) -> list[Array]:
        """The arrays of its elements, in order."""
        return self.several or [self.array]

    def left_of(self, array: Array) -> list[tuple[int, int]]:
        """Those elements of an array that are still in it, as ranges."""
        low, high = array.first, array.first + array.count
        return [(max(low, one), min(high, end)) for one, end in self.left.ranges() if one < high and end > low]

    def attempt(self, element: int) -> AttemptId:
        """The attempt of one of its elements."""
        run = self.array.run
        return AttemptId(run.number, element, self.number, self.incarnation, run.nonce)


NO_ELEMENTS = EmptyRanges()
NO_TASKS: dict[int, Task] = EmptyDict()
NO_TARGETS: dict[int | TaskId, bool] = EmptyDict()
NO_APART: dict[int, int] = EmptyDict()
NO_PARENTS: set[int] = EmptySet()
NO_CHILDREN: list[Array] = EmptyList()
NO_CHUNKS: list[Chunk] = EmptyList()
NO_WORKS: dict[str, Work] = EmptyDict()
NO_CATEGORIES: dict[str, RunBound] = EmptyDict()
SHARED: tuple[Sized, ...] = (
    NO_ELEMENTS,
    NO_TASKS,
    NO_TARGETS,
    NO_APART,
    NO_PARENTS,
    NO_CHILDREN,
    NO_CHUNKS,
    NO_WORKS,
    NO_CATEGORIES,
)


@dataclass(slots=True, eq=False)
class Array:
    """One spec of a run in memory: elements first .. first + count - 1."""

    run: Run
    first: int
    count: int
    spec: Spec
    todo: RangeSet = field(default_factory=RangeSet)  # changed by `put_todo` and `take_todo` only
    done: RangeSet = NO_ELEMENTS  # changed by `add_done` and `take_done` only
    succeeded: int = 0
    tasks: dict[int, Task] = NO_TASKS  # filled by `enter_task` only
    live: int = 0  # tasks with a live attempt
    unmet: set[int] = NO_PARENTS  # firsts of parents in this run that it waits for; replaced, never filled
    awaits: dict[int | TaskId, bool] = NO_TARGETS  # runs, tasks elsewhere -> must they succeed?; as `unmet`
    children: list[Array] = NO_CHILDREN  # filled by `add_child` only
    queued: bool = False  # it is in its class's heap
    accepted: bool = True  # it may be leased: it is durable, or is leased by the very command that brought it
    chunks: list[Chunk] = NO_CHUNKS  # by `low`, apart from each other; filled by `enter_chunk` only
    # Elements of `todo` in classes of their own -> serial of the entry by which they are queued there: an entry of another
    # class, which they were in before, does not count any more. Set by `set_apart`.
    apart: dict[int, int] = NO_APART
    sequence: ElementOrder | None = None  # order of its elements, if the submitter gave one [DIANE U10]
    cls: TaskClass | None = None
    held: bool = False  # no pilot gets it: it does nothing, or comes when everything else of the run has ended
    failed: int = 0  # elements that failed or are lost
    since: float = 0.0  # when its elements became ready
    way: float = 0.0  # seconds from its beginning to the end of its run, by the longest way; 0 outside of workflows
    known_trait: str = ""
    shared_lease: SharedLease | None = None
    inputs: ArrayInputs | None = None  # once its tasks are ready, if their files have content

    def put_todo(self, low: int, high: int) -> None:
        """Elements low .. high - 1 are neither live nor final any more."""
        self.todo.add_range(low, high)
        if self.inputs is not None:
            self.inputs.index.became_ready(self.inputs, low, high)

    def take_todo(self, low: int, high: int) -> None:
        """They are live or final."""
        self.todo.remove_range(low, high)
        if self.inputs is not None:
            self.inputs.index.was_taken(self.inputs, low, high, is_last=not self.todo)

    @property
    def trait(self) -> str:
        """Identifies the command, to compare failures with; made when first asked for."""
        if not self.known_trait:
            self.known_trait = trait_of(self.spec, self.run.owner)
        return self.known_trait

    def add_done(self, low: int, high: int) -> None:
        """Elements low .. high - 1 are final."""
        if self.done is NO_ELEMENTS:
            self.done = RangeSet()
        self.done.add_range(low, high)

    def take_done(self, low: int, high: int) -> None:
        """Elements low .. high - 1 are not final any more."""
        if self.done is not NO_ELEMENTS:
            self.done.remove_range(low, high)

    def enter_task(self, task: Task) -> Task:
        """Keep the object of an element that differs from the others."""
        if self.tasks is NO_TASKS:
            self.tasks = {}
        self.tasks[task.element] = task
        return task

    def drop_task(self, element: int) -> None:
        """Nothing of an element is kept any more."""
        del self.tasks[element]
        if not self.tasks:
            self.tasks = NO_TASKS

    def add_child(self, child: Array) -> None:
        """An array of the same run waits for this one."""
        if self.children is NO_CHILDREN:
            self.children = []
        self.children.append(child)

    def enter_chunk(self, chunk: Chunk) -> None:
        """Neighbouring elements were leased together."""
        if self.chunks is NO_CHUNKS:
            self.chunks = []
        insort_right(self.chunks, chunk, key=_low)

    def set_apart(self, element: int, serial: int) -> None:
        """An element of `todo` is in a class of its own."""
        if self.apart is NO_APART:
            self.apart = {}
        self.apart[element] = serial

    @property
    def due(self) -> float:
        """Its deadline; without one it comes after all that have one."""
        return self.spec.due(self.run.created)

    def first_plain(self) -> int:
        """The next element to be leased, of those in the array's own class."""
        if self.sequence is not None:
            return self.sequence.next(self.todo, self.apart)
        element = self.todo.first()
        while element in self.apart:
            element = self.todo.after(element)
        return element

    def chunk_of(self, element: int) -> Chunk | None:
        """The chunk that an element is in, if it is in one."""
        at = bisect_right(self.chunks, element, key=_low) - 1
        if at < 0:
            return None
        chunk = self.chunks[at]
        return chunk if element in chunk.left else None

    @property
    def waiting(self) -> bool:
        """True if its elements wait for parents."""
        return bool(self.unmet or self.awaits or self.held)

    @property
    def waits_for_others(self) -> bool:
        """True if something that it waits for is not over."""
        return bool(self.unmet or self.awaits)

    @property
    def bound(self) -> RunBound | None:
        """What limits how many of its elements run at once with others of its run."""
        category = self.spec.category
        return self.run.bound if category is None else self.run.categories[category.name]

    def count_live(self, by: int, lane: Lane | None = None) -> None:
        """Tasks got their first live attempt, or lost their last; `lane` is the one that they are in."""
        self.live += by
        self.run.live += by
        if (bound := self.bound) is not None:
            bound.count(by, lane)

    @property
    def complete(self) -> bool:
        """True if every element has succeeded."""
        return self.succeeded == self.count

    @property
    def is_over(self) -> bool:
        """True if every element is final."""
        return len(self.done) == self.count

    @property
    def throttled(self) -> bool:
        """True if as many are live as its own limit allows."""
        return self.spec.throttle is not None and self.live >= self.spec.throttle

    def state_of(self, element: int) -> TaskState | None:
        """The element's state; None if it is final (the database knows which)."""
        if element in self.tasks:
            return self.tasks[element].state
        if element in self.done:
            return None
        if self.chunk_of(element) is not None:
            return TaskState.LEASED
        return TaskState.WAITING if self.waiting else TaskState.READY


def _low(chunk: Chunk) -> int:
    return chunk.low


@dataclass(slots=True, eq=False)
class Plan:
    """How far a run is planned [SPHINX S1]."""

    stage: str  # its planning state
    data: dict[str, Any]  # what the steps were told and found
    note: str = ""  # why it waits there; not kept

    def row(self, run: int) -> PlanRow:
        """As the database keeps it."""
        return PlanRow(run, self.stage, json.dumps(self.data))


@dataclass(slots=True, eq=False)
class Run:
    """One submission in memory."""

    number: int
    owner: str
    name: str
    created: float
    cwd: str
    seed: int
    max_fail: int | None
    key: str
    digest: str
    labels: str
    signature: str
    arrays: list[Array] = field(default_factory=list)
    finals: dict[str, int] = field(default_factory=dict)  # state -> tasks
    total: int = 0
    live: int = 0  # tasks with a live attempt
    finished: float | None = None
    env_file: str = ""
    open: bool = False  # more tasks may be added
    last_poll: float = 0.0  # of its submitter, while it is open
    nonce: str = ""  # 16 hex characters that no run of another history has, whatever its number [ADR 0015]
    base: int = 0  # attempt numbers up to this one may have been used by a server that crashed
    parent: TaskId | None = None  # the task that submitted it
    depth: int = 0  # how many tasks wait above it, each for the next
    measured: int = -1  # tasks that were final when the ways of its arrays were measured; -1: they were not
    firsts: list[int] = field(default_factory=list)
    bound: RunBound | None = None  # of a run with `max_running`
    kept: dict[str, str] = field(default_factory=dict)  # outputs that others of its tasks may read -> their content
    kept_inside: dict[str, list[str]] = field(default_factory=dict)  # those that are directories -> names of the files
    categories: dict[str, RunBound] = NO_CATEGORIES  # by name; filled by `add_array` only
    lasts: list[Array] = NO_CHILDREN  # with the role `final`; filled by `add_array` only
    services: list[Array] = NO_CHILDREN  # with the role `service`; as `lasts`
    works: dict[str, Work] = NO_WORKS  # divisible ones, by the name of their table
    due: float | None = None  # its deadline, if all its tasks have the same one
    is_at_risk: bool = False  # it was said that it may miss it
    notify: tuple[str, ...] = ()  # URLs and commands that are told of it
    partial: Partial | None = None  # what its tasks emitted; None: nothing was, and nothing was said of it
    plan: Plan | None = None  # None: it was not planned by the server
    growth: Growth | None = None  # rules that make tasks of files; None: it has none

    def array_of(self, element: int) -> Array | None:
        """The array an element belongs to."""
        at = bisect_right(self.firsts, element) - 1
        if at < 0:
            return None
        array = self.arrays[at]
        return array if element < array.first + array.count else None

    def arrays_of(self, low: int, high: int) -> list[Array]:
        """The arrays that elements low .. high - 1 belong to, in order."""
        return self.arrays[bisect_right(self.firsts, low) - 1 : bisect_left(self.firsts, high)]

    @property
    def is_planning(self) -> bool:
        """True if nothing of it may start yet."""
        return self.plan is not None and self.plan.stage != UNFINISHED

    @property
    def max_running(self) -> int | None:
        """How many of its tasks may run at once; None: as many as there is capacity for."""
        return self.bound.most if self.bound is not None else None

    @property
    def settled(self) -> int:
        """How many tasks are final."""
        return sum(self.finals.values())


@dataclass(slots=True)
class Pilot:
    """One pilot as the server sees it."""

    name: str
    state: PilotState
    owner: str
    site: str
    host: str
    identity: str
    session: str  # SHA-256 of the secret
    room: Capacity
    version: str
    tags: dict[str, TagValue]
    joined: float
    seen: float
    free: Capacity
    group: str = ""
    token: str = ""
    ends: float | None = None  # when its allocation ends
    former: list[str] = field(default_factory=list)
    reason: str = ""
    revoked: bool = False
    bound: bool = False  # its session is bound to a certificate, and good over TLS only
    protocol: int = PROTOCOL
    nonces: dict[int, str] = field(default_factory=dict)  # of the last exchanges, by seq
    ended: OrderedDict[str, None] = field(default_factory=OrderedDict)  # reported lately: their logs may still come
    watched: dict[tuple[str, str], float] = field(default_factory=dict)  # (attempt, stream) -> when it was ordered
    seq: int = 0
    replies: dict[int, Reply] = field(default_factory=dict)
    parked: int | None = None  # seq of the exchange that waits
    parked_until: float = 0.0
    live: dict[AttemptId, Attempt] = field(default_factory=dict)
    chunks: dict[tuple[int, int, int], Chunk] = field(default_factory=dict)  # by run, low and incarnation
    chunked: int = 0  # elements in them
    batches: deque[tuple[AttemptId, int]] = field(default_factory=lambda: deque(maxlen=64))  # reported lately
    proofs: Proofs | None = None  # of leases, in the exchange that is being handled
    stopping: dict[str, float] = field(default_factory=dict)  # attempts it was ordered to stop lately, and when
    asked_move: float = float("-inf")  # when it was last ordered to let a task go on elsewhere
    asked_back: float = 0.0  # when it was last ordered to give something back
    facts: dict[str, TagValue] | None = None  # tags overlaid with the server's own facts, made when first needed
    stamp: int = 0  # raised when something changed that expressions may read
    eligibilities: dict[str, Eligibility] = field(default_factory=dict)  # by owner: classes that it can run
    published: dict[str, int] = field(default_factory=dict)  # owner -> tags that their tasks published here
    blind: dict[tuple[View, ...], float] = field(default_factory=dict)  # what it does not see, and when that was found
    proven: bool = False  # something succeeded on its host
    sole: int = -1  # serial of the only class that it holds; -1: several, or not known
    pace: float = 1.0  # how long tasks take here over how long they take on average
    orders: list[Order] = field(default_factory=list)
    draining: str = ""  # why it takes nothing new
    is_stopped: bool = False  # it was ordered to have what can write a checkpoint go on elsewhere
    renewing: str = ""  # digest of the code that it was ordered to become
    leaving: bool = False  # it ends by its own decision
    suspect: bool = False
    no_space: tuple[float, str] = (float("-inf"), "")  # when the server had no space for what it brings, and why
    is_reconciled: bool = True  # False until it has sent its held list to this incarnation
    may_be_stale: bool = False  # an exchange without acknowledgement of a reply of this incarnation may be from before
    lone: AttemptId | None = None  # held alone, to see whether the pilot is lost again: nothing else is leased here
    cleared_for: TaskId | None = None  # it gets nothing more until it is empty, for a task that must be alone
    returns: int = 0  # exchanges in a row in which it gave back what it was leased, and began nothing
    returned_at: int = 0  # number of the last of them
    lending: int = 0  # attempts that lend their cores
    lent: int = 0  # those cores

    @property
    def unfit(self) -> str:
        """Why it can take nothing just now, as it reports; it recovers by itself."""
        return str(self.tags.get("unfit", ""))

    def story(self) -> list[str]:
        """Details for the error of an illegal transition."""
        return [self.name, self.host, self.reason]

    def chunk_of(self, attempt: AttemptId) -> Chunk | None:
        """The chunk of this pilot that an attempt is in."""
        for chunk in self.chunks.values():
            if attempt.element in chunk.left and chunk.attempt(attempt.element) == attempt:
                return chunk
        return None

    def reach(self, first: AttemptId) -> int:
        """The element behind the last neighbour of an attempt in its chunk; its own element if it is in none."""
        chunk = self.chunk_of(first)
        return chunk.left.reach(first.element) if chunk is not None else first.element

    def holds(self, attempt: AttemptId) -> bool:
        """True if this attempt is leased to this pilot."""
        return attempt in self.live or self.chunk_of(attempt) is not None

    def ended_lately(self, attempt: AttemptId) -> bool:
        """True if it was reported lately, so that its last log lines may still come."""
        if str(attempt) in self.ended:
            return True
        return any(
            first.element <= attempt.element < first.element + count
            and first._replace(element=attempt.element) == attempt
            for first, count in self.batches
        )

    @property
    def held(self) -> int:
        """How many attempts it has."""
        return len(self.live) + self.chunked

    @property
    def holder(self) -> str:
        """Its owner, or `@group`, as events name it."""
        return self.owner or f"@{self.group}"

    @property
    def mesh(self) -> str:
        """By which attempts that were granted to its mesh name their holder; empty: it is in none."""
        return f"{MESH}{self.site}/{self.holder}" if self.bound and self.tags.get(PEER_TAG) else ""

    @property
    def names(self) -> tuple[str, ...]:
        """Its own name, those that it had before, and that of its mesh, whose tasks it may have been given."""
        return (self.name, *self.former, self.mesh) if self.mesh else (self.name, *self.former)

    def note_class(self, serial: int, is_first: bool) -> None:
        """Note that it was leased tasks of a class; `is_first`: it held nothing before."""
        self.sole = serial if is_first or self.sole == serial else -1

    def has_heard(self, seq: int) -> bool:
        """True if this exchange, or one two after it, was received before."""
        return seq < self.seq - 1 or seq == self.seq or seq in self.replies or seq in self.nonces

    def keep(self, reply: Reply) -> None:
        """Remember a reply so that a repeated exchange gets the same one."""
        self.replies[reply.seq] = reply
        while len(self.replies) > KEPT_REPLIES:
            del self.replies[next(iter(self.replies))]  # the one answered first: a parked exchange is answered late
