"""The engine's memory: runs, arrays, live tasks, attempts and pilots. Data and lookups; the rules are elsewhere.

A run is arrays laid end to end; a single task is an array of one. An element is in exactly one of three places:
`todo` (waiting or ready, according to its array), `tasks` with a live attempt, or `done`. A Task object exists
only for elements that have a row: live ones, and ready ones with a history. Nothing finished stays [ADR 0001].
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from shoal.model.ids import AttemptId, TaskId
from shoal.model.limits import KEPT_REPLIES
from shoal.model.rangeset import RangeSet
from shoal.model.spec import Needs, Spec
from shoal.model.states import PilotState, TaskState
from shoal.wire.messages import PROTOCOL, Capacity, Order, Reply, TagValue

if TYPE_CHECKING:
    from shoal.engine.matching.classes import TaskClass
    from shoal.engine.matching.element_order import ElementOrder
    from shoal.engine.matching.eligibility import Eligibility
    from shoal.engine.pilots.lease_proofs import Proofs


class ClassKey(NamedTuple):
    """Everything matching looks at [ADR 0011]: tasks of one key are the same to every pilot."""

    owner: str
    needs: Needs
    priority: float
    rerun: str
    kind: str  # program or function
    require: str = ""
    rank: str = ""
    time: float | None = None
    surroundings: str = ""  # the other task fields that matching looks at, such as set-up and container
    avoid: tuple[str, ...] = ()  # hosts
    avoid_sites: tuple[str, ...] = ()
    alone: bool = False  # it gets a pilot for itself


@dataclass(slots=True)
class TaskOverrides:
    """What makes a task differ from its array since something happened to it."""

    memory: int = 0  # bytes it is given instead of what it asked for: it ran out of that
    base: int = 0  # bytes that the cap of that is counted from, if it asked for none
    raises: int = 0  # of memory
    avoid: list[str] = field(default_factory=list)  # hosts it shall not come back to
    refunds: int = 0  # failures that cost it no retry
    stagings: int = 0  # failures to bring its files that cost it none
    files: dict[str, str] = field(default_factory=dict)  # its checkpoint: name -> digest
    part: int = 0  # checkpoints so far that ended an attempt
    idle_parts: int = 0  # of those, the last ones that brought it no further
    saved_by: str = ""  # the attempt whose checkpoint arrived while it ran, and
    saved_number: int = 0  # its number, and
    began_with: dict[str, str] = field(default_factory=dict)  # the files that this attempt began with
    avoid_sites: list[str] = field(default_factory=list)  # it is tried at another site first
    failed_at: list[list[str]] = field(default_factory=list)  # host, site and holder of pilots it was sent away from
    alone: bool = False  # pilots were lost that held it among others: its next try shows whether it is to blame

    @property
    def is_apart(self) -> bool:
        """Does matching have to tell it from its neighbours?"""
        return bool(self.memory or self.avoid or self.avoid_sites or self.alone)

    def avoids(self, host: str, site: str) -> bool:
        """Is it to be tried elsewhere first?"""
        return host in self.avoid or site in self.avoid_sites


@dataclass(slots=True)
class Attempt:
    """A live try: leased to a pilot that may or may not have begun it."""

    id: AttemptId
    pilot: str
    leased: float
    running: bool = False
    reply_seq: int = 0  # the reply that carried it; 0: not known, so send it again if the pilot lacks it
    started: float | None = None
    orphaned: float | None = None  # its pilot is gone, the right to run ends then (exclusive, never)
    site: str | None = None  # where it is counted as leased; None: nowhere
    cores: int = 0  # that its owner's share counts as running, since
    counted: float = 0.0
    took: float | None = None  # core seconds, once they are reported
    resent: int = 0  # times that it was sent again to a pilot that neither holds nor reports it
    assigned: str = ""  # how it came to its pilot, if several pilots could have had it
    reserved: float = 0.0  # core seconds that its owner's quota is charged with while it is leased
    was_alone: bool = False  # its pilot is gone, and held nothing else
    precedence: int = 0  # as in its lease
    is_ahead: bool = False  # no slot was free for it when it was leased


@dataclass(slots=True)
class Task:
    """A task that is live or has a history."""

    array: Array
    element: int
    state: TaskState = TaskState.READY
    number: int = 0  # highest attempt number handed out
    retries: int = 0
    losses: int = 0
    live: dict[AttemptId, Attempt] = field(default_factory=dict)
    past: dict[AttemptId, str] = field(default_factory=dict)  # attempts given up as lost, and their pilots
    note: str = ""  # what went wrong last
    cause: str = ""
    lost_on: list[str] = field(default_factory=list)
    special: TaskOverrides | None = None

    @property
    def needs(self) -> Needs:
        """What it takes of a pilot."""
        needs = self.array.spec.needs
        return replace(needs, memory=self.special.memory) if self.special is not None and self.special.memory else needs

    @property
    def differences(self) -> TaskOverrides:
        """What makes it differ, to be changed."""
        if self.special is None:
            self.special = TaskOverrides()
        return self.special

    @property
    def id(self) -> TaskId:
        """`r12.7`."""
        return TaskId(self.array.run.number, self.element)

    def story(self) -> list[str]:
        """What is known of it, for the error that must never happen."""
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
    left: RangeSet  # elements that are still in it
    reserved: float = 0.0  # as in Attempt, for each element
    resent: int = 0  # as in Attempt
    precedence: int = 0  # as in its lease
    is_ahead: bool = False  # no slot was free for it when it was leased

    def attempt(self, element: int) -> AttemptId:
        """The attempt that an element of it is under."""
        run = self.array.run
        return AttemptId(run.number, element, self.number, self.incarnation, run.nonce)


@dataclass(slots=True, eq=False)
class Array:
    """One spec of a run in memory: elements first .. first + count - 1."""

    run: Run
    first: int
    count: int
    spec: Spec
    todo: RangeSet = field(default_factory=RangeSet)
    done: RangeSet = field(default_factory=RangeSet)
    succeeded: int = 0
    tasks: dict[int, Task] = field(default_factory=dict)
    live: int = 0  # tasks with a live attempt
    unmet: set[int] = field(default_factory=set)  # firsts of parents not yet complete
    children: list[Array] = field(default_factory=list)
    queued: bool = False  # stands in its class's heap
    accepted: bool = True  # False while it is on its way to the disk
    chunks: list[Chunk] = field(default_factory=list)  # by `low`, apart from each other
    trait: str = ""  # by what its failures are compared with others'
    apart: dict[int, bool] = field(default_factory=dict)  # elements of `todo` in classes of their own: queued there?
    sequence: ElementOrder | None = None  # the order its person gave to its elements [DIANE U10]
    cls: TaskClass | None = None
    since: float = 0.0  # when its elements became ready

    @property
    def due(self) -> float:
        """Its deadline; without one it comes after all that have one."""
        delay, moment = self.spec.deadline
        if delay is not None:
            return self.run.created + delay
        return moment if moment is not None else float("inf")

    def first_plain(self) -> int:
        """The next element to be leased, of those that stand in the array's own class."""
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
        """Do its elements wait for parents?"""
        return bool(self.unmet)

    def count_live(self, by: int) -> None:
        """A task got its first live attempt, or lost its last."""
        self.live += by
        self.run.live += by

    @property
    def complete(self) -> bool:
        """Has every element succeeded?"""
        return self.succeeded == self.count

    @property
    def throttled(self) -> bool:
        """Are as many running as its own limit allows?"""
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
    asked: float = 0.0  # when its submitter was last heard of, while it is open
    accepted: bool = True  # False while its submission is on its way to the disk
    nonce: str = ""  # 16 hex characters that no run of another history has, whatever its number [ADR 0015]
    base: int = 0  # attempt numbers up to this one may have been handed out by a server that crashed
    firsts: list[int] = field(default_factory=list)

    def array_of(self, element: int) -> Array | None:
        """The array an element belongs to."""
        at = bisect_right(self.firsts, element) - 1
        if at < 0:
            return None
        array = self.arrays[at]
        return array if element < array.first + array.count else None

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
    watched: dict[tuple[str, str], float] = field(default_factory=dict)  # (attempt, stream) -> when it was asked for
    seq: int = 0
    replies: dict[int, Reply] = field(default_factory=dict)
    parked: int | None = None  # seq of the exchange that waits
    parked_until: float = 0.0
    live: dict[AttemptId, Attempt] = field(default_factory=dict)
    chunks: dict[tuple[int, int, int], Chunk] = field(default_factory=dict)  # by run, low and incarnation
    chunked: int = 0  # elements in them
    batches: deque[tuple[AttemptId, int]] = field(default_factory=lambda: deque(maxlen=64))  # reported lately
    proofs: Proofs | None = None  # of leases, in the exchange that is being taken in
    stopping: dict[str, float] = field(default_factory=dict)  # attempts it was told to stop lately, and when
    asked_move: float = float("-inf")  # when it was last asked to let a task go on elsewhere
    asked_back: float = 0.0  # when it was last asked to give something back
    facts: dict[str, TagValue] | None = None  # tags with the server's own facts over them, made when first asked for
    stamp: int = 0  # raised when something changed that expressions may look at
    eligibilities: dict[str, Eligibility] = field(default_factory=dict)  # by owner: classes that it can run
    published: dict[str, int] = field(default_factory=dict)  # owner -> tags that their tasks left here
    proven: bool = False  # something succeeded here
    sole: int = -1  # serial of the class that all it holds is of; -1: of several, or it is not known
    pace: float = 1.0  # how long tasks take here over how long they take on average
    orders: list[Order] = field(default_factory=list)
    draining: str = ""  # why it takes nothing new
    renewing: str = ""  # the zip it was told to become
    leaving: bool = False  # it said so itself
    suspect: bool = False
    heard: bool = True  # has it sent its held list to this incarnation?
    may_be_stale: bool = False  # an exchange that does not acknowledge a reply of this life may be older than its start
    lone: AttemptId | None = None  # held alone, to see whether the pilot is lost again: nothing else is leased here
    cleared_for: TaskId | None = None  # gets nothing more until it is empty, for a task that must be alone
    returns: int = 0  # exchanges in a row in which it gave back what it was leased, and began nothing
    returned_at: int = 0  # number of the last of them

    @property
    def unfit(self) -> str:
        """Why it can take nothing just now, as it says itself; it comes back by itself."""
        return str(self.tags.get("unfit", ""))

    def story(self) -> list[str]:
        """What is known of it, for the error that must never happen."""
        return [self.name, self.host, self.reason]

    def chunk_of(self, attempt: AttemptId) -> Chunk | None:
        """The chunk of this pilot that an attempt is in."""
        for chunk in self.chunks.values():
            if attempt.element in chunk.left and chunk.attempt(attempt.element) == attempt:
                return chunk
        return None

    def reach(self, first: AttemptId) -> int:
        """The element up to which the neighbours of an attempt are in its chunk; its own if it is in none."""
        chunk = self.chunk_of(first)
        return chunk.left.reach(first.element) if chunk is not None else first.element

    def holds(self, attempt: AttemptId) -> bool:
        """Is this attempt with this pilot?"""
        return attempt in self.live or self.chunk_of(attempt) is not None

    def ended_lately(self, attempt: AttemptId) -> bool:
        """Was it reported a moment ago, so that its last words may still come?"""
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
        """Whose it is, as the journal writes it."""
        return self.owner or f"@{self.group}"

    @property
    def names(self) -> tuple[str, ...]:
        """Its own name, and those that it is known to have had before."""
        return (self.name, *self.former)

    def note_class(self, serial: int, is_first: bool) -> None:
        """It was leased tasks of a class; `is_first`: it held nothing before."""
        self.sole = serial if is_first or self.sole == serial else -1

    def has_heard(self, seq: int) -> bool:
        """Did this exchange, or one two after it, come before?"""
        return seq < self.seq - 1 or seq == self.seq or seq in self.replies or seq in self.nonces

    def keep(self, reply: Reply) -> None:
        """Remember a reply so that a repeated exchange gets the same one."""
        self.replies[reply.seq] = reply
        while len(self.replies) > KEPT_REPLIES:
            del self.replies[next(iter(self.replies))]  # the one answered first: a parked exchange is answered late


@dataclass(slots=True)
class EndedPilot:
    """What is remembered of a pilot that ended: it may come back for what it held, if it can prove who it was."""

    session: str
    former: list[str]
    holder: str
    token: str
    ended: float
    reason: str
    revoked: bool
    bound: bool = False  # its session was good over TLS only
    heir: str = ""  # the pilot that came back for what it held: nobody else can
