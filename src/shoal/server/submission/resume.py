"""What `--resume` need not run again: results of earlier runs of the same work, element by element.

Two runs are the same work if every task field that can change a result is the same, and what the client saw when it
submitted them: the files that their commands name, and the environment. The fields are covered by construction: each
one is compared unless its entry in the table (`model/task/spec.py`) says why it cannot change a result.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from shoal.db.reader import Reader
from shoal.engine.changes import TaskRow
from shoal.model.errors import BadInput
from shoal.model.ids import run_text
from shoal.model.limits import MAX_FINGERPRINTS
from shoal.model.states import TaskState
from shoal.model.task.checks import short_text
from shoal.model.task.spec import Spec, Submission
from shoal.model.task.sweep import holes
from shoal.model.task.task_field import fields_with
from shoal.wire.submission import canonical
from shoal.wire.task import parse_spec

# Of the form of signatures: it is raised when that changes, so that one of an older server never matches.
VERSION = "2"
NEVER_RUN = "not run before"
Reused = tuple[tuple[int, TaskRow], ...]
Fingerprints = dict[str, str]  # by the name of a file; the environment has the name that no file has
ENVIRONMENT = ""


def read_fingerprints(value: Any) -> Fingerprints:
    """What a client saw of files and environment when it submitted, checked."""
    if value is None:
        return {}
    if not isinstance(value, dict) or set(value) - {"environment", "files"}:
        raise BadInput("expected environment and files", code="wrong_type", field="fingerprints")
    files = value.get("files", {})
    if not isinstance(files, dict) or len(files) > MAX_FINGERPRINTS or "" in files:
        raise BadInput(f"expected at most {MAX_FINGERPRINTS} files", code="wrong_type", field="fingerprints")
    found = {**files, ENVIRONMENT: value.get("environment", "")}
    return {short_text(name, "fingerprints"): short_text(text, "fingerprints") for name, text in found.items() if text}


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
    reader: Reader, owner: str, submission: Submission, signature: str
) -> tuple[Reused, list[dict[str, Any]]]:
    """Results of earlier runs for elements of this one, and why the others run (again)."""
    version, digest, seen = signature.split(":", 2)
    good: dict[str, TaskRow] = {}
    bad: dict[str, str] = {}
    for run in reader.earlier(owner, f"{version}:{digest}:"):
        before = reader.run(run)
        if before is None:
            continue
        changed = _difference(json.loads(before["signature"].split(":", 2)[2]), json.loads(seen))
        arrays = [(row["first"], at, parse_spec(row["task"])) for at, row in enumerate(before["arrays"])]
        for task in reader.task_rows(run, [TaskState.SUCCEEDED]):
            key = _key(submission.seed, *_locate(arrays, task.element))
            if changed:
                bad.setdefault(key, f"{changed} changed since they ran")
            else:
                good.setdefault(key, task)
        for failed in reader.task_rows(run, [TaskState.FAILED, TaskState.CANCELLED, TaskState.LOST]):
            key = _key(submission.seed, *_locate(arrays, failed.element))
            bad.setdefault(key, f"{failed.state} in {run_text(run)}")
    ran = {json.loads(key)[0] for key in (*good, *bad)}
    found: list[list[tuple[int, TaskRow]]] = []
    why: Counter[str] = Counter()
    first = 1
    for position, spec in enumerate(submission.specs):
        found.append([])
        if position not in ran:  # ten million elements need not be looked at one by one to find none
            why[NEVER_RUN] += spec.count
        for offset in range(spec.count if position in ran else 0):
            key = _key(submission.seed, position, spec, offset, first + offset)
            if key in good:
                found[position].append((first + offset, good[key]))
            else:
                why[bad.get(key, NEVER_RUN)] += 1
        first += spec.count
    incomplete = [at for at, spec in enumerate(submission.specs) if len(found[at]) < spec.count]
    for position in _behind(submission.specs, incomplete + _outdated(submission.specs, found)):
        if found[position]:
            why["tasks that they wait for run"] += len(found[position])
            found[position] = []
    reused = tuple(row for rows in found for row in rows)
    return reused, [{"count": count, "why": reason, "again": reason != NEVER_RUN} for reason, count in why.items()]


def _difference(before: Fingerprints, now: Fingerprints) -> str:
    """What has changed between two submissions; empty if nothing has."""
    changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    return "" if not changed else changed[-1] or "the environment"


def _outdated(specs: Sequence[Spec], found: list[list[tuple[int, TaskRow]]]) -> list[int]:
    """The specs whose newest result is newer than one of a task that waited for them, in another run."""
    ends = {
        spec.name: max((row.ended or 0.0 for _, row in rows), default=0.0)
        for spec, rows in zip(specs, found, strict=True)
    }
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
    first, position, spec = max((a for a in arrays if a[0] <= element), key=lambda a: a[0])
    return position, spec, element - first, element


def _key(seed: int | None, position: int, spec: Spec, offset: int, element: int) -> str:
    """What one element of a run has in common with the same one of an earlier run: its parameters or its call. With a
    seed also its number, from which its own seed is made."""
    own: Any = spec.calls[offset] if spec.function else spec.sweep.at(offset) if spec.sweep is not None else None
    return canonical([position, own, None if seed is None else element])
