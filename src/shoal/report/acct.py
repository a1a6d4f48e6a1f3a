"""Accounts [GWP G12]: core hours by outcome, idle core hours, times in the queue and of transfers, efficiency.

Useful, failed, lost (with its pilot) and duplicated (a copy whose result was not needed) are of attempts that ended in
the requested time. Idle is what pilots offered and nobody used: known by site, host, pilot and day, and null by owner
and run, because nobody is charged with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from shoal.model.ids import run_text
from shoal.model.lazy_dataclass import dataclass
from shoal.report.data_source import Json, Source

SPENT = ("useful", "failed", "lost", "duplicated")
COLUMNS = (*SPENT, "idle", "tasks", "queue", "transfer", "efficiency")
_HOUR = 3_600.0


@dataclass
class Sums:
    """One row of the accounts: times in core seconds, but for queue and transfer, which are seconds of tasks."""

    keys: Json  # the columns by which it is grouped
    spent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SPENT, 0.0))
    tasks: int = 0  # attempts that ended
    queued: float = 0.0
    staging: float = 0.0
    idle: float | None = None

    def add_attempts(self, sums: Mapping[str, Any]) -> None:
        """Add sums over attempts."""
        for name in SPENT:
            self.spent[name] += sums[name]
        self.tasks += sums["tasks"]
        self.queued += sums["queued"]
        self.staging += sums["staging"]

    def add_offer(self, sums: Mapping[str, Any]) -> None:
        """Add the core seconds that pilots offered, without those that were used."""
        self.idle = (self.idle or 0.0) + sums["offered"] - sums["used"]

    def row(self) -> Json:
        """The row as a document: core hours, mean seconds in the queue, seconds of transfers, a fraction."""
        # An attempt that began before the requested time was used in it, but offered before it.
        idle = None if self.idle is None else max(0.0, self.idle)
        whole = sum(self.spent.values()) + (idle or 0.0)
        return {
            **self.keys, **{name: self.spent[name] / _HOUR for name in SPENT},
            "idle": None if idle is None else idle / _HOUR, "tasks": self.tasks,
            "queue": self.queued / self.tasks if self.tasks else None, "transfer": self.staging,
            "efficiency": self.spent["useful"] / whole if whole > 0 else None,
        }  # fmt: skip


def account(source: Source, by: str = "", since: float = 0.0, until: float | None = None) -> Json:
    """The accounts grouped by columns such as `owner,site`: `by`, `since`, `until`, `rows` in order, `total`."""
    return computed(source.acct(by, since, until))


def computed(answer: Mapping[str, Any]) -> Json:
    """Rows and their total from what a server or a database summed."""
    by: Sequence[str] = answer["by"]
    found: dict[tuple[Any, ...], Sums] = {}
    total = Sums({})

    def row_of(sums: Mapping[str, Any]) -> Sums:
        keys = {name: run_text(sums[name]) if name == "run" else sums[name] for name in by}
        return found.setdefault(tuple(sums[name] for name in by), Sums(keys))

    for attempts in answer["lines"]:
        for row in (row_of(attempts), total):
            row.add_attempts(attempts)
    for offer in answer["places"] or ():
        for row in (row_of(offer), total):
            row.add_offer(offer)
    return {
        "by": list(by), "since": answer["since"], "until": answer["until"],
        "rows": [found[key].row() for key in sorted(found)], "total": total.row(),
    }  # fmt: skip
