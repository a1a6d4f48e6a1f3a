"""What the server has yet to be told of the cache of this host [CMS IV.E].

Rules: (1) what a reply acknowledges is known to the server until it registers this pilot anew or starts again: then it is told
all of it; (2) a file is in one exchange at a time, so that its removal never overtakes its arrival; (3) changes that
may have been the reason for a refusal are sent alone; refused even then, they are not told again: they would only place tasks
better.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shoal.model.limits import MAX_CACHE_CHANGES, MAX_CATALOGUE
from shoal.wire.messages import CachedFile, Exchange


class CacheContent(NamedTuple):
    """What an exchange tells of the cache."""

    cached: list[CachedFile]
    uncached: list[str]


NO_CHANGES = CacheContent([], [])


class CacheChanges:
    """The files here, those that the server knows of, and the difference."""

    def __init__(self) -> None:
        self._here: dict[str, int] = {}  # digest -> size
        self._known: set[str] = set()  # digests that the server was told of
        self._changed: dict[str, None] = {}  # digests of which it does not know the present state, oldest change first
        self._is_suspect = False  # an exchange that told some, beside other things, was refused

    def change(self, added: Iterable[tuple[str, int]], removed: Iterable[str]) -> None:
        """Files came into the cache, and left it."""
        for digest in removed:
            if self._here.pop(digest, None) is not None:
                self._note(digest)
        for digest, size in added:
            if digest in self._here or len(self._here) < MAX_CATALOGUE:
                self._here[digest] = size
                self._note(digest)

    def _note(self, digest: str) -> None:
        self._changed[digest] = None

    def forgotten(self) -> None:
        """The server knows nothing of this cache (any more)."""
        self._known.clear()
        self._changed = dict.fromkeys(self._here)

    def pack(self, underway: Sequence[Exchange], is_alone: bool) -> CacheContent:
        """Take what the next exchange tells; `is_alone`: there is nothing else in it."""
        if not self._changed or (self._is_suspect and not is_alone):
            return NO_CHANGES
        sent = {one.digest for exchange in underway for one in exchange.cached}
        sent.update(digest for exchange in underway for digest in exchange.uncached)
        content = CacheContent([], [])
        for digest in list(self._changed):
            if digest in sent:
                continue
            if len(content.cached) + len(content.uncached) >= MAX_CACHE_CHANGES:
                break
            if digest in self._here:
                content.cached.append(CachedFile(digest, self._here[digest]))
            elif digest in self._known:
                content.uncached.append(digest)
            else:
                del self._changed[digest]  # it came and went
        return content

    def has_more(self, underway: Sequence[Exchange]) -> bool:
        """True if there is more to tell than one exchange holds."""
        if not self._changed:
            return False
        sent = sum(len(exchange.cached) + len(exchange.uncached) for exchange in underway)
        return len(self._changed) - sent >= MAX_CACHE_CHANGES

    def settle(self, exchange: Exchange) -> None:
        """An exchange was answered: the server is not told this again."""
        if not (exchange.cached or exchange.uncached):
            return
        self._is_suspect = False
        for one in exchange.cached:
            self._known.add(one.digest)
            if self._here.get(one.digest) == one.size:
                self._changed.pop(one.digest, None)
        for digest in exchange.uncached:
            self._known.discard(digest)
            if digest not in self._here:
                self._changed.pop(digest, None)

    def refused(self, exchange: Exchange, is_alone: bool) -> None:
        """The server itself refused an exchange; `is_alone`: there was nothing else in it."""
        if is_alone:
            self.settle(exchange)
        elif exchange.cached or exchange.uncached:
            self._is_suspect = True

    @property
    def is_settled(self) -> bool:
        """True if the server knows everything."""
        return not self._changed
