"""waitForData: whether a task waits for a pilot that has its inputs, instead of going to one that asks [CMS IV.E].

Two rules. `idle`, as in the paper: it waits while another pilot that is idle has more of its inputs, and never for a busy one.
`cost`: it waits for whichever pilot will have all of its inputs first, as long as that costs less than to bring them to
the one that asks. Both end: a task waits no longer than `longest` in all, and with `cost` no longer than the transfer would
take, so that waiting in vain never costs more than twice what it was to save.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Optional

from shoal.model.policy import COST, IDLE, DataRule

BANDWIDTH = 1e8 / 8  # bytes per second, where nothing was measured: a network of 100 Mbit/s
LATENCY = 0.1  # seconds that each file costs beside its bytes
UNKNOWN_SIZE = 1 << 20  # bytes of a file whose size nobody has told


class Presence(NamedTuple):
    """What a pilot has of the inputs of one task."""

    files: int  # of them that are there
    missing: int  # files that are not
    missing_bytes: int
    bandwidth: float = BANDWIDTH  # bytes per second at which they would come


class Holder(NamedTuple):
    """A pilot that has inputs of a task, and could run it."""

    pilot: str
    has: Presence
    bytes: int  # of them that it has
    wait: Optional[float]  # seconds until it can begin the task; 0: it is idle; None: not known


class Hold(NamedTuple):
    """A task is not given to the pilot that asks."""

    pilot: str  # for which it waits
    bytes: int  # of its inputs that this one has
    seconds: float  # that it waits at most, from now on


def transfer_time(presence: Presence) -> float:
    """Seconds until what is missing has come."""
    if not presence.missing:
        return 0.0
    return presence.missing * LATENCY + presence.missing_bytes / max(1.0, presence.bandwidth)


def hold(rule: DataRule, here: Presence, holders: Iterable[Holder], waited: float) -> Optional[Hold]:
    """Why a task is not given to the pilot that asks, which has `here` of its inputs; None: it is given. `waited`: seconds
    since it was first kept from a pilot for this reason."""
    if rule.wait not in (IDLE, COST) or not here.missing:
        return None
    most = rule.longest
    if rule.wait == COST:
        most = min(most, transfer_time(here))
    if waited >= most:
        return None
    best = _idle(here, holders) if rule.wait == IDLE else _cheapest(here, holders)
    return Hold(best.pilot, best.bytes, most - waited) if best is not None else None


def _idle(here: Presence, holders: Iterable[Holder]) -> Optional[Holder]:
    """The idle pilot with the most files, if it has more than the one that asks."""
    found = [one for one in holders if one.wait == 0.0 and one.has.files > here.files]
    return max(found, key=lambda one: (one.has.files, one.bytes, one.pilot), default=None)


def _cheapest(here: Presence, holders: Iterable[Holder]) -> Optional[Holder]:
    """The pilot that can have all inputs and a free slot first, if that is sooner than the one that asks."""
    limit = transfer_time(here)
    found = [(one.wait + transfer_time(one.has), one) for one in holders if one.wait is not None]
    sooner = [(cost, one) for cost, one in found if cost < limit]
    return min(sooner, key=lambda pair: (pair[0], pair[1].pilot))[1] if sooner else None
