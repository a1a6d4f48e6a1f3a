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
        "visible": 5, "content": 5, "kept": 5, "finalizer": 5, "max_tasks_per_child": 5, "lane": 5, "modules": 5, "session": 5,
        "holders": 5, "reduce": 5, "emitted": 5, "store": 5, "shared": 5, "measure": 5, "require": 5,
        "rank": 5, "sent_on": 5, "parents": 5,
    },
    "Order": {"path": 5, "offset": 5, "request": 5, "within": 5},
    "Registered": {"peer": 5, "neighbours": 5, "shut_out": 5, "leader": 5},
    "Reply": {
        "kept": 5, "neighbours": 5, "gone": 5, "leader": 5, "window": 5, "window_gone": 5, "window_number": 5, "unsealed": 5,
    },
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
# Where a file of a task came from, as its steps tell: nearest first.
ORIGINS = ("cache", "directory", "host", "peer", "storage", "server", "origin")
BRIDGE = "bridge"  # tag of a pilot whose slots are tasks of another server
TOO_LARGE = "too_large"  # evidence of a pilot: an input has no space on its host, however empty that is
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
class Neighbour:
    """Another pilot of the same mesh, which can be asked for files: its id, and where it listens."""

    id: str
    address: str


@dataclass(frozen=True)
class Leadership:
    """Which pilot leads a mesh. A greater `term` replaces a smaller one, whoever named it: the server, or the members
    themselves while it is away [LBO III.B; ADR 0056]."""

    term: int
    id: str
    address: str


@dataclass(frozen=True)
class Sealed:
    """A message of one pilot to the server, or the answer to it, that others hand on: they can delay it, not forge it."""

    pilot: str
    body: str  # the JSON of the message
    seal: str  # HMAC-SHA256 under a key that only this pilot and the server have, hexadecimal


@dataclass(frozen=True)
class Bundle:
    """The exchanges of many members of a mesh, as its leader sends them."""

    term: int
    items: list[Sealed]


@dataclass(frozen=True)
class BundleReply:
    """The answers to them."""

    items: list[Sealed]


@dataclass(frozen=True)
class BlobPeers:
    """Which pilots of the asker's mesh fetched a blob from the server; `wait`: one of them does so just now, and will have it.
    Else the asker is the one that fetches it."""

    holders: list[Neighbour]
    wait: bool = False


@dataclass(frozen=True)
class Accusation:
    """A peer gave wrong bytes for a digest again and again; the pilot talks to it no more."""

    peer: str
    why: str


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
    peer: str = ""  # how its certificate names it to the pilots of its mesh (`dht/peers`)
    neighbours: list[Neighbour] = field(default_factory=list)  # some of them
    shut_out: list[str] = field(default_factory=list)  # ids of pilots that are none any more, whatever they show
    leader: Optional[Leadership] = None  # at a site in mode `distributed`


@dataclass(frozen=True)
class Ticket:
    """What the ticket of an allocation has besides the join string: what the server would answer to a registration, without name
    and session, and its CA certificate (PEM). With it a pilot that starts while the server is away is a member of its mesh
    until the server registers it [ADR 0065]."""

    registered: Registered
    authority: str


@dataclass(frozen=True)
class Held:
    """Attempts the pilot holds: `leased` (not started), `running`, or `done` (not acknowledged). `count`: so many on
    neighbouring elements, all of the same number, the first of which is named."""

    attempt: str
    stage: str
    count: int = 1


@dataclass(frozen=True)
class Step:
    """One of the steps of an attempt that moved files: `prepare`, `stage_in`, `run`, `stage_out` [SPHINX S3]. To publish what it
    wrote, and to clean up, follow when its report was accepted."""

    name: str
    seconds: float
    files: int = 0
    bytes: int = 0
    origins: dict[str, int] = field(
        default_factory=dict
    )  # where files came from -> bytes: cache, peer, storage, server, ...
    failed: dict[str, str] = field(default_factory=dict)  # places that should have given a file, and why they did not


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
    steps: list[Step] = field(default_factory=list)  # of one that had a directory of its own
    # "oom_kill": the kernel ended it for want of memory; "no_space": the disk is full; "not_visible": this host does not
    # see the submitter's files; `TOO_LARGE`
    evidence: str = ""
    emitted: str = ""  # what it emitted in all, reduced (see `sched/partial/contribution`)
    sizes: list[int] = field(default_factory=list)  # of its outputs, if the lease asked for them


@dataclass(frozen=True)
class Emitted:
    """What a running attempt has emitted so far, reduced: it replaces what was sent of it before [ADR 0053]."""

    attempt: str
    text: str


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
    emitted: str = ""  # what it had emitted by then: an attempt that goes on from here adds to it


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
    emitted: list[str] = field(default_factory=list)


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
class CachedFile:
    """A file that came into the cache of a pilot's host."""

    digest: str
    size: int


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
    emitted: list[Emitted] = field(default_factory=list)
    # Changes of the cache since the ones that were acknowledged; all of it after a registration or a restart of the server.
    cached: list[CachedFile] = field(default_factory=list)
    uncached: list[str] = field(default_factory=list)  # digests of files that left it
    accusations: list[Accusation] = field(default_factory=list)  # of peers, until an answer came
    window: int = -1  # attempts in the window of the mesh that this pilot leads; -1: it leads none
    window_seen: int = 0  # up to which `Reply.window_number` a majority of the mesh keeps what it brought
    sealed: list[Sealed] = field(default_factory=list)  # reports of other members, kept while the server was away
    asks: bool = False  # it brings reports and asks for work at once: its answer may wait for work a while [ADR 0066]


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
    reduce: dict[str, str] = field(default_factory=dict)  # emitted names -> how their values are reduced
    emitted: str = ""  # what earlier parts of it emitted, up to the checkpoint that it goes on from
    # At a site in mode `tracked`: digest of a file -> pilots of the mesh that have it.
    holders: dict[str, list[Neighbour]] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)  # likewise those of them that tasks wrote for which it waited
    store: dict[str, str] = field(default_factory=dict)  # outputs -> where they are stored (`model/task/url_input`)
    shared: bool = False  # tasks wait for it: what it wrote stays in the cache of its host
    measure: bool = False  # its report shall say how large its outputs are
    require: str = ""  # in a window, where pilots match for themselves: the task's requirement and rank
    rank: str = ""
    # Some of these run where the submitter's files may not be: what it wrote goes to the server, too.
    sent_on: bool = False
    # Of calls of a chain: for each those of its lane that must have succeeded before it, as spans of elements, the first
    # and the one behind the last. What waits for one that did not succeed is given back [ADR 0064].
    parents: list[list[int]] = field(default_factory=list)


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
    kept: float = (
        0.0  # seconds for which the pilot must not end for want of tasks: it alone has what waiting tasks read
    )
    neighbours: list[Neighbour] = field(default_factory=list)  # pilots that came to its mesh
    gone: list[str] = field(default_factory=list)  # ids of those that ended or were shut out
    leader: Optional[Leadership] = None  # of its mesh, if that changed since it was told
    window: list[Lease] = field(default_factory=list)  # granted to the mesh, to be begun while the server is away
    window_gone: list[str] = field(default_factory=list)  # attempts of the window that are not to be begun any more
    window_number: int = 0  # of these two changes of the window, counted for each leadership
    unsealed: list[str] = field(default_factory=list)  # seals of others' reports that need not be kept any more
