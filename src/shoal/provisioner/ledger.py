"""The allocations of one site, on disk before they are submitted: none is forgotten, and a budget is never crossed.

The file is the memory of what was asked for, and of how the site did; what is true of an allocation the batch system says, by
its name. A thread that talks to the site changes it while others read: `allocations` is never changed, but replaced.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

from shoal.client.config import write_private
from shoal.model.lazy_dataclass import dataclass
from shoal.provision.backend import ENDED, QUEUED, RUNNING, Status

WAITS_KEPT = 20  # waits in the queue, of the last allocations that started
ERRORS_KEPT = 5
IDLE_FOR = 30.0  # seconds; a pilot that ended sooner was killed, and may have had a task that nobody saw from here
UNEXPLAINED = 15.0  # seconds after a submission in which a batch system may not have looked at it yet
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
    hosts: int = 1  # with a pilot on each
    pilots: int = 0  # that were connected at one time, at most
    worked: bool = False  # a pilot of it held a task
    cancelled: bool = False
    released: bool = False  # its pilots were asked to end

    @property
    def joined(self) -> bool:
        """True if a pilot of it registered."""
        return self.pilots > 0

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
        self.waits: list[float] = []  # seconds in the queue, of the last allocations that started
        self.errors: list[tuple[float, str]] = []  # the last ones, and when they were
        self.looked = (
            0.0  # when the batch system last told what there is; 0: never, so that there may be more than is here
        )
        if path.exists():
            found = json.loads(path.read_bytes())
            self.looked = found["looked"]
            self.next, self.used = found["next"], found["used"]
            self.empty, self.empty_at = found["empty"], found["empty_at"]
            self.waits, self.errors = found["waits"], [(at, text) for at, text in found["errors"]]
            self.allocations = {row["name"]: Allocation(**row) for row in found["allocations"]}

    def save(self) -> None:
        """Write it whole."""
        rows = [asdict(one) for one in self.allocations.values()]
        document = {
            "next": self.next, "used": self.used, "empty": self.empty, "empty_at": self.empty_at, "waits": self.waits,
            "errors": self.errors, "looked": self.looked, "allocations": rows,
        }  # fmt: skip
        write_private(self._path, json.dumps(document, indent=1).encode())

    @property
    def committed(self) -> float:
        """Core seconds that were used, or are reserved: a budget bounds these."""
        return self.used + sum(one.reserved for one in self.allocations.values())

    @property
    def wait(self) -> float | None:
        """Seconds that an allocation usually waits; None: none has started yet."""
        return sorted(self.waits)[len(self.waits) // 2] if self.waits else None

    def put(self, allocation: Allocation) -> None:
        """Enter or change an allocation, on disk when this returns."""
        self.allocations = {**self.allocations, allocation.name: allocation}
        self.save()

    def drop(self, name: str) -> None:
        """Forget an allocation that was never submitted."""
        self.allocations = {known: one for known, one in self.allocations.items() if known != name}
        self.save()

    def forget(self) -> None:
        """The site was removed: if one of this name is added again it begins anew, with other names for its allocations."""
        self.allocations, self.waits, self.errors = {}, [], []
        self.used, self.empty, self.empty_at = 0.0, 0, 0.0
        self.save()

    def note_wait(self, seconds: float) -> None:
        """An allocation started after so long; `put` or `save` writes it down."""
        self.waits = [*self.waits, max(0.0, seconds)][-WAITS_KEPT:]

    def note_error(self, text: str, now: float) -> None:
        """Keep what went wrong, on disk when this returns; the same again takes the place of the earlier one."""
        self.errors = [*(one for one in self.errors if one[1] != text), (now, text)][-ERRORS_KEPT:]
        self.save()

    def update(
        self, found: Iterable[Status], now: float, unknown: tuple[int, float] = (0, 0.0)
    ) -> tuple[list[Allocation], list[Allocation]]:
        """Take in what the batch system says; returns those that started and those that ended since. `unknown`: the most cores
        and seconds that one may have which is not in the ledger."""
        names = {one.id: one.name for one in self.allocations.values() if one.id}
        # Some systems tell ids only.
        known = {status.name or names.get(status.id, ""): status for status in found}
        known.pop("", None)
        started, ended = [], []
        after_all = dict(self.allocations)
        for name, status in known.items():
            if name not in after_all and status.state != ENDED:  # it was submitted by a process that died then
                after_all[name] = Allocation(name, *unknown, self.looked or now, status.id)
                number = name.rpartition("-")[2]
                self.next = max(self.next, int(number) + 1 if number.isdigit() else 0)  # its name is taken
        for name, one in list(after_all.items()):
            said = known.get(name)
            if said is None:
                if not one.id and now - one.submitted < UNSEEN:
                    continue
                said = Status(one.id, name, ENDED, one.reason if one.cancelled else "")
            after = replace(one, id=said.id or one.id, state=said.state, reason=said.reason or one.reason)
            if said.state == RUNNING and one.started is None:
                after = replace(after, started=self._begun(one))
                started.append(after)
            if said.state == ENDED:
                del after_all[name]
                self._settle(after, now)
                ended.append(after)
            else:
                after_all[name] = after
        self.allocations, is_first = after_all, not self.looked
        self.looked = now
        if started or ended or is_first:
            self.save()
        return started, ended

    def is_unexplained(self, now: float) -> bool:
        """True if something was submitted a moment ago, and the batch system does not say yet why it waits."""
        return any(
            one.id
            and one.state == QUEUED
            and not one.reason
            and not one.cancelled
            and now - one.submitted < UNEXPLAINED
            for one in self.allocations.values()
        )

    def _begun(self, one: Allocation) -> float:
        """When an allocation may have started that did not run at the last look: no later than it did, for its cost is counted
        from there on."""
        return max(one.submitted, self.looked)

    def _settle(self, one: Allocation, now: float) -> None:
        """An allocation ended: count what it took, and whether it did any work."""
        if not one.id:
            return  # no batch system ever knew it
        began = one.started if one.started is not None else self._begun(one)  # it may have run since the last look
        self.used += one.cores * min(one.seconds, max(0.0, now - began))
        if one.worked:
            self.empty = 0
        elif not one.cancelled and not one.released and (not one.joined or now - began >= IDLE_FOR):
            self.empty, self.empty_at = self.empty + 1, now
