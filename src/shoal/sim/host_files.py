"""The cache of a simulated machine: the files that its tasks read, the least recently used of which go. It survives pilots."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

SIZE = 700 << 20  # bytes of each file


class HostFiles:
    """The files of one machine."""

    def __init__(self, most: int = 6) -> None:
        self._most = most
        self._files: OrderedDict[str, None] = OrderedDict()
        self.hits = self.misses = 0

    def read(self, digests: Iterable[str]) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
        """A task reads these files: what comes into the cache for it, and what goes."""
        added: list[str] = []
        for digest in digests:
            if digest in self._files:
                self._files.move_to_end(digest)
                self.hits += 1
            else:
                self._files[digest] = None
                self.misses += 1
                added.append(digest)
        removed = [self._files.popitem(last=False)[0] for _ in range(len(self._files) - self._most)]
        return tuple((digest, SIZE) for digest in added if digest in self._files), tuple(removed)

    @property
    def here(self) -> set[str]:
        """The digests of the files that are here."""
        return set(self._files)
