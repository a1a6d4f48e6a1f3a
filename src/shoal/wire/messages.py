"""What pilot and server say to each other [contract 5]: plain frozen dataclasses, encoded by `codec`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional, Union

PROTOCOL = 2
# What a message has since which protocol; to a pilot that speaks an older one it is sent without.
SINCE: dict[str, dict[str, int]] = {
    "Registered": {"certificate": 2, "key": 2},
    "Order": {"signal": 2, "stream": 2},
}
ORDERS: dict[str, int] = {"cancel": 1, "drain": 1, "signal": 2, "tail": 2, "renew": 2}  # kind -> protocol
TagValue = Union[str, int, float, bool]


@dataclass(frozen=True)
class Room:
    """How much of a host: what a pilot offers, has free, or a task takes."""

    cores: int = 0
    memory: int = 0
    disk: int = 0
    gpus: int = 0


@dataclass(frozen=True)
class Former:
    """Who a re-enrolling pilot was: it may still speak for the attempts it held under that name."""

    pilot: str
    session: str = field(repr=False)


@dataclass(frozen=True)
class Register:
    """A pilot says that it is there, or that its host is unfit [C1, G1 notify pilot]."""

    protocol: int
    version: str
    host: str
    identity: str  # machine-id + uid, hashed: a host that comes back is known by it
    room: Room
    site: str = ""  # empty: the server says (the token's site, else "local")
    tags: dict[str, TagValue] = field(default_factory=dict)
    former: Optional[Former] = None
    unfit: list[str] = field(default_factory=list)  # not empty: why this host takes no task
    ends: Optional[float] = None  # seconds until the allocation ends, where there is one
    nonce: str = ""  # the same when a registration is repeated: it makes one pilot, not two
    digest: str = ""  # SHA-256 of the pilot's zip: another than the server's is renewed when idle


@dataclass(frozen=True)
class Registered:
    """The server takes a pilot in."""

    pilot: str
    session: str = field(repr=False)
    incarnation: int
    beat: float
    lease: float
    hold: float
    kill_after: float
    grace: float
    idle_end: float
    spool_end: float
    log_dir: str = ""  # where the server reads logs
    log_mark: str = ""  # a file in it; a pilot that can read it writes its logs there, others send tails
    certificate: str = ""  # PEM, made by the server for this pilot (over TLS only); with `key` it proves who speaks
    key: str = field(default="", repr=False)


@dataclass(frozen=True)
class Held:
    """An attempt the pilot has: `leased` (not started), `running`, or `done` (its report is not acknowledged)."""

    attempt: str
    stage: str


@dataclass(frozen=True)
class Report:
    """How an attempt ended. Kept by the pilot until a reply acknowledges it."""

    attempt: str
    outcome: str  # succeeded, failed, cancelled, returned
    cause: str = ""
    message: str = ""  # one plain sentence
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    started: Optional[float] = None  # the pilot's wall clock
    duration: float = 0.0
    cpu: float = 0.0
    max_rss: int = 0
    last_line: str = ""
    stderr_tail: str = ""
    new_files: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Tail:
    """A piece of a stream that the server cannot read from a shared file system."""

    attempt: str
    stream: str  # stdout, stderr
    text: str
    offset: int = 0  # bytes of the server's copy before it; 0 begins the copy anew


@dataclass(frozen=True)
class Exchange:
    """The pilot's one verb: reports, changes and free room in, leases and orders out (A3)."""

    protocol: int
    pilot: str
    session: str = field(repr=False)
    seq: int
    ack: int  # the last reply seen
    free: Room
    held: list[Held] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    tags: dict[str, TagValue] = field(default_factory=dict)  # only what changed
    tails: list[Tail] = field(default_factory=list)
    leaving: str = ""  # not empty: the pilot takes no more tasks, and why
    nonce: str = ""  # new for each seq: the same seq with another nonce is a second pilot with this session


@dataclass(frozen=True)
class Lease:
    """One attempt to run, with everything the pilot needs for it."""

    attempt: str
    room: Room
    rerun: str
    command: list[str] = field(default_factory=list)
    shell: Optional[str] = None
    cwd: str = ""  # the submitter's directory
    own: bool = False  # a directory of its own in any case
    env: dict[str, str] = field(default_factory=dict)
    env_file: str = ""  # the submitter's environment, where this host can read it
    stdin: Optional[str] = None
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    time: Optional[float] = None


@dataclass(frozen=True)
class Order:
    """What the server wants done.

    `cancel` an attempt; `drain`: finish, take nothing new, end; `signal` an attempt; `tail`: send what an attempt
    writes, for a while; `renew`: when idle, become the pilot whose zip has the digest in `why`.
    """

    kind: str
    attempt: str = ""
    why: str = ""
    signal: int = 0
    stream: str = ""


@dataclass(frozen=True)
class Verdict:
    """What became of a report: `recorded`, `adopted`, `stale`, `final`, `unknown`."""

    attempt: str
    verdict: str


@dataclass(frozen=True)
class Reply:
    """The answer to one exchange; it acknowledges every report that exchange carried."""

    seq: int
    incarnation: int
    leases: list[Lease] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    neighbours: list[str] = field(default_factory=list)
    hold: float = 10.0  # an empty answer to the next exchange is held so long
