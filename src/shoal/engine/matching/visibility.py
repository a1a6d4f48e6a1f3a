"""Which pilots do not see the submitter's files [ADR 0029]. A pilot finds that out by the evidence in a lease, gives the
lease back, and gets nothing more that needs these paths; after a while it is asked again, since a file system may have been
mounted meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from shoal.engine.matching.classes import TaskClass
from shoal.engine.records import NO_APART, Array, Pilot
from shoal.engine.state import State
from shoal.model.limits import MAX_BLIND
from shoal.model.task.spec import Spec
from shoal.model.task.visible import View, parse_evidence, views

ASK_AFTER = 300.0  # seconds after which a pilot is asked again by itself
ASK_NEW_RUN_AFTER = 10.0  # seconds after which a new run, or a retry, makes it be asked again


def mark_blind(state: State, pilot: Pilot, cls: TaskClass) -> bool:
    """A pilot does not see what a class needs; False: the class needs nothing, so that this cannot be."""
    if not cls.key.visible:
        return False
    if len(pilot.blind) >= MAX_BLIND:
        pilot.blind.clear()
    pilot.blind[cls.key.visible] = state.now
    pilot.stamp += 1  # its eligibilities are made anew
    return True


def need_directory(state: State, array: Array) -> bool:
    """Keep an array from pilots that do not see the submitter's directory, in which is what it reads; False: there is no
    evidence by which a pilot would know. After a restart of the server that is found out again."""
    spec = array.spec
    evidence = {path: parse_evidence(text)._replace(is_needed=True).text for path, text in spec.visible.items()}
    if not evidence:
        return False
    if evidence != spec.visible:
        state.queue.withdraw(array)
        array.spec = replace(spec, visible=evidence)
        for task in array.tasks.values():
            task.set_own()
        offer_again(state, array)
    return True


def offer_again(state: State, array: Array) -> None:
    """Offer an array that was withdrawn, and its elements that are still in classes of their own."""
    apart, array.apart = list(array.apart), NO_APART
    for element in apart:
        state.offer_back(array.tasks[element])
    state.queue.offer(array)


def ask_again(state: State, specs: Iterable[Spec]) -> None:
    """Have pilots look again for what new tasks need."""
    wanted = {views(spec.visible) for spec in specs if spec.visible}
    for pilot in state.pilots.values():
        if pilot.blind and wanted:
            _forget(pilot, [key for key in wanted if pilot.blind.get(key, state.now) <= state.now - ASK_NEW_RUN_AFTER])


def ask_again_in_time(state: State) -> None:
    """Have pilots look again for what they did not see a while ago."""
    for pilot in state.pilots.values():
        if pilot.blind:
            _forget(pilot, [key for key, at in pilot.blind.items() if at <= state.now - ASK_AFTER])


def _forget(pilot: Pilot, keys: Iterable[tuple[View, ...]]) -> None:
    for key in keys:
        del pilot.blind[key]
        pilot.stamp += 1
