"""The cache of a host: shared by processes, never beyond its limit, whole and right after a kill at any point."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import multiprocessing
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from shoal.model.blobs import digest_of
from shoal.pilot.files import host_cache
from shoal.pilot.files.host_cache import HostCache, Limits
from shoal.pilot.files.parts import Held, NoRoom, WrongBytes

MIB = 1 << 20


def data_of(number: int, size: int = 1000) -> bytes:
    return hashlib.sha256(str(number).encode()).digest() * (size // 32) + bytes(size % 32)


def put(cache: HostCache, data: bytes, size: int | None = None) -> str:
    """Write a file, and let it go."""
    digest = digest_of([data])
    part = cache.begin(digest, len(data) if size is None else size)
    assert part is not None
    try:
        part.write(data)
        part.finish().close()
    except BaseException:
        part.drop()
        raise
    return digest


def read(held: Held | None) -> bytes:
    assert held is not None
    return Path(held.path).read_bytes()


@pytest.fixture
def cache(tmp_path: Path) -> HostCache:
    return HostCache(str(tmp_path / "cache"), Limits(10_000, 0))


def test_a_file_is_kept_under_its_digest_for_everybody_on_the_host(cache: HostCache) -> None:
    digest = put(cache, data_of(1))
    other = HostCache(cache.folder)
    held = other.open(digest)
    assert read(held) == data_of(1)
    assert os.stat(held.path if held else "").st_mode & 0o777 == 0o444
    assert other.limits() == Limits(10_000, 0), "what somebody asked for holds for all"
    assert os.listdir(os.path.join(cache.folder, "parts")) == []


def test_the_least_recently_used_file_goes_and_its_end_is_told(cache: HostCache) -> None:
    first, second = put(cache, data_of(1, 4000)), put(cache, data_of(2, 4000))
    other = HostCache(cache.folder)
    assert sorted(other.take_changes()[0]) == sorted([(first, 4000), (second, 4000)])
    time.sleep(0.01)
    held = cache.open(first)
    assert held is not None
    held.close()
    third = put(other, data_of(3, 4000))
    assert other.take_changes() == ([(third, 4000)], [second])
    assert other.take_changes() == ([], [])
    assert cache.open(second) is None
    assert {digest for digest, _ in HostCache(cache.folder).take_changes()[0]} == {first, third}, (
        "the first call gives all"
    )


def test_what_a_pilot_uses_or_a_task_has_a_link_to_does_not_go(cache: HostCache, tmp_path: Path) -> None:
    used, linked, free = (put(cache, data_of(number, 3000)) for number in (1, 2, 3))
    other = HostCache(cache.folder)
    held, path = other.open(used), os.path.join(cache.folder, "files", linked[7:])
    os.link(path, tmp_path / "input")
    put(cache, data_of(4, 3000))
    assert cache.open(free) is None
    with pytest.raises(NoRoom, match="10,000 bytes"):
        put(cache, data_of(5, 6000))
    assert held is not None
    held.close()
    (tmp_path / "input").unlink()
    put(cache, data_of(5, 6000))
    assert cache.open(used) is None and cache.open(linked) is None, "the last links are gone"


@pytest.mark.parametrize("size", [None, 1000])
def test_only_whole_and_right_bytes_get_a_name(cache: HostCache, size: int | None) -> None:
    digest = digest_of([data_of(1)])
    for wrong in (data_of(2), data_of(1)[:-1], b"", data_of(1) + b"x"):
        part = cache.begin(digest, size)
        assert part is not None
        with pytest.raises(WrongBytes):
            part.write(wrong)
            part.finish()
        part.restart()
        part.write(data_of(1)[:500])
        part.drop()
    assert cache.open(digest) is None and cache.space()[0] == 0


def test_damaged_bytes_are_never_served(cache: HostCache) -> None:
    digest = put(cache, data_of(1))
    path = Path(cache.folder, "files", digest[7:])
    for damage in (data_of(2), data_of(1)[:-1], b""):
        path.chmod(0o644)
        path.write_bytes(damage)
        assert cache.open(digest) is None and not path.exists(), "its look changed"
        put(cache, data_of(1))
    found = path.stat()
    path.chmod(0o644)
    path.write_bytes(data_of(2))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    restarted = HostCache(cache.folder)
    assert restarted.open(digest) is None, "it is compared on the first use of each process"


def test_a_file_is_written_by_one_at_a_time(cache: HostCache) -> None:
    digest = digest_of([data_of(1)])
    part = cache.begin(digest, 1000)
    assert (
        part is not None and cache.begin(digest, 1000) is None and HostCache(cache.folder).begin(digest, None) is None
    )
    part.write(data_of(1))
    part.finish().close()
    assert cache.open(digest) is not None


def test_a_file_of_unknown_size_makes_place_as_it_grows(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "cache"), Limits(20 * MIB, 0))
    old = [put(cache, data_of(number, 5 * MIB)) for number in range(3)]
    data = data_of(9, 17 * MIB)
    part = cache.begin(digest_of([data]), None)
    assert part is not None
    for at in range(0, len(data), MIB):
        part.write(data[at : at + MIB])
        assert cache.space()[0] <= 20 * MIB
    part.finish().close()
    assert not any(cache.open(digest) for digest in old)
    part = cache.begin(old[0], None)
    assert part is not None
    with pytest.raises(NoRoom):
        for _ in range(21):
            part.write(bytes(MIB))
    part.drop()


def test_the_free_part_of_the_disk_bounds_the_cache_too(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "cache"), Limits(1 << 60, 1 << 59))
    with pytest.raises(NoRoom):
        put(cache, data_of(1))
    assert cache.space()[1] == 0


@pytest.mark.parametrize("wrong", ["link", "open", "file"])
def test_a_directory_that_is_not_ours_alone_is_refused(tmp_path: Path, wrong: str) -> None:
    folder = tmp_path / "cache"
    if wrong == "link":
        (tmp_path / "other").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "other")
    elif wrong == "open":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        folder.write_text("")
    with pytest.raises(NoRoom, match="not ours alone"):
        put(HostCache(str(folder)), data_of(1))
    own = HostCache(str(folder), instead=str(tmp_path / "own"))
    assert own.open(put(own, data_of(1))) is not None and own.folder == str(tmp_path / "own")


def test_nothing_is_made_before_the_first_file_comes(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "cache"), Limits(1000, 0))
    assert cache.take_changes() == ([], []) and cache.listing() == [] and cache.space() == (0, 0, 0)
    assert cache.open(digest_of([b""])) is None and cache.clean(0.0) == (0, 0)
    assert not (tmp_path / "cache").exists()


def test_a_cache_that_somebody_removed_is_made_anew(cache: HostCache) -> None:
    digest = put(cache, data_of(1))
    shutil.rmtree(cache.folder)
    assert cache.open(digest) is None
    put(cache, data_of(1))
    assert read(HostCache(cache.folder).open(digest)) == data_of(1)
    assert cache.take_changes() == ([(digest, 1000)], [])


@pytest.mark.parametrize("part", ["files", "parts"])
def test_a_part_of_the_cache_that_somebody_removed_is_made_anew(cache: HostCache, part: str) -> None:
    """The next pilot ended, with all its tasks."""
    digest = put(cache, data_of(1))
    other = HostCache(cache.folder)
    assert other.open(digest) is not None
    shutil.rmtree(os.path.join(cache.folder, part))
    fresh = HostCache(cache.folder)
    for one in (other, fresh, cache):
        one.take_changes()
        one.tags()
        one.listing()
    second = put(fresh, data_of(2))
    kept = {second} if part == "files" else {digest, second}
    for one in (fresh, other, cache):
        assert read(one.open(second)) == data_of(2)
        assert {listed.digest for listed in one.listing()} == kept
        assert one.tags()["cache_files"] == len(kept)


def test_without_locks_a_pilot_has_a_cache_of_its_own_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lustre without `-o flock`."""
    have_none, real = str(tmp_path / "cache"), fcntl.flock

    def flock(fd: int, what: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(have_none):
            raise OSError(errno.ENOSYS, "Function not implemented")
        real(fd, what)

    monkeypatch.setattr(fcntl, "flock", flock)
    shared = HostCache(have_none, instead=str(tmp_path / "own"))
    assert shared.open(put(shared, data_of(1))) is not None and shared.folder == str(tmp_path / "own")
    without = HostCache(have_none)
    with pytest.raises(NoRoom, match="not implemented"):
        put(without, data_of(1))
    assert (without.take_changes(), without.tags(), without.open(digest_of([data_of(1)]))) == (([], []), {}, None)


def test_who_keeps_the_lock_stops_nobody_for_ever(cache: HostCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pilot that was suspended while it held the lock."""
    digest = put(cache, data_of(1))
    other = HostCache(cache.folder, Limits(10_000, 0))
    assert other.take_changes() == ([(digest, 1000)], [])
    part = other.begin(digest_of([data_of(2)]), 1000)
    assert part is not None
    part.write(data_of(2))
    monkeypatch.setattr(host_cache, "LOCK_WITHIN", 0.1)
    with open(os.path.join(cache.folder, "lock"), "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert other.take_changes() == ([], []) and other.tags() == {}
        assert read(other.open(digest)) == data_of(1), "what is there is used all the same"
        with pytest.raises(NoRoom, match=r"keeps the cache .* locked"):
            put(other, data_of(3))
        with pytest.raises(NoRoom, match=r"keeps the cache .* locked"):
            part.finish()
        part.drop()
    assert read(other.open(put(other, data_of(2)))) == data_of(2)
    assert len(other.take_changes()[0]) == 1 and other.tags()["cache_files"] == 2


def test_pilots_that_write_by_turns_read_what_changed_and_not_all(
    cache: HostCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = put(cache, data_of(1))
    other = HostCache(cache.folder)
    assert other.take_changes() == ([(first, 1000)], []) and cache.take_changes() == ([(first, 1000)], [])
    read_all: list[str] = []
    scan = HostCache._scan

    def count_scan(self: HostCache) -> None:
        read_all.append(self.folder)
        scan(self)

    monkeypatch.setattr(HostCache, "_scan", count_scan)
    second, third = put(other, data_of(2)), put(cache, data_of(3))
    for one in (other, cache):
        assert sorted(one.take_changes()[0]) == sorted([(second, 1000), (third, 1000)])
    assert other.tags()["cache_files"] == cache.tags()["cache_files"] == 3
    assert not read_all
    assert HostCache(cache.folder).clean(time.time() + 60)[0] == 3
    read_all.clear()
    for one in (other, cache):
        added, removed = one.take_changes()
        assert added == [] and sorted(removed) == sorted([first, second, third])
    assert other.tags()["cache_files"] == cache.tags()["cache_files"] == 0 and not read_all
    fourth = put(cache, data_of(4))
    assert other.take_changes() == ([(fourth, 1000)], []) and cache.take_changes() == ([(fourth, 1000)], [])


def test_people_see_and_clean_it(cache: HostCache) -> None:
    first, second = put(cache, data_of(1)), put(cache, data_of(2))
    held = cache.open(first)
    assert {(one.digest, one.size, one.is_in_use) for one in HostCache(cache.folder).listing()} == {
        (first, 1000, True),
        (second, 1000, False),
    }
    other = HostCache(cache.folder)
    assert other.clean(time.time() - 60) == (0, 0)
    assert other.clean(time.time() + 60) == (1, 1000)
    assert held is not None and read(held) == data_of(1)


def _write_for_ever(folder: str, seed: int) -> None:
    cache = HostCache(folder)
    for number in range(seed * 1000, seed * 1000 + 1000):
        data = data_of(number, 1000 + number * 37 % 3000)
        try:
            part = cache.begin(digest_of([data]), len(data) if number % 2 else None)
        except NoRoom:
            continue
        if part is None:
            continue
        try:
            part.write(data[:700])
            part.write(data[700:])
            part.finish().close()
        except NoRoom:
            part.drop()


def test_pilots_that_write_at_once_and_are_killed_leave_whole_files_below_the_limit(tmp_path: Path) -> None:
    """[CMS C4] Several processes write as fast as they can, and are killed at any point."""
    folder = str(tmp_path / "cache")
    put(HostCache(folder, Limits(20_000, 2_000)), b"the first")
    context = multiprocessing.get_context("fork")
    watcher, most = HostCache(folder), 0
    for turn in range(int(os.environ.get("SHOAL_PROVE", "0")) * 30 + 4):
        writers = [context.Process(target=_write_for_ever, args=(folder, 10 * turn + at)) for at in range(3)]
        for writer in writers:
            writer.start()
        end = time.monotonic() + 0.15
        while time.monotonic() < end:
            most = max(most, watcher.space()[0])
        for writer in writers:
            assert writer.pid is not None
            os.kill(writer.pid, signal.SIGKILL)
            writer.join()
        assert watcher.space()[0] <= 18_000
        assert os.listdir(os.path.join(folder, "parts")) == [], "what the dead were writing is gone"
    assert 0 < most <= 18_000
    for name in os.listdir(os.path.join(folder, "files")):
        assert hashlib.sha256(Path(folder, "files", name).read_bytes()).hexdigest() == name
