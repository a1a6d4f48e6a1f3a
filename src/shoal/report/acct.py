"""The accounts read back [GWP G12]: core hours by what became of them, what stood idle, waiting and moving, efficiency.

Useful, failed, lost (with its pilot) and duplicated (a copy whose result was not needed) are of attempts that ended in
the time asked for. Idle is what pilots offered and nobody used: known by site, host, pilot and day, and null by owner
and run, because nobody is charged with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shoal.model.ids import run_text
from shoal.report.source import Json, Source

SPENT = ("useful", "failed", "lost", "duplicated")
COLUMNS = (*SPENT, "idle", "tasks", "queue", "transfer", "efficiency")
_HOUR = 3_600.0


@dataclass
class Sums:
    """One line: times in seconds of cores, but for waiting and moving, which are seconds of tasks."""

    words: Json
    spent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SPENT, 0.0))
    tasks: int = 0  # attempts that ended
    queued: float = 0.0
    staging: float = 0.0
    idle: float | None = None

    def add(self, line: Mapping[str, Any]) -> None:
        """Take a line of the accounts in."""
        for name in SPENT:
            self.spent[name] += line[name]
        self.tasks += line["tasks"]
        self.queued += line["queued"]
        self.staging += line["staging"]

    def offer(self, place: Mapping[str, Any]) -> None:
        """Take in what pilots offered and how much of it was used."""
        self.idle = (self.idle or 0.0) + place["offered"] - place["used"]

    def row(self) -> Json:
        """The line as it is shown: core hours, mean seconds in the queue, seconds of moving files, a fraction."""
        # What ran across the beginning of the time asked for was used there and offered before.
        idle = None if self.idle is None else max(0.0, self.idle)
        whole = sum(self.spent.values()) + (idle or 0.0)
        return {
            **self.words,
            **{name: self.spent[name] / _HOUR for name in SPENT},
            "idle": None if idle is None else idle / _HOUR,
            "tasks": self.tasks,
            "queue": self.queued / self.tasks if self.tasks else None,
            "transfer": self.staging,
            "efficiency": self.spent["useful"] / whole if whole > 0 else None,
        }


def account(source: Source, by: str = "", since: float = 0.0, until: float | None = None) -> Json:
    """The accounts by words such as `owner,site`: `by`, `since`, `until`, `rows` in the order of the words, `total`."""
    return computed(source.acct(by, since, until))


def computed(answer: Mapping[str, Any]) -> Json:
    """Rows and their total from what a server or a database summed."""
    by: Sequence[str] = answer["by"]
    found: dict[tuple[Any, ...], Sums] = {}
    total = Sums({})

    def line_of(given: Mapping[str, Any]) -> Sums:
        return found.setdefault(tuple(given[word] for word in by), Sums({word: _shown(word, given) for word in by}))

    for line in answer["lines"]:
        line_of(line).add(line)
        total.add(line)
    for place in answer["places"] or ():
        line_of(place).offer(place)
        total.offer(place)
    return {
        "by": list(by), "since": answer["since"], "until": answer["until"],
        "rows": [found[key].row() for key in sorted(found)], "total": total.row(),
    }  # fmt: skip


def _shown(word: str, given: Mapping[str, Any]) -> Any:
    return run_text(given[word]) if word == "run" else given[word]
