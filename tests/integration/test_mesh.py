"""Pilots of one site fetch files from each other: what the server has to send, and what happens when peers die, lie, stall or
cannot be reached [promise I15, I16; LBO D2; ADR 0048].
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from shoal.dht.key import parse_key
from shoal.dht.peers import FileHead, GetFile, Hello
from shoal.model.credentials import ENROL
from shoal.pilot.mesh import frames
from shoal.server.auth.certificate_authority import CertificateAuthority
from tests.integration.cluster import PROVE, Cluster, PilotProcess
from tests.integration.mesh_site import Site, missing
from tests.integration.odd_peer import OddPeer, Send, breaks_off, stalls, too_long, wrong_bytes

pytestmark = pytest.mark.integration
MEGA = 1 << 20


@pytest.fixture
def site(cluster: Cluster) -> Site:
    reason = missing()
    if reason:
        pytest.skip(reason)
    return Site(cluster)


def test_a_file_comes_to_a_site_once_and_then_from_pilot_to_pilot(site: Site) -> None:
    pilots = [site.host() for _ in range(4)]
    digest, _ = site.put(5 * MEGA)
    before = site.downloads
    site.read(digest, pilots[0])
    assert site.downloads == before + 1
    for pilot in pilots[1:]:
        site.read(digest, pilot)
    assert site.downloads == before + 1, site.cluster.story(30)
    another, _ = site.put(5 * MEGA)
    before = site.downloads
    site.read(another, *pilots)
    assert site.downloads == before + 1, "all four at once: one of them fetches it, the others wait for that one"


def test_the_bytes_are_right_whatever_peers_send_and_a_liar_is_reported(site: Site) -> None:
    """Wrong, short, long and stalled files: each task gets the right one, and the one that lies is dropped after three."""
    size = MEGA
    files = [site.put(size) for _ in range(4)]
    one, two = site.host(), site.host()
    end = threading.Event()
    with contextlib.ExitStack() as stack:
        stack.callback(end.set)

        def odd(send: Send, machine: str) -> OddPeer:
            peer = OddPeer(site.join_file(), send, machine)
            stack.callback(peer.close)
            return peer

        seeker = odd(wrong_bytes(1), "seeker")  # has nothing, and sees what is known
        short = odd(breaks_off(files[0][1]), "short")
        short.publish(files[0][0])
        stalled = odd(
            stalls(size, end), "stalled"
        )  # ten seconds each; in `make test` unit tests do it with less patience
        stalled.publish(files[3][0])
        wait_known(site, seeker, short, files[0][0])
        wait_known(site, seeker, stalled, files[3][0])
        site.read(files[0][0], one)
        assert len(short.asked) == 1
        long = odd(too_long(size), "long")
        long.publish(files[1][0])
        wait_known(site, seeker, long, files[1][0])
        site.read(files[1][0], one)
        assert long.asked
        liar = odd(wrong_bytes(size), "liar")
        lies = [site.put(size)[0] for _ in range(4)]
        liar.publish(*lies)
        for digest in lies:
            wait_known(site, seeker, liar, digest)
        for digest in lies:
            site.read(digest, one)
        assert len(liar.asked) == 3, "after three strikes it is asked no more"
        accused = site.cluster.until(lambda: site.cluster.events("peer_accused"), "the liar is reported")
        assert accused[0]["pilot"] == liar.registered.pilot
        assert accused[0]["data"]["by"] == one.name
        assert not accused[0]["data"]["shut_out"], "one host alone shuts nobody out"
        for digest in lies[:3]:
            site.read(digest, two)
        assert len(liar.asked) <= 6
        if PROVE:
            site.read(files[3][0], one)
            assert stalled.asked
    assert not [event for event in site.cluster.events("task_finished") if event["data"]["state"] != "succeeded"]


def test_a_peer_that_is_killed_in_the_middle_of_a_file_costs_no_task(site: Site) -> None:
    first, second = site.host(), site.host()
    digest, _ = site.put(64 * MEGA)
    site.read(digest, first)
    run = site.cluster.submit(site.task(digest, second))
    parts = second.work / "cache"

    def begun() -> bool:
        with contextlib.suppress(OSError):
            return any(path.stat().st_blocks for path in parts.glob("**/parts/*"))
        return False

    site.cluster.until(begun, "the second fetches it")
    first.kill()
    assert site.cluster.wait_run(run) == {"succeeded": 1}
    assert site.cluster.row(run)["last_line"] == digest.partition(":")[2]


def test_a_pilot_that_others_do_not_reach_fetches_and_serves_nothing(site: Site) -> None:
    first = site.host()
    far = site.host("--mesh-address", "192.0.2.1")
    site.cluster.until(lambda: tag_of(site, far) == "client", "it knows that nobody reaches it")
    digest, _ = site.put(MEGA)
    before = site.downloads
    site.read(digest, first)
    site.read(digest, far)
    assert site.downloads == before + 1
    third = site.host()
    another, _ = site.put(MEGA)
    before = site.downloads
    site.read(another, far)
    site.read(another, third)
    assert site.downloads == before + 2, "what only that one has is fetched from the server"


def test_with_mesh_off_a_pilot_shares_nothing(site: Site) -> None:
    first, off = site.host(), site.host("--mesh", "off")
    digest, _ = site.put(MEGA)
    before = site.downloads
    site.read(digest, first)
    site.read(digest, off)
    assert site.downloads == before + 2
    assert tag_of(site, off) == ""
    assert first.is_alive and off.is_alive


def test_other_owners_and_other_servers_see_nothing_of_a_mesh(site: Site, tmp_path: Path) -> None:
    """[promise I16]: neither who is there, nor what is there, nor a byte of it."""
    first = site.host()
    digest, _ = site.put(MEGA)
    site.read(digest, first)
    with site.cluster.client() as client:
        client.add_user("bob")
        token = str(client.new_token(ENROL, owner="bob", site="local")["token"])
    mine = OddPeer(site.join_file(), wrong_bytes(1), "mine")
    stranger = OddPeer(site.join_file(token=token), wrong_bytes(1), "bob")
    try:
        (found,) = mine.contacts
        with mine.links.to(found) as link:
            assert isinstance(link.ask(GetFile(digest), 10.0), FileHead)
            link.close()
        assert stranger.contacts == ()
        with pytest.raises(OSError):
            stranger.links.ask(found, GetFile(digest))
        assert stranger.table.find(parse_key(digest.partition(":")[2])).holders == ()
    finally:
        stranger.close()
        mine.close()
    other = CertificateAuthority.open(tmp_path, [], time.time())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    pem = tmp_path / "forged.pem"
    pem.write_text("".join(other.pilot_certificate("p1", 3600.0, time.time(), mine.registered.peer)))
    context.load_cert_chain(pem)
    host, _, port = found.address.rpartition(":")
    plain = socket.create_connection((host, int(port)), 10.0)
    with pytest.raises(OSError), context.wrap_socket(plain) as forged:
        frames.send(forged, Hello(""))
        frames.send(forged, GetFile(digest))
        frames.receive(forged)


def tag_of(site: Site, pilot: PilotProcess) -> object:
    """Where a pilot says that others reach it."""
    with site.cluster.client() as client:
        return next(row["tags"].get("peer", "") for row in client.pilots()["pilots"] if row["pilot"] == pilot.name)


def wait_known(site: Site, seeker: OddPeer, holder: OddPeer, digest: str) -> None:
    """Wait until others find that a peer has a file."""
    key = parse_key(digest.partition(":")[2])
    site.cluster.until(lambda: holder.table.own in seeker.table.find(key).holders, "what it published is known")
