"""Checkpoint files that are uploaded while their task runs [GWP G10]: checked now and then, copied when they have changed
and are at rest, stored on the server as blobs, and reported to the agent.

Checking, copying and uploading block, so they happen on a thread of their own; everything else is on the loop's thread.
What is sent is a verified private copy: nothing of it changed while it was read. So a task may go on writing
during a slow upload, and a file that is half written is not taken for a checkpoint.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import IO, Optional

from shoal.model.blobs import digest_of
from shoal.model.ids import parse_attempt, run_text
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_CHECKPOINT_BYTES
from shoal.pilot.agent.events import Event, Saved
from shoal.pilot.commands.checkpoint import PIECE, Look, look
from shoal.pilot.commands.files import StageError, open_below, remove_tree
from shoal.pilot.commands.staging import Prepared
from shoal.pilot.files.fetch import NoBlob
from shoal.pilot.guard import proctree
from shoal.pilot.host.file_threads import FileThreads
from shoal.pilot.uplink.blobs import Blobs
from shoal.wire.http.blob_transfer import CHECKPOINT

log = logging.getLogger(__name__)

LOOK_EVERY = 5.0  # seconds between looks while there is nothing new
SETTLE = 1.0  # seconds for which a changed file must rest
REPLACED_REST = 0.2  # the same for a file that replaced the one before it by a rename
BUSY_SHARE = 10.0  # the next upload begins no sooner than ten times as long as the last one took
PATIENCE = 30.0  # seconds without a byte moving
SPARE_DISK = 64 << 20  # bytes that a copy must leave free: the disk is the tasks'
Looks = dict[str, Optional[Look]]


@dataclass
class Watched:
    """One running attempt; its files are checked by one thread at a time."""

    made: Prepared
    every: float
    due: float  # when to look next
    sent: Looks  # the files as they were when they were sent, or when the attempt began
    seen: Looks = field(default_factory=dict)  # as they were at the last look
    digests: dict[str, str] = field(default_factory=dict)  # of what the server has
    is_busy: bool = False
    is_over: bool = False
    complained: str = ""  # the last problem that was logged


class CheckpointWatch:
    """The checkpoint files of all attempts that run here."""

    def __init__(
        self,
        folder: str,
        feed: Callable[[Event], None],
        post: Callable[[Callable[[], None]], None],
        blobs: Callable[[], Optional[Blobs]],
    ) -> None:
        self._folder, self._feed, self._post, self._blobs = folder, feed, post, blobs
        self._watched: dict[str, Watched] = {}
        self._file_threads = FileThreads(threads=1)

    def add(self, made: Prepared, now: float) -> None:
        """Check the files of an attempt from now on, if it declared some."""
        lease = made.lease
        if lease.checkpoint and lease.checkpoint_every > 0:
            self._watched[lease.attempt] = Watched(
                made, lease.checkpoint_every, now + SETTLE, dict(made.before), digests=dict(lease.restored)
            )

    def remove(self, attempt: str) -> None:
        """Stop checking an attempt that is over or shall end."""
        watched = self._watched.pop(attempt, None)
        if watched is not None:
            watched.is_over = True

    def deadline(self) -> Optional[float]:
        """When to check some of them."""
        return min((one.due for one in self._watched.values() if not one.is_busy), default=None)

    def tick(self, now: float) -> None:
        """Check those that are due."""
        for one in self._watched.values():
            if now >= one.due and not one.is_busy:
                one.is_busy = True
                self._file_threads.do(lambda one=one: self._look_at(one))  # type: ignore[misc]  # bound now

    def close(self) -> None:
        """The pilot ends."""
        for attempt in list(self._watched):
            self.remove(attempt)
        remove_tree(self._folder)

    # --- on the file thread
    def _look_at(self, one: Watched) -> None:
        began, saved = time.monotonic(), None
        try:
            saved = self._save(one)
        except (StageError, NoBlob, OSError) as error:
            self._complain(one, str(error))
        pause = self._pause(one, saved is not None, time.monotonic() - began)
        self._post(lambda: self._done(one, saved, pause))

    def _pause(self, one: Watched, is_saved: bool, took: float) -> float:
        if is_saved:
            return max(one.every, BUSY_SHARE * took)
        if one.seen != one.sent and not one.complained:
            return SETTLE  # it has changed, and is not at rest yet
        return max(min(one.every, LOOK_EVERY), BUSY_SHARE * took)

    def _done(self, one: Watched, saved: Optional[dict[str, str]], pause: float) -> None:
        one.is_busy, one.due = False, proctree.now() + pause
        if saved is not None and not one.is_over:
            self._feed(Saved(one.made.lease.attempt, saved))

    def _save(self, one: Watched) -> Optional[dict[str, str]]:
        """The digests of a new checkpoint that is on the server now; None if there is none."""
        blobs, base, names = self._blobs(), one.made.cwd, one.made.lease.checkpoint
        now = look(base, names)
        before, one.seen = one.seen, now
        if one.is_over or blobs is None or now == one.sent or not all(found and found[1] for found in now.values()):
            one.seen = one.sent if now == one.sent else now
            return None  # nothing new, or a file is missing or empty: somebody may be about to write it
        if now != before and not _is_replaced(before or one.sent, now):
            return None  # perhaps it is being written
        size = sum(found[1] for found in now.values() if found)
        if size > MAX_CHECKPOINT_BYTES:
            self._complain(one, f"{size} bytes are too many to travel while it runs (at most {MAX_CHECKPOINT_BYTES})")
            return None
        folder = os.path.join(self._folder, one.made.lease.attempt.replace("/", "_"))
        try:
            digests = self._copy(one, folder, size, is_fresh=now != before)
            if digests is None:
                return None
            if digests != one.digests:
                self._upload(one, folder, blobs)
        finally:
            remove_tree(folder)
        is_new = digests != one.digests
        one.sent = one.seen = now
        one.digests, one.complained = digests, ""
        return digests if is_new else None

    def _copy(self, one: Watched, folder: str, size: int, is_fresh: bool) -> Optional[dict[str, str]]:
        """Copy all files at one moment; None if one of them changed meanwhile."""
        base, names = one.made.cwd, one.made.lease.checkpoint
        os.makedirs(folder, mode=0o700, exist_ok=True)
        space = os.statvfs(folder)
        if space.f_bavail * space.f_frsize < size + SPARE_DISK:
            raise OSError(f"no space for a copy of {size} bytes")
        digests: dict[str, str] = {}
        with contextlib.ExitStack() as stack:
            opened = {name: stack.enter_context(open_below(base, name, CHECKPOINT)) for name in names}
            before = {name: _state(fd) for name, fd in opened.items()}
            for at, name in enumerate(names):
                with open(os.path.join(folder, str(at)), "xb") as copy:
                    digests[name] = digest_of(_copied(opened[name], before[name][1], copy))
            if is_fresh:
                time.sleep(REPLACED_REST)  # whoever still writes it shows by then
            same = all(_state(fd) == before[name] for name, fd in opened.items())
        # Several files belong together: none of them may have been replaced since the look.
        if not same or (len(names) > 1 and look(base, names) != one.seen):
            return None
        return digests

    def _upload(self, one: Watched, folder: str, blobs: Blobs) -> None:
        run = run_text(parse_attempt(one.made.lease.attempt).run)
        for at in range(len(one.made.lease.checkpoint)):
            if one.is_over:
                raise NoBlob("the attempt is over")
            with open(os.path.join(folder, str(at)), "rb") as copy:
                blobs.store_file(copy.fileno(), run, PATIENCE, CHECKPOINT)

    def _complain(self, one: Watched, problem: str) -> None:
        if problem != one.complained and not one.is_over:
            one.complained = problem
            log.warning("attempt=%s its checkpoint is not uploaded: %s", one.made.lease.attempt, problem)


def _is_replaced(before: Looks, now: Looks) -> bool:
    """True if every file that changed was replaced by a rename, rather than written in place."""
    pairs = [(before.get(name), found) for name, found in now.items()]
    return all(old == new or (old is not None and new is not None and old[2] != new[2]) for old, new in pairs)


def _state(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_mtime_ns, found.st_size


def _copied(fd: int, size: int, copy: IO[bytes]) -> Iterator[bytes]:
    at = 0
    while at < size:
        data = os.pread(fd, min(PIECE, size - at), at)
        if not data:
            return  # it became shorter, which shows when it is looked at again
        copy.write(data)
        yield data
        at += len(data)
