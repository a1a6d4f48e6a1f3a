"""Outputs of a task that are on the server, or where it was asked that they be stored, as inputs of the tasks that wait for it
[ADR 0047].

Which bytes a child gets under a name says the accepted result of the task that wrote it, and nothing else. A result comes from a
pilot, so only names count that the task declared as outputs, or that are in a directory which it declared.
"""

from __future__ import annotations

import posixpath
from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping

from shoal.engine.records import Array, Run
from shoal.model.limits import MAX_FILES_COMPARED, MAX_KEPT_OUTPUTS
from shoal.model.task.content import Content
from shoal.model.task.kept_files import START, declared, unpack
from shoal.model.task.spec import Spec
from shoal.model.task.sweep import fill
from shoal.model.task.url_input import place_text


def keep_outputs(array: Array, element: int, result: str) -> None:
    """Note which outputs a task left on the server, if tasks of its run may read them."""
    if not (array.children or array.run.growth is not None) or not result.startswith(START):
        return
    spec, kept = array.spec, unpack(result)
    outputs, places, stored = (
        _filled(spec, texts, element - array.first) for texts in (spec.outputs, spec.store.values(), spec.store)
    )
    store = dict(zip(stored, places, strict=True))
    known, inside = array.run.kept, array.run.kept_inside
    for name in outputs:
        for gone in inside.pop(name, ()):  # of an earlier success that was taken back
            known.pop(gone, None)
    for name, file in declared(kept, outputs).items():
        if len(known) < MAX_KEPT_OUTPUTS or name in known:
            folders = [folder for folder in _folders_of(name) if folder in outputs]
            # Where it is says the task: a pilot must not have others look wherever it likes.
            url = place_text(store, name if name in store else next(iter(folders), ""), name) if file.url else ""
            known[name] = Content(file.digest, file.mode, file.size, url).text
            for folder in _folders_of(name):
                inside.setdefault(folder, []).append(name)


def kept_in(run: Run, name: str) -> list[str]:
    """The names of what tasks of a run wrote in a directory that others read; some may be gone from `kept` since."""
    return run.kept_inside.get(name, [])


def is_left_behind(array: Array, element: int) -> bool:
    """True if a task reads what one that it waited for was to write, and that is not on the server: then it is in the
    submitter's directory."""
    spec, run = array.spec, array.run
    inputs = [*map(posixpath.normpath, _filled(spec, spec.inputs, element - array.first))]
    missing = {name for name in inputs if name not in spec.content and name not in run.kept and not kept_in(run, name)}
    parents = {*spec.after, *spec.after_any}
    return any(
        other.spec.name in parents and other.spec.outputs and _writes(other, missing)
        for other in run.arrays if missing and parents
    )  # fmt: skip


def _writes(array: Array, names: Collection[str]) -> bool:
    spec = array.spec
    if array.count * len(spec.outputs) > MAX_FILES_COMPARED:
        return True  # in doubt it waits
    outputs = {name for offset in range(array.count) for name in _filled(spec, spec.outputs, offset)}
    return any(
        name in outputs or any(one.startswith(name + "/") or name.startswith(one + "/") for one in outputs)
        for name in names
    )


def _filled(spec: Spec, texts: Iterable[str], offset: int) -> list[str]:
    params = spec.sweep.at(offset) if spec.sweep is not None else None
    return [fill(text, params) if params is not None else text for text in texts]


def _folders_of(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def content_of(array: Array) -> Mapping[str, str]:
    """What is in the files that an array's tasks may read, by their names. What a task wrote that these waited for counts more
    than a file of that name which was there before."""
    spec, kept = array.spec, array.run.kept
    if not kept or not (spec.after or spec.after_any):
        return spec.content
    return ChainMap(kept, spec.content)
