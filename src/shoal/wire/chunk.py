"""Splitting a lease of many attempts: one of them, or some neighbours, as a lease of their own [ADR 0009].

`cwd` and `stdin` are filled in already: tasks with placeholders in them are leased one by one.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache
from typing import Any, Union

from shoal.model.ids import AttemptId, parse_attempt
from shoal.model.task.shell_quote import fill_shell
from shoal.model.task.sweep import fill
from shoal.wire.messages import Batch, Lease, ParamValue, Verdict

_OWN = ("attempt", "count", "command", "env", "params", "proof")  # by which leases of one run differ in any case


def seed_of(master: int, element: int) -> int:
    """A task's random seed, from the run's one master seed [DIANE U12]: 31 bits, which every generator takes."""
    digest = hashlib.sha256(f"{master}:{element}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def shift(attempt: AttemptId, by: int) -> AttemptId:
    """The attempt of the same number on a later element."""
    return AttemptId(attempt.run, attempt.element + by, attempt.number, attempt.incarnation, attempt.nonce)


def names(many: Union[Lease, Batch, Verdict]) -> list[str]:
    """The attempts of a lease, a batch or a verdict."""
    first = parse_attempt(many.attempt)
    return [str(shift(first, at)) for at in range(many.count)]


def part(lease: Lease, low: int, high: int) -> Lease:
    """Elements low .. high - 1 of a lease, counted from 0."""
    if low == 0 and high == lease.count:
        return lease
    return replace(
        lease,
        attempt=str(shift(parse_attempt(lease.attempt), low)),
        count=high - low,
        params=lease.params[low:high],
        calls=lease.calls[low:high],
        parents=lease.parents[low:high],
    )


def follows(lease: Lease, other: Lease) -> bool:
    """True if another lease begins where this one ends, in the same array, and both still have seeds to be made."""
    if lease.seed is None or shift(parse_attempt(lease.attempt), lease.count) != parse_attempt(other.attempt):
        return False
    same = replace(
        other, attempt=lease.attempt, count=lease.count, calls=lease.calls, params=lease.params, proof=lease.proof
    )
    return same == lease and bool(lease.params) == bool(other.params)


def joined(lease: Lease, other: Lease) -> Lease:
    """Two leases, of which the second follows the first, as one."""
    count = lease.count + other.count
    return replace(lease, count=count, calls=lease.calls + other.calls, params=lease.params + other.params)


def is_alike(lease: Lease, other: Lease) -> bool:
    """True if another lease of one command begins where this one ends, and differs from it in the values of its arguments
    and variables only."""
    if lease.seed is not None or other.seed is not None or other.count != 1 or other.params:
        return False
    if len(lease.command) != len(other.command) or lease.env.keys() != other.env.keys():
        return False
    same = {**vars(other), **{name: getattr(lease, name) for name in _OWN}}
    return same == vars(lease) and shift(parse_attempt(lease.attempt), lease.count) == parse_attempt(other.attempt)


def with_alike(lease: Lease, other: Lease) -> Lease:
    """Such two as one: what differs becomes parameters, as if both were of one array."""
    values = _values(other)
    if not lease.params:
        command = [f"{{a{at}}}" for at in range(len(lease.command))]
        env = {name: f"{{e{at}}}" for at, name in enumerate(sorted(lease.env))}
        lease = replace(lease, command=command, env=env, params=[_values(lease)])
    return replace(lease, count=lease.count + 1, params=[*lease.params, values])


def _values(lease: Lease) -> dict[str, ParamValue]:
    values: dict[str, ParamValue] = {f"a{at}": text for at, text in enumerate(lease.command)}
    values.update((f"e{at}", lease.env[name]) for at, name in enumerate(sorted(lease.env)))
    return values


def own_env(lease: Lease, at: int) -> dict[str, str]:
    """The variables of one element (counted from 0): those of its task with placeholders filled, its seed and index."""
    params: dict[str, ParamValue] = lease.params[at] if lease.params else {}
    env = {name: fill(value, params) for name, value in lease.env.items()} if lease.params else dict(lease.env)
    if lease.seed is not None:
        set_element(env, lease.seed, _first(lease.attempt) + at, params)
    return env


def set_element(env: dict[str, str], seed: int, element: int, params: dict[str, ParamValue]) -> None:
    """Add the variables that tell a task which element it is."""
    env["SHOAL_SEED"] = str(seed_of(seed, element))
    env["SHOAL_INDEX"] = str(params["i"]) if "i" in params else str(element)


@lru_cache(maxsize=16)
def _first(attempt: str) -> int:
    """The element of an attempt; asked for each element of its lease."""
    return parse_attempt(attempt).element


def own_command(lease: Lease, at: int) -> list[str]:
    """The command of one element with placeholders filled."""
    return [fill(text, lease.params[at]) for text in lease.command] if lease.params else lease.command


def single(lease: Lease, at: int = 0) -> Lease:
    """One element of a lease (counted from 0) with placeholders filled and its seed made."""
    attempt = str(shift(parse_attempt(lease.attempt), at)) if at else lease.attempt
    if not lease.params:  # nothing has holes: only what is made for this element differs
        return altered(
            lease, attempt=attempt, env=own_env(lease, at), count=1, seed=None,
            calls=lease.calls[at : at + 1], parents=lease.parents[at : at + 1],
        )  # fmt: skip
    params = lease.params[at]

    def put(text: str) -> str:
        return fill(text, params)

    def put_all(texts: list[str]) -> list[str]:
        return [fill(text, params) for text in texts]

    return altered(
        lease,
        attempt=attempt,
        command=own_command(lease, at),
        shell=fill_shell(lease.shell, params) if lease.shell is not None else None,
        env=own_env(lease, at),
        inputs=put_all(lease.inputs),
        outputs=put_all(lease.outputs),
        store={put(name): put(place) for name, place in lease.store.items()},
        setup=[fill_shell(line, params) for line in lease.setup],
        checkpoint=put_all(lease.checkpoint),
        stdout=put(lease.stdout),
        stderr=put(lease.stderr),
        count=1,
        params=[],
        seed=None,
        calls=lease.calls[at : at + 1],
        parents=lease.parents[at : at + 1],
    )


def altered(lease: Lease, **changes: Any) -> Lease:
    """The same as `dataclasses.replace`, which sets forty fields one by one: a fifth of its time."""
    made = object.__new__(Lease)
    made.__dict__.update(lease.__dict__, **changes)
    return made
