"""The guards of a pilot, seen from its loop: the first runs anything, the others only short, plain commands beside it.

While a guard waits for the exec of a child it does nothing else, so several let starts overlap [ADR 0033]. Each is a whole
guard with the promises of one. They stand and fall together: the pilot ends all when one is lost.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Union

from shoal.pilot.guard import proctree
from shoal.pilot.guard.channel import Channel
from shoal.pilot.guard.messages import FromGuard, Quit, Start, StartPiece, ToGuard
from shoal.pilot.guard.spawn import BASES_KEPT

MOST = 4  # guards of one pilot, however many slots it has


def how_many(cores: int) -> int:
    """The number of guards for so many slots."""
    return max(1, min(MOST, cores))


class _Link:
    """One guard: the connection, and what it was given."""

    def __init__(self, channel: Channel, pid: int) -> None:
        self.channel, self.pid = channel, pid
        self.attempts: set[str] = set()
        self.is_full = False  # something waits for space in the socket's buffer
        self.bases: deque[int] = deque(maxlen=BASES_KEPT)  # shared environments that it has


class Guards:
    """All guards of a pilot; readable when one of them reports something."""

    def __init__(self, guards: Sequence[tuple[Channel, int]]) -> None:
        self._links = [_Link(*guard) for guard in guards]
        self._by_attempt: dict[str, _Link] = {}
        self._poll = select.epoll()
        for link in self._links:
            self._poll.register(link.channel.fileno(), select.EPOLLIN)

    @property
    def pids(self) -> list[int]:
        """Their process numbers; that of the first guard first."""
        return [link.pid for link in self._links]

    @property
    def closed(self) -> bool:
        """True if one of them is gone."""
        return any(link.channel.closed for link in self._links)

    def fileno(self) -> int:
        """For selectors."""
        return self._poll.fileno()

    # --- to the guards
    def start(self, message: Union[Start, StartPiece], base: int, values: dict[str, str], is_plain: bool) -> None:
        """Have a command or a piece started by the guard of the one that it follows; a plain one by any."""
        start = message if isinstance(message, Start) else Start(*message.start)
        link = self._by_attempt.get(start.after)
        if link is None:
            link = min(self._links, key=lambda one: len(one.attempts)) if is_plain else self._links[0]
        self._by_attempt[message.attempt] = link
        link.attempts.add(message.attempt)
        if base not in link.bases:
            link.bases.append(base)  # the guard forgets as we do: the one that it has longest
            start.base_env = values
        if isinstance(message, StartPiece):
            message.start = list(vars(start).values())
        self._send(link, message)

    def send(self, message: ToGuard) -> None:
        """Send something to the guard that has its attempt, or to the first."""
        self._send(self._by_attempt.get(getattr(message, "attempt", ""), self._links[0]), message)

    def send_to(self, attempt: str, message: ToGuard) -> None:
        """Send something on one of a piece to the guard that has the piece."""
        self._send(self._by_attempt.get(attempt, self._links[0]), message)

    def send_each(self, messages: Sequence[ToGuard]) -> None:
        """Send each guard its own message."""
        for link, message in zip(self._links, messages):
            self._send(link, message)

    def _send(self, link: _Link, message: ToGuard) -> None:
        link.channel.send(message)
        self._look(link)

    def _look(self, link: _Link) -> None:
        """Wait also for space to write to a guard if something waits for it."""
        channel = link.channel
        if link.is_full != channel.wants_write and not channel.closed:
            link.is_full = not link.is_full
            self._poll.modify(channel.fileno(), select.EPOLLIN | (select.EPOLLOUT if link.is_full else 0))

    def over(self, attempt: str) -> None:
        """A command or a piece is over."""
        link = self._by_attempt.pop(attempt, None)
        if link is not None:
            link.attempts.discard(attempt)

    # --- from the guards
    def hold(self) -> None:
        """Keep what is sent from here on until `flush`."""
        for link in self._links:
            link.channel.hold()

    def flush(self) -> None:
        """Send what the sockets take now."""
        for link in self._links:
            link.channel.flush()
            self._look(link)

    def receive(self) -> list[FromGuard]:
        """Everything that they reported, and flush what waits."""
        found: list[Any] = []
        ready = {fd for fd, _ in self._poll.poll(0)}
        for link in self._links:
            if link.channel.fileno() in ready:
                link.channel.flush()
                found += link.channel.receive()
        return found

    # --- their end
    def quit(self) -> None:
        """The pilot ends in order."""
        self.send_each([Quit()] * len(self._links))

    def wait(self, seconds: float) -> None:
        """Wait until all have ended, and kill those that have not."""
        until = proctree.now() + seconds
        while not all(map(proctree.is_zombie, self.pids)) and proctree.now() < until:
            time.sleep(0.005)
        self.kill()

    def close(self) -> None:
        """Close the connections: whoever still lives ends its tasks."""
        for link in self._links:
            link.channel.close()

    def kill(self) -> None:
        """Kill them all."""
        for pid in self.pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
