"""One element of a spec as the lease a pilot gets: placeholders filled, seed derived, paths made whole."""

from __future__ import annotations

import hashlib
import posixpath

from shoal.engine.records import Array, Attempt
from shoal.model.layout import environment_name
from shoal.model.spec import OWN, Spec
from shoal.model.sweep import Value, fill
from shoal.wire.messages import Lease, Room


def seed_of(master: int, element: int) -> int:
    """A task's random seed, from the run's one master seed [U12]: 31 bits, which every generator takes."""
    digest = hashlib.sha256(f"{master}:{element}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def parameters(spec: Spec, offset: int) -> dict[str, Value]:
    """The parameters of an array's element by its offset from 0; none for a single task."""
    return spec.sweep.at(offset) if spec.sweep is not None else {}


def lease_of(array: Array, attempt: Attempt, state_dir: str) -> Lease:
    """What the pilot needs to run this attempt."""
    spec, run, element = array.spec, array.run, attempt.id.element
    params = parameters(spec, element - array.first)

    def put(text: str) -> str:
        return fill(text, params) if spec.sweep is not None else text

    cwd = run.cwd if spec.cwd in (None, OWN) else posixpath.join(run.cwd, put(str(spec.cwd)))
    env = {name: put(value) for name, value in spec.env.items()}
    env["SHOAL_SEED"] = str(seed_of(run.seed, element))
    env["SHOAL_INDEX"] = str(params["i"]) if "i" in params else str(element)
    return Lease(
        attempt=str(attempt.id),
        room=Room(spec.needs.cores, spec.needs.memory, spec.needs.disk, spec.needs.gpus),
        rerun=spec.rerun.value,
        command=[put(word) for word in spec.command],
        shell=put(spec.shell) if spec.shell is not None else None,
        cwd=cwd,
        own=spec.cwd == OWN,
        env=env,
        env_file=run.env_file or (posixpath.join(state_dir, environment_name(run.number)) if state_dir else ""),
        stdin=posixpath.join(cwd, put(spec.stdin)) if spec.stdin is not None else None,
        inputs=[put(name) for name in spec.inputs],
        outputs=[put(name) for name in spec.outputs],
        time=spec.time,
    )
