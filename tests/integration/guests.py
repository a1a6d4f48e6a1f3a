"""A server for many as a real process, with people, tokens, runs and emulated pilots; plain `http.client`, none of our own.

Every text that belongs to a person contains that person's canary (`zqanna`), so that a leak is found by one search:
names of people, groups, runs, sites and hosts, labels, commands, variables, notes, messages and logs. Only the process
that was started here is ever signalled, by its number.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import itertools
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tests.integration.cluster import clean_env
from tests.unix_http import UnixHTTPConnection, connect

T = TypeVar("T")
Json = dict[str, Any]
PATIENCE = 60.0
# Nobody is lost while a test thinks; an empty exchange is answered at once, or nearly.
TIMING = {"beat": 0.1, "suspect": 3_600.0, "lease": 3_600.0, "quarantine": 0.2}
ANNA, MIKE, MONA, OLAF, BOSS = "zqanna", "zqmike", "zqmona", "zqolaf", "zqboss"
PHYS, CHEM = "zqphys", "zqchem"
CANARIES = (ANNA, MIKE, MONA, OLAF, BOSS, PHYS, CHEM)
SERVER_NAME = "shoal-server"
_WORD = re.compile(f"(?:{'|'.join(CANARIES)})[a-z-]*")
_WORD_AND_CANARY = re.compile(f"({'|'.join(CANARIES)})[a-z-]*")


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def json(self) -> Json:
        """The body as an object."""
        found: Json = json.loads(self.body)
        return found

    @property
    def code(self) -> str:
        """The error code of a refusal."""
        return str(self.json["error"]["code"])

    def header(self, name: str) -> str:
        """A header, empty if there is none."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")

    @property
    def text(self) -> str:
        """Everything of it that anyone can read."""
        return self.body.decode("utf-8", "replace") + "\n" + "\n".join(f"{key}: {value}" for key, value in self.headers)


@dataclass(frozen=True)
class Token:
    """A token as its maker sees it, this once."""

    id: str
    secret: str = field(repr=False)


@dataclass
class Pilot:
    """An emulated pilot: it sends what a test has it send."""

    guests: Guests
    name: str
    session: str = field(repr=False)
    seq: int = 0
    held: dict[str, str] = field(default_factory=dict)
    certificate: str = ""
    key: str = field(default="", repr=False)

    def message(self, **more: Any) -> Json:
        """The next exchange, not yet sent."""
        self.seq += 1
        held = [{"attempt": attempt, "stage": stage} for attempt, stage in self.held.items()]
        message: Json = {
            "protocol": 4, "pilot": self.name, "session": self.session, "seq": self.seq, "ack": self.seq - 1,
            "free": {"cores": 0}, "held": held, "nonce": f"n{self.seq}",
        }  # fmt: skip
        return {**message, **more}

    def send(self, message: Json, token: str | None = None) -> Answer:
        """Send a message."""
        path = f"/v1/pilots/{self.name}/exchange"
        return self.guests.ask("POST", path, message, token=self.session if token is None else token)

    def talk(self, **more: Any) -> Answer:
        """Exchange; what is leased is held from then on, as running."""
        answer = self.send(self.message(**more))
        if answer.status == 200:
            for lease in answer.json["leases"]:
                self.held[lease["attempt"]] = "running"
        return answer

    def lease(self, cores: int = 1, **more: Any) -> Json:
        """Send exchanges until a task is leased; returns its lease."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            answer = self.talk(free={"cores": cores}, **more)
            assert answer.status == 200, answer
            if answer.json["leases"]:
                found: Json = answer.json["leases"][0]
                return found
        raise AssertionError("no task came")

    def report(self, attempt: str, outcome: str = "succeeded", **more: Any) -> Answer:
        """Report an attempt that it held."""
        self.held.pop(attempt, None)
        return self.talk(reports=[{"attempt": attempt, "outcome": outcome, **more}])

    def leave(self) -> None:
        """End, as a pilot does."""
        assert self.talk(leaving="it is time").status == 200


@dataclass
class Person:
    """One of the people with all that is theirs."""

    name: str  # of the account
    word: str  # the canary in everything else
    token: str = field(repr=False)
    run: str = ""
    enrol: Token = Token("", "")
    pilot: Pilot | None = None

    @property
    def task(self) -> str:
        """A task that failed, with a message."""
        return f"{self.run}.1"

    @property
    def host(self) -> Pilot:
        """Their pilot, which lives."""
        assert self.pilot is not None
        return self.pilot


class Guests:
    """One server and those who call it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "state"
        self.log = folder / "server.log"
        self.people: dict[str, Person] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._own = True  # is the process the server itself?
        self._nonces = itertools.count(1)

    # --- the process
    def start(self, *more: str, umask: int = 0o022, under: tuple[str, ...] = ()) -> None:
        """Start the server (under another program, if one is given) and wait until it answers."""
        assert self._process is None
        argv = [*under, sys.executable, "-m", "shoal.server", "--state", str(self.state), "--no-pilot"]
        argv += ["--timing", json.dumps(TIMING), "--durability", "normal", *(more or ("--listen", "127.0.0.1:0"))]
        self._own = not under
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=clean_env(), start_new_session=True,
                umask=umask,
            )  # fmt: skip
        self.until(self._answers, "the server answers")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text(errors="replace")[-3_000:]
        with contextlib.suppress(OSError, ValueError, KeyError, http.client.HTTPException):
            is_new = not self._own or self.told["pid"] == self._process.pid
            return is_new and self.ask("GET", "/v1/health").status == 200
        return False

    def wait_end(self) -> int:
        """Wait for the end of the server; returns its exit code."""
        assert self._process is not None
        process, self._process = self._process, None
        return process.wait(PATIENCE)

    def stop(self) -> None:
        """Have it end as it should."""
        os.kill(self.pid, signal.SIGTERM)
        assert self.wait_end() == 0, self.log.read_text(errors="replace")[-3_000:]

    def close(self) -> None:
        """End whatever is left of it."""
        if self._process is not None:
            with contextlib.suppress(OSError, ValueError):
                os.kill(self.pid, signal.SIGKILL)
            self._process.kill()
            self.wait_end()

    def until(self, condition: Callable[[], T], what: str) -> T:
        """Wait until something is true, and return it."""
        end = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert time.monotonic() < end, f"not within {PATIENCE:g} s: {what}"
            time.sleep(0.02)
        return found

    @property
    def pid(self) -> int:
        """The server's process."""
        assert self._process is not None
        return self._process.pid if self._own else int(self.told["pid"])

    @property
    def told(self) -> Json:
        """The address file that the server writes for its own account."""
        found: Json = json.loads((self.state / "server.json").read_text(encoding="utf-8"))
        return found

    @property
    def url(self) -> str:
        """The server's Unix socket."""
        return str(self.told["url"])

    @property
    def admin(self) -> str:
        """The administrator's token."""
        return str(self.told["token"])

    # --- asking
    def ask(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, headers: Json | None = None,
        source: str = "",
    ) -> Answer:  # fmt: skip
        """One request on a connection of its own; repeated where the server is busy.

        It goes to the Unix socket, or over TLS from a certain address of this machine.
        """
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        fields = {"Authorization": f"Bearer {token}"} if token is not None else {}
        if data is not None:
            fields["Content-Type"] = "application/json"
        end = time.monotonic() + PATIENCE
        while True:
            connection = self._connect_from(source) if source else UnixHTTPConnection(self.url)
            answer = _ask(connection, method, path, data, {**fields, **(headers or {})})
            if answer.status != 429 or answer.code == "site_full" or time.monotonic() > end:
                return answer
            time.sleep(0.2)

    def _connect_from(self, source: str) -> http.client.HTTPConnection:
        """A connection over TLS that comes from an address."""
        host, port = self.address
        connection = http.client.HTTPConnection(host, port, timeout=30.0)
        opened = socket.create_connection((host, port), 10.0, (source, 0))
        connection.sock = self.secure().wrap_socket(opened, server_hostname=SERVER_NAME)
        return connection

    def raw(self, data: bytes) -> bytes:
        """Bytes in, bytes out, until the server closes or falls silent."""
        with connect(self.url) as link:
            link.sendall(data)
            link.settimeout(5.0)
            found = b""
            with contextlib.suppress(OSError):
                while piece := link.recv(65_536):
                    found += piece
                    if b"\r\n\r\n" in found and _is_whole(found):
                        break
            return found

    def do(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> Json:
        """A request of the administrator (or of whoever has the token) that must go well."""
        answer = self.ask(method, path, body, token=self.admin if token is None else token)
        assert answer.status == 200, (method, path, answer)
        return answer.json

    # --- over TLS
    @property
    def address(self) -> tuple[str, int]:
        """Where the server is reached over TLS."""
        host, _, port = str(self.do("GET", "/v1/server")["addresses"][0]).rpartition(":")
        return host, int(port)

    def authority(self) -> bytes:
        """The CA's certificate (DER), compared with the fingerprint that the administrator sees."""
        found = ssl.PEM_cert_to_DER_cert(self.ask("GET", "/v1/ca").body.decode())
        assert hashlib.sha256(found).hexdigest() == self.do("GET", "/v1/server")["fingerprint"]
        return found

    def secure(self, pilot: Pilot | None = None) -> ssl.SSLContext:
        """A context that believes this server only, and shows a pilot's certificate if one is given."""
        context = ssl.create_default_context(cadata=self.authority())
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        if pilot is not None:
            chain = self.folder / f"{pilot.name}.pem"
            chain.write_text(pilot.certificate + pilot.key)
            context.load_cert_chain(chain)
            chain.unlink()
        return context

    def ask_tls(
        self, context: ssl.SSLContext, method: str, path: str, body: Any = None, token: str | None = None
    ) -> Answer:
        """One request over TLS."""
        data = None if body is None else json.dumps(body).encode()
        fields = {"Authorization": f"Bearer {token}"} if token is not None else {}
        if data is not None:
            fields["Content-Type"] = "application/json"
        host, port = self.address
        connection = http.client.HTTPSConnection(host, port, timeout=30.0)
        connection.sock = context.wrap_socket(socket.create_connection((host, port), 10.0), server_hostname=SERVER_NAME)
        return _ask(connection, method, path, data, {"Host": SERVER_NAME, **fields})

    # --- people and tokens
    def mint(self, kind: str = "submit", *, by: str | None = None, **more: Any) -> Token:
        """A new token."""
        made = self.do("POST", "/v1/tokens", {"kind": kind, **more}, token=by)
        return Token(made["id"], made["token"])

    def add_person(self, name: str, group: str = "", role: str = "user") -> Person:
        """A person with a token of their own."""
        self.do("POST", "/v1/users", {"name": name, "group": group, "role": role})
        token = self.mint(owner=name, note=f"{name}-note")
        person = self.people[name] = Person(name, name, token.secret)
        return person

    def submission(self, word: str, **more: Any) -> Json:
        """A submission with a canary in all its parts."""
        task = {
            "name": f"{word}-task", "command": [f"{word}-command", "{i}"], "env": {"SECRET": f"{word}-env"},
            "labels": {"of": f"{word}-inner"}, "array": "1-3",
        }  # fmt: skip
        return {
            "name": f"{word}-run", "cwd": f"/{word}-cwd", "labels": {f"{word}-label": f"{word}-value"},
            "environment": {"HOME": f"/{word}-home"}, "tasks": [task], **more,
        }  # fmt: skip

    def submit(self, token: str, word: str, **more: Any) -> str:
        """Submit such a run."""
        return str(self.do("POST", "/v1/runs", self.submission(word, **more), token=token)["run"])

    # --- pilots
    def register(self, word: str, **more: Any) -> Json:
        """The registration of a pilot."""
        message: Json = {
            "protocol": 4, "version": "0", "host": f"{word}-host", "identity": f"{word}-identity",
            "room": {"cores": 2, "memory": 2**30, "disk": 2**30}, "tags": {f"{word}-tag": f"{word}-tagged"},
            "nonce": f"nonce-{next(self._nonces)}",
        }  # fmt: skip
        return {**message, **more}

    def join(self, enrol: str, word: str, **more: Any) -> Pilot:
        """An emulated pilot enrols."""
        made = self.do("POST", "/v1/pilots", self.register(word, **more), token=enrol)
        return Pilot(self, made["pilot"], made["session"])

    def join_tls(self, enrol: str, word: str, context: ssl.SSLContext) -> Pilot:
        """The same over TLS, where it gets a certificate."""
        answer = self.ask_tls(context, "POST", "/v1/pilots", self.register(word), enrol)
        assert answer.status == 200, answer
        made = answer.json
        return Pilot(self, made["pilot"], made["session"], certificate=made["certificate"], key=made["key"])

    # --- everyone
    def invite(self) -> None:
        """Two groups, four people and the administrator, each with a run, a token for pilots and a pilot."""
        for group in (PHYS, CHEM):
            self.do("POST", "/v1/groups", {"name": group})
        for name, group, role in (
            (ANNA, PHYS, "user"),
            (MIKE, PHYS, "user"),
            (MONA, PHYS, "manager"),
            (OLAF, CHEM, "user"),
        ):
            self.add_person(name, group, role)
        owner = self.do("GET", "/v1/whoami")["owner"]
        self.people[BOSS] = Person(owner, BOSS, self.admin)
        for person in self.people.values():
            self._settle(person)

    def _settle(self, person: Person) -> None:
        word = person.word
        person.run = self.submit(person.token, word)
        person.enrol = self.mint("enrol", by=person.token, site=f"{word}-site", note=f"{word}-note")
        person.pilot = self.join(person.enrol.secret, word)
        attempt = person.host.lease()["attempt"]
        tail = {"attempt": attempt, "stream": "stdout", "text": f"{word}-log\n", "offset": 0}
        person.host.talk(tails=[tail])
        texts = {"message": f"{word}-message", "stderr_tail": f"{word}-stderr", "last_line": f"{word}-line"}
        person.host.report(attempt, "failed", exit_code=3, started=time.time(), duration=0.1, **texts)


def _ask(connection: http.client.HTTPConnection, method: str, path: str, data: bytes | None, headers: Json) -> Answer:
    try:
        connection.request(method, path, data, headers)
        response = connection.getresponse()
        return Answer(response.status, tuple(response.getheaders()), response.read())
    finally:
        connection.close()


def _is_whole(found: bytes) -> bool:
    head, _, rest = found.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(rest) >= int(line.partition(b":")[2])
    return False


@contextlib.contextmanager
def serving(folder: Path, *more: str) -> Iterator[Guests]:
    """A server in a folder, gone at the end."""
    guests = Guests(folder)
    try:
        guests.start(*more)
        yield guests
    finally:
        guests.close()


def leaks(answer: Answer, may_see: frozenset[str], said: str = "") -> list[str]:
    """Texts with canaries in an answer that its caller may not see; what the caller sent is no secret to them."""
    own = set(_WORD.findall(said))
    found = {match.group(0): match.group(1) for match in _WORD_AND_CANARY.finditer(answer.text)}
    return sorted(word for word, canary in found.items() if canary not in may_see and word not in own)


def without(answer: Answer, *ids: str) -> tuple[int, str, list[tuple[str, str]]]:
    """An answer without the ids that the request named, and without what differs by nature."""
    text = answer.body.decode("utf-8", "replace")
    for name in ids:
        text = text.replace(name, "ID")
    kept = [(key, value) for key, value in answer.headers if key not in ("Date", "Content-Length")]
    return answer.status, text, kept


def misfits(value: Any, schema: Json, components: Json, where: str = "answer") -> list[str]:
    """Where a value does not fit a schema; the few keywords of JSON Schema that `server/http/openapi.py` writes."""
    if "$ref" in schema:
        return misfits(value, components[schema["$ref"].rpartition("/")[2]], components, where)
    if "anyOf" in schema:
        tried = [misfits(value, option, components, where) for option in schema["anyOf"]]
        return [] if any(not found for found in tried) else tried[0]
    kind = schema.get("type")
    if kind is not None and not (
        isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
    ):
        return [f"{where}: {value!r} is no {kind}"]
    found: list[str] = []
    if kind == "array":
        for at, item in enumerate(value):
            found += misfits(item, schema["items"], components, f"{where}[{at}]")
    if kind == "object":
        found += [f"{where}.{name} is missing" for name in schema.get("required", []) if name not in value]
        for name, item in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))
            found += misfits(item, inner, components, f"{where}.{name}")
    return found


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
