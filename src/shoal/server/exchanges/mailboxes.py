"""Sealed answers for the followers of a leader, until a request of that leader takes them [ADR 0062].

Exchanges of followers wait at the server like any others, for as long as their pilots have nothing to do, and the requests of
their leader come and go meanwhile. An answer that is not taken, or is lost on the way, costs nothing: its pilot sends the
exchange once more and is given the same answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Container, Coroutine
from typing import Any

from shoal.model.errors import TooBusy
from shoal.model.limits import MAX_BUNDLE, MAX_BUNDLE_BYTES, MAX_BUNDLED
from shoal.server.writer import give
from shoal.wire.messages import Sealed

Key = tuple[str, int]  # a pilot and the number of its exchange


class Mailbox:
    """What goes to one leader."""

    def __init__(self) -> None:
        self._ready: deque[Sealed] = deque()
        self._waiting: dict[Key, asyncio.Task[None]] = {}
        self._woken: asyncio.Future[None] | None = None

    @property
    def is_idle(self) -> bool:
        """True if nothing is here and nothing will come."""
        return not (self._ready or self._waiting or self._woken)

    def expects(self, key: Key) -> bool:
        """True if this exchange came before and is not answered yet."""
        return key in self._waiting

    def expect(self, key: Key, answer: Coroutine[Any, Any, Sealed]) -> None:
        """An exchange is being answered."""
        if len(self._waiting) >= MAX_BUNDLED:
            answer.close()
            raise TooBusy("too many exchanges of this leader's followers wait", after=1.0)
        task = asyncio.get_running_loop().create_task(self._answer(key, answer))
        self._waiting[key] = task

    def put(self, sealed: Sealed) -> None:
        """Here is an answer."""
        self._ready.append(sealed)
        while len(self._ready) > 2 * MAX_BUNDLED:  # its leader does not come for them
            self._ready.popleft()
        self._wake()

    async def take(self, within: float) -> list[Sealed]:
        """The answers that are here, as soon as there are some; none if the time is over or another request asks."""
        self._wake()  # one request waits at a time: the newer one
        if not self._ready:
            woken = self._woken = asyncio.get_running_loop().create_future()
            timer = asyncio.get_running_loop().call_later(within, give, woken, None)
            try:
                await woken
            finally:
                timer.cancel()
                if self._woken is woken:
                    self._woken = None
        taken: list[Sealed] = []
        size = 0
        while (
            self._ready
            and len(taken) < MAX_BUNDLE
            and (not taken or size + len(self._ready[0].body) <= MAX_BUNDLE_BYTES)
        ):
            taken.append(self._ready.popleft())
            size += len(taken[-1].body)
        return taken

    async def _answer(self, key: Key, answer: Coroutine[Any, Any, Sealed]) -> None:
        try:
            self.put(await answer)
        finally:
            self._waiting.pop(key, None)

    def _wake(self) -> None:
        woken, self._woken = self._woken, None
        if woken is not None:
            give(woken, None)


class Mailboxes:
    """The mailboxes of all leaders; one that is idle, or whose leader has ended, is forgotten."""

    def __init__(self) -> None:
        self._all: dict[str, Mailbox] = {}

    def of(self, leader: str, living: Container[str]) -> Mailbox:
        """The mailbox of a leader; `living`: the pilots that there are."""
        for name in [name for name, box in self._all.items() if box.is_idle or name not in living]:
            del self._all[name]
        return self._all.setdefault(leader, Mailbox())
