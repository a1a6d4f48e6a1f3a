"""Functions whose calls submit further calls, and that take results of other calls."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from typing import Any

import shoal
from tests.integration.functions import append


def inner(x: int) -> int:
    return 2 * x


def outer(x: int) -> int:
    with shoal.Executor(name="inner") as ex:
        return ex.submit(inner, x).result() + 1


def deep(depth: int) -> int:
    """As many levels of calls as this number says, two calls at each."""
    if depth == 0:
        return 1
    with shoal.Executor(name=f"depth{depth}") as ex:
        return sum(ex.map(deep, [depth - 1] * 2))


def by_exit(x: int) -> int:
    with shoal.Executor() as ex:
        future = ex.submit(inner, x)
    return future.result()


def by_wait(x: int) -> int:
    with shoal.Executor() as ex:
        done, _ = wait([ex.submit(inner, x), ex.submit(inner, x)])
        return sum(future.result() for future in done) // 2


def by_as_completed(x: int) -> int:
    with shoal.Executor() as ex:
        return max(future.result() for future in as_completed([ex.submit(inner, x)]))


def by_exception(x: int) -> int:
    with shoal.Executor() as ex:
        future = ex.submit(inner, x)
        assert future.exception(60) is None
        return future.result()


def by_asyncio(x: int) -> int:
    async def main() -> int:
        with shoal.Executor() as ex:
            return await asyncio.wrap_future(ex.submit(inner, x))

    return asyncio.run(main())


def by_thread(x: int) -> int:
    with shoal.Executor() as ex, ThreadPoolExecutor(2) as threads:
        return max(threads.map(lambda y: ex.submit(inner, y).result(), [x, x]))


def by_hooks(x: int) -> int:
    class Doubled(shoal.Run):
        total = 0

        def start(self) -> None:
            self.submit(inner, x)

        def done(self, task: shoal.Task) -> None:
            self.total += task.value

        def result(self) -> int:
            return self.total

    return int(Doubled().execute())


def by_command(x: int) -> int:
    run = [sys.executable, "-m", "shoal.cli", "run", "--quiet", "--", "echo", str(2 * x)]
    return int(subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True).stdout)


WAYS = (by_exit, by_wait, by_as_completed, by_exception, by_asyncio, by_thread, by_hooks, by_command)


def recurse(x: int) -> int:
    """Submits itself without end."""
    with shoal.Executor(name="endless") as ex:
        return ex.submit(recurse, x + 1).result()


def parent_of_inner() -> tuple[str, str]:
    """Our task, and the parent of the run that we submit."""
    from shoal.client.client import Client
    from shoal.client.config import find_target

    with shoal.Executor() as ex:
        ex.submit(inner, 1).result()
        target = find_target()
        with Client(target.url or "", target.token) as client:
            return os.environ["SHOAL_TASK"], client.run(ex.run)["labels"]["parent"]


def hang_below(path: str) -> None:
    """Submit a call that never ends by itself, and wait for it."""
    with shoal.Executor() as ex:
        future = ex.submit(hang, path)
        append(path, "submitted")
        future.result()


def hang(path: str) -> None:
    import time

    append(path, f"hangs {os.environ['SHOAL_RUN']}")
    time.sleep(3600)


def add(*values: Any) -> Any:
    return sum(values)


def total(values: Any) -> Any:
    """The sum of whatever is in nested lists, tuples, dicts and sets."""
    if isinstance(values, dict):
        return sum(total(value) for value in values.values())
    if isinstance(values, (list, tuple, set, frozenset)):
        return sum(total(value) for value in values)
    return values


def logged(path: str, word: str, *values: Any) -> Any:
    """Log that the call was made; returns the sum of the values."""
    append(path, word)
    return sum(values)


def big(size: int) -> bytes:
    return b"x" * size


def size_of(data: bytes) -> int:
    return len(data)
