"""Which pilots of a mesh fetched which blob from this server, so that the others fetch it from them [LBO D4; ADR 0048].

When many pilots of one site need the same bytes at the same time, one of them is to fetch them, and the others wait for it: the
bytes come to the site once. All of it is a hint, kept in memory and bounded; whoever is not helped by it fetches from here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from shoal.model.limits import FETCHED_KEPT, MAX_FETCHERS

CLAIM = 10.0  # seconds that a pilot has for a file at least
SLOWEST = 8 * 1024 * 1024  # bytes a second at which it is expected to fetch one
Key = tuple[str, str, str]  # site, owner or group, digest


class Known(NamedTuple):
    """What one asker hears."""

    pilots: list[str]  # that fetched it before, the latest first
    wait: bool  # one of them is at it


class Fetchers:
    """Who fetched what, by mesh and digest."""

    def __init__(self) -> None:
        self._found: OrderedDict[Key, OrderedDict[str, float]] = OrderedDict()  # pilot -> until when it is waited for

    def ask(
        self, key: Key, pilot: str, size: int, now: float, lives: Callable[[str], bool], may_serve: bool = True
    ) -> Known:
        """What is known of a blob. If nobody is at it, the asker is from now on, unless nobody could fetch it from there."""
        known = self._found.setdefault(key, OrderedDict())
        self._found.move_to_end(key)
        for name in [name for name in known if not lives(name)]:
            del known[name]
        others = [name for name in reversed(known) if name != pilot]
        wait = any(known[name] > now for name in others)
        if may_serve and not wait:
            known[pilot] = now + CLAIM + size / SLOWEST
            known.move_to_end(pilot)
            while len(known) > MAX_FETCHERS:
                known.popitem(last=False)
        if not known:
            del self._found[key]
        while len(self._found) > FETCHED_KEPT:
            self._found.popitem(last=False)
        return Known(others, wait)
