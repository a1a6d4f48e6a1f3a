"""Numbers over all cells (classes x pilots) of one shape.

What differs by class only is a column (C x 1), what differs by pilot only is a row (1 x P): both are computed at once.
Only what depends on both is computed cell by cell, in blocks of classes that stay in the cache. Numbers are float64
with NaN for undefined.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any, Optional

import numpy as np

from shoal.sched.expr.names import key_of
from shoal.sched.expr.scalar import NOTHING
from shoal.sched.expr.tree import Attribute, Call, Chain, Negative, Tag, Vertex
from shoal.sched.vector.expr_columns import Array, Column, Floats, Group, Part, Table, fixed

CELLS = 32_768  # of a block: its few buffers of 256 kB stay in the second cache
HUGE = sys.float_info.max

_ARITHMETIC: dict[str, Any] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.remainder,
    "min": np.minimum, "max": np.maximum,
}  # fmt: skip


class Blocks:
    """Compiles vertices that are numbers, for one group of classes and one table of pilots, and runs the blocks."""

    def __init__(self, classes: Group, table: Table, pairs: Mapping[str, Floats], cells: int = 0) -> None:
        self.classes, self.table, self.pairs = classes, table, pairs
        self.index = classes.index()
        self.count, self.width = len(classes.where), len(table)
        self.height = max(1, min(self.count, (cells or CELLS) // self.width))  # classes in a block
        self.pools: dict[type, list[Array]] = {np.float64: [], np.bool_: []}

    # --- blocks

    def fill(self, out: Array, part: Optional[Part]) -> None:
        """Write all cells of these classes; for ranks, NaN and no number at all become NOTHING."""
        is_rank = out.dtype == np.float64
        if part is None:
            out[self.index] = NOTHING
        elif part.array is not None:
            out[self.index] = np.fmax(part.array, NOTHING) if is_rank else part.array
        else:
            assert part.run is not None
            for low in range(0, self.count, self.height):
                rows = slice(low, min(low + self.height, self.count))
                if isinstance(self.index, slice):
                    into = out[self.index][rows]
                    part.run(rows, into, 0)
                else:
                    into = self.scratch(out.dtype.type, 0, rows)
                    part.run(rows, into, 1)
                if is_rank and not part.sound:
                    np.fmax(into, NOTHING, out=into)  # of NaN and a number it takes the number
                if not isinstance(self.index, slice):
                    out[self.index[rows]] = into

    def scratch(self, kind: type, level: int, rows: slice) -> Array:
        """A buffer for a block; those of lower levels are in use."""
        pool = self.pools[kind]
        while len(pool) <= level:
            pool.append(np.empty((self.height, self.width), kind))
        return pool[level][: rows.stop - rows.start]

    def get(self, part: Part, kind: type, rows: slice, level: int) -> Array:
        """A block of a part, in a buffer of this level if it must be computed."""
        if part.array is not None:
            return part.array[rows] if part.array.shape[0] > 1 else part.array
        assert part.run is not None
        buffer = self.scratch(kind, level, rows)
        part.run(rows, buffer, level + 1)
        return buffer

    def is_small(self, *parts: Part) -> bool:
        """Do these together depend on classes only, or on pilots only?"""
        if any(part.array is None for part in parts):
            return False
        shapes = [part.array.shape for part in parts if part.array is not None]
        return all(shape[0] == 1 for shape in shapes) or all(shape[1] == 1 for shape in shapes)

    # --- numbers

    def number(self, vertex: Vertex) -> Optional[Part]:
        """The numbers of a vertex; None if it is one nowhere."""
        if isinstance(vertex, Tag) and vertex.name in self.pairs:
            return self.pair(vertex.name)
        if isinstance(vertex, (Tag, Attribute)):
            return self.leaf(vertex).numbers
        if isinstance(vertex, Chain):
            return self.chain(vertex.first, vertex.rest)
        if isinstance(vertex, Call) and vertex.name != "abs":
            return self.chain(vertex.args[0], tuple((vertex.name, arg) for arg in vertex.args[1:]))
        if isinstance(vertex, Negative):
            return self.unary(np.negative, vertex.inner)
        if isinstance(vertex, Call):
            return self.unary(np.abs, vertex.args[0])
        return None

    def leaf(self, vertex: Vertex) -> Column:
        """The column of a name."""
        if isinstance(vertex, Tag):
            return self.table.column(key_of(vertex.name, self.classes.owner))
        assert isinstance(vertex, Attribute)
        return self.classes.column(vertex.name)

    def pair(self, name: str) -> Part:
        """A name that depends on class and pilot."""
        numbers = self.pairs[name][self.index]

        def run(rows: slice, out: Array, level: int) -> None:
            np.copyto(out, numbers[rows])
            self.keep_finite(out, level, rows)

        return Part(None, run, HUGE)

    def unary(self, ufunc: Any, inner: Vertex) -> Optional[Part]:
        """Minus or abs."""
        part = self.number(inner)
        if part is None:
            return None
        if part.array is not None:
            return part._replace(array=ufunc(part.array))
        compute = part.run
        assert compute is not None

        def run(rows: slice, out: Array, level: int) -> None:
            compute(rows, out, level)
            ufunc(out, out=out)

        return part._replace(run=run)

    def chain(self, first: Vertex, rest: tuple[tuple[str, Vertex], ...]) -> Optional[Part]:
        """Operations from left to right. Infinite results become NaN; where no operand is so large that there could be
        any, they are not looked for."""
        start = self.number(first)
        steps: list[tuple[Any, Part, bool]] = []  # operation, operand, look for infinity
        if start is None:
            return None
        bound, sound = start.bound, start.sound
        for op, vertex in rest:
            operand = self.number(vertex)
            if operand is None:
                return None
            is_cut = op in "/%"
            if is_cut and operand.array is not None:
                operand = fixed(np.where(operand.array == 0.0, np.nan, operand.array))
            if not steps and self.is_small(start, operand):
                made = _ARITHMETIC[op](start.array, operand.array)
                made[~np.isfinite(made)] = np.nan
                start = fixed(made)
                bound, sound = start.bound, start.sound
                continue
            bound = _bound_of(op, bound, operand)
            sound = sound and operand.sound and bound <= HUGE and not (is_cut and operand.array is None)
            steps.append((_ARITHMETIC[op], operand, not bound <= HUGE))
            bound = min(bound, HUGE)
        if not steps:
            return start

        def run(rows: slice, out: Array, level: int) -> None:
            now = out
            if start.array is None:
                assert start.run is not None
                start.run(rows, out, level)
            else:
                now = self.get(start, np.float64, rows, level)
            for ufunc, operand, infinite in steps:
                ufunc(now, self.get(operand, np.float64, rows, level), out=out)
                now = out
                if infinite:
                    self.keep_finite(out, level, rows)

        return Part(None, run, bound, sound)

    def keep_finite(self, block: Array, level: int, rows: slice) -> None:
        """What is infinite becomes NaN."""
        mask = self.scratch(np.bool_, level, rows)
        np.isfinite(block, out=mask)
        np.logical_not(mask, out=mask)
        np.copyto(block, np.nan, where=mask)


def _bound_of(op: str, bound: float, operand: Part) -> float:
    """No result of this operation is larger."""
    if op in "+-":
        return bound + operand.bound
    if op == "*":
        return bound * operand.bound
    if op == "%":
        return operand.bound
    if op == "/":
        if operand.array is None or np.isnan(operand.array).all():
            return math.inf
        return bound / float(np.nanmin(np.abs(operand.array)))
    return max(bound, operand.bound)
