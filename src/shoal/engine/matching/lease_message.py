"""The lease for elements of a spec: one with its placeholders filled, or neighbours with what differs between them."""

from __future__ import annotations

import posixpath
from dataclasses import replace

from shoal.engine.records import Array, Attempt, Chunk
from shoal.model.file_names import environment_name
from shoal.model.task.spec import OWN, Spec
from shoal.model.task.sweep import Value, fill
from shoal.wire.chunk import single
from shoal.wire.messages import Capacity, Lease


def parameters(spec: Spec, offset: int) -> dict[str, Value]:
    """The parameters of an array's element by its offset from 0; none for a single task."""
    return spec.sweep.at(offset) if spec.sweep is not None else {}


def lease_of(array: Array, attempt: Attempt, state_dir: str, proof: str = "") -> Lease:
    """The lease of one attempt."""
    element = attempt.id.element
    lease = _lease(array, str(attempt.id), element, element + 1, state_dir, proof, attempt.precedence)
    task = array.tasks.get(element)
    if task is not None and task.lane is not None:
        lease = replace(lease, lane=task.lane.name)
    if task is not None and task.special is not None:
        special = task.special
        room = replace(lease.room, memory=special.memory) if special.memory else lease.room
        lease = replace(lease, room=room, restored=special.files, part=special.part)
    return lease if lease.function else single(lease)


def lease_of_chunk(chunk: Chunk, low: int, high: int, state_dir: str, proof: str = "") -> Lease:
    """The lease of elements low .. high - 1 of a chunk."""
    lease = _lease(chunk.array, str(chunk.attempt(low)), low, high, state_dir, proof, chunk.precedence)
    return lease if chunk.lane is None else replace(lease, lane=chunk.lane.name)


def _lease(array: Array, first: str, low: int, high: int, state_dir: str, proof: str, precedence: int) -> Lease:
    spec, run, at = array.spec, array.run, low - array.first
    params = [parameters(spec, offset) for offset in range(at, at + high - low)] if spec.sweep is not None else []

    def put(text: str) -> str:
        """Fill in the parameters of a path: only leases of one element have such paths."""
        return fill(text, params[0]) if params else text

    cwd = run.cwd if spec.cwd in (None, OWN) else posixpath.join(run.cwd, put(str(spec.cwd)))
    return Lease(
        attempt=first,
        room=Capacity(spec.needs.cores, spec.needs.memory, spec.needs.disk, spec.needs.gpus),
        rerun=spec.rerun.value,
        cwd=cwd,
        own=spec.cwd == OWN,
        env_file=run.env_file or (posixpath.join(state_dir, environment_name(run.number)) if state_dir else ""),
        stdin=posixpath.join(cwd, put(spec.stdin)) if spec.stdin is not None else None,
        count=high - low,
        params=params,
        seed=run.seed,
        calls=list(spec.calls[at : at + high - low]) if spec.function else [],
        proof=proof,
        precedence=precedence,
        **spec.leased,
    )
