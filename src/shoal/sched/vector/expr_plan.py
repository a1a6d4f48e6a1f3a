"""Evaluates one shape of expressions over all cells (classes x pilots) with numpy.

What differs by class only is a column (C x 1), what differs by pilot only is a row (1 x P): both are computed at once.
Only what depends on both is computed cell by cell, in blocks of classes that stay in the cache. Numbers are float64
with NaN for undefined. Masks of what is defined are never built: of each boolean only "is true" is evaluated, and below
an odd number of nots "is false". `a < b` is false where `a >= b` is true, and both are false where one is NaN.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple, Optional

import numpy as np

from shoal.sched.expr.names import key_of
from shoal.sched.expr.scalar import NOTHING, globber
from shoal.sched.expr.tree import (
    UNDEFINED,
    Among,
    Attribute,
    Both,
    Call,
    Chain,
    Compare,
    Either,
    Glob,
    Has,
    Negative,
    Not,
    Tag,
    Vertex,
)
from shoal.sched.vector.expr_columns import Array, Bool, Column, Group, Part, Table, fixed

CELLS = 32_768  # of a block: its few buffers of 256 kB stay in the second cache
HUGE = sys.float_info.max

_ARITHMETIC: dict[str, Any] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.remainder,
    "min": np.minimum, "max": np.maximum,
}  # fmt: skip
_COMPARE: dict[str, Any] = {
    "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
}  # fmt: skip
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
FALSE, TRUE = Part(np.zeros((1, 1), np.bool_)), Part(np.ones((1, 1), np.bool_))


class Operand(NamedTuple):
    """One value in each of its kinds: the number, the text, and where it is true and false."""

    number: Optional[Part]
    text: Optional[Column]
    true: Part = FALSE
    false: Part = FALSE


class Plan:
    """Compiles the vertices of one shape, for one group of classes and one table of pilots, and runs the blocks."""

    def __init__(self, classes: Group, table: Table, cells: int = 0) -> None:
        self.classes, self.table = classes, table
        self.index = classes.index()
        self.count, self.width = len(classes.where), len(table)
        self.height = max(1, min(self.count, (cells or CELLS) // self.width))  # classes in a block
        self.pools: dict[type, list[Array]] = {np.float64: [], np.bool_: []}
        self.operands: dict[int, Operand] = {}
        self.known: dict[tuple[int, bool], Part] = {}

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
            if vertex.name in self.table.by_class:
                values = self.table.by_class[vertex.name]
                return Column([values[at] for at in self.classes.where], 0)
            return self.table.column(key_of(vertex.name, self.classes.owner))
        assert isinstance(vertex, Attribute)
        return self.classes.column(vertex.name)

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

    # --- booleans
    def bits(self, vertex: Vertex, want: bool) -> Part:
        """Where a vertex is true, or where it is false."""
        key = (id(vertex), want)
        if key not in self.known:
            self.known[key] = self._bits(vertex, want)
        return self.known[key]

    def _bits(self, vertex: Vertex, want: bool) -> Part:
        if isinstance(vertex, (Both, Either)):
            parts = [self.bits(part, want) for part in vertex.parts]
            return self.combine(want is isinstance(vertex, Both), parts)
        if isinstance(vertex, Not):
            return self.bits(vertex.inner, not want)
        if isinstance(vertex, Compare):
            op = vertex.op if want else _OPPOSITE[vertex.op]
            return self.compare(op, self.operand(vertex.left), self.operand(vertex.right))
        if isinstance(vertex, Among):
            found = self.among(vertex)
            return found if want else self.combine(True, [self.defined(vertex.left), self.invert(found)])
        if isinstance(vertex, Has):
            found = self.defined(vertex.name)
            return found if want else self.invert(found)
        if isinstance(vertex, Glob):
            return self.glob(vertex, want)
        if isinstance(vertex, (Tag, Attribute)):
            mask = self.leaf(vertex).trues if want else self.leaf(vertex).falses
            return FALSE if mask is None else Part(mask)
        return FALSE

    def operand(self, vertex: Vertex) -> Operand:
        """All kinds of a vertex. Its blocks are kept, since a comparison of booleans asks for them several times."""
        if id(vertex) not in self.operands:
            if isinstance(vertex, (Tag, Attribute)):
                made = _of(self.leaf(vertex))
            else:
                true, false = self.shared(self.bits(vertex, True)), self.shared(self.bits(vertex, False))
                made = Operand(self.number(vertex), None, true, false)
            self.operands[id(vertex)] = made
        return self.operands[id(vertex)]

    def shared(self, part: Part) -> Part:
        """A part that is computed once for each block, however often it is asked for."""
        if part.run is None:
            return part
        kept = np.empty((self.height, self.width), np.bool_)
        inner, last = part.run, -1

        def run(rows: slice, out: Array, level: int) -> None:
            nonlocal last
            if last != rows.start:
                inner(rows, kept[: rows.stop - rows.start], level)
                last = rows.start
            np.copyto(out, kept[: rows.stop - rows.start])

        return Part(None, run)

    def compare(self, op: str, left: Operand, right: Operand) -> Part:
        """Where both are of one kind and the comparison is true."""
        found: list[Part] = []
        if left.number is not None and right.number is not None:
            found.append(self.relate(op, left.number, right.number))
        if left.text is not None and right.text is not None:
            texts = {value for value in (*left.text.values, *right.text.values) if isinstance(value, str)}
            order = {text: place for place, text in enumerate(sorted(texts))}
            found.append(self.relate(op, left.text.codes(order), right.text.codes(order)))
        if op in ("==", "!="):
            same = right if op == "==" else Operand(None, None, right.false, right.true)
            found.append(self.combine(True, [left.true, same.true]))
            found.append(self.combine(True, [left.false, same.false]))
        return self.combine(False, found)

    def relate(self, op: str, left: Part, right: Part) -> Part:
        """A comparison of numbers that is false where one of them is NaN."""
        ufunc = _COMPARE[op]
        is_loose = op == "!=" and not (left.sound and right.sound)  # numpy's != is true of NaN
        if self.is_small(left, right):
            made = ufunc(left.array, right.array)
            return Part(made & (left.array == left.array) & (right.array == right.array) if is_loose else made)

        def run(rows: slice, out: Array, level: int) -> None:
            a = self.get(left, np.float64, rows, level)
            b = self.get(right, np.float64, rows, level + 1)
            if is_loose:
                more = self.scratch(np.bool_, level, rows)
                np.less(a, b, out=out)
                np.greater(a, b, out=more)
                np.logical_or(out, more, out=out)
            else:
                ufunc(a, b, out=out)

        return Part(None, run)

    def combine(self, all_of: bool, parts: list[Part]) -> Part:
        """`and` or `or` of parts: first those of pilots only and of classes only, each into one."""
        ufunc: Any = np.logical_and if all_of else np.logical_or
        deciding, neutral = (FALSE, TRUE) if all_of else (TRUE, FALSE)
        flat: dict[bool, Bool] = {}
        runs = [part for part in parts if part.array is None]
        for part in parts:
            if part.array is not None:
                along = part.array.shape[0] > 1
                flat[along] = ufunc(flat[along], part.array) if along in flat else part.array
        rest: list[Part] = []
        for mask in flat.values():
            if (mask != all_of).all():
                return deciding
            if (mask != all_of).any():
                rest.append(Part(mask))
        ordered = runs + rest
        if not ordered:
            return neutral
        if len(ordered) == 1:
            return ordered[0]

        def run(rows: slice, out: Array, level: int) -> None:
            now = out
            if ordered[0].run is not None:
                ordered[0].run(rows, out, level)
            else:
                now = self.get(ordered[0], np.bool_, rows, level)
            for part in ordered[1:]:
                ufunc(now, self.get(part, np.bool_, rows, level), out=out)
                now = out

        return Part(None, run)

    def invert(self, part: Part) -> Part:
        """Where it is not."""
        if part.array is not None:
            return Part(~part.array)
        inner = part.run
        assert inner is not None

        def run(rows: slice, out: Array, level: int) -> None:
            inner(rows, out, level)
            np.logical_not(out, out=out)

        return Part(None, run)

    def defined(self, vertex: Vertex) -> Part:
        """Where a vertex has a value of any kind."""
        number, text, true, false = self.operand(vertex)
        found = [true, false]
        if number is not None:
            found.append(self.relate("==", number, number))
        if text is not None and text.texts is not None:
            found.append(Part(text.texts))
        return self.combine(False, found)

    def among(self, vertex: Among) -> Part:
        """Where the left side is one of the list, which may differ by class."""
        lists: list[tuple[Any, ...]] = self.classes.raw(str(vertex.items[0].value))
        numbered: dict[Any, int] = {}
        places = [numbered.setdefault(tuple((type(x), x) for x in items), len(numbered)) for items in lists]
        left = self.operand(vertex.left)
        if len(numbered) == 1 or isinstance(vertex.left, Tag):
            rows: dict[Any, Part] = {}
            for kind, item in {pair for items in numbered for pair in items}:
                rows[kind, item] = self.compare("==", left, _of(Column([item], 0)))
            found = [self.combine(False, [FALSE, *(rows[pair] for pair in items)]) for items in numbered]
            return found[0] if len(found) == 1 else self.gather([part.array for part in found], places)
        longest = max(map(len, lists))
        columns = [Column([x[at] if at < len(x) else UNDEFINED for x in lists], 0) for at in range(longest)]
        return self.combine(False, [FALSE, *(self.compare("==", left, _of(column)) for column in columns)])

    def glob(self, vertex: Glob, want: bool) -> Part:
        """Where a text matches its pattern, which may differ by class, or where it does not."""
        column = self.operand(vertex.inner).text
        if column is None:
            return FALSE
        patterns = self.classes.raw(vertex.pattern)
        numbered: dict[str, int] = {}
        places = [numbered.setdefault(pattern, len(numbered)) for pattern in patterns]
        if column.axis == 0 and len(column.values) > 1:
            pairs = zip(patterns, column.values)
            by_class = [isinstance(value, str) and globber(pattern)(value) is want for pattern, value in pairs]
            return Part(np.array(by_class, np.bool_)[:, None])
        texts = {value for value in column.values if isinstance(value, str)}
        found = []
        for pattern in numbered:
            matching = {text for text in texts if globber(pattern)(text) is want}
            found.append(np.array([[value in matching for value in column.values]], np.bool_))
        return Part(found[0]) if len(found) == 1 else self.gather(found, places)

    def gather(self, found: list[Any], places: list[int]) -> Part:
        """For each class one of these rows."""
        width = max(row.shape[1] for row in found)
        table = np.concatenate([np.broadcast_to(row, (1, width)) for row in found])
        index = np.array(places, np.intp)
        if width == 1:
            return Part(table[index])

        def run(rows: slice, out: Array, level: int) -> None:
            np.take(table, index[rows], 0, out, "clip")

        return Part(None, run)


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


def _of(column: Column) -> Operand:
    """A column in its kinds."""
    true = FALSE if column.trues is None else Part(column.trues)
    false = FALSE if column.falses is None else Part(column.falses)
    return Operand(column.numbers, column if column.texts is not None else None, true, false)
