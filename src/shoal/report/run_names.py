"""Runs by the names that people gave them: the latest run of that name, of the one who asks."""

from __future__ import annotations

import re
from collections.abc import Callable

from shoal.model.errors import BadInput, echo
from shoal.model.ids import target_of
from shoal.model.limits import MAX_NAME
from shoal.model.quantities import first_of
from shoal.report.data_source import HttpSource, Json, Source

LOOKED_AT = 100  # runs of one name
_TASK_OF_NAME = re.compile(r"(.+)\.([1-9][0-9]{0,17})", re.DOTALL)
_MAGIC = frozenset("*?[")
# What can be named -> what a text that names nothing is not, and how to mend it.
RUN, TASK, ANY = "run", "task", "any"
_WRONG = {
    RUN: ("not a run", "a run looks like r12; see `shoal ps`"),
    TASK: ("neither a run nor a task", "a run looks like r12, a task like r12.7; see `shoal ps`"),
    ANY: (
        "neither a run nor a task nor a pilot",
        "a run looks like r12, a task like r12.7, a pilot like p3f9c; see `shoal ps` and `shoal pilots --all`",
    ),
}


def find_target(source: Source, text: str, say: Callable[[str], None], wanted: str = TASK) -> str:
    """The id of a run or task: given as such, or by the name of its run (`train`, `train.7`). An id comes before a name.

    `wanted` is what the caller can use, for the error.
    """
    if target_of(text) is not None:
        return text
    found = _named(source, text)
    if found:
        return _latest(source, text, found, say)
    task = _TASK_OF_NAME.fullmatch(text)
    found = _named(source, task[1]) if task is not None else []
    if task is not None and found:
        return f"{_latest(source, task[1], found, say)}.{task[2]}"
    what, hint = _WRONG[wanted]
    raise BadInput(f"{echo(text)!r} is {what}, and no run has that name", code="bad_id", hint=hint)


def find_run(source: Source, text: str, say: Callable[[str], None]) -> str:
    """The id of a run, given as such or by its name."""
    found = find_target(source, text, say, RUN)
    if "." in found:
        raise BadInput(f"{echo(text)} is a task", code="bad_id", hint=f"name its run: {found.partition('.')[0]}")
    return found


def _named(source: Source, name: str) -> list[Json]:
    """Runs with exactly this name, newest first."""
    if not name or len(name.encode("utf-8", "replace")) > MAX_NAME:
        return []
    pattern = "".join(f"[{c}]" if c in _MAGIC else c for c in name)
    if pattern == name and name[0] not in "^]":
        pattern = f"[{name[0]}]{name[1:]}"  # a text without a wildcard would find every name that begins so
    if len(pattern.encode("utf-8", "replace")) > MAX_NAME:
        pattern = name
    found = source.runs(name=pattern, limit=LOOKED_AT)["runs"]
    return [row for row in found if row["name"] == name]


def _latest(source: Source, name: str, found: list[Json], say: Callable[[str], None]) -> str:
    owners = {row.get("owner") for row in found}
    if len(owners) > 1 and isinstance(source, HttpSource):
        me = source.client.whoami()["owner"]
        mine = [row for row in found if row["owner"] == me]
        if not mine:
            first = {row["owner"]: row["run"] for row in reversed(found)}
            shown = first_of([f"{run} ({owner})" for owner, run in first.items()], 5)
            raise BadInput(
                f"several people have a run named {echo(name)!r}: {shown}", code="bad_id", hint="give its id"
            )
        found = mine
    run = str(found[0]["run"])
    if len(found) > 1:
        say(f"{echo(name)} is {run}, the latest of {len(found)} runs with this name")
    return run
