"""Functions whose calls submit further calls."""

from __future__ import annotations

import shoal


def inner(x: int) -> int:
    return 2 * x


def outer(x: int) -> int:
    with shoal.Executor(name="inner") as ex:
        return ex.submit(inner, x).result() + 1
