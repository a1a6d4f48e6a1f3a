"""Why a requirement matches no pilot, clause by clause, and the nearest one that would: what `shoal why` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Optional

from shoal.model.errors import echo
from shoal.model.lazy_dataclass import dataclass
from shoal.sched.expr.names import CONTEXT, OWN, key_of, nearest
from shoal.sched.expr.scalar import Tags, Task, build, evaluate
from shoal.sched.expr.tree import (
    UNDEFINED,
    Among,
    Attribute,
    Both,
    Chain,
    Compare,
    Constant,
    Either,
    Expr,
    Glob,
    Has,
    Not,
    Tag,
    Undefined,
    Value,
    Vertex,
    children,
    expression,
    normal,
    show,
    show_value,
    walk,
)

SHOWN = 5  # values that are named
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_TURNED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_KINDS = {float: "a number", str: "text", bool: "true or false"}


@dataclass(frozen=True)
class Relaxed:
    """One clause made weaker, and how many pilots match then while the other clauses stay."""

    text: str
    pilots: int


@dataclass(frozen=True)
class Clause:
    """One part of a requirement: how many pilots pass it, how many match if it is left out, and why it fails."""

    expr: Expr
    passing: int
    without: int
    reason: str  # empty if all pilots pass
    relaxed: Optional[Relaxed]

    @property
    def text(self) -> str:
        """The clause as one would write it."""
        return self.expr.text


@dataclass(frozen=True)
class Nearest:
    """The smallest change that lets a pilot match: a description, and the whole requirement then (empty: none is left)."""

    text: str
    require: str
    pilots: int


@dataclass(frozen=True)
class Explanation:
    """All clauses of a requirement over all pilots; `nearest` is None if some match already, or if there are none."""

    pilots: int
    matching: int
    clauses: tuple[Clause, ...]
    nearest: Optional[Nearest]


def clauses(expr: Expr) -> list[Expr]:
    """The parts that must all hold."""
    return [expression(part) for part in _parts(expr.root)]


def _parts(vertex: Vertex) -> list[Vertex]:
    if isinstance(vertex, Both):
        return [inner for part in vertex.parts for inner in _parts(part)]
    return [vertex]


def explain(expr: Expr, pilots: Sequence[Tags], task: Task, known: Sequence[str] = ()) -> Explanation:
    """How the clauses of a requirement fare on these pilots; `known` are names of tags, for tags that no pilot has."""
    parts = clauses(expr)
    values = [[evaluate(part, tags, task) for tags in pilots] for part in parts]
    failing = [{at for at, row in enumerate(values) if row[place] is not True} for place in range(len(pilots))]
    matching = sum(not fails for fails in failing)
    found: list[Clause] = []
    for at, part in enumerate(parts):
        others = [tags for tags, fails in zip(pilots, failing) if fails <= {at}]
        loose = None if matching else _relax(part.root, others, task)
        passing = sum(value is True for value in values[at])
        found.append(
            Clause(
                expr=part,
                passing=passing,
                without=len(others),
                reason="" if passing == len(pilots) else _reason(part.root, pilots, task, known),
                relaxed=Relaxed(show(loose), _count(loose, others, task)) if loose is not None else None,
            )
        )
    close = _nearest(found, pilots, failing, task) if pilots and not matching else None
    return Explanation(len(pilots), matching, tuple(found), close)


def _count(vertex: Vertex, pilots: Sequence[Tags], task: Task) -> int:
    """How many pilots pass."""
    return sum(value is True for value in _values(vertex, pilots, task))


def _values(vertex: Vertex, pilots: Sequence[Tags], task: Task) -> list[Value]:
    run = build(vertex)
    return [run(tags if callable(tags) else tags.get, task) for tags in pilots]


def _nearest(found: list[Clause], pilots: Sequence[Tags], failing: list[set[int]], task: Task) -> Nearest:
    """The change of fewest clauses: one that is made weaker before one that is left out, then what lets most match."""
    single = [clause for clause in found if clause.relaxed is not None]
    if single:
        best = max(single, key=lambda clause: clause.relaxed.pilots if clause.relaxed else 0)
        assert best.relaxed is not None
        parts = [best.relaxed.text if clause is best else clause.text for clause in found]
        return Nearest(
            f"{best.relaxed.text} would let {_pilots(best.relaxed.pilots)} match", _join(parts), best.relaxed.pilots
        )
    # No clause alone is enough, or it cannot be made weaker: change all that fail on the pilot that fails fewest, and
    # of these on one that most are like.
    alike = Counter(frozenset(fails) for fails in failing)
    place = min(range(len(pilots)), key=lambda at: (len(failing[at]), -alike[frozenset(failing[at])]))
    changed: list[str] = []
    kept: list[Vertex] = []
    for at, clause in enumerate(found):
        loose: Optional[Vertex] = clause.expr.root
        if at in failing[place]:
            loose = _relax(clause.expr.root, [pilots[place]], task)
            changed.append(show(loose) if loose is not None else f"leaving out {clause.text}")
        if loose is not None:
            kept.append(loose)
    whole = None if not kept else kept[0] if len(kept) == 1 else Both(tuple(kept))
    count = len(pilots) if whole is None else _count(whole, pilots, task)
    text = f"{' and '.join(changed)} would{' together' if len(changed) > 1 else ''} let {_pilots(count)} match"
    return Nearest(text, show(whole) if whole is not None else "", count)


def _pilots(count: int) -> str:
    return "1 pilot" if count == 1 else f"{count} pilots"


def _join(parts: list[str]) -> str:
    """Clauses put together again."""
    return " and ".join(f"({part})" if " or " in part else part for part in parts)


# --- making a clause weaker


def _relax(vertex: Vertex, pilots: Sequence[Tags], task: Task) -> Optional[Vertex]:
    """The clause with the weakest change of a literal that lets at least one of these pilots pass; None if there is
    none but leaving it out."""
    if isinstance(vertex, Not):
        turned = _without_not(vertex)
        return _relax(turned, pilots, task) if turned is not None else None
    if isinstance(vertex, Either):
        made = []
        for at, part in enumerate(vertex.parts):
            loose = _relax(part, pilots, task)
            if loose is not None:
                made.append(Either((*vertex.parts[:at], loose, *vertex.parts[at + 1 :])))
        return max(made, key=lambda one: _count(one, pilots, task)) if made else None
    if isinstance(vertex, Compare):
        return _relax_compare(vertex, pilots, task)
    if isinstance(vertex, Among) and _is_of_pilot(vertex.left):
        return _admit(vertex.left, vertex.items, pilots, task)
    return None


def _without_not(vertex: Not) -> Optional[Vertex]:
    """`not a < b` is `a >= b`: the same where it is true."""
    inner = vertex.inner
    if isinstance(inner, Compare):
        return Compare(_OPPOSITE[inner.op], inner.left, inner.right)
    if isinstance(inner, Not):
        return inner.inner
    return None


def _is_of_pilot(vertex: Vertex) -> bool:
    """Does its value depend on the pilot?"""
    return any(isinstance(inner, Tag) for inner in walk(vertex))


def _sides(vertex: Compare) -> Optional[tuple[Vertex, str, Vertex]]:
    """The side of the pilot, the comparison, and the side that is the same on all pilots."""
    left, right = _is_of_pilot(vertex.left), _is_of_pilot(vertex.right)
    if left == right:
        return None
    return (vertex.left, vertex.op, vertex.right) if left else (vertex.right, _TURNED[vertex.op], vertex.left)


def _relax_compare(vertex: Compare, pilots: Sequence[Tags], task: Task) -> Optional[Vertex]:
    sides = _sides(vertex)
    if sides is None or sides[1] == "!=":
        return None
    side, op, other = sides
    bound = _values(other, [{}], task)[0]
    if op == "==":
        if isinstance(bound, Undefined):
            return None
        return _admit(side, (Constant(bound),), pilots, task)
    seen = [value for value in _values(side, pilots, task) if isinstance(value, float)]
    if not seen or not isinstance(bound, float):
        return None
    best = max(seen) if op in (">", ">=") else min(seen)
    return Compare(">=" if op in (">", ">=") else "<=", side, Constant(best))


def _admit(side: Vertex, items: tuple[Constant, ...], pilots: Sequence[Tags], task: Task) -> Optional[Vertex]:
    """Also the value that most of these pilots have."""
    seen = Counter(
        Constant(value)
        for value in _values(side, pilots, task)
        if not isinstance(value, Undefined) and Constant(value) not in items
    )
    if not seen:
        return None
    most = max(sorted(seen, key=lambda item: show_value(item.value)), key=lambda item: seen[item])
    return Among(side, (*items, most))


# --- reasons as text


def _reason(vertex: Vertex, pilots: Sequence[Tags], task: Task, known: Sequence[str]) -> str:
    """Why some pilots do not pass this clause."""
    if isinstance(vertex, Has):
        return "the others do not have it" if _count(vertex, pilots, task) else _missing(vertex.name, known, task)
    for inner in walk(vertex):
        if isinstance(inner, Attribute) and normal(task.get(inner.name)) is UNDEFINED:
            return f"task.{inner.name} is not stated"
    tags = [inner for inner in walk(vertex) if isinstance(inner, Tag)]
    lacking = {tag.name: sum(value is UNDEFINED for value in _values(tag, pilots, task)) for tag in tags}
    for tag in tags:
        if lacking[tag.name] == len(pilots):
            return _missing(tag, known, task)
    parts = [_describe(vertex, pilots, task)]
    parts += [f"{_pilots(count)} without {echo(name)}" for name, count in sorted(lacking.items()) if count]
    return ", ".join(part for part in parts if part) or "it is not true on the others"


def _missing(name: Vertex, known: Sequence[str], task: Task) -> str:
    """No pilot has this tag; perhaps another was meant."""
    if not isinstance(name, Tag):
        return f"{show(name)} is not stated"
    owner = str(task.get("owner") or "")
    near = nearest(key_of(name.name, owner), {*known, *CONTEXT} - {name.name})
    if near is not None and name.name.startswith(OWN) and near.startswith(f"{owner}."):
        near = OWN + near[len(owner) + 1 :]
    return f"no pilot has the tag {echo(name.name)}" + (f", did you mean {echo(near)}" if near else "")


def _describe(vertex: Vertex, pilots: Sequence[Tags], task: Task) -> str:
    """What is seen instead."""
    if isinstance(vertex, Not):
        turned = _without_not(vertex)
        return _describe(turned if turned is not None else vertex.inner, pilots, task)
    if isinstance(vertex, (Among, Glob)):
        inner = children(vertex)[0]
        return _seen(inner, pilots, task)
    if isinstance(vertex, Compare):
        sides = _sides(vertex)
        if sides is None:
            return _clash(vertex, pilots, task)
        side, op, other = sides
        bound = _values(other, [{}], task)[0]
        values = [value for value in _values(side, pilots, task) if not isinstance(value, Undefined)]
        alike = [value for value in values if type(value) is type(bound)]
        if values and not alike:
            return f"{show(side)} is {_KINDS[type(values[0])]}, compared with {_kind(bound)}"
        if op in ("==", "!=") or not all(isinstance(value, float) for value in alike):
            return _seen(side, pilots, task)
        if not alike:
            return ""
        best = max(alike) if op in (">", ">=") else min(alike)
        return f"{show(side)} is {'at most' if op in ('>', '>=') else 'at least'} {show_value(best)}"
    if isinstance(vertex, (Tag, Chain)):
        kinds = {type(value) for value in _values(vertex, pilots, task)} - {bool, Undefined}
        return f"{show(vertex)} is {_KINDS[min(kinds, key=str)]}, not true or false" if kinds else ""
    return ""


def _kind(value: Value) -> str:
    return "what is undefined" if isinstance(value, Undefined) else _KINDS[type(value)]


def _clash(vertex: Compare, pilots: Sequence[Tags], task: Task) -> str:
    """Two sides of a pilot: of different kinds, or just not so."""
    pairs = zip(_values(vertex.left, pilots, task), _values(vertex.right, pilots, task))
    for left, right in pairs:
        if UNDEFINED not in (left, right) and type(left) is not type(right):
            return f"{show(vertex.left)} is {_kind(left)}, {show(vertex.right)} is {_kind(right)}"
    return ""


def _seen(vertex: Vertex, pilots: Sequence[Tags], task: Task) -> str:
    """The values there are, the commonest first."""
    values = [value for value in _values(vertex, pilots, task) if not isinstance(value, Undefined)]
    counts = Counter(show_value(value) for value in values).most_common()
    if not counts:
        return ""
    named = ", ".join(f"{echo(value)} ({count})" for value, count in counts[:SHOWN])
    return f"{show(vertex)} is {named}" + (f" and {len(counts) - SHOWN} more values" if len(counts) > SHOWN else "")
