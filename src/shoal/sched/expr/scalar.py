"""Evaluates an expression for one task on one pilot: the tree becomes closures once, and these are called.

The rules of undefined: what is missing, of the wrong kind, divided by zero or not finite is UNDEFINED, and so is
what is made of it; `and`, `or` and `not` are Kleene's. `sched/vector/expr.py` must agree on every value.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Mapping
from typing import Any, Callable, Union

from shoal.sched.expr.names import OWN
from shoal.sched.expr.tree import (
    UNDEFINED,
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
    Has,
    Negative,
    Not,
    Tag,
    Value,
    Vertex,
    normal,
)

Lookup = Callable[[str], object]  # the value of a tag; None or UNDEFINED where there is none
Tags = Union[Lookup, Mapping[str, object]]
Task = Mapping[str, object]
Run = Callable[[Lookup, Task], Value]

NOTHING = -math.inf  # the rank that is worse than every number

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "%": operator.mod,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[[Any], float]] = {"min": min, "max": max, "abs": lambda values: abs(values[0])}


def evaluate(expr: Expr, tags: Tags, task: Task) -> Value:
    """The value of an expression for a task on a pilot with these tags."""
    run = expr.run or _compiled(expr)
    return run(tags if callable(tags) else tags.get, task)


def holds(expr: Expr, tags: Tags, task: Task) -> bool:
    """Does a requirement hold? Only if it is exactly true."""
    run = expr.run or _compiled(expr)
    return run(tags if callable(tags) else tags.get, task) is True


def rank_of(expr: Expr, tags: Tags, task: Task) -> float:
    """The rank as a number, of which true is 1 and false is 0; NOTHING if it is none."""
    run = expr.run or _compiled(expr)
    value = run(tags if callable(tags) else tags.get, task)
    if type(value) is float:
        return value
    return float(value) if type(value) is bool else NOTHING


def _compiled(expr: Expr) -> Run:
    run = build(expr.root)
    object.__setattr__(expr, "run", run)
    return run


def build(vertex: Vertex) -> Run:
    """The closure of a vertex."""
    return _BUILDERS[type(vertex)](vertex)


def _constant(vertex: Constant) -> Run:
    value = vertex.value
    return lambda get, task: value


def _tag(vertex: Tag) -> Run:
    name = vertex.name
    if not name.startswith(OWN):
        return lambda get, task: normal(get(name))
    rest = name[len(OWN) - 1 :]

    def mine(get: Lookup, task: Task) -> Value:
        owner = normal(task.get("owner"))
        return normal(get(owner + rest)) if isinstance(owner, str) else UNDEFINED

    return mine


def _attribute(vertex: Attribute) -> Run:
    name = vertex.name
    return lambda get, task: normal(task.get(name))


def _both(vertex: Both) -> Run:
    parts = tuple(build(part) for part in vertex.parts)

    def run(get: Lookup, task: Task) -> Value:
        result: Value = True
        for part in parts:
            value = part(get, task)
            if value is False:
                return False
            if value is not True:
                result = UNDEFINED
        return result

    return run


def _either(vertex: Either) -> Run:
    parts = tuple(build(part) for part in vertex.parts)

    def run(get: Lookup, task: Task) -> Value:
        result: Value = False
        for part in parts:
            value = part(get, task)
            if value is True:
                return True
            if value is not False:
                result = UNDEFINED
        return result

    return run


def _not(vertex: Not) -> Run:
    inner = build(vertex.inner)

    def run(get: Lookup, task: Task) -> Value:
        value = inner(get, task)
        return False if value is True else True if value is False else UNDEFINED

    return run


def _compare(vertex: Compare) -> Run:
    op, has_order = _COMPARE[vertex.op], vertex.op not in ("==", "!=")
    left, right = build(vertex.left), build(vertex.right)

    def run(get: Lookup, task: Task) -> Value:
        a, b = left(get, task), right(get, task)
        kind = type(a)
        if kind is not type(b) or a is UNDEFINED or (has_order and kind is bool):
            return UNDEFINED
        return op(a, b)

    if isinstance(vertex.right, Constant) and isinstance(vertex.left, Tag) and not vertex.left.name.startswith(OWN):
        return _compare_tag(vertex.left.name, op, vertex.right, run)
    return run


def _compare_tag(name: str, op: Callable[[Any, Any], bool], right: Constant, general: Run) -> Run:
    """The commonest clause, a tag against a literal, without calls in between."""
    bound, kind = right.value, type(right.value)
    if kind is bool:
        return general

    def run(get: Lookup, task: Task) -> Value:
        value = get(name)
        if type(value) is not kind or kind is float:
            value = normal(value)
            if type(value) is not kind:
                return UNDEFINED
        return op(value, bound)

    return run


def _among(vertex: Among) -> Run:
    left = build(vertex.left)
    items = frozenset((type(item.value), item.value) for item in vertex.items)

    def run(get: Lookup, task: Task) -> Value:
        value = left(get, task)
        return UNDEFINED if value is UNDEFINED else (type(value), value) in items

    return run


def _chain(vertex: Chain) -> Run:
    first = build(vertex.first)
    rest = tuple((_ARITHMETIC[op], op in "/%", build(operand)) for op, operand in vertex.rest)

    def run(get: Lookup, task: Task) -> Value:
        total = first(get, task)
        if type(total) is not float:
            return UNDEFINED
        for op, divides, operand in rest:
            value = operand(get, task)
            if type(value) is not float or (divides and value == 0.0):
                return UNDEFINED
            total = op(total, value)
            if total - total != 0.0:  # not finite; cheaper than a call
                return UNDEFINED
        return total

    return run


def _negative(vertex: Negative) -> Run:
    inner = build(vertex.inner)

    def run(get: Lookup, task: Task) -> Value:
        value = inner(get, task)
        return -value if type(value) is float else UNDEFINED

    return run


def _call(vertex: Call) -> Run:
    args = tuple(build(arg) for arg in vertex.args)
    function = _FUNCTIONS[vertex.name]

    def run(get: Lookup, task: Task) -> Value:
        values = [arg(get, task) for arg in args]
        for value in values:
            if type(value) is not float:
                return UNDEFINED
        return function(values)

    return run


def _has(vertex: Has) -> Run:
    inner = build(vertex.name)
    return lambda get, task: inner(get, task) is not UNDEFINED


def _glob(vertex: Glob) -> Run:
    inner, match = build(vertex.inner), globber(vertex.pattern)

    def run(get: Lookup, task: Task) -> Value:
        value = inner(get, task)
        return match(value) if type(value) is str else UNDEFINED

    return run


@functools.lru_cache(maxsize=256)
def globber(pattern: str) -> Callable[[str], bool]:
    """Does all of a text match a pattern of `*` (anything) and `?` (one character)?

    Each piece between stars is looked for once, leftmost first, so that no pattern makes it go back and forth.
    """
    pieces = [
        re.compile("".join("." if letter == "?" else re.escape(letter) for letter in piece), re.DOTALL)
        for piece in pattern.split("*")
    ]
    lengths = [len(piece) for piece in pattern.split("*")]
    first, middle, last = pieces[0], pieces[1:-1], pieces[-1]

    def match(text: str) -> bool:
        if len(pieces) == 1:
            return first.fullmatch(text) is not None
        if first.match(text) is None:
            return False
        at = lengths[0]
        for piece in middle:
            found = piece.search(text, at)
            if found is None:
                return False
            at = found.end()
        start = len(text) - lengths[-1]
        return start >= at and last.match(text, start) is not None

    return match


_BUILDERS: dict[type, Callable[..., Run]] = {
    Constant: _constant,
    Tag: _tag,
    Attribute: _attribute,
    Both: _both,
    Either: _either,
    Not: _not,
    Compare: _compare,
    Among: _among,
    Chain: _chain,
    Negative: _negative,
    Call: _call,
    Has: _has,
    Glob: _glob,
}
