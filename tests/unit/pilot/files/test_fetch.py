"""A file from the first place that gives the right bytes, whatever the others give [promise I15]."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.data import sources
from shoal.data.sources import CACHE, ORIGIN, PEER, SERVER, Place
from shoal.model.blobs import digest_of
from shoal.pilot.files.fetch import Fetcher, NoBlob, NotHere, SourceFailed, Write
from shoal.pilot.files.host_cache import HostCache, Limits

DATA = os.urandom(40_000)
DIGEST = digest_of([DATA])


class Fake:
    """A place in this process that gives what it was told to."""

    def __init__(self, kind: str, *parts: bytes | float | Exception, name: str = "") -> None:
        self.place = Place(kind, name or kind)
        self.parts = parts
        self.asked = 0

    def fetch(self, digest: str, size: int | None, write: Write, deadline: float) -> None:
        self.asked += 1
        for part in self.parts:
            if isinstance(part, bytes):
                write(part)
            elif isinstance(part, float):
                time.sleep(min(part, max(0.0, deadline - time.monotonic()) + 0.001))
            else:
                raise part


@pytest.fixture
def cache(tmp_path: Path) -> HostCache:
    return HostCache(str(tmp_path / "cache"), Limits(1 << 20, 0))


def content(fetcher: Fetcher, digest: str = DIGEST, size: int | None = None) -> tuple[bytes, str]:
    fetched = fetcher.fetch(digest, size)
    data = Path(fetched.held.path).read_bytes()
    fetched.held.close()
    return data, fetched.origin


def test_a_file_is_fetched_once_and_found_in_the_cache_afterwards(cache: HostCache) -> None:
    server = Fake(SERVER, DATA[:10], DATA[10:])
    fetcher = Fetcher(cache, [server])
    assert content(fetcher) == (DATA, SERVER) and content(fetcher) == (DATA, CACHE)
    assert content(Fetcher(HostCache(cache.folder), [])) == (DATA, CACHE), "another pilot has it, too"
    assert server.asked == 1


def test_one_place_after_the_other_is_tried_and_only_those_that_failed_are_reported(cache: HostCache) -> None:
    places = [
        Fake(ORIGIN, DATA),
        Fake(SERVER, NotHere("it has none")),
        Fake(PEER, b"lies" * 10_000, name="liar"),
        Fake(PEER, SourceFailed("it broke off"), name="broken"),
    ]
    fetcher = Fetcher(cache, places)
    assert content(fetcher, size=len(DATA)) == (DATA, ORIGIN)
    assert [one.place.name for one in fetcher.take_failures()] == ["liar", "broken"]
    (other := os.urandom(10))
    places[0].parts = places[1].parts = (other,)
    assert content(fetcher, digest_of([other])) == (other, SERVER)
    assert places[2].asked == places[3].asked == 1, "those that failed lately are tried last"


def test_when_nobody_has_it_everybody_is_named(cache: HostCache) -> None:
    fetcher = Fetcher(cache, [Fake(PEER, NotHere("no such file")), Fake(SERVER, SourceFailed("it is full"))])
    with pytest.raises(NoBlob, match="peer: no such file; server: it is full") as caught:
        fetcher.fetch(DIGEST)
    assert caught.value.transient
    with pytest.raises(NoBlob, match="nobody has"):
        Fetcher(cache).fetch(DIGEST)
    with pytest.raises(NoBlob, match="does not name a blob"):
        Fetcher(cache).fetch("sha256:../../etc/passwd")


def test_a_place_that_gives_byte_after_byte_is_cut(cache: HostCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """[input E66]"""
    monkeypatch.setitem(sources.TIMEOUTS, PEER, 0.02)
    slow = Fake(PEER, *(part for _ in range(1000) for part in (b"x", 0.005)))
    fetcher = Fetcher(cache, [slow, Fake(SERVER, DATA)])
    assert content(fetcher) == (DATA, SERVER)
    assert [one.why for one in fetcher.take_failures()] == ["it is too slow"]


def test_threads_and_pilots_that_need_the_same_file_fetch_it_once(cache: HostCache) -> None:
    server = Fake(SERVER, DATA[:10], 0.05, DATA[10:])
    fetchers = [Fetcher(HostCache(cache.folder), [server]) for _ in range(3)]
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda one=one: found.append(content(one)[0])) for one in fetchers * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [DATA] * 6 and server.asked == 1


def test_what_has_no_place_in_the_cache_is_used_once_beside_it(tmp_path: Path) -> None:
    cache = HostCache(str(tmp_path / "cache"), Limits(30_000, 0))
    fetcher = Fetcher(cache, [Fake(SERVER, DATA[:25_000], DATA[25_000:])], str(tmp_path / "beside"))
    for size in (len(DATA), None):
        fetched = fetcher.fetch(DIGEST, size)
        assert Path(fetched.held.path).read_bytes() == DATA and fetched.held.is_private
        fetched.held.close()
        assert os.listdir(tmp_path / "beside") == [] and cache.space()[0] == 0


def test_a_file_that_is_larger_than_what_is_free_is_the_tasks_misfit(cache: HostCache, tmp_path: Path) -> None:
    fetcher = Fetcher(cache, [Fake(SERVER, DATA)], str(tmp_path / "beside"))
    with pytest.raises(NoBlob, match="are free in") as caught:
        fetcher.fetch(DIGEST, 1 << 60)
    assert caught.value.too_large


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], check=False, capture_output=True
    ).returncode:
        pytest.skip("no mounts here: that a full disk harms nothing was NOT tested")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_disk_that_fills_up_in_the_middle_is_the_hosts_failure_and_leaves_nothing(small_disk: Path) -> None:
    cache = HostCache(str(small_disk / "cache"), Limits(1 << 30, 0))
    data = os.urandom(700_000)

    def fill(number: int) -> bytes:
        (small_disk / "filler").write_bytes(bytes(500_000))
        return data[300_000:]

    source = Fake(SERVER)

    def fetch(digest: str, size: int | None, write: Write, deadline: float) -> None:
        write(data[:300_000])
        write(fill(1))

    source.fetch = fetch  # type: ignore[method-assign]
    fetcher = Fetcher(cache, [source], str(small_disk / "beside"))
    with pytest.raises(NoBlob) as caught:
        fetcher.fetch(digest_of([data]), len(data))
    assert caught.value.no_space and not caught.value.too_large
    assert not fetcher.take_failures(), "the place is not to blame"
    assert os.listdir(small_disk / "cache" / "parts") == os.listdir(small_disk / "beside") == []
    (small_disk / "filler").unlink()
    source.fetch = lambda digest, size, write, deadline: write(data)  # type: ignore[method-assign]
    assert content(fetcher, digest_of([data]), len(data)) == (data, SERVER), "space came back"


def _bad(rng: random.Random, data: bytes) -> tuple[bytes | float | Exception, ...]:
    """What a bad place gives instead of these bytes."""
    at = rng.randrange(len(data))
    return rng.choice(
        [
            (data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :],),  # one bit
            (data[:at],),
            (data, rng.randbytes(1)),
            (rng.randbytes(len(data)),),
            (data[:at], SourceFailed("it broke off")),
            (data[:at], 0.5, data[at:], 0.5, b""),  # it stalls
            (),
            (data[::-1],),
            (NotHere("it told that it has it"),),
        ]
    )


def test_of_a_thousand_bad_transfers_none_is_accepted_and_each_file_comes_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[promise I15]"""
    for name in sources.TIMEOUTS:
        monkeypatch.setitem(sources.TIMEOUTS, name, 0.003)
    monkeypatch.setattr(sources, "LEAST_RATE", 1e12)
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    rng = random.Random(15)
    cache, bad, tried = HostCache(str(tmp_path / "cache"), Limits(20_000, 0)), 0, 0
    while tried < 1_000 * (10 if os.environ.get("SHOAL_PROVE") else 1):
        data = rng.randbytes(rng.randint(1, 5_000))
        wrong = [Fake(PEER, *_bad(rng, data), name=f"peer {at}") for at in range(3)]
        fetcher = Fetcher(cache, [Fake(SERVER, data), *wrong], str(tmp_path / "beside"))
        size = rng.choice([None, len(data)])
        assert content(fetcher, digest_of([data]), size) == (data, SERVER)
        bad += len(fetcher.take_failures())
        tried += sum(one.asked for one in wrong)
    assert bad > tried / 2
    for name in os.listdir(os.path.join(cache.folder, "files")):
        assert hashlib.sha256(Path(cache.folder, "files", name).read_bytes()).hexdigest() == name
