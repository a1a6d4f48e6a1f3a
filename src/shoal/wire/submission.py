"""A whole submission: plain data in, checked Submission out; names, parents and cycles between its tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.model.errors import BadInput, NotFound, TooLarge, echo
from shoal.model.ids import target_of
from shoal.model.limits import MAX_ELEMENTS, MAX_KEY, MAX_OUTSIDE, MAX_SPECS
from shoal.model.task.checks import short_text, whole
from shoal.model.task.field_values import labels
from shoal.model.task.spec import Spec, Submission
from shoal.wire.did_you_mean import did_you_mean
from shoal.wire.stream_files import check_stream_files
from shoal.wire.task import parse_spec

MAX_CYCLE = 8  # names of a cycle that are printed
_SUBMISSION = {"tasks", "name", "cwd", "max_fail", "max_running", "seed", "key", "labels", "open"}


def parse_submission(data: Any) -> Submission:
    """A whole submission, checked; any error refuses all of it."""
    if not isinstance(data, Mapping):
        raise BadInput("expected an object", code="want_object")
    if unknown := [key for key in data if key not in _SUBMISSION]:
        hint = did_you_mean(str(unknown[0]), list(_SUBMISSION))
        raise BadInput(f"unknown field {echo(unknown[0])!r}", code="unknown_field", hint=hint)
    tasks = data.get("tasks")
    if not isinstance(tasks, list):
        raise BadInput("expected a list of tasks", code="required", field="tasks")
    if not isinstance(data.get("open", False), bool):
        raise BadInput("expected true or false", code="wrong_type", field="open")
    if not tasks and not data.get("open"):
        raise BadInput("there is no task in it", code="empty_bulk", field="tasks", hint="give at least one")
    if len(tasks) > MAX_SPECS:
        raise TooLarge(
            f"{len(tasks)} tasks in one call", code="split", field="tasks",
            hint=f"at most {MAX_SPECS}: split it, or write equal tasks as one array",
        )  # fmt: skip
    specs = _parse_specs(tasks)
    _check_graph(specs)
    _check_divisible(specs, bool(data.get("open")))
    total = sum(spec.count for spec in specs)
    if total > MAX_ELEMENTS:
        hint = f"at most {MAX_ELEMENTS} a run"
        raise BadInput(f"{total} tasks are too many", code="bad_array", field="tasks", hint=hint)
    check_stream_files(specs)
    max_fail, max_running, seed = data.get("max_fail"), data.get("max_running"), data.get("seed")
    return Submission(
        specs=tuple(specs),
        tables=tuple(tasks),
        name=short_text(data.get("name", ""), "name"),
        cwd=short_text(data.get("cwd", ""), "cwd", 4096),
        max_fail=None if max_fail is None else whole(1, MAX_ELEMENTS)(max_fail, "max_fail"),
        max_running=None if max_running is None else whole(1, MAX_ELEMENTS)(max_running, "max_running"),
        seed=None if seed is None else whole(0, 2**63 - 1)(seed, "seed"),
        key=short_text(data.get("key", ""), "key", MAX_KEY),
        labels=labels(data.get("labels", {}), "labels"),
        open=data.get("open", False),
    )


def _check_divisible(specs: Sequence[Spec], is_open: bool) -> None:
    """Pieces are told to be of one work by its name; in an open run the submitter numbers the tasks."""
    divisible = [at for at, spec in enumerate(specs) if spec.units is not None]
    if is_open and divisible:
        raise BadInput(
            "an open run has no divisible tasks", code="usage", field="units", hint="submit a run of its own"
        )
    reach: dict[str, int] = {}
    for at in sorted(divisible, key=lambda at: specs[at].units or (0, 0)):
        name, units = specs[at].name, specs[at].units
        assert units is not None
        if units.first < reach.get(name, 0):
            what = f"two tasks are named {echo(name)!r}" if name else "the name is missing"
            hint = "a run with several divisible tables tells them by their names"
            raise BadInput(what, code="duplicate_name", field=f"tasks[{at}].name", hint=hint)
        reach[name] = units.first + units.size


def parse_addition(data: Any) -> tuple[int, Submission]:
    """Tasks for an open run, checked, and the element that they begin with."""
    if not isinstance(data, Mapping):
        raise BadInput("expected an object", code="want_object")
    if unknown := [key for key in data if key not in ("first", "tasks")]:
        raise BadInput(f"unknown field {echo(unknown[0])!r}", code="unknown_field", hint="known: first, tasks")
    first, submission = (
        whole(1, MAX_ELEMENTS)(data.get("first"), "first"),
        parse_submission({"tasks": data.get("tasks")}),
    )
    _check_divisible(submission.specs, True)
    return first, submission


def _parse_specs(tasks: list[Any]) -> list[Spec]:
    specs: list[Spec] = []
    wrong: list[tuple[int, BadInput]] = []
    for at, table in enumerate(tasks):
        try:
            specs.append(parse_spec(table))
        except BadInput as error:
            wrong.append((at, error))
            if len(wrong) == 20:
                break
    if not wrong:
        return specs
    at, first = wrong[0]
    where = f"tasks[{at}]" if len(tasks) > 1 else ""
    also = f"; also wrong: {', '.join(f'tasks[{n}]' for n, _ in wrong[1:])}" if len(wrong) > 1 else ""
    name = tasks[at].get("name") if isinstance(tasks[at], Mapping) else None
    if where and isinstance(name, str) and name:
        where = f"{where} ({echo(name)})"
    field = ".".join(part for part in (where, first.field) if part)
    raise BadInput(first.message + also, code=first.code, field=field, hint=first.hint)


def _check_graph(specs: list[Spec]) -> None:
    """Names are unique, parents exist, and nothing waits for itself [input E37-E40]."""
    by_name: dict[str, int] = {}
    for at, spec in enumerate(specs):
        if spec.name and spec.name in by_name and (spec.units is None or specs[by_name[spec.name]].units is None):
            raise BadInput(
                f"two tasks are named {echo(spec.name)!r}", code="duplicate_name", field=f"tasks[{at}].name",
                hint="names tie tasks together: give each its own",
            )  # fmt: skip
        if spec.name:
            by_name[spec.name] = at
    for at, spec in enumerate(specs):
        for field, parents in (("after", spec.after), ("after_any", spec.after_any)):
            for parent in parents:
                if parent not in by_name and target_of(parent) is None:
                    raise NotFound(
                        f"there is no task {echo(parent)!r} in this run", code="unknown_task",
                        field=f"tasks[{at}].{field}",
                        hint=did_you_mean(parent, list(by_name)) if by_name
                        else "give the parent a name; an earlier run looks like r12",
                    )  # fmt: skip
    outside = {parent for spec in specs for parent in (*spec.after, *spec.after_any) if parent not in by_name}
    if len(outside) > MAX_OUTSIDE:
        raise BadInput(
            f"it waits for {len(outside)} runs and tasks of others", code="range", field="after",
            hint=f"at most {MAX_OUTSIDE}: wait for whole runs",
        )  # fmt: skip
    # Kahn's order without recursion: chains may be long.
    inside = [{*spec.after, *spec.after_any} & by_name.keys() for spec in specs]
    unmet = [len(parents) for parents in inside]
    children: dict[int, list[int]] = {}
    for at, named in enumerate(inside):
        for parent in named:
            children.setdefault(by_name[parent], []).append(at)
    ready = [at for at, count in enumerate(unmet) if count == 0]
    while ready:
        for child in children.get(ready.pop(), ()):
            unmet[child] -= 1
            if unmet[child] == 0:
                ready.append(child)
    if any(unmet):
        cycle, hint = _cycle(specs, by_name, unmet), "take one of these out of `after`"
        raise BadInput(f"tasks wait for each other: {cycle}", code="cycle", field="after", hint=hint)


def _cycle(specs: list[Spec], by_name: dict[str, int], unmet: list[int]) -> str:
    at = next(i for i, count in enumerate(unmet) if count)
    path: list[int] = []
    while at not in path:
        path.append(at)
        parents = (by_name[p] for p in (*specs[at].after, *specs[at].after_any) if p in by_name)
        at = next(parent for parent in parents if unmet[parent])
    names = [echo(specs[i].name) for i in reversed([*path[path.index(at) :], at])]
    if len(names) > MAX_CYCLE:
        names[4:-4] = ["..."]
    return " -> ".join(names)


def canonical(data: Any) -> str:
    """The one text of equal JSON data, for digests."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
