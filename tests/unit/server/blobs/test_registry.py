"""Who holds which blob, what that counts, and when one goes; with a writer that commits when it is told to."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from shoal.db.sqlite import Database
from shoal.engine.changes import Change
from shoal.model.blobs import digest_of
from shoal.model.errors import BadInput, NotFound, Refused
from shoal.server.blobs.files import PARTS, Part, key_of
from shoal.server.blobs.registry import (
    CHECKPOINT_GRACE,
    GRACE,
    KEEP_REPLACED,
    KEEP_UNNAMED,
    KEEP_UNUSED,
    Blobs,
    checkpoints_of,
)

ANN, BOB = "ann", "bob"


class Stand:
    """Blobs of one server after another over one database, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "blobs"
        self.folder.mkdir()
        self.database = Database.open(":memory:")
        self.now = 1000.0
        self.held_back: list[Callable[[], None]] | None = None  # a list: commits wait in it
        self.blobs = self.begin()
        self._parts = 0

    def begin(self, restored: float = float("-inf")) -> Blobs:
        """A server starts."""
        held = self.database.blobs()
        self.blobs = Blobs(self.folder, held, self.keep, lambda: self.now, durable=False, restored=restored)
        return self.blobs

    def keep(self, changes: Sequence[Change], then: Callable[[], None] | None) -> None:
        """The writer."""

        def commit() -> None:
            self.database.apply(changes)
            if then is not None:
                then()

        if self.held_back is None:
            commit()
        else:
            self.held_back.append(commit)

    def part(self, data: bytes, name: str = "") -> Part:
        """An upload that has all its bytes."""
        self._parts += 1
        digest = name or digest_of([data])
        part = Part(self.folder / PARTS / key_of(ANN) / f"{digest.partition(':')[2]}.{self._parts}")
        part.open(afresh=True)
        part.append([data])
        return part

    async def put(self, data: bytes, owner: str = ANN) -> str:
        """Upload a blob."""
        await self.blobs.name(owner, self.part(data))
        return digest_of([data])

    def is_on_disk(self, digest: str) -> bool:
        return self.blobs.path(digest).exists()


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def test_a_blob_has_its_name_when_it_is_whole_and_only_its_sender_holds_it(stand: Stand) -> None:
    async def story() -> None:
        digest = await stand.put(b"hello")
        path = stand.blobs.path(digest)
        assert path.read_bytes() == b"hello" and path.stat().st_mode & 0o777 == 0o400
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert stand.blobs.owners(digest) == {ANN} and stand.blobs.size(digest) == 5
        assert await stand.blobs.is_there(digest)
        assert not list((stand.folder / PARTS).glob("*/*"))

    run(story())


def test_wrong_bytes_are_thrown_away(stand: Stand) -> None:
    async def story() -> None:
        digest = digest_of([b"hello"])
        with pytest.raises(BadInput) as caught:
            await stand.blobs.name(ANN, stand.part(b"hullo", digest))
        assert caught.value.code == "wrong_digest"
        assert stand.blobs.size(digest) is None and not stand.is_on_disk(digest)
        assert not list((stand.folder / PARTS).glob("*/*")) and stand.database.blobs() == ([], [])

    run(story())


def test_a_claim_wants_a_reference_of_the_same_owner_and_takes_all_or_none(stand: Stand) -> None:
    async def story() -> None:
        one, two = await stand.put(b"one"), await stand.put(b"two", BOB)
        with pytest.raises(NotFound) as caught:
            stand.blobs.claim(ANN, 7, [one, two])
        assert caught.value.code == "unknown_blob" and two in caught.value.message
        assert stand.blobs.release(7) == 0
        stand.blobs.claim(ANN, 7, [one, one])
        stand.blobs.claim(ANN, 7, [one])
        assert stand.blobs.release(7) == 1
        with pytest.raises(NotFound):
            stand.blobs.claim(ANN, 5, ["sha256:" + "0" * 64])
        with pytest.raises(NotFound):
            stand.blobs.claim("", 1, ["../../etc/passwd"])

    run(story())


def test_an_owner_is_charged_once_for_each_blob(stand: Stand) -> None:
    async def story() -> None:
        digest = await stand.put(b"12345")
        await stand.put(b"12345")
        await stand.put(b"12345", BOB)
        await stand.put(b"123")
        stand.blobs.claim(ANN, 1, [digest])
        assert (stand.blobs.used(ANN), stand.blobs.used(BOB), stand.blobs.used("carl")) == (8, 5, 0)
        stand.now += KEEP_UNUSED + 1
        await stand.blobs.sweep()
        assert (stand.blobs.used(ANN), stand.blobs.used(BOB)) == (5, 0)
        stand.blobs.release(1)
        assert stand.blobs.used(ANN) == 0

    run(story())


def test_what_somebody_at_work_has_put_stays_as_long_as_they_work(stand: Stand) -> None:
    """A call may name it inside its arguments, where the server does not look."""

    async def story() -> None:
        digest = await stand.put(b"shared")
        stand.blobs.has_open_run = lambda owner: owner == ANN
        stand.now += 3 * KEEP_UNUSED
        assert await stand.blobs.sweep() == 0 and stand.blobs.owners(digest) == {ANN}
        stand.blobs.has_open_run = lambda owner: False
        await stand.blobs.sweep()
        assert stand.blobs.owners(digest) == set()

    run(story())


def test_what_was_put_and_not_used_goes_after_a_day_and_its_grace(stand: Stand) -> None:
    async def story() -> None:
        kept, unused = await stand.put(b"kept"), await stand.put(b"unused")
        stand.blobs.claim(ANN, 1, [kept])
        stand.now += KEEP_UNUSED - 1
        assert await stand.blobs.sweep() == 0 and stand.blobs.owners(unused) == {ANN}
        stand.now += 2
        assert await stand.blobs.sweep() == 0 and stand.blobs.owners(unused) == set()
        assert stand.is_on_disk(unused), "somebody may be reading it"
        stand.now += GRACE + 1
        assert await stand.blobs.sweep() == 1
        assert not stand.is_on_disk(unused) and stand.is_on_disk(kept)
        assert [row.digest for row in stand.database.blobs()[0]] == [kept]

    run(story())


def test_whoever_asks_for_it_again_keeps_it_for_another_day(stand: Stand) -> None:
    async def story() -> None:
        digest = await stand.put(b"wanted")
        for _ in range(3):
            stand.now += KEEP_UNUSED - 10
            assert await stand.blobs.renew(ANN, digest)
            await stand.blobs.sweep()
        stand.now += KEEP_UNUSED - 10
        stand.blobs.claim(ANN, 0, [digest])  # as a submission does before it has a number
        stand.now += 20
        await stand.blobs.sweep()
        assert stand.blobs.owners(digest) == {ANN}
        assert not await stand.blobs.renew(BOB, digest), "to ask is not to have"
        assert stand.blobs.owners(digest) == {ANN}

    run(story())


def test_a_file_that_vanished_is_not_said_to_be_there_and_can_be_put_again(stand: Stand) -> None:
    async def story() -> None:
        digest = await stand.put(b"gone")
        stand.blobs.path(digest).unlink()
        assert not await stand.blobs.renew(ANN, digest) and not await stand.blobs.is_there(digest)
        await stand.put(b"gone")
        assert await stand.blobs.renew(ANN, digest)
        stand.blobs.path(digest).unlink()
        stand.blobs.path(digest).symlink_to("/etc/passwd")
        assert not await stand.blobs.is_there(digest)

    run(story())


def test_the_next_server_knows_what_this_one_knew(stand: Stand) -> None:
    async def story() -> None:
        one, two = await stand.put(b"one"), await stand.put(b"two", BOB)
        stand.blobs.claim(ANN, 3, [one])
        after = stand.begin()
        assert after.owners(one) == {ANN} and after.owners(two) == {BOB}
        assert (after.used(ANN), after.used(BOB)) == (3, 3)
        assert after.release(3) == 1 and await after.sweep() == 0
        assert stand.is_on_disk(one) and stand.is_on_disk(two)

    run(story())


def test_a_start_removes_what_a_crash_left(stand: Stand) -> None:
    """A file that got its name and no row, and a row that nobody held when the server ended."""

    async def story() -> None:
        orphan, bare = stand.part(b"orphan"), await stand.put(b"bare")
        name = orphan.name
        stand.now += KEEP_UNUSED + 1
        await stand.blobs.sweep()
        orphan.publish(stand.folder, durable=True)
        after = stand.begin()
        assert stand.is_on_disk(name) and stand.is_on_disk(bare)
        assert await after.sweep() == 2
        assert not stand.is_on_disk(name) and not stand.is_on_disk(bare)
        assert stand.database.blobs() == ([], [])

    run(story())


def test_after_a_restore_the_files_of_the_replaced_database_stay_for_a_day(stand: Stand) -> None:
    """Both what it alone knows, and what the restored one would let go of: the restore may be undone."""

    async def story() -> None:
        orphan, bare = stand.part(b"orphan"), await stand.put(b"bare")
        name = orphan.name
        orphan.publish(stand.folder, durable=True)
        stand.now += 2 * KEEP_UNUSED
        after = stand.begin(restored=stand.now)
        for _ in range(3):
            stand.now += KEEP_REPLACED / 4
            assert await after.sweep() == 0
        assert stand.is_on_disk(name) and stand.is_on_disk(bare)
        stand.now += KEEP_REPLACED / 4
        assert await after.sweep() == 2
        assert not stand.is_on_disk(name) and not stand.is_on_disk(bare)

    run(story())


def test_an_upload_is_answered_after_the_commit(stand: Stand) -> None:
    async def story() -> None:
        stand.held_back = []
        putting = asyncio.ensure_future(stand.put(b"slow disk"))
        while not stand.held_back:
            await asyncio.sleep(0)
        assert not putting.done()
        stand.held_back[0]()
        assert stand.is_on_disk(await putting)

    run(story())


def test_bytes_that_come_while_their_blob_is_removed_are_not_lost(stand: Stand) -> None:
    async def story() -> None:
        digest = await stand.put(b"again")
        stand.now += KEEP_UNUSED + 1
        await stand.blobs.sweep()
        stand.now += GRACE + 1
        stand.held_back = []
        sweeping = asyncio.ensure_future(stand.blobs.sweep())
        while not stand.held_back:
            await asyncio.sleep(0)
        commit, stand.held_back = stand.held_back[0], None
        putting = asyncio.ensure_future(stand.put(b"again", BOB))  # its row is on the way out, its file is there
        for _ in range(50):
            await asyncio.sleep(0)
        assert not putting.done()
        commit()
        assert await sweeping == 1
        await putting
        assert stand.is_on_disk(digest) and stand.blobs.owners(digest) == {BOB}
        assert [row.digest for row in stand.database.blobs()[0]] == [digest]

    run(story())


def test_nothing_is_removed_while_an_upload_is_about_to_name_it(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        digest = await stand.put(b"twice")
        stand.now += KEEP_UNUSED + 1
        await stand.blobs.sweep()
        stand.now += GRACE + 1
        removed: list[int] = []
        publish = Part.publish

        def slow(part: Part, folder: Path, durable: bool) -> None:
            removed.append(asyncio.run_coroutine_threadsafe(stand.blobs.sweep(), loop).result(60.0))
            publish(part, folder, durable)

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(Part, "publish", slow)
        await stand.put(b"twice", BOB)
        assert removed == [0] and stand.is_on_disk(digest)
        assert await stand.blobs.sweep() == 0 and stand.is_on_disk(digest)

    run(story())


def test_two_owners_name_the_same_blob_at_once(stand: Stand) -> None:
    async def story() -> None:
        one, two = await asyncio.gather(stand.put(b"both" * 1000), stand.put(b"both" * 1000, BOB))
        assert one == two and stand.blobs.owners(one) == {ANN, BOB}
        assert stand.blobs.path(one).read_bytes() == b"both" * 1000
        assert len(stand.database.blobs()[0]) == 1 and len(stand.database.blobs()[1]) == 2

    run(story())


def test_a_disk_that_cannot_be_written_is_said_in_one_line(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def story() -> None:
        part = stand.part(b"never")
        monkeypatch.setattr(os, "fchmod", fail)
        with pytest.raises(Refused) as caught:
            await stand.blobs.name(ANN, part)
        assert caught.value.code == "disk_full" and "No space left" in caught.value.line
        assert not part.path.exists() and stand.blobs.owners(part.name) == set()
        assert stand.database.blobs() == ([], [])

    run(story())


def test_many_claims_are_few_steps(stand: Stand) -> None:
    async def story() -> None:
        digest = await stand.put(b"shared")
        for number in range(1, 1001):
            stand.blobs.claim(ANN, number, [digest])
        assert stand.blobs.used(ANN) == 6
        for number in range(1, 1001):
            assert stand.blobs.release(number) == 1
        assert stand.blobs.owners(digest) == {ANN}
        assert len(stand.database.blobs()[1]) == 1

    run(story())


# --- what the policy says of it
class Counter:
    """Somebody who counts what owners keep, and has a limit for all together."""

    def __init__(self, most: int) -> None:
        self.most, self.used = most, dict[str, int]()

    def tell(self, owner: str, delta: int) -> None:
        self.used[owner] = self.used.get(owner, 0) + delta

    def refuse(self, owner: str, size: int) -> str:
        return "" if sum(self.used.values()) + size <= self.most else "at most so many (quota of who=@phys)"


def test_what_owners_keep_is_told_as_it_changes_and_at_the_start(tmp_path: Path) -> None:
    async def work() -> None:
        stand, counter = Stand(tmp_path), Counter(10**9)
        stand.blobs.count_with(counter.tell, counter.refuse)
        first = await stand.put(b"abc")
        assert counter.used == {ANN: 3}
        await stand.put(b"abc")  # again: counted once
        stand.blobs.claim(ANN, 7, [first])
        await stand.put(b"defg", BOB)
        assert counter.used == {ANN: 3, BOB: 4}
        later = Counter(10**9)
        stand.begin().count_with(later.tell, later.refuse)
        assert later.used == {ANN: 3, BOB: 4}
        stand.now += KEEP_UNUSED + 1
        await stand.blobs.sweep()
        assert later.used == {ANN: 3, BOB: 0}, "what a run holds stays"
        stand.blobs.release(7)
        assert later.used == {ANN: 0, BOB: 0}

    asyncio.run(work())


def test_a_blob_over_a_quota_of_the_policy_is_refused_by_its_rule(tmp_path: Path) -> None:
    async def work() -> None:
        stand, counter = Stand(tmp_path), Counter(5)
        stand.blobs.count_with(counter.tell, counter.refuse)
        held = await stand.put(b"abc")
        for check in (stand.put(b"defg"), stand.put(b"defg", BOB)):
            with pytest.raises(Refused, match="quota of who=@phys") as found:
                await check
            assert found.value.code == "quota"
        stand.blobs.check_quota(ANN, held, 3)  # what is held is counted already
        await stand.put(b"abc")
        assert counter.used == {ANN: 3}

    asyncio.run(work())


def test_two_that_come_at_once_do_not_share_the_last_room(tmp_path: Path) -> None:
    async def work() -> None:
        stand, counter = Stand(tmp_path), Counter(4)
        stand.blobs.count_with(counter.tell, counter.refuse)
        done = await asyncio.gather(stand.put(b"abc"), stand.put(b"xyz", BOB), return_exceptions=True)
        assert sorted(type(one).__name__ for one in done) == ["Refused", "str"]
        assert sum(counter.used.values()) == 3

    asyncio.run(work())


def test_a_counter_that_is_made_anew_during_an_upload_counts_it_once(tmp_path: Path) -> None:
    """The engine was rebuilt between the reservation and the end: it gave back what the new one never had."""

    async def work() -> None:
        stand, before, after = Stand(tmp_path), Counter(10**9), Counter(10**9)
        stand.blobs.count_with(before.tell, before.refuse)
        await stand.put(b"ab", BOB)
        upload = asyncio.ensure_future(stand.put(b"abc"))
        while not before.used.get(ANN):
            await asyncio.sleep(0)
        assert not stand.blobs.used(ANN)
        stand.blobs.count_with(after.tell, after.refuse)
        assert after.used == {ANN: 3, BOB: 2}
        await upload
        assert after.used == {ANN: 3, BOB: 2}
        last = Counter(10**9)
        stand.blobs.count_with(last.tell, last.refuse)
        assert last.used == {ANN: 3, BOB: 2}

    asyncio.run(work())


# --- checkpoints
def test_of_a_tasks_checkpoints_only_the_newest_is_held_and_the_others_go_soon(stand: Stand) -> None:
    async def story() -> None:
        old, new = digest_of([b"old"]), digest_of([b"newer"])
        for data in (b"old", b"newer"):
            await stand.blobs.name(ANN, stand.part(data), checkpoints_of(7))
            assert stand.blobs.keep_checkpoint(ANN, 7, [digest_of([data])])
        assert stand.blobs.used(ANN) == 8
        assert stand.blobs.drop_checkpoints(lambda number: {new} if number == 7 else set()) == 1
        assert stand.blobs.used(ANN) == 5, "what is let go of is not counted"
        stand.now += CHECKPOINT_GRACE + 1
        assert await stand.blobs.sweep() == 1
        assert not stand.is_on_disk(old) and stand.is_on_disk(new)
        stand.begin()  # after a restart as well
        stand.now += KEEP_UNNAMED + 1
        assert stand.blobs.drop_checkpoints(lambda number: {new}) == 0
        stand.now += 3 * KEEP_UNUSED
        await stand.blobs.sweep()
        assert stand.is_on_disk(new), "a task may wait for long"
        assert stand.blobs.drop_checkpoints(lambda number: set()) == 1, "the run is over"

    run(story())


def test_a_checkpoint_that_no_exchange_has_named_yet_is_held_for_a_while(stand: Stand) -> None:
    async def story() -> None:
        await stand.blobs.name(ANN, stand.part(b"x"), checkpoints_of(7))
        assert stand.blobs.drop_checkpoints(lambda number: set()) == 0
        stand.now += KEEP_UNNAMED + 1
        assert stand.blobs.drop_checkpoints(lambda number: set()) == 1
        assert not stand.blobs.keep_checkpoint(ANN, 7, [digest_of([b"x"])]), "it is not theirs any more"

    run(story())


def test_a_checkpoint_does_not_take_what_else_holds_its_bytes(stand: Stand) -> None:
    async def story() -> None:
        digest = await stand.put(b"same")
        stand.blobs.claim(ANN, 7, [digest])
        assert stand.blobs.keep_checkpoint(ANN, 7, [digest])
        assert not stand.blobs.keep_checkpoint(BOB, 8, [digest]), "another's"
        assert stand.blobs.drop_checkpoints(lambda number: set()) == 1
        assert stand.blobs.holds(ANN, digest)
        assert stand.blobs.keep_checkpoint(ANN, 7, [digest])
        assert stand.blobs.release(7) == 2

    run(story())
