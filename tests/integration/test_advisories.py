"""Advisories of kindred systems, each a test by its name: the same mistake cannot come back unseen.

Each docstring says what the advisory was and why Shoal is safe.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import functools
import hashlib
import json
import os
import pickle
import re
import shutil
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from shoal.cli.commands import cli
from shoal.client.unpickle import arrays
from shoal.db.named_queries import SQL, for_many
from shoal.model.credentials import ENROL, LONGEST, SESSION, SUBMIT
from shoal.model.ids import parse_attempt, start_count
from shoal.pilot.commands import files as carrying
from shoal.pilot.commands.files import StageError, bring, carry
from shoal.pilot.commands.staging import PilotFacts, Staging
from shoal.pilot.runner import load
from shoal.pilot.uplink.tls import Trust, WrongServer
from shoal.provision import registry
from shoal.server.http.routes import ROUTES
from shoal.wire.chunk import single
from shoal.wire.join import Join, bootstrap_line
from shoal.wire.messages import PROTOCOL, Capacity, Lease
from tests.integration.cluster import clean_env
from tests.integration.guests import (
    ANNA,
    BOSS,
    CHEM,
    MIKE,
    MONA,
    OLAF,
    PHYS,
    Answer,
    Guests,
    Person,
    Pilot,
    leaks,
    serving,
    without,
)
from tests.unix_http import UnixHTTPConnection

pytestmark = pytest.mark.integration

SOURCE = Path(__file__).resolve().parents[2] / "src" / "shoal"
MADE_UP = "shoal_sub_" + "0" * 43
ALL_BUT_PUBLIC = [route for route in ROUTES if route.rule != "public"]


@pytest.fixture(scope="module")
def guests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guests]:
    """A server with everyone; each test makes what it changes for itself."""
    with serving(tmp_path_factory.mktemp("advisories") / "guests") as made:
        made.invite()
        yield made


def newcomer(guests: Guests, name: str) -> Person:
    """A person whose pilots meet no tasks of another test."""
    person = guests.add_person(f"{ANNA}-{name}")
    person.enrol = guests.mint("enrol", by=person.token)
    return person


def filled(path: str) -> str:
    """A path whose placeholders name something."""
    for name, value in {"run": "r1", "task": "r1.1", "target": "r1", "pilot": "pffffff"}.items():
        path = path.replace(f"{{{name}}}", value)
    return path


def body_of(method: str) -> Any:
    return {} if method == "POST" else None


# --- who calls
def test_cve_2024_24825_cached_tokens_are_checked_each_time(guests: Guests) -> None:
    """DIRAC served tokens from a cache without asking who may have them; here each request on a connection is checked anew."""
    token = guests.mint(owner=ANNA)
    run = guests.people[ANNA].run
    connection = UnixHTTPConnection(guests.url)

    def get(bearer: str) -> int:
        connection.request("GET", f"/v1/runs/{run}", headers={"Authorization": f"Bearer {bearer}"})
        response = connection.getresponse()
        response.read()
        return response.status

    try:
        assert get(guests.admin) == 200
        assert get(guests.people[OLAF].token) == 404  # what the one before could see is not kept for the next
        assert get(token.secret) == 200
        guests.do("POST", "/v1/tokens/revoke", {"tokens": [token.id]})
        assert get(token.secret) == 401
        assert get(guests.people[OLAF].token) == 404
    finally:
        connection.close()


def test_cve_2023_48022_no_anonymous_use_of_loopback(guests: Guests) -> None:
    """Ray took jobs from anyone who reached its dashboard; here loopback, too, wants a token for all but two calls."""
    for route in ALL_BUT_PUBLIC:
        assert guests.ask(route.method, filled(route.path), body_of(route.method)).status == 401, route
    assert {route.path for route in ROUTES if route.rule == "public"} == {"/", "/v1/health", "/v1/ca"}
    assert guests.ask("GET", "/v1/health").json == {"ok": True}
    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        assert guests.ask(method, "/v1/no-such-thing").status == 401  # who is nobody does not learn what is there


def test_cve_2021_42343_listens_on_no_port_unless_told(tmp_path: Path) -> None:
    """Dask listened on all interfaces by default; Shoal listens on none, and if it is told to, over TLS only."""
    with serving(tmp_path / "guests", "--durability", "normal") as guests:
        assert _listening(guests.pid) == set()
        assert guests.do("GET", "/v1/server").get("addresses") is None
        guests.stop()
        guests.start("--listen", "0.0.0.0:0")
        assert len(_listening(guests.pid)) == 1
        for _, port in _listening(guests.pid):
            with socket.create_connection(("127.0.0.1", port), 10.0) as link:
                link.sendall(b"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                assert b"HTTP/" not in link.recv(1_000)


def _listening(pid: int) -> set[tuple[str, int]]:
    """Address (as the kernel writes it) and port of each socket that a process listens on."""
    inodes = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                address, _, port = words[1].partition(":")
                found.add((address, int(port, 16)))
    return found


def test_ghsa_4w4f_pcxr_8ppr_one_authentication_method(guests: Guests) -> None:
    """HTCondor could be talked into another method than the configured one; here one header is the only way in."""
    token = guests.people[ANNA].token
    basic = base64.b64encode(f"{ANNA}:{token}".encode()).decode()
    for headers in (
        {"Authorization": f"Basic {basic}"},
        {"Authorization": f"Token {token}"},
        {"Authorization": token},
        {"Authorization": f"Bearer  {token}"},
        {"Authorization": f"Bearer {token} "[:-1] + ",x"},
        {"X-Authorization": f"Bearer {token}"},
        {"Cookie": f"token={token}"},
        {"X-Forwarded-User": ANNA, "REMOTE_USER": ANNA},
    ):
        assert guests.ask("GET", "/v1/whoami", headers=headers).status == 401, headers
    for query in (f"token={token}", f"access_token={token}"):
        assert guests.ask("GET", f"/v1/whoami?{query}").status == 401
    twice = f"GET /v1/whoami HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n" * 1
    twice += f"Authorization: Bearer {token}\r\n\r\n"
    assert guests.raw(twice.encode()).split()[1] in (b"400", b"401")
    assert guests.ask("GET", "/v1/whoami", token=token).json["owner"] == ANNA


def test_cve_2023_49935_a_session_is_bound_to_its_pilots_certificate(guests: Guests) -> None:
    """Slurm let a message's credential be used again by another; over TLS a session counts with its pilot's certificate only."""
    anna, plain = guests.people[ANNA], guests.secure()
    mine = guests.join_tls(anna.enrol.secret, ANNA, plain)
    thief = guests.join_tls(guests.people[OLAF].enrol.secret, OLAF, plain)
    path = f"/v1/pilots/{mine.name}/exchange"
    assert guests.ask_tls(guests.secure(mine), "POST", path, mine.message(), mine.session).status == 200
    for context in (plain, guests.secure(thief)):
        assert guests.ask_tls(context, "POST", path, mine.message(), mine.session).status == 401
        again = guests.register(ANNA, former={"pilot": mine.name, "session": mine.session})
        assert guests.ask_tls(context, "POST", "/v1/pilots", again, mine.session).status == 401
        assert guests.ask_tls(context, "GET", "/v1/pilot.pyz", None, mine.session).status == 401
    # Nor does the enrolment token, with which pilots once spoke, go around session and certificate.
    for context in (plain, guests.secure(thief), guests.secure(mine)):
        for protocol in (1, 2, 3):
            said = mine.message(protocol=protocol)
            for token in (anna.enrol.secret, anna.token):
                answer = guests.ask_tls(context, "POST", path, said, token)
                assert (answer.status, answer.code) == (403, "forbidden")
    answer = guests.ask_tls(guests.secure(mine), "POST", path, mine.message(protocol=1), mine.session)
    assert (answer.status, answer.code) == (422, "protocol")
    # A certificate is no token: it opens nothing by itself.
    assert guests.ask_tls(guests.secure(mine), "GET", "/v1/pilot.pyz").status == 401


def test_cve_2020_13927_no_default_credentials(tmp_path: Path) -> None:
    """Airflow's API let everyone in by default; a fresh server knows nobody but its own account, by a random secret."""
    with serving(tmp_path / "guests", "--durability", "normal") as guests:
        assert [row["role"] for row in guests.do("GET", "/v1/users")["users"]] == ["admin"]
        assert {row["kind"] for row in guests.do("GET", "/v1/tokens")["tokens"]} == {"submit", "enrol"}
        for word in ("", "admin", "airflow", "password", "token", "changeme", "null", "shoal_sub_", MADE_UP):
            assert guests.ask("GET", "/v1/whoami", token=word).status == 401
            basic = base64.b64encode(f"admin:{word}".encode()).decode()
            assert guests.ask("GET", "/v1/whoami", headers={"Authorization": f"Basic {basic}"}).status == 401


def test_cve_2020_17526_no_shared_default_key(tmp_path: Path) -> None:
    """Airflow signed sessions with one key everywhere; every secret of a server is its own, and none is in the source."""
    with serving(tmp_path / "one") as one, serving(tmp_path / "two") as two:
        files = ("token", "enrol", "tls/ca-with-key.pem", "tls/server-with-key.pem")
        for name in files:
            assert (one.state / name).read_bytes() != (two.state / name).read_bytes()
        assert len({one.admin, two.admin, one.told["enrol"], two.told["enrol"]}) == 4
        assert one.ask("GET", "/v1/whoami", token=two.admin).status == 401
        with pytest.raises(ssl.SSLCertVerificationError):
            one.ask_tls(two.secure(), "GET", "/v1/health")
    secret = re.compile(
        r"shoal_(?:sub|enr|ses)_[A-Za-z0-9_-]{43}|-----BEGIN [A-Z ]*PRIVATE KEY-----\n[A-Za-z0-9+/]{20}"
    )
    assert not [
        path for path in SOURCE.rglob("*") if path.is_file() and secret.search(path.read_text("utf-8", "replace"))
    ]


def test_cve_2022_30034_names_are_compared_whole(guests: Guests) -> None:
    """Flower matched e-mail addresses by a pattern that others fit, too; here a name is equal to another or it is not."""
    anna = guests.people[ANNA]
    guests.do("POST", "/v1/groups", {"name": "zq.hys"})
    near = ["zqann", f"{ANNA}a", "zq.nna", "zq_nna", f"_{ANNA}", f"{ANNA}-", f"{ANNA}.{PHYS}"]
    for name in near:
        guests.do("POST", "/v1/users", {"name": name, "group": "zq.hys", "role": "manager"})
        token = guests.mint(owner=name).secret
        for path in (f"/v1/runs/{anna.run}", f"/v1/tasks/{anna.task}/logs", f"/v1/why/{anna.host.name}"):
            assert guests.ask("GET", path, token=token).status == 404, (name, path)
        for path in ("/v1/runs", "/v1/pilots", "/v1/hosts", "/v1/events", "/v1/tokens"):
            (rows,) = [v for v in guests.do("GET", path, token=token).values() if isinstance(v, list)]
            assert {row["owner"] for row in rows} <= {name}
        assert guests.do("GET", f"/v1/runs?owner={ANNA}", token=token)["runs"] == []
        assert guests.do("GET", f"/v1/runs?owner={name},{ANNA}", token=token)["runs"] == []
    for bad in (f"{ANNA},{OLAF}", "zq%", "zq*", "Zqanna", f" {ANNA}", f"{ANNA}\n", "@zqphys", ""):
        assert guests.ask("POST", "/v1/users", {"name": bad}, token=guests.admin).status == 422


def test_htcondor_tokens_always_end(guests: Guests) -> None:
    """HTCondor's auto-approved tokens had no end by default; no way of asking gives a token without one."""
    for kind in ("submit", "enrol"):
        lives: tuple[Any, ...] = (LONGEST[kind] + 1, 0, -1, "never", 1e300)
        for life in (None, LONGEST[kind]):
            made = guests.do("POST", "/v1/tokens", {"kind": kind, "expires": life})
            assert time.time() < made["expires"] <= time.time() + LONGEST[kind] + 5.0
        for wrong in lives:
            assert guests.ask("POST", "/v1/tokens", {"kind": kind, "expires": wrong}, token=guests.admin).status == 422
    for row in guests.do("GET", "/v1/tokens?all=1")["tokens"]:
        assert row["created"] < row["expires"] <= row["created"] + LONGEST[row["kind"]] + 1.0


# --- what they may
def test_cve_2025_43904_a_manager_cannot_raise_anyone(guests: Guests) -> None:
    """A Slurm coordinator could make an administrator; a manager here changes nobody, and gives no more than they have."""
    mona = guests.people[MONA].token
    before = guests.do("GET", "/v1/users")
    for asked in (
        {"name": ANNA, "group": PHYS, "role": "admin"},
        {"name": MONA, "group": PHYS, "role": "admin"},
        {"name": "newcomer", "group": PHYS, "role": "user"},
        {"name": OLAF, "group": PHYS, "role": "user"},
    ):
        assert guests.ask("POST", "/v1/users", asked, token=mona).status == 403
    assert guests.ask("POST", "/v1/groups", {"name": "mine"}, token=mona).status == 403
    for scope in ("admin", "metrics"):
        assert guests.ask("POST", "/v1/tokens", {"scopes": [scope]}, token=mona).status == 403
    for asked in ({"owner": ANNA}, {"owner": BOSS}, {"kind": "enrol", "group": CHEM}):
        assert guests.ask("POST", "/v1/tokens", asked, token=mona).status == 404
    assert guests.do("GET", "/v1/users") == before


def test_cve_2012_3491_cannot_cancel_others_tasks(guests: Guests) -> None:
    """HTCondor let users remove others' jobs; here each target must be the caller's, and one that is not stops all."""
    theirs = guests.submit(guests.people[OLAF].token, OLAF)
    mine = guests.submit(guests.people[ANNA].token, ANNA)
    token = guests.people[ANNA].token
    for path, more in (("/v1/cancel", {}), ("/v1/retry", {}), ("/v1/signal", {"signal": "KILL"})):
        for targets in ([theirs], [f"{theirs}.1"], [mine, theirs], [f"{mine}.1", f"{theirs}.2"]):
            answer = guests.ask("POST", path, {"targets": targets, **more}, token=token)
            none = guests.ask(
                "POST", path, {"targets": ["r888888" + targets[-1].removeprefix(theirs)], **more}, token=token
            )
            assert answer.status == 404
            assert without(answer, theirs) == without(none, "r888888")
    for run in (mine, theirs):
        counts = guests.do("GET", f"/v1/runs/{run}")["counts"]
        assert "cancelled" not in counts


def test_cve_2012_3493_lease_ids_are_shown_to_their_pilot_only(guests: Guests) -> None:
    """HTCondor published ClaimIds, which were capabilities; ours is the session, which is in no answer but the first."""
    anna = newcomer(guests, "claim")
    pilot = guests.join(anna.enrol.secret, ANNA)
    guests.submit(anna.token, ANNA)
    attempt = str(pilot.lease(protocol=PROTOCOL)["attempt"])
    kept = (pilot.session, hashlib.sha256(pilot.session.encode()).hexdigest(), anna.enrol.secret)
    run, task = attempt.partition(".")[0], attempt.partition("#")[0]
    for path in (
        "/v1/pilots", "/v1/hosts", "/v1/events", f"/v1/runs/{run}/tasks", f"/v1/tasks/{task}", f"/v1/why/{task}",
        f"/v1/why/{pilot.name}", "/v1/audit", "/v1/tokens?all=1", "/v1/server", "/metrics",
    ):  # fmt: skip
        text = guests.ask("GET", path, token=guests.admin).text
        assert not [secret for secret in kept if secret in text], path
    # Who knows an attempt's name without the session can do nothing with it: another's pilot, nor another of hers.
    # The short name that pilots of protocol 4 know means something from the mouth of its own pilot only.
    named = parse_attempt(attempt)
    short = f"{named.text}@{start_count(named.incarnation)}"
    assert named.nonce and short != attempt
    twin, olafs = guests.join(anna.enrol.secret, ANNA), guests.people[OLAF].host
    for other, protocol, name, verdict in (
        (olafs, PROTOCOL, attempt, "unknown"), (olafs, PROTOCOL - 1, short, "unknown"),
        (twin, PROTOCOL, attempt, "stale"), (twin, PROTOCOL - 1, short, "unknown"),
    ):  # fmt: skip
        reply = other.talk(protocol=protocol, reports=[{"attempt": name, "outcome": "succeeded"}]).json
        assert reply["verdicts"] == [{"attempt": name, "verdict": verdict, "count": 1}]
    assert guests.do("GET", f"/v1/tasks/{task}")["state"] == "leased"


def test_cve_2024_48936_no_pilot_touches_another_owners_tasks(guests: Guests) -> None:
    """Slurm let users start processes under others' jobs; a pilot gets, holds, reports and logs its owner's tasks only."""
    anna, thief = newcomer(guests, "step"), guests.join(guests.people[OLAF].enrol.secret, OLAF)
    run = guests.submit(anna.token, ANNA)
    pilot = guests.join(anna.enrol.secret, ANNA)
    attempt = str(pilot.lease()["attempt"])
    name = attempt.partition("#")[0]
    pilot.talk(tails=[{"attempt": attempt, "stream": "stdout", "text": "true\n", "offset": 0}])
    thief.held = {attempt: "running"}
    tail = {"attempt": attempt, "stream": "stdout", "text": "false\n", "offset": 0}
    answer = thief.talk(free={"cores": 2}, tails=[tail], reports=[{"attempt": attempt, "outcome": "failed"}])
    assert answer.json["verdicts"] == [{"attempt": attempt, "verdict": "unknown", "count": 1}]
    assert [(order["kind"], order["attempt"]) for order in answer.json["orders"]] == [("cancel", attempt)]
    assert not [lease for lease in answer.json["leases"] if lease["attempt"].startswith(f"{run}.")]
    assert not leaks(answer, frozenset({OLAF}))
    assert guests.ask("GET", f"/v1/tasks/{name}/logs", token=anna.token).body == b"true\n"
    assert guests.do("GET", f"/v1/tasks/{name}")["task"]["pilot"] == pilot.name
    # Nor can it say that a copy is dead, so that a second one of an exclusive task is started beside it.
    loner = newcomer(guests, "alone")
    task = {"command": ["true"], "rerun": "exclusive"}
    alone = guests.do("POST", "/v1/runs", {"tasks": [task]}, token=loner.token)["run"]
    other = guests.join(loner.enrol.secret, ANNA)
    held = str(other.lease()["attempt"])
    guests.do("POST", "/v1/cancel", {"targets": [alone]}, token=loner.token)
    thief.held.clear()
    thief.talk(reports=[{"attempt": held, "outcome": "cancelled"}])
    assert guests.ask("POST", "/v1/retry", {"targets": [alone]}, token=loner.token).status == 409
    other.report(held, "cancelled")
    assert guests.do("POST", "/v1/retry", {"targets": [alone]}, token=loner.token)["tasks"] == 1


def test_promises_d1_a_site_operator_cannot_exceed_the_pilots_of_their_token(guests: Guests) -> None:
    """A token for so many pilots, or so many uses, lets no more in, whatever a registration says of who it was."""
    enrol = guests.mint("enrol", owner=ANNA, max_pilots=1)
    first = guests.join(enrol.secret, ANNA)
    for former in (
        None,
        {"pilot": first.name, "session": "wrong"},
        {"pilot": guests.people[OLAF].host.name, "session": "x"},
    ):
        said = guests.register(ANNA, former=former) if former else guests.register(ANNA)
        answer = guests.ask("POST", "/v1/pilots", said, token=enrol.secret)
        assert (answer.status, answer.code) == (429, "site_full")
    once = guests.mint("enrol", owner=ANNA, uses=1)
    said = guests.register(ANNA)
    made = [guests.ask("POST", "/v1/pilots", said, token=once.secret).json["pilot"] for _ in range(2)]
    assert made[0] == made[1]  # the same words twice are one enrolment
    assert guests.ask("POST", "/v1/pilots", guests.register(ANNA), token=once.secret).status == 401
    guests.do("POST", "/v1/pilots/drain", {"pilots": [made[0]]})
    third = guests.mint("enrol", owner=ANNA, uses=1)
    said = guests.register(ANNA)
    pilot = guests.ask("POST", "/v1/pilots", said, token=third.secret).json
    message = {
        "protocol": 4, "pilot": pilot["pilot"], "session": pilot["session"], "seq": 1, "ack": 0, "free": {"cores": 0},
        "leaving": "bye",
    }  # fmt: skip
    assert guests.ask("POST", f"/v1/pilots/{pilot['pilot']}/exchange", message, token=pilot["session"]).status == 200
    assert guests.ask("POST", "/v1/pilots", said, token=third.secret).status == 401  # its pilot ended: a second use


def test_cve_2023_49933_replayed_exchange(guests: Guests) -> None:
    """Slurm messages could be extended and sent again; here a number is used once, and other words under it end the session."""
    anna = newcomer(guests, "replay")
    pilot = guests.join(anna.enrol.secret, ANNA)
    guests.submit(anna.token, ANNA)
    attempt = str(pilot.lease()["attempt"])
    pilot.held.pop(attempt)
    report = pilot.message(reports=[{"attempt": attempt, "outcome": "failed", "message": "first"}])
    first = pilot.send(report)
    assert first.json["verdicts"] == [{"attempt": attempt, "verdict": "recorded", "count": 1}]
    assert pilot.send(report).json == first.json
    for _ in range(3):
        pilot.talk()
    assert pilot.send(report).code == "replay"
    finals = [e for e in guests.do("GET", "/v1/events?kind=task_finished")["events"] if e["pilot"] == pilot.name]
    assert len(finals) == 1
    message = pilot.message()
    assert pilot.send(message).status == 200
    extended = {**message, "nonce": "another", "reports": [{"attempt": attempt, "outcome": "succeeded"}]}
    assert pilot.send(extended).code == "session_in_use"
    assert pilot.talk().code == "re_enrol"  # both lost it: nobody can tell the thief from the pilot


# --- files and secrets
@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace: how secret files are made was NOT watched")
def test_cve_2024_29905_secret_files_never_readable(tmp_path: Path) -> None:
    """DIRAC wrote a proxy and closed it to others afterwards; each of our secrets is made 0600 at once, whatever the umask."""
    trace = tmp_path / "trace"
    calls = "trace=open,openat,creat,chmod,fchmod,fchmodat,mkdir,mkdirat,rename,renameat,renameat2"
    guests = Guests(tmp_path / "guests")
    try:
        guests.start(umask=0, under=("strace", "-f", "-qq", "-s", "400", "-e", calls, "-o", str(trace)))
        token = guests.mint(owner=guests.do("GET", "/v1/whoami")["owner"])
        guests.submit(token.secret, BOSS)
        guests.stop()
    finally:
        guests.close()
    state, secret = str(guests.state), re.compile(r"/(?:token|enrol|server\.json|env/|tls/|shoal\.db)")
    made: set[str] = set()
    for line in trace.read_text(errors="replace").splitlines():
        if state not in line or " = -1 " in line:
            continue
        path = line.partition(state)[2].partition('"')[0]
        if "O_CREAT" in line and secret.search(path) and path not in made:  # SQLite opens what is there
            assert re.search(r", 0600(?:\)| <unf)", line), line
            assert "O_EXCL" in line or path.startswith("/shoal.db"), line
            made.add(path)
        if "chmod(" in line or "chmodat(" in line:
            assert not secret.search(path), line
        if "mkdir" in line:
            assert re.search(r", 0700(?:\)| <unf)", line), line
    assert len(made) >= 7  # the trace has seen it: database, token, enrol, two keys, an environment, the address
    for file in [guests.state, *guests.state.rglob("*")]:
        assert file.name == "pilot.pyz" or not file.stat().st_mode & 0o077, file


def test_cve_2024_23334_no_static_file_traversal(guests: Guests) -> None:
    """Static files of aiohttp followed links out of their folder; no call serves a file by a name that a caller gives."""
    (guests.state / "logs" / "r1").mkdir(exist_ok=True)
    secret = guests.admin
    task = guests.people[BOSS].task
    paths = [
        "/../../../etc/passwd", "/v1/../../etc/passwd", "/static/../../../etc/passwd", "/v1/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd", "/v1/tasks/..%2f..%2fserver.json/logs", "/v1/tasks/%2e%2e%2fserver.json/logs",
        f"/v1/tasks/{task}/logs?stream=../../token", f"/v1/tasks/{task}/logs?stream=/etc/passwd",
        f"/v1/tasks/{task}/logs?attempt=../1", f"/v1/tasks/{task}%00/logs", "/v1/runs/r1%2f..%2f..%2ftoken",
        "/v1\\..\\..\\etc\\passwd", "/v1/pilot.pyz/../../token", "/token", "/server.json", "/v1/logs/mark",
    ]  # fmt: skip
    for path in paths:
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {secret}\r\n\r\n"
        found = guests.raw(head.encode())
        assert found.split()[1] in (b"400", b"404", b"422"), (path, found[:200])
        assert b"root:" not in found and secret.encode() not in found
    named = [path.name for path in _modules() for node in _calls(path) if _name(node) == "FileResponse"]
    assert named == ["blobs.py"]  # by the digest of its content


def test_cve_2007_4559_no_unpacking(tmp_path: Path) -> None:
    """Python's tarfile wrote wherever an archive said; nothing of ours unpacks an archive, and inputs stay in their directory."""
    for path in _modules():
        imported = _imports(path)
        assert not imported & {"tarfile", "rarfile", "lzma", "bz2", "gzip", "zlib"}, path
        names = {_name(node) for node in _calls(path)}
        assert not names & {"unpack_archive", "extractall", "extract", "make_archive"}, path
        assert "zipfile" not in imported or path == SOURCE / "pilot" / "build_zip.py", path  # which writes one
    home, own = tmp_path / "home" / "deep", tmp_path / "work" / "own"
    for folder in (home, own):
        folder.mkdir(parents=True)
    for name, where in (("../outside", "outside"), (str(tmp_path / "absolute"), "absolute"), ("a/../b", "b")):
        source = home / name
        source.parent.mkdir(parents=True, exist_ok=True)
        (home / "a").mkdir(exist_ok=True)
        source.write_text("data")
        assert bring(name, str(home), str(own)) == where
    assert sorted(path.name for path in own.iterdir()) == ["absolute", "b", "outside"]
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["own"]


def test_cve_2023_41914_output_path_races(tmp_path: Path) -> None:
    """Slurm followed paths that a job swapped under it; outputs are opened part by part, and no link is followed."""
    secret, own, home = tmp_path / "secret", tmp_path / "own", tmp_path / "home"
    for folder in (secret, own, home):
        folder.mkdir()
    (secret / "out").write_text("secret")
    for what in ("link", "folder link", "hard link", "pipe"):
        shutil.rmtree(own)
        (own / "sub").mkdir(parents=True)
        target = own / "sub" / "out"
        if what == "link":
            target.symlink_to(secret / "out")
        elif what == "folder link":
            (own / "sub").rmdir()
            (own / "sub").symlink_to(secret)
        elif what == "hard link":
            os.link(secret / "out", target)
        else:
            os.mkfifo(target)
        with pytest.raises(StageError, match="output_refused"):
            carry(str(own), "sub/out", str(home / "out.part"), 0o077)
        assert not list(home.iterdir())


def test_cve_2023_41914_a_link_put_there_after_the_check_is_not_carried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same race, won by the task: what stands under the name when it is moved is not what was looked at."""
    secret, own, home = tmp_path / "secret", tmp_path / "own", tmp_path / "home"
    for folder in (own, home):
        folder.mkdir()
    secret.write_text("secret")
    (own / "out").write_text("mine")

    def swap(path: str) -> None:
        (own / "out").unlink()
        (own / "out").symlink_to(secret)

    monkeypatch.setattr(carrying, "remove", swap)  # the last step before the move
    with pytest.raises(StageError, match="another file than it was"):
        carry(str(own), "out", str(home / "out.part"), 0o077)
    assert not (home / "out.part").is_symlink() and not (home / "out.part").exists()


# --- no code from data
def _modules() -> list[Path]:
    found = sorted(SOURCE.rglob("*.py"))
    assert len(found) > 100
    return found


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def _calls(path: Path) -> list[ast.Call]:
    return [node for node in ast.walk(_tree(path)) if isinstance(node, ast.Call)]


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_cve_2026_45579_no_eval(guests: Guests, tmp_path: Path) -> None:
    """DIRAC evaluated a grouping attribute as Python; nothing here evaluates text, and text that looks like code is text."""
    bare = {"eval", "exec", "compile", "__import__"}
    for path in _modules():
        for call in _calls(path):
            # A runner compiles the modules that travelled with the calls it makes: their owner's code, as the calls are.
            owners = path == SOURCE / "pilot" / "runner" / "user_modules.py" and _name(call) == "compile"
            # Methods of dataclasses, made of the names of their fields as the standard library does it.
            owners = owners or (path == SOURCE / "model" / "lazy_dataclass.py" and _name(call) == "exec")
            assert owners or not (isinstance(call.func, ast.Name) and call.func.id in bare), (path, call.lineno)
            assert _name(call) not in ("run_path", "run_module", "literal_eval", "format_map"), (path, call.lineno)
            # Three places bring modules of our own in when they are first asked for, by names of their own tables, a runner
            # one with a fixed name, and the rules for values of pandas three of its modules, whatever a result says.
            lazy = (
                *(SOURCE / "__init__.py", SOURCE / "cli" / "commands.py", SOURCE / "pilot" / "runner" / "load.py"),
                *(SOURCE / "client" / "unpickle" / "arrays.py", SOURCE / "provision" / "registry.py"),
            )
            assert _name(call) != "import_module" or path in lazy, (path, call.lineno)
            if _name(call) == "import_module" and path == lazy[2]:
                assert ast.unparse(call) == "importlib.import_module(_CLOUDPICKLE)", call.lineno
                assert load._CLOUDPICKLE == "cloudpickle"
            if _name(call) == "import_module" and path == lazy[4]:
                assert ast.unparse(call.args[0]) == "f'shoal.provision.{module}'", call.lineno
                assert all(value.partition(":")[0].isidentifier() for value in registry.BUILT_IN.values())
            if _name(call) == "import_module" and path == lazy[3]:
                assert ast.unparse(call.args[0]) in ("'pandas'", "'pandas._libs.internals'", "_MANAGERS"), call.lineno
                assert arrays._MANAGERS == "pandas.core.internals.managers"
            assert _name(call) != "Template", (path, call.lineno)
    mark = tmp_path / "mark"
    code = f"__import__('os').system('touch {mark}')"
    token = guests.people[ANNA].token
    text = f"{{0.__class__}} ${{x}} %(x)s {{{{ {code} }}}}"
    run = guests.do("POST", "/v1/runs", {"name": code, "tasks": [{"name": text, "command": [text]}]}, token=token)[
        "run"
    ]
    found = guests.do("GET", f"/v1/runs/{run}", token=token)
    assert (found["name"], found["arrays"][0]["task"]["command"]) == (code, [text])
    for query in ("name", "state", "owner", "before", "limit"):
        guests.ask("GET", f"/v1/runs?{query}={code.replace(' ', '%20')}", token=token)
    for where in ({"host": code}, {"message": code}, {"cause": code}):
        guests.ask("POST", "/v1/retry", {"where": where}, token=token)
    guests.ask("POST", "/v1/runs", {"tasks": [{"command": ["x", "{x}"], "params": {"x": code}}]}, token=token)
    assert guests.ask("POST", "/v1/runs", {"tasks": [{"command": ["x"], "rank": code}]}, token=token).status == 422
    assert not mark.exists()


# Functions and results are pickles, made and read where their owner's code runs anyway: in the client's interpreter and
# in a runner. `channel` speaks marshal between a pilot and its own guard. Nobody else can read such a format.
OWNERS_CODE = {
    "client/pickling/serialize.py": {"pickle", "cloudpickle"},
    "client/pickling/by_value.py": {"pickle", "cloudpickle"},
    "client/unpickle/own_classes.py": {"pickle", "cloudpickle"},
    "joblib.py": {"joblib"},
    "pilot/runner/user_modules.py": {"marshal"},  # its own cache of compiled modules of the session
    "client/executor/outcome.py": {"pickle"},
    "client/joblib_backend.py": {"joblib"},  # it registers itself there, and reads nothing
    "client/unpickle/restricted.py": {"pickle"},
    "client/unpickle/arrays.py": {"numpy"},
    "pilot/runner/failure.py": {"pickle"},
    "pilot/runner/load.py": {"pickle"},
    "pilot/guard/channel.py": {"marshal"},
    "wire/payload.py": {"pickle"},
    "provision/sge.py": {"xml"},  # what qstat prints: read by elements, and refused with any declaration
}
LOADS = {
    "pilot/runner/user_modules.py",
    "client/executor/outcome.py",
    "pilot/runner/failure.py",
    "pilot/runner/load.py",
    "pilot/guard/channel.py",
    "wire/payload.py",
}
# Who uses `wire/payload`, which reads pickles: nobody else even loads it.
READERS = {
    *(
        "client/executor/outcome.py",
        "client/unpickle/restricted.py",
        "client/pickling/serialize.py",
        "client/executor/executor.py",
        "client/executor/dependencies.py",
    ),
    "client/unpickle/own_classes.py",
    "client/joblib_backend.py",  # `Ref` only
    "client/executor/open_run.py",  # texts become bytes, which `client/pickling/fingerprint.py` reads and never executes
    "cli/tasks/standard_input.py",  # `to_text` only: bytes become a text
    "report/call_values.py",  # texts become bytes, which `client/unpickle` reads by its rules
    "pilot/runner/load.py",
}
# Who sets the state of values by hand, each after a check of its own (tests/property/test_restricted_pickle.py).
RULES = {"client/unpickle/rules.py", "client/unpickle/arrays.py", "client/pickling/by_value.py"}


def test_cve_2021_23727_no_unpickling(guests: Guests, tmp_path: Path) -> None:
    """Celery built objects from stored results; server, pilot and CLI pass them on as texts, and none of them can read one."""
    formats = {
        "pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml", "ruamel", "jsonpickle",
        "plistlib", "xmlrpc", "xml", "lxml", "numpy", "pandas",
    }  # fmt: skip
    for path in _modules():
        name = path.relative_to(SOURCE).as_posix()
        # numpy can read pickles; in these two corners it computes, and none of its readers is called.
        vector = {"numpy"} & _imports(path) if name.startswith(("sched/vector/", "sim/")) else set()
        assert _imports(path) & formats == OWNERS_CODE.get(name, set()) | vector, path
        calls = _calls(path) if re.search("load|fromfile|memmap|genfromtxt", path.read_text(encoding="utf-8")) else []
        called = {ast.unparse(call.func) for call in calls}
        loads = {word for word in called if re.fullmatch(r"(?:c?loud|pickle|marshal|cloudpickle)\.loads?", word)}
        assert bool(loads) == (name in LOADS), (path, loads)
        assert not {
            word for word in called if re.fullmatch(r"(?:np|numpy)\.(?:load|fromfile|memmap|genfromtxt)", word)
        }, path
        names = {_name(call) for call in _calls(path)}
        by_hand = {"__reduce__", "__setstate__"} if name in RULES else set()
        assert not names & {"__reduce__", "__setstate__", "Unpickler"} - by_hand, path
        assert "msgspec.msgpack" not in path.read_text(encoding="utf-8"), path
        taken = _taken_from_payload(path)
        assert not taken or name in READERS, (path, taken)
    _check_bombs(guests, tmp_path)


def _taken_from_payload(path: Path) -> set[str]:
    """What a module imports of `wire/payload`, which reads pickles; `*` for the whole of it."""
    found: set[str] = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module == "shoal.wire.payload":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "shoal.wire":
            found |= {"*" for alias in node.names if alias.name == "payload"}
        elif isinstance(node, ast.Import):
            found |= {"*" for alias in node.names if alias.name == "shoal.wire.payload"}
    return found


class _Bomb:
    """Whoever unpickles it makes a file."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._mark),)


def _check_bombs(guests: Guests, tmp_path: Path) -> None:
    """The same by trying: pickles that do something when they are read go in, through and out of the server."""
    mark = tmp_path / "mark"
    data = pickle.dumps(_Bomb(mark))
    bomb, digest = base64.b64encode(data).decode(), f"sha256:{hashlib.sha256(data).hexdigest()}"
    anna = newcomer(guests, "bomb")
    octets = {"Content-Type": "application/octet-stream"}
    assert guests.ask("PUT", f"/v1/blobs/{digest}", data, token=anna.token, headers=octets).status == 200
    task = {"function": bomb, "calls": [bomb, digest, bomb], "initializer": bomb, "python": sys.executable}
    body = {"name": bomb[:40], "open": True, "tasks": [task]}
    run = str(guests.do("POST", "/v1/runs", body, token=anna.token)["run"])
    guests.do("POST", f"/v1/runs/{run}/tasks", {"first": 4, "tasks": [task]}, token=anna.token)
    pilot = guests.join(anna.enrol.secret, ANNA, protocol=4, room={"cores": 8, "memory": 2**30, "disk": 2**30})
    done: set[str] = set()
    results = [bomb, digest]
    while len(done) < 6:
        reply = pilot.talk(protocol=4, free={"cores": 8}).json
        for lease in reply["leases"]:
            assert (lease["function"], lease["initializer"]) == (bomb, bomb) and set(lease["calls"]) <= {bomb, digest}
            count, pilot.held = lease["count"], {}
            batch = {"attempt": lease["attempt"], "count": count, "result": [results[at % 2] for at in range(count)]}
            told = pilot.talk(protocol=4, free={"cores": 8}, batches=[batch]).json
            done |= {f"{row['attempt']} {at}" for row in told["verdicts"] for at in range(row["count"])}
            assert {row["verdict"] for row in told["verdicts"]} == {"recorded"}
            reply["leases"].extend(told["leases"])
    page = guests.do("GET", f"/v1/runs/{run}/results", token=anna.token)
    assert sorted(row[0] for row in page["results"]) == [1, 2, 3, 4, 5, 6]
    assert {row[2] for row in page["results"]} == {bomb, digest}
    guests.do("POST", f"/v1/runs/{run}/close", {}, token=anna.token)
    environment = {**clean_env(), "SHOAL_SERVER": guests.told["url"], "SHOAL_TOKEN": anna.token}
    for words in (["show", f"{run}.1"], ["show", run], ["ps"], ["logs", f"{run}.1"], ["why", f"{run}.1"], ["events"]):
        ended = subprocess.run(
            [sys.executable, "-m", "shoal.cli", *words], capture_output=True, text=True, env=environment, timeout=60
        )
        assert "Traceback" not in ended.stderr, ended.stderr
        if words[0] in ("show", "ps"):
            assert ended.returncode == 0, ended.stderr
    assert not mark.exists()
    with contextlib.suppress(OSError):
        pickle.loads(data)
    assert mark.exists()  # it would have gone off


def test_cve_2026_21892_sql_injection(guests: Guests) -> None:
    """Parsl's dashboard put a workflow's id into SQL; every value of ours is bound, so a quote is a character like others."""
    token = guests.people[ANNA].token
    before = {path: guests.do("GET", path) for path in ("/v1/runs", "/v1/users", "/v1/groups", "/v1/pilots")}
    nasty = ["'", "' OR '1'='1", "x' UNION SELECT digest FROM tokens --", "'; DROP TABLE runs; --", "\\'", "%", "_"]
    for text in nasty:
        said = "".join(f"%{byte:02x}" for byte in text.encode())
        for path in (
            f"/v1/runs?owner={said}", f"/v1/runs?name={said}", f"/v1/runs?state={said}", f"/v1/runs?before={said}",
            f"/v1/events?kind={said}", f"/v1/events?run={said}", f"/v1/pilots?state={said}", f"/v1/tokens?limit={said}",
            f"/v1/runs/{guests.people[ANNA].run}/tasks?state={said}", f"/v1/why/{said}", f"/v1/runs/{said}",
        ):  # fmt: skip
            answer = guests.ask("GET", path, token=token)
            assert answer.status in (200, 400, 404, 422), (path, answer)
            assert not leaks(answer, frozenset({ANNA, PHYS})), path
            if answer.status == 200:
                assert all(row["name"].startswith(text) for row in answer.json["runs"]), path  # a name is a prefix
        for path in (f"/v1/audit?owner={said}", f"/v1/audit?token={said}"):
            assert guests.do("GET", path)["audit"] == []
    for path, rows in before.items():
        now = guests.do("GET", path)
        assert [list(row.values())[:1] for row in now[path[4:]]] == [list(row.values())[:1] for row in rows[path[4:]]]


def test_ghsa_r847_6w6h_r8g4_no_columns_from_callers(guests: Guests) -> None:
    """Flyte took sort and filter columns from requests into SQL; ours has no such parameter, and text never makes a statement."""
    for query in ("sort=name;drop", "order_by=1", "filter=owner=x", "fields=digest", "group_by=x"):
        for path in ("/v1/runs", "/v1/pilots", "/v1/tokens", "/v1/events"):
            answer = guests.ask("GET", f"{path}?{query}", token=guests.admin)
            assert (answer.status, answer.code) == (422, "unknown_field")
    # A statement is a named query or a constant; the only ones put together are PRAGMAs of our own words.
    made = []
    for module in _modules():
        for call in _calls(module):
            if _name(call) in ("execute", "executemany", "executescript") and call.args:
                first = call.args[0]
                named = isinstance(first, ast.Subscript) and ast.unparse(first.value) == "SQL"
                named = named or (isinstance(first, ast.Call) and ast.unparse(first.func) == "for_many")
                if not named and not isinstance(first, ast.Constant):
                    made.append((module.name, ast.unparse(first).partition(" ")[0].strip("f'\"")))
    assert {name for name, _ in made} <= {"reader.py", "sqlite.py", "backups.py", "migrate.py", "named_queries.py"}, (
        made
    )
    assert all(word == "PRAGMA" for name, word in made if name in ("reader.py", "sqlite.py", "backups.py")), made
    # For many rows at once a named query has its question marks repeated, and nothing else; another text names none.
    for text in ("SELECT digest FROM tokens", "add_events; DROP TABLE runs", ""):
        with pytest.raises(KeyError):
            for_many(text, 2)
    for name, query in SQL.items():
        if re.search(r"VALUES \([?, ]+\)", query):
            many = for_many(name, 3)
            assert re.sub(r"(VALUES )(\([?, ]+\)), \2, \2", r"\1\2", many, count=1) == query != many, name


def test_cve_2023_49934_stored_text_is_never_a_statement(guests: Guests) -> None:
    """slurmdbd ran SQL that came with accounting data; what is stored comes back letter by letter, and the tables stand."""
    token = guests.people[ANNA].token
    text = "x'); DROP TABLE users; UPDATE tokens SET scopes='admin'; --"
    body = {
        "name": text, "labels": {text: text}, "key": text,
        "tasks": [{"name": text, "command": [text], "env": {"A": text}, "labels": {text: text}}],
    }  # fmt: skip
    run = guests.do("POST", "/v1/runs", body, token=token)["run"]
    found = guests.do("GET", f"/v1/runs/{run}", token=token)
    assert (found["name"], found["labels"], found["key"]) == (text, {text: text}, text)
    made = guests.mint(note=text, by=token)
    row = next(r for r in guests.do("GET", "/v1/tokens", token=token)["tokens"] if r["token"] == made.id)
    assert (row["note"], row["scopes"]) == (text, "submit read cancel")
    pilot = guests.join(guests.people[ANNA].enrol.secret, text, tags={text: text})
    pilot.talk(tags={text: text})
    shown = next(r for r in guests.do("GET", "/v1/pilots", token=token)["pilots"] if r["pilot"] == pilot.name)
    assert shown["host"] == f"{text}-host" and shown["tags"] == {text: text}
    pilot.leave()
    with contextlib.closing(sqlite3.connect(f"file:{guests.state}/shoal.db?mode=ro", uri=True)) as database:
        assert database.execute("SELECT count(*) FROM users").fetchone()[0] >= 5
        assert not database.execute("SELECT 1 FROM tokens WHERE scopes = 'admin'").fetchall()


# --- commands and their environment
def test_cve_2020_11978_parameters_reach_no_shell(guests: Guests, tmp_path: Path) -> None:
    """An example of Airflow put a parameter into a shell; a parameter of ours is one word of an argv, whatever is in it."""
    mark = tmp_path / "mark"
    values = [
        f"; touch {mark}",
        f"$(touch {mark})",
        f"`touch {mark}`",
        f"x\ntouch {mark}",
        f"' && touch {mark} '",
        "-rf",
        "*",
    ]
    task = {"command": ["/bin/echo", "-n", "{x}"], "params": {"x": values}}
    person = newcomer(guests, "shell")
    pilot = guests.join(person.enrol.secret, ANNA, room={"cores": 99, "memory": 2**30, "disk": 2**30})
    run = guests.do("POST", "/v1/runs", {"tasks": [{**task, "cores": 9}]}, token=person.token)["run"]
    leases: dict[str, Lease] = {}
    while len(leases) < len(values):
        answer = pilot.talk(free={"cores": 99}).json
        for lease in answer["leases"]:
            if lease["attempt"].startswith(f"{run}."):
                whole = Lease(**{**lease, "room": Capacity(**lease["room"])})
                leases |= {one.attempt: one for one in (single(whole, at) for at in range(whole.count))}
    stage = Staging(PilotFacts(str(tmp_path / "work"), dict(os.environ)))
    for lease, value in zip(
        sorted(leases.values(), key=lambda found: parse_attempt(found.attempt)), values, strict=True
    ):
        assert lease.command == ["/bin/echo", "-n", value] and lease.shell is None
        made = stage.prepare(lease)
        assert subprocess.run(made.argv, cwd=made.cwd, env=made.env, stdout=subprocess.PIPE).stdout.decode() == value
    assert not mark.exists()
    for path in _modules():
        for call in _calls(path):
            if _name(call) in ("run", "Popen", "call", "check_call", "check_output"):
                assert "shell" not in {keyword.arg for keyword in call.keywords}, path
            assert ast.unparse(call.func) not in ("os.system", "os.popen", "subprocess.getoutput"), path
            assert _name(call) != "create_subprocess_shell", path


def test_cve_2021_31215_environment_of_tasks(guests: Guests, tmp_path: Path) -> None:
    """Slurm mishandled the environment of a script it ran; a task gets a short list of the pilot's variables and no more."""
    ours = {
        "PATH": "/usr/bin:/bin", "HOME": "/h", "LC_ALL": "C", "LD_PRELOAD": "/evil.so", "LD_LIBRARY_PATH": "/evil",
        "PYTHONPATH": "/evil", "BASH_ENV": "/evil", "ENV": "/evil", "SHOAL_TOKEN": "s", "AWS_SECRET_ACCESS_KEY": "s",
    }  # fmt: skip
    stage = Staging(PilotFacts(str(tmp_path / "work"), ours))
    lease = Lease("r1.1#1@1", Capacity(1), "safe", ["/usr/bin/env", "-0"], env={"A": "1"}, env_file="/nowhere/env.json")
    made = stage.prepare(lease)
    told = subprocess.run(made.argv, cwd=made.cwd, env=made.env, stdout=subprocess.PIPE).stdout.decode()
    found = dict(item.split("=", 1) for item in told.split("\0") if item)
    assert found["A"] == "1" and found["PATH"] == ours["PATH"]
    assert not set(found) & (set(ours) - {"PATH", "HOME", "LC_ALL"})
    token = guests.people[ANNA].token
    for name in ("LD_PRELOAD", "LD_AUDIT", "SHOAL_SEED", "SHOAL_TOKEN", "A=B", "", "A B", "A\nB", "A\0"):
        answer = guests.ask("POST", "/v1/runs", {"tasks": [{"command": ["x"], "env": {name: "x"}}]}, token=token)
        assert answer.status == 422, name


# --- the network
def test_cve_2026_27482_delete_and_cross_origin(guests: Guests) -> None:
    """Ray's guard against other sites' pages forgot DELETE; ours lets only GET and HEAD pass, and no other name of the host."""
    token, run = guests.people[ANNA].token, guests.people[ANNA].run
    evil = {"Origin": "https://evil.example"}
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        for path in ("/v1/runs", f"/v1/runs/{run}", "/v1/cancel", "/v1/server/stop"):
            answer = guests.ask(method, path, {} if method != "OPTIONS" else None, token=token, headers=evil)
            assert (answer.status, answer.code) == (403, "bad_origin"), (method, path)
    for origin in ("null", "http://127.0.0.1.evil.example", "http://localhost.evil.example:80", "evil"):
        answer = guests.ask("POST", "/v1/cancel", {"targets": [run]}, token=token, headers={"Origin": origin})
        assert answer.status == 403, origin
    for host in ("evil.example", "evil.example:8443", "127.0.0.1.nip.io", "localhost.evil.example"):
        for method in ("GET", "POST", "DELETE"):
            answer = guests.ask(method, "/v1/health", token=token, headers={"Host": host})
            assert answer.status == 421, host
    for method in ("DELETE", "PUT", "PATCH", "TRACE"):
        assert guests.ask(method, f"/v1/runs/{run}", token=token).status in (400, 405), method
    assert guests.ask("GET", f"/v1/runs/{run}", token=token).status == 200
    for headers in ({}, evil):
        found = guests.ask("GET", "/v1/runs", token=token, headers=headers)
        assert not [name for name, _ in found.headers if name.lower().startswith("access-control")]
        assert found.header("X-Content-Type-Options") == "nosniff" and found.header("Set-Cookie") == ""
    # What a page can send without asking first is no JSON, and is not taken.
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = guests.ask("POST", "/v1/cancel", b'{"targets":["r1"]}', token=token, headers={"Content-Type": kind})
        assert answer.status == 415


def test_cve_2023_25577_multipart_refused(guests: Guests) -> None:
    """Werkzeug parsed endless parts of a form; forms are refused by every call before they are read."""
    part = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n'
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    began = time.monotonic()
    for route in [route for route in ROUTES if route.body is not None]:
        anna = guests.people[ANNA]
        secrets = {SUBMIT: guests.admin, ENROL: anna.enrol.secret, SESSION: anna.host.session}
        token = secrets[route.kinds[-1]]  # one that the call takes
        place = route.path.replace("{pilot}", anna.host.name)  # who names another pilot is not read either
        answer = guests.ask(route.method, filled(place), part * 20_000 + b"--x--", token=token, headers=kind)
        assert (answer.status, answer.code) == (415, "want_json"), route
    for encoding in ("gzip", "deflate", "br", "zstd"):
        headers = {"Content-Encoding": encoding}
        answer = guests.ask("POST", "/v1/runs", b"\x1f\x8b\x08" + b"0" * 100, token=guests.admin, headers=headers)
        assert answer.status in (400, 415), encoding
    assert time.monotonic() - began < 60.0
    for path in _modules():
        assert not {_name(call) for call in _calls(path)} & {"multipart", "FormData", "MultipartReader"}, path


def test_cve_2024_24762_no_slow_header(guests: Guests) -> None:
    """FastAPI's forms met a pattern that took for ever on one Content-Type; no header of ours is read by such a pattern."""
    evil = 'application/x-www-form-urlencoded; !="' + "\\" * 4_000
    for headers in (
        {"Content-Type": evil},
        {"Content-Type": "application/json; " + "a=" * 3_000},
        {"Content-Type": "application/json" + ";" * 7_000},
        {"Authorization": "Bearer " + "shoal_sub_" * 700},
        {"Host": "1." * 3_500},
        {"Origin": "http://" + "[" * 7_000},
    ):
        began = time.monotonic()
        answer = guests.ask("POST", "/v1/cancel", b"{}", token=guests.people[ANNA].token, headers=headers)
        assert 400 <= answer.status < 500 and time.monotonic() - began < 20.0, headers
    glob = {"where": {"message": "*a" * 400_000}}
    began = time.monotonic()
    assert guests.ask("POST", "/v1/retry", glob, token=guests.people[ANNA].token).status == 422
    assert time.monotonic() - began < 20.0


def test_taskvine_no_connection_without_encryption(guests: Guests) -> None:
    """TaskVine encrypts and authenticates nothing unless told; whatever leaves this machine here is TLS 1.3, or is refused."""
    host, port = guests.address
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.load_verify_locations(cadata=guests.authority())
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError), socket.create_connection((host, port), 10.0) as link:
        old.wrap_socket(link, server_hostname="shoal-server")
    with socket.create_connection((host, port), 10.0) as link:
        link.sendall(f"GET /v1/whoami HTTP/1.1\r\nAuthorization: Bearer {guests.admin}\r\n\r\n".encode())
        assert b"HTTP/" not in link.recv(1_000)
    with guests.secure().wrap_socket(
        socket.create_connection((host, port), 10.0), server_hostname="shoal-server"
    ) as safe:
        assert safe.version() == "TLSv1.3"


def test_pilot3_ssl_verify_cannot_be_left_out(guests: Guests) -> None:
    """PanDA's pilot ships `ssl_verify: False`; no option skips the check, and only the CA is fetched unchecked, and compared."""
    places = set()
    for path in _modules():
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(_tree(path)) if "CERT_NONE" in text else ():
            if isinstance(node, ast.FunctionDef) and "CERT_NONE" in ast.unparse(node):
                places.add(f"{path.parent.name}/{path.name}:{node.name}")
        assert not _imports(path) & {"requests", "urllib3", "httpx", "certifi"}, path
        assert "_create_unverified_context" not in text and "verify=False" not in text, path
    assert places == {"http/connection.py:fetch_ca_unverified"}
    word = re.compile(r"insecure|skip.?(tls|ssl|verif)|no.?(verify|check|tls|ssl)|unverified|trust.?all", re.I)
    helps = [subprocess.run([sys.executable, "-m", m, "--help"], capture_output=True, text=True, env=clean_env()).stdout
             for m in ("shoal.server", "shoal.pilot.main")]  # fmt: skip
    assert "--listen" in helps[0] and len(_options(cli)) > 50
    assert not [text for text in [*helps, *_options(cli)] if word.search(text)]
    assert not [path for path in _modules() if re.search("SHOAL_(SSL|TLS|VERIFY|INSECURE)", path.read_text())]
    host, port = guests.address
    with pytest.raises(WrongServer, match="does not match"):
        Trust().connection(host, port, "0" * 64, 10.0, certified=False)


def _options(command: click.Command) -> list[str]:
    """Every option of a command and those below it, with its help."""
    found = [" ".join([*option.opts, str(getattr(option, "help", "") or "")]) for option in command.params]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            found += [name, *(_options(inner) if inner is not None else [])]
    return found


def test_glideinwms_the_pilots_code_is_compared_before_it_runs(guests: Guests, tmp_path: Path) -> None:
    """glideinWMS fetched pilots over plain HTTP with SHA-1; the joining line knows the SHA-256 and runs nothing else."""
    made = guests.do("POST", "/v1/tokens", {"kind": "enrol", "owner": ANNA})
    pyz: Answer = guests.ask("GET", "/v1/pilot.pyz", token=made["token"])
    assert hashlib.sha256(pyz.body).hexdigest() == pyz.header("X-Shoal-SHA256") == made["pilot_sha256"]
    good = Join(tuple(made["addresses"]), made["fingerprint"], made["token"])
    other = Join(good.addresses, "0" * 64, good.token)
    before = len(guests.do("GET", "/v1/pilots")["pilots"])
    for join, digest, words in (
        (good, "0" * 64, "is not the one this line names"),
        (other, made["pilot_sha256"], "does not match"),
    ):
        line = bootstrap_line(join, digest, ("--version",))
        ended = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, env=clean_env(), timeout=60)
        assert ended.returncode == 4 and words in ended.stderr and not ended.stdout
        assert join.token not in ended.stderr
    line = bootstrap_line(good, made["pilot_sha256"], ("--version",))
    ended = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, env=clean_env(), timeout=60)
    assert ended.stdout.startswith("shoal pilot ") and ended.returncode == 0
    assert len(guests.do("GET", "/v1/pilots")["pilots"]) == before


def test_eu_hpc_2020_stolen_credentials_end_at_once(tmp_path: Path) -> None:
    """In May 2020 stolen credentials went from site to site; one word ends all but the caller's own, with their pilots."""
    with serving(tmp_path / "guests") as guests:
        guests.invite()
        done = guests.do("POST", "/v1/tokens/revoke", {"all": True})
        assert done["pilots"] == 5 and done["revoked"] == 4 + 5 + 1
        for person in guests.people.values():
            assert guests.ask("GET", "/v1/runs", token=person.token).status == (200 if person.word == BOSS else 401)
            assert guests.ask("POST", "/v1/pilots", guests.register(ANNA), token=person.enrol.secret).status == 401
            assert person.host.talk().status == 403
        assert guests.ask("GET", "/v1/runs", token=guests.people[MIKE].token).code == "token_revoked"


def test_a_connection_on_which_a_pilot_proved_itself_is_nobody_elses_and_ends_with_the_pilot(tmp_path: Path) -> None:
    """The server keeps with a connection who sent the last request: whoever sends another session is somebody else."""
    with serving(tmp_path / "guests") as guests:
        guests.invite()
        first, second = guests.people[ANNA].host, guests.people[MIKE].host
        kept = UnixHTTPConnection(guests.url)

        def ask(path: str, message: dict[str, Any], token: str) -> int:
            fields = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            kept.request("POST", f"/v1/pilots/{path}/exchange", json.dumps(message), fields)
            response = kept.getresponse()
            response.read()
            return response.status

        def talk(pilot: Pilot) -> int:
            tail = {"attempt": "r1.1#1@1", "stream": "stdout", "text": "", "offset": 0}  # it is answered at once
            return ask(pilot.name, pilot.message(tails=[tail]), pilot.session)

        assert [talk(first), talk(first), talk(second), talk(first)] == [200] * 4
        assert ask(first.name, first.message(), second.session) == 401
        assert ask(second.name, second.message(), first.session) == 401
        assert ask(first.name, first.message(), first.session[:-1] + "-") in (401, 409)
        assert talk(first) == 200
        guests.do("POST", "/v1/tokens/revoke", {"all": True})
        assert talk(first) == first.talk().status == 403
        kept.close()


def test_d1_an_outsider_learns_nothing(guests: Guests) -> None:
    """Who has no token learns no version, no name and no path, from headers neither."""
    from shoal import __version__

    for method, path in (
        ("GET", "/v1/health"),
        ("GET", "/v1/ca"),
        ("GET", "/v1/runs"),
        ("GET", "/"),
        ("POST", "/v1/runs"),
    ):
        answer = guests.ask(method, path)
        text = answer.text
        assert not leaks(answer, frozenset())
        for word in (f'"{__version__}"', f"/{__version__}", "aiohttp", "Python/", str(guests.state)):
            assert word not in text, (path, word)
