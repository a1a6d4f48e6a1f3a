"""Lockout of senders whose requests meet defects of the server, for a growing time if they go on [ADR 0016].

Pure: time is an argument. Each contained request costs everybody a rebuild of the engine, so a sender may not repeat it
at will. A sender is locked out only while it sent most of the contained requests: a defect that everybody meets is not
the fault of the busiest sender.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable

from shoal.model.errors import TooBusy
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_BUCKETS

WINDOW = 3_600.0  # seconds for which a contained request counts
SHORTEST, LONGEST = 5.0, 600.0  # seconds of the first and of the longest lockout
RECENT = 1_000  # contained requests that are kept for the comparison with other senders


@dataclass(frozen=True)
class Sender:
    """One name under which a sender is counted, and how many contained requests of that name are tolerated."""

    name: str  # pilot:p3f9c, token:t3f9c01, owner:ada
    tolerated: int


class Lockouts:
    """The senders that are locked out, and until when."""

    def __init__(self) -> None:
        self._until: OrderedDict[str, float] = OrderedDict()
        self._strikes: OrderedDict[str, list[float]] = OrderedDict()
        self._recent: deque[tuple[float, frozenset[str]]] = deque(maxlen=RECENT)

    def __len__(self) -> int:
        return len(self._until)

    def strike(self, senders: Iterable[Sender], now: float) -> float:
        """Count a contained request of this sender; returns for how many seconds it is locked out, if it is."""
        senders = tuple(senders)
        self._recent.append((now, frozenset(sender.name for sender in senders)))
        longest = 0.0
        for sender in senders:
            mine = [when for when in self._strikes.pop(sender.name, []) if now - when < WINDOW][-RECENT:]
            mine.append(now)
            self._strikes[sender.name] = mine
            beyond = len(mine) - sender.tolerated
            if beyond > 0 and self._is_most_of_all(sender.name, now):
                seconds = min(LONGEST, SHORTEST * 2.0 ** min(beyond - 1, 16))
                self._until.pop(sender.name, None)
                self._until[sender.name] = now + seconds
                longest = max(longest, seconds)
        for table in (self._until, self._strikes):
            while len(table) > MAX_BUCKETS:
                table.popitem(last=False)
        return longest

    def check(self, senders: Iterable[Sender], now: float) -> None:
        """Refuse a sender that is locked out."""
        if not self._until:
            return
        for sender in senders:
            until = self._until.get(sender.name)
            if until is None:
                continue
            if now < until:
                raise TooBusy(
                    f"shut out for {until - now:.0f} s more: requests of {sender.name} met defects in the server again and again",
                    after=until - now, code="locked_out", hint="the server's log and `shoal events` tell which",
                )  # fmt: skip
            del self._until[sender.name]

    def _is_most_of_all(self, name: str, now: float) -> bool:
        recent = [names for when, names in self._recent if now - when < WINDOW]
        return 2 * sum(name in names for names in recent) > len(recent)
