"""A real pilot becomes another one: the zip changes, the process stays [protocol 8]."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.model import credentials
from shoal.pilot import main, self_update
from shoal.pilot.build_zip import build
from shoal.wire import codec
from shoal.wire.join import Join
from shoal.wire.messages import Exchange, Order, Register, Registered, Reply
from tests.unit.pilot.small_server import Authority, Request, Response, SmallServer

TOKEN = credentials.make(credentials.ENROL, "t" * 43)
OLDEST = next(iter(sorted((Path.home() / ".pyenv" / "versions").glob("3.9*/bin/python"))), None)
TIMES = Registered(
    "p0001", "", 1, beat=1.0, lease=10.0, hold=1.0, kill_after=60.0, grace=0.5, idle_end=30.0, spool_end=60.0
)


def session(number: int) -> str:
    return credentials.make(credentials.SESSION, f"{number:043}")


@pytest.fixture(scope="module")
def zips(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The pilot, and one that differs in its version."""
    folder = tmp_path_factory.mktemp("zips")
    old, new = folder / "old.pyz", folder / "new.pyz"
    build(old)
    with zipfile.ZipFile(old) as source, zipfile.ZipFile(new, "w") as target:
        for entry in source.infolist():
            data = source.read(entry)
            target.writestr(entry, b'__version__ = "99.9"\n' if entry.filename == "shoal/__init__.py" else data)
    return old, new


class Host:
    """A server that orders every pilot with another zip to renew itself, and the pilots of one test."""

    def __init__(self, folder: Path, zips: tuple[Path, Path], authority: Authority | None = None) -> None:
        self.folder, self.old, self.new = folder, *zips
        self.served = self.new.read_bytes()
        self.ordered = hashlib.sha256(self.served).hexdigest()
        self.registered: list[Register] = []
        self.bearers: list[str] = []
        self.fetches: list[str] = []
        self.farewells: list[str] = []
        self.authority = authority
        self.server = SmallServer(self._answer, folder, authority)
        self.pilots: list[subprocess.Popen[str]] = []
        (folder / "tmp").mkdir()
        file = folder / "server.json"
        file.write_text(json.dumps({"url": self.server.url, "token": "t", "enrol": TOKEN, "pid": 1}))
        self.server_file = file

    def _answer(self, request: Request) -> Response:
        if request.path == "/v1/ca":
            assert self.authority is not None
            return Response(body=self.authority.pem)
        if request.path == "/v1/pilot.pyz":
            self.fetches.append(request.bearer)
            return Response(body=self.served)
        if request.path == "/v1/pilots":
            self.bearers.append(request.bearer)
            self.registered.append(codec.decode(Register, request.body))
            return Response(body=codec.encode(replace(TIMES, session=session(len(self.registered)))))
        said = codec.decode(Exchange, request.body)
        assert request.bearer == said.session
        orders = []
        if said.leaving:
            self.farewells.append(said.leaving)
        elif said.seq == 1 and self.registered[-1].digest != self.ordered:
            orders = [Order("renew", why=self.ordered)]
        elif said.seq > 1:
            with self.server.changed:
                self.server.changed.wait(0.2)
        return Response(body=codec.encode(Reply(said.seq, 1, orders=orders, hold=1.0)))

    def pilot(self, *words: str, python: str = sys.executable) -> subprocess.Popen[str]:
        started = subprocess.Popen(
            [python, "-I", str(self.old), "--cores", "1", "--site", "box", *words],
            env={"PATH": os.environ["PATH"], "TMPDIR": str(self.folder / "tmp")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pilots.append(started)
        return started

    def end(self, pilot: subprocess.Popen[str]) -> str:
        pilot.send_signal(signal.SIGTERM)
        out, err = pilot.communicate(timeout=20)
        assert pilot.returncode == 0, (out, err)
        assert "shoal_enr_t" not in out + err and "shoal_ses_0" not in out + err
        assert list((self.folder / "tmp").glob("*/*")) == []
        return out + err


Open = Callable[..., Host]


@pytest.fixture
def open_host(tmp_path: Path, zips: tuple[Path, Path]) -> Iterator[Open]:
    made: list[Host] = []

    def begin(**more: Authority) -> Host:
        made.append(Host(tmp_path, zips, **more))
        return made[-1]

    yield begin
    for host in made:
        for pilot in host.pilots:
            if pilot.poll() is None:
                pilot.kill()
            pilot.communicate()
        host.server.close()


@pytest.mark.parametrize("version", ["this", "oldest"])
def test_an_idle_pilot_becomes_the_servers_new_one_in_the_same_process(open_host: Open, version: str) -> None:
    if version == "oldest" and OLDEST is None:
        pytest.skip("no Python 3.9 in ~/.pyenv: the pilot was NOT renewed on the oldest Python")
    host = open_host()
    python = str(OLDEST) if version == "oldest" else sys.executable
    pilot = host.pilot("--server-file", str(host.server_file), python=python)
    host.server.wait(lambda: len(host.registered) == 2)
    first, second = host.registered
    old = hashlib.sha256(host.old.read_bytes()).hexdigest()
    assert (first.digest, second.digest) == (old, host.ordered)
    assert second.version == "99.9" != first.version
    assert first.tags["pid"] == second.tags["pid"] == pilot.pid
    assert (second.site, second.room.cores, second.former) == ("box", 1, None)
    assert first.nonce != second.nonce
    assert host.fetches == [session(1)]
    assert host.bearers == [TOKEN, TOKEN]
    assert host.farewells, "the old one said that it leaves"
    words = Path(f"/proc/{pilot.pid}/cmdline").read_bytes().split(b"\0")
    assert words[2].startswith(b"/proc/self/fd/")
    files = [os.readlink(path) for path in Path(f"/proc/{pilot.pid}/fd").iterdir()]
    assert len([name for name in files if "memfd:shoal" in name]) == 1, "only the zip that it runs from"
    assert "renewed by the server" in host.end(pilot)


def test_a_join_string_is_handed_on_in_memory(open_host: Open, tmp_path: Path) -> None:
    authority = Authority()
    host = open_host(authority=authority)
    file = tmp_path / "join"
    file.write_text(str(Join((f"127.0.0.1:{host.server.port}",), authority.fingerprint, TOKEN)))
    pilot = host.pilot("--join-file", str(file))
    host.server.wait(lambda: len(host.registered) == 1)
    file.unlink()
    host.server.wait(lambda: len(host.registered) == 2)
    assert host.bearers == [TOKEN, TOKEN]
    for name in ("cmdline", "environ"):
        assert TOKEN.encode() not in Path(f"/proc/{pilot.pid}/{name}").read_bytes()
    files = [os.readlink(path) for path in Path(f"/proc/{pilot.pid}/fd").iterdir()]
    assert len([name for name in files if "memfd:shoal" in name]) == 1, "the join string was closed at once"
    host.end(pilot)


def test_another_zip_than_ordered_is_refused_once_and_the_pilot_stays(open_host: Open) -> None:
    host = open_host()
    host.served += b"x"
    pilot = host.pilot("--server-file", str(host.server_file))
    host.server.wait(lambda: sum(r.path.endswith("exchange") for r in host.server.requests) > 6)
    assert len(host.registered) == len(host.fetches) == 1
    assert host.farewells == []
    said = host.end(pilot)
    assert said.count("another pilot than it ordered") == 1


def test_a_pilot_that_does_not_run_from_a_zip_has_no_digest() -> None:
    assert self_update.own_digest() == ""


def test_the_next_pilot_gets_our_options() -> None:
    words = [
        "--server",
        "unix:/run/shoal-1",
        "--token-file",
        "t",
        "--cores",
        "3",
        "--idle-end",
        "2.5",
        "--until",
        "9999999999.0",
    ]
    words += ["--cache-dir", "/var/tmp/c", "--cache-max", "1048576", "--cache-reserve", "1024"]
    words += ["--mesh", "off", "--mesh-port", "9700-9799", "--mesh-address", "10.0.0.1"]
    words += [
        "--tag",
        "a=1",
        "--tag",
        "b=x y",
        "--storage",
        "data/=/se/",
        "--storage",
        "=https://se/",
        "--no-pid-namespace",
        "--no-cgroup",
        "--verbose",
    ]
    assert self_update.options_again(main.parse(words)) == words
    assert self_update.options_again(main.parse(["--join-fd", "3", "--work-dir", "w"])) == ["--work-dir", "w"]
    known = set(vars(main.parse(["--join-fd", "3"])))
    handed = {"server_file", "server", "token_file", "cores", "site", "work_dir", "idle_end", "tag", "verbose"}
    handed |= {"cache_dir", "cache_max", "cache_reserve", "storage"}
    handed |= {"no_pid_namespace", "no_cgroup", "until"}  # a lifetime becomes the time when it ends
    handed |= {"mesh", "mesh_port", "mesh_address", "shared_dir", "address_dir"}
    # The server listens when a pilot is renewed: it waits for nothing.
    assert known - handed == {"join_fd", "join_file", "lifetime", "wait_stdin"}, (
        "a new option has to be handed on, or named here"
    )


def test_a_pilot_that_cannot_be_started_is_an_error() -> None:
    with pytest.raises(OSError, match="Bad file"):
        self_update.become(2**20, main.parse(["--server-file", "f"]), None)
