"""What an expression is once it is read: the vertices of its tree, its values, and its text in one form.

Values are numbers (always floats, always finite), texts, booleans and UNDEFINED. There is nothing else, so that the
scalar evaluator and the numpy one can agree on every bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field
from typing import Any, Callable, Optional, Union

from shoal.model.lazy_dataclass import dataclass


class Undefined:
    """The value of a tag that is not there, and of what cannot be computed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNDEFINED"

    def __reduce__(self) -> str:
        return "UNDEFINED"  # a copy is the same one: it is compared by identity


UNDEFINED = Undefined()
Literal = Union[float, str, bool]
Value = Union[float, str, bool, Undefined]


def normal(value: object) -> Value:
    """A value as expressions see it: numbers as finite floats, and what is no value at all as UNDEFINED."""
    kind = type(value)
    if kind is float:
        return value if math.isfinite(value) else UNDEFINED  # type: ignore[arg-type,return-value]  # kind says so
    if kind is bool or kind is str:
        return value  # type: ignore[return-value]  # kind says so
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (int, float)):
        try:
            number = float(value)
        except OverflowError:
            return UNDEFINED
        return number if math.isfinite(number) else UNDEFINED
    return UNDEFINED


@dataclass(frozen=True)
class Constant:
    """A number, text or boolean that stands in the text."""

    value: Literal

    def __eq__(self, other: object) -> bool:
        # 1.0 == True in Python, but not here
        return isinstance(other, Constant) and type(self.value) is type(other.value) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True)
class Tag:
    """A name that is looked up on the pilot; `my.x` is what tasks of the same owner published there."""

    name: str


@dataclass(frozen=True)
class Attribute:
    """`task.NAME`."""

    name: str


@dataclass(frozen=True)
class Both:
    """`and`; two parts or more."""

    parts: tuple[Vertex, ...]


@dataclass(frozen=True)
class Either:
    """`or`; two parts or more."""

    parts: tuple[Vertex, ...]


@dataclass(frozen=True)
class Not:
    """`not`."""

    inner: Vertex


@dataclass(frozen=True)
class Compare:
    """`left op right`, op one of == != < <= > >=."""

    op: str
    left: Vertex
    right: Vertex


@dataclass(frozen=True)
class Among:
    """`left in [..]`; `not in` is a Not around it."""

    left: Vertex
    items: tuple[Constant, ...]


@dataclass(frozen=True)
class Chain:
    """`first op a op b ...` from left to right; the ops are + and -, or * and / and %. Flat, so that long sums are
    not deep."""

    first: Vertex
    rest: tuple[tuple[str, Vertex], ...]


@dataclass(frozen=True)
class Negative:
    """Unary minus; never of a literal number, which is negative itself."""

    inner: Vertex


@dataclass(frozen=True)
class Call:
    """`min`, `max` or `abs` of numbers."""

    name: str
    args: tuple[Vertex, ...]


@dataclass(frozen=True)
class Has:
    """`has(NAME)`: is it defined?"""

    name: Union[Tag, Attribute]


@dataclass(frozen=True)
class Glob:
    """`glob(TEXT, "pattern")`."""

    inner: Vertex
    pattern: str


Vertex = Union[Constant, Tag, Attribute, Both, Either, Not, Compare, Among, Chain, Negative, Call, Has, Glob]


@dataclass(frozen=True)
class Expr:
    """One expression, read and checked. The same text is the same expression: only the text is compared."""

    text: str
    root: Vertex = field(compare=False)
    tags: frozenset[str] = field(compare=False)  # names looked up on the pilot; "my.x" as it is written
    attributes: frozenset[str] = field(compare=False)  # of the task
    # What the evaluators made of it, once each: they write it here, since a cache by text would cost more than a
    # short expression itself.
    run: Optional[Callable[..., Value]] = field(default=None, init=False, compare=False, repr=False)
    shape: Optional[Any] = field(default=None, init=False, compare=False, repr=False)


def children(vertex: Vertex) -> tuple[Vertex, ...]:
    """The parts of a vertex, from left to right."""
    if isinstance(vertex, (Both, Either)):
        return vertex.parts
    if isinstance(vertex, (Not, Negative, Glob)):
        return (vertex.inner,)
    if isinstance(vertex, Compare):
        return (vertex.left, vertex.right)
    if isinstance(vertex, Among):
        return (vertex.left,)
    if isinstance(vertex, Chain):
        return (vertex.first, *(operand for _, operand in vertex.rest))
    if isinstance(vertex, Call):
        return vertex.args
    if isinstance(vertex, Has):
        return (vertex.name,)
    return ()


def walk(vertex: Vertex) -> Iterator[Vertex]:
    """A vertex and all below it."""
    yield vertex
    for child in children(vertex):
        yield from walk(child)


def may_be_number(vertex: Vertex) -> bool:
    """Can this be a number (or true or false, which count as 1 and 0) on any pilot at all, whatever its tags are?"""
    if isinstance(vertex, Constant):
        return not isinstance(vertex.value, str)
    if isinstance(vertex, (Chain, Negative, Call)):
        return all(_may_be_count(child) for child in children(vertex))
    if isinstance(vertex, Not):
        return may_be_truth(vertex.inner)
    return True


def _may_be_count(vertex: Vertex) -> bool:
    """Can this be a number that one reckons with? A truth is none."""
    if isinstance(vertex, Constant):
        return isinstance(vertex.value, float)
    return isinstance(vertex, (Tag, Attribute, Chain, Negative, Call)) and may_be_number(vertex)


def may_be_truth(vertex: Vertex) -> bool:
    """Can this be true or false?"""
    if isinstance(vertex, Constant):
        return isinstance(vertex.value, bool)
    if isinstance(vertex, Not):
        return may_be_truth(vertex.inner)
    return not isinstance(vertex, (Chain, Negative, Call))


def expression(root: Vertex, text: str = "") -> Expr:
    """The expression of a tree; without a text it gets the one of `show`."""
    found = list(walk(root))
    tags = frozenset(vertex.name for vertex in found if isinstance(vertex, Tag))
    attributes = frozenset(vertex.name for vertex in found if isinstance(vertex, Attribute))
    return Expr(text or show(root), root, tags, attributes)


def show_value(value: Value) -> str:
    """A value as one would write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) < 1e15
        return str(int(value)) if whole else repr(value)
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return "undefined"


# How tightly each kind of vertex binds: a part that binds less than its place asks for is put in parentheses.
_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _UNARY, _ATOM = range(8)


def _strength(vertex: Vertex) -> int:
    if isinstance(vertex, Either):
        return _OR
    if isinstance(vertex, Both):
        return _AND
    if isinstance(vertex, Not):
        return _COMPARE if isinstance(vertex.inner, Among) else _NOT
    if isinstance(vertex, (Compare, Among)):
        return _COMPARE
    if isinstance(vertex, Chain):
        return _SUM if vertex.rest[0][0] in "+-" else _PRODUCT
    if isinstance(vertex, Negative):
        return _UNARY
    return _ATOM


def show(vertex: Vertex, least: int = _OR) -> str:
    """The text of a tree; reading it gives the same tree."""
    text = _show(vertex)
    return f"({text})" if _strength(vertex) < least else text


def _show(vertex: Vertex) -> str:
    if isinstance(vertex, Constant):
        return show_value(vertex.value)
    if isinstance(vertex, Tag):
        return vertex.name
    if isinstance(vertex, Attribute):
        return f"task.{vertex.name}"
    if isinstance(vertex, Either):
        return " or ".join(show(part, _AND) for part in vertex.parts)
    if isinstance(vertex, Both):
        return " and ".join(show(part, _NOT) for part in vertex.parts)
    if isinstance(vertex, Not):
        if isinstance(vertex.inner, Among):
            return _show_among(vertex.inner, "not in")
        return f"not {show(vertex.inner, _NOT)}"
    if isinstance(vertex, Compare):
        return f"{show(vertex.left, _SUM)} {vertex.op} {show(vertex.right, _SUM)}"
    if isinstance(vertex, Among):
        return _show_among(vertex, "in")
    if isinstance(vertex, Chain):
        least = _strength(vertex) + 1
        return show(vertex.first, least) + "".join(f" {op} {show(operand, least)}" for op, operand in vertex.rest)
    if isinstance(vertex, Negative):
        return f"-{show(vertex.inner, _UNARY)}"
    if isinstance(vertex, Call):
        return f"{vertex.name}({', '.join(show(arg) for arg in vertex.args)})"
    if isinstance(vertex, Has):
        return f"has({_show(vertex.name)})"
    return f"glob({show(vertex.inner)}, {show_value(vertex.pattern)})"


def _show_among(vertex: Among, word: str) -> str:
    items = ", ".join(show_value(item.value) for item in vertex.items)
    return f"{show(vertex.left, _SUM)} {word} [{items}]"
