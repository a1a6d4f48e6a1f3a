"""Why did it fail, and whose fault was that? Decided from evidence: how the process ended, what it used, and how tasks
of the same kind fare on this host and on others [protocol 4].

The rule that everything here serves: a task's own error never bans a host. The same task, or the same kind of task,
failing on several hosts is the task; failing on one host what works on others is the host. The hosts of one site may all
be wrong in the same way (a file system, a missing library), so where another site could run it, its outcome counts, too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from enum import Enum
from typing import NamedTuple, Optional

from shoal.model.limits import HOSTS_PER_KIND, KINDS_KEPT, KINDS_PER_HOST
from shoal.model.states import Cause

FULL = 0.9  # of its memory limit that a task killed by SIGKILL must have used to be called out of memory
SIGKILL, SIGTERM, SIGXCPU = 9, 15, 24
BY_SHELL = 128  # a shell exits with 128 + n for a command that signal n ended
OWN_HOSTS = 2  # hosts on which a kind that succeeded nowhere failed: then it is the kind
OWN_SITES = 2  # sites, likewise, where another site could run it
CHANCE = 0.01  # of so many failures in a row by the kind's own errors, below which it is the host
STRANGE_KINDS = 3  # kinds that failed on a host while none succeeded: then it is the host, whatever they do elsewhere
OPEN_FAILURES = 5  # in a row on one host while it is open whose fault they are; then that kind waits
OPEN_WAIT = 60.0  # seconds that it waits for an outcome on another host

# What the pilot saw itself, which no other evidence can overrule.
_SEEN = frozenset(Cause) - {Cause.TASK_ERROR, Cause.SIGNAL}


class FailureFacts(NamedTuple):
    """What is known of one attempt that did not succeed."""

    cause: str = ""  # as the pilot saw it
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    max_rss: int = 0  # bytes
    memory: int = 0  # its limit, 0 if it has none
    evidence: str = ""  # "oom_kill": the cgroup or the kernel killed it for memory
    duration: float = 0.0
    time: Optional[float] = None  # its limit


def decide(facts: FailureFacts) -> Cause:
    """The cause of a failure."""
    reported = Cause(facts.cause) if facts.cause else None
    if reported in _SEEN:
        return reported
    if facts.evidence == "oom_kill":
        return Cause.OUT_OF_MEMORY
    ended_by = facts.signal
    if ended_by is None and facts.exit_code is not None and facts.exit_code > BY_SHELL:
        ended_by = facts.exit_code - BY_SHELL
    if ended_by == SIGKILL and facts.memory and facts.max_rss >= FULL * facts.memory:
        return Cause.OUT_OF_MEMORY
    out_of_time = ended_by == SIGXCPU or (ended_by in (SIGKILL, SIGTERM) and facts.duration >= (facts.time or 0.0))
    if facts.time is not None and out_of_time:
        return Cause.OVER_TIME
    return Cause.SIGNAL if facts.signal is not None else Cause.TASK_ERROR


class Whose(str, Enum):
    """Whose fault a failure was."""

    TASK = "task"
    HOST = "host"
    OPEN = "open"  # not known yet

    def __str__(self) -> str:
        return str(self.value)


class _Record:
    """How one kind of task fared on one host, or at one site."""

    __slots__ = ("bad", "good", "in_row", "latest")

    def __init__(self) -> None:
        self.good = 0
        self.bad = 0
        self.in_row = 0  # failures since its last success there
        self.latest = 0.0  # failure


class _Host:
    """What failed on one host since anything succeeded there."""

    __slots__ = ("kinds", "latest")

    def __init__(self) -> None:
        self.kinds: dict[str, int] = {}
        self.latest = 0.0


class _Kind:
    """How one kind of task fared: on hosts, and how many finished in time at each site."""

    __slots__ = ("good", "has_other_site", "hosts", "sites", "times")

    def __init__(self) -> None:
        self.good = 0  # also on hosts that are forgotten
        self.has_other_site = False  # another site could run it, as of its latest failure
        self.hosts: OrderedDict[str, _Record] = OrderedDict()
        self.sites: OrderedDict[str, _Record] = OrderedDict()
        self.times: OrderedDict[str, tuple[int, int]] = OrderedDict()


class Kinds:
    """Outcomes by kind of task and place. A kind is any text that tasks alike share. The engine adds successes, failures by
    `task_error` and `signal`, and tasks over time; a second one has the outcomes of set-up lines. There is one for each
    owner or group that pilots belong to (`engine.policy.accounting.Evidence`)."""

    def __init__(self, kept: int = KINDS_KEPT, hosts_per_kind: int = HOSTS_PER_KIND) -> None:
        self.kept, self.hosts_per_kind = kept, hosts_per_kind
        self._kinds: OrderedDict[str, _Kind] = OrderedDict()
        self._bad_hosts: OrderedDict[str, _Host] = OrderedDict()
        self._late_sites: OrderedDict[str, dict[str, int]] = OrderedDict()  # kinds over time since any was in time

    def succeed(self, kind: str, host: str, site: str = "", count: int = 1, is_timed: bool = False) -> None:
        """So many tasks of this kind succeeded there; `is_timed`: within a time that was stated for them."""
        known = self._of(kind)
        for record in (self._in(known.hosts, host), self._in(known.sites, site)):
            record.good += count
            record.in_row = 0
        known.good += count
        if is_timed and self._late_sites:
            self._late_sites.pop(site, None)
        in_time, over = known.times.get(site, (0, 0))
        known.times[site] = (in_time + count, over)
        self._bound_times(known, site)
        if self._bad_hosts:
            self._bad_hosts.pop(host, None)

    def fail(self, kind: str, host: str, now: float, site: str = "", has_other_site: bool = False) -> None:
        """One failed there, by an error or a signal; `has_other_site`: another site could run it."""
        known = self._of(kind)
        known.has_other_site = has_other_site
        for record in (self._in(known.hosts, host), self._in(known.sites, site)):
            record.bad += 1
            record.in_row += 1
            record.latest = now
        bad = self._bad_hosts.get(host)
        if bad is None:
            bad = self._bad_hosts[host] = _Host()
        bad.latest = now
        if kind in bad.kinds or len(bad.kinds) < KINDS_PER_HOST:
            bad.kinds[kind] = bad.kinds.get(kind, 0) + 1
        self._bad_hosts.move_to_end(host)
        if len(self._bad_hosts) > self.kept:
            self._bad_hosts.popitem(last=False)

    def excuse(self, kind: str, host: str, site: str = "") -> None:
        """A failure there turned out to be the task's own: it counts no more against the host, nor against its site."""
        known = self._kinds.get(kind)
        records = (known.hosts.get(host), known.sites.get(site)) if known is not None else ()
        for record in records:
            if record is not None and record.in_row:
                record.in_row -= 1
        bad = self._bad_hosts.get(host)
        if bad is not None and kind in bad.kinds:
            bad.kinds[kind] -= 1
            if not bad.kinds[kind]:
                del bad.kinds[kind]

    def over_time(self, kind: str, site: str) -> None:
        """One was stopped there at its time limit."""
        known = self._of(kind)
        in_time, over = known.times.get(site, (0, 0))
        known.times[site] = (in_time, over + 1)
        self._bound_times(known, site)
        late = self._late_sites.setdefault(site, {})
        if kind in late or len(late) < KINDS_PER_HOST:
            late[kind] = late.get(kind, 0) + 1
        self._late_sites.move_to_end(site)
        if len(self._late_sites) > self.kept:
            self._late_sites.popitem(last=False)

    def whose(
        self, kind: str, host: str, others: int, failed_on: Collection[str] = (), has_untried_site: bool = False
    ) -> Whose:
        """Whose fault is the failure that was just counted? `others`: other hosts that could run it; `failed_on`: hosts
        on which this very task failed; `has_untried_site`: this site is in doubt, and the task was not yet tried at
        another one that could run it."""
        if self.is_tasks_own(kind, host, others, failed_on, has_untried_site):
            return Whose.TASK
        return Whose.HOST if self.is_hosts(kind, host) else Whose.OPEN

    def is_tasks_own(
        self, kind: str, host: str, others: int, failed_on: Collection[str] = (), has_untried_site: bool = False
    ) -> bool:
        """Is there no other host, or did this task, or its kind, fail on several hosts and succeed nowhere?"""
        known = self._kinds.get(kind)
        if others <= 0 or (known is not None and _fails_everywhere(known)):
            return True
        return len({*failed_on, host}) >= OWN_HOSTS and not has_untried_site

    def is_in_doubt(self, kind: str, site: str) -> bool:
        """May it be the site that makes this kind fail? Unless it works there, a single failure apart."""
        known = self._kinds.get(kind)
        record = known.sites.get(site) if known is not None else None
        return record is None or not record.good or record.in_row > 1

    def is_slow(self, kind: str, site: str) -> bool:
        """True if the site is at fault that a task of this kind was over its time there [SPHINX S8]: the kind is in time
        elsewhere and never here, more often than chance explains, or several kinds were over their times here and none in
        time."""
        known = self._kinds.get(kind)
        in_time, over = known.times.get(site, (0, 0)) if known is not None else (0, 0)
        if known is None or in_time or not over:
            return False
        good = sum(fit for name, (fit, _) in known.times.items() if name != site)
        bad = sum(late for name, (fit, late) in known.times.items() if name != site and fit)
        if good and ((bad + 1) / (good + bad + 2)) ** over <= CHANCE:
            return True
        late = [name for name in self._late_sites.get(site, {}) if not self.is_late_everywhere(name)]
        return len(late) >= STRANGE_KINDS

    def is_late_everywhere(self, kind: str) -> bool:
        """Was this kind over its time at several sites, and in time at none?"""
        known = self._kinds.get(kind)
        if known is None or any(fit for fit, _ in known.times.values()):
            return False
        return sum(1 for _, over in known.times.values() if over) >= OWN_SITES

    def is_hosts(self, kind: str, host: str) -> bool:
        """Does this kind succeed elsewhere, and fail here so often in a row that it is not by its own errors? Or did
        several kinds fail here while nothing succeeded?"""
        known = self._kinds.get(kind)
        record = known.hosts.get(host) if known is not None else None
        if known is None or record is None or not record.in_row:
            return False
        good = bad = 0
        for name, other in known.hosts.items():
            if name != host and other.good:  # a host without a success shows nothing of the kind's own errors
                good += other.good
                bad += other.bad
        if good and (bad / (good + bad)) ** record.in_row <= CHANCE:
            return True
        return len(self._unexplained(host)) >= STRANGE_KINDS

    def may_try(self, kind: str, host: str, now: float, others: int) -> bool:
        """True if a task of this kind may be sent there: not for a minute if several in a row failed and another host can
        show whose fault that is, since a host that fails everything would empty the queue long before the first success
        elsewhere [promise I12]. If they were of several kinds, nothing may."""
        if others <= 0:
            return True
        known = self._kinds.get(kind)
        record = known.hosts.get(host) if known is not None else None
        if known is not None and record is not None and record.in_row >= OPEN_FAILURES:
            return now - record.latest >= OPEN_WAIT or _fails_everywhere(known)
        bad = self._bad_hosts.get(host)
        if bad is None or len(bad.kinds) < 2 or now - bad.latest >= OPEN_WAIT:
            return True
        unexplained = self._unexplained(host)
        return len(unexplained) < 2 or sum(unexplained.values()) < OPEN_FAILURES

    def in_row(self, host: str) -> int:
        """How many failed there since anything succeeded, without what fails everywhere, for `Places.blame`."""
        return sum(self._unexplained(host).values()) if host in self._bad_hosts else 0

    def failed_hosts(self, kind: str) -> int:
        """On how many hosts it fails now."""
        known = self._kinds.get(kind)
        return sum(1 for record in known.hosts.values() if record.in_row) if known is not None else 0

    def failed_sites(self, kind: str) -> int:
        """At how many sites it fails now."""
        known = self._kinds.get(kind)
        return sum(1 for record in known.sites.values() if record.in_row) if known is not None else 0

    def worked(self, kind: str) -> bool:
        """Has it ever succeeded anywhere?"""
        known = self._kinds.get(kind)
        return known is not None and known.good > 0

    def times(self, kind: str, site: str) -> tuple[int, int]:
        """How many finished in time at a site, and how many did not."""
        known = self._kinds.get(kind)
        return known.times.get(site, (0, 0)) if known is not None else (0, 0)

    def _unexplained(self, host: str) -> dict[str, int]:
        """Failures on a host since anything succeeded there, by kind, without the kinds that fail everywhere."""
        bad = self._bad_hosts.get(host)
        if bad is None:
            return {}
        found = {}
        for kind, count in bad.kinds.items():
            known = self._kinds.get(kind)
            if known is None or not _fails_everywhere(known):
                found[kind] = count
        return found

    def _of(self, kind: str) -> _Kind:
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds[kind] = _Kind()
            if len(self._kinds) > self.kept:
                self._kinds.popitem(last=False)
        else:
            self._kinds.move_to_end(kind)
        return known

    def _in(self, records: OrderedDict[str, _Record], name: str) -> _Record:
        """The record of a host or site, the latest of at most so many."""
        record = records.get(name)
        if record is None:
            record = records[name] = _Record()
            if len(records) > self.hosts_per_kind:
                records.popitem(last=False)
        else:
            records.move_to_end(name)
        return record

    def _bound_times(self, known: _Kind, site: str) -> None:
        known.times.move_to_end(site)
        if len(known.times) > self.hosts_per_kind:
            known.times.popitem(last=False)


def _fails_everywhere(known: _Kind) -> bool:
    """Did this kind fail on several hosts and succeed nowhere? Where there are several sites: at several of them."""
    if known.good or sum(1 for record in known.hosts.values() if record.bad) < OWN_HOSTS:
        return False
    return not known.has_other_site or sum(1 for record in known.sites.values() if record.bad) >= OWN_SITES
