"""Bodies of requests: how much of them may be in memory at once, and where large ones are decoded
[security S16; ADR 0016].

Bytes are counted as they arrive, so a slow sender occupies what it has sent and no more. Values are counted, too: three
bytes of JSON (`[],`) become a hundred of memory. Large bodies are decoded on a thread, one at a time for people and one
for pilots, so that the event loop answers exchanges meanwhile and only one decoded form at a time takes memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from shoal.model.credentials import SESSION
from shoal.model.errors import TooBusy, TooLarge
from shoal.model.limits import MAX_BODIES, MAX_BODIES_OWNER, MAX_SMALL_BODY, MAX_VALUES

T = TypeVar("T")
_SEPARATORS = b",[{"  # each value of a JSON text but the first follows one; those inside strings count, too


class Bodies:
    """The bodies that are in memory now."""

    def __init__(self, total: int = MAX_BODIES, of_owner: int = MAX_BODIES_OWNER) -> None:
        self._total, self._of_owner = total, of_owner
        self._in_flight = {True: 0, False: 0}  # pilots', people's
        self._owners: dict[tuple[bool, str], int] = {}
        self._threads = {True: ThreadPoolExecutor(1, "pilots-body"), False: ThreadPoolExecutor(1, "body")}

    def charge(self, kind: str, owner: str) -> Charge:
        """Begin to count a body of this owner; pilots and people have separate limits."""
        return Charge(self, kind == SESSION, owner)

    def close(self) -> None:
        """Stop the threads."""
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)

    # --- called by charges
    def _take(self, is_pilot: bool, owner: str, size: int) -> None:
        mine = self._owners.get((is_pilot, owner), 0) + size
        if mine > self._of_owner or self._in_flight[is_pilot] + size > self._total:
            raise TooBusy(
                "too many large bodies at once", after=1.0, code="too_many_bodies", hint="send them one after another"
            )
        self._owners[is_pilot, owner] = mine
        self._in_flight[is_pilot] += size

    def _give(self, is_pilot: bool, owner: str, size: int) -> None:
        self._in_flight[is_pilot] -= size
        left = self._owners.pop((is_pilot, owner)) - size
        if left:
            self._owners[is_pilot, owner] = left

    async def _work(self, is_pilot: bool, do: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads[is_pilot], do)


class Charge:
    """The memory of one body."""

    def __init__(self, bodies: Bodies, is_pilot: bool, owner: str) -> None:
        self._bodies, self._is_pilot, self._owner = bodies, is_pilot, owner
        self._size = self._values = 0

    def take(self, part: bytes) -> None:
        """Count a part that arrived; refused if it is too much of the server's memory."""
        self._bodies._take(self._is_pilot, self._owner, len(part))
        self._size += len(part)
        self._values += len(part) - len(part.translate(None, _SEPARATORS))
        if self._values > MAX_VALUES:
            raise TooLarge(
                "the body has too many values", code="too_many_values",
                hint=f"at most {MAX_VALUES} commas and opening brackets: split it, or use a sweep",
            )  # fmt: skip

    async def work(self, do: Callable[[], T]) -> T:
        """Decode the body: at once if it is small, else on the thread for large ones."""
        return do() if self._size <= MAX_SMALL_BODY else await self._bodies._work(self._is_pilot, do)

    def release(self) -> None:
        """The body is no longer in memory."""
        if self._size:
            self._bodies._give(self._is_pilot, self._owner, self._size)
            self._size = 0
