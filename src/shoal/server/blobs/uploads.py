"""Uploads of blobs: admission, resuming a broken upload, and bytes from the socket to the disk.

A part belongs to one owner: others could otherwise get a blob by sending its last byte. One sender at a time appends to
it. Whoever sends a blob whole while another does gets a part of their own, which cannot be resumed; whoever wants to
resume it is refused, unless the other sender is silent: then its connection is most likely gone, and they take over.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from shoal.model.errors import BadInput, Conflict, Refused, TooBusy
from shoal.model.limits import MAX_PARTS, MAX_UPLOADS
from shoal.model.quantities import show_size
from shoal.server.blobs import files
from shoal.server.blobs.files import PARTS, Part, disk_full, key_of
from shoal.server.blobs.registry import Blobs
from shoal.server.http.messages import BodyBroken

log = logging.getLogger(__name__)
PIECE = 1 << 20  # bytes that a thread writes at a time, while the next arrive
STALL = 30.0  # seconds without a byte after which an upload is ended
SILENT = 2.0  # seconds without a byte after which another sender may take over
KEEP_PARTS = 86_400.0  # seconds in which a broken upload may be resumed
SWEEP_EVERY = 300.0


class Body(Protocol):
    """The body of a request as it arrives."""

    async def readany(self) -> bytes:
        """The next bytes; none at the end."""


class WrongOffset(Conflict):
    """An upload continues where it broke off."""

    code = "wrong_offset"

    def __init__(self, offset: int) -> None:
        self.offset = offset
        super().__init__(f"this upload goes on at byte {offset}", hint=f"Content-Range: bytes {offset}-END/TOTAL")


class Upload:
    """One sender's turn at a part."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.received = time.monotonic()  # when the last bytes came
        self.writing: asyncio.Future[None] | None = None
        self.is_reading = False  # it waits for the sender, not for the disk
        self.is_over = False  # another took over

    @property
    def is_silent(self) -> bool:
        """True if it has waited for the sender for a while."""
        return self.is_reading and time.monotonic() - self.received >= SILENT


class Uploads:
    """All uploads that are not whole yet."""

    def __init__(self, blobs: Blobs) -> None:
        self.blobs = blobs
        self._parts: dict[str, dict[str, Part]] = {  # key of the owner -> digest -> part
            key: {part.name: part for part in parts} for key, parts in files.scan_parts(blobs.folder).items()
        }
        self._turns: dict[Part, Upload] = {}
        self._numbers = itertools.count(1)

    @property
    def is_busy(self) -> bool:
        """True if an upload is under way."""
        return bool(self._turns)

    def offset(self, owner: str, digest: str) -> int:
        """How many bytes of an upload are here."""
        part = self._mine(owner).get(digest)
        return part.size if part is not None else 0

    def _mine(self, owner: str) -> dict[str, Part]:
        return self._parts.get(key_of(owner), {})

    # --- admission
    async def ask(self, owner: str, digest: str, total: int) -> bool:
        """Raises WrongOffset with the offset from which the blob is to be sent; True: all bytes are here already."""
        part = self._mine(owner).get(digest)
        turn = self._turns.get(part) if part is not None else None
        if turn is not None and not turn.is_silent:
            raise being_sent()
        if part is not None and turn is None and part.size > total:
            self._drop(key_of(owner), part)  # of another size than the blob: it cannot become it
            part = None
        self._check_quota(owner, digest, total)
        size = part.size if part is not None else 0
        if part is not None and size == total:
            return True
        await self.blobs.run(files.check_space, self.blobs.folder, self._wanted() + total - size)
        raise WrongOffset(size)

    @contextlib.asynccontextmanager
    async def turn(self, owner: str, digest: str, total: int, start: int | None) -> AsyncIterator[Upload]:
        """Append to a part from an offset on; None: from the beginning, whatever is here.

        Refused are another offset than the end of the part, a blob over the quota, and one that the disk has no space for.
        """
        part = self._mine(owner).get(digest)
        before = self._turns.get(part) if part is not None else None
        if before is not None and start is not None:
            await self._take_over(before)
        upload = self._begin(owner, digest, total, start)
        part = upload.part
        try:
            try:
                await self.blobs.run(files.check_space, self.blobs.folder, self._wanted())
                await self.blobs.run(part.open, start is None)
            except OSError as error:
                raise disk_full(error.strerror or "") from None
            if start is not None and part.size != start:  # as it was found on the disk
                raise WrongOffset(part.size)
            yield upload
        finally:
            if not upload.is_over:
                await asyncio.shield(self._leave(owner, upload))

    def _begin(self, owner: str, digest: str, total: int, start: int | None) -> Upload:
        """The upload of a part, or a refusal that has changed nothing."""
        part = self._mine(owner).get(digest)
        name = digest
        if part is not None and part in self._turns:
            if start is not None:
                raise being_sent()
            part, name = None, f"{digest}.{next(self._numbers)}"
        size = part.size if part is not None else 0
        if start is not None and size != start:
            raise WrongOffset(size)
        self._check_quota(owner, digest, total)
        if len(self._turns) >= MAX_UPLOADS:
            raise TooBusy("too many uploads at once", after=2.0, hint="come back in a moment")
        if part is None:
            self._check_count(owner)
            key = key_of(owner)
            part = Part(self.blobs.folder / PARTS / key / name.partition(":")[2])
            self._parts.setdefault(key, {})[name] = part
        part.total = total
        upload = self._turns[part] = Upload(part)
        return upload

    async def _take_over(self, before: Upload) -> None:
        if not before.is_silent:
            raise being_sent()
        before.is_over = True
        if before.writing is not None:
            await asyncio.wait([before.writing])
        failed = before.writing is not None and before.writing.exception() is not None
        await self.blobs.run(before.part.discard if failed else before.part.close)
        if self._turns.get(before.part) is before:
            del self._turns[before.part]

    def _wanted(self) -> int:
        """Bytes that uploads under way have yet to write."""
        return sum(max(0, part.total - part.size) for part in self._turns)

    def _check_count(self, owner: str) -> None:
        """Limit the parts of an owner; an idle one is deleted for a new one."""
        mine = self._mine(owner)
        for part in self._idle(mine)[: max(0, len(mine) + 1 - MAX_PARTS)]:
            self._drop(key_of(owner), part)
        if len(self._mine(owner)) >= MAX_PARTS:
            raise TooBusy("too many uploads of one owner at once", after=2.0, hint=f"at most {MAX_PARTS}")

    def _check_quota(self, owner: str, digest: str, total: int) -> None:
        """Check the quota with what is held, what is being sent and this one; idle parts are deleted if need be."""
        others = {name: part for name, part in self._mine(owner).items() if part.name != digest}
        used = self.blobs.used(owner) + sum(part.total for part in others.values() if part in self._turns)
        quota = self.blobs.quota
        if self.blobs.holds(owner, digest):
            return  # counted already; its file was lost
        if used + total > quota:
            raise Refused(
                f"{owner} has {show_size(used)} of {show_size(quota)} of blobs: {show_size(total)} more do not fit", code="quota",
                hint="`shoal prune --older-than 7d` lets go of those of old runs; what was put and not used goes after a day",
            )  # fmt: skip
        idle = self._idle(others)
        left = sum(part.size for part in idle)
        for part in idle:
            if used + total + left <= quota:
                break
            left -= part.size
            self._drop(key_of(owner), part)

    def _idle(self, parts: dict[str, Part]) -> list[Part]:
        """The parts that nobody sends now, the oldest first."""
        return sorted((part for part in parts.values() if part not in self._turns), key=lambda part: part.touched)

    def _drop(self, key: str, part: Part) -> None:
        """Remove a part. Its file is renamed at once and deleted on a thread, since a large one takes a while."""
        mine = self._parts[key]
        for name in [name for name, one in mine.items() if one is part]:
            del mine[name]
        if not mine:
            del self._parts[key]
        with contextlib.suppress(FileNotFoundError):
            gone = part.path.rename(part.path.with_name(f"{part.path.name}.{next(self._numbers)}"))
            self.blobs.start(files.remove, gone)

    # --- bytes
    async def take(self, upload: Upload, content: Body, length: int) -> None:
        """Write so many bytes of a request's body; those that came before a connection broke stay."""
        left = length
        upload.received, upload.is_reading = time.monotonic(), True
        try:
            while left:
                pieces, size = await _gather(content, upload)
                left -= size
                if upload.writing is not None:
                    await upload.writing
                if upload.is_over:
                    raise Conflict("another upload of this blob has taken over", code="taken_over", hint="ask again")
                upload.writing = self.blobs.start(upload.part.append, pieces)
            upload.is_reading = False
            if upload.writing is not None:
                await upload.writing
        except OSError as error:
            upload.is_reading = False
            if not upload.is_over:
                await self.blobs.run(upload.part.discard)  # the digest of what was written is unknown
            raise disk_full(error.strerror or "") from None

    async def _leave(self, owner: str, upload: Upload) -> None:
        """End the upload; an empty part, one that became a blob, and one that cannot be resumed are removed."""
        upload.is_reading = False
        if upload.writing is not None:
            await asyncio.wait([upload.writing])
        part = upload.part
        await self.blobs.run(part.close)
        del self._turns[part]
        part.touched = self.blobs.clock()
        if not part.size or part.path.name != part.name.partition(":")[2] or not part.path.exists():
            self._drop(key_of(owner), part)

    # --- deletion
    async def sweep_forever(self) -> None:
        """Sweep periodically; never returns."""
        while True:
            self.sweep()
            await asyncio.sleep(SWEEP_EVERY)

    def sweep(self) -> int:
        """Remove parts that nobody resumed for a day."""
        now, removed = self.blobs.clock(), 0
        for key, mine in list(self._parts.items()):
            for part in [part for part in self._idle(mine) if now - part.touched > KEEP_PARTS]:
                self._drop(key, part)
                removed += 1
        return removed


def being_sent() -> TooBusy:
    """The refusal while another connection sends the same blob for the same owner."""
    return TooBusy("this blob is being sent already", after=1.0, code="being_sent", hint="ask again in a second")


async def _gather(content: Body, upload: Upload) -> tuple[Sequence[bytes], int]:
    """The next bytes of a body: enough to be worth a thread, or what came before the sender paused."""
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(STALL):
            while size < PIECE:
                data = await content.readany()
                if not data:
                    break
                upload.received = time.monotonic()
                pieces.append(data)
                size += len(data)
    except TimeoutError:
        if not size:
            raise Refused("the body came too slowly", code="too_slow", hint=f"nothing for {STALL:g} seconds") from None
    except (ConnectionError, BodyBroken):
        if not size:
            raise BadInput("the body is not what its headers say", code="bad_body") from None
    if not size:
        raise BadInput("the body is not what its headers say", code="bad_body")
    return pieces, size
