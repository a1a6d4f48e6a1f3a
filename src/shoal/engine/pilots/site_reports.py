"""What provisioners report of their owners' sites: kept for `shoal why` until the next report, events for the journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

from shoal.engine.commands import ReportSite
from shoal.engine.matching.classes import TaskClass
from shoal.engine.placement.weather import note_changes
from shoal.engine.state import SiteReport, State
from shoal.model.errors import BadInput, Conflict
from shoal.model.limits import MAX_SITES_OWNER
from shoal.model.quantities import many
from shoal.sched.expr.parse import parse
from shoal.sched.expr.scalar import holds
from shoal.sched.expr.tree import Both, show
from shoal.wire.http.requests import SiteStatus

VALID = 120.0  # seconds: a provisioner reports every 30 s, and when something changes
CHANGES = ("submitted", "started", "ended")


def report(state: State, command: ReportSite) -> None:
    """Keep a report, and write events of what changed since the one before."""
    owner, site, status = command.owner, command.site, command.status
    for change in status.changes:
        if change.change not in CHANGES:
            raise BadInput("no such change", code="range", field="changes", hint=", ".join(CHANGES))
    key = (owner, site)
    before = state.site_reports.get(key)
    if before is None and sum(1 for known, _ in state.site_reports if known == owner) >= MAX_SITES_OWNER:
        raise Conflict(
            f"{owner} has {MAX_SITES_OWNER} sites already", code="too_many", hint="remove some: `shoal site`"
        )
    for change in status.changes:
        facts = {"name": change.name, "reason": change.reason, "cores": change.cores, "seconds": change.seconds}
        if change.change == "submitted":
            state.emit("allocation_submitted", owner=owner, site=site, backend=status.backend, allocation=facts)
        elif change.change == "started":
            state.emit("allocation_started", owner=owner, site=site, backend=status.backend, allocation=facts)
        else:
            state.emit("allocation_ended", owner=owner, site=site, backend=status.backend, allocation=facts)
            window = state.windows.get((site, owner))
            if window is not None:
                window.note_ended(change.name)
    if not status.is_removed and status.trouble != (before.status.trouble if before is not None else ""):
        state.emit("site_trouble", owner=owner, site=site, trouble=status.trouble, fix=status.fix)
    if status.is_removed:
        state.site_reports.pop(key, None)
    else:
        state.site_reports[key] = SiteReport(status, state.now)
    note_changes(state, owner, site, status)


def valid_reports(state: State, owner: str) -> Iterator[tuple[str, SiteReport]]:
    """The sites of an owner whose provisioner still reports, with its last report."""
    for (known, site), found in sorted(state.site_reports.items(), key=lambda item: item[0]):
        if known == owner and state.now - found.time <= VALID:
            yield site, found


def excludes(cls: TaskClass, site: str) -> bool:
    """True if tasks ask for other sites, or a part of their requirement speaks of the site's name alone and does not hold
    there: all that is known of a site before its first pilot."""
    if cls.key.site and site not in cls.key.site.split(","):
        return True
    if cls.require is None:
        return False
    root = cls.require.root
    parts = [parse(show(part)) for part in (root.parts if isinstance(root, Both) else (root,))]
    return any(part.tags == {"site"} and not holds(part, {"site": site}, {}) for part in parts)


def report_rows(state: State, owner: str) -> list[dict[str, Any]]:
    """The last report of each site of an owner, in the types of JSON; what changed is in the journal."""
    rows = []
    for site, found in valid_reports(state, owner):
        row = asdict(found.status) | {"site": site}
        del row["changes"], row["is_removed"]
        rows.append(row)
    return rows


def expected_machines(state: State, owner: str, wanted: str = "") -> str:
    """What an owner's sites (of these, separated by commas) are about to bring, and what keeps it, in one phrase; empty if
    nothing was asked for."""
    texts = []
    for site, found in valid_reports(state, owner):
        status = found.status
        if wanted and site not in wanted.split(","):
            continue
        if status.queued:
            texts.append(f"{site}: {_queued(status, 'allocation')}")
        elif status.running:
            texts.append(f"{site}: {many(status.running, 'allocation')} started")
        elif status.trouble:
            texts.append(f"{site}: {status.trouble}")
        elif status.failure:
            texts.append(f"{site}: {status.failure}")
        elif status.note:
            texts.append(f"{site}: {status.note}")
    return "; ".join(texts)


def _queued(status: SiteStatus, word: str) -> str:
    """`2 allocations wait (Priority)`"""
    why = f" ({'; '.join(status.reasons[:2])})" if status.reasons else ""
    return f"{many(status.queued, word)} {'waits' if status.queued == 1 else 'wait'}{why}"


class SiteUse(NamedTuple):
    """What a site does for an owner, as a line of progress shows it."""

    site: str
    cores: int
    busy: int
    waits: str  # what was asked for and has not come, or why not; empty: nothing


def sites_in_use(state: State, owner: str) -> list[SiteUse]:
    """Every site with pilots that serve an owner, and those that its provisioner reports."""
    cores: Counter[str] = Counter()
    busy: Counter[str] = Counter()
    for pilot in state.pilots.values():
        if state.serves(pilot, owner):
            cores[pilot.site] += pilot.room.cores
            busy[pilot.site] += pilot.room.cores - max(0, pilot.free.cores)  # below 0: fetched ahead
    waits = {
        site: _queued(found.status, "allocation") if found.status.queued else found.status.trouble
        for site, found in valid_reports(state, owner)
    }
    return [SiteUse(site, cores[site], busy[site], waits.get(site, "")) for site in sorted({*cores, *waits})]
