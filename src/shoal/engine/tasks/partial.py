"""Partial results of runs: each task counts once, whatever its attempts [DIANE U13; ADR 0053].

Two things are kept apart. `merged` is the sum of what tasks that succeeded emitted: it grows in the very transaction in
which a task becomes final, so a crash forgets both or neither. `live` has what running attempts emitted so far, each
replaceable by its next message and forgotten with the attempt: it is not durable, and pilots send it again after a
restart. So nothing is kept of a task that is final, and nothing has ever to be subtracted.

Goals are in `goals`.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from math import inf
from typing import Any

from shoal.engine.changes import PartialRow
from shoal.engine.records import Pilot, Run
from shoal.engine.state import State
from shoal.model.ids import AttemptId, parse_attempt
from shoal.model.limits import MAX_EMITTED_TEXT, MAX_LIVE_EMITTED
from shoal.model.quantities import many
from shoal.sched.expr.tree import Expr
from shoal.sched.partial.answers import describe
from shoal.sched.partial.contribution import Contribution, read
from shoal.sched.partial.goal import goal_of
from shoal.sched.partial.reducers import reducer_of
from shoal.wire.messages import Emitted


class Partial:
    """What the tasks of one run emitted."""

    def __init__(self, reduce: dict[str, str], until: str = "") -> None:
        self.reduce, self.until = {name: reducer_of(text).text for name, text in reduce.items()}, until
        self.goal: Expr | None = goal_of(until) if until else None
        self.reached = ""  # the values by which the goal was reached
        self.merged = Contribution()
        self.tasks = 0  # how many are merged
        self.live: dict[AttemptId, Contribution] = {}
        self.judged = -inf  # when it was last looked whether the goal is reached

    def current(self) -> tuple[Contribution, int]:
        """Everything as one, of each task that runs the attempt that was leased first; and how many of those there are."""
        if not self.live:
            return self.merged, 0
        found = self.merged.copy()
        oldest: dict[int, AttemptId] = {}
        for attempt in self.live:
            known = oldest.get(attempt.element)
            if known is None or (attempt.number, attempt.incarnation) < (known.number, known.incarnation):
                oldest[attempt.element] = attempt
        for attempt in oldest.values():
            found.merge(self.live[attempt])
        return found, len(oldest)

    def row(self, run: int) -> PartialRow:
        """As the database keeps it."""
        return PartialRow(run, json.dumps(self.reduce), self.until, self.reached, self.tasks, self.merged.text())


def restored(row: PartialRow) -> Partial:
    """What the database kept."""
    partial = Partial(json.loads(row.reduce), row.until)
    partial.reached, partial.tasks = row.reached, row.tasks
    partial.merged = read(row.merged)
    return partial


def settle(state: State, run: Run, *texts: str) -> None:
    """Merge what tasks that succeeded just now emitted."""
    for text in texts:
        contribution = read(text) if text else None
        if not contribution:
            continue
        if run.partial is None:
            run.partial = Partial({})
        try:
            run.partial.merged.merge(contribution)
        except Exception as defect:  # a report must count whatever its task emitted
            run.partial.merged.left_out += 1
            state.emit("emitted_left_out", run=run.number, why=defect_text(defect))
        run.partial.tasks += 1
        state.emitting[run.number] = True


def defect_text(defect: Exception) -> str:
    """A defect in a run's values or goal, for its events."""
    return f"{type(defect).__name__}: {defect}"[:MAX_EMITTED_TEXT]


def note(state: State, pilot: Pilot, emitted: Emitted) -> None:
    """Replace what is known of an attempt that this pilot runs."""
    attempt = parse_attempt(emitted.attempt)
    run = state.runs.get(attempt.run)
    if run is None or attempt.nonce != run.nonce or not pilot.holds(attempt):
        return
    if run.partial is None:
        run.partial = Partial({})
    live = run.partial.live
    if attempt in live or len(live) < MAX_LIVE_EMITTED:
        live[attempt] = read(emitted.text)
        state.emitting.setdefault(run.number, False)


def carry_over(before: Run, run: Run, pilots: Collection[Pilot]) -> None:
    """What attempts that go on had emitted so far, for a run that was restored from the database."""
    if before.partial is not None and before.partial.live:
        live = before.partial.live.items()
        run.partial = run.partial or Partial({})
        run.partial.live |= {at: one for at, one in live if any(pilot.holds(at) for pilot in pilots)}


def view(run: Run) -> dict[str, Any]:
    """The current answers of a run in memory, as programs see them."""
    partial = run.partial or Partial({})
    found, running = partial.current()
    return describe(run.number, found, partial.tasks, running, partial.until, partial.reached)


def why_not_again(run: Run) -> str:
    """Why what was cancelled of a run cannot be retried: it was counted as far as it had come."""
    partial = run.partial
    return f"{many(partial.tasks, 'task')} made its answer: {partial.reached}" if partial and partial.reached else ""
