"""Uploads: where they go on, who may begin one, and what a sender who breaks off leaves behind."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from shoal.engine.changes import Change
from shoal.model.blobs import BlobRows, digest_of
from shoal.model.errors import BadInput, Conflict, Refused, ShoalError, TooBusy
from shoal.model.limits import MAX_PARTS
from shoal.server.blobs import files, uploads
from shoal.server.blobs.files import PARTS, Part, key_of
from shoal.server.blobs.registry import Blobs
from shoal.server.blobs.uploads import KEEP_PARTS, PIECE, Uploads, WrongOffset
from shoal.server.http.messages import BodyBroken

ANN, BOB = "ann", "bob"
DATA = os.urandom(3 * PIECE + 17)
DIGEST = digest_of([DATA])


class Stand:
    """Uploads of one server after another."""

    def __init__(self, folder: Path, quota: int = 1 << 30) -> None:
        self.folder, self.quota, self.now = folder / "blobs", quota, 1000.0
        self.folder.mkdir()
        self.begin()

    def begin(self) -> None:
        """A server starts; what the one before knew only in memory is gone."""

        def keep(changes: Sequence[Change], then: Callable[[], None] | None) -> None:
            if then is not None:
                then()

        self.blobs = Blobs(self.folder, BlobRows([], []), keep, lambda: self.now, self.quota, durable=False)
        self.uploads = Uploads(self.blobs)

    async def send(
        self, data: bytes, *, total: int = 0, start: int | None = None, owner: str = ANN, digest: str = "", breaks: bool = False
    ) -> int:  # fmt: skip
        """One request; returns how much is here after it."""
        name, total = digest or digest_of([data]), total or len(data)
        length = total - (start or 0) if breaks else len(data)
        async with self.uploads.turn(owner, name, total, start) as upload:
            await self.uploads.take(upload, FakeBody(data, breaks), length)
            size = upload.part.size
            if size == total:
                await self.blobs.name(owner, upload.part)
        return size

    def parts(self) -> list[str]:
        """Names of part files."""
        return sorted(path.name for path in (self.folder / PARTS).glob("*/*"))


class FakeBody:
    """A request's body in pieces; then it ends, breaks, or nothing more comes for now."""

    def __init__(self, data: bytes, breaks: bool = False, ends: bool = True) -> None:
        self.left = [data[at : at + 100_000] for at in range(0, len(data), 100_000)]
        self.breaks, self.ends = breaks, ends
        self.more = asyncio.Event()

    async def readany(self) -> bytes:
        if not self.left and self.breaks:
            raise BodyBroken("connection lost")
        if not self.left and not self.ends:
            await self.more.wait()
        return self.left.pop(0) if self.left else b""


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


async def refused(coroutine: Coroutine[Any, Any, Any]) -> ShoalError:
    with pytest.raises(ShoalError) as caught:
        await coroutine
    return caught.value


def test_bytes_arrive_as_they_were_sent_and_no_part_is_left(stand: Stand) -> None:
    async def story() -> None:
        assert await stand.send(DATA) == len(DATA)
        assert stand.blobs.path(DIGEST).read_bytes() == DATA
        assert await stand.send(b"") == 0
        assert stand.blobs.owners(digest_of([])) == {ANN}
        assert stand.parts() == [] and not stand.uploads.is_busy

    run(story())


def test_a_broken_upload_goes_on_where_it_broke_off(stand: Stand) -> None:
    async def story() -> None:
        half = len(DATA) // 2
        error = await refused(stand.send(DATA[:half], total=len(DATA), digest=DIGEST, breaks=True))
        assert isinstance(error, BadInput) and error.code == "bad_body"
        here = stand.uploads.offset(ANN, DIGEST)
        assert 0 < here <= half and stand.parts() == [DIGEST[7:]]
        assert stand.uploads.offset(BOB, DIGEST) == 0, "another's part is nobody's business"
        assert await stand.send(DATA[here:], total=len(DATA), start=here, digest=DIGEST) == len(DATA)
        assert stand.blobs.path(DIGEST).read_bytes() == DATA and stand.parts() == []

    run(story())


def test_it_goes_on_after_a_crash_too(stand: Stand) -> None:
    async def story() -> None:
        await stand.send(DATA[:1000], total=len(DATA), start=0, digest=DIGEST)
        stand.begin()
        assert stand.uploads.offset(ANN, DIGEST) == 1000
        assert isinstance(await refused(stand.uploads.ask(ANN, DIGEST, len(DATA))), WrongOffset)
        assert await stand.send(DATA[1000:], total=len(DATA), start=1000, digest=DIGEST) == len(DATA)
        assert stand.blobs.path(DIGEST).read_bytes() == DATA

    run(story())


def test_all_bytes_that_a_crash_left_without_a_name_need_not_be_sent_again(stand: Stand) -> None:
    async def story() -> None:
        folder = stand.folder / PARTS / key_of(ANN)
        folder.mkdir(parents=True)
        (folder / DIGEST[7:]).write_bytes(DATA)
        stand.begin()
        assert await stand.uploads.ask(ANN, DIGEST, len(DATA))
        assert await stand.send(b"", total=len(DATA), start=len(DATA), digest=DIGEST) == len(DATA)
        assert stand.blobs.path(DIGEST).read_bytes() == DATA

    run(story())


@pytest.mark.parametrize("start", [1, 999, 1001, len(DATA) - 1])
def test_another_offset_is_refused_with_the_right_one_and_changes_nothing(stand: Stand, start: int) -> None:
    async def story() -> None:
        await stand.send(DATA[:1000], total=len(DATA), start=0, digest=DIGEST)
        error = await refused(stand.send(DATA[start:], total=len(DATA), start=start, digest=DIGEST))
        assert isinstance(error, WrongOffset) and (error.code, error.offset) == ("wrong_offset", 1000)
        assert stand.uploads.offset(ANN, DIGEST) == 1000 and not stand.uploads.is_busy

    run(story())


def test_who_sends_it_whole_begins_anew(stand: Stand) -> None:
    async def story() -> None:
        await stand.send(b"x" * 1000, total=len(DATA), start=0, digest=DIGEST)
        assert await stand.send(DATA) == len(DATA)
        assert stand.blobs.path(DIGEST).read_bytes() == DATA and stand.parts() == []

    run(story())


def test_the_end_of_a_wrong_upload_throws_it_away(stand: Stand) -> None:
    async def story() -> None:
        await stand.send(b"x" * 1000, total=len(DATA), start=0, digest=DIGEST)
        error = await refused(stand.send(DATA[1000:], total=len(DATA), start=1000, digest=DIGEST))
        assert error.code == "wrong_digest"
        assert stand.uploads.offset(ANN, DIGEST) == 0 and stand.parts() == []
        assert not stand.blobs.path(DIGEST).exists()

    run(story())


def test_the_last_byte_of_anothers_upload_gives_nothing(stand: Stand) -> None:
    """Possession is proved with all bytes: parts are an owner's own."""

    async def story() -> None:
        await stand.send(DATA[:-1], total=len(DATA), start=0, digest=DIGEST)
        error = await refused(stand.send(DATA[-1:], total=len(DATA), start=len(DATA) - 1, digest=DIGEST, owner=BOB))
        assert isinstance(error, WrongOffset) and error.offset == 0
        assert stand.blobs.owners(DIGEST) == set()

    run(story())


def test_two_who_send_the_same_whole_at_once_both_end_well(stand: Stand) -> None:
    async def story() -> None:
        sizes = await asyncio.gather(stand.send(DATA), stand.send(DATA), stand.send(DATA, owner=BOB))
        assert list(sizes) == [len(DATA)] * 3
        assert stand.blobs.owners(DIGEST) == {ANN, BOB} and stand.parts() == []
        assert stand.blobs.path(DIGEST).read_bytes() == DATA and not stand.uploads.is_busy

    run(story())


def test_who_wants_to_go_on_waits_for_a_sender_who_lives_and_takes_over_from_a_silent_one(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        content = FakeBody(DATA[: 2 * PIECE], ends=False)

        async def first() -> None:
            async with stand.uploads.turn(ANN, DIGEST, len(DATA), 0) as upload:
                await stand.uploads.take(upload, content, len(DATA))

        sending = asyncio.ensure_future(first())
        while stand.uploads.offset(ANN, DIGEST) < PIECE - 100_000:
            await asyncio.sleep(0)
        for ask in (
            stand.uploads.ask(ANN, DIGEST, len(DATA)),
            stand.send(b"y", total=len(DATA), start=1, digest=DIGEST),
        ):
            error = await refused(ask)
            assert isinstance(error, TooBusy) and error.code == "being_sent"
        monkeypatch.setattr(uploads, "SILENT", 0.0)
        here = stand.uploads.offset(ANN, DIGEST)
        assert await stand.send(DATA[here:], total=len(DATA), start=here, digest=DIGEST) == len(DATA)
        content.left.append(b"late")
        content.more.set()
        with pytest.raises(Conflict, match="taken over"):
            await sending
        assert stand.blobs.path(DIGEST).read_bytes() == DATA and stand.parts() == []
        assert not stand.uploads.is_busy

    run(story())


def test_nobody_takes_over_while_the_disk_is_waited_for(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """To name a large file takes longer than a sender may be silent."""
    monkeypatch.setattr(uploads, "SILENT", 0.0)
    publish, codes = Part.publish, list[str]()

    async def story() -> None:
        loop = asyncio.get_running_loop()

        def slow(part: Part, folder: Path, durable: bool) -> None:
            for ask in (
                stand.uploads.ask(ANN, DIGEST, len(DATA)),
                stand.send(b"", total=len(DATA), start=len(DATA), digest=DIGEST),
            ):
                codes.append(asyncio.run_coroutine_threadsafe(refused(ask), loop).result(60.0).code)
            publish(part, folder, durable)

        monkeypatch.setattr(Part, "publish", slow)
        assert await stand.send(DATA) == len(DATA)
        assert codes == ["being_sent", "being_sent"] and stand.blobs.path(DIGEST).read_bytes() == DATA

    run(story())


def test_the_quota_counts_what_is_held_and_what_is_being_sent(tmp_path: Path) -> None:
    async def story() -> None:
        stand = Stand(tmp_path, quota=10_000)
        await stand.send(b"a" * 6_000)
        error = await refused(stand.send(b"b" * 5_000))
        assert isinstance(error, Refused) and error.code == "quota"
        assert "5.9K of 9.8K" in error.line and "4.9K more" in error.line and "shoal prune" in error.hint
        assert (await refused(stand.uploads.ask(ANN, DIGEST, 5_000))).code == "quota"
        assert await stand.send(b"b" * 5_000, owner=BOB) == 5_000, "everyone has their own"
        async with stand.uploads.turn(ANN, DIGEST, 3_000, None):
            assert (await refused(stand.send(b"c" * 2_000))).code == "quota"
        assert await stand.send(b"c" * 2_000) == 2_000
        assert await stand.send(b"a" * 6_000) == 6_000, "what one has is no more"
        assert stand.parts() == []

    run(story())


def test_a_part_that_nobody_sends_any_more_makes_room(tmp_path: Path) -> None:
    async def story() -> None:
        stand = Stand(tmp_path, quota=10_000)
        await stand.send(b"a" * 6_000, total=9_000, start=0, digest=DIGEST)
        assert await stand.send(b"b" * 4_000) == 4_000
        assert stand.uploads.offset(ANN, DIGEST) == 6_000
        assert await stand.send(b"c" * 1_000) == 1_000
        assert stand.uploads.offset(ANN, DIGEST) == 0

    run(story())


def test_an_owner_has_few_parts_and_the_oldest_idle_one_makes_room(stand: Stand) -> None:
    async def story() -> None:
        digests = [digest_of([bytes([number])]) for number in range(MAX_PARTS + 1)]
        for digest in digests:
            stand.now += 1
            await stand.send(b"x", total=10, start=0, digest=digest)
        assert stand.uploads.offset(ANN, digests[0]) == 0 and stand.uploads.offset(ANN, digests[1]) == 1
        assert len([name for name in stand.parts() if "." not in name]) == MAX_PARTS
        turns = [stand.uploads.turn(ANN, digest, 10, 1) for digest in digests[1:]]
        for turn in turns:
            await turn.__aenter__()
        assert isinstance(await refused(stand.send(b"one more")), TooBusy)
        assert await stand.send(b"one more", owner=BOB) == 8
        for turn in turns:
            await turn.__aexit__(None, None, None)
        assert await stand.send(b"one more") == 8

    run(story())


def test_all_together_are_bounded_too(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(uploads, "MAX_UPLOADS", 1)
        async with stand.uploads.turn(ANN, DIGEST, 10, None):
            assert isinstance(await refused(stand.send(b"x", owner=BOB)), TooBusy)
        assert await stand.send(b"x", owner=BOB) == 1

    run(story())


def test_a_disk_that_is_nearly_full_takes_nothing(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        await stand.send(DATA[:1000], total=len(DATA), start=0, digest=DIGEST)
        monkeypatch.setattr(files, "MOST_SPARE", 1 << 62)
        monkeypatch.setattr(files, "SPARE_SHARE", 1)
        for ask in (stand.send(DATA), stand.uploads.ask(BOB, DIGEST, 5), stand.send(b"x", owner=BOB)):
            error = await refused(ask)
            assert error.code == "disk_full" and "must stay" in error.line
        assert not stand.uploads.is_busy and stand.parts() == [DIGEST[7:]]

    run(story())


def test_a_disk_that_fills_up_leaves_nothing_behind(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    async def story() -> None:
        monkeypatch.setattr(os, "writev", full)
        error = await refused(stand.send(DATA))
        assert error.code == "disk_full" and "No space left" in error.line
        assert stand.parts() == [] and stand.uploads.offset(ANN, DIGEST) == 0 and not stand.uploads.is_busy

    run(story())


def test_short_writes_and_many_small_pieces_are_put_together(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    writev = os.writev

    async def story() -> None:
        monkeypatch.setattr(os, "writev", lambda fd, views: writev(fd, [views[0][:7_001]]))
        assert await stand.send(DATA[:200_000]) == 200_000
        found = stand.blobs.path(digest_of([DATA[:200_000]])).read_bytes()
        assert hashlib.sha256(found).digest() == hashlib.sha256(DATA[:200_000]).digest()

    run(story())


def test_who_sends_nothing_is_given_up_and_what_came_stays(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(uploads, "STALL", 0.05)
        async with stand.uploads.turn(ANN, DIGEST, len(DATA), 0) as upload:
            error = await refused(stand.uploads.take(upload, FakeBody(DATA[:5_000], ends=False), len(DATA)))
        assert error.code == "too_slow" and stand.uploads.offset(ANN, DIGEST) == 5_000

    run(story())


def test_parts_are_kept_a_day_also_over_restarts(stand: Stand) -> None:
    async def story() -> None:
        await stand.send(b"x", total=10, start=0, digest=DIGEST)
        folder = stand.folder / PARTS / key_of(ANN)
        (folder / f"{'0' * 64}.3").write_bytes(b"of a sender who died")
        os.utime(folder / DIGEST[7:], (900.0, 900.0))
        stand.begin()
        assert stand.parts() == [DIGEST[7:]]
        stand.now = 900.0 + KEEP_PARTS
        assert stand.uploads.sweep() == 0 and stand.uploads.offset(ANN, DIGEST) == 1
        stand.now += 1
        assert stand.uploads.sweep() == 1 and stand.uploads.offset(ANN, DIGEST) == 0
        stand.blobs.close()

    run(story())
    assert [name for name in stand.parts() if "." not in name] == []


def test_a_part_longer_than_the_blob_is_not_gone_on_with(stand: Stand) -> None:
    async def story() -> None:
        await stand.send(b"x" * 100, total=1000, start=0, digest=DIGEST)
        error = await refused(stand.uploads.ask(ANN, DIGEST, 50))
        assert isinstance(error, WrongOffset) and error.offset == 0

    run(story())
