"""What a pilot bids for: it filters and ranks the tasks of its window by its own tags, as the server would [LBO III.C]."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from shoal.model.lazy_dataclass import dataclass
from shoal.pilot.leader.messages import KindBid
from shoal.sched.expr.parse import parse
from shoal.sched.expr.scalar import holds, rank_of
from shoal.sched.fit import how_many, take
from shoal.sched.leader.bids import Answer, Bid, Listed, assign_bids, best_bids
from shoal.wire.messages import Capacity, Lease, TagValue

MEGA = 1 << 20
WORST = -1e300  # a rank that is no number
MOST_BIDS = 8  # kinds that a pilot bids for in one round


@dataclass
class Kind:
    """Tasks that matching cannot tell apart, oldest first."""

    name: str
    room: Capacity
    require: str
    rank: str
    attempts: list[str]


def kind_name(lease: Lease) -> str:
    """What tasks have in common that are matched alike: the same for everybody who has the lease."""
    room = lease.room
    said = (lease.attempt.partition(".")[0], lease.require, lease.rank, room.cores, room.memory, room.disk, room.gpus)
    return hashlib.sha256(repr(said).encode()).hexdigest()[:16]


def kinds_of(tasks: Mapping[str, Lease], attempts: Iterable[str]) -> OrderedDict[str, Kind]:
    """These tasks by kind, in the order of the window."""
    found: OrderedDict[str, Kind] = OrderedDict()
    for attempt in attempts:
        lease = tasks[attempt]
        name = kind_name(lease)
        if name not in found:
            found[name] = Kind(name, lease.room, lease.require, lease.rank, [])
        found[name].attempts.append(attempt)
    return found


def bids_of(kinds: OrderedDict[str, Kind], free: Capacity, tags: Mapping[str, TagValue], turn: int) -> list[KindBid]:
    """The best bids of a pilot that has so much free."""
    fits: list[Bid] = []
    listed = [Listed(len(kind.attempts)) for kind in kinds.values()]
    for column, kind in enumerate(kinds.values()):
        if how_many(kind.room, free) < 1:
            continue
        task = _attributes(kind.room)
        if kind.require and not holds(parse(kind.require), tags.get, task):
            continue
        rank = rank_of(parse(kind.rank, "rank"), tags.get, task) if kind.rank else 0.0
        fits.append(Bid(column, max(rank, WORST)))
    names = list(kinds)
    return [KindBid(names[bid.column], bid.rank) for bid in best_bids(fits, listed, MOST_BIDS, turn)]


def assigned(
    kinds: OrderedDict[str, Kind], bidders: Mapping[str, tuple[Capacity, list[KindBid]]], is_exact: bool = True
) -> list[tuple[str, str]]:
    """Who gets which task: pairs of member and attempt. Where a pilot has less free than it is given, it gets fewer."""
    columns = {name: at for at, name in enumerate(kinds)}
    listed = [Listed(len(kind.attempts)) for kind in kinds.values()]
    answers: dict[str, Answer] = {}
    for member, (free, bids) in bidders.items():
        known = tuple(Bid(columns[bid.kind], bid.rank) for bid in bids if bid.kind in columns)
        if known:
            smallest = [kinds[bid.kind].room for bid in bids if bid.kind in columns]
            answers[member] = Answer(max(how_many(room, free) for room in smallest), known)
    left = {name: list(kind.attempts) for name, kind in kinds.items()}
    free_of = {member: free for member, (free, _) in bidders.items()}
    found: list[tuple[str, str]] = []
    by_column = list(kinds.values())
    for given in assign_bids(listed, answers, is_exact):
        kind = by_column[given.column]
        if how_many(kind.room, free_of[given.pilot]) < 1:
            continue
        free_of[given.pilot] = take(free_of[given.pilot], kind.room)
        found.append((given.pilot, left[kind.name].pop(0)))
    return found


def _attributes(room: Capacity) -> dict[str, Any]:
    return {
        "cores": room.cores, "memory_mb": room.memory // MEGA, "disk_mb": room.disk // MEGA, "gpus": room.gpus,
    }  # fmt: skip
