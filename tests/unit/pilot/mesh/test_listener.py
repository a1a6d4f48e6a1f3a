"""Who is answered, over real connections, and within which bounds [promise I16; security S16]."""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from shoal.dht import messages as wire
from shoal.dht.key import parse_key, show_key
from shoal.dht.peer import Join, Publish
from shoal.dht.peers import DialBack, DialedBack, FileHead, GetFile, NoFile
from shoal.model.limits import MAX_FRAME, MAX_PEER_CONNECTIONS_EACH
from shoal.pilot.mesh import frames
from shoal.pilot.mesh.links import Link, NotAMember
from tests.unit.pilot.mesh.peers_here import Here, here

DATA = os.urandom(600_000)
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"


@pytest.fixture
def served(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    return path


def serves(path: Path) -> object:
    return lambda digest: os.open(path, os.O_RDONLY) if digest == DIGEST else None


def is_refused(one: Here, two: Here) -> bool:
    """True if a peer gets no answer from another one."""
    try:
        one.links.ask(two.contact, wire.FindPeers(1, show_key(7)))
    except OSError:
        return True
    return False


def test_members_of_another_mesh_or_with_a_certificate_of_another_server_get_nothing(
    tmp_path: Path, served: Path
) -> None:
    with here(tmp_path, 1, serves=serves(served)) as (one,), here(tmp_path, 2, mesh="elsewhere") as (stranger,):
        assert is_refused(stranger, one)
        assert is_refused(one, stranger), "nor does one of us speak to it"
    (tmp_path / "other").mkdir()
    with here(tmp_path, 1, serves=serves(served)) as (one,), here(tmp_path / "other", 2) as (forger,):
        assert is_refused(forger, one)
        assert is_refused(one, forger)


def test_who_is_shut_out_is_cut_off_at_once(tmp_path: Path, served: Path) -> None:
    with ExitStack() as stack:
        one, two = stack.enter_context(here(tmp_path, 1, 2, serves=serves(served)))
        link = stack.enter_context(closing(one.links.connect(two.contact)))
        assert isinstance(link.ask(wire.FindPeers(1, show_key(7)), 5.0), wire.Found)
        two.members = lambda id: id != one.contact.id
        two.listener.drop(one.contact.id)
        with pytest.raises(OSError):
            link.ask(wire.FindPeers(2, show_key(7)), 5.0)
        assert is_refused(one, two)


def test_a_contact_that_names_another_id_than_is_there_is_not_spoken_to(tmp_path: Path) -> None:
    with here(tmp_path, 1, 2) as (one, two), pytest.raises(NotAMember, match="another peer"):
        one.links.connect(two.contact._replace(id=3))


def test_a_file_is_sent_from_any_byte_on(tmp_path: Path, served: Path) -> None:
    with here(tmp_path, 1, 2, serves=serves(served)) as (one, two), closing(one.links.connect(two.contact)) as link:
        for offset in (0, 1, 599_999, 600_000):
            assert link.ask(GetFile(DIGEST, offset), 5.0) == FileHead(600_000)
            rest = bytearray(600_000 - offset)
            frames.fill(link.stream, memoryview(rest))
            assert rest == DATA[offset:]
        for wanted in (GetFile(DIGEST, 600_001), GetFile(DIGEST, -1), GetFile("sha256:no"), GetFile("../file")):
            assert link.ask(wanted, 5.0) == NoFile()


def test_dial_back_tells_whether_the_asker_itself_is_there(tmp_path: Path) -> None:
    with ExitStack() as links:
        one, two, three = links.enter_context(here(tmp_path, 1, 2, 3))
        deaf = links.enter_context(socket.create_server(("127.0.0.1", 0)))
        link = links.enter_context(closing(one.links.connect(two.contact)))
        port = deaf.getsockname()[1]
        for address, reached in {
            one.contact.address: True, three.contact.address: False, "127.0.0.1:1": False, "nonsense": False, "a:b": False,
            f"127.0.0.1:{port}": False,
        }.items():  # fmt: skip
            assert link.ask(DialBack(address), 8.0) == DialedBack(reached), address


def test_broken_messages_end_the_connection_and_nothing_else(tmp_path: Path) -> None:
    """[input E64]."""
    with here(tmp_path, 1, 2) as (one, two):
        for data in (
            struct.pack("!IB", MAX_FRAME + 1, 6), struct.pack("!IB", 2, 200) + b"{}", struct.pack("!IB", 2, 6) + b"{}",
            struct.pack("!IB", 3, 0) + b"[1]", struct.pack("!IB", 2, 12) + b"{}", b"GET / HTTP/1.1\r\n\r\n",
        ):  # fmt: skip
            with closing(one.links.connect(two.contact)) as link:
                link.stream.settimeout(5.0)
                link.stream.sendall(data)
                with pytest.raises(OSError):
                    frames.receive(link.stream)
        assert not is_refused(one, two)


def test_one_peer_has_so_many_connections_and_not_more(tmp_path: Path) -> None:
    with ExitStack() as stack:
        one, two, three = stack.enter_context(here(tmp_path, 1, 2, 3))
        links: list[Link] = []
        for _ in range(MAX_PEER_CONNECTIONS_EACH):
            links.append(stack.enter_context(closing(one.links.connect(two.contact))))
            links[-1].ask(wire.FindPeers(1, show_key(7)), 5.0)
        assert is_refused(one, two)
        assert not is_refused(three, two), "others are answered"
        links[0].close()
        end = time.monotonic() + 10.0
        while is_refused(one, two):
            assert time.monotonic() < end
            time.sleep(0.01)


def test_a_file_that_one_publishes_is_found_by_another(tmp_path: Path) -> None:
    with here(tmp_path, 1, 2, 3) as peers:
        for peer in peers:
            peer.table.handle(Join(tuple(other.contact for other in peers if other is not peer)))
        key = parse_key(DIGEST.partition(":")[2])
        peers[0].table.handle(Publish((key,)))
        end = time.monotonic() + 10.0
        while not all(len(peer.table._peer.records) for peer in peers):  # a note on its way would outlive its farewell
            assert time.monotonic() < end
            time.sleep(0.01)
        assert peers[2].table.find(key).holders == (peers[0].contact,)
        peers[0].table.close(leaves=True)
        while peers[2].table.find(key).holders:
            assert time.monotonic() < end, "it left, and said so"
            time.sleep(0.01)
