"""The lease for elements of a spec: one with its placeholders filled, or neighbours with what differs between them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shoal.engine.records import NO_NEEDS, Array, Attempt, Chunk, Run
from shoal.engine.tasks.kept_outputs import kept_in
from shoal.model.file_names import environment_name
from shoal.model.task.field_values import FINAL
from shoal.model.task.spec import OWN, Needs, Spec
from shoal.model.task.sweep import Value, fill
from shoal.model.task.url_input import has_urls
from shoal.model.task.visible import views
from shoal.wire.chunk import altered, seed_of, set_element, single
from shoal.wire.messages import Capacity, Lease

_NOTHING = Lease("", Capacity(), "")  # the fields that a lease has of itself


class SharedLease(NamedTuple):
    """What the leases of all elements of an array have in common, while its spec is this one."""

    spec: Spec
    lease: Lease
    is_plain: bool  # no text of it has placeholders


def parameters(spec: Spec, offset: int) -> dict[str, Value]:
    """The parameters of an array's element by its offset from 0; none for a single task."""
    return spec.sweep.at(offset) if spec.sweep is not None else {}


def lease_of(array: Array, attempt: Attempt, state_dir: str, proof: str = "") -> Lease:
    """The lease of one attempt."""
    element = attempt.id.element
    task = array.tasks.get(element)
    spec = array.spec if task is None else task.spec
    shared = _shared(array, spec, state_dir)
    name, is_plain = str(attempt.id), shared.is_plain and not spec.function
    if is_plain:
        env = dict(shared.lease.env)
        set_element(env, shared.lease.seed or 0, element, parameters(spec, element - array.first))
        lease = altered(shared.lease, attempt=name, env=env, seed=None, proof=proof, precedence=attempt.precedence)
    else:
        lease = _lease(array, shared, name, element, element + 1, proof, attempt.precedence)
    if attempt.needs is not NO_NEEDS and attempt.needs != spec.needs:
        lease = altered(lease, room=_room(attempt.needs))
    if task is not None and task.lane is not None:
        lease = altered(lease, lane=task.lane.name)
    if task is not None and task.special is not None:
        lease = altered(lease, restored=task.special.files, part=task.special.part, emitted=task.special.emitted)
    lease = lease if is_plain or lease.function else single(lease)
    if task is not None and task.retries:
        lease = altered(lease, env={**lease.env, "SHOAL_RETRY": str(task.retries)})
    if spec.content or array.run.kept:
        params = [parameters(spec, element - array.first)] if spec.sweep is not None else []
        lease = _with_files(lease, array, spec, params)
    if spec.units is not None:
        # By its first unit, not by its number: the same units have the same seed in whichever run `--resume` finds them.
        lease = altered(lease, env={**lease.env, "SHOAL_SEED": str(seed_of(array.run.seed, spec.units.first))})
    return lease


def lease_of_chunk(chunk: Chunk, low: int, high: int, state_dir: str, proof: str = "") -> Lease:
    """The lease of elements low .. high - 1 of a chunk."""
    shared = _shared(chunk.array, chunk.array.spec, state_dir)
    lease = _lease(chunk.array, shared, str(chunk.attempt(low)), low, high, proof, chunk.precedence)
    if chunk.several:
        arrays = chunk.array.run.arrays_of(low, high)
        calls = [call for one in arrays for call in one.spec.calls[max(0, low - one.first) : high - one.first]]
        lease = altered(lease, calls=calls)
    if chunk.array.spec.content or chunk.array.run.kept:
        lease = _with_files(lease, chunk.array, chunk.array.spec, lease.params)
    return lease if chunk.lane is None else altered(lease, lane=chunk.lane.name)


def _with_files(lease: Lease, array: Array, spec: Spec, params: Sequence[dict[str, Value]]) -> Lease:
    """Add the content of the files that these elements read: a sweep may have a file for each of its tasks. What a task
    wrote that this one waited for counts more than a file of that name which was there before."""

    def filled(texts: Iterable[str] | None = None) -> Iterable[str]:
        return dict.fromkeys(name for values in params or [{}] for name in input_names(spec, values, texts))

    found = {name: spec.content[name] for name in filled() if name in spec.content}
    inputs = filled(spec.inputs)
    folders = tuple(posixpath.normpath(name) + "/" for name in inputs if name not in found)  # or no files
    if folders:
        found |= {name: text for name, text in spec.content.items() if name.startswith(folders)}
    written = array.run.kept if spec.after or spec.after_any else {}
    kept = {name: written[name] for name in inputs if name in written}
    if written:
        inside = [name for folder in inputs for name in kept_in(array.run, posixpath.normpath(folder))]
        kept |= {name: written[name] for name in inside if name in written}
    return altered(lease, content={name: text for name, text in found.items() if name not in kept}, kept=kept)


def input_names(spec: Spec, values: dict[str, Value], texts: Iterable[str] | None = None) -> list[str]:
    """The names of what a task reads, as `content` may have them; `texts`: of these fields only."""
    texts = (*spec.inputs, *spec.command[:1]) if texts is None else texts
    return [fill(text, values) for text in texts] if values else list(texts)


def _outcome(run: Run) -> dict[str, str]:
    """What a final task is told of the others. Those that failed because others did are not counted as failed."""
    by_name = {array.spec.name: array for array in run.arrays if array.spec.name}
    failed = 0
    for array in run.arrays:
        if array.failed and all(by_name[name].complete for name in array.spec.after if name in by_name):
            failed += array.failed
    finals = run.finals
    counts = {"FAILED": failed, "CANCELLED": finals.get("cancelled", 0), "SUCCEEDED": finals.get("succeeded", 0)}
    return {f"SHOAL_{name}": str(count) for name, count in counts.items()}


def _room(needs: Needs) -> Capacity:
    return Capacity(needs.cores, needs.memory, needs.disk, needs.gpus)


def _lease(array: Array, shared: SharedLease, first: str, low: int, high: int, proof: str, precedence: int) -> Lease:
    run, spec, at = array.run, shared.spec, low - array.first
    params = [parameters(spec, offset) for offset in range(at, at + high - low)] if spec.sweep is not None else []
    lease = altered(
        shared.lease,
        attempt=first,
        count=high - low,
        params=params,
        calls=list(spec.calls[at : at + high - low]) if spec.function else [],
        proof=proof,
        precedence=precedence,
    )
    if params and (_has_holes(spec.cwd) or _has_holes(spec.stdin)):  # only leases of one element have such paths
        cwd = lease.cwd if spec.cwd in (None, OWN) else posixpath.join(run.cwd, fill(str(spec.cwd), params[0]))
        stdin = posixpath.join(cwd, fill(spec.stdin, params[0])) if spec.stdin is not None else None
        lease = altered(lease, cwd=cwd, stdin=stdin)
    return lease


def _is_sent_on(array: Array, spec: Spec) -> bool:
    """True if tasks that read what this one writes are bound to other pilots than it is, and need not see the submitter's
    directory, or read a directory that it writes in: what is missing there nobody would notice. Others that come to such a
    pilot wait for one that sees it (`visibility.need_directory`): all that tasks hand on within a shared file system would be
    too much for the disk of the server."""
    place, outputs = (spec.site, spec.require), _names(spec, spec.outputs)
    return bool(outputs) and any(
        child.spec.inputs
        and ((child.spec.site, child.spec.require) != place or _reads_around(child.spec, outputs))
        and not views(child.spec.visible)
        for child in array.children
    )


def _reads_around(spec: Spec, outputs: Sequence[str]) -> bool:
    folders = tuple(posixpath.normpath(name) + "/" for name in _names(spec, spec.inputs))
    return any(name.startswith(folders) for name in outputs)


def _names(spec: Spec, texts: Sequence[str]) -> list[str]:
    """Names of files of a spec; of several tasks with their placeholders."""
    params = parameters(spec, 0) if spec.count == 1 else {}
    return [fill(text, params) for text in texts] if params else [*texts]


def _has_holes(text: str | None) -> bool:
    return text is not None and ("{" in text or "}" in text)


def _shared(array: Array, spec: Spec, state_dir: str) -> SharedLease:
    """What the leases of all elements have in common; it is kept for arrays of several."""
    known = array.shared_lease
    if known is not None and known.spec is spec:
        return known
    run = array.run

    def stream_file(name: str) -> str:
        """A file of the submitter's; its parameters are filled in with those of the command (`chunk.single`)."""
        base = run.cwd.replace("{", "{{").replace("}", "}}") if spec.sweep is not None else run.cwd
        return posixpath.join(base, name) if name else ""

    cwd = run.cwd if spec.cwd in (None, OWN) else posixpath.join(run.cwd, str(spec.cwd))
    lease = altered(
        _NOTHING,
        room=_room(spec.needs),
        rerun=spec.rerun.value,
        cwd=cwd,
        own=spec.cwd == OWN or has_urls(spec.inputs) or bool(spec.store),
        shared=bool(array.children),
        sent_on=_is_sent_on(array, spec),
        env_file=run.env_file or (posixpath.join(state_dir, environment_name(run.number)) if state_dir else ""),
        stdin=posixpath.join(cwd, spec.stdin) if spec.stdin is not None else None,
        stdout=stream_file(spec.stdout),
        stderr=stream_file(spec.stderr),
        seed=run.seed,
        measure=run.growth is not None and run.growth.measures and bool(spec.outputs),
        reduce=run.partial.reduce if run.partial is not None else {},
        **spec.leased,
    )
    if spec.units is not None:
        own = {"SHOAL_FIRST": str(spec.units.first), "SHOAL_COUNT": str(spec.units.size)}
        lease = altered(lease, env={**lease.env, **own})
    if spec.role == FINAL:
        lease = altered(lease, env={**lease.env, **_outcome(run)})
    is_plain = spec.sweep is None or not any(map(_has_holes, (*spec.texts, lease.stdout, lease.stderr)))
    made = SharedLease(spec, lease, is_plain)
    if array.count > 1 and spec is array.spec and not spec.role:
        array.shared_lease = made
    return made
