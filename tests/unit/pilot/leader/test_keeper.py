"""Reports of one member on the disks of others: real connections, real files."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.dht.peers import DropReports, KeepReports, ReportsKept, mesh_uri
from shoal.dht.routing_table import Contact
from shoal.model.credentials import digest
from shoal.pilot.leader.keeper import ReportKeeper
from shoal.pilot.leader.spool import Spool, folder_in
from shoal.wire.messages import Batch, Registered, Report, Sealed
from shoal.wire.seal import KEPT, is_genuine
from tests.unit.pilot.mesh.peers_here import Here, here

SERVER = "0123456789abcdef"


class Member:
    """A pilot with a disk."""

    def __init__(self, number: int, peer: Here, others: Callable[[], list[Here]], folder: Path) -> None:
        folder.mkdir(parents=True)
        self.name, self.folder = f"p{number:08x}", Path(folder_in(str(folder)))
        self.spool = Spool(str(self.folder), SERVER)
        self.keeper = ReportKeeper(
            [self.spool], lambda: peer.links, lambda: [one.contact for one in others() if one is not peer]
        )
        peer.listener.handlers[KeepReports] = self.keeper.on_keep
        peer.listener.handlers[DropReports] = self.keeper.on_drop
        uri = mesh_uri("uni", "anna", f"{number:064x}")
        self.session = "shoal_ses_" + str(number) * 43
        self.keeper.on_joined(Registered(self.name, self.session, 1, 10, 75, 900, 720, 10, 600, 86400, peer=uri))

    @property
    def kept(self) -> list[Sealed]:
        return self.spool.copies("", 100, 1 << 30)


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Here]]:
    with here(Path(tmp_path_factory.mktemp("ca")), 1, 2, 3, 4) as found:
        yield found


@pytest.fixture
def members(peers: list[Here], tmp_path: Path) -> Iterator[list[Member]]:
    found = [Member(number, peer, lambda: peers, tmp_path / str(number)) for number, peer in enumerate(peers, 1)]
    yield found
    for one in found:
        one.keeper.close()


def wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_each_report_is_on_three_disks_until_the_server_has_it(members: list[Member]) -> None:
    one = members[0]
    reports = {"r1.1#1@1": Report("r1.1#1@1", "succeeded")}
    batches = {"r1.2#1@1": Batch("r1.2#1@1", 3)}
    one.keeper.copy(reports, batches, [])
    one.keeper.copy(reports, batches, [])  # a second look at the same
    wait(lambda: sum(len(member.kept) for member in members) == 3)
    (copy,) = one.kept
    assert is_genuine(digest(one.session), KEPT, copy)
    assert one.session not in copy.body
    assert sum(member.kept == [copy] for member in members) == 3
    one.keeper.settle({}, {})
    wait(lambda: not any(member.kept for member in members))


def test_who_keeps_a_copy_delivers_it_and_then_forgets_it(members: list[Member]) -> None:
    members[0].keeper.copy({"r1.1#1@1": Report("r1.1#1@1", "succeeded")}, {}, [])
    wait(lambda: sum(len(member.kept) for member in members) == 3)
    (copy,) = members[0].kept
    keeper = next(member for member in members[1:] if member.kept)
    offered: list[Sealed] = []
    keeper.keeper.offer(offered.extend)
    wait(lambda: bool(offered))
    assert offered == [copy]
    again: list[Sealed] = []
    keeper.keeper.offer(again.extend)
    own: list[Sealed] = []
    members[0].keeper.offer(own.extend)  # our own reports go the usual way
    keeper.keeper.delivered(offered)
    wait(lambda: not keeper.kept)
    assert again == own == []


def test_members_that_do_not_answer_or_have_no_space_are_passed_over(
    members: list[Member], peers: list[Here], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members[1].spool, "put", lambda copy: False)
    peers[2].listener.handlers[KeepReports] = lambda sender, message: []
    members[0].keeper.copy({"r1.1#1@1": Report("r1.1#1@1", "succeeded")}, {}, [])
    wait(lambda: bool(members[3].kept))
    assert members[0].kept == members[3].kept


def test_members_that_do_not_answer_do_not_delay_the_own_disk(members: list[Member], peers: list[Here]) -> None:
    asked, goes_on = threading.Event(), threading.Event()

    def wait_long(sender: Contact, message: KeepReports) -> list[ReportsKept]:
        asked.set()
        goes_on.wait(30)
        return []

    for peer in peers[1:]:
        peer.listener.handlers[KeepReports] = wait_long
    one = members[0]
    try:
        one.keeper.copy({"r1.1#1@1": Report("r1.1#1@1", "succeeded")}, {}, [])
        assert asked.wait(30)
        one.keeper.copy({"r1.2#1@1": Report("r1.2#1@1", "succeeded")}, {}, [])
        one.keeper.close()
        assert len(one.kept) == 2
    finally:
        goes_on.set()


def test_what_is_no_copy_of_a_pilot_is_not_kept(members: list[Member], peers: list[Here]) -> None:
    keeper, sender = members[1].keeper, peers[0].contact
    for copies in ([], [Sealed("no pilot", "{}", "0" * 64)], [Sealed("p00000001", "{}", "../../x")]):
        (answer,) = keeper.on_keep(sender, KeepReports(copies))
        assert not answer.done
    assert members[1].kept == []
