"""Messages between pilot and server [protocol 5]: plain frozen dataclasses, encoded by `codec`."""

from __future__ import annotations

from dataclasses import field
from typing import Optional, Union

from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_STREAM

PROTOCOL = 5
GO_ON_LATER = 85  # the exit code of a task that wrote its checkpoint and wants to go on later
# Fields of a message by the protocol that introduced them; a pilot with an older one gets the message without them.
SINCE: dict[str, dict[str, int]] = {
    "Lease": {
        "proof": 5, "precedence": 5, "checkpoint_every": 5, "stdout": 5, "stderr": 5, "stdin_data": 5, "max_output": 5,
        "visible": 5, "content": 5, "finalizer": 5, "max_tasks_per_child": 5, "lane": 5, "modules": 5, "session": 5,
    },
    "Order": {"path": 5, "offset": 5, "request": 5, "within": 5},
}  # fmt: skip
ORDERS: dict[str, int] = {
    "cancel": 1,
    "drain": 1,
    "signal": 2,
    "tail": 2,
    "renew": 2,
    "take_back": 3,
    "move": 4,
    "stop": 5,
    "list_files": 5,
    "read_file": 5,
}  # kind -> protocol
TagValue = Union[str, int, float, bool]
ParamValue = Union[str, int, float, bool]


@dataclass(frozen=True)
class Capacity:
    """How much of a host: what a pilot offers, has free, or a task takes."""

    cores: int = 0
    memory: int = 0
    disk: int = 0
    gpus: int = 0


@dataclass(frozen=True)
class FormerPilot:
    """The former identity of a pilot that registers again: it may still report the attempts it held under that name."""

    pilot: str
    session: str = field(repr=False)


@dataclass(frozen=True)
class Register:
    """The registration of a pilot, or the report that its host is unfit [CMS C1; GWP G1]."""

    protocol: int
    version: str
    host: str
    identity: str  # machine-id + uid, hashed: a host that comes back is known by it
    room: Capacity
    site: str = ""  # empty: the server chooses (the token's site, else "local")
    tags: dict[str, TagValue] = field(default_factory=dict)
    former: Optional[FormerPilot] = None
    unfit: list[str] = field(default_factory=list)  # not empty: why this host takes no task
    ends: Optional[float] = None  # seconds until the allocation ends, where there is one
    nonce: str = ""  # the same when a registration is repeated: it makes one pilot, not two
    digest: str = ""  # SHA-256 of the pilot's zip: another than the server's is renewed when idle
    ended: list[str] = field(default_factory=list)  # pilots of this host that are dead: SHA-256 of their sessions


@dataclass(frozen=True)
class Registered:
    """The answer to a registration: the identity and the timing of the pilot."""

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
    certificate: str = (
        ""  # PEM, made by the server for this pilot (over TLS only); with `key` it authenticates the pilot
    )
    key: str = field(default="", repr=False)
    blob_dir: str = ""  # where the server keeps blobs; a pilot that can read log_mark reads them there


@dataclass(frozen=True)
class Held:
    """Attempts the pilot holds: `leased` (not started), `running`, or `done` (not acknowledged). `count`: so many on
    neighbouring elements, all of the same number, the first of which is named."""

    attempt: str
    stage: str
    count: int = 1


@dataclass(frozen=True)
class Report:
    """How an attempt ended. Kept by the pilot until a reply acknowledges it."""

    attempt: str
    outcome: str  # succeeded, failed, cancelled, returned, checkpointed
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
    # Of a function: what it returned or raised, as a payload text (see `payload`); of a command: its outputs, if they were
    # kept on the server (see `model/task/kept_files`).
    result: str = ""
    out: int = 0  # bytes that are kept of its stdout
    err: int = 0
    files: dict[str, str] = field(default_factory=dict)  # of a checkpoint: name -> digest of the blob that holds it
    staging: float = 0.0  # seconds spent on moving files in and out
    # "oom_kill": the kernel ended it for want of memory; "no_space": the disk is full; "not_visible": this host does not
    # see the submitter's files
    evidence: str = ""


@dataclass(frozen=True)
class Published:
    """Tags that a running task wrote to its pipe [GWP G4]; an empty text takes one away."""

    attempt: str
    tags: dict[str, TagValue]


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint files of an attempt that runs on, as they were at one moment; their blobs are on the server
    [GWP G10]."""

    attempt: str
    files: dict[str, str]  # name -> digest of the blob
    number: int  # rises with each that a pilot sends: a message that was overtaken brings an old one once more


@dataclass(frozen=True)
class Batch:
    """Attempts on neighbouring elements that all succeeded: one message for `count` of them, a column for each
    thing that differs. An empty column means that all of its values are empty or 0."""

    attempt: str  # the first
    count: int
    started: list[float] = field(default_factory=list)
    duration: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    max_rss: list[int] = field(default_factory=list)
    last_line: list[str] = field(default_factory=list)
    result: list[str] = field(default_factory=list)
    out: list[int] = field(default_factory=list)
    err: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class LogPiece:
    """A piece of a stream that the server cannot read from a shared file system."""

    attempt: str
    stream: str  # stdout, stderr
    text: str
    offset: int = 0  # bytes of the server's copy before it; 0 begins the copy anew
    data: str = ""  # instead of the text: base64 of bytes that are no UTF-8, or that JSON would make much longer


@dataclass(frozen=True)
class Proof:
    """The proof from a lease that these attempts were given to this pilot. A server that crashed before it wrote the
    lease down accepts reports only with it [ADR 0015]."""

    attempt: str  # the first
    count: int
    proof: str


@dataclass(frozen=True)
class FileEntry:
    """One entry of a directory: `kind` is file, directory, link or other."""

    name: str
    kind: str
    size: int = 0
    modified: float = 0.0


@dataclass(frozen=True)
class FileAnswer:
    """The answer to an order to list a directory or read a file of a running attempt; `error`: why there is none."""

    request: str
    error: str = ""
    code: str = ""  # of the error: not_running, no_such_file, leads_out, not_regular_file
    data: str = ""  # base64
    offset: int = 0  # of the data in the file
    size: int = 0  # of the file; of a directory, how many entries it has
    entries: list[FileEntry] = field(default_factory=list)
    directory: str = ""  # where the attempt runs


@dataclass(frozen=True)
class Exchange:
    """The pilot's one request: it brings reports, changes and free capacity, and gets leases and orders [protocol 5]."""

    protocol: int
    pilot: str
    session: str = field(repr=False)
    seq: int
    ack: int  # the last reply seen
    free: Capacity
    held: list[Held] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    tags: dict[str, TagValue] = field(default_factory=dict)  # only what changed
    tails: list[LogPiece] = field(default_factory=list)
    leaving: str = ""  # not empty: the pilot takes no more tasks, and why
    nonce: str = ""  # new for each seq: the same seq with another nonce is a second pilot with this session
    batches: list[Batch] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    proofs: list[Proof] = field(default_factory=list)  # of leases that the server may have forgotten
    ended: list[str] = field(default_factory=list)  # as in Register, seen since
    checkpoints: list[Checkpoint] = field(default_factory=list)
    files: list[FileAnswer] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)  # running attempts that wait for other tasks: they lend their cores


@dataclass(frozen=True)
class Lease:
    """An attempt to run, with everything the pilot needs for it; or `count` of them, on neighbouring elements of one
    array under the same number, of which the first is named [ADR 0009]. `chunk.single` takes one out."""

    attempt: str
    room: Capacity
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
    count: int = 1
    params: list[dict[str, ParamValue]] = field(default_factory=list)  # for each element; not empty: texts have holes
    seed: Optional[int] = None  # the run's master seed, of which each element's is made; None: env has it already
    function: str = ""  # a payload text: the callable. Empty: this is a command
    calls: list[str] = field(default_factory=list)  # a payload text for each element: (args, kwargs)
    initializer: str = ""  # a payload text: (callable, args), called once in each runner
    python: str = ""  # the interpreter of functions
    setup: list[str] = field(default_factory=list)  # lines of shell before the command, in the same shell
    container: str = ""  # the image that it runs in
    checkpoint: list[str] = field(default_factory=list)  # files by which it can go on later
    restored: dict[str, str] = field(default_factory=dict)  # of its last part: name -> digest of the blob
    part: int = 0  # how many parts came before
    proof: str = (
        ""  # that this pilot got it: sent back while a crash of the server could still undo the lease (see `Proof`)
    )
    precedence: int = 0  # it begins before whatever waits on the pilot with a smaller one
    checkpoint_every: float = 60.0  # seconds between checkpoints that travel while it runs; 0: only when it ends
    visible: dict[str, str] = field(
        default_factory=dict
    )  # paths that it needs or prefers -> evidence (`model/task/visible`)
    stdout: str = ""  # the submitter's file for it; empty: it is kept with the logs
    stderr: str = ""
    stdin_data: str = ""  # a payload text: the bytes of its standard input
    max_output: int = MAX_STREAM  # bytes that are kept of each stream
    finalizer: str = ""  # a payload text: (callable, args), called when a runner ends
    max_tasks_per_child: int = 0  # calls that one runner may make; 0: any number
    lane: str = ""  # calls with the same text here are made one after another
    modules: str = ""  # a payload text: the sources of the submitter's own modules (`module_sources`)
    session: str = ""  # only its calls share runners; empty: only those of the run
    content: dict[str, str] = field(default_factory=dict)  # files that it reads -> blob and mode (`model/task/content`)


@dataclass(frozen=True)
class Order:
    """An instruction of the server to a pilot.

    `cancel` an attempt; `drain`: finish, take nothing new, end; `signal` an attempt; `tail`: send what an attempt
    writes, for a while; `renew`: when idle, become the pilot whose zip has the digest in `why`; `take_back`: give
    back those of `count` attempts from this one on that have not started; `move`: have an attempt that can write a
    checkpoint end, so that it goes on elsewhere; `stop`: as `drain`, but what can write a checkpoint does so at once;
    after `within` seconds a drain or stop ends what still runs. `list_files`, `read_file`: answer `request` with what
    is at `path` in the directory of a running attempt, a file from `offset` on (below 0: from its end) and up to `count`
    bytes of it.
    """

    kind: str
    attempt: str = ""
    why: str = ""
    signal: int = 0
    stream: str = ""
    count: int = 1
    path: str = ""
    offset: int = 0
    request: str = ""
    within: Optional[float] = None


@dataclass(frozen=True)
class Verdict:
    """How the server took a report, or `count` of a batch: `recorded`, `adopted`, `stale`, `final`, `unknown`."""

    attempt: str
    verdict: str
    count: int = 1


@dataclass(frozen=True)
class Reply:
    """The answer to one exchange; it acknowledges every report that exchange carried."""

    seq: int
    incarnation: int
    leases: list[Lease] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    hold: float = 10.0  # an empty answer to the next exchange is held so long
