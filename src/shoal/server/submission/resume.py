"""What `--resume` need not run again: results of earlier runs of the same work, element by element.

Two runs are the same work if every task field that can change a result is the same, and what the client saw when it
submitted them: the files that their commands name, and the environment. The fields are covered by construction: each
one is compared unless its entry in the table (`model/task/spec.py`) says why it cannot change a result.

A workflow is compared table by table [SPHINX S2]: what another run from the same directory did under the same name counts, if the
fields of that table, what it reads and what it wrote are the same, whatever became of the other tables. Then all runs again that
waits for something that does.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, NamedTuple

from shoal.db.reader import Reader
from shoal.engine.changes import TaskRow
from shoal.flow.file_edges import is_workflow
from shoal.model.errors import BadInput
from shoal.model.ids import run_text
from shoal.model.limits import FINGERPRINT_WIDTH, MAX_COMPARED, MAX_ELEMENT_TEXTS, MAX_FINGERPRINTS, MAX_SPECS
from shoal.model.states import TaskState
from shoal.model.task.checks import short_text
from shoal.model.task.spec import Spec, Submission
from shoal.model.task.sweep import holes
from shoal.model.task.task_field import fields_with
from shoal.model.task.units import Units
from shoal.wire.submission import canonical
from shoal.wire.task import parse_spec

# Of the form of signatures: it is raised when that changes, so that one of an older server never matches.
VERSION = "3"
NEVER_RUN = "not run before"
FILES_CHANGED = "files that their parameters name changed since they ran"
MAX_NAMED = 5  # tables of a workflow that are named with each reason
Reused = tuple[tuple[int, TaskRow], ...]
Fingerprints = dict[str, str]  # by the name of a file; the environment has the name that no file has
ENVIRONMENT = ""
ELEMENTS = "\0"  # and the number of a spec: the files of its tasks, task by task, under a name that no file has
ABSENT = "-" * FINGERPRINT_WIDTH
# A file that a task wrote last and one that is written at once afterwards differ by more; clocks of hosts by less.
_AT_ONCE = 0.05  # s
Written = tuple[
    tuple[float, ...], ...
]  # of each spec and task: when a file that it writes was last changed; below 0: gone
# Of each spec and task, two numbers for each file that it writes and that got its name, mode or owner after its content: when the
# content was last changed, and when any of these was. So does a file that was moved, copied or unpacked with its date.
Renamed = tuple[tuple[tuple[float, ...], ...], ...]


class Now(NamedTuple):
    """The files of one task as they are now."""

    read: str = ""
    written: float = 0.0
    renamed: tuple[float, ...] = ()


def read_fingerprints(value: Any) -> Fingerprints:
    """What a client saw of files and environment when it submitted, checked."""
    if value is None:
        return {}
    if not isinstance(value, dict) or set(value) - {"environment", "files", "elements", "written", "renamed"}:
        raise BadInput(
            "expected environment, files, elements, written, renamed", code="wrong_type", field="fingerprints"
        )
    files = value.get("files", {})
    if not isinstance(files, dict) or len(files) > MAX_FINGERPRINTS or "" in files:
        raise BadInput(f"expected at most {MAX_FINGERPRINTS} files", code="wrong_type", field="fingerprints")
    found = {**files, ENVIRONMENT: value.get("environment", "")}
    seen = {short_text(name, "fingerprints"): short_text(text, "fingerprints") for name, text in found.items() if text}
    elements = value.get("elements", [])
    if (
        not isinstance(elements, list)
        or len(elements) > MAX_SPECS
        or not all(isinstance(text, str) and text.isascii() for text in elements)
        or sum(map(len, elements)) > MAX_ELEMENT_TEXTS
    ):
        raise BadInput("expected a text for each table", code="wrong_type", field="fingerprints")
    return seen | {f"{ELEMENTS}{position}": text for position, text in enumerate(elements) if text}


def read_written(value: Any) -> Written:
    """When what tasks write was last changed, as the client sees it, checked."""
    tables = value.get("written", []) if isinstance(value, dict) else []
    if (
        not isinstance(tables, list)
        or len(tables) > MAX_SPECS
        or not all(isinstance(table, list) and len(table) <= MAX_COMPARED for table in tables)
        or not all(type(date) in (int, float) for table in tables for date in table)
    ):
        raise BadInput("expected a list of dates for each table", code="wrong_type", field="fingerprints")
    return tuple(tuple(table) for table in tables)


def read_renamed(value: Any) -> Renamed:
    """The dates of files that tasks write and that were changed after their content was, as the client sees them, checked."""
    tables = value.get("renamed", []) if isinstance(value, dict) else []
    if (
        not isinstance(tables, list)
        or len(tables) > MAX_SPECS
        or not all(isinstance(table, list) and len(table) <= MAX_COMPARED for table in tables)
        or not all(isinstance(dates, list) and len(dates) % 2 == 0 for table in tables for dates in table)
        or not all(type(date) in (int, float) for table in tables for dates in table for date in dates)
    ):
        raise BadInput("expected pairs of dates for each task", code="wrong_type", field="fingerprints")
    return tuple(tuple(tuple(dates) for dates in table) for table in tables)


def sign(submission: Submission, fingerprints: Fingerprints) -> str:
    """The signature of a run: a digest of what is compared as a whole, then the fingerprints, which are compared one
    by one so that a person can be told which file has changed."""
    tables = [_compared(spec) for spec in submission.specs]
    digest = hashlib.sha256(canonical([submission.cwd, submission.seed, tables]).encode()).hexdigest()
    return f"{VERSION}:{digest}:{canonical(fingerprints)}"


def _compared(spec: Spec) -> dict[str, Any]:
    """The fields that can change a result. Defaults are left out, so that a field which a later version adds changes no
    signature of a task without it."""
    fields = fields_with(type(spec), "same_result", "")
    found = {field.name: value for field in fields if (value := getattr(spec, field.name)) != field.default}
    if spec.sweep is not None and any(holes(text) for text in (spec.shell or "", *spec.setup)):
        found["quoted"] = True  # an older server put the values of parameters into such texts without quotes
    return found


def find_earlier(
    reader: Reader, owner: str, submission: Submission, signature: str, written: Written = (), renamed: Renamed = ()
) -> tuple[Submission, Reused, list[dict[str, Any]]]:
    """Results of earlier runs for elements of this one, and why the others run (again); also the submission, in which
    divisible work is cut as it was then, as far as its results are there."""
    version, digest, seen = signature.split(":", 2)
    good: dict[str, TaskRow] = {}
    bad: dict[str, str] = {}
    files = json.loads(seen)
    by_name = {spec.name: spec for spec in submission.specs if spec.name} if _is_by_table(submission) else {}
    now = _files_now(submission, files, written, renamed, by_name)
    for run in (
        _same_directory(reader, owner, version, submission)
        if by_name
        else reader.earlier(owner, f"{version}:{digest}:")
    ):
        before = reader.run(run)
        if before is None or (by_name and by_name.keys().isdisjoint(row["name"] for row in before["arrays"])):
            continue
        files_then = json.loads(before["signature"].split(":", 2)[2])
        changed = _difference(files_then, files)
        arrays = _positioned([(row["first"], parse_spec(row["task"])) for row in before["arrays"]])
        recipes: dict[str, str] = {}  # of tables that differ: in what
        for task in reader.task_rows(run, [TaskState.SUCCEEDED]):
            position, spec, offset, element = _locate(arrays, task.element)
            key = _key(submission.seed, position, spec, offset, element, by_name)
            why_not = f"{changed} changed since they ran" if changed else ""
            if spec.name in by_name and not why_not:
                if spec.name not in recipes:
                    recipes[spec.name] = _recipe_changed(spec, by_name[spec.name])
                why_not = recipes[spec.name]
            if not why_not:
                seen_then = files_then.get(f"{ELEMENTS}{position}", "") if spec.units is None else ""
                read = _part(seen_then, spec.count, offset)
                why_not = _outdated_files(read, now.get(key, Now()), task, bad.get(key) == FILES_CHANGED)
            if why_not:
                bad.setdefault(key, why_not)
            else:
                good.setdefault(key, task)
        for failed in reader.task_rows(run, [TaskState.FAILED, TaskState.CANCELLED, TaskState.LOST]):
            key = _key(submission.seed, *_locate(arrays, failed.element), by_name)
            bad.setdefault(key, f"{failed.state} in {run_text(run)}")
    submission = _cut_as_before(submission, good)
    ran = {json.loads(key)[0] for key in (*good, *bad)}
    found: list[list[tuple[int, TaskRow]]] = []
    why = _Reasons(bool(by_name))
    for first, position, spec in _positioned(_numbered(submission.specs)):
        found.append([])
        has_run = _place(position, spec, by_name) in ran
        if not has_run:  # ten million elements need not be looked at one by one to find none
            why.add(NEVER_RUN, spec, spec.count)
        for offset in range(spec.count if has_run else 0):
            key = _key(submission.seed, position, spec, offset, first + offset, by_name)
            if key in good:
                found[-1].append((first + offset, good[key]))
            else:
                why.add(bad.get(key, NEVER_RUN), spec, 1)
    incomplete = [at for at, spec in enumerate(submission.specs) if len(found[at]) < spec.count]
    for position in _behind(submission.specs, incomplete + _outdated(submission.specs, found)):
        if found[position]:
            why.add("tasks that they wait for run", submission.specs[position], len(found[position]))
            found[position] = []
    reused = tuple(row for rows in found for row in rows)
    return submission, reused, why.rows()


class _Reasons:
    """Why tasks run: how many for each reason, and of a workflow the first tables of them."""

    def __init__(self, names_tables: bool) -> None:
        self._counts: Counter[str] = Counter()
        self._tables: dict[str, dict[str, None]] | None = {} if names_tables else None

    def add(self, reason: str, spec: Spec, count: int) -> None:
        """Count tasks of a table that run."""
        if self._tables is not None and reason == FILES_CHANGED:
            reason = (
                "files that they read changed since they ran"  # of a workflow all are compared, not only parameters
            )
        self._counts[reason] += count
        if self._tables is not None and spec.name:
            self._tables.setdefault(reason, {})[spec.name] = None

    def rows(self) -> list[dict[str, Any]]:
        """As the answer to a submission has them."""
        found: list[dict[str, Any]] = []
        for reason, count in self._counts.items():
            row: dict[str, Any] = {"count": count, "why": reason, "again": reason != NEVER_RUN}
            if self._tables is not None:
                tables = list(self._tables.get(reason, ()))
                row |= {"tables": tables[:MAX_NAMED], "all_tables": len(tables)}
            found.append(row)
        return found


def _is_by_table(submission: Submission) -> bool:
    """True for a workflow; not with divisible work, whose pieces differ from run to run."""
    return is_workflow(submission.specs) and all(spec.units is None for spec in submission.specs)


def _same_directory(reader: Reader, owner: str, version: str, submission: Submission) -> Iterator[int]:
    """The newest runs of an owner that were submitted from the same directory, and with the same seed if it has one."""
    for run in reader.earlier(owner, f"{version}:"):
        row = reader.run_row(run)
        if row is not None and row.cwd == submission.cwd and submission.seed in (None, row.seed):
            yield run


def _recipe_changed(before: Spec, now: Spec) -> str:
    """In which fields a table differs from the one that ran; empty if in none that can change a result."""
    were, are = _compared(before), _compared(now)
    changed = [name for name in sorted({**were, **are}) if were.get(name) != are.get(name)]
    return f"their {' and '.join(changed)} changed since they ran" if changed else ""


def _difference(before: Fingerprints, now: Fingerprints) -> str:
    """What has changed between two submissions; empty if nothing has."""
    names = (name for name in {*before, *now} if not name.startswith(ELEMENTS))
    changed = sorted(name for name in names if before.get(name) != now.get(name))
    return "" if not changed else changed[-1] or "the environment"


def _files_now(
    submission: Submission, seen: Fingerprints, written: Written, renamed: Renamed, by_name: Mapping[str, Spec]
) -> dict[str, Now]:
    """The files of the tasks that have any, by what tasks of other runs are recognised by."""
    found: dict[str, Now] = {}
    first = 1
    for position, spec in enumerate(submission.specs):
        read = seen.get(f"{ELEMENTS}{position}", "")
        dates = written[position] if position < len(written) else ()
        pairs = renamed[position] if position < len(renamed) else ()
        for offset in range(min(spec.count, MAX_COMPARED) if read or dates else 0):
            key = _key(submission.seed, position, spec, offset, first + offset, by_name)
            date = dates[offset] if offset < len(dates) else 0.0
            pair = pairs[offset] if offset < len(pairs) else ()
            found[key] = Now(_part(read, spec.count, offset), date, pair)
        first += spec.count
    return found


def _part(text: str, count: int, offset: int) -> str:
    """One task's part of what is noted of all tasks of a spec."""
    width = len(text) // count if count else 0
    return text[offset * width : (offset + 1) * width]


def _outdated_files(before: str, now: Now, task: TaskRow, is_strict: bool) -> str:
    """Why a task runs again although its fields are the same; empty if its files are as they were, too.

    A file that was not there when the earlier run was submitted counts as made by it; but not (`is_strict`) if a later
    run saw it and it has changed since.
    """
    before = before or ABSENT * (len(now.read) // FINGERPRINT_WIDTH)
    for at in range(0, len(before), FINGERPRINT_WIDTH):
        was = before[at : at + FINGERPRINT_WIDTH]
        if (is_strict or was != ABSENT) and (now.read[at : at + FINGERPRINT_WIDTH] or ABSENT) != was:
            return FILES_CHANGED
    if now.written < 0:
        return "a file that they wrote is gone"
    ended = (task.ended or 0.0) + _AT_ONCE
    if now.written > ended or _is_replaced(now.renamed, task, ended):
        return "a file that they wrote was altered since"
    return ""


def _is_replaced(renamed: tuple[float, ...], task: TaskRow, ended: float) -> bool:
    """True if one of the files that a task wrote is older than the task, and came to its place after it. One of the task's own
    time may have got another name since, as links do in caches; an older one it may have copied with its date."""
    begun = task.started if task.started is not None else task.leased
    return begun is not None and any(
        changed < begun - _AT_ONCE and came > ended for changed, came in zip(renamed[::2], renamed[1::2], strict=True)
    )


def _outdated(specs: Sequence[Spec], found: list[list[tuple[int, TaskRow]]]) -> list[int]:
    """The specs whose newest result is newer than one of a task that waited for them, in another run."""
    ends: dict[str, float] = {}
    for spec, rows in zip(specs, found, strict=True):
        ends[spec.name] = max(ends.get(spec.name, 0.0), *(row.ended or 0.0 for _, row in rows), 0.0)
    late: set[str] = set()
    for spec, rows in zip(specs, found, strict=True):
        begun = min((row.leased or 0.0 for _, row in rows), default=float("inf"))
        late.update(parent for parent in (*spec.after, *spec.after_any) if ends.get(parent, 0.0) > begun)
    return [at for at, spec in enumerate(specs) if spec.name in late]


def _behind(specs: Sequence[Spec], left: list[int]) -> Iterator[int]:
    """The specs that wait, directly or not, for one of those that run: it may write what they read."""
    children: dict[str, list[int]] = {}
    for position, spec in enumerate(specs):
        for parent in (*spec.after, *spec.after_any):
            children.setdefault(parent, []).append(position)
    seen: set[int] = set()
    while left:
        for child in children.get(specs[left.pop()].name, ()):
            if child not in seen:
                seen.add(child)
                left.append(child)
                yield child


def _locate(arrays: list[tuple[int, int, Spec]], element: int) -> tuple[int, Spec, int, int]:
    first, position, spec = arrays[bisect_right(arrays, element, key=lambda array: array[0]) - 1]
    return position, spec, element - first, element


def _numbered(specs: Sequence[Spec]) -> list[tuple[int, Spec]]:
    """The specs of a submission, each with its first element."""
    firsts = accumulate((spec.count for spec in specs), initial=1)
    return list(zip(firsts, specs, strict=False))  # the last sum is of no spec


def _positioned(arrays: list[tuple[int, Spec]]) -> list[tuple[int, int, Spec]]:
    """Arrays with the positions of their tables in the submission: those of one divisible work are of one table."""
    found: list[tuple[int, int, Spec]] = []
    works: dict[str, int] = {}
    position = 0
    for first, spec in sorted(arrays, key=lambda array: array[0]):
        if spec.units is not None and spec.name in works:
            found.append((first, works[spec.name], spec))
            continue
        if spec.units is not None:
            works[spec.name] = position
        found.append((first, position, spec))
        position += 1
    return found


def _cut_as_before(submission: Submission, good: Mapping[str, TaskRow]) -> Submission:
    """The submission with its divisible work as the pieces whose results are there, and what is between them."""
    specs: list[Spec] = []
    tables: list[Mapping[str, Any]] = []
    for position, (spec, table) in enumerate(zip(submission.specs, submission.tables, strict=True)):
        for units in _parts(position, spec, good) if spec.units is not None else (None,):
            specs.append(spec if units is None else Spec.given({**vars(spec), "units": units}))
            tables.append(table if units is None else {**table, "units": units.table()})
    return replace(submission, specs=tuple(specs), tables=tuple(tables))


def _parts(position: int, spec: Spec, good: Mapping[str, TaskRow]) -> Iterator[Units]:
    assert spec.units is not None
    place, reach, end = _place(position, spec), spec.units.first, spec.units.first + spec.units.size
    known = [json.loads(key) for key in good if key.startswith(canonical([place])[:-1])]
    for first, count in sorted((own["first"], own["count"]) for _, own, _ in known):
        if first < reach or first + count > end:
            continue  # two earlier runs cut it in other ways
        if first > reach:
            yield Units(reach, first - reach)
        yield Units(first, count, True)
        reach = first + count
    if reach < end:
        yield Units(reach, end - reach)


def _place(position: int, spec: Spec, by_name: Container[str] = ()) -> int | str:
    """By what the table of a task is recognised in another run: its position; in a workflow its name; of divisible work its
    name, since pieces follow behind all tables."""
    if spec.units is not None:
        return f"units {spec.name}"
    return f"table {spec.name}" if spec.name in by_name else position


def _key(seed: int | None, position: int, spec: Spec, offset: int, element: int, by_name: Container[str] = ()) -> str:
    """What one element of a run has in common with the same one of an earlier run: its parameters or its call. With a
    seed also its number, from which its own seed is made."""
    own: Any = spec.calls[offset] if spec.function else spec.sweep.at(offset) if spec.sweep is not None else None
    is_numbered = seed is not None and spec.units is None  # the seed of a piece is made from its first unit
    return canonical([_place(position, spec, by_name), own, element if is_numbered else None])
