"""Which attempts came here before: a lease sent again must not begin again. Pure, like `agent`."""

from __future__ import annotations

from collections import OrderedDict

from shoal.model.ids import parse_attempt
from shoal.model.rangeset import RangeSet
from shoal.wire.chunk import part
from shoal.wire.messages import Lease

KEPT = 2_000  # runs of which is remembered, by attempt number and incarnation


class Seen:
    """Attempts by ranges of elements."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int, int], RangeSet] = OrderedDict()

    def take(self, lease: Lease) -> list[Lease]:
        """What of a lease is new, neighbours together."""
        run, first, number, incarnation = parse_attempt(lease.attempt)
        known = self._known.setdefault((run, number, incarnation), RangeSet())
        self._known.move_to_end((run, number, incarnation))
        new = RangeSet([(first, first + lease.count)])
        for low, high in known.ranges():
            new.remove_range(low, high)
        known.add_range(first, first + lease.count)
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        return [part(lease, low - first, high - first) for low, high in new.ranges()]
