"""Blobs through a real server: whole, in pieces, over kill -9, over quotas, between people; and every wrong way to ask."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client.client import Client
from shoal.model.errors import NotFound, Refused
from shoal.model.file_names import BLOBS, DATABASE, SERVER_FILE, blob_name
from shoal.pilot.files.fetch import NoBlob
from shoal.pilot.files.host_cache import HostCache
from shoal.pilot.uplink.blobs import Blobs
from shoal.pilot.uplink.server_address import ServerAddress
from tests.integration.cluster import Cluster
from tests.integration.guests import ANNA, MIKE, MONA, OLAF, PHYS, Answer, Guests, Json, serving
from tests.unix_http import UnixHTTPConnection, connect

pytestmark = pytest.mark.integration
BYTES = {"Content-Type": "application/octet-stream"}
BIG = os.urandom(1 << 20) * 12 + b"the end"


def name_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.fixture(scope="module")
def guests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guests]:
    """Everyone, at a server with a small quota."""
    folder = tmp_path_factory.mktemp("blobs") / "guests"
    with serving(folder, "--listen", "127.0.0.1:0", "--blob-quota", "32M") as guests:
        guests.invite()
        yield guests


def put(guests: Guests, data: bytes, token: str, name: str = "", query: str = "", **headers: str) -> Answer:
    said = {**BYTES, **{key.replace("_", "-"): value for key, value in headers.items()}}
    return guests.ask("PUT", f"/v1/blobs/{name or name_of(data)}{query}", data, token=token, headers=said)


def get(guests: Guests, digest: str, token: str, method: str = "GET", **headers: str) -> Answer:
    return guests.ask(method, f"/v1/blobs/{digest}", token=token, headers=dict(headers))


def parts_of(state: Path) -> list[Path]:
    return list((state / BLOBS / "part").glob("*/*"))


# --- whole, and in pieces
def test_what_is_put_comes_back_and_lies_where_only_the_server_reads(guests: Guests) -> None:
    anna = guests.people[ANNA].token
    data, digest = BIG[:100_000], name_of(BIG[:100_000])
    told = {"digest": digest, "size": len(data), "offset": len(data), "whole": True}
    assert put(guests, data, anna).json == told and put(guests, data, anna).json == told
    found = get(guests, digest, anna)
    assert found.body == data and found.header("Content-Type") == BYTES["Content-Type"]
    assert found.header("X-Content-Type-Options") == "nosniff" and found.header("Server") == "shoal"
    head = get(guests, digest, anna, "HEAD")
    assert (head.status, head.header("Content-Length"), head.body) == (200, str(len(data)), b"")
    file = guests.state / BLOBS / blob_name(digest)
    assert file.read_bytes() == data and file.stat().st_mode & 0o777 == 0o400
    folder = file.parent
    while folder != guests.state.parent:
        assert folder.stat().st_mode & 0o777 == 0o700, folder
        folder = folder.parent
    assert data[:50] not in (guests.state / DATABASE).read_bytes()


def test_any_range_can_be_read(guests: Guests) -> None:
    """[input E67]: one that is not there, or several, are refused."""
    anna = guests.people[ANNA].token
    digest = name_of(b"0123456789")
    put(guests, b"0123456789", anna)
    for asked, status, body in (
        ("bytes=3-", 206, b"3456789"),
        ("bytes=3-5", 206, b"345"),
        ("bytes=-2", 206, b"89"),
    ):
        found = get(guests, digest, anna, Range=asked)
        assert (found.status, found.body) == (status, body), asked
    for wrong in ("bytes=10-", "bytes=x", "bytes=5-1", "bytes=0-0,2-2", "lines=1-2"):
        found = get(guests, digest, anna, Range=wrong)
        assert (found.status, found.code) == (416, "no_such_range"), wrong


def test_an_upload_in_pieces_goes_on_at_exactly_where_it_is(guests: Guests) -> None:
    anna, data = guests.people[ANNA].token, b"pieces" * 1000
    digest = name_of(data)
    first = put(guests, data[:1000], anna, digest, Content_Range=f"bytes 0-999/{len(data)}")
    assert first.json == {"digest": digest, "size": len(data), "offset": 1000, "whole": False}
    head = get(guests, digest, anna, "HEAD")
    assert (head.status, head.header("X-Shoal-Offset")) == (404, "1000")
    assert get(guests, digest, anna).status == 404, "half a blob is none"
    for start in (0, 999, 1001):
        wrong = put(guests, data[start:], anna, digest, Content_Range=f"bytes {start}-{len(data) - 1}/{len(data)}")
        assert (wrong.status, wrong.code, wrong.header("X-Shoal-Offset")) == (409, "wrong_offset", "1000")
    asked = put(guests, b"", anna, digest, Content_Range=f"bytes */{len(data)}")
    assert (asked.status, asked.header("X-Shoal-Offset")) == (409, "1000")
    last = put(guests, data[1000:], anna, digest, Content_Range=f"bytes 1000-{len(data) - 1}/{len(data)}")
    assert last.json["whole"] and get(guests, digest, anna).body == data
    assert put(guests, b"", anna, digest, Content_Range=f"bytes */{len(data)}").status == 200


# --- wrong ways to ask
GOOD = name_of(b"good")
BAD: list[tuple[str, str, bytes, Json, int, str]] = [
    ("upper case", GOOD.upper(), b"good", {}, 422, "bad_digest"),
    ("short", GOOD[:-1], b"good", {}, 422, "bad_digest"),
    ("long", GOOD + "0", b"good", {}, 422, "bad_digest"),
    ("another algorithm", "md5:" + "0" * 32, b"good", {}, 422, "bad_digest"),
    ("no algorithm", GOOD[7:], b"good", {}, 422, "bad_digest"),
    ("up", "sha256:..%2f..%2f..%2fx", b"good", {}, 400, "bad_path"),
    ("up, plain", "../../x", b"good", {}, 400, "bad_path"),
    ("a slash", "sha256:%2fetc%2fpasswd", b"good", {}, 422, "bad_digest"),
    ("NUL", "sha256:%00", b"good", {}, 400, "bad_path"),
    ("a newline", GOOD + "%0a", b"good", {}, 422, "bad_digest"),
    ("JSON", GOOD, b"good", {"Content-Type": "application/json"}, 415, "want_bytes"),
    ("packed", GOOD, b"good", {"Content-Encoding": "gzip"}, 415, "encoding_refused"),
    ("other bytes", GOOD, b"evil", {}, 422, "wrong_digest"),
    ("too few", GOOD, b"goo", {}, 422, "wrong_digest"),
    ("a range beyond", GOOD, b"good", {"Content-Range": "bytes 0-3/3"}, 422, "bad_range"),
    ("a range backwards", GOOD, b"good", {"Content-Range": "bytes 3-0/4"}, 422, "bad_range"),
    ("a range of another length", GOOD, b"good", {"Content-Range": "bytes 0-2/4"}, 422, "bad_range"),
    ("no total", GOOD, b"good", {"Content-Range": "bytes 0-3/*"}, 422, "bad_range"),
    ("not bytes", GOOD, b"good", {"Content-Range": "lines 0-3/4"}, 422, "bad_range"),
    ("asks with a body", GOOD, b"good", {"Content-Range": "bytes */4"}, 422, "bad_range"),
    ("endless digits", GOOD, b"good", {"Content-Range": "bytes 0-3/" + "9" * 1000}, 422, "bad_range"),
    ("a hole", GOOD, b"good", {"Content-Range": "bytes 5-8/100"}, 409, "wrong_offset"),
    ("more than any", GOOD, b"", {"Content-Range": f"bytes */{(1 << 40) + 1}"}, 413, "too_large"),
    ("more than the quota", GOOD, b"", {"Content-Range": f"bytes */{33 << 20}"}, 507, "quota"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "name", "data", "headers", "status", "code"), BAD, ids=[row[0] for row in BAD])
def test_a_wrong_upload_is_refused_in_one_line_and_leaves_nothing(
    guests: Guests, what: str, name: str, data: bytes, headers: Json, status: int, code: str
) -> None:
    token = guests.people[MONA].token
    found = guests.ask("PUT", f"/v1/blobs/{name}", data, token=token, headers={**BYTES, **headers})
    assert (found.status, found.code) == (status, code), found
    assert "\n" not in found.json["error"]["message"]
    assert get(guests, GOOD, token).status == 404
    assert not [path for path in parts_of(guests.state) if path.name.startswith(GOOD[7:])]


def test_the_length_must_be_said_and_chunks_are_not_taken(guests: Guests) -> None:
    token = guests.people[ANNA].token
    head = f"PUT /v1/blobs/{GOOD} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    head += "Content-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n"
    found = guests.raw(head.encode())
    assert found.startswith(b"HTTP/1.1 411") and b"no_length" in found


def test_a_body_that_ends_early_stays_to_be_gone_on_with(guests: Guests) -> None:
    token, data = guests.people[ANNA].token, b"half a blob" * 1000
    digest = name_of(data)
    head = f"PUT /v1/blobs/{digest} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    head += f"Content-Type: application/octet-stream\r\nContent-Length: {len(data)}\r\n\r\n"
    with connect(guests.url) as link:
        link.sendall(head.encode() + data[:5_000])
        time.sleep(0.5)  # what has not been read when a connection breaks is lost with it

    def here() -> int:
        return int(get(guests, digest, token, "HEAD").header("X-Shoal-Offset"))

    offset = guests.until(here, "what came is kept")
    assert offset == 5_000
    rest = put(guests, data[offset:], token, digest, Content_Range=f"bytes {offset}-{len(data) - 1}/{len(data)}")
    assert rest.status == 200 and get(guests, digest, token).body == data


def test_the_quota_is_said_with_what_is_taken_and_how_to_fix_it(guests: Guests) -> None:
    olaf = guests.people[OLAF].token
    data = b"o" * (20 << 20)
    assert put(guests, data, olaf).status == 200
    found = put(guests, b"p" * (13 << 20), olaf)
    assert (found.status, found.code) == (507, "quota")
    told = found.json["error"]
    assert "20.0M of 32.0M" in told["message"] and "13.0M more" in told["message"] and "shoal prune" in told["hint"]
    assert put(guests, data, olaf).status == 200, "what one has costs nothing"
    assert not parts_of(guests.state)


# --- between people
def test_a_digest_is_not_a_key(guests: Guests) -> None:
    anna, olaf, mona = (guests.people[name].token for name in (ANNA, OLAF, MONA))
    data = b"anna's thesis" * 100
    digest = name_of(data)
    put(guests, data, anna)
    missing = get(guests, name_of(b"no such"), olaf)
    found = get(guests, digest, olaf)
    assert found.status == missing.status == 404
    assert found.text.replace(digest, "X") == missing.text.replace(name_of(b"no such"), "X")
    assert put(guests, b"", olaf, digest, Content_Range=f"bytes */{len(data)}").status == 409
    last = put(guests, data[-1:], olaf, digest, Content_Range=f"bytes {len(data) - 1}-{len(data) - 1}/{len(data)}")
    assert (last.status, last.header("X-Shoal-Offset")) == (409, "0")
    assert put(guests, b"guess" * 260, olaf, digest).code == "wrong_digest"
    assert get(guests, digest, olaf).status == 404
    assert get(guests, digest, mona).body == data, "a manager sees what her group has"
    assert put(guests, data, olaf).status == 200
    assert get(guests, digest, olaf).body == data, "who sent the bytes has them anyway"


def test_a_token_that_is_revoked_while_the_bytes_come_holds_nothing(guests: Guests) -> None:
    data = b"too late" * 100_000
    digest = name_of(data)
    token = guests.mint(owner=ANNA)
    connection = UnixHTTPConnection(guests.url)
    connection.putrequest("PUT", f"/v1/blobs/{digest}")
    for name, value in {**BYTES, "Authorization": f"Bearer {token.secret}", "Content-Length": str(len(data))}.items():
        connection.putheader(name, value)
    connection.endheaders()
    connection.send(data[:1000])
    guests.do("POST", "/v1/tokens/revoke", {"tokens": [token.id]})
    connection.send(data[1000:])
    assert connection.getresponse().status == 401
    connection.close()
    assert get(guests, digest, guests.people[ANNA].token).status == 404


def test_a_pilot_reads_and_puts_for_those_whom_it_serves(guests: Guests) -> None:
    anna, mike, olaf = (guests.people[name] for name in (ANNA, MIKE, OLAF))
    put(guests, b"input of anna", anna.token)
    put(guests, b"input of olaf", olaf.token)
    own = anna.host.session
    assert get(guests, name_of(b"input of anna"), own).body == b"input of anna"
    assert get(guests, name_of(b"input of olaf"), own).status == 404
    assert put(guests, b"result for anna", own).status == 200
    assert get(guests, name_of(b"result for anna"), anna.token).body == b"result for anna"

    enrol = guests.mint("enrol", group=PHYS, site="shared", by=guests.people[MONA].token)
    shared = guests.join(enrol.secret, PHYS).session
    assert get(guests, name_of(b"input of anna"), shared).status == 200
    assert get(guests, name_of(b"input of olaf"), shared).status == 404
    assert put(guests, b"for whom?", shared).code == "which_run"
    assert put(guests, b"for mike", shared, query=f"?run={mike.run}").status == 200
    assert put(guests, b"for olaf", shared, query=f"?run={olaf.run}").code == "unknown_run"
    assert put(guests, b"for olaf", shared, query="?run=r999999").code == "unknown_run"
    assert put(guests, b"for olaf", own, query=f"?run={olaf.run}").code == "unknown_run"
    assert get(guests, name_of(b"for mike"), mike.token).status == 200
    assert get(guests, name_of(b"for mike"), anna.token).status == 404
    assert get(guests, name_of(b"for olaf"), olaf.token).status == 404


def test_over_tls_it_is_the_same(guests: Guests) -> None:
    host, port = guests.address
    fingerprint = str(guests.do("GET", "/v1/server")["fingerprint"])
    with Client(f"https://{host}:{port}", guests.people[ANNA].token, fingerprint) as client:
        data = BIG[: 3 << 20]
        digest = client.put_blob([data[:7], data[7:]])
        assert client.get_blob(digest) == data


# --- crashes and crowds
def test_an_upload_survives_kill_9_of_the_server(cluster: Cluster) -> None:
    cluster.start_server("--no-pilot")
    told = cluster.address()
    digest = name_of(BIG)
    sent = 5 << 20
    with connect(told["url"]) as link:
        head = f"PUT /v1/blobs/{digest} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {told['token']}\r\n"
        head += f"Content-Type: application/octet-stream\r\nContent-Length: {len(BIG)}\r\n\r\n"
        link.sendall(head.encode() + BIG[:sent])
        files = cluster.until(lambda: parts_of(cluster.state), "a part is there")
        cluster.until(lambda: files[0].stat().st_size >= 2 << 20, "some of it is written")
        cluster.kill_server()
    here = files[0].stat().st_size
    assert 0 < here <= sent and files[0].read_bytes() == BIG[:here]
    cluster.start_server("--no-pilot")
    with cluster.client() as client:
        link_ = UnixHTTPConnection(cluster.address()["url"])
        link_.request("HEAD", f"/v1/blobs/{digest}", headers={"Authorization": f"Bearer {cluster.address()['token']}"})
        head_ = link_.getresponse()
        assert (head_.status, head_.getheader("X-Shoal-Offset")) == (404, str(here))
        link_.close()
        assert client.put_blob([BIG]) == digest and client.get_blob(digest) == BIG
        assert not parts_of(cluster.state)
        client.put_blob([b"small"])
    cluster.kill_server()
    cluster.start_server("--no-pilot")
    with cluster.client() as client:
        assert client.get_blob(digest) == BIG and client.get_blob(name_of(b"small")) == b"small"


def test_a_client_goes_on_over_a_restart(cluster: Cluster) -> None:
    cluster.start_server("--no-pilot")
    data = os.urandom(1 << 20) * 64
    with cluster.client() as client:
        found: list[str] = []
        putting = threading.Thread(target=lambda: found.append(client.put_blob([data])))
        putting.start()
        cluster.until(lambda: parts_of(cluster.state), "it began")
        cluster.kill_server()
        cluster.start_server("--no-pilot")
        putting.join(60.0)
        assert found == [name_of(data)] and client.get_blob(found[0]) == data


def test_many_who_put_the_same_at_once_all_end_well(cluster: Cluster) -> None:
    cluster.start_server("--no-pilot")
    found: list[str] = []

    def work(number: int) -> None:
        with cluster.client() as client:
            found.append(client.put_blob([BIG] if number % 2 else [BIG[:5], BIG[5:]]))
            assert client.get_blob(found[-1]) == BIG

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100.0)
    assert found == [name_of(BIG)] * 8
    assert not parts_of(cluster.state)
    rows = sqlite3.connect(f"file:{cluster.state / DATABASE}?mode=ro", uri=True).execute("SELECT run FROM blob_refs")
    assert rows.fetchall() == [(0,)]


def test_a_crash_between_file_and_row_leaves_nothing(cluster: Cluster) -> None:
    cluster.start_server("--no-pilot")
    cluster.stop_server()
    orphan = cluster.state / BLOBS / blob_name(name_of(b"orphan"))
    orphan.parent.mkdir()
    orphan.write_bytes(b"orphan")
    cluster.start_server("--no-pilot")
    cluster.until(lambda: not orphan.exists(), "it is removed")
    with cluster.client() as client:
        with pytest.raises(NotFound):
            client.get_blob(name_of(b"orphan"))
        assert client.get_blob(client.put_blob([b"orphan"])) == b"orphan"


def test_a_quota_of_nonsense_is_refused_at_the_start(cluster: Cluster) -> None:
    import subprocess

    done = subprocess.run(
        cluster.server_argv("--blob-quota", "much"),
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 3 and "is not a size" in done.stderr and "--blob-quota" in done.stderr


# --- runs hold what they use
def test_a_run_holds_its_blobs_until_it_is_pruned(cluster: Cluster) -> None:
    cluster.start_server("--no-pilot")
    with cluster.client() as client:
        function, call = client.put_blob([b"a function"]), client.put_blob([b"its arguments"])
        run = int(client.submit({"tasks": [{"function": function, "calls": [call, call]}]})["run"][1:])
        assert held(cluster) == {(function, 0), (call, 0), (function, run), (call, run)}
        with pytest.raises(NotFound) as caught:
            client.submit({"tasks": [{"function": name_of(b"not put"), "calls": [call]}]})
        assert caught.value.code == "unknown_blob" and name_of(b"not put") in caught.value.message
        client.cancel([f"r{run}"])
        cluster.wait_run(run)
    cluster.stop_server()
    cluster.start_server("--no-pilot")  # a run that just finished stays in memory for a while, and may be retried
    with cluster.client() as client:
        assert held(cluster) >= {(function, run), (call, run)}
        client.prune(0.001, 1 << 30)
        assert held(cluster) & {(function, run), (call, run)} == set()
        assert {(function, 0), (call, 0)} <= held(cluster)


def held(cluster: Cluster) -> set[tuple[str, int]]:
    """Digests and runs, once everything is written."""
    with cluster.client() as client:
        last = client.put_blob([os.urandom(16)])  # answered after the commit of all before
    connection = sqlite3.connect(f"file:{cluster.state / DATABASE}?mode=ro", uri=True)
    rows = connection.execute("SELECT digest, run FROM blob_refs WHERE digest <> ?", (last,)).fetchall()
    connection.close()
    return set(rows)


# --- a pilot's hands
def test_a_pilot_fetches_from_a_real_server_and_stores_there(guests: Guests, tmp_path: Path) -> None:
    anna = guests.people[ANNA]
    blobs = Blobs(ServerAddress(str(guests.state / SERVER_FILE)), HostCache(str(tmp_path / "kept")), patience=5.0)
    blobs.joined(anna.host.session)
    data = BIG[: 2 << 20]
    put(guests, data, anna.token)
    assert Path(blobs.fetch(name_of(data))).read_bytes() == data
    result = tmp_path / "result"
    result.write_bytes(data[::-1])
    assert get(guests, blobs.store(str(result)), anna.token).body == data[::-1]
    with pytest.raises(NoBlob, match="there is no blob"):
        blobs.fetch(name_of(b"nobody's"))
    with pytest.raises(NoBlob, match="do not fit"):
        result.write_bytes(b"x" * (33 << 20))
        blobs.store(str(result))
    blobs.joined(anna.host.session, str(guests.state / BLOBS))
    assert blobs.fetch(name_of(data[::-1])) == str(guests.state / BLOBS / blob_name(name_of(data[::-1])))
    blobs._connection().drop()


def test_a_client_is_told_of_the_quota_before_it_sends(guests: Guests) -> None:
    with Client(guests.url, guests.people[ANNA].token) as client:
        with pytest.raises(Refused) as caught:
            client.put_blob([b"x" * (33 << 20)])
        assert caught.value.code == "quota"
