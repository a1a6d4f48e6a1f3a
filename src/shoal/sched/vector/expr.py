"""Evaluates requirements and ranks for many classes of tasks on many pilots at once, with numpy.

Classes whose expressions differ only in their literals have one shape and are one evaluation. Agrees with
`sched/expr/scalar.py` on every value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np

from shoal.sched.expr.tree import Call, Chain, Expr, Negative, Vertex
from shoal.sched.vector.expr_columns import Bool, Floats, Table, group
from shoal.sched.vector.expr_plan import FALSE, Plan

__all__ = ["Batch", "ClassFilter", "ClassNeeds", "Table"]


class Batch:
    """Classes made ready: their columns are kept while pilots change."""

    def __init__(
        self, requires: Sequence[Optional[Expr]], ranks: Sequence[Optional[Expr]], tasks: Sequence[Mapping[str, Any]]
    ) -> None:
        self.count = len(tasks)
        self.cells = 0  # of a block; 0: what suits the cache
        self.requires, self.ranks = group(requires, tasks), group(ranks, tasks)

    def match(self, table: Table) -> tuple[Bool, Floats]:
        """Which class fits on which pilot, and how well."""
        fits = np.empty((self.count, len(table)), np.bool_)
        ranks = np.empty((self.count, len(table)), np.float64)
        if fits.size:
            with np.errstate(all="ignore"):
                for some in self.requires:
                    if some.shape is None:
                        fits[some.index()] = True
                    else:
                        plan = Plan(some, table, self.cells)
                        plan.fill(fits, plan.bits(some.shape.root, True))
                for some in self.ranks:
                    if some.shape is None:
                        ranks[some.index()] = 0.0
                    else:
                        plan = Plan(some, table, self.cells)
                        plan.fill(ranks, plan.number(some.shape.root))
                        _count_truths(plan, some.shape.root, ranks)
        return fits, ranks


def _count_truths(plan: Plan, root: Vertex, ranks: Floats) -> None:
    """Where a rank is true it is 1, and where it is false 0."""
    if isinstance(root, (Chain, Negative, Call)):
        return  # always numbers
    for part, number in ((plan.bits(root, False), 0.0), (plan.bits(root, True), 1.0)):
        if part is not FALSE:
            where = np.zeros(ranks.shape, np.bool_)
            plan.fill(where, part)
            ranks[where] = number


class ClassNeeds(NamedTuple):
    """What a class requires of a pilot."""

    serial: int
    priority: float
    require: Optional[Expr]
    rank: Optional[Expr]
    task: Mapping[str, Any]
    is_volatile: bool  # its expressions depend on the moment: whether it fits is evaluated again later
    kind: int  # classes of one kind are alike in all that is no expression


class Matches(NamedTuple):
    """The classes that a pilot can run."""

    fits: set[int]  # serials of those without a rank
    ranked: dict[int, float]  # serial -> rank
    by_rank: list[tuple[float, float, int]]  # the same in order: -priority, -rank, serial
    is_volatile: bool


class ClassFilter:
    """Many classes against one pilot at a time. Their columns are kept between pilots, so that a pilot with new tags costs
    no more than the evaluation [ADR 0011]."""

    def __init__(self, asked: Sequence[ClassNeeds]) -> None:
        self.count = len(asked)
        self._batch = Batch([a.require for a in asked], [a.rank for a in asked], [a.task for a in asked])
        self._serials = np.array([a.serial for a in asked])
        self._priorities = np.array([a.priority for a in asked])
        self._is_ranked = np.array([a.rank is not None for a in asked])
        self._is_volatile = np.array([a.is_volatile for a in asked])
        self._kinds = np.array([a.kind for a in asked])

    def pass_through(
        self, facts: Mapping[str, Any], able: Sequence[bool], by_class: Optional[Mapping[str, Sequence[float]]] = None
    ) -> Matches:
        """What a pilot with these facts can run; `able` says for each kind whether anything but an expression forbids it, and
        `by_class` which facts of the pilot differ by class."""
        fits, ranks = self._batch.match(Table([facts], by_class))
        may = np.array(able)[self._kinds]
        good = may & (fits[:, 0] | self._is_volatile)
        plain = set(self._serials[good & ~self._is_ranked].tolist())
        good &= self._is_ranked
        serials, negative, priorities = self._serials[good], -ranks[good, 0], -self._priorities[good]
        order = np.lexsort((serials, negative, priorities))
        rows = zip(priorities[order].tolist(), negative[order].tolist(), serials[order].tolist())
        ranked = dict(zip(serials.tolist(), ranks[good, 0].tolist()))
        return Matches(plain, ranked, list(rows), bool((may & self._is_volatile).any()))
