"""Deduplication of leases: an attempt that was received before must not begin again."""

from __future__ import annotations

from collections import OrderedDict

from shoal.model.ids import AttemptId, parse_attempt
from shoal.model.rangeset import RangeSet
from shoal.wire.chunk import part
from shoal.wire.messages import Lease

KEPT = 2_000  # combinations of run, attempt number and incarnation that are remembered


class LeaseDedup:
    """The attempts that were received, as ranges of elements."""

    def __init__(self) -> None:
        self._known: OrderedDict[AttemptId, RangeSet] = OrderedDict()  # by attempt, as if on element 0

    def take(self, lease: Lease) -> tuple[list[Lease], list[Lease]]:
        """Divide a lease into what is new and what was received before, each as leases of neighbours."""
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
