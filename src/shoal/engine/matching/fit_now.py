"""What the moment says about a class on a pilot: time left, requirements over what changes, and doubts about a host."""

from __future__ import annotations

from shoal.engine.matching.classes import TaskClass
from shoal.engine.matching.eligibility import other_hosts
from shoal.engine.matching.pilot_attributes import attributes, lookup, time_left
from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.sched.expr.scalar import holds


def suits_now(state: State, pilot: Pilot, cls: TaskClass) -> bool:
    """Does what depends on the moment let a pilot run a class: time left, and expressions over it; and no doubt?"""
    if pilot.ends is not None and too_short(state, pilot, cls):
        return False
    return holds_now(state, pilot, cls) and may_try(state, pilot, cls)


def holds_now(state: State, pilot: Pilot, cls: TaskClass) -> bool:
    """Does a requirement over what changes from moment to moment hold? (Of the others the menu knows.)"""
    if cls.require is None or not cls.is_volatile:
        return True
    return holds(cls.require, lookup(state, pilot, cls.key.owner), attributes(state, cls.key))


def too_short(state: State, pilot: Pilot, cls: TaskClass) -> bool:
    """Would the pilot end before the task does: by the limit it asked for, else by what its like took?"""
    lasts = cls.key.time if cls.key.time is not None else cls.base.p95
    return lasts is not None and lasts > time_left(state, pilot)


def may_try(state: State, pilot: Pilot, cls: TaskClass) -> bool:
    """Is there no open question whether this kind of task or this host is at fault?"""
    head = cls.head()
    evidence = state.accounting.evidence.get(pilot.holder)
    if head is None or evidence is None or not evidence.kinds.in_row(pilot.host):
        return True
    if evidence.places.is_on_trial(pilot.name, pilot.host, pilot.site, state.now):
        return True  # whose fault it was is decided, and its ban is over: the one probe it gets shall tell
    return evidence.kinds.may_try(head.array.trait, pilot.host, state.now, len(other_hosts(state, pilot, cls)))
