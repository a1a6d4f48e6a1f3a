"""`shoal server start --listen` and `status`, with a stand-in for the server's process; `shoal pilot start` by a join string."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.pool import pilot
from shoal.cli.pool.pilot import _near
from shoal.client.client import Client
from shoal.client.connection import embedded_server
from shoal.model.credentials import ENROL, make
from shoal.wire.join import Join, parse_join
from tests.unit.cli.conftest import Typed
from tests.unit.client.fake_server import FakeServer

FINGERPRINT = "ab" * 32
ENROLMENT = make(ENROL, "B" * 43)


@pytest.fixture
def started(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The words that servers were started with."""
    found: list[list[str]] = []

    def start(state: Path, arguments: list[str]) -> Client:
        found.append(arguments[2:])  # without the state directory
        return Client(server.url)

    monkeypatch.setattr(embedded_server, "start", start)
    server.answers["/v1/server"] = {"addresses": ["box:8443", "10.0.0.5:8443"], "fingerprint": FINGERPRINT, "pid": 1}
    return found


def test_a_server_for_this_machine_is_started_as_before(typed: Typed, started: list[list[str]]) -> None:
    status, out, _ = typed("server", "start")
    assert (status, started) == (0, [[]])
    assert "shoal user add" not in out


def test_a_server_for_others_tells_how_it_is_known_and_the_next_steps(typed: Typed, started: list[list[str]]) -> None:
    status, out, _ = typed(
        "server", "start", "--listen", ":8443", "--listen", "[::1]:9", "--address", "nat:1", "--new-ca"
    )
    assert status == 0
    assert started == [["--listen", ":8443", "--listen", "[::1]:9", "--address", "nat:1", "--new-ca"]]
    for part in ("box:8443, 10.0.0.5:8443", FINGERPRINT, "shoal user add", "shoal token new", "shoal join"):
        assert part in out


@pytest.mark.parametrize(
    "words",
    [("--listen", "8443"), ("--listen", "box"), ("--listen", "box:0"), ("--listen", "box:99999"), ("--listen", "a b:1"),
     ("--listen", "http://box:1"), ("--listen", ":1", "--address", ":8443"), ("--address", "box:8443")],
)  # fmt: skip
def test_a_place_that_is_none_is_refused_in_one_line(
    typed: Typed, started: list[list[str]], words: tuple[str, ...]
) -> None:
    status, _, err = typed("server", "start", *words)
    assert (status, err.count("\n"), started) == (2, 1, [])
    assert ":8443" in err


def test_status_shows_addresses_fingerprint_and_when_certificates_end(typed: Typed, server: FakeServer) -> None:
    server.answers["/v1/health"] = {"ok": True}
    server.answers["/v1/server"] = {
        "addresses": ["box:8443"], "fingerprint": FINGERPRINT, "certificate_ends": time.time() + 86_460, "trouble": "",
    }  # fmt: skip
    _, out, _ = typed("server", "status")
    assert "addresses         box:8443" in out
    assert FINGERPRINT in out
    assert "(in 1d0h)" in out
    assert "trouble" not in out


def test_a_pilot_gets_its_secret_by_an_open_file_and_its_token_ends_with_it(
    typed: Typed, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers["/v1/tokens"] = {
        "id": "t9", "token": ENROLMENT, "expires": 1.0, "addresses": [server.url], "fingerprint": "", "pilot_sha256": "x",
    }  # fmt: skip
    real, ran = pilot._run_here, list[list[str]]()
    code = "import os,sys; n=int(sys.argv[2]); print(os.read(n, 999).decode(), 'SECRET' in str(os.environ))"

    def run_here(words: list[str], descriptors: tuple[int, ...]) -> int:
        ran.append(words)
        assert ENROLMENT not in str(words) + str(os.environ)
        out = os.dup(1)
        file = os.open("out", os.O_CREAT | os.O_WRONLY, 0o600)
        os.dup2(file, 1)
        try:
            return real([sys.executable, "-c", code, *words[2:]], descriptors)
        finally:
            os.dup2(out, 1)
            os.close(out)
            os.close(file)

    monkeypatch.setattr(pilot, "_run_here", run_here)
    status, _, err = typed("pilot", "start", "--cores", "2", "--site", "box")
    assert (status, err) == (0, f"shoal: server {server.url} ($SHOAL_SERVER)\n")
    assert ran[0][2] == "--join-fd"
    assert ran[0][4:] == ["--cores", "2", "--site", "box"]
    said = Path("out").read_text(encoding="utf-8").split()
    assert parse_join(said[0]) == Join((server.url,), "", ENROLMENT)
    (asked,) = server.sent("/v1/tokens")
    assert (asked["kind"], asked["site"], asked["max_pilots"]) == ("enrol", "box", 2)
    assert server.sent("/v1/tokens/revoke") == [{"tokens": ["t9"]}]


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("https://box:8443", ("box:8443", "10.0.0.5:8443")),
        ("https://nat.example.org", ("nat.example.org:443", "10.0.0.5:8443", "box:8443")),
        ("unix:/run/a#b,c/sock", ("unix:/run/a%23b%2Cc/sock",)),
    ],
)
def test_the_address_that_works_goes_first(url: str, addresses: tuple[str, ...]) -> None:
    join: Any = _near(url, Join(("10.0.0.5:8443", "box:8443"), FINGERPRINT, ENROLMENT))
    assert join == Join(addresses, "" if url.startswith("unix:") else FINGERPRINT, ENROLMENT)
    assert parse_join(str(join)) == join and join.urls[0] in (url, f"{url}:443")


def test_nothing_is_promised_by_a_stop_that_is_refused(typed: Typed, server: FakeServer) -> None:
    server.answers["/v1/health"] = {"ok": True}
    server.answers["/v1/server"] = {"open_runs": 1, "live": 2}
    refusal = {"error": {"code": "forbidden", "message": "only an administrator may do this", "hint": "ask one"}}
    for path in ("/v1/server/stop", "/v1/pilots/drain"):
        server.answers[path] = (403, json.dumps(refusal).encode(), {"Content-Type": "application/json"})
    for words in ((), ("--pilots",)):
        status, out, err = typed("server", "stop", *words)
        assert (status, out) == (3, "")
        assert "administrator" in err and "open run" not in err and "pilots" not in err
