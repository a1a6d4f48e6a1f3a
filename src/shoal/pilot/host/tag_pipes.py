"""The pipes through which running tasks publish tags [GWP G4, 4.1]: $SHOAL_TAGS names one for each attempt. A line that
begins with `!` is no tag: by it a task says that it waits for other tasks, or goes on [ADR 0025].

Each pipe is held open for reading and writing, so nobody who opens it waits, no writer gets SIGPIPE, and a reader
never sees its end. A pipe is used again by later attempts of the same run only: a line that comes late is never
taken for another owner's. A writer that floods a pipe blocks, not the pilot. Runs on the loop's thread; only `paths`
is read by others.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import select
from collections import OrderedDict
from typing import NamedTuple, Optional

from shoal.model.limits import MAX_TASK_TAG, MAX_TASK_TAGS
from shoal.pilot.host.tags import parse_line
from shoal.wire.messages import TagValue

log = logging.getLogger(__name__)

READ = 4096  # bytes of one pipe at a time: some hundred lines
REST, REST_EACH = 0.05, 0.03  # seconds that a pipe is left alone which had as much, and more for each other such
LINE = 2 * MAX_TASK_TAG  # bytes; a longer line is no tag
MOST_OPEN = 4096  # pipes of one pilot, and a quarter of the files that it may have open
MOST_IDLE = 64  # kept for more attempts of their runs
DRAIN = 1 << 20  # bytes that an attempt may leave in its pipe, as much as a pipe can hold
Tags = dict[str, TagValue]
WAITS, GOES_ON = b"!waits ", b"!goes-on "  # before the name of the attempt, as people read it


class Notice(NamedTuple):
    """An attempt says that it waits for other tasks, or goes on."""

    pipe: str  # the attempt for which the pipe was opened
    attempt: str  # r12.7#1; of a piece, the call that runs
    is_waiting: bool


class _Pipe:
    """One named pipe, and what is half read of it."""

    def __init__(self, path: str, run: str) -> None:
        self.path, self.run = path, run
        os.mkfifo(path, 0o600)
        try:
            self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            os.unlink(path)
            raise
        self.attempts: list[str] = []  # more than one only where there are too few pipes
        self.rests_until = 0.0  # set: not read before
        self.begin_anew()

    @property
    def is_untouched(self) -> bool:
        """True if nothing that the attempt wrote is still to be parsed."""
        return not (self._rest or self.dropped)

    def begin_anew(self) -> None:
        """Reset it for another attempt."""
        self._rest, self._is_skipping = b"", False
        self._names: set[str] = set()
        self.notices: list[tuple[str, bool]] = []
        self.dropped = 0  # lines that were no tags, or one too many

    def read(self, most: int) -> bytes:
        """What is in it, up to so many bytes."""
        try:
            return os.read(self.fd, most)
        except (BlockingIOError, InterruptedError):
            return b""

    def take(self, data: bytes, is_over: bool = False) -> Tags:
        """The tags in these bytes; `is_over`: the last line may lack its end."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        tags: Tags = {}
        for line in lines:
            if self._is_skipping:
                self._is_skipping = False
            elif line.strip():
                self._take_line(line, tags)
        if is_over and self._rest.strip() and not self._is_skipping:
            self._take_line(self._rest, tags)
            # Perhaps it was cut off before its value: that must not take a tag away.
            tags = {name: value for name, value in tags.items() if value != ""}
        elif len(self._rest) > LINE:
            self.dropped += not self._is_skipping
            self._rest, self._is_skipping = b"", True
        return tags

    def _take_line(self, line: bytes, tags: Tags) -> None:
        for begin, is_waiting in ((WAITS, True), (GOES_ON, False)):
            if line.startswith(begin):
                self.notices.append((line[len(begin) : LINE].decode("ascii", "replace").strip(), is_waiting))
                return
        found = parse_line(line) if len(line) <= LINE else None
        if found is None or (found[0] not in self._names and len(self._names) >= MAX_TASK_TAGS):
            self.dropped += 1
            return
        self._names.add(found[0])
        tags[found[0]] = found[1]

    def close(self) -> None:
        """Close and remove it."""
        os.close(self.fd)
        with contextlib.suppress(OSError):
            os.unlink(self.path)


class TagPipes:
    """All pipes of a pilot; readable when one of them has something."""

    def __init__(self, folder: str, most: Optional[int] = None) -> None:
        self.paths: dict[str, str] = {}  # by attempt
        self._folder = folder
        self._most = most or min(MOST_OPEN, max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))
        self._epoll = select.epoll()
        self._by_fd: dict[int, _Pipe] = {}
        self._by_attempt: dict[str, _Pipe] = {}
        self._idle: OrderedDict[str, list[_Pipe]] = OrderedDict()  # by run, that which was used last at the end
        self._idle_count = self._made = 0
        self._resting: set[_Pipe] = set()
        self._notices: list[Notice] = []

    def take_notices(self) -> list[Notice]:
        """Who began or ceased to wait, as read by `receive` since the last call."""
        notices, self._notices = self._notices, []
        return notices

    def fileno(self) -> int:
        """For the loop."""
        return self._epoll.fileno()

    # --- attempts
    def open(self, attempt: str) -> str:
        """The path of a pipe for an attempt; empty where there can be none."""
        run = attempt.partition(".")[0]
        pipe = self._find(run)
        if pipe is None:
            return ""
        if not pipe.attempts:
            pipe.begin_anew()
        pipe.attempts.append(attempt)
        self._by_attempt[attempt] = pipe
        self.paths[attempt] = pipe.path
        return pipe.path

    def _find(self, run: str) -> Optional[_Pipe]:
        idle = self._idle.get(run)
        if idle:
            pipe = idle.pop()
            self._idle_count -= 1
            if not idle:
                del self._idle[run]
            return pipe
        if len(self._by_fd) >= self._most:
            self._drop_idle(0)
        if len(self._by_fd) >= self._most:
            return next((pipe for pipe in self._by_fd.values() if pipe.run == run), None)
        try:
            return self._make(run)
        except OSError as error:
            log.warning("a task gets no pipe for its tags: %s", error.strerror)
            return None

    def _make(self, run: str) -> _Pipe:
        self._made += 1
        if self._made == 1:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
        pipe = _Pipe(os.path.join(self._folder, f"{run}-{self._made}"), run)
        self._by_fd[pipe.fd] = pipe
        self._epoll.register(pipe.fd, select.EPOLLIN)
        return pipe

    def end(self, attempt: str) -> Tags:
        """Release the pipe of an attempt that is over; returns what it published last."""
        pipe = self._by_attempt.pop(attempt, None)
        if pipe is None:
            return {}
        del self.paths[attempt]
        pipe.attempts.remove(attempt)
        if pipe.attempts:
            return pipe.take(pipe.read(READ))
        data = pipe.read(READ)
        if not data and pipe.is_untouched:
            self._keep(pipe)  # as most are
            return {}
        tags = pipe.take(data)
        left = DRAIN
        while len(data) == READ and left > 0:
            data = pipe.read(READ)
            left -= len(data)
            tags.update(pipe.take(data))
        tags.update(pipe.take(b"", is_over=True))
        if pipe.dropped:
            log.info("lines in the pipe were no tags, or too many attempt=%s lines=%d", attempt, pipe.dropped)
        if len(data) == READ:
            self._drop(pipe)  # somebody goes on writing
        else:
            self._keep(pipe)
        return tags

    def _keep(self, pipe: _Pipe) -> None:
        self._idle.setdefault(pipe.run, []).append(pipe)
        self._idle.move_to_end(pipe.run)
        self._idle_count += 1
        if self._idle_count > MOST_IDLE:
            self._drop_idle(MOST_IDLE // 2)

    def _drop_idle(self, keep: int) -> None:
        while self._idle_count > keep:
            run, idle = next(iter(self._idle.items()))
            self._drop(idle.pop())
            self._idle_count -= 1
            if not idle:
                del self._idle[run]

    def _drop(self, pipe: _Pipe) -> None:
        self._resting.discard(pipe)
        self._epoll.unregister(pipe.fd)
        del self._by_fd[pipe.fd]
        pipe.close()

    # --- reading
    def drain(self, attempt: str) -> Tags:
        """What an attempt has published by now."""
        pipe = self._by_attempt.get(attempt)
        return pipe.take(pipe.read(READ)) if pipe is not None and not pipe.rests_until else {}

    def receive(self, now: float) -> list[tuple[str, Tags]]:
        """What running attempts published."""
        found: list[tuple[str, Tags]] = []
        for fd, _ in self._epoll.poll(0):
            pipe = self._by_fd[fd]
            data = pipe.read(READ)
            tags = pipe.take(data)
            if tags and pipe.attempts:
                found.append((pipe.attempts[0], tags))
            if pipe.notices:
                self._notices += [Notice(name, *notice) for notice in pipe.notices for name in pipe.attempts]
                pipe.notices = []
            if len(data) == READ:
                pipe.rests_until = now + REST + REST_EACH * len(self._resting)
                self._resting.add(pipe)
                self._epoll.modify(fd, 0)
        return found

    def deadline(self) -> Optional[float]:
        """When to read again from pipes that were full."""
        return min(pipe.rests_until for pipe in self._resting) if self._resting else None

    def tick(self, now: float) -> None:
        """Read again from those that have rested."""
        for pipe in [pipe for pipe in self._resting if now >= pipe.rests_until]:
            self._resting.discard(pipe)
            pipe.rests_until = 0.0
            self._epoll.modify(pipe.fd, select.EPOLLIN)

    def close(self) -> None:
        """Close all pipes."""
        for pipe in self._by_fd.values():
            pipe.close()
        self._by_fd.clear()
        self._by_attempt.clear()
        self._epoll.close()
