"""A whole day of a server, with every kind of secret in use; afterwards each of them is looked for everywhere.

Looked through are logs, answers, command lines, environments, the database and its backup, what tasks print, and every
file; in each form a secret can take (text, bytes, hexadecimal, base64 at any alignment, parts). Where a secret may lie
is a literal list. The search is proved by planted copies. Promise D: canary tokens in 0 logs, pages, argv, environ,
database files, core dumps.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import ssl
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from shoal.client.connection.tls import fetch_ca
from shoal.model.file_names import DATABASE
from tests.integration.cluster import Cluster, clean_env, comm, free_port
from tests.unix_http import UnixHTTPConnection

pytestmark = [pytest.mark.integration, pytest.mark.slow]
Json = dict[str, Any]
PATIENCE = 60.0
NOTHING, LONG_NOTHING = bytes(64), bytes(4096)
STRANGER = 31_337  # an account without a name: nobody else's
TOKEN = re.compile(rb"shoal_(?:sub|enr|ses)_[A-Za-z0-9_-]{43}")
KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\n[A-Za-z0-9+/=\n]+-----END [A-Z ]*PRIVATE KEY-----")
# Where secrets may rest, and nowhere else; all of it readable by its owner only.
ALLOWED = (
    "cluster/state/token",
    "cluster/state/enrol",
    "cluster/state/server.json",
    "cluster/state/tls/ca-with-key.pem",
    "cluster/state/tls/server-with-key.pem",
    "home/config/shoal/token",
)
NOSY = """
env; echo; cat /proc/self/environ /proc/self/cmdline /proc/self/limits /proc/self/status /proc/self/mountinfo
ls -l /proc/self/fd /proc/$PPID/fd; cat /proc/$PPID/environ /proc/$PPID/cmdline
cat /proc/*/cmdline 2>/dev/null; set; echo "core $(ulimit -S -c)" >&2; echo seen
"""
PRY = """
try() { if (exec 3<"/proc/$1/$2") 2>/dev/null; then echo "open $2"; else echo "denied $2"; fi; }
for p in "$@"; do for f in environ mem maps auxv; do try $p $f; done; ls /proc/$p/fd >/dev/null 2>&1 && echo "open fd"; done
"""


# --- secrets and how they look
def _aligned(data: bytes) -> list[bytes]:
    """Base64 of something within something longer: one form for each place it may begin at."""
    return [base64.b64encode(b"\0" * shift + data)[4 * shift // 3 + 2 : -4] for shift in range(3)]


def forms_of_token(secret: str) -> list[bytes]:
    """Whole, in halves, as its 256 bits, and each of these encoded."""
    text, body = secret.encode(), secret[10:].encode()
    bits = base64.urlsafe_b64decode(body + b"=")
    found = [text, body[:20], body[-20:], bits, *_aligned(text), *_aligned(bits)]
    for data in (text, bits):
        found += [data.hex().encode(), data.hex().upper().encode()]
    return found


def forms_of_key(pem: bytes) -> list[bytes]:
    """The lines that hold its number, its DER, the number itself, and each of these encoded."""
    key = serialization.load_pem_private_key(pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    number = key.private_numbers().private_value.to_bytes(32, "big")
    der = key.private_bytes(serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    lines = [line for line in pem.splitlines() if not line.startswith(b"-")]
    found = [*lines[:2], der, number, *_aligned(number)]
    for data in (der, number):
        found += [data.hex().encode(), data.hex().upper().encode()]
    return found


class Secrets:
    """Every secret there ever was, by a name for the report."""

    def __init__(self) -> None:
        self.forms: dict[str, list[bytes]] = {}
        self.texts: dict[str, str] = {}
        self._known: set[str] = set()

    def token(self, what: str, secret: str) -> str:
        """Remember a token or session."""
        if secret not in self._known:
            self._known.add(secret)
            name = f"{what} {len(self._known)}"
            self.forms[name], self.texts[name] = forms_of_token(secret), secret
        return secret

    def key(self, what: str, pem: bytes) -> None:
        """Remember a private key."""
        text = pem.decode()
        if text not in self._known:
            self._known.add(text)
            self.forms[f"{what} {len(self._known)}"] = forms_of_key(pem)

    def found_in(self, data: bytes) -> list[str]:
        """Names of the secrets that are in these bytes."""
        data = data.replace(LONG_NOTHING, NOTHING)  # no form has that much of it, and the disk reserve is nothing else
        return [name for name, forms in self.forms.items() if any(form in data for form in forms)]


class Watcher(threading.Thread):
    """Looks at the command line and environment of every process, all day long."""

    def __init__(self) -> None:
        super().__init__(name="watcher", daemon=True)
        self.seen: dict[tuple[int, bytes], tuple[str, str]] = {}
        self.looks = 0
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            for entry in os.listdir("/proc"):
                if entry.isdigit():
                    for what in ("cmdline", "environ"):
                        with contextlib.suppress(OSError):
                            data = Path(f"/proc/{entry}/{what}").read_bytes()
                            if data and (int(entry), data) not in self.seen:
                                self.seen[int(entry), data] = (comm(int(entry)), what)
            self.looks += 1
            self._over.wait(0.01)

    def close(self) -> None:
        """Enough."""
        self._over.set()
        self.join(PATIENCE)


class Day:
    """The stage: a server for others, people, hosts, and a record of everything that was said."""

    def __init__(self, folder: Path, pilot_zip: Path) -> None:
        self.folder = folder
        self.cluster = Cluster(folder / "cluster", pilot_zip)
        self.secrets, self.watcher = Secrets(), Watcher()
        self.said: list[tuple[str, bytes]] = []  # answers and outputs that must hold no secret
        self.bearers: set[int] = set()  # processes whose owner put a token into their environment
        self.shells: list[subprocess.Popen[bytes]] = []
        self.port = free_port()
        self.home = folder / "home"
        (self.home / "work").mkdir(parents=True)
        self._numbers = itertools.count(1)
        # A place that an ordinary account can read: pytest's own directories are closed to it.
        self.open = Path(tempfile.mkdtemp(prefix="shoal-canary-", dir="/tmp"))
        self.open.chmod(0o755)

    def close(self) -> None:
        """End everything that was started here."""
        for shell in self.shells:
            for pid in [*_below(shell.pid), shell.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            shell.wait(PATIENCE)
        self.watcher.close()
        self.cluster.close()
        shutil.rmtree(self.open, ignore_errors=True)

    # --- asking
    def ask(self, method: str, path: str, body: Any = None, token: str = "", makes: str = "") -> Json:
        """A request on this machine; unless it makes a secret, its answer is kept for the search."""
        headers = {"Authorization": f"Bearer {token or self.cluster.address()['token']}"}
        headers |= {"Content-Type": "application/json"} if body is not None else {}
        while True:
            connection = UnixHTTPConnection(self.cluster.address()["url"])
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            data = answer.read()
            connection.close()
            if answer.status != 429:
                break
            time.sleep(0.3)
        if makes:
            found: Json = json.loads(data)
            assert answer.status == 200, data
            self.secrets.token(makes, found["token"])
            return found
        self.said.append((f"{method} {path[:40]} {answer.status}", repr(answer.getheaders()).encode() + data))
        with contextlib.suppress(ValueError):
            kept = json.loads(data)
            if isinstance(kept, dict):
                return {"status": answer.status, **kept}
        return {"status": answer.status}

    def shoal(self, *words: str, said: str = "", token: str = "", makes: bool = False, status: int = 0) -> str:
        """A command of the person at home; what it prints is kept for the search unless it makes a secret."""
        process = self.start_shoal(*words, token=token)
        out, err = process.communicate(said, PATIENCE)
        assert process.returncode == status, (words, process.returncode, out, err)
        if not makes:
            self.said.append((f"shoal {' '.join(words)[:60]}", (out + err).encode()))
        return out

    def start_shoal(self, *words: str, token: str = "") -> subprocess.Popen[str]:
        """Start such a command."""
        names = {"HOME": self.home, "XDG_STATE_HOME": self.home / "state", "XDG_CONFIG_HOME": self.home / "config"}
        env = {**clean_env(), **{name: str(path) for name, path in names.items()}}
        if token:
            env["SHOAL_TOKEN"] = token
        process = subprocess.Popen(
            [sys.executable, "-m", "shoal.cli", *words], env=env, cwd=self.home / "work", text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        if token:
            self.bearers.add(process.pid)
        return process

    # --- pilots
    def paste(self, line: str, *under: str) -> tuple[subprocess.Popen[bytes], Path]:
        """Paste a line into a shell with an empty environment, all cores allowed."""
        log = self.folder / f"pasted{next(self._numbers)}.log"
        with log.open("wb") as out:
            shell = subprocess.Popen(
                [*under, "env", "-i", "/bin/sh"], stdin=subprocess.PIPE, stdout=out, stderr=out, cwd="/",
                start_new_session=True,
            )  # fmt: skip
        self.shells.append(shell)
        assert shell.stdin is not None
        shell.stdin.write(f"ulimit -S -c $(ulimit -H -c)\n{line}\n".encode())
        shell.stdin.close()
        self.cluster.until(lambda: b"joined pilot=" in log.read_bytes() or shell.poll() is not None, "it joins")
        assert shell.poll() is None, log.read_text()
        return shell, log

    def plunder(self, *pids: int) -> None:
        """As root, take every secret out of the memory of these processes: now we know what to look for."""
        for pid in pids:
            for data in memory_of(pid):
                for secret in TOKEN.findall(data):
                    self.secrets.token(f"in memory of {comm(pid)}", secret.decode())
                for pem in KEY.findall(data):
                    with contextlib.suppress(ValueError):  # a part of one
                        self.secrets.key(f"key in memory of {comm(pid)}", pem)

    # --- the search
    def files(self) -> Iterator[Path]:
        """Every file of the day."""
        for root in (self.folder, self.open):
            yield from (path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink())

    def search_files(self, only: Path | None = None) -> list[str]:
        """Files that hold a secret and may not, or may but are open to others."""
        wrong = []
        for path in self.files() if only is None else [only]:
            try:
                data, mode = path.read_bytes(), path.stat().st_mode
            except FileNotFoundError:
                continue  # a pilot's own, meanwhile gone
            found = self.secrets.found_in(data)
            name = str(path.relative_to(self.folder)) if path.is_relative_to(self.folder) else str(path)
            if found and name not in ALLOWED:
                wrong.append(f"{name}: {found}")
            elif found and (stat.S_IMODE(mode) != 0o600 or path.parent.stat().st_mode & 0o077):
                wrong.append(f"{name}: mode {stat.S_IMODE(mode):o}")
        return wrong

    def search_processes(self) -> list[str]:
        """Processes that showed a secret."""
        return [
            f"{name} ({pid}) {what}: {found}"
            for (pid, data), (name, what) in list(self.watcher.seen.items())
            if (found := self.secrets.found_in(data)) and not (pid in self.bearers and what == "environ")
        ]

    def search_words(self) -> list[str]:
        """Answers and outputs that held a secret."""
        return [f"{what}: {found}" for what, data in self.said if (found := self.secrets.found_in(data))]


def _below(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for path in Path(f"/proc/{one}/task").glob("*/children"):
                found += [int(word) for word in path.read_text().split()]
    return found[1:]


def below_named(pid: int, name: str) -> int:
    """The process of this name below another; a pilot that renews itself has another one for a moment."""
    end = time.monotonic() + 10.0
    while not (found := [one for one in _below(pid) if comm(one) == name]):
        assert time.monotonic() < end, f"there is no {name} below {pid}"
        time.sleep(0.02)
    return found[0]


def memory_of(pid: int) -> Iterator[bytes]:
    """What a process can write to, piece by piece."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights = line.split()[:2]
            low, high = (int(part, 16) for part in span.split("-"))
            if rights.startswith("rw") and high - low < 1 << 28:
                with contextlib.suppress(OSError, ValueError, OverflowError):
                    memory.seek(low)
                    yield memory.read(high - low)


@pytest.fixture
def day(tmp_path: Path, pilot_zip: Path) -> Iterator[Day]:
    """A day; all of it is ended and removed."""
    if os.geteuid() != 0:
        pytest.skip(
            "CANARIES NOT TESTED: what pilots hold in memory can be read, and other accounts be used, by root only"
        )
    made = Day(tmp_path, pilot_zip)
    try:
        yield made
    finally:
        made.close()


def test_no_secret_is_found_anywhere_but_in_its_place_after_a_whole_day(day: Day) -> None:
    """No secret is found anywhere but in its place [security S12]."""
    secrets, cluster = day.secrets, day.cluster
    day.watcher.start()
    cluster.start_server("--listen", f"127.0.0.1:{day.port}", "--no-pilot")
    _know_the_server(day)
    people = _let_people_in(day)

    # --- hosts
    line = day.shoal("join", "--owner", "anna", "--site", "box", "--cores", "2", makes=True).strip()
    secrets.token("join line", TOKEN.findall(line.encode())[0].decode())
    shell, log = day.paste(f"{line} --verbose")
    local = cluster.start_pilot(1, "--verbose")
    stranger = _start_stranger(day, people["mike"])
    emulated = _enrol_by_hand(day, people["anna"])
    day.plunder(below_named(shell.pid, "shoal-pilot"), local.pid, below_named(stranger.pid, "shoal-pilot"))

    # --- work, some of which fails
    assert "seen" in day.shoal("run", "--shell", "--", NOSY, token=people["anna"])
    day.shoal("run", "--retries", "1", "--", "sh", "-c", "env; env >&2; exit 3", token=people["anna"], status=3)
    day.shoal("run", "--", "no-such-program", token=people["anna"], status=127)
    run = cluster.submit({"shell": NOSY, "array": "1-4"})
    cluster.wait_run(run)
    assert day.search_files() == []
    _pry(day, people["mike"], stranger)
    _be_refused(day, people, emulated)

    # --- a crash, and what comes back after it
    long = day.start_shoal("run", "--shell", "--", f"{NOSY}sleep 3; echo over", token=people["anna"])
    cluster.until(lambda: [r for r in cluster.rows(6) if r["state"] == "running"], "it runs")
    cluster.kill_server()
    cluster.start_server("--listen", f"127.0.0.1:{day.port}", "--no-pilot")
    out, err = long.communicate(timeout=PATIENCE)
    assert long.returncode == 0, (out, err)
    day.said.append(("shoal run over a crash", (out + err).encode()))
    day.plunder(below_named(shell.pid, "shoal-pilot"), local.pid)
    _know_the_server(day)

    # --- what everyone can read, and revocations
    _read_everything(day, people)
    day.ask("POST", "/v1/tokens/revoke", {"site": "box"})
    shell.wait(PATIENCE)
    assert b"was revoked" in log.read_bytes()
    day.ask("POST", "/v1/tokens/revoke", {"user": "mike"})
    stranger.wait(PATIENCE)
    day.shoal("ps", token=people["mike"], status=3)
    _back_up(day)
    day.ask("POST", "/v1/pilots/drain", {"pilots": []})
    local.process.wait(PATIENCE)
    day.shoal("logout")
    cluster.stop_server()
    assert b"seen" in b"".join(path.read_bytes() for path in (cluster.state / "logs").rglob("*.out"))

    # --- the search, and proof that it sees
    kinds = {name.split()[0] for name in secrets.forms}
    assert kinds >= {"submit", "enrol", "in", "key", "ca", "server", "join", "emulated"}, kinds
    taken = [name for name in secrets.forms if "memory of shoal-pilot" in name]
    assert len(taken) >= 5 and sum(name.startswith("key") for name in taken) == 2, "three sessions, two keys"
    assert day.search_files() == []
    assert day.search_words() == []
    assert day.search_processes() == []
    assert day.watcher.looks > 100 and len(day.said) > 60
    print(
        f"\ncanaries: {len(secrets.forms)} secrets in {sum(map(len, secrets.forms.values()))} forms; "
        f"{sum(1 for _ in day.files())} files, {len(day.said)} answers and outputs, {len(day.watcher.seen)} command lines "
        f"and environments in {day.watcher.looks} looks: 0 found"
    )
    _check_search_sees(day)


# --- parts of the day
def _know_the_server(day: Day) -> None:
    """What lies in its state directory, as it should."""
    told = day.cluster.address()
    day.secrets.token("submit administrator", told["token"])
    day.secrets.token("enrol of this machine", told["enrol"])
    for what, name in (("ca key", "ca-with-key.pem"), ("server key", "server-with-key.pem")):
        found = KEY.search((day.cluster.state / "tls" / name).read_bytes())
        assert found is not None
        day.secrets.key(what, found[0])


def _let_people_in(day: Day) -> dict[str, str]:
    """Users, groups and tokens of every kind; the administrator logs in at home."""
    day.ask("POST", "/v1/groups", {"name": "phys"})
    for name, role in (("anna", "user"), ("mike", "manager"), ("boss", "admin")):
        day.ask("POST", "/v1/users", {"name": name, "group": "phys", "role": role})
    tokens = {
        name: str(day.ask("POST", "/v1/tokens", {"kind": "submit", "owner": name}, makes=f"submit {name}")["token"])
        for name in ("anna", "mike")
    }
    asked = {"kind": "submit", "owner": "boss", "scopes": ["admin", "read", "submit", "cancel", "metrics"]}
    made = day.ask("POST", "/v1/tokens", asked, makes="submit boss")
    tokens["boss"] = str(made["token"])
    for more in ({"group": "phys", "site": "lab"}, {"owner": "anna", "uses": 1}, {"owner": "anna", "max_pilots": 3}):
        day.ask("POST", "/v1/tokens", {"kind": "enrol", **more}, makes="enrol")
    login = f"{','.join(made['addresses'])}#{made['fingerprint']}#{tokens['boss']}"
    day.shoal("login", "-", said=login)
    own = {"kind": "submit", "owner": "boss", "note": f"not {tokens['anna']}"}
    day.ask("POST", "/v1/tokens", own, makes="submit with a secret in its note")
    return tokens


def _start_stranger(day: Day, token: str) -> subprocess.Popen[bytes]:
    """A pilot under an ordinary account, for Mike."""
    made = day.ask("POST", "/v1/tokens", {"kind": "enrol", "site": "attic"}, token=token, makes="enrol of the stranger")
    zipped, work = day.open / "pilot.pyz", day.open / "work"
    shutil.copyfile(day.cluster.zip, zipped)
    zipped.chmod(0o755)
    work.mkdir()
    os.chown(work, STRANGER, STRANGER)
    join = f"127.0.0.1:{day.port}#{made['fingerprint']}#{made['token']}"
    line = f"printf '%s\\n' '{join}' | /usr/bin/python3 -I {zipped} --join-fd 0 --work-dir {work} --verbose --cores 1"
    return day.paste(line, *_as_stranger())[0]


def _as_stranger() -> tuple[str, ...]:
    return ("setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups")


def _enrol_by_hand(day: Day, token: str) -> Json:
    """An emulated pilot, so that its session and key are known from the wire."""
    made = day.ask("POST", "/v1/tokens", {"kind": "enrol", "site": "hand"}, token=token, makes="enrol by hand")
    context = ssl.create_default_context(
        cadata=fetch_ca(f"https://127.0.0.1:{day.port}", "127.0.0.1", day.port, made["fingerprint"], 10.0)
    )
    with (
        socket.create_connection(("127.0.0.1", day.port), 10.0) as plain,
        context.wrap_socket(plain, server_hostname="shoal-server") as link,
    ):
        connection = http.client.HTTPConnection("127.0.0.1", day.port)
        connection.sock = link
        said = {
            "protocol": 4,
            "version": "0",
            "host": "hand",
            "identity": "hand",
            "room": {"cores": 1},
            "nonce": "n",
        }
        headers = {"Authorization": f"Bearer {made['token']}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/pilots", json.dumps(said), {**headers, "Host": "shoal-server"})
        answer: Json = json.loads(connection.getresponse().read())
    day.secrets.token("emulated session", answer["session"])
    day.secrets.key("emulated key", answer["key"].encode())
    return {"enrol": made["token"], **answer}


def _pry(day: Day, token: str, stranger: subprocess.Popen[bytes]) -> None:
    """Neither a task nor another process of the same account reads the pilot or its guard; and no task leaves a core."""
    script = f"set -- $PPID $(sed -n 's/^PPid:[^0-9]*//p' /proc/$PPID/status)\n{PRY}\necho core $(ulimit -S -c)"
    out = day.shoal("run", "--shell", "--", script, token=token)
    lines = out.split()
    assert lines.count("denied") == 8 and "open" not in lines, out
    assert out.strip().endswith("core 0"), out
    ordinary = subprocess.Popen([*_as_stranger(), "sleep", "60"], env={"PLAIN": "sight"})
    try:
        day.cluster.until(lambda: comm(ordinary.pid) == "sleep", "it runs")
        pilot, guard = (below_named(stranger.pid, name) for name in ("shoal-pilot", "shoal-guard"))
        for pids, open_, denied in (([pilot, guard], 0, 8), ([ordinary.pid], 5, 0)):
            words = [*_as_stranger(), "/bin/sh", "-c", PRY, "sh", *map(str, pids)]
            told = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False).stdout.split()
            assert (told.count("open"), told.count("denied")) == (open_, denied), (pids, told)
    finally:
        ordinary.kill()
        ordinary.wait(PATIENCE)


def _be_refused(day: Day, people: dict[str, str], emulated: Json) -> None:
    """Secrets in every place where they do not belong; each request is refused, and no answer repeats them."""
    key = str(emulated["key"])
    for secret in (people["anna"], emulated["enrol"], emulated["session"]):
        part = secret[:-5]
        refused = [
            day.ask("GET", f"/v1/runs/{secret}"),
            day.ask("GET", f"/v1/tasks/{secret}"),
            day.ask("GET", f"/v1/tasks/r1.1/logs?stream={secret}"),
            day.ask("GET", f"/v1/why/{secret}"),
            day.ask("GET", f"/v1/{secret}"),
            day.ask("GET", f"/v1/runs?{secret}=1"),
            day.ask("GET", f"/v1/runs?state={secret}"),
            day.ask("GET", f"/v1/runs?before={secret}"),
            day.ask("POST", "/v1/cancel", {"targets": [secret]}),
            day.ask("POST", "/v1/signal", {"targets": ["r1"], "signal": secret}),
            day.ask("POST", "/v1/retry", {"targets": ["r1"], "where": {"cause": secret}}),
            day.ask("POST", "/v1/tokens/revoke", {"tokens": [secret]}),
            day.ask("POST", "/v1/users", {"name": secret}),
            day.ask("POST", "/v1/users", {"name": "x", "group": part}),
            day.ask("POST", "/v1/groups", {"name": key}),
            day.ask("POST", "/v1/tokens", {"kind": secret}),
            day.ask("POST", "/v1/pilots/drain", {"pilots": [secret]}),
            day.ask("POST", "/v1/runs", {"tasks": [{"command": secret}]}),
            day.ask("POST", "/v1/runs", {"tasks": [{secret: key}]}),
            day.ask("POST", "/v1/runs", {secret: 1}),
            day.ask("GET", "/v1/audit", token=secret[:-1] + ("A" if secret[-1] != "A" else "B")),
        ]
        assert all(400 <= answer["status"] < 500 for answer in refused), [answer["status"] for answer in refused]
    for kind, path in (("enrol", "/v1/runs"), ("session", "/v1/tokens")):
        assert day.ask("GET", path, token=str(emulated[kind]))["status"] in (401, 403)


def _read_everything(day: Day, people: dict[str, str]) -> None:
    """Every page that a person can read."""
    paths = [
        "/v1/runs", "/v1/runs/r1", "/v1/runs/r1/tasks", "/v1/tasks/r1.1", "/v1/tasks/r2.1", "/v1/why/r2", "/v1/events",
        "/v1/pilots", "/v1/hosts", "/v1/whoami", "/v1/users", "/v1/groups", "/v1/tokens", "/v1/tokens?all=1", "/v1/audit",
        "/v1/server", "/metrics", "/v1/openapi.json", "/v1/ca", "/v1/health",
    ]  # fmt: skip
    for path in paths:
        for token in ("", people["anna"], people["mike"], people["boss"]):
            day.ask("GET", path, token=token)
        assert "200" in day.said[-4][0], day.said[-4]
    for stream in ("stdout", "stderr"):
        for run in range(1, 7):
            day.ask("GET", f"/v1/tasks/r{run}.1/logs?stream={stream}")
    for words in (["ps"], ["show", "r1"], ["show", "r2.1"], ["token", "list", "--all"], ["audit"], ["pilots", "--all"],
                  ["events"], ["whoami"], ["server", "status"], ["results", "r4"]):  # fmt: skip
        day.shoal(*words)


def _back_up(day: Day) -> None:
    """The database as it is on disk, and a copy made by SQLite itself; both are files of the day."""
    for suffix in ("", "-wal", "-shm"):
        path = day.cluster.state / f"{DATABASE}{suffix}"
        assert path.exists(), path
        shutil.copyfile(path, day.folder / f"copy{suffix}")
    with (
        contextlib.closing(sqlite3.connect(f"file:{day.cluster.state / DATABASE}?mode=ro", uri=True)) as source,
        contextlib.closing(sqlite3.connect(day.folder / "backup.db")) as target,
    ):
        source.backup(target)
        target.commit()
    assert (day.folder / "backup.db").stat().st_size > 10_000


def _check_search_sees(day: Day) -> None:
    """A planted copy of each secret in each form is found: in a file, in a process, in an answer."""
    planted = day.folder / "planted"
    for name, forms in day.secrets.forms.items():
        for at, form in enumerate(forms):
            assert len(form) >= 20, (name, at, form)
            planted.write_bytes(b"before " + form + b" behind")
            assert any(line.startswith("planted:") and name in line for line in day.search_files(planted)), (name, at)
    planted.unlink()
    token = next(iter(day.secrets.texts.values()))
    day.watcher.close()
    day.watcher = Watcher()
    day.watcher.start()
    for words, env in ((["sleep", "5"], {"CARELESS": token}), (["sh", "-c", "sleep 5; true", token], {})):
        careless = subprocess.Popen(words, env={"PATH": os.environ["PATH"], **env}, stderr=subprocess.DEVNULL)
        mark = f"({careless.pid})"
        try:
            day.cluster.until(lambda mark=mark: any(mark in at for at in day.search_processes()), "it is seen")  # type: ignore[misc]  # bound now
        finally:
            for pid in _below(careless.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            careless.kill()
            careless.wait(PATIENCE)
    day.said.append(("planted", json.dumps({"error": token}).encode()))
    assert len(day.search_words()) == 1
    place = day.folder / ALLOWED[0]
    place.chmod(0o640)
    assert [line for line in day.search_files() if "mode 640" in line]
    place.chmod(0o600)
