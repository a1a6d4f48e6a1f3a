"""Evaluates requirements and ranks for many classes of tasks on many pilots at once, with numpy.

Classes whose expressions differ only in their literals have one shape and are one evaluation. Agrees with
`sched/expr/scalar.py` on every value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np

from shoal.sched.expr.tree import Call, Chain, Expr, Negative, Vertex
from shoal.sched.vector.expr_columns import Bool, Floats, Table, group
from shoal.sched.vector.expr_plan import FALSE, Plan

__all__ = ["Batch", "Table", "match"]


class Batch:
    """Classes made ready: their columns are kept while pilots change."""

    def __init__(
        self,
        requires: Sequence[Optional[Expr]],
        ranks: Sequence[Optional[Expr]],
        tasks: Sequence[Mapping[str, Any]],
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


def match(
    requires: Sequence[Optional[Expr]],
    ranks: Sequence[Optional[Expr]],
    tasks: Sequence[Mapping[str, Any]],
    table: Table,
) -> tuple[Bool, Floats]:
    """Requirement and rank of all classes on all pilots; no requirement holds everywhere, no rank is 0."""
    return Batch(requires, ranks, tasks).match(table)
