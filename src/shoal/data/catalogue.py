"""What a cache holds, and what it lets go for a new file: space, last use, and what may not go now [CMS C3; CMS IV.C].

The space is a maximum less a reserve, which stays free for what tasks write. The least recently used files go first, as the
paper chose for its workflows; one that somebody uses (a pin) does not go. The catalogue only decides: `pilot/files/host_cache`
fills it from the directory that it is about.
"""

from __future__ import annotations

from collections.abc import Iterator

from shoal.model.lazy_dataclass import dataclass


@dataclass
class Entry:
    """One file in the cache."""

    size: int
    used: float  # when it was used last
    pins: int = 0  # who uses it now
    is_verified: bool = False  # its bytes were compared with its digest, and did not change since


class Catalogue:
    """The files of one cache, by digest."""

    def __init__(self, most: int, reserve: int = 0) -> None:
        self.most, self.reserve = most, reserve
        self.held = 0  # bytes of all files
        self._entries: dict[str, Entry] = {}

    @property
    def space(self) -> int:
        """Bytes that the files may have together."""
        return max(0, self.most - self.reserve)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def get(self, digest: str) -> Entry | None:
        """The entry of a file, which is not changed through it; None if the cache does not hold it."""
        return self._entries.get(digest)

    def admit(self, digest: str, size: int, now: float) -> list[str] | None:
        """Enter a file, or a new size of one. Returns what goes for it, least recently used first; None, and nothing changes, if
        it has no place however much goes."""
        known = self._entries.get(digest)
        more = size - (known.size if known is not None else 0)
        going = self.going(more, digest)
        if going is None:
            return None
        for other in going:
            self.remove(other)
        self.held += more
        if known is None:
            self._entries[digest] = Entry(size, now)
        else:
            known.size, known.used = size, now
        return going

    def admit_known(self, digest: str, size: int, used: float, is_pinned: bool) -> None:
        """Enter a file that is there in any case, also beyond the space."""
        self.remove(digest)
        self._entries[digest] = Entry(size, used, int(is_pinned))
        self.held += size

    def going(self, more: int, but: str = "") -> list[str] | None:
        """Which files would go for so many bytes more; None if those that may go are not enough."""
        over, going = self.held + more - self.space, []
        if over <= 0:
            return []
        free = ((entry.used, digest) for digest, entry in self._entries.items() if not entry.pins and digest != but)
        for _, digest in sorted(free):
            going.append(digest)
            over -= self._entries[digest].size
            if over <= 0:
                return going
        return None

    def use(self, digest: str, now: float) -> None:
        """Note that a file is used: it goes later."""
        entry = self._entries[digest]
        entry.used = max(entry.used, now)

    def pin(self, digest: str) -> None:
        """Keep a file until it was unpinned as often."""
        self._entries[digest].pins += 1

    def unpin(self, digest: str) -> None:
        """One user of a file is done with it."""
        entry = self._entries.get(digest)
        if entry is not None and entry.pins:
            entry.pins -= 1

    def set_verified(self, digest: str, is_verified: bool) -> None:
        """Note whether the bytes of a file are known to be those of its digest."""
        self._entries[digest].is_verified = is_verified

    def remove(self, digest: str) -> int:
        """Forget a file; returns its size, 0 if it is not here."""
        entry = self._entries.pop(digest, None)
        if entry is None:
            return 0
        self.held -= entry.size
        return entry.size
