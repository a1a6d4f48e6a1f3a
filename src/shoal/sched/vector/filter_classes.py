"""One pilot against many classes: which fit and in which order it ranks them, with the classes' columns kept between
pilots, so that one with new tags costs no more than the evaluation [ADR 0011]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np

from shoal.sched.expr.tree import Expr
from shoal.sched.vector.expr import Batch, Table


class ClassNeeds(NamedTuple):
    """What a class asks of a pilot."""

    serial: int
    priority: float
    require: Optional[Expr]
    rank: Optional[Expr]
    task: Mapping[str, Any]
    is_volatile: bool  # its expressions depend on the moment: whether it fits is asked again later
    kind: int  # classes of one kind are alike in all that is no expression


class Matches(NamedTuple):
    """What of it a pilot can run."""

    fits: set[int]  # serials of those without a rank
    ranked: dict[int, float]  # serial -> rank
    by_rank: list[tuple[float, float, int]]  # the same in order: -priority, -rank, serial
    is_volatile: bool


class ClassFilter:
    """Classes made ready."""

    def __init__(self, asked: Sequence[ClassNeeds]) -> None:
        self.count = len(asked)
        self._batch = Batch([a.require for a in asked], [a.rank for a in asked], [a.task for a in asked])
        self._serials = np.array([a.serial for a in asked])
        self._priorities = np.array([a.priority for a in asked])
        self._is_ranked = np.array([a.rank is not None for a in asked])
        self._is_volatile = np.array([a.is_volatile for a in asked])
        self._kinds = np.array([a.kind for a in asked])

    def pass_through(self, facts: Mapping[str, Any], able: Sequence[bool]) -> Matches:
        """What a pilot with these facts can run; `able` says it of each kind, as far as it is no expression."""
        fits, ranks = self._batch.match(Table([facts]))
        may = np.array(able)[self._kinds]
        good = may & (fits[:, 0] | self._is_volatile)
        plain = set(self._serials[good & ~self._is_ranked].tolist())
        good &= self._is_ranked
        serials, negative, priorities = self._serials[good], -ranks[good, 0], -self._priorities[good]
        order = np.lexsort((serials, negative, priorities))
        rows = zip(priorities[order].tolist(), negative[order].tolist(), serials[order].tolist())
        ranked = dict(zip(serials.tolist(), ranks[good, 0].tolist()))
        return Matches(plain, ranked, list(rows), bool((may & self._is_volatile).any()))
