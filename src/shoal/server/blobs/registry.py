"""Which blobs there are, who holds them and for which runs, and when one goes [protocol 6]. In memory, on the loop's
thread.

Rules: (1) whoever sees a blob does so by a reference of an owner, never by knowing its digest; (2) a reference is made by
sending all of the bytes, or from another of the same owner; (3) the file is whole before its row is written, and its row
is gone before the file is: a crash between leaves a file without a row, which the next server removes; (4) nothing is
removed while an upload is about to give it its name, and nothing gets its name while it is being removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from shoal.engine.changes import Change
from shoal.model.blobs import BlobDrop, BlobRefDrop, BlobRefRow, BlobRow, BlobRows
from shoal.model.errors import NotFound, Refused, echo
from shoal.model.layout import blob_name
from shoal.server.blobs import files
from shoal.server.blobs.files import Part

log = logging.getLogger(__name__)
T = TypeVar("T")
Keep = Callable[[Sequence[Change], Callable[[], None] | None], None]
Tell = Callable[[str, int], None]  # an owner keeps so many bytes more
Refuse = Callable[[str, int], str]  # why an owner may not keep so many more; empty: it may
QUOTA = 20 << 30  # bytes of one owner
UNUSED = 0  # the run of what was put and not used yet
KEEP_UNUSED = 86_400.0  # seconds
KEEP_REPLACED = 86_400.0  # seconds after a restore in which no file is deleted, so that the restore can be undone
GRACE = 3_600.0  # seconds that a blob stays when nobody holds it any more: somebody may be reading it by its path
KEEP_UNNAMED = 600.0  # seconds that a checkpoint's blob stays for which no exchange has named it yet
NAMED = 0.0  # since when one is held that an exchange has named: for as long as its task needs it
CHECKPOINT_GRACE = 120.0  # seconds; as GRACE, but a task writes many of them, and only the newest is read
CHECKPOINTS_EVERY = 60.0  # seconds between looks for checkpoints that have become old
RENEW = 600.0  # seconds; a reference younger than this is not written again
SWEEP_EVERY = 300.0
SLICE = 1_000  # blobs removed at a time
THREADS = 4


def checkpoints_of(run: int) -> int:
    """The number under which the checkpoints of a run's tasks are held: they come and go while the run holds the rest."""
    return -run


def unknown_blob(digest: str) -> NotFound:
    """One text for what is not there and what is another's."""
    return NotFound(
        f"there is no blob {echo(digest)}",
        code="unknown_blob",
        hint="put it first; it goes a day later, or with its run",
    )


class Blobs:
    """The blobs of one server."""

    def __init__(
        self,
        folder: Path,
        held: BlobRows,
        keep: Keep,
        clock: Callable[[], float],
        quota: int = QUOTA,
        durable: bool = True,
        restored: float = float("-inf"),
    ) -> None:
        """`restored`: when a backup was put in the database's place; the replaced database may need the files, too."""
        self.folder, self.clock, self.quota, self.durable = folder, clock, quota, durable
        self._keep_files_until = restored + KEEP_REPLACED
        self._keep = keep
        self._pool = ThreadPoolExecutor(THREADS, "blobs")
        self._sizes: dict[str, int] = {}
        self._holders: dict[str, dict[tuple[str, int], None]] = {}  # digest -> owner, run
        self._runs: dict[int, dict[tuple[str, str], float]] = {}  # run -> digest, owner -> since
        self._owned: dict[str, dict[str, int]] = {}  # owner -> digest -> references
        self._used: dict[str, int] = {}  # owner -> bytes
        self._reserved: dict[str, int] = {}  # owner -> bytes that are about to be held
        self._bare: dict[str, float] = {}  # digest -> since when nobody holds it
        self._naming: dict[str, int] = {}  # digest -> uploads that are about to give a file this name
        self._going: dict[str, asyncio.Future[None]] = {}  # digest -> until its file is gone
        self._swept = False
        # An owner with an open run may name in a call what no table of the run names: an object that was put once.
        self.is_at_work: Callable[[str], bool] = lambda owner: False
        self._tell: Tell = lambda owner, delta: None
        self._refuse: Refuse = lambda owner, size: ""
        for row in held.blobs:
            # What is bare at a start was so long before: nobody reads by a path of the server before.
            self._sizes[row.digest], self._bare[row.digest] = row.size, row.created
        for ref in held.refs:
            if ref.digest in self._sizes:
                self._add(ref)

    # --- what the policy says of it
    def rule(self, tell: Tell, refuse: Refuse) -> None:
        """Have somebody count what owners keep, from what there is now on, and say when it is too much [SPHINX S4]."""
        self._tell, self._refuse = tell, refuse
        for owner in {**self._used, **self._reserved}:
            tell(owner, self._used.get(owner, 0) + self._reserved.get(owner, 0))

    def check_rule(self, owner: str, digest: str, size: int) -> None:
        """Refuse a blob that a quota of the policy has no room for; what the owner holds is counted already."""
        text = "" if self.holds(owner, digest) else self._refuse(owner, size)
        if text:
            raise Refused(text, code="quota", hint="`shoal prune --older-than 7d` lets go of those of old runs")

    # --- looking
    def size(self, digest: str) -> int | None:
        """How many bytes a blob has; None: there is none."""
        return self._sizes.get(digest)

    def owners(self, digest: str) -> set[str]:
        """Who holds a blob."""
        return {owner for owner, _ in self._holders.get(digest, ())}

    def holds(self, owner: str, digest: str) -> bool:
        """Does an owner hold a blob?"""
        return digest in self._owned.get(owner, {})

    def used(self, owner: str) -> int:
        """Bytes of the blobs that an owner holds, each counted once."""
        return self._used.get(owner, 0)

    def path(self, digest: str) -> Path:
        """Where a blob rests; the name must have been checked."""
        return self.folder / blob_name(digest)

    async def is_there(self, digest: str) -> bool:
        """Is a blob here, and on the disk too?"""
        size = self._sizes.get(digest)
        return size is not None and await self.run(files.is_there, self.path(digest), size)

    # --- references
    def check(self, owner: str, digests: Iterable[str]) -> None:
        """Refuse what an owner does not hold."""
        mine = self._owned.get(owner, {})
        for digest in digests:
            if digest not in mine:
                raise unknown_blob(digest)

    def claim(self, owner: str, run: int, digests: Iterable[str]) -> None:
        """Hold blobs for a run; all of them, or it is refused and none is."""
        wanted = dict.fromkeys(digests)
        self.check(owner, wanted)
        known, now = self._runs.get(run, {}), self.clock()
        # Of what is not used yet it counts when it was last wanted; a run holds what it holds.
        old = now - RENEW if run == UNUSED else float("-inf")
        rows = [BlobRefRow(digest, owner, run, now) for digest in wanted if known.get((digest, owner), old) <= old]
        for row in rows:
            self._add(row)
        if rows:
            self._keep(rows, None)

    def release(self, run: int) -> int:
        """Nothing is held for this run any more; returns how many references that were."""
        numbers = (run, checkpoints_of(run))
        dropped = [
            BlobRefDrop(digest, owner, number) for number in numbers for digest, owner in self._runs.get(number, ())
        ]
        for drop in dropped:
            self._drop(drop)
        if dropped:
            self._keep(dropped, None)
        return len(dropped)

    def keep_checkpoint(self, owner: str, run: int, digests: Iterable[str]) -> bool:
        """Hold the blobs of a task's checkpoint until a newer one takes its place; False: not all of them are here."""
        wanted, number = list(digests), checkpoints_of(run)
        if not all(self.holds(owner, digest) for digest in wanted):
            return False
        self.claim(owner, number, wanted)
        for digest in wanted:
            self._runs[number][digest, owner] = NAMED
        return True

    def drop_checkpoints(self, needed: Callable[[int], set[str]]) -> int:
        """Let go of the checkpoints that no task of their run needs any more; returns how many references those were."""
        now = self.clock()
        dropped = [
            BlobRefDrop(digest, owner, number)
            for number in [number for number in self._runs if number < 0]
            for digests in [needed(-number)]
            for (digest, owner), since in self._runs[number].items()
            if digest not in digests and now - since > KEEP_UNNAMED
        ]
        for drop in dropped:
            self._drop(drop)
            if drop.digest in self._bare:
                self._bare[drop.digest] = now - GRACE + CHECKPOINT_GRACE
        if dropped:
            self._keep(dropped, None)
        return len(dropped)

    async def renew(self, owner: str, digest: str, run: int = UNUSED) -> bool:
        """Hold a blob for longer, if the owner holds it already and it is whole: for a day, or for this run."""
        if not self.holds(owner, digest) or not await self.is_there(digest) or not self.holds(owner, digest):
            return False  # the last: let go while we looked
        since = self._runs.get(run, {}).get((digest, owner), 0.0)
        if self.clock() - since > RENEW:
            row = BlobRefRow(digest, owner, run, self.clock())
            self._add(row)
            await self._durable([row])
        return True

    async def name(self, owner: str, part: Part, run: int = UNUSED) -> None:
        """A part has all its bytes: check them, give it its name, and have its sender hold it. Durable on return."""
        digest, size = part.name, part.size
        while (going := self._going.get(digest)) is not None:
            await asyncio.shield(going)
        self.check_rule(owner, digest, size)
        # Counted before it is held: of two that come at once only one may have the last room.
        self._reserve(owner, size)
        self._naming[digest] = self._naming.get(digest, 0) + 1
        try:
            try:
                await self.run(part.publish, self.folder, self.durable)
            except OSError as error:  # also an fsync that failed, which is never tried again
                await self.run(part.discard)
                raise files.disk_full(error.strerror or "") from None
            now = self.clock()
            ref = BlobRefRow(digest, owner, run, now)
            rows: list[Change] = [ref] if digest in self._sizes else [BlobRow(digest, size, now), ref]
            self._sizes[digest] = size
            self._add(ref)
        finally:
            self._reserve(owner, -size)
            self._naming[digest] -= 1
            if not self._naming[digest]:
                del self._naming[digest]
        await self._durable(rows)

    def _reserve(self, owner: str, delta: int) -> None:
        """Remembered as well as told: who counts may be another one before it is held."""
        left = self._reserved.pop(owner, 0) + delta
        if left:
            self._reserved[owner] = left
        self._tell(owner, delta)

    def _add(self, row: BlobRefRow) -> None:
        of_run = self._runs.setdefault(row.run, {})
        is_new = (row.digest, row.owner) not in of_run
        of_run[row.digest, row.owner] = row.since
        if not is_new:
            return
        self._holders.setdefault(row.digest, {})[row.owner, row.run] = None
        self._bare.pop(row.digest, None)
        mine = self._owned.setdefault(row.owner, {})
        mine[row.digest] = mine.get(row.digest, 0) + 1
        if mine[row.digest] == 1:
            self._used[row.owner] = self._used.get(row.owner, 0) + self._sizes[row.digest]
            self._tell(row.owner, self._sizes[row.digest])

    def _drop(self, drop: BlobRefDrop) -> None:
        digest, owner, run = drop
        del self._runs[run][digest, owner]
        if not self._runs[run]:
            del self._runs[run]
        del self._holders[digest][owner, run]
        if not self._holders[digest]:
            del self._holders[digest]
            self._bare[digest] = self.clock()
        mine = self._owned[owner]
        mine[digest] -= 1
        if not mine[digest]:
            del mine[digest]
            self._used[owner] -= self._sizes[digest]
            self._tell(owner, -self._sizes[digest])
            if not mine:
                del self._owned[owner], self._used[owner]

    async def _durable(self, rows: Sequence[Change]) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keep(rows, lambda: None if done.done() else done.set_result(None))
        await done

    # --- keeping house
    async def live(self) -> None:
        """Look now and then for what may go; never ends."""
        while True:
            try:
                await self.sweep()
            except OSError as error:
                log.error("blobs cannot be looked through: %s", error)
            await asyncio.sleep(SWEEP_EVERY)

    async def sweep(self) -> int:
        """Let go of what was put and never used, and remove what nobody holds; returns how many were removed."""
        now = self.clock()
        unused = [
            BlobRefDrop(digest, owner, UNUSED)
            for (digest, owner), since in self._runs.get(UNUSED, {}).items()
            if now - since > KEEP_UNUSED and not self.is_at_work(owner)
        ]
        for drop in unused:
            self._drop(drop)
        if unused:
            self._keep(unused, None)
        if now < self._keep_files_until:
            return 0
        removed = 0
        if not self._swept:
            self._swept = True
            removed += await self._remove_orphans()
        old = [digest for digest, since in self._bare.items() if now - since > GRACE]
        for at in range(0, len(old), SLICE):
            removed += await self._remove(old[at : at + SLICE])
        return removed

    async def _remove_orphans(self) -> int:
        """Files that a crash left without a row."""
        found = await self.run(lambda: list(files.names(self.folder)))
        lost = [digest for digest in found if digest not in self._sizes and digest not in self._naming]
        if lost:
            log.info("blobs=%d without a row are removed", len(lost))
        return await self._unlink(lost)

    async def _remove(self, digests: list[str]) -> int:
        """Forget blobs that nobody holds, then delete their files; who has come to hold one since keeps it."""
        gone = [digest for digest in digests if digest in self._bare and digest not in self._naming]
        for digest in gone:
            del self._bare[digest], self._sizes[digest]
            self._going[digest] = asyncio.get_running_loop().create_future()
        if gone:
            await self._durable([BlobDrop(digest) for digest in gone])
        return await self._unlink(gone)

    async def _unlink(self, digests: list[str]) -> int:
        for digest in digests:
            self._going.setdefault(digest, asyncio.get_running_loop().create_future())
        try:
            await self.run(files.remove_all, [self.path(digest) for digest in digests])
        finally:
            for digest in digests:
                self._going.pop(digest).set_result(None)
        return len(digests)

    # --- threads
    async def run(self, work: Callable[..., T], *words: Any) -> T:
        """Do something with files, off the loop's thread."""
        return await self.start(work, *words)

    def start(self, work: Callable[..., T], *words: Any) -> asyncio.Future[T]:
        """The same, without waiting for it."""
        return asyncio.get_running_loop().run_in_executor(self._pool, work, *words)

    def close(self) -> None:
        """Let the threads end."""
        self._pool.shutdown(wait=False, cancel_futures=True)
