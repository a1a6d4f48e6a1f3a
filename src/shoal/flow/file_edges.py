"""Edges by files between the tables of one submission: what one writes and another reads makes the other wait.

Names are compared as each task has them, with its parameters filled in. Where every task of a sweep reads what exactly one
task of another sweep writes, the two are tied task by task: both become tables of one task each, which the engine
knows how to order. Everything else waits for whole tables.

A directory is all that is in it: who reads one waits for all who write a file in it, and who reads a file for who writes the
directory that it is in. Files of a directory may have several writers.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_FILES_COMPARED, MAX_TIED
from shoal.model.task.spec import OWN, Spec
from shoal.model.task.sweep import fill, holes

ALL = -1  # written by every task of its table


class Writer(NamedTuple):
    """Who writes a file: a table, and one of its tasks or ALL."""

    table: int
    task: int


def files_written(spec: Spec) -> Iterator[tuple[str, int]]:
    """The files that a table writes, as seen from the run's directory, each with its task."""
    yield from _filled(spec, spec.outputs, _base(spec))
    yield from _filled(spec, [text for text in (spec.stdout, spec.stderr) if text], "")


def files_read(spec: Spec) -> Iterator[tuple[str, int]]:
    """The files that a table reads, as seen from the run's directory, each with its task."""
    yield from _filled(spec, [*spec.inputs, *([spec.stdin] if spec.stdin else [])], _base(spec))


def _base(spec: Spec) -> str:
    return "" if spec.cwd in (None, OWN) else spec.cwd or ""


def _filled(spec: Spec, texts: Sequence[str], base: str) -> Iterator[tuple[str, int]]:
    if spec.units is not None:
        return  # which files pieces touch is known when they are cut
    for text in texts:
        joined = posixpath.join(base, text)
        if spec.sweep is None:
            yield posixpath.normpath(joined), 0
        elif not holes(joined):
            yield posixpath.normpath(fill(joined, {})), ALL if spec.count > 1 else 0
        else:
            for task in range(spec.count):
                yield posixpath.normpath(fill(joined, spec.sweep.at(task))), task


def is_workflow(specs: Sequence[Spec]) -> bool:
    """True if a table waits for another one of the run."""
    names = {spec.name for spec in specs if spec.name}
    return any(not names.isdisjoint((*spec.after, *spec.after_any)) for spec in specs)


def names_written(specs: Iterable[Spec]) -> frozenset[str]:
    """The files, and directories, that the tables of a run write."""
    return frozenset(name for spec in specs if _is_compared(spec) for name, _ in files_written(spec))


def passed_on(specs: Sequence[Spec]) -> frozenset[str]:
    """The files that one table of a run writes, by themselves or with the directory they are in, and another reads."""
    if len(specs) < 2 or not any(spec.outputs or spec.stdout or spec.stderr for spec in specs):
        return frozenset()
    written = names_written(specs)
    return frozenset(
        name
        for spec in specs if _is_compared(spec)
        for name, _ in files_read(spec) if name in written or not written.isdisjoint(folders_of(name))
    )  # fmt: skip


def folders_of(name: str) -> Iterator[str]:
    """The directories that a file is in, as their own names are written."""
    while (folder := posixpath.dirname(name)) not in (name, "/"):
        yield folder or "."
        name = folder
        if not folder:
            return


def _is_compared(spec: Spec) -> bool:
    return spec.count * (len(spec.inputs) + len(spec.outputs) + 2) <= MAX_FILES_COMPARED


def tie(tables: Sequence[Mapping[str, Any]], specs: Sequence[Spec]) -> list[dict[str, Any]]:
    """The tables of a submission with `after` for every file that one of them writes and another reads."""
    for at, spec in enumerate(specs):
        if not _is_compared(spec):
            raise BadInput(
                f"its {spec.count:,} tasks name too many files to find who waits for whom", code="too_many",
                field=_place(tables, at), hint=f"at most {MAX_FILES_COMPARED:,}: say it with `after`, without [workflow]",
            )  # fmt: skip
    writers = _writers(tables, specs)
    inside: dict[str, set[Writer]] = {}  # directory -> who writes files in it
    for name, writer in writers.items():
        for folder in folders_of(name):
            inside.setdefault(folder, set()).add(writer)
    needs = [_needs(at, spec, writers, inside) for at, spec in enumerate(specs)]
    split = _split(specs, needs)
    names = [str(table.get("name") or "") for table in tables]
    taken = {name for name in names if name}
    for at in {at for need in needs for at in need}:
        if not names[at]:
            names[at] = _unused(f"table{at + 1}", taken)
    parts = {at: [_unused(f"{names[at]}.{task + 1}", taken) for task in range(specs[at].count)] for at in sorted(split)}
    known = {name: at for at, name in enumerate(names) if name}
    made: list[dict[str, Any]] = []
    for at, (table, spec) in enumerate(zip(tables, specs, strict=True)):
        for task in range(spec.count) if at in split else (ALL,):
            one = dict(table) | ({"name": names[at]} if names[at] else {})
            if task != ALL:
                assert spec.sweep is not None
                one = {key: value for key, value in one.items() if key != "array"}
                one |= {"name": parts[at][task], "params": [spec.sweep.at(task)]}
            waits = [name for parent in table.get("after", ()) for name in _all_of(known.get(parent), parent, parts)]
            for parent, of_task in needs[at].items():
                of = of_task.values() if task == ALL else (of_task.get(task, ()), of_task.get(ALL, ()))
                each = sorted({number for numbers in of for number in numbers})
                if parent not in parts:
                    waits += [names[parent]] if each else []
                elif ALL in each:
                    waits += parts[parent]
                else:
                    waits += [parts[parent][number] for number in each]
            if any_of := table.get("after_any"):
                one["after_any"] = [name for parent in any_of for name in _all_of(known.get(parent), parent, parts)]
            one |= {"after": list(dict.fromkeys(waits))} if waits else {}
            made.append(one)
    return made


Need = dict[int, dict[int, set[int]]]  # of a table: table that it reads from -> its task -> tasks there


def _writers(tables: Sequence[Mapping[str, Any]], specs: Sequence[Spec]) -> dict[str, Writer]:
    found: dict[str, Writer] = {}
    for at, spec in enumerate(specs):
        outputs = {name for name, _ in _filled(spec, spec.outputs, _base(spec))}
        for name, task in files_written(spec):
            if task == ALL and name in outputs:
                raise BadInput(
                    f"{echo(name)!r} is written by {spec.count:,} tasks of {_place(tables, at)}", code="duplicate_output",
                    field=f"{_place(tables, at)}.outputs", hint="one task writes a file: put a parameter into its name",
                )  # fmt: skip
            writer = found.setdefault(name, Writer(at, task))
            if writer.table != at or (ALL not in (writer.task, task) and writer.task != task):
                raise BadInput(
                    f"{echo(name)!r} is written by {_place(tables, writer.table)}, too", code="duplicate_output",
                    field=f"{_place(tables, at)}.outputs", hint="one task writes a file, and others read it",
                )  # fmt: skip
    return found


def _needs(at: int, spec: Spec, writers: Mapping[str, Writer], inside: Mapping[str, set[Writer]]) -> Need:
    found: Need = {}
    for name, task in files_read(spec):
        of_file = [writers[name]] if name in writers else []
        around = [writers[folder] for folder in folders_of(name) if folder in writers]
        # In a directory that it reads, a table may write itself.
        others = [writer for writer in (*around, *inside.get(name, ())) if writer.table != at]
        for writer in (*of_file, *others):
            found.setdefault(writer.table, defaultdict(set))[task].add(writer.task)
    return found


def _split(specs: Sequence[Spec], needs: Sequence[Need]) -> set[int]:
    """The tables that become one table for each of their tasks."""
    found: set[int] = set()
    for at, need in enumerate(needs):
        for parent, of_task in need.items():
            is_tied = ALL not in of_task and all(len(tasks) == 1 and ALL not in tasks for tasks in of_task.values())
            if is_tied and min(specs[at].count, specs[parent].count) > 1 and _may_split([specs[at], specs[parent]]):
                found |= {at, parent}
    return found


def _may_split(specs: Iterable[Spec]) -> bool:
    """False for what holds between the tasks of one table and would be lost."""
    return all(
        spec.sweep is not None and spec.count <= MAX_TIED and not (spec.throttle or spec.order) for spec in specs
    )


def _all_of(at: int | None, name: str, parts: Mapping[int, list[str]]) -> list[str]:
    return [name] if at is None else parts.get(at, [name])


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _place(tables: Sequence[Mapping[str, Any]], at: int) -> str:
    name = tables[at].get("name")
    return f"tasks[{at}]" + (f" ({echo(name)})" if name else "")
