"""No two tasks of a run write their streams to the same file, which is found before any of them runs."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_STREAM_FILES
from shoal.model.task.spec import Spec
from shoal.model.task.sweep import fill, holes

_FIELDS = ("stdout", "stderr")


def check_stream_files(specs: Sequence[Spec]) -> None:
    """Refuse a submission in which two tasks have the same file for a stream."""
    seen: dict[str, str] = {}  # file -> the task, and the field that names it
    for at, spec in enumerate(specs):
        names = {field: getattr(spec, field) for field in _FIELDS if getattr(spec, field)}
        table = f"tasks[{at}]." if len(specs) > 1 else ""
        for field, name in names.items():
            _check_names_all(spec, name, table + field)
        if spec.count * len(names) > MAX_STREAM_FILES:
            continue
        for offset in range(spec.count if names else 0):
            params = spec.sweep.at(offset) if spec.sweep is not None else None
            files = {field: fill(name, params) if params is not None else name for field, name in names.items()}
            if "" in files.values():
                field = next(field for field in files if not files[field])
                raise BadInput(
                    "a file without a name", code="bad_path_value", field=table + field, hint="e.g. out/{x}.txt"
                )
            for field, file in files.items():
                path, task = posixpath.normpath(file), f"{at}.{offset}"
                if seen.setdefault(path, task) != task:
                    raise _same(path, spec, table + field)


def _check_names_all(spec: Spec, name: str, field: str) -> None:
    """Refuse a name without a parameter by which the tasks differ. That is all that can be known of very many."""
    if spec.sweep is None or spec.count == 1 or spec.count <= MAX_STREAM_FILES:
        return
    used = set(holes(name))
    for offset in (1, spec.count - 1):
        first, other = spec.sweep.at(0), spec.sweep.at(offset)
        if any(first[one] != other[one] and one not in used for one in first):
            raise _same(fill(name, first), spec, field)


def _same(path: str, spec: Spec, field: str) -> BadInput:
    example = f"out/{'-'.join('{' + name + '}' for name in spec.sweep.names)}.txt" if spec.sweep is not None else ""
    hint = f"put every parameter into its name, e.g. {example}" if example else "give each its own"
    return BadInput(f"two tasks would write to {echo(path)!r}", code="same_file", field=field, hint=hint)
