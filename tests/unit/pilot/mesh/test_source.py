"""A file from peers, over real connections: whatever they send, only right bytes are accepted [promise I15]."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.dht.peers import FileHead, GetFile, NoFile
from shoal.dht.routing_table import Contact
from shoal.model.limits import LEAST_SHARED
from shoal.pilot.files.fetch import NotHere
from shoal.pilot.mesh import frames, source
from shoal.pilot.mesh.peer_table import Finding
from shoal.pilot.mesh.source import NamedPeers, PeerSource
from shoal.pilot.mesh.strikes import Strikes
from shoal.wire.messages import Accusation, BlobPeers, Neighbour
from tests.unit.pilot.mesh.peers_here import Here, Written, here

SIZE = 700_000
Answer = Callable[[Any, GetFile], Any]


class Table:
    """A table in which a test says who is found; the second lookup finds the same."""

    def __init__(self, own: Contact, *holders: Contact) -> None:
        self.own, self.holders, self.size, self.asked = own, holders, 1, 0

    def find(self, key: int, again: bool = False) -> Finding:
        self.asked += 1
        return Finding(self.holders, 1, 0.0)


@pytest.fixture
def data() -> bytes:
    return os.urandom(SIZE)


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def answering(peer: Here, answer: Answer) -> list[GetFile]:
    """Have a peer answer as a test likes; returns what it is asked."""
    asked: list[GetFile] = []

    def send(stream: Any, wanted: GetFile) -> list[Any]:
        asked.append(wanted)
        answer(stream, wanted)
        return []

    peer.listener._send_file = send  # type: ignore[method-assign]
    return asked


def gives(data: bytes, count: int | None = None, size: int = SIZE) -> Answer:
    """Bytes of a file, from the offset on; so many of them at most."""

    def answer(stream: Any, wanted: GetFile) -> None:
        frames.send(stream, FileHead(size))
        stream.sendall(data[wanted.offset :][:count])
        if count is not None:
            raise ConnectionAbortedError

    return answer


def source_of(
    one: Here, *holders: Here, server: Callable[[str], BlobPeers | None] = lambda digest: None
) -> tuple[PeerSource, list[Accusation], Strikes]:
    accused: list[Accusation] = []
    strikes = Strikes()
    table: Any = Table(one.contact, *(holder.contact for holder in holders))
    made = PeerSource(table, one.links, strikes, server, lambda contact, accusation: accused.append(accusation))
    return made, accused, strikes


def fetch(made: PeerSource, digest: str) -> Written:
    written = Written(digest)
    made.fetch(digest, None, written, float("inf"))
    return written


def test_a_file_of_a_peer_comes_whole(tmp_path: Path, data: bytes) -> None:
    with here(tmp_path, 1, 2) as (one, two):
        answering(two, gives(data))
        assert fetch(source_of(one, two)[0], digest_of(data)).data == data


def test_peers_that_a_lease_names_are_asked_without_the_table(tmp_path: Path, data: bytes) -> None:
    with here(tmp_path, 1, 2, 3) as (one, two, three):
        answering(three, gives(data))
        absent = answering(two, lambda stream, wanted: frames.send(stream, NoFile()))
        unknown, _, _ = source_of(one)
        written = Written(digest_of(data))
        named = NamedPeers(unknown, (two.contact, three.contact))
        named.fetch(digest_of(data), None, written, float("inf"))
        assert written.data == data and len(absent) == 1
        with pytest.raises(NotHere, match="none of them"):
            NamedPeers(unknown, (two.contact,)).fetch(digest_of(data), None, Written(digest_of(data)), float("inf"))


def test_what_breaks_off_is_continued_at_another_peer(tmp_path: Path, data: bytes) -> None:
    with here(tmp_path, 1, 2, 3) as (one, two, three):
        answering(two, gives(data, 300_000))
        asked = answering(three, gives(data))
        assert fetch(source_of(one, two, three)[0], digest_of(data)).data == data
        assert 0 < asked[0].offset <= 300_000


def test_of_two_that_gave_parts_of_a_wrong_file_the_right_one_has_no_strike(tmp_path: Path, data: bytes) -> None:
    with here(tmp_path, 1, 2, 3) as (one, two, three):
        answering(two, gives(os.urandom(SIZE), 300_000))
        answering(three, gives(data))
        made, _, strikes = source_of(one, two, three)
        written = fetch(made, digest_of(data))
        assert written.data == data
        assert written.restarts == 1
        assert strikes.order([two.contact, three.contact], time.monotonic())[0] == three.contact


def test_who_alone_says_how_large_a_file_is_cannot_send_without_end(
    tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "MAX_PEER_FILE", SIZE)
    with here(tmp_path, 1, 2, 3) as (one, two, three):
        asked = answering(two, gives(data, size=SIZE + 1))
        answering(three, gives(data))
        made, _, strikes = source_of(one, two, three)
        written = fetch(made, digest_of(data))
        assert written.data == data and not written.restarts and len(asked) == 1
        assert strikes.order([two.contact, three.contact], time.monotonic())[0] == two.contact, (
            "perhaps it has such a file"
        )
    with here(tmp_path, 1, 2) as (one, two):
        larger = data + b"x"
        answering(two, gives(larger, size=SIZE + 1))
        with pytest.raises(NotHere):
            fetch(source_of(one, two)[0], digest_of(larger))
        written = Written(digest_of(larger))
        source_of(one, two)[0].fetch(digest_of(larger), SIZE + 1, written, float("inf"))
        assert written.data == larger, "the size is known"


@pytest.mark.parametrize("before", [0, 300_000])
def test_one_that_says_that_a_file_is_over_at_once_has_a_strike(tmp_path: Path, data: bytes, before: int) -> None:
    """Nothing of the wrong file was its, so it was asked again without end."""
    with here(tmp_path, 1, 2, 3) as (one, two, three):
        answering(two, gives(data, before, size=SIZE if before else 0))
        asked = answering(three, lambda stream, wanted: frames.send(stream, FileHead(wanted.offset)))
        made, _, strikes = source_of(one, two, three)
        with pytest.raises(NotHere, match="wrong bytes"):
            fetch(made, digest_of(data))
        assert 1 <= len(asked) <= 2 and strikes._wrong[three.contact.id] == 1


def test_a_liar_is_reported_after_three_files_and_the_server_is_left(tmp_path: Path) -> None:
    with here(tmp_path, 1, 2) as (one, two):
        asked = answering(two, gives(os.urandom(SIZE)))
        made, accused, _ = source_of(one, two)
        for _ in range(5):
            digest = digest_of(os.urandom(9))
            written = Written(digest)
            with pytest.raises(NotHere):
                made.fetch(digest, None, written, float("inf"))
            assert not written.data, "nothing of it is left for who comes next"
        assert len(asked) == 3
        assert [one.peer for one in accused] == [f"{2:064x}"]


def test_a_stalled_peer_is_given_up(tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "STALL", 0.2)

    def stalls(stream: Any, wanted: GetFile) -> None:
        frames.send(stream, FileHead(SIZE))
        stream.sendall(b"x")
        time.sleep(1.0)
        raise ConnectionAbortedError

    with here(tmp_path, 1, 2, 3) as (one, two, three):
        answering(two, stalls)
        answering(three, gives(data))
        began = time.monotonic()
        assert fetch(source_of(one, two, three)[0], digest_of(data)).data == data
        assert time.monotonic() - began < 1.0, "nobody waited for its end"


def test_one_that_sends_a_byte_now_and_then_is_given_up(
    tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "GRACE", 0.1)
    monkeypatch.setattr(source, "SLOWEST", 100 << 20)

    def trickles(stream: Any, wanted: GetFile) -> None:
        frames.send(stream, FileHead(SIZE))
        for _ in range(100):
            stream.sendall(b"x")
            time.sleep(0.02)

    with here(tmp_path, 1, 2) as (one, two):
        answering(two, trickles)
        with pytest.raises(NotHere, match="too slow"):
            fetch(source_of(one, two)[0], digest_of(data))


def test_who_is_busy_is_asked_again(tmp_path: Path, data: bytes) -> None:
    with here(tmp_path, 1, 2) as (one, two):
        is_free: list[bool] = []

        def answer(stream: Any, wanted: GetFile) -> None:
            if is_free:
                gives(data)(stream, wanted)
            else:
                frames.send(stream, NoFile(is_busy=True))
                is_free.append(True)

        asked = answering(two, answer)
        assert fetch(source_of(one, two)[0], digest_of(data)).data == data
        assert len(asked) == 2


def test_a_connection_that_died_while_it_was_kept_costs_nothing(tmp_path: Path, data: bytes) -> None:
    with here(tmp_path, 1, 2) as (one, two):
        answering(two, gives(data))
        made, _, strikes = source_of(one, two)
        fetch(made, digest_of(data))
        two.listener.drop(one.contact.id)
        assert fetch(made, digest_of(data)).data == data
        assert not strikes._failed


def test_the_server_names_holders_and_one_that_fetches_it_now_is_waited_for(tmp_path: Path, data: bytes) -> None:
    with here(tmp_path, 1, 2) as (one, two):
        has_it: list[bool] = []

        def answer(stream: Any, wanted: GetFile) -> None:
            if has_it:
                gives(data)(stream, wanted)
            else:
                frames.send(stream, NoFile())

        answering(two, answer)
        said: list[str] = []

        def server(digest: str) -> BlobPeers:
            said.append(digest)
            if len(said) == 3:
                has_it.append(True)
            return BlobPeers([Neighbour(f"{2:064x}", two.contact.address)], wait=len(said) < 4)

        assert fetch(source_of(one, server=server)[0], digest_of(data)).data == data
        assert len(said) == 3
        has_it.clear()
        with pytest.raises(NotHere):
            fetch(source_of(one, server=server)[0], digest_of(data))


def test_small_files_are_not_asked_for(tmp_path: Path) -> None:
    with here(tmp_path, 1, 2) as (one, two):
        made, _, _ = source_of(one, two)
        with pytest.raises(NotHere, match="small"):
            made.fetch(digest_of(b""), LEAST_SHARED - 1, Written(""), float("inf"))
