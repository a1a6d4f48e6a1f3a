"""Rows for tests of databases, and a database that is only dicts and sets: slow, and plainly right."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shoal.db.accounts import WINDOW
from shoal.engine.changes import (
    AcctAdd,
    ArrayRow,
    Change,
    GrownRow,
    GrowthRow,
    PartialRow,
    PilotRow,
    PlaceRow,
    PlanRow,
    PolicyRow,
    RunRow,
    SpanDrop,
    SpanRow,
    TaskRow,
    UsageRow,
)  # fmt: skip
from shoal.engine.snapshot import SettledRow, Snapshot, SpentRow
from shoal.model.event import Event
from shoal.model.states import FINAL

FINALS = {state.value for state in FINAL}


def run_row(run: int = 1, **more: Any) -> RunRow:
    """A run."""
    row = RunRow(
        run,
        "ann",
        f"name-{run}",
        100.0 + run,
        None,
        10,
        '{"failed": 1}',
        "/data",
        7,
        None,
        "",
        "digest",
        '{"a": "b"}',
        "",
    )
    return row._replace(**more)


def array_row(run: int = 1, first: int = 1, **more: Any) -> ArrayRow:
    """One spec of a run."""
    return ArrayRow(run, first, 10, "step", '{"command": ["true"]}')._replace(**more)


def task_row(run: int = 1, element: int = 1, state: str = "succeeded", **more: Any) -> TaskRow:
    """A task with something in every field."""
    final = state in FINALS
    row = TaskRow(
        run, element, state, 2, "2@1" if final else "", 1, 1, "" if final else '[[2, 1, "p1", "leased", 5.5]]', "signal",
        "it said so", -9, 9, 5.5, 6.5, 7.5 if final else None, 1.25, 0.5, 2**40, "p1", "host", "site", "last", '["x"]',
        "r1.1",
    )  # fmt: skip
    return row._replace(**more)


def span_row(run: int, low: int, high: int, state: str = "cancelled", **more: Any) -> SpanRow:
    """A span."""
    return SpanRow(run, low, high, state, state, "why", 9.5)._replace(**more)


def pilot_row(pilot: str = "p1a2", state: str = "idle", **more: Any) -> PilotRow:
    """A pilot."""
    row = PilotRow(
        pilot, state, "", "ann", "local", "host", "id", "0" * 64, '["p0"]', 4, 2**34, 2**40, 1, "0.1", '{"os": "linux"}',
        50.0, None,
    )  # fmt: skip
    return row._replace(**more)


def acct_add(hour: int = 2, owner: str = "ann", **more: Any) -> AcctAdd:
    """Something for the accounts."""
    return AcctAdd(hour, owner, "local", "host", "p1a2", 1)._replace(**more)


def event(seq: int, kind: str = "task_finished", **more: Any) -> Event:
    """A line of the journal."""
    return Event(**{"seq": seq, "time": float(seq), "kind": kind, **more})


@dataclass
class Model:
    """What a database must answer, by the simplest means."""

    runs: dict[int, RunRow] = field(default_factory=dict)
    arrays: dict[tuple[int, int], ArrayRow] = field(default_factory=dict)
    tasks: dict[tuple[int, int], TaskRow] = field(default_factory=dict)
    pilots: dict[str, PilotRow] = field(default_factory=dict)
    closed: dict[tuple[int, int], str] = field(default_factory=dict)  # run, element of spans -> state
    events: list[Event] = field(default_factory=list)
    added: list[AcctAdd] = field(default_factory=list)
    usage: dict[str, UsageRow] = field(default_factory=dict)
    places: dict[tuple[str, str, str], PlaceRow] = field(default_factory=dict)
    policies: list[PolicyRow] = field(default_factory=list)
    partials: dict[int, PartialRow] = field(default_factory=dict)
    growths: dict[int, GrowthRow] = field(default_factory=dict)
    grown: dict[tuple[int, int, str], GrownRow] = field(default_factory=dict)
    plans: dict[int, PlanRow] = field(default_factory=dict)

    def apply(self, change: Change) -> None:
        """Take one change in."""
        if isinstance(change, RunRow):
            self.runs[change.run] = change
        elif isinstance(change, ArrayRow):
            self.arrays[change.run, change.first] = change
        elif isinstance(change, TaskRow):
            self.tasks[change.run, change.element] = change
        elif isinstance(change, PilotRow):
            self.pilots[change.pilot] = change
        elif isinstance(change, SpanRow):
            self.closed |= {(change.run, element): change.state for element in range(change.low, change.high)}
        elif isinstance(change, SpanDrop):
            for element in range(change.low, change.high):
                self.closed.pop((change.run, element), None)
        elif isinstance(change, Event):
            self.events.append(change)
        elif isinstance(change, AcctAdd):
            self.added.append(change)
        elif isinstance(change, UsageRow):
            self.usage[change.owner] = change
        elif isinstance(change, PlaceRow):
            self.places[change.holder, change.kind, change.name] = change
        elif isinstance(change, PolicyRow):
            self.policies.append(change)
        elif isinstance(change, PartialRow):
            self.partials[change.run] = change
        elif isinstance(change, GrowthRow):
            self.growths[change.run] = change
        elif isinstance(change, GrownRow):
            self.grown[change.run, change.rule, change.file] = change
        elif isinstance(change, PlanRow):
            self.plans[change.run] = change
        else:
            raise AssertionError(f"no rule for {type(change).__name__}: see test_people.py")

    def done(self, run: int) -> set[tuple[int, str]]:
        """Final elements of a run and their states."""
        rows = {(t.element, t.state) for t in self.tasks.values() if t.run == run and t.state in FINALS}
        return rows | {(element, state) for (of, element), state in self.closed.items() if of == run}

    def snapshot(self) -> Snapshot:
        """The snapshot, with `done` left out: ranges can be told only as sets."""
        runs = sorted(row for row in self.runs.values() if row.finished is None)
        still = {row.run for row in runs}
        finals = [t for t in self.tasks.values() if t.state in FINALS and t.winner]
        nonces = {row.run: row.nonce for row in self.runs.values()}
        finals.sort(key=lambda t: (t.ended, t.run, t.element))
        return Snapshot(
            incarnation=0,
            next_run=max(self.runs, default=0) + 1,
            next_seq=max((e.seq for e in self.events), default=0) + 1,
            runs=runs,
            arrays=[row for key, row in sorted(self.arrays.items()) if row.run in still],
            tasks=[row for key, row in sorted(self.tasks.items()) if row.run in still and row.state not in FINALS],
            pilots=sorted((p for p in self.pilots.values() if p.state != "gone"), key=lambda p: (p.joined, p.pilot)),
            settled=[SettledRow(t.run, t.element, t.winner, nonces.get(t.run, ""), t.pilot) for t in finals][-10_000:],
            policy=self.policies[-1] if self.policies else None,
            usage=[row for _, row in sorted(self.usage.items())],
            places=[row for _, row in sorted(self.places.items()) if row.data],
            spent=self.spent(),
            partials=[self.partials[row.run] for row in runs if row.run in self.partials],
            growths=[self.growths[row.run] for row in runs if row.run in self.growths],
            grown=[row for key, row in sorted(self.grown.items()) if row.run in still and row.run in self.growths],
            plans=[self.plans[row.run] for row in runs if row.run in self.plans],
            last_time=self.events[-1].time if self.events else 0.0,
        )

    def spent(self) -> list[SpentRow]:
        """Core seconds by owner, site and hour; what is older than a quota looks back is under the first hour."""
        times = {add: add.useful + add.failed + add.lost + add.duplicated for add in self.added}
        oldest = max(0, max((add.hour for add in self.added if times[add]), default=0) - WINDOW)
        found: dict[tuple[str, str, int], float] = {}
        for add in self.added:
            key = (add.owner, add.site, max(add.hour, oldest))
            found[key] = found.get(key, 0.0) + times[add]
        return [SpentRow(*key, seconds) for key, seconds in sorted(found.items()) if seconds]
