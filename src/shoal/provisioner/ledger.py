"""The allocations of one site, on disk before they are submitted: none is forgotten, and a budget is never crossed.

The file is the memory of what was asked for; what is true of an allocation the batch system says, by its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

from shoal.client.config import write_private
from shoal.model.lazy_dataclass import dataclass
from shoal.provision.backend import ENDED, QUEUED, RUNNING, Status

UNSEEN = 90.0  # seconds after which a submission that no batch system knows is taken for one that did not happen


@dataclass(frozen=True)
class Allocation:
    """One allocation that was asked for."""

    name: str
    cores: int  # on all its hosts
    seconds: float  # of wall time
    submitted: float
    id: str = ""  # empty until the batch system gave one
    state: str = QUEUED
    reason: str = ""
    started: float | None = None
    joined: bool = False  # a pilot of it registered
    worked: bool = False  # a pilot of it held a task
    cancelled: bool = False

    @property
    def reserved(self) -> float:
        """Core seconds that it may take at most."""
        return self.cores * self.seconds


class Ledger:
    """The allocations of a site that are not over, and what those before took."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.allocations: dict[str, Allocation] = {}
        self.next, self.used = 1, 0.0
        self.empty, self.empty_at = 0, 0.0  # allocations in a row that did no work, and when the last of them ended
        if path.exists():
            found = json.loads(path.read_bytes())
            self.next, self.used = found["next"], found["used"]
            self.empty, self.empty_at = found["empty"], found["empty_at"]
            self.allocations = {row["name"]: Allocation(**row) for row in found["allocations"]}

    def save(self) -> None:
        """Write it whole."""
        rows = [asdict(one) for one in self.allocations.values()]
        document = {
            "next": self.next, "used": self.used, "empty": self.empty, "empty_at": self.empty_at, "allocations": rows,
        }  # fmt: skip
        write_private(self._path, json.dumps(document, indent=1).encode())

    @property
    def committed(self) -> float:
        """Core seconds that were used, or are reserved: a budget bounds these."""
        return self.used + sum(one.reserved for one in self.allocations.values())

    def put(self, allocation: Allocation) -> None:
        """Enter or change an allocation, on disk when this returns."""
        self.allocations[allocation.name] = allocation
        self.save()

    def update(self, found: Iterable[Status], now: float) -> tuple[list[Allocation], list[Allocation]]:
        """Take in what the batch system says; returns those that started and those that ended since."""
        known = {status.name: status for status in found}
        started, ended = [], []
        for name, status in known.items():
            if name not in self.allocations and status.state != ENDED:  # it was submitted by a process that died then
                self.allocations[name] = Allocation(name, 0, 0.0, now, status.id)
                number = name.rpartition("-")[2]
                self.next = max(self.next, int(number) + 1 if number.isdigit() else 0)  # its name is taken
        for name, one in list(self.allocations.items()):
            said = known.get(name)
            if said is None:
                if not one.id and now - one.submitted < UNSEEN:
                    continue
                said = Status(one.id, name, ENDED, one.reason if one.cancelled else "")
            after = replace(one, id=said.id or one.id, state=said.state, reason=said.reason or one.reason)
            if said.state == RUNNING and one.started is None:
                after = replace(after, started=now)
                started.append(after)
            if said.state == ENDED:
                ended.append(self._end(after, now))
            else:
                self.allocations[name] = after
        if started or ended:
            self.save()
        return started, ended

    def _end(self, one: Allocation, now: float) -> Allocation:
        del self.allocations[one.name]
        if one.started is not None:
            self.used += one.cores * min(one.seconds, now - one.started)
        elif one.joined:
            self.used += one.reserved  # it came and went between two looks: no more than this
        if one.worked:
            self.empty = 0
        elif not one.cancelled:
            self.empty, self.empty_at = self.empty + 1, now
        return one
