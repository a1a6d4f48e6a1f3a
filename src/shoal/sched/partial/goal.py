"""Goals: when the answer of a run is good enough (`--until "rel_err(x) < 0.01"`). An expression of the language of
requirements, in which functions of emitted names take the place of tags.

`rel_err` and `std_err` have no value before there are MIN_EVIDENCE values: of few values the error is known so badly that
a goal would be reached by chance. What has no value makes no comparison true.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Optional

from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_EMITTED_NAME
from shoal.sched.expr.parse import parse
from shoal.sched.expr.scalar import holds
from shoal.sched.expr.tree import Expr
from shoal.sched.partial.contribution import Contribution, is_name
from shoal.sched.partial.reducers import Measure, measure, reducer_of

MEASURES = ("max", "mean", "min", "n", "rel_err", "std_err", "sum")
MIN_EVIDENCE = 10
_REDUCERS = ("mean", "sum", "min", "max", "hist")  # that know all of these; the others know `n`


def goal_of(text: str) -> Expr:
    """The goal that a text is; BadInput says what is wrong."""
    return parse(text, "until", MEASURES)


def check(reduce: Mapping[str, str], until: str) -> None:
    """Refuse reducers and a goal that cannot be, of a submission."""
    for name, text in reduce.items():
        if not is_name(name):
            hint = f"letters, digits and _, up to {MAX_EMITTED_NAME} characters, not a digit first"
            raise BadInput(f"{echo(name)!r} cannot be emitted", code="bad_reducer", field="reduce", hint=hint)
        reducer_of(text, f"reduce.{name}")
    goal = goal_of(until) if until else None
    if goal is not None and not goal.tags:
        hint = "e.g. rel_err(E) < 0.01"
        raise BadInput(f"{echo(until)!r} names no emitted value", code="bad_expression", field="until", hint=hint)
    found = unknowable(goal, reduce) if goal is not None else None
    if found is not None:
        function, name, reducer = found
        raise BadInput(
            f"{function}({name}) is not known, since {name} is reduced by {reducer}", code="bad_expression", field="until",
            hint=f"reduce it by mean: --reduce {name}=mean",
        )  # fmt: skip


def names_in(goal: Expr) -> dict[str, set[str]]:
    """Emitted names of a goal, and the functions of each that it uses."""
    found: dict[str, set[str]] = {}
    for tag in goal.tags:
        function, _, name = tag.partition("(")
        found.setdefault(name.rstrip(")"), set()).add(function)
    return found


def unknowable(goal: Expr, reduce: Mapping[str, str]) -> Optional[tuple[str, str, str]]:
    """A function of a name, and its reducer, which does not know its value; None if all can be known."""
    for name, functions in sorted(names_in(goal).items()):
        reducer = reduce.get(name)
        if reducer is not None and reducer.partition("(")[0] not in _REDUCERS and functions != {"n"}:
            return min(functions - {"n"}), name, reducer
    return None


def is_reached(goal: Expr, merged: Contribution) -> bool:
    """Is the answer good enough?"""
    return holds(goal, values(goal, merged), {})


def values(goal: Expr, merged: Contribution) -> dict[str, object]:
    """The values of the functions in a goal; one that has none is not there."""
    by_name: dict[str, Measure] = {}
    for (name, reducer), state in merged.states.items():
        found = measure(reducer_of(reducer), state)
        known = by_name.get(name)
        if known is None or (known.mean is None and found.mean is not None):
            by_name[name] = found
    told: dict[str, object] = {}
    for tag in goal.tags:
        function, _, name = tag.partition("(")
        found_value = _value(function, by_name.get(name.rstrip(")"), Measure(0)))
        if found_value is not None:
            told[tag] = found_value
    return told


def _value(function: str, known: Measure) -> Optional[float]:
    if function == "n":
        return float(known.n)
    if function in ("rel_err", "std_err"):
        if known.error is None or known.mean is None or known.n < MIN_EVIDENCE:
            return None
        if function == "std_err":
            return _finite(known.error)
        return _finite(known.error / abs(known.mean)) if known.mean else None
    return _finite(getattr(known, function))


def _finite(value: Optional[float]) -> Optional[float]:
    """None for what is beyond the range of floats, such as the sum of very large values: nothing is reached by it."""
    return value if value is not None and math.isfinite(value) else None


def shown_values(goal: Expr, merged: Contribution) -> str:
    """The values of the functions in a goal, for people: `rel_err(x) = 0.0098`."""
    known = values(goal, merged)
    return ", ".join(
        f"{tag} = {known[tag]:.4g}" if tag in known else f"{tag} is not known" for tag in sorted(goal.tags)
    )
