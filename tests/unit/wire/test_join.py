"""The join string, and the line that makes a pilot of a bare host [protocol 9; security S6, S12; input E62]."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.model import credentials
from shoal.model.errors import BadInput
from shoal.pilot.build_zip import build
from shoal.wire import codec
from shoal.wire.join import Join, bootstrap_line, parse_join, relay_address
from shoal.wire.messages import Exchange, Register, Registered, Reply
from tests.unit.pilot.small_server import Authority, Request, Response, SmallServer, padded_authority

TOKEN = credentials.make(credentials.ENROL, "t0k3n" * 8 + "xyz")
RELAY_KEY = credentials.RELAY_PREFIX + "k" * 43
FINGERPRINT = "0123456789abcdef" * 4
TIMES = Registered(
    "p0001", credentials.make(credentials.SESSION, "s" * 43), 1, beat=1.0, lease=10.0, hold=1.0, kill_after=60.0,
    grace=0.5, idle_end=30.0, spool_end=60.0,
)  # fmt: skip


# --- the string
@pytest.mark.parametrize(
    "join",
    [
        Join(("box.example:8443",), FINGERPRINT, TOKEN),
        Join(("10.0.0.1:1", "[fe80::1]:65535", "box:2"), FINGERPRINT, TOKEN),
        Join(("unix:/run/shoal-8000",), "", TOKEN),
        Join((f"relay:login:4000:{RELAY_KEY}", f"relay:[fe80::1]:4000:{RELAY_KEY}", "box:2"), FINGERPRINT, TOKEN),
        Join(("relay:8443",), FINGERPRINT, TOKEN),
    ],
)
def test_a_join_string_is_read_as_it_was_written(join: Join) -> None:
    assert parse_join(f" {join}\n") == join
    assert TOKEN not in repr(join) and RELAY_KEY not in repr(join)


def test_the_key_of_a_relay_is_not_in_its_url() -> None:
    join = Join(
        (relay_address("login", 4000, RELAY_KEY), relay_address("::1", 1, RELAY_KEY), "relay:2"), FINGERPRINT, TOKEN
    )
    assert join.urls == ("relay://login:4000", "relay://[::1]:1", "https://relay:2")
    assert join.relay_keys == {"relay://login:4000": RELAY_KEY, "relay://[::1]:1": RELAY_KEY}
    assert credentials.redact(str(join)).count("shoal_rel_[...]") == 2
    assert credentials.kind_of(RELAY_KEY) is None, "it is no token"


def test_addresses_become_urls() -> None:
    assert Join(("box:1", "[::1]:2"), FINGERPRINT, TOKEN).urls == ("https://box:1", "https://[::1]:2")
    assert Join(("unix:/run/shoal-1",), "", TOKEN).urls == ("unix:/run/shoal-1",)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "three parts"),
        (TOKEN, "three parts"),
        (f"box:1#{FINGERPRINT}#{TOKEN}#", "three parts"),
        (f"{','.join(['b:1'] * 9)}#{FINGERPRINT}#{TOKEN}", "9 addresses"),
        (f"box#{FINGERPRINT}#{TOKEN}", "neither host:port"),
        (f"http://box:1#{FINGERPRINT}#{TOKEN}", "neither host:port"),
        (f"box:1,unix:/run/shoal-1#{FINGERPRINT}#{TOKEN}", "neither host:port"),
        (f"box:0#{FINGERPRINT}#{TOKEN}", "port"),
        (f"box:65536#{FINGERPRINT}#{TOKEN}", "port"),
        (f"relay:box:1:{RELAY_KEY[:-1]}#{FINGERPRINT}#{TOKEN}", "key of a relay"),
        (f"relay:box:0:{RELAY_KEY}#{FINGERPRINT}#{TOKEN}", "port"),
        (f"relay:box:{RELAY_KEY}#{FINGERPRINT}#{TOKEN}", "neither host:port"),
        (f"relay:box:1:{RELAY_KEY}##{TOKEN}", "fingerprint"),
        (f"box:1##{TOKEN}", "fingerprint"),
        (f"box:1#{FINGERPRINT.upper()}#{TOKEN}", "fingerprint"),
        (f"unix:/run/shoal-1#{FINGERPRINT}#{TOKEN}", "fingerprint"),
        (f"box:1#{FINGERPRINT}#{TOKEN[:-1]}", "token"),
        (f"box:1#{FINGERPRINT}#secret-of-somebody", "token"),
    ],
)
def test_a_wrong_join_string_is_explained_without_its_token(text: str, why: str) -> None:
    with pytest.raises(BadInput, match=why) as caught:
        parse_join(text)
    words = str(caught.value)
    assert TOKEN[:20] not in words and RELAY_KEY[:20] not in words and "secret-of-somebody" not in words


# --- the line
@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zip") / "pilot.pyz"
    build(path)
    return path


class Site:
    """A TLS server that gives its CA and the pilot, and a bare host: a shell with an empty environment."""

    def __init__(self, folder: Path, pyz: Path, authority: Authority) -> None:
        self.zip, self.authority, self.ca = pyz.read_bytes(), authority, authority.pem
        self.digest = hashlib.sha256(self.zip).hexdigest()
        self.server = SmallServer(self.answer, folder, authority)
        self.registered: list[Register] = []
        self.work = folder / "work"
        self.work.mkdir()

    def answer(self, request: Request) -> Response:
        if request.path == "/v1/ca":
            return Response(body=self.ca)
        if request.bearer not in (TOKEN, TIMES.session):
            return Response(401)
        if request.path == "/v1/pilot.pyz":
            return Response(body=self.zip)
        if request.path == "/v1/pilots":
            self.registered.append(codec.decode(Register, request.body))
            return Response(body=codec.encode(TIMES))
        said = codec.decode(Exchange, request.body)
        if not said.leaving:
            with self.server.changed:
                self.server.changed.wait(0.5)
        return Response(body=codec.encode(Reply(said.seq, 1, hold=1.0)))

    def line(self, fingerprint: str = "", digest: str = "") -> str:
        join = Join((f"127.0.0.1:{self.server.port}",), fingerprint or self.authority.fingerprint, TOKEN)
        return bootstrap_line(join, digest or self.digest, ("--cores", "1", "--work-dir", str(self.work)))

    def paste(self, line: str) -> subprocess.Popen[str]:
        """As a person at a terminal would: the line is in no argument of the shell itself."""
        shell = subprocess.Popen(
            ["/usr/bin/env", "-i", "/bin/sh"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        assert shell.stdin is not None
        shell.stdin.write(line + "\n")
        shell.stdin.close()
        shell.stdin = None
        return shell


@pytest.fixture
def site(tmp_path: Path, pyz: Path) -> Iterator[Site]:
    made = Site(tmp_path, pyz, padded_authority())
    yield made
    made.server.close()


class Watcher(threading.Thread):
    """Looks at the command line and environment of every process, again and again."""

    def __init__(self, secret: bytes) -> None:
        super().__init__(daemon=True)
        self.secret, self.over = secret, threading.Event()
        self.seen: set[str] = set()
        self.rounds = 0

    def run(self) -> None:
        while not self.over.is_set():
            self.rounds += 1
            for folder in Path("/proc").glob("[0-9]*"):
                for name in ("cmdline", "environ"):
                    with contextlib.suppress(OSError):
                        data = (folder / name).read_bytes()
                        if self.secret in data:
                            self.seen.add(f"{folder.name} {name} {data[:60]!r}")


needs_python = pytest.mark.skipif(
    shutil.which("python3", path="/usr/sbin:/usr/bin:/sbin:/bin") is None,
    reason="no python3 in the default path of a shell: the bootstrap line was NOT tried",
)


@needs_python
def test_the_line_makes_a_pilot_and_no_process_ever_shows_the_token(site: Site) -> None:
    watcher = Watcher(TOKEN.encode())
    watcher.start()
    shell = site.paste(site.line())
    try:
        site.server.wait(lambda: site.registered)
        site.server.wait(lambda: any(r.path.endswith("exchange") for r in site.server.requests))
        pid = site.registered[0].tags["pid"]
        assert site.registered[0].digest == site.digest
        assert Path(f"/proc/{pid}/comm").read_text() == "shoal-pilot\n"
        os.kill(int(pid), signal.SIGTERM)
        out, err = shell.communicate(timeout=20)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        watcher.over.set()
        watcher.join()
        shell.communicate()
    assert (shell.returncode, "joined" in out) == (0, True), (out, err)
    assert watcher.rounds > 3
    assert watcher.seen == set()
    assert TOKEN not in out + err
    assert list(site.work.iterdir()) == []
    paths = [request.path for request in site.server.requests]
    assert paths[:2] == ["/v1/ca", "/v1/pilot.pyz"]
    assert site.server.requests[0].bearer == "", "the token goes to nobody before it is known who that is"


def refused(site: Site, line: str) -> str:
    shell = site.paste(line)
    out, err = shell.communicate(timeout=30)
    assert shell.returncode == 4, (out, err)
    assert TOKEN not in out + err
    assert site.registered == []
    return out + err


@needs_python
def test_a_server_with_another_fingerprint_gets_nothing(site: Site) -> None:
    assert "server certificate does not match the join string" in refused(site, site.line(fingerprint=FINGERPRINT))
    assert [request.bearer for request in site.server.requests] == [""]


@needs_python
def test_a_pilot_with_another_digest_is_not_run(site: Site) -> None:
    assert "not the one this line names" in refused(site, site.line(digest="0" * 64))


@needs_python
def test_a_ca_smuggled_in_behind_the_right_one_gets_nothing(site: Site, tmp_path: Path) -> None:
    (tmp_path / "evil").mkdir()
    evil = SmallServer(lambda request: Response(body=site.authority.pem + rogue.pem), tmp_path, rogue := Authority())
    join = Join((f"127.0.0.1:{evil.port}",), site.authority.fingerprint, TOKEN)
    assert "does not match" in refused(site, bootstrap_line(join, site.digest))
    assert [(request.path, request.bearer) for request in evil.requests] == [("/v1/ca", "")]
    evil.close()


@needs_python
def test_what_is_no_certificate_does_not_match(site: Site) -> None:
    site.ca = b"<html>"
    assert "server certificate does not match the join string" in refused(site, site.line())


@needs_python
def test_a_server_that_is_not_there_is_named(site: Site) -> None:
    site.server.close()
    assert "no answer from 127.0.0.1" in refused(site, site.line())
