"""Inside a task: tells the pilot that the task waits for other tasks, which may have its cores meanwhile [ADR 0025].

Outside of tasks nothing here does anything. Waits of several threads are counted: the first one lends, and with the last
the task goes on. What is written last stands; if a process is killed while it waits, the end of its attempt ends the wait.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

GRACE = 0.01  # seconds that a wait takes before the pilot is told: short ones are not worth two messages
IDLE_LOOK = 0.5  # seconds between two looks whether a task with unfinished calls computes anything
IDLE_SHARE = 0.05  # of one core that a task uses which only waits

_lock = threading.Lock()
_counts: dict[str, int] = {}  # attempt -> waits


def is_inside() -> bool:
    """True in a task whose pilot can be told that it waits."""
    return "SHOAL_TAGS" in os.environ and "SHOAL_ATTEMPT" in os.environ


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """For the time of the block the task waits for other tasks."""
    pipe, attempt = os.environ.get("SHOAL_TAGS", ""), os.environ.get("SHOAL_ATTEMPT", "")
    if not pipe or not attempt:
        yield
        return
    _add(pipe, attempt, 1)
    try:
        yield
    finally:
        _add(pipe, attempt, -1)


def wait_until(is_done: Callable[[float | None], bool], timeout: float | None = None) -> bool:
    """Wait by a function that takes the most seconds to wait and returns whether that for which it waits has happened."""
    if not is_inside() or (timeout is not None and timeout <= GRACE):
        return is_done(timeout)
    if is_done(GRACE):
        return True
    with waiting():
        return is_done(None if timeout is None else timeout - GRACE)


def _add(pipe: str, attempt: str, count: int) -> None:
    with _lock:
        before = _counts.get(attempt, 0)
        _counts[attempt] = before + count
        if not _counts[attempt]:
            del _counts[attempt]
        if not before or before + count == 0:
            _write(pipe, f"!{'goes-on' if before else 'waits'} {attempt}\n")


def _write(pipe: str, line: str) -> None:
    """Write a line into the task's pipe; without a pilot that reads it there is nobody to be told."""
    with contextlib.suppress(OSError):
        # Opening must not wait for a reader that is gone; writing may wait for one that is slow.
        fd = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.set_blocking(fd, True)
            os.write(fd, line.encode())
        finally:
            os.close(fd)


class LendingEvent(threading.Event):
    """An event; whoever waits for it in a task lends the task's cores."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set."""
        return wait_until(super().wait, timeout)


class FutureWaiters(list):  # type: ignore[type-arg]  # of objects that are private to concurrent.futures
    """The waiters of a future: `concurrent.futures.wait` and `as_completed` put one into each future and wait for its
    event, which is replaced here by one that lends."""

    def append(self, waiter: object) -> None:
        """Add a waiter."""
        if type(getattr(waiter, "event", None)) is threading.Event:
            waiter.event = LendingEvent()  # type: ignore[attr-defined]
        super().append(waiter)


class IdleWatch:
    """Lends the cores of a task that has unfinished calls and computes nothing, however it waits: in an event loop, by
    callbacks, by asking again and again."""

    def __init__(
        self, is_unfinished: Callable[[], bool], clock: Callable[[], float], used: Callable[[], float]
    ) -> None:
        self._is_unfinished, self._clock, self._used = is_unfinished, clock, used
        self._more = threading.Event()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """A call was made: watch from now on."""
        self._more.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="shoal-idle", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while self._more.wait():
            self._more.clear()
            with contextlib.ExitStack() as stack:
                is_lent, at, used = False, self._clock(), self._used()
                while self._is_unfinished():
                    self._more.wait(IDLE_LOOK)
                    self._more.clear()
                    now, now_used = self._clock(), self._used()
                    if now - at < IDLE_LOOK / 2:
                        continue
                    is_idle = now_used - used < IDLE_SHARE * (now - at)
                    at, used = now, now_used
                    if is_idle and not is_lent:
                        stack.enter_context(waiting())
                    elif is_lent and not is_idle:
                        stack.close()
                    is_lent = is_idle


def _in_child() -> None:
    global _lock
    _lock = threading.Lock()
    _counts.clear()  # the threads that wait are the parent's


os.register_at_fork(after_in_child=_in_child)
