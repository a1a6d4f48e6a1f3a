"""What a demand policy sees and what it answers. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Optional

from shoal.model.lazy_dataclass import dataclass

SHOAL = "shoal"
PILOTMONITOR, PILOTMONITOR_REPAIRED = "pilotmonitor", "pilotmonitor-repaired"
SIMPLE, HEURISTIC, HYBRID, GUIDED = "simple", "heuristic", "hybrid", "guided"
POLICIES = (SHOAL, PILOTMONITOR, PILOTMONITOR_REPAIRED, SIMPLE, HEURISTIC, HYBRID, GUIDED)
# The numbers of a policy that a person may choose, and what they may be; whole ones have whole limits.
RULE_LIMITS: Mapping[str, tuple[float, float]] = {
    "turnovers": (0.01, 1_000.0),
    "worth": (0.0, 100.0),
    "rounds": (1.0, 10_000.0),
    "waits": (0.0, 1_000.0),
    "tail": (1.0, 1_000.0),
    "shortest": (0.0, 8_640_000.0),
    "margin": (1.0, 100.0),
    "start_seconds": (0.0, 86_400.0),
    "over": (0.0, 10.0),
    "keep": (1.0, 1_000.0),
    "scouts": (1, 100_000),
    "scout_share": (0.0, 1.0),
    "scout_seconds": (60.0, 8_640_000.0),
    "scout_patience": (0.0, 8_640_000.0),
    "usual_seconds": (1.0, 8_640_000.0),
    "usual_wait": (0.0, 8_640_000.0),
    "empty_pause": (0.0, 86_400.0),
    "longest_pause": (0.0, 864_000.0),
    "pool": (0, 100_000),
    "max_pending": (0, 100_000),
    "guided": (0.0, 1.0),
    "extra": (0, 100_000),
    "per_site": (0, 100_000),
    "per_round": (0, 100_000),
}
NOTHING_KNOWN: Mapping[str, bool] = {}


class Need(NamedTuple):
    """A group of ready tasks that are alike. Cores, memory and gpus are of one task."""

    tasks: int
    cores: int = 1
    memory: int = 0
    gpus: int = 0
    seconds: Optional[float] = None  # what one takes: the learned 0.95 quantile, or its time limit; None: not known yet
    require: str = ""
    rank: str = ""
    priority: float = 0.0
    unfit_sites: frozenset[str] = frozenset()  # where every pilot that is connected cannot run it
    tried_for: Optional[float] = (
        None  # seconds that the oldest of them runs, 0 if one is about to; None: nobody runs any
    )


class SiteView(NamedTuple):
    """A site as the provisioner sees it now."""

    name: str
    queued: int = 0  # pilots that wait in the batch system
    idle: int = 0  # pilots that run without a task
    busy: int = 0  # pilots that run with one
    queued_cores: int = 0  # of the pilots that wait
    free_cores: int = 0  # of pilots that run, without a task
    cores: int = 0  # of pilots that run, all of them
    max_pilots: int = 10  # queued, idle and busy together
    min_pilots: int = 0
    min_idle: int = 0
    max_queued: int = 4
    pilot_cores: int = 1  # the most that one pilot may have
    max_seconds: float = 14_400.0  # wall time
    min_seconds: float = 600.0
    wait: Optional[float] = None  # expected seconds in the queue, from the site's own history
    meets: Mapping[str, bool] = NOTHING_KNOWN  # requirement -> is it met; one that is not here may be
    rank: float = 0.0
    fitness: float = 1.0  # the part of its pilots that did well, from 0 to 1
    is_banned: bool = False
    empty: int = 0  # pilots in a row that ended without having had a task
    budget_left: Optional[float] = None  # core seconds that are neither used nor reserved by pilots that wait or run
    empty_at: Optional[float] = None  # when the last of the empty ones ended
    # The most that one pilot of `pilot_cores` may have, in the unit of the needs; None: not known.
    pilot_memory: Optional[int] = None
    pilot_gpus: Optional[int] = None
    lives: tuple[tuple[int, float], ...] = ()  # of pilots that run: cores, and seconds until their allocation ends
    hosts: int = 1  # of one allocation, with a pilot on each: pilots come and are asked for in such groups

    @property
    def pilots(self) -> int:
        """Pilots that wait or run."""
        return self.queued + self.idle + self.busy


class Ask(NamedTuple):
    """Submit `count` pilots of this shape."""

    site: str
    cores: int
    seconds: int
    count: int  # type: ignore[assignment]  # tuple.count is not used here
    why: str
    memory: int = 0  # of each pilot, in the unit of the needs; 0: what the site gives
    is_learned: bool = False  # it was made for tasks whose duration is known


class Plan(NamedTuple):
    """What to do now. Each site has a reason, whether it gets pilots or not."""

    asks: list[Ask]
    cancel: dict[str, int]  # pilots that wait and are no longer wanted, by site
    release: dict[str, int]  # pilots that are idle and have to end
    reasons: dict[str, str]


@dataclass(frozen=True)
class DemandRule:
    """A policy by its name, and its numbers. The second half is for the papers' policies only."""

    policy: str = SHOAL
    turnovers: float = 1.0  # tasks that a core gets, one after another, before more cores are asked for
    worth: float = 0.1  # the same as a time: this part of the shortest wait in a queue
    rounds: float = 10.0  # tasks that fit into the wall time of a pilot, one after another, unless the run ends before
    waits: float = 4.0  # wall time over the wait in the queue, at least, with the same exception
    tail: float = 5.0  # wall time of any pilot over what a task is expected to take
    shortest: float = 1_800.0  # wall time of any pilot, where the site and its budget allow it
    margin: float = 1.5  # wall time over what the tasks are expected to take
    start_seconds: float = 60.0  # of the wall time, before a pilot has its first task
    over: float = 0.5  # how much more is asked for because queues are uncertain
    keep: float = 1.5  # pilots that wait are cancelled if there are more than this times what is wanted
    scouts: int = 4  # cores for tasks of which nothing is known yet, while the first of them run
    scout_share: float = 0.1  # of these tasks, if that is more
    scout_seconds: float = 86_400.0  # wall time of a pilot for them
    scout_patience: float = 60.0  # seconds after which the others are asked for, though none of the first has ended
    usual_seconds: float = 86_400.0  # of a task of which nothing is known: no core is counted on for a second one
    usual_wait: float = 300.0  # in the queue of a site that has no history
    empty_pause: float = 60.0  # after an empty pilot; twice as long after each further one
    longest_pause: float = 3_600.0
    own_memory: int = 128 << 20  # bytes of a pilot itself, beside its tasks
    pool: int = 0  # pilots that are wanted [DIANE 4.7.2]; 0: as many as the sites allow
    max_pending: int = 0  # pilots that wait, of all sites [DIANE 4.7.3]; 0: as many as the sites allow
    guided: float = 1.0  # the part of pilots that follows requirements and ranks [GWP table 3]
    extra: int = 0  # pilots beyond the tasks [GWP table 3]
    per_site: int = 0  # pilots at one site [GWP table 3]; 0: as many as it allows
    per_round: int = 0  # submissions at once [GWP table 3]; 0: no bound

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(f"{self.policy!r} is no policy: {', '.join(POLICIES)}")
        for name, (low, high) in RULE_LIMITS.items():
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} of a policy has to be from {low:g} to {high:g}, not {getattr(self, name)!r}")


def core_share(need: Need, site: SiteView) -> int:
    """Cores of a pilot that one task takes up there: more than it asks for if its memory is worth more."""
    if need.memory and site.pilot_memory:
        return max(need.cores, -(-need.memory * site.pilot_cores // site.pilot_memory))
    return max(1, need.cores)


def memory_of(rule: DemandRule, need: Need, site: SiteView, cores: int) -> int:
    """The memory that a pilot of these cores takes there: for as many of the tasks as it runs at once, and for itself.

    0, which is what the site gives, if nothing is known of the tasks."""
    if not need.memory:
        return 0
    at_once = max(1, min(need.tasks, cores // core_share(need, site)))
    wanted = at_once * need.memory + rule.own_memory
    return wanted if site.pilot_memory is None else min(wanted, site.pilot_memory)


def misfit(need: Need, site: SiteView) -> str:
    """Why these tasks cannot run there, as a part of a sentence; empty if they may."""
    if need.tasks <= 0:
        return "nothing waits"
    if site.name in need.unfit_sites:
        return "no pilot that is connected there can run it"
    if need.require and not site.meets.get(need.require, True):
        return f"it does not meet {need.require!r}"
    if max(1, need.cores) > site.pilot_cores:
        return f"a task takes {need.cores} cores, and a pilot there has {site.pilot_cores}"
    if site.pilot_memory is not None and need.memory > site.pilot_memory:
        return "a task takes more memory than a pilot has there"
    if site.pilot_gpus is not None and need.gpus > site.pilot_gpus:
        return f"a task takes more GPUs than the {site.pilot_gpus} of a pilot there"
    if need.seconds is not None and need.seconds > site.max_seconds:
        return f"a task takes {need.seconds:.0f} s, and a pilot there lives {site.max_seconds:.0f} s"
    return ""
