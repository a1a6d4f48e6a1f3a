"""What successes and failures say about places: pilots, hosts and sites that fail are left alone for a while, said
aloud, and lifted by a task that succeeds there [G7, B7, S8]."""

from __future__ import annotations

from shoal.engine.changes import Notice
from shoal.engine.records import Array, Pilot
from shoal.engine.state import State
from shoal.sched.ban import HOST, PILOT, SITE


def praise(state: State, pilot: Pilot, array: Array, count: int = 1) -> None:
    """Tasks succeeded there: whatever was held against the place is over."""
    books = state.books
    pilot.proven = True
    books.kinds.succeed(array.trait, pilot.host, pilot.site, count)
    if array.spec.setup or array.spec.container:
        books.setups.succeed(array.trait, pilot.host, pilot.site, count)
    if books.places.streaks:
        _lift(state, pilot, books.places.clear(pilot.name, pilot.host, pilot.site), "a task succeeded")


def blame(state: State, pilot: Pilot, reason: str, failures: int = 1) -> None:
    """A failure was the place's fault; a ban that it leads to is told to whoever may see the pilot, and to the hook."""
    books = state.books
    site_hosts = len({p.host for p in state.pilots.values() if p.site == pilot.site})
    for ban in books.places.blame(pilot.name, pilot.host, pilot.site, state.now, reason, site_hosts, failures):
        state.emit("place_banned", pilot=pilot, place=ban.kind, name=ban.name, reason=reason, until=ban.until)
        state.out.notices.append(Notice("banned", ban.kind, ban.name, reason, ban.until))
    books.touch_places()


def forgive(state: State, trait: str, hosts: list[str]) -> None:
    """Failures that hosts were blamed for were the task's own after all."""
    for host in hosts:
        state.books.kinds.excuse(trait, host)
        pilot = next((p for p in state.pilots.values() if p.host == host), None)
        if pilot is not None and state.books.places.streaks:
            lifted = state.books.places.forgive(pilot.name, host, pilot.site)
            _lift(state, pilot, lifted, "it was the task's own error")


def end_probes(state: State) -> None:
    """Probes that were returned, cancelled or lost told nothing: nobody need wait for them."""
    places = state.books.places
    for kind, name in [key for key, streak in places.streaks.items() if streak.probing is not None]:
        there = [p for p in state.pilots.values() if {PILOT: p.name, HOST: p.host, SITE: p.site}[kind] == name]
        if not any(pilot.held for pilot in there):
            places.release(*(name if kind == each else "" for each in (PILOT, HOST, SITE)))


def _lift(state: State, pilot: Pilot, places: list[tuple[str, str]], why: str) -> None:
    state.books.touch_places()
    for kind, name in places:
        state.emit("place_lifted", pilot=pilot, place=kind, name=name, why=why)
        state.out.notices.append(Notice("lifted", kind, name, why, state.now))
