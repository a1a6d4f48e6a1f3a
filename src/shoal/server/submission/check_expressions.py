"""Checks of requirements and ranks when a submission comes: expressions that cannot be parsed, tags that no pilot has,
and (with strict) tasks that no pilot could ever run [input E27-E30]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shoal.engine.matching.classes import VOLATILE, TaskClass, class_key
from shoal.engine.matching.eligibility import static_misfit
from shoal.engine.matching.pilot_attributes import STATIC, attributes, lookup, static_facts
from shoal.engine.records import ClassKey, Pilot
from shoal.engine.state import State
from shoal.model.errors import BadInput, echo
from shoal.model.quantities import many
from shoal.model.task.spec import Spec
from shoal.sched.expr.explain import explain
from shoal.sched.expr.names import unknown_tags
from shoal.sched.expr.parse import parse
from shoal.sched.expr.scalar import NOTHING, evaluate, holds, rank_of
from shoal.sched.expr.tree import may_be_number

MAX_WARNINGS = 20  # of one submission; the rest are only counted


def check_expressions(specs: Sequence[Spec]) -> None:
    """Refuse an expression that cannot be parsed, naming its task if there are several."""
    seen: set[tuple[str, str]] = set()
    for at, spec in enumerate(specs):
        for field, text in (("require", spec.require), ("rank", spec.rank)):
            if not text or (field, text) in seen:
                continue
            seen.add((field, text))
            try:
                parsed = parse(text, field)
                if field == "rank" and not may_be_number(parsed.root):
                    raise BadInput(
                        "it can never be a number", code="bad_expression", field=field,
                        hint="the pilot with the largest number is best, e.g. `cpu_mhz`; true counts as 1, false as 0",
                    )  # fmt: skip
            except BadInput as error:
                raise BadInput(
                    error.message, code=error.code, field=_task_prefix(specs, at) + error.field, hint=error.hint
                ) from None


def _task_prefix(specs: Sequence[Spec], at: int) -> str:
    """The task in an error's field, as the parser of submissions writes it."""
    if len(specs) == 1:
        return ""
    return f"tasks[{at}] ({echo(specs[at].name)})." if specs[at].name else f"tasks[{at}]."


def tag_warnings(state: State, owner: str, specs: Sequence[Spec]) -> list[str]:
    """Tags that no pilot of the owner's has, each once, with the nearest one that is known [input E28]."""
    texts = {
        (text, field) for spec in specs for field, text in (("require", spec.require), ("rank", spec.rank)) if text
    }
    pilots = _pilots(state, owner) if texts else []
    if not pilots:
        return []
    known = {*STATIC, *VOLATILE, *(name for pilot in pilots for name in static_facts(pilot))}
    found: dict[str, str | None] = {}
    for text, field in sorted(texts):
        found.update(unknown_tags(parse(text, field), known, owner))
    warnings = [
        f"no pilot has the tag {echo(name)}" + (f" (did you mean {echo(close)})" if close else "")
        for name, close in sorted(found.items())
    ]
    more = len(warnings) - MAX_WARNINGS
    return [*warnings[:MAX_WARNINGS], *([f"and {many(more, 'more tag')} that no pilot has"] if more > 0 else [])]


def rank_warnings(state: State, owner: str, specs: Sequence[Spec]) -> list[str]:
    """Warnings about ranks that are a number on none of the owner's pilots, and so decide nothing."""
    pilots = _pilots(state, owner)
    warnings: dict[str, str] = {}
    for _, cls in _classes(owner, [spec for spec in specs if spec.rank]):
        if cls.rank is None or not pilots or cls.key.rank in warnings:
            continue
        task = attributes(state, cls.key)
        lookups = [lookup(state, pilot, owner) for pilot in pilots]
        if all(rank_of(cls.rank, read, task) == NOTHING for read in lookups):
            value = evaluate(cls.rank, lookups[0], task)
            what = (
                f"it is the text {echo(value)!r} on {pilots[0].host}" if isinstance(value, str) else "it is undefined"
            )
            warnings[cls.key.rank] = (
                f"the rank {echo(cls.key.rank)} is a number on none of {many(len(pilots), 'pilot')}: {what}"
            )
    return list(warnings.values())[:MAX_WARNINGS]


def visible_warnings(state: State, owner: str, specs: Sequence[Spec]) -> list[str]:
    """Warnings about files that no pilot of the owner's sees, as far as that is known already."""
    pilots = _pilots(state, owner)
    needed = {cls.key.visible: None for _, cls in _classes(owner, [spec for spec in specs if spec.visible])}
    unseen = [views for views in needed if pilots and all(views in pilot.blind for pilot in pilots)]
    return [
        f"none of {many(len(pilots), 'pilot')} sees {' and '.join(echo(view.path) for view in views)}; it waits for one that does"
        for views in unseen[:MAX_WARNINGS]
    ]


def check_fits(state: State, owner: str, specs: Sequence[Spec]) -> list[str]:
    """Refuse a task that no connected pilot could ever run [input E27]; returns a warning if no pilot is connected."""
    pilots = _pilots(state, owner)
    for at, cls in _classes(owner, specs):
        misfit = _misfit(state, cls, pilots)
        if misfit is not None:
            where = f"{_task_prefix(specs, at).rstrip('.')} never fits: " if len(specs) > 1 else ""
            hint = f"{misfit.fix}, or submit without strict: it waits for a pilot that can"
            raise BadInput(where + misfit.text, code="never_fits", field="strict", hint=hint)
    return [] if pilots else ["no pilot is connected yet, so strict had nothing to look at"]


def _pilots(state: State, owner: str) -> list[Pilot]:
    return [pilot for pilot in state.pilots.values() if not pilot.draining and state.serves(pilot, owner)]


def _classes(owner: str, specs: Sequence[Spec]) -> Iterator[tuple[int, TaskClass]]:
    """The task classes of a submission, each with the index of its first task."""
    seen: set[ClassKey] = set()
    for at, spec in enumerate(specs):
        key = class_key(spec, owner)
        if key not in seen:
            seen.add(key)
            yield at, TaskClass(key, 0)


class Misfit(NamedTuple):
    """Why a task class can never run, and what would help."""

    text: str
    fix: str


def _misfit(state: State, cls: TaskClass, pilots: list[Pilot]) -> Misfit | None:
    """None: some pilot could run it, or there is no pilot to ask."""
    for name, each in cls.key.needs.licences:
        most = state.accounting.policy.licences.get(name, 0)
        if each > most:
            return Misfit(f"it needs {each} of the licence {echo(name)}, the policy has {most}", "ask an administrator")
    if not pilots:
        return None
    lacks = {pilot.name: static_misfit(pilot, cls) for pilot in pilots}
    large = [pilot for pilot in pilots if lacks[pilot.name] is None]
    if not large:
        best = max(pilots, key=lambda pilot: (pilot.room.cores, pilot.room.memory, pilot.name))
        where = f"nearest is {echo(best.host)} (site {echo(best.site)})"
        return Misfit(f"no pilot is large enough; {where}: {lacks[best.name]}", "ask for less")
    if cls.require is None or cls.is_volatile:
        return None
    task, key = attributes(state, cls.key), cls.key
    lookups = [lookup(state, pilot, key.owner) for pilot in large]
    if any(holds(cls.require, read, task) for read in lookups):
        return None
    nearest = explain(cls.require, lookups, task, [*STATIC, *VOLATILE]).nearest
    fix = nearest.text if nearest is not None else "change the requirement"
    return Misfit(f"no pilot fulfils its requirement; {many(len(large), 'pilot')} could run it otherwise", fix)
