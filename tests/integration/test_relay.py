"""A laptop with an embedded server, a login host, and a compute host that reaches only the login host.

Three network namespaces, a real sshd, real processes: a pilot on the compute host works through relay and tunnel, also
after ssh was killed. Whoever has not the relay's key gets nowhere and harms nobody. Key and token are in no argument,
environment or log.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from shoal.client.client import Client
from shoal.model.credentials import ENROL, RELAY_PREFIX
from shoal.model.file_names import SERVER_FILE, SITES_FILE, SOCKET_FILE, TUNNEL_SOCKET
from shoal.provision import relay as relay_file
from shoal.provision.tunnel import Tunnel
from shoal.wire.http import relay_preamble
from shoal.wire.join import Join, bootstrap_line, relay_address
from tests.integration import namespaces
from tests.integration.cluster import FAST, clean_env
from tests.integration.namespaces import LAPTOP, LOGIN, LOGIN_INSIDE, Namespace
from tests.unix_http import UnixHTTPConnection

pytestmark = [pytest.mark.integration, pytest.mark.slow]
T = TypeVar("T")
Json = dict[str, Any]
PATIENCE = 60.0
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


def until(condition: Callable[[], T], what: Callable[[], str] | str, within: float = PATIENCE) -> T:
    """Wait until something is true, and return it."""
    end = time.monotonic() + within
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {within:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.02)
    return found


def new_key() -> str:
    """A relay's key."""
    return RELAY_PREFIX + secrets.token_urlsafe(32)


@contextlib.contextmanager
def server_at(state: Path, argv: Callable[..., list[str]] = lambda *words: list(words)) -> Iterator[Client]:
    """An embedded server, which has no port."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    words = ("--state", str(state), "--embedded", "--no-pilot", "--linger", "600", "--timing", json.dumps(FAST))
    with (state / "server.log").open("wb") as log:
        process = subprocess.Popen(
            argv(sys.executable, "-m", "shoal.server", *words), stderr=log, stdin=subprocess.DEVNULL, env=clean_env()
        )
    try:
        until(lambda: (state / SERVER_FILE).exists(), lambda: (state / "server.log").read_text())
        found = json.loads((state / SERVER_FILE).read_text())
        with Client(found["url"], found["token"]) as client:
            yield client
    finally:
        process.terminate()
        assert process.wait(PATIENCE) == 0


# --- the socket
class TlsOverUnix:
    """Requests over TLS to the socket for tunnels."""

    def __init__(self, state: Path) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE
        self.path = str(state / TUNNEL_SOCKET)

    def ask(self, path: str, token: str = "") -> int:
        """The status of an answer."""
        with socket.socket(socket.AF_UNIX) as plain:
            plain.settimeout(10.0)
            plain.connect(self.path)
            with self.context.wrap_socket(plain, server_hostname="shoal-server") as secured:
                bearer = f"Authorization: Bearer {token}\r\n" if token else ""
                secured.sendall(
                    f"GET {path} HTTP/1.1\r\nHost: shoal-server\r\n{bearer}Connection: close\r\n\r\n".encode()
                )
                return int(secured.recv(4096).split()[1])


def test_tls_is_served_on_a_socket_when_it_is_asked_for_and_callers_there_are_strangers(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with server_at(state) as client:
        assert not (state / TUNNEL_SOCKET).exists() and not (state / "tls").exists(), "nobody asked for it"
        made = client.open_tunnel_socket()
        assert made == client.open_tunnel_socket(), "again: the same"
        assert made["socket"] == str(state / TUNNEL_SOCKET)
        assert (state / TUNNEL_SOCKET).stat().st_mode & 0o777 == 0o600
        token, far = json.loads((state / SERVER_FILE).read_text())["token"], TlsOverUnix(state)
        assert far.ask("/v1/ca") == 200
        assert far.ask("/v1/whoami") == 401, "that it is our own account gives no rights"
        assert far.ask("/v1/whoami", token) == 200
        wrong = [far.ask("/v1/whoami", "shoal_sub_" + "x" * 43) for _ in range(60)]
        assert 429 in wrong, "guesses are counted as those from elsewhere are"
        assert far.ask("/v1/whoami", token) == 200
        near = UnixHTTPConnection(str(state / SOCKET_FILE))
        for _ in range(60):
            near.request("GET", "/v1/whoami", headers={"Authorization": "Bearer shoal_sub_" + "x" * 43})
            answer = near.getresponse()
            answer.read()
            assert answer.status == 401, "and harm nobody of this account"
        near.close()
        audit = client.audit()["audit"]
        assert any(line["address"] == "tunnel" for line in audit), audit
    assert not (state / TUNNEL_SOCKET).exists()
    (state / SITES_FILE).parent.mkdir()
    (state / SITES_FILE).write_text("{}")
    with server_at(state) as client:
        until((state / TUNNEL_SOCKET).exists, "who has sites gets it with the start")
        assert client.open_tunnel_socket() == made, "the same CA"


# --- the relay alone
class RelayProcess:
    """A relay on loopback, and a server behind it that sends back what it gets."""

    def __init__(self, key: str, ports: tuple[int, ...] = (0,)) -> None:
        self.key, self.callers = key, list[socket.socket]()
        self.behind = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._echo, daemon=True).start()
        self.process = subprocess.Popen(
            [sys.executable, "-I", relay_file.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stdin is not None and self.process.stdout is not None
        order = {"key": key, "to": self.behind.getsockname()[1], "host": "127.0.0.1", "ports": list(ports)}
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline().decode()
        self.port = int(json.loads(said.removeprefix(relay_file.ANNOUNCED))["port"])

    def _echo(self) -> None:
        def serve(found: socket.socket) -> None:
            with contextlib.suppress(OSError), found:
                while data := found.recv(1 << 16):
                    found.sendall(data)

        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(self.behind.accept()[0],), daemon=True).start()

    def call(self) -> tuple[socket.socket, bytes]:
        """A connection, and the greeting."""
        caller = socket.create_connection(("127.0.0.1", self.port), 10.0)
        self.callers.append(caller)
        return caller, read(caller, relay_preamble.GREETING_SIZE)

    def passed(self) -> socket.socket:
        """A connection of somebody who has the key."""
        caller, greeting = self.call()
        ours = secrets.token_hex(32).encode()
        caller.sendall(relay_preamble.answer(self.key, greeting, ours))
        relay_preamble.check_verdict(self.key, greeting, ours, read(caller, relay_preamble.VERDICT_SIZE))
        return caller

    def close(self) -> int:
        """The ssh session ends."""
        assert self.process.stdin is not None
        for caller in (*self.callers, self.behind):
            caller.close()
        self.process.communicate(timeout=10.0)
        return self.process.returncode


def read(caller: socket.socket, size: int) -> bytes:
    """So many bytes, or what came before the end."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while len(data) < size and (more := caller.recv(size - len(data))):
            data += more
    return data


@pytest.fixture
def alone() -> Iterator[RelayProcess]:
    made = RelayProcess(new_key())
    yield made
    made.close()


def test_who_has_not_the_key_is_refused_and_others_are_not_harmed(alone: RelayProcess) -> None:
    good = alone.passed()

    def works(caller: socket.socket) -> bool:
        caller.sendall(b"hello")
        return read(caller, 5) == b"hello"

    assert works(good)
    silent, _ = alone.call()
    began = time.monotonic()
    ours = secrets.token_hex(32).encode()
    seen = b""
    for key in (new_key(), alone.key):  # a wrong key, then a replayed answer
        caller, greeting = alone.call()
        sent = relay_preamble.answer(key, greeting, ours)
        caller.sendall(seen or sent)
        assert read(caller, 1) == b"", "refused without a word"
        if key != alone.key:
            caller, greeting = alone.call()
            seen = relay_preamble.answer(alone.key, greeting, ours)
            caller.sendall(seen)
            assert read(caller, 5) == b"open "
    for garbage in (b"GET / HTTP/1.1\r\n" + b"x" * 200, b"\0" * 135, b"quit " + b"0" * 64 + b" " + b"0" * 64 + b"\n"):
        caller, _ = alone.call()
        caller.sendall(garbage)
        assert read(caller, 1) == b""
    for _ in range(relay_file.MAX_HALF_OPEN + 50):
        alone.call()
    slow, greeting = alone.call()
    answer = relay_preamble.answer(alone.key, greeting, ours)
    assert works(alone.passed()), "the oldest silent callers make way"
    assert works(good)
    with contextlib.suppress(OSError):
        for at in range(len(answer)):  # a byte at a time, too slowly
            slow.sendall(answer[at : at + 1])
            time.sleep(0.08)
    assert read(slow, 1) == b""
    assert read(silent, 1) == b"" and time.monotonic() - began < 30.0
    assert works(good)


def test_a_large_transfer_is_whole_and_a_relay_without_a_tunnel_says_so(alone: RelayProcess) -> None:
    caller, data, got = alone.passed(), os.urandom(1 << 23), bytearray()

    def send() -> None:
        caller.sendall(data)
        caller.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    while more := caller.recv(1 << 16):
        got += more
    sender.join()
    assert got == data
    alone.behind.shutdown(socket.SHUT_RDWR)
    alone.behind.close()
    with pytest.raises(OSError, match="the tunnel behind it is down"):
        alone.passed()


def test_the_next_relay_gets_the_port_of_one_whose_session_is_dead_and_nobody_elses() -> None:
    key = new_key()
    first = RelayProcess(key)
    other = RelayProcess(new_key(), (first.port, 0))
    assert other.port != first.port, "it is not asked by whoever has another key"
    second = RelayProcess(key, (first.port, 0))
    assert second.port == first.port
    assert first.process.wait(10.0) == 0
    second.passed().close()
    assert first.close() == second.close() == other.close() == 0


# --- three hosts
class Site:
    """The three hosts, an sshd on login, a server on the laptop and a tunnel between them."""

    def __init__(self, laptop: Namespace, login: Namespace, compute: Namespace, folder: Path) -> None:
        self.laptop, self.login, self.compute, self.folder = laptop, login, compute, folder
        self.state, self.key, self.said = folder / "laptop" / "state", new_key(), list[str]()
        self.fingerprint, self.client = "", Client("unix:/nowhere")
        self.tunnel: Tunnel | None = None
        self.pilots: list[subprocess.Popen[bytes]] = []
        self.watcher = Watcher()

    def ssh(self, *more: str) -> list[str]:
        """What a person has in their configuration."""
        given = {"UserKnownHostsFile": self.folder / "known", "StrictHostKeyChecking": "accept-new",
                 "IdentitiesOnly": "yes", "IdentityFile": self.folder / "id"}  # fmt: skip
        options = [word for name, value in given.items() for word in ("-o", f"{name}={value}")]
        return self.laptop.argv("ssh", "-F", "/dev/null", *options, *more, f"root@{LOGIN}")

    def join(self) -> Join:
        """The join string of an allocation."""
        assert self.up.address is not None
        token = str(self.client.new_token(ENROL, site="cluster", max_pilots=4)["token"])
        self.watcher.secrets += [self.key.encode(), token.encode()]
        return Join(tuple(self.up.address.split(",")), self.fingerprint, token)

    @property
    def up(self) -> Tunnel:
        """The tunnel."""
        assert self.tunnel is not None
        return self.tunnel

    def pilot(self, argv: list[str], said: bytes = b"") -> Path:
        """Start a pilot on the compute host; returns its log."""
        log = self.folder / f"pilot{len(self.pilots)}.log"
        work = self.folder / f"work{len(self.pilots)}"
        work.mkdir()
        with log.open("wb") as out:
            process = subprocess.Popen(
                self.compute.argv("env", "-i", f"TMPDIR={work}", *argv, hidden=[self.folder / "laptop"]),
                stdin=subprocess.PIPE, stdout=out, stderr=out, cwd="/", start_new_session=True,
            )  # fmt: skip
        self.pilots.append(process)
        assert process.stdin is not None
        process.stdin.write(said)
        process.stdin.close()
        until(lambda: re.search(r"pilot p[0-9a-f]+ joined|joined pilot=", log.read_text()), lambda: log.read_text())
        return log

    def ssh_pid(self) -> int:
        """The ssh of the tunnel."""
        return next(pid for pid in self.laptop.pids() if Path(f"/proc/{pid}/comm").read_text().strip() == "ssh")

    def submit(self, task: Json) -> str:
        """A run."""
        return str(self.client.submit({"tasks": [task]})["run"])

    def finished(self, run: str) -> list[Json]:
        """The tasks of a run, once it has finished."""
        until(lambda: self.client.run(run)["finished"], lambda: json.dumps(self.client.run(run)))
        return list(self.client.tasks(run)["tasks"])


class Watcher(threading.Thread):
    """Looks for secrets in the arguments and environments of all processes, again and again."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.secrets: list[bytes] = []
        self.seen: set[str] = set()
        self.rounds, self.over = 0, threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.05):
            self.rounds += 1
            for folder in Path("/proc").glob("[0-9]*"):
                for name in ("cmdline", "environ"):
                    with contextlib.suppress(OSError):
                        data = (folder / name).read_bytes()
                        if any(secret in data for secret in self.secrets):
                            self.seen.add(f"{folder / name}: {data[:300]!r}")


@contextlib.contextmanager
def sshd(login: Namespace, folder: Path) -> Iterator[None]:
    """An sshd of our own in a network of our own: its keys, its port, one person who may log in."""
    for name in ("host", "id"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True, timeout=60
        )
    (folder / "sshd_config").write_text(
        f"HostKey {folder}/host\nListenAddress {LOGIN}\nPort 22\nPidFile none\nUsePAM no\nStrictModes no\n"
        f"PasswordAuthentication no\nPermitRootLogin prohibit-password\nAuthorizedKeysFile {folder}/id.pub\n"
        f'SetEnv HOME="{folder}" PATH="{os.environ["PATH"]}"\n'  # no start-up files of this account
    )
    with (folder / "sshd.log").open("wb") as log:
        process = subprocess.Popen(login.argv(SSHD, "-D", "-e", "-f", str(folder / "sshd_config")), stderr=log)
    try:
        until(
            lambda: "Server listening" in (folder / "sshd.log").read_text(),
            lambda: (folder / "sshd.log").read_text(),
        )
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Everything up, but no pilot."""
    reason = namespaces.missing() or ("" if Path(SSHD).exists() and shutil.which("ssh") else "no sshd, or no ssh")
    if reason:
        pytest.skip(f"{reason}: a relay on a login host was NOT tested")
    folder = tmp_path_factory.mktemp("relay")
    with contextlib.ExitStack() as stack:
        laptop, login, compute = stack.enter_context(namespaces.in_a_row())
        made = Site(laptop, login, compute, folder)
        stack.enter_context(sshd(login, folder))
        made.client = stack.enter_context(server_at(made.state, laptop.argv))
        asked = made.client.open_tunnel_socket()
        made.fingerprint = asked["fingerprint"]
        made.tunnel = tunnel = Tunnel(made.ssh(), asked["socket"], True, made.key, made.said.append)
        made.watcher.start()
        try:
            tunnel.start()
            until(lambda: made.up.address, lambda: f"{made.up.trouble} {made.said} {(folder / 'sshd.log').read_text()}")
            yield made
        finally:
            made.client.drain()
            for process in made.pilots:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10.0)
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            tunnel.stop()
            made.watcher.over.set()


def test_a_pilot_that_reaches_only_login_works_also_after_ssh_was_killed(site: Site) -> None:
    with pytest.raises(OSError):
        site.compute.do(lambda: socket.create_connection((LAPTOP, 22), 2.0))
    ticket = site.folder / "ticket"
    ticket.touch(mode=0o600)
    ticket.write_text(str(site.join()))
    pyz = site.folder / "pilot.pyz"
    until((site.state / "pilot.pyz").exists, "the server has built it")
    site.client.new_token(ENROL, site="cluster", max_pilots=1)  # waits for its digest, so for its last byte
    shutil.copy(site.state / "pilot.pyz", pyz)
    log = site.pilot([sys.executable, "-I", str(pyz), "--join-file", str(ticket), "--site", "cluster", "--cores", "4"])
    tale = site.folder / "tale"
    shell = f"echo $SHOAL_TASK >> {tale}; sleep 1.5; head -c 100000 /dev/zero | tr '\\0' x; echo; echo {{i}}"
    run = site.submit({"shell": shell, "array": "1-12"})
    until(lambda: tale.exists() and len(tale.read_text().splitlines()) >= 4, lambda: log.read_text())
    port = site.up.port
    os.kill(site.ssh_pid(), signal.SIGKILL)
    until(lambda: not site.up.is_up, "its end is noticed")
    assert site.up.trouble, "it says why"
    until(lambda: site.up.is_up, lambda: str(site.said))
    assert site.up.port == port
    rows = site.finished(run)
    assert [(row["element"], row["state"], row["last_line"]) for row in rows] == [
        (n, "succeeded", str(n)) for n in range(1, 13)
    ]
    starts = Counter(tale.read_text().splitlines())
    assert set(starts.values()) == {1}, f"nothing ran twice: {starts}"
    text = site.client.logs(f"{run}.12").data
    assert len(text) > 100_000, "streams come through the relay, too"


def test_the_line_of_join_goes_through_the_relay(site: Site) -> None:
    made = site.client.new_token(ENROL, site="cluster", max_pilots=1)
    line = bootstrap_line(site.join(), str(made["pilot_sha256"]), ("--cores", "1", "--site", "cluster"))
    log = site.pilot(["/bin/sh"], line.encode() + b"\n")
    words = log.read_text()
    assert RELAY_PREFIX not in words
    wrong = Join((relay_address(LOGIN_INSIDE, site.up.port, new_key()),), site.fingerprint, site.join().token)
    refused = subprocess.run(
        site.compute.argv("env", "-i", "/bin/sh"), input=bootstrap_line(wrong, "0" * 64), text=True, timeout=60,
        capture_output=True, check=False,
    )  # fmt: skip
    assert (
        refused.returncode == 4 and "no answer from relay:" in refused.stderr and "the relay refused" in refused.stderr
    )
    assert RELAY_PREFIX not in refused.stderr


def test_an_ssh_box_and_a_shared_connection(site: Site) -> None:
    """Pilots on login itself: the relay is on its loopback only. The tunnel goes over a connection that is there already."""
    control = site.folder / "control"
    master = subprocess.Popen(
        site.ssh("-M", "-S", str(control), "-N"), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until(control.exists, "the connection is there")
    said: list[str] = []
    socket_path = str(site.state / TUNNEL_SOCKET)
    box = Tunnel(site.ssh("-S", str(control)), socket_path, False, site.key, said.append)
    box.start()
    try:
        until(lambda: box.address, lambda: f"{box.trouble} {said}")
        assert box.address == f"relay:127.0.0.1:{box.port}:{site.key}"
        with pytest.raises(OSError):
            site.compute.do(lambda: socket.create_connection((LOGIN_INSIDE, box.port), 2.0))
        with site.login.do(lambda: socket.create_connection(("127.0.0.1", box.port), 5.0)) as caller:
            assert read(caller, len(relay_preamble.GREETING)) == relay_preamble.GREETING
    finally:
        box.stop()
        master.terminate()
        try:
            master.wait(PATIENCE / 4)
        except subprocess.TimeoutExpired:  # ssh waits for a client of its connection that is gone
            master.kill()
            master.wait(PATIENCE)
    until(lambda: not listens(site.login, box.port), "the relay ended with the tunnel")


def listens(network: Namespace, port: int) -> bool:
    """True if somebody listens on a port of a network's loopback."""

    def tried() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 2.0):
            return True
        return False

    return network.do(tried)


def test_a_host_without_forwarding_is_told_in_one_line(site: Site) -> None:
    said: list[str] = []
    closed = Tunnel(
        site.ssh("-o", "IdentityFile=/dev/null", "-o", "Port=23"), ("127.0.0.1", 1), True, site.key, said.append
    )
    closed.start()
    until(lambda: said, "it says why")
    closed.stop()
    assert "refused" in said[0] and "\n" not in said[0], said
    assert closed.address is None


def test_neither_key_nor_token_was_in_an_argument_an_environment_or_a_log(site: Site) -> None:
    """The last of this file: it looks at what the others left."""
    assert site.watcher.rounds > 10 and len(site.watcher.secrets) >= 2
    # What was pasted into a shell is in no argument of the shell; it comes by standard input.
    assert site.watcher.seen == set()
    logs = [*site.folder.glob("*.log"), site.state / "server.log"]
    assert len(logs) >= 4
    for log in logs:
        data = log.read_bytes()
        assert not [secret for secret in site.watcher.secrets if secret in data], log
    assert not [line for line in site.said if RELAY_PREFIX in line]
