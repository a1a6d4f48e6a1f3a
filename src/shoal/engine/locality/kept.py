"""Pilots without a task that are not idle: they alone at their site have files that ready tasks read, which would be lost
with them [CMS IV.E]. For a bounded time: a task that never comes must not hold a machine for ever."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from shoal.engine.locality.index import Cache, File
from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.model.limits import MAX_CANDIDATES, MAX_COMPARED_CACHES, MAX_KEPT_FOR_DATA

BEATS = 3.0  # for which a pilot is told at once that it is kept: a reply may be lost


class Kept(NamedTuple):
    """Why a pilot without a task is not idle."""

    files: int
    bytes: int
    seconds: float  # for which it is kept at most


def kept_of(state: State, pilot: Pilot) -> Kept | None:
    """Whether a pilot is kept for its data."""
    cache = state.data.cache_of(pilot)
    if cache is None or not cache.wanted or pilot.held or pilot.draining:
        return None
    if next((name for name, one in cache.pilots.items() if not one.draining), "") != pilot.name:
        return None  # another pilot of its host has the same
    files = [file for file in islice(cache.wanted, MAX_CANDIDATES) if _is_alone(cache, file)]
    since = cache.kept_since if cache.kept_since is not None else state.now
    left = since + MAX_KEPT_FOR_DATA - state.now
    return Kept(len(files), sum(file.bytes for file in files), left) if files and left > 0 else None


def _is_alone(cache: Cache, file: File) -> bool:
    """True if no other pilot of the site and owner has a file."""
    for other in islice(file.caches, MAX_COMPARED_CACHES):
        is_near = other is not cache and other.key[1:] == cache.key[1:]
        if is_near and any(not pilot.draining and not pilot.suspect for pilot in other.pilots.values()):
            return False
    return len(file.caches) <= MAX_COMPARED_CACHES


def keep_now(state: State, pilot: Pilot) -> float:
    """Seconds for which a pilot is told that it must not end for want of tasks; notes since when it is kept."""
    cache = state.data.cache_of(pilot) if state.data.caches else None
    if cache is None:
        return 0.0
    found = kept_of(state, pilot)
    if found is not None:
        cache.kept_since = state.now if cache.kept_since is None else cache.kept_since
        return min(found.seconds, BEATS * state.timing.beat)
    if not cache.wanted or pilot.held:
        cache.kept_since = None
    return 0.0
