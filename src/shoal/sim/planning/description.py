"""What a planning world is made of. Outcomes (utilisation, delays, hit ratios) are never among it: they are counted.

Times are in seconds, sizes in MB. `worlds/*.toml` are read into this by `world_file.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from shoal.model.lazy_dataclass import dataclass
from shoal.model.policy import Policy
from shoal.sched.demand import DemandRule
from shoal.sim.distributions import Constant, Distribution
from shoal.sim.network import REPLY, REQUEST, Link

NONE, NORMAL = Constant(0.0), Constant(1.0)
MOMENT = Constant(0.002)  # a commit, or the start of a process
LINK = Link(Constant(0.001))
BOTH = (REQUEST, REPLY)


class Cut(NamedTuple):
    """A time in which messages of a site are lost: both ways, or one."""

    start: float
    end: float
    kinds: tuple[str, ...] = BOTH


class Downtime(NamedTuple):
    """A time in which a site runs nothing: its pilots die at the start, its queue waits."""

    start: float
    end: float


@dataclass(frozen=True)
class Storage:
    """A storage element of a site [CMS 4]."""

    bandwidth: float  # MB per second of one access
    total: float = 0.0  # MB per second of all together; 0: no bound
    delay: float = 0.0  # an access takes 1 + |Gaussian of this sigma| times as long
    failure: float = 0.0  # probability that an access fails


@dataclass(frozen=True)
class Background:
    """Jobs of other people in a site's batch queue, each on one host."""

    per_hour: float
    seconds: Distribution


class PilotLimits(NamedTuple):
    """What a provisioner may ask of a site."""

    max_pilots: int = 10
    max_queued: int = 4
    min_pilots: int = 0
    min_idle: int = 0
    min_wall: float = 600.0
    rank: float = 0.0


@dataclass(frozen=True)
class Provision:
    """A provisioner, which asks for pilots as tasks wait."""

    rule: DemandRule = DemandRule()
    interval: float = 30.0  # between two looks
    memory: float = 86_400.0  # seconds for which an ended pilot counts for the fitness of its site
    idle_end: float | None = 60.0  # seconds without a task after which a pilot ends, at a look; None: never
    keeps_surplus: bool = (
        False  # when nothing waits no pilot is released, and none that waits is cancelled, as in the papers
    )
    suspension: float | None = None  # after which a pilot that waits in a queue is given up


@dataclass(frozen=True)
class Site:
    """A site: hosts behind a batch queue."""

    name: str = "local"
    hosts: int = 0  # that may run a pilot at once; 0: no bound
    slots: int = 1  # of a pilot
    speed: Distribution = NORMAL  # of a host
    share: float = 1.0  # of the pilots that are asked for
    wait: Distribution = NONE  # in the queue, beside waiting for a host
    background: Background | None = None
    wall: float | None = None  # after which the batch system ends a pilot
    start: Distribution = NONE  # from the start of the job to the pilot's first message
    start_failure: float = 0.0  # probability that it never sends one
    lifetime: Distribution | None = None  # after which a pilot dies
    task_failure: float = 0.0  # probability that a task fails here
    downtimes: tuple[Downtime, ...] = ()
    cuts: tuple[Cut, ...] = ()
    link: Link | None = None
    storage: Storage | None = None
    limits: PilotLimits = PilotLimits()  # of a provisioner


class Arrival(NamedTuple):
    """A pilot that comes and goes at known times."""

    at: float
    slots: int
    speed: float = 1.0
    until: float | None = None  # when it dies, which the server knows at once
    site: str = "local"


@dataclass(frozen=True)
class Pilots:
    """How pilots are asked for."""

    count: int = 0
    keep: bool = False  # ask for another where one ended
    per_hour: float = 0.0  # of submissions, one after another; 0: all at once
    arrivals: tuple[Arrival, ...] = ()  # beside those that are asked for


@dataclass(frozen=True)
class ServerTimes:
    """The times of the server."""

    commit: Distribution = MOMENT
    service: float = 0.0  # of one request; the next one waits meanwhile


@dataclass(frozen=True)
class Description:
    """A whole world."""

    sites: tuple[Site, ...] = (Site(),)
    pilots: Pilots = Pilots()
    link: Link = LINK
    server: ServerTimes = ServerTimes()
    task_start: Distribution = MOMENT  # from a lease in a free slot to the payload
    policy: Policy | None = None
    provision: Provision | None = None
    beats: bool = False  # also those without news
    horizon: float = 365 * 86_400.0  # after which the simulation gives up
    speed_tag: str = ""  # the tag by which pilots tell the speed of their host when they register; empty: they do not
