"""A host that comes back is recognised, and what it did counts on [GWP G13]."""

from __future__ import annotations

from shoal.engine.changes import HostRow
from shoal.engine.records import Pilot
from shoal.engine.state import HostKey, State


def key_of(pilot: Pilot) -> HostKey:
    """By what a host is known: one person's pilots never show what the host did for another."""
    return (pilot.identity, pilot.owner, pilot.group, pilot.site)


def host_joined(state: State, pilot: Pilot) -> int:
    """A pilot joined; returns how many its host had before."""
    known = state.hosts.get(key_of(pilot))
    before = known.pilots if known is not None else 0
    pilot.proven = known is not None and known.succeeded > 0
    if known is None:
        known = HostRow(*key_of(pilot), pilot.host, state.now, state.now, 0, 0, 0, 0, 0.0)
    _keep(state, known._replace(host=pilot.host, pilots=before + 1, seen=state.now))
    return before


def tally(state: State, pilot: Pilot, outcome: str, busy: float = 0.0, count: int = 1) -> None:
    """Attempts on this host `succeeded`, `failed` or were `lost`, after so many core seconds in all."""
    known = state.hosts.get(key_of(pilot))
    if known is not None:
        succeeded, failed, lost = known.succeeded, known.failed, known.lost
        if outcome == "succeeded":
            succeeded += count
        elif outcome == "failed":
            failed += count
        else:
            lost += count
        # Not by `_replace`, which takes five times as long: there is one for each report.
        _keep(state, HostRow(*known[:6], state.now, known.pilots, succeeded, failed, lost, known.busy + busy))


def _keep(state: State, row: HostRow) -> None:
    state.hosts[row.identity, row.owner, row.grp, row.site] = row
    state.change(row)
