"""Digests of what a task executes, by which equal tasks are known."""

from __future__ import annotations

import hashlib

from shoal.model.task.spec import Spec
from shoal.model.task.task_field import fields_with


def digest_of(values: object) -> str:
    """A short digest of plain values."""
    return hashlib.sha256(repr(values).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def trait_of(spec: Spec, owner: str) -> str:
    """A digest of what is executed and for whom: failures of tasks that have it in common are compared."""
    return digest_of([owner, [getattr(spec, field.name) for field in fields_with(type(spec), "is_program")]])
