"""What the numpy evaluator works on: columns of values by name, and classes of tasks put together by the shape of their
expressions (the tree with its literals lifted out)."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional, Union

import numpy as np
from numpy.typing import NDArray

from shoal.sched.expr.names import OWN
from shoal.sched.expr.tree import (
    Among,
    Attribute,
    Both,
    Call,
    Chain,
    Compare,
    Constant,
    Either,
    Expr,
    Glob,
    Negative,
    Not,
    Tag,
    Value,
    Vertex,
    children,
    normal,
    walk,
)

Array = NDArray[Any]
Bool = NDArray[np.bool_]
Floats = NDArray[np.float64]
Index = Union[slice, NDArray[np.intp]]
Run = Callable[[slice, Array, int], None]  # (classes, where to, first scratch buffer that is free)


class Part(NamedTuple):
    """Numbers or booleans of all cells: an array that broadcasts, or what computes a block of them."""

    array: Optional[Array]  # 1 x 1, 1 x P or C x 1
    run: Optional[Run] = None
    bound: float = math.inf  # no number is larger, whatever its sign
    sound: bool = False  # no number is NaN


class Column:
    """The values of one name along one axis, apart by kind; a single one if they are all the same."""

    def __init__(self, values: Sequence[object], axis: int) -> None:
        self.axis = axis
        self.values: list[Value]
        self.numbers: Optional[Part] = None
        kinds = set(map(type, values))
        if kinds <= {float, int}:
            try:
                self._set_numbers(np.array(values, np.float64))
            except OverflowError:  # a whole number beyond all floats
                kinds = {object}
            else:
                self.values = []
                self.trues = self.falses = self.texts = None
                return
        self.values = [normal(value) for value in values]
        if len(set(map(type, self.values))) == 1 and len(set(self.values)) == 1:
            del self.values[1:]
        kinds = set(map(type, self.values))
        if float in kinds:
            plain = [value if type(value) is float else math.nan for value in self.values]
            self._set_numbers(np.array(plain, np.float64))
        self.trues = self._mask([value is True for value in self.values]) if bool in kinds else None
        self.falses = self._mask([value is False for value in self.values]) if bool in kinds else None
        self.texts = self._mask([type(value) is str for value in self.values]) if str in kinds else None

    def _set_numbers(self, numbers: Floats) -> None:
        numbers[~np.isfinite(numbers)] = np.nan
        if len(numbers) > 1 and (numbers == numbers[0]).all():
            numbers = numbers[:1]
        self.numbers = fixed(self._along(numbers))

    def _mask(self, values: list[bool]) -> Bool:
        return self._along(np.array(values, np.bool_))

    def _along(self, flat: Array) -> Array:
        return flat[None, :] if self.axis else flat[:, None]

    def codes(self, order: Mapping[str, int]) -> Part:
        """Texts as their places in an order, so that they compare like numbers."""
        plain = [order[value] if isinstance(value, str) else math.nan for value in self.values]
        return fixed(self._along(np.array(plain, np.float64)))


class Table:
    """The tags of pilots by name; columns are made when they are first used. `by_class`: what of a single pilot differs by
    class, for each of them."""

    def __init__(
        self, pilots: Sequence[Mapping[str, Any]], by_class: Optional[Mapping[str, Sequence[Value]]] = None
    ) -> None:
        self.pilots, self.by_class = pilots, by_class or {}
        self._columns: dict[str, Column] = {}

    def __len__(self) -> int:
        return len(self.pilots)

    def column(self, name: str) -> Column:
        """The values of one tag."""
        if name not in self._columns:
            self._columns[name] = Column([pilot.get(name) for pilot in self.pilots], 1)
        return self._columns[name]


def fixed(numbers: Floats) -> Part:
    """Numbers that are there already."""
    seen = np.abs(numbers[~np.isnan(numbers)])
    return Part(numbers, None, float(seen.max()) if seen.size else 0.0, seen.size == numbers.size)


class Shape:
    """A tree whose literals were lifted out: `Attribute("#0")` stands for the first, and so on. Equal shapes are one
    object, so that ten thousand classes are sorted by identity."""

    def __init__(self, root: Vertex) -> None:
        self.root = root
        self.by_owner = any(isinstance(vertex, Tag) and vertex.name.startswith(OWN) for vertex in walk(root))


_SHAPES: weakref.WeakValueDictionary[Vertex, Shape] = weakref.WeakValueDictionary()


def shape_of(expr: Expr) -> tuple[Shape, tuple[Any, ...]]:
    """The shape of an expression and its literals; found once for each."""
    if expr.shape is None:
        literals: list[Any] = []
        root = _lift(expr.root, literals)
        shape = _SHAPES.get(root)
        if shape is None:
            shape = _SHAPES[root] = Shape(root)
        object.__setattr__(expr, "shape", (shape, tuple(literals)))
    found: tuple[Shape, tuple[Any, ...]] = expr.shape  # type: ignore[assignment]  # set just now
    return found


def _lift(vertex: Vertex, literals: list[Any]) -> Vertex:
    name = f"#{len(literals)}"
    if isinstance(vertex, Constant):
        literals.append(vertex.value)
        return Attribute(name)
    if isinstance(vertex, Among):
        literals.append(tuple(item.value for item in vertex.items))
        return Among(_lift(vertex.left, literals), (Constant(name),))
    if isinstance(vertex, Glob):
        literals.append(vertex.pattern)
        return Glob(_lift(vertex.inner, literals), name)
    inner = [_lift(child, literals) for child in children(vertex)]
    if isinstance(vertex, (Both, Either)):
        return type(vertex)(tuple(inner))
    if isinstance(vertex, (Not, Negative)):
        return type(vertex)(inner[0])
    if isinstance(vertex, Compare):
        return Compare(vertex.op, inner[0], inner[1])
    if isinstance(vertex, Chain):
        return Chain(inner[0], tuple((op, operand) for (op, _), operand in zip(vertex.rest, inner[1:])))
    if isinstance(vertex, Call):
        return Call(vertex.name, tuple(inner))
    return vertex


class Group:
    """Classes of one shape: their indices among all classes, and their columns."""

    def __init__(self, shape: Optional[Shape], owner: str) -> None:
        self.shape, self.owner = shape, owner
        self.where: list[int] = []
        self.literals: list[tuple[Any, ...]] = []
        self.tasks: list[Mapping[str, Any]] = []
        self._columns: dict[str, Column] = {}

    def raw(self, name: str) -> list[Any]:
        """What each class has under this name."""
        if name.startswith("#"):
            at = int(name[1:])
            return [row[at] for row in self.literals]
        return [task.get(name) for task in self.tasks]

    def column(self, name: str) -> Column:
        """The same as a column."""
        if name not in self._columns:
            self._columns[name] = Column(self.raw(name), 0)
        return self._columns[name]

    def index(self) -> Index:
        """Their indices: a slice if they are neighbours."""
        first, last = self.where[0], self.where[-1]
        return slice(first, last + 1) if last - first + 1 == len(self.where) else np.array(self.where)


def group(exprs: Sequence[Optional[Expr]], tasks: Sequence[Mapping[str, Any]]) -> list[Group]:
    """Classes by shape, and by owner where `my.` names are looked up."""
    found: dict[Any, Group] = {}
    for at, (expr, task) in enumerate(zip(exprs, tasks)):
        shape, literals = (None, ()) if expr is None else expr.shape or shape_of(expr)
        owner = ""
        key: Any = shape
        if shape is not None and shape.by_owner:
            value = normal(task.get("owner"))
            owner = value if isinstance(value, str) else ""
            key = (shape, owner)
        into = found.get(key)
        if into is None:
            into = found[key] = Group(shape, owner)
        into.where.append(at)
        into.literals.append(literals)
        into.tasks.append(task)
    return list(found.values())
