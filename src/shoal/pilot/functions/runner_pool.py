"""Which runners exist: how they are started, wait for work, and end. What they work on is decided in `runners`."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from typing import Optional

from shoal.pilot.functions.listener import Listener, RunnerConnection
from shoal.pilot.functions.runner_process import RunnerKind, RunnerProcess, write_code
from shoal.pilot.guard import proctree
from shoal.pilot.guard.messages import Stop, ToGuard
from shoal.pilot.runner.messages import Hello

log = logging.getLogger(__name__)

PREFIX = "runner-"  # no attempt is named so
HELLO = 30.0  # an interpreter that has not answered by then never will
IDLE = 60.0  # unused so long, it gives its memory back
NEVER = float("inf")
_KINDS_KEPT = 1000


class RunnerPool:
    """The runners of one pilot. `on_ready` and `read` are called when one has connected, and when it sent something."""

    def __init__(
        self,
        work: str,
        send_guard: Callable[[ToGuard], None],
        on_ready: Callable[[RunnerProcess], None],
        read: Callable[[RunnerProcess], None],
        grace: float,
        umask: int,
        cores: int,
    ) -> None:
        self.base, self.grace = os.path.join(work, "runners"), grace
        self.all: dict[str, RunnerProcess] = {}
        self.listener = Listener(self._accept)
        self.due = NEVER
        self._send_guard, self._on_ready, self._read = send_guard, on_ready, read
        self._umask, self._cores = umask, cores
        self._idle: list[RunnerProcess] = []  # the one used last is at the end
        self._going: set[str] = set()  # those that are about to end
        self._kinds: dict[RunnerKind, RunnerKind] = {}
        self._count = 0
        self._is_open = False

    # --- how they come
    def take(self, kind: RunnerKind) -> Optional[RunnerProcess]:
        """A runner of this kind: an idle one, else a new one; None: there can be none."""
        if len(self._kinds) > _KINDS_KEPT:
            self._kinds.clear()
        kind = self._kinds.setdefault(kind, kind)
        for at in range(len(self._idle) - 1, -1, -1):
            if self._idle[at].kind is kind or self._idle[at].kind == kind:
                return self._idle.pop(at)
        return self.launch(kind)

    def launch(self, kind: RunnerKind) -> Optional[RunnerProcess]:
        """A new runner; idle ones of other kinds make room for it."""
        while self._idle and len(self.all) - len(self._going) >= self._cores:
            self._end(self._idle.pop(0))
        self._count += 1
        now = proctree.now()
        try:
            self._open()
            one = RunnerProcess(f"{PREFIX}{self._count}", kind, self.base, now)
        except OSError as error:
            log.error("runner cannot be started: %s", error)
            return None
        self.all[one.key] = one
        self.plan(one, now + HELLO)
        log.debug("runner start runner=%s python=%s", one.key, kind.python)
        self._send_guard(one.start(self.grace, self._umask))
        return one

    def _open(self) -> None:
        """With the first piece: most pilots never see a function."""
        if not self._is_open:
            os.makedirs(os.path.join(self.base, "results"), mode=0o700, exist_ok=True)
            write_code(os.path.join(self.base, "code"))
            self.listener.open(self.base)
            self._is_open = True

    def _accept(self, connection: RunnerConnection, hello: object) -> bool:
        one = self.all.get(hello.name) if isinstance(hello, Hello) else None
        if not isinstance(hello, Hello) or one is None or one.is_ready or one.is_stopping or one.is_late:
            return False
        self.listener.keep(connection, lambda: self._read(one))
        one.welcome(connection, hello)
        one.since = proctree.now()
        self.plan(one, one.since + IDLE)
        self._on_ready(one)
        return True

    # --- how they go
    def release(self, one: RunnerProcess) -> None:
        """It is free for other work, or to be ended if there are more than enough."""
        one.piece, one.is_sent, one.describes, one.look_at, one.asked = None, False, False, None, ""
        one.blobs.clear()
        if one.is_ready and one.connection is None:
            return  # it is dying, the guard will say so
        if len(self.all) - len(self._going) > self._cores:
            self._end(one)
            return
        one.since = proctree.now()
        self._idle.append(one)
        self.plan(one, one.since + (IDLE if one.is_ready else HELLO))

    def _end(self, one: RunnerProcess) -> None:
        """Let one go that has no work: by itself, so that it can tidy up, else by the guard."""
        self.disconnect(one)
        self._going.add(one.key)
        one.is_late = one.is_late or not one.is_ready
        self.plan(one, proctree.now() + (self.grace if one.is_ready else 0.0))

    def stop(self, one: RunnerProcess) -> None:
        """Have the guard end it."""
        if not one.is_stopping:
            one.is_stopping = True
            self._going.add(one.key)
            self._send_guard(Stop(one.key, self.grace))

    def disconnect(self, one: RunnerProcess) -> None:
        """Close the connection to it."""
        if one.connection is not None:
            self.listener.drop(one.connection)
            one.disconnect()

    def forget(self, one: RunnerProcess) -> None:
        """Its process is gone."""
        self.disconnect(one)
        self.all.pop(one.key, None)
        self._going.discard(one.key)
        if one in self._idle:
            self._idle.remove(one)

    def close(self) -> None:
        """Hang up on all; the guard ends what does not end by itself."""
        for one in self.all.values():
            one.forget()
        self.listener.close()
        shutil.rmtree(self.base, ignore_errors=True)

    # --- time
    def plan(self, one: RunnerProcess, at: float) -> None:
        """Look at this runner then."""
        one.due = at
        self.due = min(self.due, at)

    def look(self, now: float, busy: Callable[[RunnerProcess], float]) -> None:
        """Look at all that are due; those that work are looked at by `busy`, which says when to look again."""
        for one in list(self.all.values()):
            if now >= one.due and one.key in self.all:
                one.due = NEVER  # unless something plans another look
                at = self._check(one, now, busy)
                one.due = min(one.due, at)
        self.due = min((one.due for one in self.all.values()), default=NEVER)

    def _check(self, one: RunnerProcess, now: float, busy: Callable[[RunnerProcess], float]) -> float:
        if one.is_stopping:
            return NEVER
        if one.is_ready and one.connection is None:  # it should have ended by itself
            self.stop(one)
        elif not one.is_ready:
            if now < one.since + HELLO and not one.is_late:
                return one.since + HELLO
            one.is_late = True
            self.stop(one)
        elif one.piece is not None:
            return busy(one)
        elif now < one.since + IDLE:
            return one.since + IDLE
        else:
            self._idle.remove(one)
            self._end(one)
        return NEVER
