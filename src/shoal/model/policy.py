"""The policy of a pool as data: shares, usage, quotas, licences and the rules of order, match, ban, memory and data."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Optional

from shoal.model.errors import BadInput, echo
from shoal.model.lazy_dataclass import dataclass

HALF_LIFE, WINDOW = "half_life", "window"
STRICT, WEIGHTED = "strict", "weighted"
EVENT, INTERVAL = "event", "interval"
NEVER, IDLE, COST = "never", "idle", "cost"
TRACKED, CENTRAL, DISTRIBUTED = "tracked", "central", "distributed"
OFF, ROUND_ROBIN, PLAN = "off", "round-robin", "plan"
ALWAYS, DAY, WEEK, MONTH, PART = "always", "day", "week", "month", "part"
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

_HOURS = re.compile(r"([0-9]{1,2})-([0-9]{1,2})")
_WHEN_HINT = 'always, day, week, month, or days and whole hours in UTC such as "mon-fri 08-18", "sat,sun" or "22-06"'


@dataclass(frozen=True)
class UsageRule:
    """How past use counts: it fades with a half-life, or it is counted in frames of a window [GWP table 3]."""

    kind: str = HALF_LIFE
    half_life: float = 86_400.0  # seconds
    window: float = 7 * 86_400.0  # seconds
    buckets: int = 7


@dataclass(frozen=True)
class Rule:
    """Limits for some submitters, sites and times [SPHINX policy]; None: no limit."""

    who: str = "*"  # "*", "@group" with its inner groups, or an owner
    site: str = "*"  # "*", or a site with the sites below it: "eu" covers "eu.cern"
    when: str = ALWAYS
    cores: Optional[int] = None  # running at once
    core_hours: Optional[float] = None  # spent in one window
    queued: Optional[int] = None  # tasks that are not final
    stored: Optional[int] = None  # bytes of blobs
    share: Optional[float] = None  # running cores as a part of those the pilots there have

    def describe(self) -> str:
        """The submitters, sites and times of the rule, for a message."""
        parts = [f"who={self.who}", f"site={self.site}", f"when={self.when}"]
        return " ".join(part for part in parts if not part.endswith(("=*", f"={ALWAYS}"))) or "everybody everywhere"


@dataclass(frozen=True)
class OrderRule:
    """The order of one owner's tasks: by priority alone, or by a weighted sum of four terms [GWP table 3]."""

    policy: str = STRICT
    priority: float = 1.0
    share: float = 1.0
    waiting: float = 0.0
    deadline: float = 0.0


@dataclass(frozen=True)
class MatchRule:
    """When tasks and pilots are matched, and how many at once [GWP table 3]."""

    mode: str = EVENT
    interval: float = 10.0  # seconds between rounds
    chunk: int = 15  # tasks of one round
    max_running: int = 0  # tasks on one site; 0: no bound


@dataclass(frozen=True)
class BanRule:
    """How long a failing pilot, host or site is banned, and the command that is run then."""

    longest: float = 3_600.0
    scale: float = 600.0
    hook: tuple[str, ...] = ()


@dataclass(frozen=True)
class MemoryRule:
    """The memory of a task that ran out of it: by which factor it grows, and at most to which multiple of the request."""

    factor: float = 2.0
    cap: float = 4.0


@dataclass(frozen=True)
class NotifyRule:
    """Hosts to which the server may send the notices that people ask for; none: it sends none."""

    hosts: tuple[str, ...] = ()  # HOST, HOST:PORT, or *.DOMAIN


@dataclass(frozen=True)
class DataRule:
    """Whether a task waits for a pilot that has its inputs, and who knows where files are.

    `wait`: never; for an idle pilot only, as the paper's waitForData [CMS IV.E]; or while that costs less than the transfer.
    Sites are `tracked` (the server names the pilots that have a file), `central` (pilots find them), or `distributed` (they also
    have a leader and a window, and work on while the server is away) [LBO D9; ADR 0056].
    """

    wait: str = COST
    longest: float = 60.0  # seconds that one task waits at most, all in all
    mode: str = CENTRAL
    sites: dict[str, str] = field(default_factory=dict)  # those with another mode

    def mode_of(self, site: str) -> str:
        """The mode of a site."""
        return self.sites.get(site, self.mode)


@dataclass(frozen=True)
class PlacementRule:
    """How tasks are directed to sites, where there are several [SPHINX S5; ADR 0057].

    `by`: not at all; to each site in turn; or by a plan that minimises an objective: `completion-time`, `cost` by the prices
    of sites, `balance`, or one that another package brings.
    """

    by: str = PLAN
    objective: str = "completion-time"
    interval: float = 30.0  # seconds between two plans; events bring the next one forward
    prices: dict[str, float] = field(default_factory=dict)  # of a core hour, by site; 1 for those that it does not name

    def price_of(self, site: str) -> float:
        """What a core hour costs at a site."""
        return self.prices.get(site, 1.0)


@dataclass(frozen=True)
class Policy:
    """Everything an administrator may decide about shares, limits and matching; the empty one is the default."""

    shares: dict[str, float] = field(default_factory=dict)  # by owner or "@group"; 1 for those that it does not name
    usage: UsageRule = UsageRule()
    quotas: tuple[Rule, ...] = ()
    licences: dict[str, int] = field(default_factory=dict)
    order: OrderRule = OrderRule()
    match: MatchRule = MatchRule()
    ban: BanRule = BanRule()
    memory: MemoryRule = MemoryRule()
    notify: NotifyRule = NotifyRule()
    data: DataRule = DataRule()
    placement: PlacementRule = PlacementRule()


@dataclass(frozen=True)
class When:
    """A parsed calendar window in UTC. `days` count from monday; a part that ends before it starts goes past midnight."""

    kind: str
    days: tuple[int, ...] = ()
    start: int = 0
    end: int = 24


def parse_when(text: str, name: str = "when") -> When:
    """Parse a calendar window."""
    if text in (ALWAYS, DAY, WEEK, MONTH):
        return When(text)
    items = text.split()
    days: tuple[int, ...] = tuple(range(7))
    start, end = 0, 24
    known = 1 <= len(items) <= 2
    for at, item in enumerate(items[:2]):
        hours = _HOURS.fullmatch(item)
        if hours and at == len(items) - 1:
            start, end = int(hours[1]), int(hours[2])
            known = known and start <= 23 and 1 <= end <= 24 and start != end
        elif not hours and at == 0:
            days = _days(item)
            known = known and bool(days)
        else:
            known = False
    if not known:
        raise BadInput(f"{echo(text)!r} is not a window of time", code="bad_window", field=name, hint=_WHEN_HINT)
    return When(PART, days, start, end)


def _days(text: str) -> tuple[int, ...]:
    """`mon-fri` or `mon,wed` as numbers in order; empty if it is neither."""
    found: set[int] = set()
    for piece in text.split(","):
        ends = piece.split("-")
        if len(ends) > 2 or any(end not in DAYS for end in ends):
            return ()
        first, last = DAYS.index(ends[0]), DAYS.index(ends[-1])
        found.update(day % 7 for day in range(first, last + 1 if last >= first else last + 8))
    return tuple(sorted(found))


def outward(name: str) -> tuple[str, ...]:
    """A dotted name and the names that contain it, innermost first: `eu.cern` gives `eu.cern`, `eu`."""
    parts = name.split(".")
    return tuple(".".join(parts[:count]) for count in range(len(parts), 0, -1)) if name else ()
