"""A whole submission: plain data in, checked Submission out; names, parents and cycles between its tasks, and its rules."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional

from shoal.model.errors import BadInput, NotFound, TooLarge, echo
from shoal.model.ids import target_of
from shoal.model.limits import (
    MAX_ELEMENTS,
    MAX_EMITTED_TEXT,
    MAX_EXPR_BYTES,
    MAX_FILES,
    MAX_KEY,
    MAX_NAME,
    MAX_NOTIFY,
    MAX_NOTIFY_TEXT,
    MAX_OUTSIDE,
    MAX_RULE_TEXT,
    MAX_RULES,
    MAX_RUN_NAMES,
    MAX_SPECS,
)
from shoal.model.quantities import parse_duration, parse_size
from shoal.model.task.checks import short_text, texts_by_name, whole
from shoal.model.task.field_values import labels
from shoal.model.task.rule import FILES_WORD, Rule
from shoal.model.task.spec import FIELDS, Spec, Submission
from shoal.wire.did_you_mean import did_you_mean
from shoal.wire.stream_files import check_stream_files
from shoal.wire.task import parse_spec, stored_spec

MAX_CYCLE = 8  # names of a cycle that are printed
_SUBMISSION = {
    "tasks",
    "name",
    "cwd",
    "max_fail",
    "max_running",
    "seed",
    "key",
    "labels",
    "open",
    "reduce",
    "until",
    "notify",
    "stated",
    "rules",
    "plan",
}

_OF_RULE = ("name", "files", "gather", "gather_size", "gather_within", "watch")
# Fields that say how many tasks there are, when they start, or what only a whole submission can have.
_NOT_OF_RULE = (
    "params", "array", "units", "after", "after_any", "role", "noop", "function", "calls", "order", "category", "stdin_data",
    "content",
)  # fmt: skip


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
    if not tasks and not data.get("open") and not data.get("rules"):
        raise BadInput("there is no task in it", code="empty_bulk", field="tasks", hint="give at least one")
    if len(tasks) > MAX_SPECS:
        raise TooLarge(
            f"{len(tasks)} tasks in one call", code="split", field="tasks",
            hint=f"at most {MAX_SPECS}: split it, or write equal tasks as one array",
        )  # fmt: skip
    specs = _parse_specs(tasks)
    _check_graph(specs)
    _check_divisible(specs, bool(data.get("open")))
    _check_categories(specs)
    if data.get("open") and any(spec.role or spec.noop for spec in specs):
        raise BadInput("an open run has no such tasks", code="usage", field="role", hint="submit a run of its own")
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
        reduce=texts_by_name(data.get("reduce", {}), "reduce", MAX_RUN_NAMES, MAX_EMITTED_TEXT),
        until=_until(data),
        stated=_chance(data.get("stated")),
        plan=_plan(data, specs),
        notify=_notify(data.get("notify", [])),
        rules=parse_rules(data.get("rules", []), specs, bool(data.get("open"))),
    )


def _plan(data: Mapping[str, Any], specs: Sequence[Spec]) -> Optional[float]:
    """The chance from which on a run that the server plans is accepted without asking; None: it is not planned."""
    found = _chance(data.get("plan"))
    if found is not None and (data.get("open") or any(spec.units is not None for spec in specs)):
        hint = "submit it without"
        raise BadInput("an open run, or divisible work, is not planned", code="usage", field="plan", hint=hint)
    return found


def _chance(value: Any) -> Optional[float]:
    """A chance, if one is given."""
    if value is None:
        return None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 1:
        raise BadInput(f"{echo(value)!r} is no chance", code="range", field="stated", hint="from 0 to 1")
    return float(value)


def _notify(value: Any) -> tuple[str, ...]:
    """What is told of a run: URLs and commands."""
    if not isinstance(value, list) or len(value) > MAX_NOTIFY:
        raise BadInput(f"expected a list of at most {MAX_NOTIFY} URLs or commands", code="wrong_type", field="notify")
    found = tuple(short_text(one, "notify", MAX_NOTIFY_TEXT).strip() for one in value)
    if not all(found):
        raise BadInput("an empty text", code="required", field="notify", hint="give a URL or a command")
    return tuple(dict.fromkeys(found))


def _until(data: Mapping[str, Any]) -> str:
    """The goal of a run; an open one has none, since more tasks may come when it is reached."""
    until = short_text(data.get("until", ""), "until", MAX_EXPR_BYTES)
    if until and data.get("open"):
        hint = "follow what it emits, and cancel it"
        raise BadInput("an open run has no goal", code="usage", field="until", hint=hint)
    return until


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


def _check_categories(specs: Sequence[Spec]) -> None:
    """One category has one limit."""
    limits: dict[str, int] = {}
    for at, spec in enumerate(specs):
        if (
            spec.category is not None
            and limits.setdefault(spec.category.name, spec.category.most) != spec.category.most
        ):
            name, most = spec.category
            what = f"category {echo(name)!r} has the limits {limits[name]} and {most}"
            raise BadInput(what, code="range", field=f"tasks[{at}].category", hint="give it one")


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
            if parents and spec.role:
                hint = "leave it out: its role says when it starts and ends"
                raise BadInput(
                    f"a {spec.role} task waits for nothing", code="usage", field=f"tasks[{at}].{field}", hint=hint
                )
            for parent in parents:
                if parent in by_name and specs[by_name[parent]].role:
                    what = f"{echo(parent)!r} has the role {specs[by_name[parent]].role}, so nothing waits for it"
                    raise BadInput(what, code="usage", field=f"tasks[{at}].{field}", hint="take it out")
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


def parse_rules(data: Any, specs: Sequence[Spec], is_open: bool) -> tuple[Rule, ...]:
    """The rules of a submission with these tasks, checked."""
    if not isinstance(data, list):
        raise BadInput("expected a list of rules", code="wrong_type", field="rules")
    if data and is_open:
        raise BadInput("an open run has no rules", code="usage", field="rules", hint="submit a run of its own")
    if len(data) > MAX_RULES or len(json.dumps(data)) > MAX_RULE_TEXT:
        hint = f"at most {MAX_RULES} with {MAX_RULE_TEXT:,} characters"
        raise BadInput(f"{len(data)} rules are too many or too long", code="range", field="rules", hint=hint)
    taken, found = {spec.name for spec in specs}, []
    for at, table in enumerate(data):
        try:
            rule = _parse_rule(table)
        except BadInput as error:
            where = f"rules[{at}].{error.field}" if error.field else f"rules[{at}]"
            raise BadInput(error.message, code=error.code, field=where, hint=error.hint) from None
        if rule.name in taken:
            what, hint = f"two tables are named {echo(rule.name)!r}", "give each its own name"
            raise BadInput(what, code="duplicate_name", field=f"rules[{at}].name", hint=hint)
        taken.add(rule.name)
        found.append(rule)
    return tuple(found)


def stored_rule(data: Mapping[str, Any]) -> Rule:
    """A rule as the database keeps it."""
    return _rule(data, is_new=False)


def _parse_rule(data: Any) -> Rule:
    if not isinstance(data, Mapping):
        raise BadInput("expected a table", code="want_object")
    for name in data:
        if name not in _OF_RULE and name not in FIELDS:
            hint = did_you_mean(
                str(name), [*dict.fromkeys((*_OF_RULE, *(one for one in FIELDS if one not in _NOT_OF_RULE)))]
            )
            raise BadInput(f"unknown field {echo(name)!r}", code="unknown_field", field=str(name)[:40], hint=hint)
        if name in _NOT_OF_RULE:
            hint = "a rule is one task for a file, or for files that were gathered"
            raise BadInput(f"a rule has no {name}", code="usage", field=name, hint=hint)
    for name in ("name", "files"):
        if not data.get(name):
            hint = 'such as name = "reco" and files = "raw/*.dat"'
            raise BadInput(f"{name} is missing", code="required", field=name, hint=hint)
    rule = _rule(data, is_new=True)
    if rule.gather_within is not None and not rule.gathers:
        hint = 'gather = 10, or gather_size = "1 GiB"'
        raise BadInput("nothing is gathered", code="required", field="gather_within", hint=hint)
    _check_files_word(rule)
    return rule


def _rule(data: Mapping[str, Any], is_new: bool) -> Rule:
    table = {name: value for name, value in data.items() if name not in _OF_RULE}
    within, watch = data.get("gather_within"), data.get("watch")
    bare = Rule(
        name=short_text(data["name"], "name", MAX_NAME), files=_pattern(data["files"]), table=table, example=Spec(),
        gather=whole(1, MAX_FILES)(data["gather"], "gather") if "gather" in data else 0,
        gather_size=parse_size(data["gather_size"], "gather_size") if "gather_size" in data else 0,
        gather_within=parse_duration(within, "gather_within") if within is not None else None,
        watch=parse_duration(watch, "watch") if watch is not None else None,
    )  # fmt: skip
    _check_lists(bare)
    sample = bare.table_of(["folder/file.ext"], 1)
    return replace(bare, example=(parse_spec if is_new else stored_spec)(sample))


def _pattern(value: Any) -> str:
    text = short_text(value, "files", 4096)
    parts = text.split("/")
    if text.startswith("/") or any(part in ("", ".", "..", "**") for part in parts):
        what = f"{echo(text)!r} is no pattern of files below the run's directory"
        raise BadInput(what, code="bad_path", field="files", hint="such as raw/*.dat; * stays within one folder")
    return text


def _check_lists(rule: Rule) -> None:
    """Lists are needed to put words in; what is in them is checked with the other fields."""
    for field in ("command", "inputs"):
        if field in rule.table and not isinstance(rule.table[field], (list, tuple)):
            raise BadInput("expected a list of texts", code="wrong_type", field=field)
    if not isinstance(rule.table.get("shell", ""), str):
        raise BadInput("expected a text", code="wrong_type", field="shell")


def _check_files_word(rule: Rule) -> None:
    """`{files}` is understood as a word of its own only; anywhere else it would be taken for a parameter that there is not."""
    texts = [*rule.table.get("command", ()), *rule.table.get("inputs", ()), rule.table.get("shell", "")]
    if rule.gathers and not any(FILES_WORD in text for text in texts):
        hint = "put {files} among the words of its command, or into its shell text"
        raise BadInput("its tasks do not read what is gathered", code="required", field="command", hint=hint)


def canonical(data: Any) -> str:
    """The one text of equal JSON data, for digests."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
