"""Bans: places (pilots, hosts and sites) that fail get no work for a while, with events, until a task succeeds there
[GWP G7; SPHINX S8].

Evidence belongs to the pilot's holder (`accounting.Evidence`). What a group's pilots did with an owner's tasks also counts
where that owner's own pilots are judged, under names that cannot be theirs; never the other way round, since a group must
not lose its hosts by reports of one member's pilots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shoal.engine.changes import Notice
from shoal.engine.policy.accounting import Evidence
from shoal.engine.records import Array, Pilot
from shoal.engine.state import State
from shoal.engine.task_overrides import FailedAt
from shoal.sched.ban import HOST, PILOT, SITE


def views(state: State, owner: str, holder: str, host: str, site: str) -> Iterator[tuple[Evidence, str, str]]:
    """The evidence that an owner's task on a host counts in, each with the names of host and site there."""
    yield state.accounting.evidence_of(holder), host, site
    own = state.accounting.evidence.get(owner) if holder != owner else None
    if own is not None:
        yield own, f"{holder}/{host}", f"{holder}/{site}"


def record_success(state: State, pilot: Pilot, array: Array, count: int = 1) -> None:
    """Tasks succeeded on a pilot: earlier failures of its place count no more."""
    spec, owner, holder = array.spec, array.run.owner, pilot.holder
    pilot.proven, pilot.returns = True, 0
    own = state.accounting.evidence_of(holder)
    if holder == owner:  # the common case
        found: Iterable[tuple[Evidence, str, str]] = ((own, pilot.host, pilot.site),)
    else:
        found = views(state, owner, holder, pilot.host, pilot.site)
    for evidence, host, site in found:
        evidence.kinds.succeed(array.trait, host, site, count, spec.time is not None)
        if spec.setup or spec.container:
            evidence.setups.succeed(array.trait, host, site, count)
    places = own.places
    if places.streaks:
        _lift(state, pilot, places.clear(pilot.name, pilot.host, pilot.site), "a task succeeded")


def record_failure(
    state: State, pilot: Pilot, reason: str, failures: int = 1, since: float | None = None, is_sites: bool = False
) -> None:
    """A failure was the fault of the pilot's place; a ban that follows is an event, and the hook is called."""
    holder = pilot.holder
    site_hosts = len({p.host for p in state.pilots.values() if p.site == pilot.site and p.holder == holder})
    places = state.accounting.evidence_of(holder).places
    for ban in places.blame(
        pilot.name, pilot.host, pilot.site, state.now, reason, site_hosts, failures, since, is_sites
    ):
        state.emit("place_banned", pilot=pilot, place=ban.kind, name=ban.name, reason=reason, until=ban.until)
        state.out.notices.append(Notice("banned", ban.kind, ban.name, reason, ban.until, holder))
    state.accounting.touch_places(holder)


def retract_failures(state: State, owner: str, trait: str, failed_at: list[FailedAt]) -> None:
    """Failures that were counted against hosts were the task's own after all."""
    for host, site, holder in failed_at:
        for evidence, known_host, known_site in views(state, owner, holder, host, site):
            evidence.kinds.excuse(trait, known_host, known_site)
        places = state.accounting.evidence_of(holder).places
        pilot = next((p for p in state.pilots.values() if (p.host, p.site, p.holder) == (host, site, holder)), None)
        if pilot is not None and places.streaks:
            _lift(state, pilot, places.forgive(pilot.name, host, site), "it was the task's own error")


def end_probes(state: State) -> None:
    """Release probes that were returned, cancelled or lost: they decide nothing."""
    for holder, evidence in state.accounting.evidence.items():
        places = evidence.places
        for kind, name in [key for key, streak in places.streaks.items() if streak.probing is not None]:
            there = [
                p
                for p in state.pilots.values()
                if p.holder == holder and {PILOT: p.name, HOST: p.host, SITE: p.site}[kind] == name
            ]
            if not any(pilot.held for pilot in there):
                places.release(*(name if kind == each else "" for each in (PILOT, HOST, SITE)))


def _lift(state: State, pilot: Pilot, places: list[tuple[str, str]], why: str) -> None:
    state.accounting.touch_places(pilot.holder)
    state.news += 1
    for kind, name in places:
        state.emit("place_lifted", pilot=pilot, place=kind, name=name, why=why)
        state.out.notices.append(Notice("lifted", kind, name, why, state.now, pilot.holder))
