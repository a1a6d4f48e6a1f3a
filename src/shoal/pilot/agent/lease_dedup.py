"""Which attempts came here before: a lease sent again must not begin again. Pure, like `agent`."""

from __future__ import annotations

from collections import OrderedDict

from shoal.model.ids import AttemptId, parse_attempt
from shoal.model.rangeset import RangeSet
from shoal.wire.chunk import part
from shoal.wire.messages import Lease

KEPT = 2_000  # runs of which is remembered, by nonce, attempt number and incarnation


class LeaseDedup:
    """Attempts by ranges of elements."""

    def __init__(self) -> None:
        self._known: OrderedDict[AttemptId, RangeSet] = OrderedDict()  # by attempt, as if on element 0

    def take(self, lease: Lease) -> tuple[list[Lease], list[Lease]]:
        """What of a lease is new, neighbours together, and what came before."""
        attempt = parse_attempt(lease.attempt)
        first, key = attempt.element, attempt._replace(element=0)
        known = self._known.setdefault(key, RangeSet())
        self._known.move_to_end(key)
        new, again = RangeSet([(first, first + lease.count)]), RangeSet([(first, first + lease.count)])
        for low, high in known.ranges():
            new.remove_range(low, high)
        for low, high in new.ranges():
            again.remove_range(low, high)
        known.add_range(first, first + lease.count)
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        return _parts(lease, first, new), _parts(lease, first, again)


def _parts(lease: Lease, first: int, elements: RangeSet) -> list[Lease]:
    return [part(lease, low - first, high - first) for low, high in elements.ranges()]
