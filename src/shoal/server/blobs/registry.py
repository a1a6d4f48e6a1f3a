"""The blob registry: which blobs exist, who holds them for which runs, and when one is deleted [protocol 6]. In memory, on
the loop's thread.

Rules: (1) access to a blob needs a reference of an owner, never only its digest; (2) a reference is made by sending all
of the bytes, or from another of the same owner; (3) the file is whole before its row is written, and the row is deleted
before the file: a crash between leaves a file without a row, which the next server removes; (4) no file is deleted while
an upload is about to get its name, and no upload gets a name whose file is being deleted.
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
from shoal.model.file_names import blob_name
from shoal.server.blobs import files
from shoal.server.blobs.files import Part

log = logging.getLogger(__name__)
T = TypeVar("T")
Keep = Callable[[Sequence[Change], Callable[[], None] | None], None]
Count = Callable[[str, int], None]  # adds to the bytes that an owner stores
Block = Callable[[str, int], str]  # the quota that keeps an owner from storing so many more; empty: none
QUOTA = 20 << 30  # bytes of one owner
UNUSED = 0  # the run number of blobs that were uploaded and not used yet
KEEP_UNUSED = 86_400.0  # seconds
KEEP_REPLACED = 86_400.0  # seconds after a restore in which no file is deleted, so that the restore can be undone
GRACE = 3_600.0  # seconds that a blob stays without a reference: somebody may be reading it by its path
KEEP_UNNAMED = 600.0  # seconds that a checkpoint's blob is held before an exchange names it
NAMED = 0.0  # the time of a reference that an exchange has named: held for as long as its task needs it
CHECKPOINT_GRACE = 120.0  # seconds; as GRACE, but a task writes many of them, and only the newest is read
CHECKPOINTS_EVERY = 60.0  # seconds between searches for checkpoints that are no longer needed
RENEW = 600.0  # seconds; a reference younger than this is not written again
SWEEP_EVERY = 300.0
SLICE = 1_000  # blobs removed at a time
THREADS = 4


def checkpoints_of(run: int) -> int:
    """The number under which the checkpoints of a run's tasks are held, apart from what the run itself holds."""
    return -run


def unknown_blob(digest: str) -> NotFound:
    """The refusal of a blob that does not exist or that the caller may not see."""
    hint = "put it first; it goes a day later, or with its run"
    return NotFound(f"there is no blob {echo(digest)}", code="unknown_blob", hint=hint)


class Blobs:
    """The blobs of one server."""

    def __init__(
        self, folder: Path, held: BlobRows, keep: Keep, clock: Callable[[], float], quota: int = QUOTA,
        durable: bool = True, restored: float = float("-inf"),
    ) -> None:  # fmt: skip
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
        # An owner with an open run may name in a call what no table of the run names: an object uploaded once.
        self.has_open_run: Callable[[str], bool] = lambda owner: False
        self._count: Count = lambda owner, delta: None
        self._block: Block = lambda owner, size: ""
        for row in held.blobs:
            # A blob without a reference at a start has had none for long: no reader got its path from this server.
            self._sizes[row.digest], self._bare[row.digest] = row.size, row.created
        for ref in held.refs:
            if ref.digest in self._sizes:
                self._add(ref)

    # --- quotas of the policy
    def count_with(self, count: Count, block: Block) -> None:
        """Set who counts the bytes that owners store, beginning with the present ones, and checks quotas [SPHINX S4]."""
        self._count, self._block = count, block
        for owner in {**self._used, **self._reserved}:
            count(owner, self._used.get(owner, 0) + self._reserved.get(owner, 0))

    def check_quota(self, owner: str, digest: str, size: int) -> None:
        """Refuse a blob that would exceed a quota of the policy; what the owner holds is counted already."""
        text = "" if self.holds(owner, digest) else self._block(owner, size)
        if text:
            raise Refused(text, code="quota", hint="`shoal prune --older-than 7d` lets go of those of old runs")

    # --- queries
    def size(self, digest: str) -> int | None:
        """The size of a blob; None: there is none."""
        return self._sizes.get(digest)

    def owners(self, digest: str) -> set[str]:
        """The owners who hold a blob."""
        return {owner for owner, _ in self._holders.get(digest, ())}

    def holds(self, owner: str, digest: str) -> bool:
        """True if an owner holds a blob."""
        return digest in self._owned.get(owner, {})

    def used(self, owner: str) -> int:
        """Bytes of the blobs that an owner holds, each counted once."""
        return self._used.get(owner, 0)

    def path(self, digest: str) -> Path:
        """The file of a blob; the digest must have been checked."""
        return self.folder / blob_name(digest)

    async def is_there(self, digest: str) -> bool:
        """True if a blob is registered and on the disk."""
        size = self._sizes.get(digest)
        return size is not None and await self.run(files.is_there, self.path(digest), size)

    # --- references
    def claim(self, owner: str, run: int, digests: Iterable[str]) -> None:
        """Hold blobs for a run; refused if the owner does not hold all of them."""
        wanted = dict.fromkeys(digests)
        for digest in wanted:
            if not self.holds(owner, digest):
                raise unknown_blob(digest)
        known, now = self._runs.get(run, {}), self.clock()
        # An unused blob is kept by the time of its last use; a run holds what it holds.
        old = now - RENEW if run == UNUSED else float("-inf")
        rows = [BlobRefRow(digest, owner, run, now) for digest in wanted if known.get((digest, owner), old) <= old]
        for row in rows:
            self._add(row)
        if rows:
            self._keep(rows, None)

    def release(self, run: int) -> int:
        """Drop all references of a run; returns how many there were."""
        numbers = (run, checkpoints_of(run))
        return self._drop_all(
            [BlobRefDrop(digest, owner, number) for number in numbers for digest, owner in self._runs.get(number, ())]
        )

    def keep_checkpoint(self, owner: str, run: int, digests: Iterable[str]) -> bool:
        """Hold the blobs of a task's checkpoint until a newer one replaces it; False: not all of them are here."""
        wanted, number = list(digests), checkpoints_of(run)
        if not all(self.holds(owner, digest) for digest in wanted):
            return False
        self.claim(owner, number, wanted)
        for digest in wanted:
            self._runs[number][digest, owner] = NAMED
        return True

    def drop_checkpoints(self, needed: Callable[[int], set[str]]) -> int:
        """Drop the references of checkpoints that no task of their run needs; returns how many there were."""
        now = self.clock()
        dropped = [
            BlobRefDrop(digest, owner, number)
            for number in [number for number in self._runs if number < 0]
            for digests in [needed(-number)]
            for (digest, owner), since in self._runs[number].items()
            if digest not in digests and now - since > KEEP_UNNAMED
        ]
        self._drop_all(dropped)
        self._bare |= {drop.digest: now - GRACE + CHECKPOINT_GRACE for drop in dropped if drop.digest in self._bare}
        return len(dropped)

    async def renew(self, owner: str, digest: str, run: int = UNUSED) -> bool:
        """Extend the reference to a blob that the owner holds and that is whole: for a day, or for this run."""
        if not self.holds(owner, digest) or not await self.is_there(digest) or not self.holds(owner, digest):
            return False  # the last check: it may have been dropped meanwhile
        since = self._runs.get(run, {}).get((digest, owner), 0.0)
        if self.clock() - since > RENEW:
            row = BlobRefRow(digest, owner, run, self.clock())
            self._add(row)
            await self._durable([row])
        return True

    async def name(self, owner: str, part: Part, run: int = UNUSED) -> None:
        """Turn a part with all its bytes into a blob that its sender holds. Durable on return."""
        digest, size = part.name, part.size
        while (going := self._going.get(digest)) is not None:
            await asyncio.shield(going)
        self.check_quota(owner, digest, size)
        # Counted before it is held: of two concurrent uploads only one may use the rest of a quota.
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
        """Kept as well as counted: the counter may be replaced before the blob is held."""
        left = self._reserved.pop(owner, 0) + delta
        if left:
            self._reserved[owner] = left
        self._count(owner, delta)

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
            self._count(row.owner, self._sizes[row.digest])

    def _drop_all(self, drops: list[BlobRefDrop]) -> int:
        for drop in drops:
            self._drop(drop)
        if drops:
            self._keep(drops, None)
        return len(drops)

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
            self._count(owner, -self._sizes[digest])
            if not mine:
                del self._owned[owner], self._used[owner]

    async def _durable(self, rows: Sequence[Change]) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keep(rows, lambda: None if done.done() else done.set_result(None))
        await done

    # --- deletion
    async def sweep_forever(self) -> None:
        """Sweep periodically; never returns."""
        while True:
            try:
                await self.sweep()
            except OSError as error:
                log.error("blobs cannot be swept: %s", error)
            await asyncio.sleep(SWEEP_EVERY)

    async def sweep(self) -> int:
        """Drop references to blobs that were never used, and delete blobs without references; returns how many."""
        now = self.clock()
        self._drop_all(
            [
                BlobRefDrop(digest, owner, UNUSED)
                for (digest, owner), since in self._runs.get(UNUSED, {}).items()
                if now - since > KEEP_UNUSED and not self.has_open_run(owner)
            ]
        )
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
        """Delete files that a crash left without a row."""
        found = await self.run(lambda: list(files.names(self.folder)))
        lost = [digest for digest in found if digest not in self._sizes and digest not in self._naming]
        if lost:
            log.info("blobs=%d without a row are removed", len(lost))
        return await self._unlink(lost)

    async def _remove(self, digests: list[str]) -> int:
        """Delete the rows of blobs without references, then their files; one that has a reference by now stays."""
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
    async def run(self, work: Callable[..., T], *values: Any) -> T:
        """Run a function that uses files on a thread."""
        return await self.start(work, *values)

    def start(self, work: Callable[..., T], *values: Any) -> asyncio.Future[T]:
        """Start such a function without waiting for it."""
        return asyncio.get_running_loop().run_in_executor(self._pool, work, *values)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
