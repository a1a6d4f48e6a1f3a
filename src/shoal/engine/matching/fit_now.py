"""Whether a class fits a pilot at this moment: time left, requirements over what changes, and doubts about a host."""

from __future__ import annotations

from shoal.engine.matching.classes import TaskClass
from shoal.engine.matching.eligibility import other_pilots
from shoal.engine.matching.pilot_attributes import attributes, lookup, time_left
from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.sched.expr.scalar import holds


def suits_now(state: State, pilot: Pilot, cls: TaskClass) -> bool:
    """True if nothing that depends on the moment keeps a pilot from running a class."""
    if pilot.ends is not None and too_short(state, pilot, cls):
        return False
    return holds_now(state, pilot, cls) and may_try(state, pilot, cls)


def holds_now(state: State, pilot: Pilot, cls: TaskClass) -> bool:
    """True if a requirement over what changes from moment to moment holds; the others are in the eligibility."""
    if cls.require is None or not cls.is_volatile:
        return True
    return holds(cls.require, lookup(state, pilot, cls.key.owner, cls), attributes(state, cls.key))


def too_short(state: State, pilot: Pilot, cls: TaskClass) -> bool:
    """True if the pilot would end before the task: by its stated time, else by how long tasks of its class took."""
    if cls.key.time is not None:
        lasts: float | None = cls.key.time
    else:
        lasts = None if _is_cut_to_fit(cls) else cls.base.p95
    return lasts is not None and lasts > time_left(state, pilot)


def _is_cut_to_fit(cls: TaskClass) -> bool:
    """True if its next task is a rest of divisible work, whose piece is made for the time that the pilot has."""
    head = cls.head() if cls.is_divisible else None
    return head is not None and head.array.spec.units is not None and not head.array.spec.units.is_cut


def may_try(state: State, pilot: Pilot, cls: TaskClass) -> bool:
    """False while it is open whether this kind of task or this host is at fault for a row of failures."""
    evidence = state.accounting.evidence.get(pilot.holder)
    if evidence is None or not evidence.kinds.in_row(pilot.host):
        return True
    head = cls.head()
    if head is None:
        return True
    if evidence.places.is_on_trial(pilot.name, pilot.host, pilot.site, state.now):
        return True  # the host was at fault and its ban is over: its one probe task shall show whether it is good again
    hosts = {other.host for other in other_pilots(state, pilot, cls)}
    return evidence.kinds.may_try(head.array.trait, pilot.host, state.now, len(hosts))
