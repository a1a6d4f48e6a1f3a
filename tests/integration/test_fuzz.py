"""The wire fuzz: whatever is sent, the server answers in its own form, in time, and stays sound.

Requests come from `wire_fuzz`, which makes them from the server's own description. 1,000 to 2,000 of them, always the
same ones, until enough was met; SHOAL_PROVE=1 sends 100,000. SHOAL_FUZZ_SEED and SHOAL_FUZZ_REQUESTS replay a part: a
failure prints how.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import random
import re
import socket
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from shoal.db.sqlite import Database
from shoal.engine.engine import Engine
from shoal.model.credentials import make
from shoal.model.file_names import DATABASE, SERVER_FILE
from shoal.model.ids import parse_attempt
from shoal.model.limits import MAX_ECHO
from shoal.model.timing import Timing
from shoal.wire.chunk import shift
from shoal.wire.messages import PROTOCOL
from tests.integration.cluster import clean_env
from tests.integration.wire_fuzz import DAMAGES, Description, Ref, Sent, Wish, Wishes, build
from tests.unix_http import connect

pytestmark = [pytest.mark.integration, pytest.mark.slow]
PROVE = os.environ.get("SHOAL_PROVE") == "1"
SEED = int(os.environ.get("SHOAL_FUZZ_SEED", "1"))
REQUESTS = int(os.environ.get("SHOAL_FUZZ_REQUESTS", "100000" if PROVE else "2000"))
FEWEST = 1_000  # requests, before it may be enough
LEASES = 50 if PROVE else 20  # more than these are given; a busy machine gives fewer for as many requests
STOP = "/v1/server/stop"  # ends the server, so it is asked for well at the end only
EXCHANGE = "/v1/pilots/{pilot}/exchange"
ROUND = 500  # requests of one seed; the next round has the next one
STATUSES = {400, 401, 403, 404, 405, 409, 413, 415, 421, 422}
WITHIN = 5.0 if PROVE else 30.0  # seconds to an answer; a machine that others use as well may take its time
SILENCE = 0.3  # seconds to wait for a word about a request that is no whole one
TIMING = {"beat": 0.05, "suspect": 30.0, "lease": 60.0, "hold": 90.0, "quarantine": 0.5}
_SECRET = re.compile(r"shoal_(?:sub|enr|ses)_[A-Za-z0-9_-]{4,}")
_SHOWS_SECRETS = ("POST /v1/tokens", "POST /v1/pilots")  # what they are for
Json = dict[str, Any]


@dataclass
class Answer:
    """What came back; status 0: nothing did."""

    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float

    def json(self) -> Json:
        """The body as JSON."""
        found: Json = json.loads(self.body)
        return found


NOTHING = Answer(0, {}, b"", 0.0)


@dataclass(eq=False)
class FalsePilot:
    """A pilot of the fuzz: it says that it runs what it is given, and may say anything else."""

    name: str
    session: str
    room: Json
    context: ssl.SSLContext | None  # with its certificate, if it came over TLS
    seq: int = 0
    attempts: list[str] = field(default_factory=list)
    chunks: dict[str, int] = field(default_factory=dict)  # several leased as one: the first, and how many
    protocol: int = PROTOCOL  # attempts have other names in the one before, so it keeps to one, as pilots do
    proofs: list[Json] = field(default_factory=list)  # of its last leases


class House:
    """One server process on a state directory, reached over plain and TLS connections."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state, self.log = folder, folder / "state", folder / "server.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._kept: dict[tuple[str, int], socket.socket] = {}
        self._turn = 0

    def start(self, *more: str) -> None:
        """Start it and wait for its address."""
        argv = [sys.executable, "-m", "shoal.server", "--state", str(self.state), "--no-pilot"]
        argv += ["--listen", "127.0.0.1:0", "--timing", json.dumps(TIMING), "--durability", "normal"]
        argv += more
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean_env())
        end = time.monotonic() + 60
        while not (self.state / SERVER_FILE).exists():
            assert self.process.poll() is None and time.monotonic() < end, self.log.read_text()[-2_000:]
            time.sleep(0.02)
        told = json.loads((self.state / SERVER_FILE).read_text())
        self.admin, self.enrol = told["token"], told["enrol"]
        self.url = str(told["url"])
        self.tls = int(self.call("GET", "/v1/server")["addresses"][0].rpartition(":")[2])
        self.context = ssl.create_default_context(cadata=self.call("GET", "/v1/ca", raw=True))

    def stop(self) -> None:
        """End it by its own call, the last of the fuzz."""
        assert self.process is not None
        self.call("POST", "/v1/server/stop", {})
        assert self.process.wait(30) == 0
        self.close()

    def close(self) -> None:
        """End it however it is."""
        for kept in self._kept.values():
            kept.close()
        self._kept.clear()
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)

    # --- speaking
    def call(self, method: str, path: str, body: Json | None = None, token: str = "", raw: bool = False) -> Any:
        """A request that must succeed."""
        data = json.dumps(body).encode() if body is not None else b""
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token or self.admin}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        sent, end = Sent(head.encode() + data, False, False, ()), time.monotonic() + 60.0
        while (answer := self.send(sent, None, patience=4 * WITHIN)).status == 429 and time.monotonic() < end:
            time.sleep(0.2)  # a server that is behind asks everybody to come back later
        assert answer.status == 200, (method, path, answer)
        return answer.body.decode() if raw else answer.json()

    def send(self, sent: Sent, context: ssl.SSLContext | None, patience: float = SILENCE) -> Answer:
        """Send bytes, over TLS if there is a context, and read what comes; an old connection is tried anew if it ended."""
        key = ("plain" if context is None else "tls", id(context))
        kept = self._kept.pop(key, None) if sent.clean else None
        if kept is not None:
            answer, left = self._exchange(kept, sent, patience)
            if answer.status:
                self._keep(key, left)
                return answer
        answer, left = self._exchange(self._connect(context), sent, patience)
        if sent.clean:
            self._keep(key, left)
        elif left is not None:
            left.close()
        return answer

    def _keep(self, key: tuple[str, int], connection: socket.socket | None) -> None:
        if connection is not None:
            self._kept[key] = connection

    def _connect(self, context: ssl.SSLContext | None) -> socket.socket:
        if context is None:
            return connect(self.url)
        self._turn = (self._turn + 1) % 200  # strangers are counted by address
        opened = socket.create_connection(("127.0.0.1", self.tls), 10.0, (f"127.0.1.{self._turn + 1}", 0))
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return context.wrap_socket(opened, server_hostname="shoal-server")

    def _exchange(self, connection: socket.socket, sent: Sent, patience: float) -> tuple[Answer, socket.socket | None]:
        connection.settimeout(4 * WITHIN if sent.clean else patience)
        began = time.monotonic()
        try:
            connection.sendall(sent.data)
            response = http.client.HTTPResponse(connection, method="HEAD" if sent.head_only else None)
            response.begin()
            connection.settimeout(4 * WITHIN)
            body = response.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            return NOTHING, None
        answer = Answer(response.status, dict(response.getheaders()), body, time.monotonic() - began)
        if response.will_close or not sent.clean:
            connection.close()
            return answer, None
        return answer, connection


class World:
    """What the fuzz knows of the server: it gives every Ref its meaning, and learns from the answers."""

    def __init__(self, context: House) -> None:
        self.context, self.rng = context, random.Random(SEED)
        self.description = Description(context.call("GET", "/v1/openapi.json"))
        self.runs, self.victims, self.pilots = ["r1"], [""], list[FalsePilot]()
        self.open: dict[str, int] = {}  # open runs, and which element is the next
        self.added_to = ""  # the open run that a wish names
        self.tokens: dict[str, list[str]] = {"admin": [context.admin], "enrol": [context.enrol]}
        self.wrong = {"none": "", "wrong": make("submit", "A" * 43), "cut": context.admin[:-1]}
        self._people()
        self.secrets = {secret for secrets in self.tokens.values() for secret in secrets}
        self.me: FalsePilot | None = None
        self.statuses: Counter[int] = Counter()
        self.good: Counter[str] = Counter()
        self.codes: Counter[str] = Counter()
        self.damages: Counter[str] = Counter()
        self.by_channel: Counter[str] = Counter()
        self.slowest = 0.0
        self.leases, self.chunks, self.additions, self.batches, self.policy_version = 0, 0, 0, 0, 0
        self.verdicts: Counter[str] = Counter()  # about several at once
        self.bytes = b""

    def _people(self) -> None:
        ask = self.context.call
        ask("POST", "/v1/groups", {"name": "phys"})
        ask("POST", "/v1/groups", {"name": "chem"})
        for name, role in (("anna", "user"), ("bert", "manager"), ("carl", "admin")):
            ask("POST", "/v1/users", {"name": name, "group": "phys", "role": role})
        made: list[tuple[str, int, Json]] = [
            ("admin", 7, {"owner": "carl", "scopes": ["submit", "read", "cancel", "metrics", "admin"]}),
            ("user", 8, {"owner": "anna"}),
            ("manager", 4, {"owner": "bert"}),
            ("reader", 2, {"owner": "anna", "scopes": ["read"]}),
            ("metrics", 1, {"owner": "anna", "scopes": ["metrics"]}),
            ("enrol", 8, {"kind": "enrol", "owner": "anna", "site": "box"}),
            ("enrol", 4, {"kind": "enrol", "group": "phys"}),
            ("enrol", 1, {"kind": "enrol", "max_pilots": 1}),
        ]
        for kind, count, body in made:
            for _ in range(count):
                self.tokens.setdefault(kind, []).append(ask("POST", "/v1/tokens", body)["token"])
        dead = ask("POST", "/v1/tokens", {"owner": "anna"})
        ask("POST", "/v1/tokens/revoke", {"tokens": [dead["id"]]})
        self.tokens["revoked"] = [dead["token"]]

    def tidy(self) -> None:
        """Before each round: enough of everything, whatever the last one did to it."""
        ask = self.context.call
        self.pilots = self.pilots[-6:]
        for at in range(8):
            body = {
                "protocol": PROTOCOL - 1 + at // 2 % 2,
                "version": "1",
                "host": f"fuzz{at // 2}",  # not one for all: it is banned when one of them gives everything back
                "identity": f"i{at // 2}",
                "room": {"cores": 64, "gpus": 1},
            }
            context = self.context.context if at % 2 else None
            sent = _post("/v1/pilots", self.pick("enrol", self.rng.randrange(1, 12)), body)
            answer = self.context.send(sent, context)
            assert answer.status == 200, answer
            self._learn_pilot(answer, body, context)
        for token in (self.context.admin, self.pick("user", 0), self.pick("manager", 0)):
            tasks = [{"command": ["echo", "{x}"], "params": {"x": "1..50"}}, {"command": ["true"], "retries": 1}]
            self.runs.append(ask("POST", "/v1/runs", {"tasks": tasks, "name": "fuzz"}, token)["run"])
            function = {"function": "gAROLg==", "calls": ["gAROLg=="] * 20}
            opened = ask("POST", "/v1/runs", {"tasks": [function], "name": "fuzz", "open": True}, token)["run"]
            self.open[opened] = 21
        for owner in ("anna", "bert", ""):
            self.victims.append(ask("POST", "/v1/tokens", {"owner": owner, "note": "to be revoked"})["id"])

    # --- meanings
    def pick(self, kind: str, index: int) -> str:
        """A token of a kind."""
        found = self.tokens[kind]
        return found[index % len(found)]

    def meaning(self, wish: Wish) -> Callable[[Ref], Any]:
        """What each Ref of a wish stands for; a pilot's call is made by one pilot throughout."""
        index = wish.token.index
        busy = [pilot for pilot in self.pilots if pilot.chunks] if index % 2 else []  # who can tell of several at once
        able = busy or self.pilots
        self.me = able[-1 - index // 2 % len(able)] if "exchange" in wish.operation.path else None

        def mean(ref: Ref) -> Any:
            kind, index = ref.kind, ref.index
            if kind == "fitting":
                return self._fitting(wish, index)
            if kind in self.wrong:
                return self.wrong[kind]
            if kind == "any":
                return self.pick(sorted(self.tokens)[index % len(self.tokens)], index)
            if kind in self.tokens:
                return self.pick(kind, index)
            return self._thing(kind, index)

        return mean

    def _fitting(self, wish: Wish, index: int) -> str:
        """A token that opens the call, most likely."""
        about = wish.operation.about
        if wish.operation.public:
            return ""
        if self.me is not None:
            return self.me.session
        if wish.operation.path == "/v1/pilots" and wish.operation.method == "POST":
            former = wish.body.get("former")
            return (
                self._thing("session", former["session"].index) if former and index % 2 else self.pick("enrol", index)
            )
        if "scope admin" in about or "scope metrics" in about:
            return self.pick("admin", index)
        return self.pick(("admin", "user", "manager", "admin", "user")[index % 5], index)

    def _thing(self, kind: str, index: int) -> Any:
        pilot = self.me or self.pilots[index % len(self.pilots)]
        run = self.runs[-1 - index % min(len(self.runs), 12)]
        last = pilot.attempts or ["r1.1#1@1"]
        chunks = [*pilot.chunks] or last
        things: dict[str, Callable[[], Any]] = {
            "run": lambda: run,
            "open run": lambda: self._open_run(index),
            "next element": lambda: self.open.get(self.added_to, 1) + index,
            "task": lambda: f"{run}.{1 + index % 3}",
            "target": lambda: run if index % 2 else f"{run}.{1 + index % 3}",
            "pilot": lambda: pilot.name,
            "old pilot": lambda: self.pilots[index % (1 + len(self.pilots) // 3)].name,
            "session": lambda: pilot.session,
            "my pilot": lambda: pilot.name,
            "my session": lambda: pilot.session,
            "my protocol": lambda: pilot.protocol,
            "proofs": lambda: pilot.proofs,
            "ended": lambda: hashlib.sha256(self.pilots[index % len(self.pilots)].session.encode()).hexdigest(),
            "next seq": lambda: pilot.seq + 1,
            "same seq": lambda: pilot.seq,
            "past seq": lambda: max(1, pilot.seq - index),
            "held": lambda: [
                {"attempt": attempt, "stage": "running", "count": count}
                for attempt, count in (*((attempt, 1) for attempt in pilot.attempts), *pilot.chunks.items())
            ],
            "all room": lambda: pilot.room,
            "attempt": lambda: last[index % len(last)],
            "chunk": lambda: chunks[-1 - index % len(chunks)],
            "digest": lambda: self._digest(index),
            "bytes": lambda: self.bytes,
            "policy version": lambda: self.policy_version,
            "victim": lambda: self.victims[-1 - index % min(len(self.victims), 6)],
        }
        return things[kind]()

    def _open_run(self, index: int) -> str:
        """A run to which tasks can be added, most likely; a wish that names one and an element means that one's."""
        names = [*self.open][-9:] or ["r1"]
        self.added_to = names[index % len(names)]
        return self.added_to

    def _digest(self, index: int) -> str:
        """The name of some bytes; a wish that names one means those."""
        self.bytes = b"fuzz %d!" % (index % 8 == 7)  # mostly the same, so that somebody has put it before
        return f"sha256:{hashlib.sha256(self.bytes).hexdigest()}"

    def harmless(self, wish: Wish) -> Callable[[Any], Any]:
        """Keeps the fuzz from ending itself: its own people and tokens stay what they are."""

        def keep(body: Any) -> Any:
            if not isinstance(body, dict):
                return body
            if wish.operation.path == "/v1/tokens/revoke":
                return {**body, **({"all": False} if body.get("all") is True else {})}
            if wish.operation.path == "/v1/users" and body.get("name") in ("anna", "bert", "carl"):
                return {**body, "name": "u1"}
            return body

        return keep

    def context_for(self, wish: Wish) -> ssl.SSLContext | None:
        """Which connection a wish takes: a pilot's certificate goes with its session."""
        if self.me is not None:
            return self.me.context
        return self.context.context if wish.tls else None

    # --- learning
    def learn(self, wish: Wish, answer: Answer) -> None:
        """Remember what the server has now."""
        self.statuses[answer.status] += 1
        self.damages.update(kind for kind, _ in wish.damages)
        self.slowest = max(self.slowest, answer.seconds)
        if answer.status >= 400 and answer.body:
            self.codes[answer.json()["error"]["code"]] += 1
        if answer.status != 200 or not _is_whole(wish):
            return
        self.good[str(wish.operation)] += 1
        if str(wish.operation) == "POST /v1/runs":
            told = answer.json()
            self.runs.append(told["run"])
            if wish.body.get("open") and not told["again"]:
                self.open[told["run"]] = told["tasks"] + 1
        elif str(wish.operation) == "POST /v1/runs/{run}/tasks":
            told = answer.json()
            self.additions += not told["again"]
            self.open[told["run"]] = max(self.open.get(told["run"], 1), told["first"] + told["tasks"])
        elif str(wish.operation) == "POST /v1/runs/{run}/close":
            self.open.pop(answer.json()["run"], None)
        elif wish.operation.path.startswith("/v1/policy"):
            self.policy_version = answer.json()["version"]
        elif str(wish.operation) == "POST /v1/tokens":
            self.victims.append(answer.json()["id"])
        elif str(wish.operation) == "POST /v1/pilots" and not wish.body.get("unfit"):
            self._learn_pilot(answer, wish.body, self.context.context if wish.tls else None)
        elif self.me is not None:
            self.batches += bool(wish.body.get("batches"))
            self._learn_reply(self.me, answer.json())

    def _learn_pilot(self, answer: Answer, body: Json, context: ssl.SSLContext | None) -> None:
        told = answer.json()
        own = None
        if context is not None:
            if not told.get("certificate"):
                return  # one that speaks the protocol before certificates cannot go on over TLS
            path = self.context.folder / f"{told['pilot']}.pem"
            path.write_text(told["certificate"] + told["key"])
            own = ssl.create_default_context(cadata=self.context.call("GET", "/v1/ca", raw=True))
            own.load_cert_chain(path)
        room = {"cores": body["room"].get("cores", 1)}
        self.pilots.append(FalsePilot(told["pilot"], told["session"], room, own, protocol=body["protocol"]))
        self.secrets.add(told["session"])

    def _learn_reply(self, pilot: FalsePilot, reply: Json) -> None:
        pilot.seq = max(pilot.seq, reply["seq"])
        self.leases += len(reply["leases"])
        for lease in reply["leases"]:
            if lease.get("proof"):
                proof = {"attempt": lease["attempt"], "count": lease.get("count", 1), "proof": lease["proof"]}
                pilot.proofs = [*pilot.proofs, proof][-5:]
            if lease.get("count", 1) > 1:
                self.chunks += 1
                pilot.chunks[lease["attempt"]] = lease["count"]
            elif lease["attempt"] not in pilot.attempts:
                pilot.attempts.append(lease["attempt"])
        self.verdicts.update(row["verdict"] for row in reply["verdicts"] if row.get("count", 1) > 1)
        ended = {attempt for verdict in reply["verdicts"] for attempt in _each(verdict)}
        for first, count in [*pilot.chunks.items()]:
            inside = _each({"attempt": first, "count": count})
            if not ended.isdisjoint(inside):
                pilot.attempts += inside  # what is left of it is held one by one
                del pilot.chunks[first]
        pilot.attempts = [attempt for attempt in pilot.attempts if attempt not in ended][-50:]

    # --- judging
    def faults(self, wish: Wish, sent: Sent, answer: Answer) -> Iterator[str]:
        """Everything that is wrong with an answer."""
        if answer.status == 0:
            if sent.clean:
                yield "there was no answer"
            return
        if answer.status >= 500 and not (answer.status == 507 and b'"quota"' in answer.body):
            yield f"status {answer.status}"
        if answer.seconds > WITHIN:
            yield f"answered after {answer.seconds:.1f} s"
        text = answer.body.decode("utf-8", "replace")
        if "Traceback" in text:
            yield "a traceback in the answer"
        if sent.head_only:
            return
        if answer.status >= 400:
            yield from self._faults_of_refusal(sent, answer)
        elif answer.status >= 300:
            yield f"status {answer.status}"
        elif _is_whole(wish):
            if wish.operation.media == "application/json":
                yield from self.description.misfits(answer.json(), wish.operation.answer)
            if str(wish.operation) not in _SHOWS_SECRETS and any(s in self.secrets for s in _SECRET.findall(text)):
                yield "a secret in the answer"

    def _faults_of_refusal(self, sent: Sent, answer: Answer) -> Iterator[str]:
        try:
            said = answer.json()
        except ValueError:
            yield f"a refusal that is not JSON: {answer.body[:200]!r}"
            return
        wrong = list(self.description.misfits(said, self.description.failure))
        if wrong:
            yield f"not the form of a refusal: {wrong}"
            return
        error = said["error"]
        if not error["code"] or not error["message"]:
            yield f"no code or no message: {error}"
        if answer.status == 429 and not answer.headers.get("Retry-After", "").isdigit():
            yield "429 without Retry-After"
        for name, words in error.items():
            if not words.isprintable():
                yield f"control characters in {name}: {words!r}"
            if _SECRET.search(words):
                yield f"a secret in {name}: {words!r}"
            if repeats(words, sent.texts):
                yield f"{name} repeats more than {MAX_ECHO} characters of the input: {words!r:.300}"


def repeats(words: str, texts: tuple[str, ...]) -> bool:
    """Does an answer repeat a longer piece of the input than it may?"""
    pieces = {words[at : at + MAX_ECHO + 1] for at in range(len(words) - MAX_ECHO)}
    return any(piece in text for piece in pieces for text in texts)


def _each(told: Json) -> list[str]:
    """The attempts of a lease or a verdict, which may be about neighbours."""
    first = parse_attempt(told["attempt"])
    return [str(shift(first, at)) for at in range(told.get("count", 1))]


def _is_whole(wish: Wish) -> bool:
    """Was the call itself made, and not another one?"""
    return not any(kind in ("raw", "method", "path") for kind, _ in wish.damages)


def _post(path: str, token: str, body: Json) -> Sent:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return Sent(head.encode() + data, False, True, ())


@pytest.fixture
def context(tmp_path: Path) -> Iterator[House]:
    """A server, gone at the end."""
    made = House(tmp_path)
    made.start()
    try:
        yield made
    finally:
        made.close()


def fire(world: World, strategy: Any, number: int, count: int) -> list[str]:
    """One round of requests; stops at the first fault and returns it."""
    found: list[str] = []

    @seed(number)
    @settings(
        max_examples=count, phases=[Phase.generate], database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def shoot(wish: Wish) -> None:
        if found:
            return  # nothing is raised inside: a server with a past cannot be asked the same again
        sent = build(wish, world.meaning(wish), "127.0.0.1", world.harmless(wish))
        context = world.context_for(wish)
        answer = world.context.send(sent, context)
        wrong = list(world.faults(wish, sent, answer))
        world.by_channel["tls" if context is not None else "plain"] += 1
        if wrong:
            shown = sent.data if len(sent.data) < 2_000 else sent.data[:1_000] + b" ... " + sent.data[-1_000:]
            found.extend([f"{wish.operation}: {wrong}", f"sent {shown!r}", f"got {answer!r:.1500}"])
        else:
            world.learn(wish, answer)

    shoot()
    return found


@pytest.mark.timeout(7_200 if PROVE else 600)
def test_whatever_is_sent_is_answered_in_form_and_the_server_stays_sound(context: House) -> None:
    world = World(context)
    wishes = Wishes(world.description)

    def play(strategy: SearchStrategy[Wish], number: int, count: int, again: str) -> None:
        world.tidy()
        found = fire(world, strategy, number, count)
        assert not found, "\n".join([*found, f"replay: {again}", context.log.read_text()[-3_000:]])
        assert context.process is not None and context.process.poll() is None, context.log.read_text()[-3_000:]

    every = wishes.all()
    for number in range(SEED, SEED + max(1, REQUESTS // ROUND)):
        if not PROVE and sum(world.statuses.values()) >= FEWEST and not missing(world):
            break
        again = f"SHOAL_FUZZ_SEED={number} SHOAL_FUZZ_REQUESTS={ROUND} .venv/bin/pytest {Path(__file__).name}"
        play(every, number, min(ROUND, REQUESTS), again)
    mixed = Counter(world.statuses)
    for operation in world.description.operations if REQUESTS >= 2_000 else []:
        for number in range(SEED, SEED + 25):  # a call that chance left out, or never wished well
            has_batches = world.batches or operation.path != EXCHANGE
            if (world.good[str(operation)] and has_batches) or operation.path == STOP:
                break
            play(wishes.of(operation), number, 40, f"the same with SHOAL_FUZZ_SEED={SEED}; it was 40 times {operation}")
    report(world)
    context.stop()
    world.good[f"POST {STOP}"] += 1
    check_not_vacuous(world, mixed)
    check_log(context, world)
    check_sound(context)
    context.start()
    run = context.call("POST", "/v1/runs", {"tasks": [{"command": ["echo", "hi"]}]})["run"]
    assert context.call("GET", f"/v1/tasks/{run}.1")["state"] == "ready"
    assert context.call("POST", "/v1/cancel", {"targets": [run]}) == {"cancelled": 1, "already_final": 0}
    context.stop()
    check_log(context, world)


def report(world: World) -> None:
    """The figures of a run."""
    total = sum(world.statuses.values())
    good = world.statuses[200]
    print(
        f"\n{total} requests {dict(world.by_channel)}, {good / total:.1%} answered 2xx, slowest {world.slowest:.2f} s"
    )
    print(f"statuses {dict(sorted(world.statuses.items()))}; {world.leases} leases, {len(world.runs)} runs")
    print(
        f"{world.chunks} leases of several, {world.batches} told batches ({dict(world.verdicts)}), {world.additions} additions"
    )
    for operation in world.description.operations:
        print(f"  {world.good[str(operation)]:6d} x 2xx  {operation}")
    print(f"codes {dict(world.codes.most_common())}")


def missing(world: World) -> list[str]:
    """What has to be met and was not yet, whichever operations were called."""
    found = [str(status) for status in STATUSES - set(world.statuses)]
    found += sorted(set(DAMAGES) - set(world.damages))
    found += ["leases"] if world.leases <= LEASES else []
    return found + (["chunks, additions or batches"] if min(world.chunks, world.additions, world.batches) < 1 else [])


def check_not_vacuous(world: World, mixed: Counter[int]) -> None:
    """A fuzz that never got anywhere proves nothing. `mixed`: what was answered while every operation was wished for, before
    the search for a good answer of each that was left."""
    total = sum(mixed.values())
    assert total >= 0.9 * (REQUESTS if PROVE else min(FEWEST, REQUESTS)), total
    assert mixed[200] >= 0.2 * total, mixed
    if REQUESTS >= 2_000:
        # A file of a running task comes from a real pilot (test_in_order.py), a run is removed when it has finished.
        missed = [str(operation) for operation in world.description.operations if not world.good[str(operation)]]
        # What a leader hands on is sealed by real pilots (test_bundles.py), and runs are planned (test_planning_states.py).
        elsewhere = ("POST /v1/remove", "POST /v1/pilots/{pilot}/bundle", "POST /v1/runs/{run}/accept")
        missed = [name for name in missed if "/file" not in name and name not in elsewhere]
        assert not missed, f"never answered 2xx: {missed}"
        assert not missing(world), world.statuses
        assert min(world.by_channel.values()) > 0.2 * total
        assert world.statuses[429] < 0.1 * total, world.statuses


def check_log(context: House, world: World) -> None:
    """No defect was met, and no secret was written down."""
    text = context.log.read_text(encoding="utf-8", errors="replace")
    wrong = [line for line in text.splitlines() if "Traceback" in line or "defect" in line]
    assert not wrong, text[text.index(wrong[0]) - 500 :][:4_000]
    assert not [secret for secret in world.secrets if secret in text]


def check_sound(context: House) -> None:
    """What is on disk makes an engine that adds up."""
    database = Database.open(context.state / DATABASE)
    try:
        engine = Engine(database.snapshot(), Timing(), random.Random(1), time.time(), str(context.state))
        assert engine.check() == []
    finally:
        database.close()
