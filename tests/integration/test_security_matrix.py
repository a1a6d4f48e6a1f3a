"""Who may call what, cell by cell: roles x routes x objects, generated from the route table [promise I16].

A route without a row, and a row without a route, fail. What belongs to another answers word for word as what does
not exist, and no answer, refusals and headers included, holds a word of somebody whom the caller may not see.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.server.http.openapi import describe
from shoal.server.http.routes import ROUTES, Route
from tests.integration.guests import (
    ANNA,
    BOSS,
    CANARIES,
    CHEM,
    MIKE,
    MONA,
    OLAF,
    PHYS,
    Answer,
    Guests,
    Json,
    Pilot,
    Token,
    leaks,
    misfits,
    serving,
    without,
)
from tests.unix_http import connect

pytestmark = pytest.mark.integration

# --- the table
# A cell is one status for each object: anna's own, her mate mike's, another user's (olaf's), none such. A single
# letter stands for a call that names no object. The owner is anna; mona manages the group of anna and mike.
BYTES = "application/octet-stream"
STATUS = {"Y": 200, "B": 400, "!": 401, "X": 403, "-": 404, "~": 409}
OBJECTS = (ANNA, MIKE, OLAF, "")
ROLES = (
    "none", "garbage", "newline", "cut", "expired", "revoked", "owner", "mate", "manager", "other", "admin", "scopeless",
    "adminless", "enrol", "session", "foreign", "dead",
)  # fmt: skip
#                             none garb newl cut  exp. revo owne mate mana othe admi scop admi enro sess fore dead
TABLE = """
POST /v1/runs                 !    !    B    !    !    !    Y    Y    Y    Y    Y    X    Y    X    X    X    !
GET  /v1/runs                 !!!! !!!! BBBB !!!! !!!! !!!! YYYY YYYY YYYY YYYY YYYY XXXX YYYY XXXX XXXX XXXX !!!!
GET  /v1/runs/{run}           !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- YY-- --Y- YYY- XXXX ---- XXXX XXXX XXXX !!!!
GET  /v1/runs/{run}/tasks     !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- YY-- --Y- YYY- XXXX ---- XXXX XXXX XXXX !!!!
GET  /v1/runs/{run}/partial   !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- YY-- --Y- YYY- XXXX ---- XXXX XXXX XXXX !!!!
GET  /v1/runs/{run}/machines  !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- YY-- --Y- YYY- XXXX ---- XXXX XXXX XXXX !!!!
POST /v1/runs/{run}/tasks     !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- XX-- --Y- YYY- XXXX ---- XXXX XXXX XXXX !!!!
POST /v1/runs/{run}/close     !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- YY-- --Y- YYY- XXXX ---- XXXX XXXX XXXX !!!!
POST /v1/runs/{run}/files     !!!! !!!! BBBB !!!! !!!! !!!! ~--- -~-- XX-- --~- ~~~- XXXX ---- XXXX XXXX XXXX !!!!
POST /v1/runs/{run}/accept    !!!! !!!! BBBB !!!! !!!! !!!! ~--- -~-- XX-- --~- ~~~- XXXX ---- XXXX XXXX XXXX !!!!
GET  /v1/runs/{run}/results   !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- YY-- --Y- YYY- XXXX ---- XXXX XXXX XXXX !!!!
GET  /v1/tasks/{task}         !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- YY-- --Y- YYY- XXXX ---- XXXX XXXX XXXX !!!!
GET  /v1/tasks/{task}/logs    !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- YY-- --Y- YYY- XXXX ---- XXXX XXXX XXXX !!!!
GET  /v1/why/{target}         !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- YY-- --Y- YYY- XXXX ---- XXXX XXXX XXXX !!!!
POST /v1/cancel               !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- YY-- --Y- YYY- XXXX ---- XXXX XXXX XXXX !!!!
POST /v1/retry                !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- YY-- --Y- YYY- XXXX ---- XXXX XXXX XXXX !!!!
POST /v1/signal               !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- YY-- --Y- YYY- XXXX ---- XXXX XXXX XXXX !!!!
POST /v1/set                  !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- YY-- --Y- YYY- XXXX ---- XXXX XXXX XXXX !!!!
POST /v1/runs/{run}/copy      !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- XX-- --Y- XXX- XXXX ---- XXXX XXXX XXXX !!!!
POST /v1/remove               !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- YY-- --Y- YYY- XXXX ---- XXXX XXXX XXXX !!!!
GET  /v1/tasks/{task}/files   !!!! !!!! BBBB !!!! !!!! !!!! ~--- -~-- XX-- --~- ~~~- XXXX ---- XXXX XXXX XXXX !!!!
GET  /v1/tasks/{task}/file    !!!! !!!! BBBB !!!! !!!! !!!! ~--- -~-- XX-- --~- ~~~- XXXX ---- XXXX XXXX XXXX !!!!
GET  /v1/events               !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- YY-- --Y- YYY- XXXX ---- XXXX XXXX XXXX !!!!
PUT  /v1/blobs/{digest}       !!!! !!!! BBBB !!!! !!!! !!!! Y~~~ ~Y~~ ~~~~ ~~Y~ ~~~~ XXXX ~~~~ XXXX Y~~~ ~~Y~ !!!!
HEAD /v1/blobs/{digest}       !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- YY-- --Y- YYY- XXXX ---- XXXX Y--- --Y- !!!!
GET  /v1/blobs/{digest}       !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- YY-- --Y- YYY- XXXX ---- XXXX Y--- --Y- !!!!
GET  /v1/blobs/{digest}/peers !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- YY-- --Y- YYY- XXXX ---- XXXX Y--- --Y- !!!!
GET  /v1/pilots               !    !    B    !    !    !    Y    Y    Y    Y    Y    X    Y    X    X    X    !
GET  /v1/hosts                !    !    B    !    !    !    Y    Y    Y    Y    Y    X    Y    X    X    X    !
GET  /v1/acct                 !    !    B    !    !    !    Y    Y    Y    Y    Y    X    Y    X    X    X    !
POST /v1/pilots/drain         !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- YY-- --Y- YYY- XXXX ---- XXXX XXXX XXXX !!!!
POST /v1/pilots               !!!! !!!! BBBB !!!! !!!! !!!! XXXX XXXX XXXX XXXX XXXX XXXX XXXX YXXX !!!! !!!! !!!!
POST /v1/pilots/{pilot}/exchange !!!! !!!! BBBB !!!! !!!! !!!! XXXX XXXX XXXX XXXX XXXX XXXX XXXX XXXX Y!!! !!Y! ~~~~
POST /v1/pilots/{pilot}/bundle !!!! !!!! BBBB !!!! !!!! !!!! XXXX XXXX XXXX XXXX XXXX XXXX XXXX XXXX ~!!! !!~! !!!!
GET  /v1/pilot.pyz            !    !    B    !    !    !    Y    Y    Y    Y    Y    Y    Y    Y    Y    Y    !
GET  /v1/whoami               !    !    B    !    !    !    Y    Y    Y    Y    Y    Y    Y    X    X    X    !
GET  /v1/users                !    !    B    !    !    !    Y    Y    Y    Y    Y    X    Y    X    X    X    !
POST /v1/users                !!!! !!!! BBBB !!!! !!!! !!!! XXXX XXXX XXXX XXXX YYYY XXXX XXXX XXXX XXXX XXXX !!!!
GET  /v1/groups               !    !    B    !    !    !    Y    Y    Y    Y    Y    X    Y    X    X    X    !
POST /v1/groups               !!!! !!!! BBBB !!!! !!!! !!!! XXXX XXXX XXXX XXXX YYYY XXXX XXXX XXXX XXXX XXXX !!!!
GET  /v1/sites                !    !    B    !    !    !    Y    Y    Y    Y    Y    X    Y    X    X    X    !
POST /v1/sites                !!!! !!!! BBBB !!!! !!!! !!!! XXXX XXXX XXXX XXXX YYYY XXXX XXXX XXXX XXXX XXXX !!!!
GET  /v1/tokens               !    !    B    !    !    !    Y    Y    Y    Y    Y    X    Y    X    X    X    !
POST /v1/tokens               !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- ---- --Y- YYY- XXXX ---- XXXX XXXX XXXX !!!!
POST /v1/tokens/revoke        !!!! !!!! BBBB !!!! !!!! !!!! Y--- -Y-- ---- --Y- YYY- XXXX ---- XXXX XXXX XXXX !!!!
GET  /v1/audit                !!!! !!!! BBBB !!!! !!!! !!!! XXXX XXXX XXXX XXXX YYYY XXXX XXXX XXXX XXXX XXXX !!!!
GET  /v1/policy               !    !    B    !    !    !    Y    Y    Y    Y    Y    X    Y    X    X    X    !
POST /v1/policy               !    !    B    !    !    !    X    X    X    X    Y    X    X    X    X    X    !
GET  /v1/shares               !    !    B    !    !    !    Y    Y    Y    Y    Y    X    Y    X    X    X    !
POST /v1/policy/shares        !!!! !!!! BBBB !!!! !!!! !!!! XXXX XXXX YY-- XXXX YYY- XXXX XXXX XXXX XXXX XXXX !!!!
GET  /v1/server               !    !    B    !    !    !    Y    Y    Y    Y    Y    X    Y    X    X    X    !
POST /v1/server/stop          !    !    B    !    !    !    X    X    X    X    Y    X    X    X    X    X    !
GET  /v1/demand               !    !    B    !    !    !    Y    Y    Y    Y    Y    X    Y    X    X    X    !
GET  /v1/sites/weather        !    !    B    !    !    !    Y    Y    Y    Y    Y    X    Y    X    X    X    !
POST /v1/sites/report         !    !    B    !    !    !    Y    Y    Y    Y    Y    X    Y    X    X    X    !
POST /v1/server/tunnel        !    !    B    !    !    !    X    X    X    X    Y    X    X    X    X    X    !
POST /v1/prune                !    !    B    !    !    !    X    X    X    X    Y    X    X    X    X    X    !
GET  /metrics                 !    !    B    !    !    !    X    X    X    X    Y    X    X    X    X    X    !
GET  /v1/openapi.json         !    !    B    !    !    !    Y    Y    Y    Y    Y    Y    Y    Y    Y    Y    !
GET  /v1/ca                   Y    Y    B    Y    Y    Y    Y    Y    Y    Y    Y    Y    Y    Y    Y    Y    Y
GET  /                        Y    Y    B    Y    Y    Y    Y    Y    Y    Y    Y    Y    Y    Y    Y    Y    Y
GET  /v1/health               Y    Y    B    Y    Y    Y    Y    Y    Y    Y    Y    Y    Y    Y    Y    Y    Y
"""
ROWS = {(words[0], words[1]): words[2:] for words in map(str.split, TABLE.strip().splitlines())}

EVERYONE = frozenset(CANARIES)
MAY_SEE: dict[str, frozenset[str]] = {
    "owner": frozenset({ANNA, PHYS}),
    "mate": frozenset({MIKE, PHYS}),
    "manager": frozenset({ANNA, MIKE, MONA, PHYS}),
    "other": frozenset({OLAF, CHEM}),
    "admin": EVERYONE,
    "scopeless": frozenset({ANNA, PHYS}),
    "adminless": frozenset({BOSS}),
    "enrol": frozenset({ANNA}),
    "session": frozenset({ANNA}),
    "foreign": frozenset({OLAF}),
}


@dataclasses.dataclass(frozen=True)
class Ask:
    """One request of a cell, and the ids in it that an answer may repeat."""

    path: str
    body: Any = None
    ids: tuple[str, ...] = ()
    headers: Json = dataclasses.field(default_factory=dict)


class World:
    """The guests with the tokens of all roles."""

    def __init__(self, guests: Guests) -> None:
        self.guests = guests
        guests.invite()
        anna = guests.people[ANNA]
        short = guests.mint(owner=ANNA, expires=1)
        born = time.monotonic()
        revoked = guests.mint(owner=ANNA)
        guests.do("POST", "/v1/tokens/revoke", {"tokens": [revoked.id]})
        dead = guests.join(anna.enrol.secret, ANNA)
        dead.leave()
        self.dead = dead
        boss = guests.people[BOSS].name
        self.lacking = {
            scope: guests.mint(owner=ANNA, scopes=[s for s in ("submit", "read", "cancel") if s != scope]).secret
            for scope in ("submit", "read", "cancel")
        }
        self.bearers: dict[str, str | None] = {
            "none": None, "garbage": "shoal_sub_" + "x" * 43, "cut": anna.token[:-1], "expired": short.secret,
            "revoked": revoked.secret, "owner": anna.token, "mate": guests.people[MIKE].token,
            "manager": guests.people[MONA].token, "other": guests.people[OLAF].token, "enrol": anna.enrol.secret,
            "adminless": guests.mint(owner=boss, scopes=["submit", "read", "cancel"]).secret,
            "session": anna.host.session, "foreign": guests.people[OLAF].host.session, "dead": dead.session,
        }  # fmt: skip
        self.blobs = {whose: self._put(whose) for whose in (ANNA, MIKE, OLAF)}
        guests.do("POST", "/v1/policy", {"version": 0, "policy": POLICY})
        time.sleep(max(0.0, born + 1.2 - time.monotonic()))

    def _put(self, whose: str) -> str:
        """A blob of somebody's, with their word in it."""
        data = f"{whose}-blob".encode()
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        answer = self.guests.ask(
            "PUT", f"/v1/blobs/{digest}", data, token=self.guests.people[whose].token, headers={"Content-Type": BYTES}
        )
        assert answer.status == 200, answer
        return digest

    def bearer(self, role: str, route: Route) -> str | None:
        """The token of a role; the administrator's is another after each start, and one scope is another's lack."""
        if role == "admin":
            return self.guests.admin
        if role == "scopeless":
            return self.lacking.get(route.scope, self.lacking["cancel"])
        return self.bearers[role]

    def send(self, route: Route, role: str, ask: Ask) -> Answer:
        """Make one call in a role."""
        if role == "newline":
            return self._send_broken(route, ask)
        return self.guests.ask(route.method, ask.path, ask.body, token=self.bearer(role, route), headers=ask.headers)

    def _send_broken(self, route: Route, ask: Ask) -> Answer:
        """The owner's good token with a newline in the middle of it."""
        token = self.guests.people[ANNA].token
        head = f"{route.method} {ask.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token[:20]}\n{token[20:]}\r\n"
        data = b"" if ask.body is None else json.dumps(ask.body).encode()
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        found = self.guests.raw(head.encode() + data)
        top, _, body = found.partition(b"\r\n\r\n")
        lines = top.decode("latin-1").split("\r\n")
        pairs = [line.partition(": ")[::2] for line in lines[1:]]
        return Answer(int(lines[0].split()[1]), tuple(pairs), body)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Everyone, once for all cells; a cell that changes something changes it for nobody else."""
    with serving(tmp_path_factory.mktemp("matrix") / "guests") as guests:
        yield World(guests)


# A line about everybody, none of which keeps anyone from anything.
POLICY: Json = {
    "share": dict.fromkeys((ANNA, MIKE, MONA, OLAF, f"@{PHYS}", f"@{CHEM}"), 2),
    "quota": [{"who": who, "queued": 10**9} for who in ("*", ANNA, MIKE, MONA, OLAF, f"@{PHYS}", f"@{CHEM}")],
    "ban": {"hook": ["/zqboss-hook"]},
}


# --- what each call names
Asks = Callable[[World, str, str], list[Ask]]  # world, role, whose object ("": none such) -> the requests of a cell


def _run(world: World, whose: str) -> str:
    return world.guests.people[whose].run if whose else "r777777"


def _pilot(world: World, whose: str) -> str:
    return world.guests.people[whose].host.name if whose else "pffffff"


def _path(pattern: str) -> Asks:
    def asks(world: World, role: str, whose: str) -> list[Ask]:
        run = _run(world, whose)
        names = {"run": [run], "task": [f"{run}.1"], "target": [run, f"{run}.1", _pilot(world, whose)]}
        key = pattern.partition("{")[2].partition("}")[0]
        return [Ask(pattern.replace(f"{{{key}}}", name), ids=(name, run)) for name in names[key]]

    return asks


def _blob(world: World, role: str, whose: str) -> list[Ask]:
    digest = world.blobs[whose] if whose else f"sha256:{'0' * 64}"
    return [Ask(f"/v1/blobs/{digest}", ids=(digest,))]


def _blob_peers(world: World, role: str, whose: str) -> list[Ask]:
    return [Ask(f"{one.path}/peers", ids=one.ids) for one in _blob(world, role, whose)]


def _put_nothing(world: World, role: str, whose: str) -> list[Ask]:
    """To say a digest is not to have its bytes: only who holds the blob hears that it is here."""
    (ask,) = _blob(world, role, whose)
    return [dataclasses.replace(ask, headers={"Content-Range": f"bytes */{len(f'{whose or ANNA}-blob')}"})]


def _open_run(guests: Guests, whose: str) -> str:
    """A run of somebody's to which nothing was added yet."""
    return guests.submit(guests.people[whose].token, whose, open=True, tasks=[])


def _add(world: World, role: str, whose: str) -> list[Ask]:
    run = _open_run(world.guests, whose) if whose else "r777777"
    return [Ask(f"/v1/runs/{run}/tasks", {"first": 1, "tasks": [{"command": ["true"], "cores": 99}]}, (run,))]


def _close(world: World, role: str, whose: str) -> list[Ask]:
    run = _open_run(world.guests, whose) if whose else "r777777"
    return [Ask(f"/v1/runs/{run}/close", {}, (run,))]


def _of_run(what: str, body: Any) -> Asks:
    """A call that a plain run, which has no rules and no plan, answers with 409."""

    def asks(world: World, role: str, whose: str) -> list[Ask]:
        run = _run(world, whose)
        return [Ask(f"/v1/runs/{run}/{what}", body, (run,))]

    return asks


def _targets(path: str, **more: Any) -> Asks:
    def asks(world: World, role: str, whose: str) -> list[Ask]:
        run = _run(world, whose)
        return [Ask(path, {"targets": [name], **more}, (name, run)) for name in (run, f"{run}.2")]

    return asks


def _queued_run(guests: Guests, whose: str) -> str:
    """A run of somebody's that no pilot can take."""
    return guests.submit(guests.people[whose].token, whose, tasks=[{"command": ["true"], "cores": 99, "array": "1-2"}])


def _set(world: World, role: str, whose: str) -> list[Ask]:
    run = _queued_run(world.guests, whose) if whose else "r777777"
    return [Ask("/v1/set", {"targets": [name], "fields": {"priority": 1}}, (name, run)) for name in (run, f"{run}.2")]


def _copy(world: World, role: str, whose: str) -> list[Ask]:
    run = _queued_run(world.guests, whose) if whose else "r777777"
    return [Ask(f"/v1/runs/{run}/copy", {"fields": {"priority": 1}, "only": "2"}, (run,))]


def _remove(world: World, role: str, whose: str) -> list[Ask]:
    run = "r777777"
    if whose:
        run = _queued_run(world.guests, whose)
        world.guests.do("POST", "/v1/cancel", {"targets": [run]}, token=world.guests.people[whose].token)
    return [Ask("/v1/remove", {"runs": [run]}, (run,))]


def _look(what: str) -> Asks:
    """At a task that does not run: whether it is shown is decided before that."""

    def asks(world: World, role: str, whose: str) -> list[Ask]:
        run = _queued_run(world.guests, whose) if whose else "r777777"
        return [Ask(f"/v1/tasks/{run}.1/{what}?path=x", ids=(f"{run}.1", run))]

    return asks


def _drain(world: World, role: str, whose: str) -> list[Ask]:
    name = "pffffff"
    if whose:
        name = world.guests.join(world.guests.people[whose].enrol.secret, whose).name
    return [Ask("/v1/pilots/drain", {"pilots": [name], "why": "cell"}, (name,))]


def _enrol(world: World, role: str, whose: str) -> list[Ask]:
    site = f"{whose or 'none'}-site"
    return [Ask("/v1/pilots", world.guests.register(ANNA, site=site), (site,))]


def _exchange(world: World, role: str, whose: str) -> list[Ask]:
    """Each speaks in the name of somebody's pilot, with the one secret that it has."""
    speaker: Pilot = {"foreign": world.guests.people[OLAF].host, "dead": world.dead}.get(
        role, world.guests.people[ANNA].host
    )
    name = _pilot(world, whose)
    said = {**speaker.message(), "pilot": name}
    if name != speaker.name:
        speaker.seq -= 1
    return [Ask(f"/v1/pilots/{name}/exchange", said, (name,))]


def _bundle(world: World, role: str, whose: str) -> list[Ask]:
    """Somebody's pilot hands on exchanges of others: none of these leads a mesh."""
    name = _pilot(world, whose)
    return [Ask(f"/v1/pilots/{name}/bundle", {"term": 1, "items": []}, (name,))]


def _user(world: World, role: str, whose: str) -> list[Ask]:
    group = {ANNA: PHYS, MIKE: PHYS, OLAF: CHEM}.get(whose, "")
    return [Ask("/v1/users", {"name": whose or f"new-{role}", "group": group, "role": "user"})]


def _mint(world: World, role: str, whose: str) -> list[Ask]:
    owner = whose or "nobody"
    return [Ask("/v1/tokens", {"kind": kind, "owner": owner, "expires": 60}, (owner,)) for kind in ("submit", "enrol")]


def _revoke(world: World, role: str, whose: str) -> list[Ask]:
    asks = []
    for kind in ("submit", "enrol"):
        name = world.guests.mint(kind, owner=whose).id if whose else "t0000000"
        asks.append(Ask("/v1/tokens/revoke", {"tokens": [name]}, (name,)))
    return asks


def _policy(world: World, role: str, whose: str) -> list[Ask]:
    version = world.guests.do("GET", "/v1/policy")["version"]
    return [Ask("/v1/policy", {"version": version, "policy": {**POLICY, "memory": {"cap": 5 + version}}})]


def _share(world: World, role: str, whose: str) -> list[Ask]:
    owner = whose or "nobody"
    return [Ask("/v1/policy/shares", {"shares": {owner: 3}}, (owner,))]


def _plain(path: str, body: Any = None) -> Asks:
    return lambda world, role, whose: [Ask(path, body)]


ASKS: dict[tuple[str, str], Asks] = {
    ("POST", "/v1/runs"): lambda world, role, whose: [Ask("/v1/runs", {"tasks": [{"command": ["true"], "cores": 99}]})],
    ("GET", "/v1/runs"): lambda world, role, whose: [Ask(f"/v1/runs?owner={whose or 'nobody'}")],
    ("POST", "/v1/runs/{run}/tasks"): _add,
    ("POST", "/v1/runs/{run}/close"): _close,
    ("POST", "/v1/runs/{run}/files"): _of_run("files", {"files": {"in": 1}}),
    ("POST", "/v1/runs/{run}/accept"): _of_run("accept", {}),
    ("POST", "/v1/cancel"): _targets("/v1/cancel"),
    ("POST", "/v1/retry"): _targets("/v1/retry"),
    ("POST", "/v1/signal"): _targets("/v1/signal", signal="USR1"),
    ("POST", "/v1/set"): _set,
    ("POST", "/v1/runs/{run}/copy"): _copy,
    ("POST", "/v1/remove"): _remove,
    ("GET", "/v1/tasks/{task}/files"): _look("files"),
    ("GET", "/v1/tasks/{task}/file"): _look("file"),
    ("GET", "/v1/events"): lambda world, role, whose: [
        Ask(f"/v1/events?run={_run(world, whose)}", ids=(_run(world, whose),))
    ],
    ("PUT", "/v1/blobs/{digest}"): _put_nothing,
    ("HEAD", "/v1/blobs/{digest}"): _blob,
    ("GET", "/v1/blobs/{digest}"): _blob,
    ("GET", "/v1/blobs/{digest}/peers"): _blob_peers,
    ("GET", "/v1/acct"): lambda world, role, whose: [
        Ask(f"/v1/acct?by={by}") for by in ("owner,run,day", "site,host,pilot")
    ],
    ("POST", "/v1/pilots/drain"): _drain,
    ("POST", "/v1/pilots"): _enrol,
    ("POST", "/v1/pilots/{pilot}/exchange"): _exchange,
    ("POST", "/v1/pilots/{pilot}/bundle"): _bundle,
    ("POST", "/v1/users"): _user,
    ("POST", "/v1/groups"): lambda world, role, whose: [
        Ask("/v1/groups", {"name": {ANNA: PHYS, MIKE: PHYS, OLAF: CHEM}.get(whose, f"new-{role}")})
    ],
    ("POST", "/v1/sites"): lambda world, role, whose: [
        Ask("/v1/sites", {"name": f"site-of-{whose}" if whose else f"new-{role}", "holders": [whose] if whose else []})
    ],
    ("POST", "/v1/tokens"): _mint,
    ("POST", "/v1/tokens/revoke"): _revoke,
    ("GET", "/v1/audit"): lambda world, role, whose: [Ask(f"/v1/audit?owner={whose or 'nobody'}")],
    ("POST", "/v1/policy"): _policy,
    ("POST", "/v1/policy/shares"): _share,
    ("POST", "/v1/server/stop"): _plain("/v1/server/stop", {}),
    ("POST", "/v1/sites/report"): _plain("/v1/sites/report", {"site": "reported", "backend": "local"}),
    ("POST", "/v1/server/tunnel"): _plain("/v1/server/tunnel", {}),
    ("POST", "/v1/prune"): _plain("/v1/prune", {"older_than": "3650d"}),
}


def asks_of(route: Route) -> Asks:
    """How a route is called."""
    found = ASKS.get((route.method, route.path))
    if found is not None:
        return found
    return _path(route.path) if "{" in route.path else _plain(route.path)


def test_every_route_has_a_row_and_every_row_a_cell_for_each_role() -> None:
    assert set(ROWS) == {(route.method, route.path) for route in ROUTES}
    assert len(ROWS) == len(ROUTES) == len(TABLE.strip().splitlines())
    for name, cells in ROWS.items():
        assert len(cells) == len(ROLES), name
        assert {len(cell) for cell in cells} in ({1}, {len(OBJECTS)}), name
        assert set("".join(cells)) <= set(STATUS), name


@pytest.mark.parametrize("route", ROUTES, ids=[f"{route.method} {route.path}" for route in ROUTES])
def test_each_role_gets_from_each_route_what_the_table_says(route: Route, world: World) -> None:
    cells = ROWS[route.method, route.path]
    ran = 0
    for role, cell in zip(ROLES, cells, strict=True):
        answers: list[tuple[str, list[Ask], list[Answer]]] = []
        for whose, letter in zip(OBJECTS if len(cell) > 1 else (ANNA,), cell, strict=True):
            asks = asks_of(route)(world, role, whose)
            got = [world.send(route, role, ask) for ask in asks]
            for ask, answer in zip(asks, got, strict=True):
                where = f"{role}: {route.method} {ask.path} {ask.body} -> {answer}"
                if route.path == "/v1/server/stop" and answer.status == 200:
                    assert world.guests.wait_end() == 0
                    world.guests.start()
                assert answer.status == STATUS[letter], where
                said = f"{ask.path} {json.dumps(ask.body)}"
                assert not leaks(answer, MAY_SEE.get(role, frozenset()), said), where
                assert not _secrets_in(world, answer, role), where
                assert not _misfits(route, answer), where
            answers.append((letter, asks, got))
            ran += 1
        _check_alike(answers)
    assert ran == sum(map(len, cells))


def _secrets_in(world: World, answer: Answer, role: str) -> list[str]:
    """Secrets in an answer; who makes a token or enrols is given a new one, and nobody an old one."""
    people = world.guests.people.values()
    old = [*world.bearers.values(), *world.lacking.values(), world.guests.admin, world.guests.told["enrol"]]
    old += [secret for person in people for secret in (person.token, person.enrol.secret, person.host.session)]
    return [secret[:14] for secret in old if secret is not None and secret in answer.text]


def _misfits(route: Route, answer: Answer) -> list[str]:
    """Where an answer is not what the OpenAPI description says."""
    described = describe()
    operation = described["paths"][route.path][route.method.lower()]
    if answer.status == 200:
        ((kind, content),) = operation["responses"]["200"]["content"].items()
        schema = content["schema"]
    else:
        kind, schema = "application/json", {"$ref": "#/components/schemas/ErrorAnswer"}
        assert str(answer.status) in operation["responses"]
    if answer.header("Content-Type").partition(";")[0] != kind:
        return [f"{answer.header('Content-Type')} is not {kind}"]
    if route.method == "HEAD" and not answer.body:
        return []  # only what was not understood is answered with one
    return misfits(answer.json, schema, described["components"]["schemas"]) if kind == "application/json" else []


def _check_alike(answers: list[tuple[str, list[Ask], list[Answer]]]) -> None:
    """What is refused alike is refused in the same words, whether it exists or not."""
    last, none_asks, none_answers = answers[-1]
    if STATUS[last] == 200:
        return
    for letter, asks, got in answers[:-1]:
        if letter != last:
            continue
        for ask, answer, none_ask, none_answer in zip(asks, got, none_asks, none_answers, strict=True):
            assert without(answer, *ask.ids) == without(none_answer, *none_ask.ids)


# --- beside the cells: what one row cannot say
@pytest.fixture
def guests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guests]:
    """A server of one's own, with everyone."""
    with serving(tmp_path_factory.mktemp("house") / "guests") as made:
        made.invite()
        yield made


def test_lists_show_each_caller_exactly_their_own(guests: Guests) -> None:
    group = guests.mint("enrol", group=PHYS, site="zqphys-site", by=guests.people[MONA].token)
    shared = guests.join(group.secret, PHYS)
    everyone = [ANNA, MIKE, MONA, OLAF, BOSS]
    plain = guests.mint(owner=guests.people[BOSS].name, scopes=["submit", "read", "cancel"]).secret
    sees = {
        guests.people[ANNA].token: ([ANNA], [shared.name], MAY_SEE["owner"], [PHYS]),
        guests.people[MIKE].token: ([MIKE], [shared.name], MAY_SEE["mate"], [PHYS]),
        guests.people[MONA].token: ([ANNA, MIKE, MONA], [shared.name], MAY_SEE["manager"], [PHYS]),
        guests.people[OLAF].token: ([OLAF], [], MAY_SEE["other"], [CHEM]),
        guests.admin: (everyone, [shared.name], EVERYONE, [CHEM, PHYS]),
        plain: ([BOSS], [], MAY_SEE["adminless"], []),
    }
    for token, (words, more, may_see, groups) in sees.items():
        people = [guests.people[word] for word in words]
        listed = {path: guests.ask("GET", path, token=token) for path in LISTS}
        assert not [word for answer in listed.values() for word in leaks(answer, may_see)]
        rows = {path: answer.json[path.rpartition("/")[2]] for path, answer in listed.items()}
        assert {f"r{row['run']}" for row in rows["/v1/runs"]} == {person.run for person in people}
        assert {row["pilot"] for row in rows["/v1/pilots"]} == {*(p.host.name for p in people), *more}
        hosts = {f"{word}-host" for word in words} | ({f"{PHYS}-host"} if more else set())
        assert {row["host"] for row in rows["/v1/hosts"]} == hosts
        assert {row["name"] for row in rows["/v1/users"]} == {person.name for person in people}
        assert sorted(row["name"] for row in rows["/v1/groups"]) == groups
        owners = {row["owner"] for row in rows["/v1/events"]}
        seen = {person.name for person in people} | ({f"@{PHYS}"} if more else set())
        assert owners == (seen | {""} if token == guests.admin else seen)
        tokens = {row["owner"] for row in rows["/v1/tokens"]}
        manages = {""} if token == guests.people[MONA].token else set()  # a group's enrolment has no owner
        mine = {_owner(guests, token)} | manages
        assert tokens == ({p.name for p in people} | {""} if token == guests.admin else mine)
        assert {row["group"] for row in rows["/v1/tokens"] if not row["owner"]} <= set(groups)
        for whose in everyone:
            found = guests.do("GET", f"/v1/runs?owner={guests.people[whose].name}", token=token)["runs"]
            assert {f"r{row['run']}" for row in found} == ({guests.people[whose].run} if whose in words else set())


LISTS = ("/v1/runs", "/v1/pilots", "/v1/hosts", "/v1/users", "/v1/groups", "/v1/events", "/v1/tokens")


def _owner(guests: Guests, token: str) -> str:
    return str(guests.do("GET", "/v1/whoami", token=token)["owner"])


def test_a_filter_without_targets_retries_the_callers_own_runs_only(guests: Guests) -> None:
    for who in (MONA, BOSS):
        person = guests.people[who]
        done = guests.do("POST", "/v1/retry", {"where": {"state": "failed"}}, token=person.token)
        assert done == {"tasks": 1, "runs": [person.run]}


def test_tasks_are_added_to_a_run_by_its_owner_and_administrators_only(guests: Guests) -> None:
    """What is added runs as the owner: a group's manager, who may cancel it, is refused as for a token of the owner's."""
    run = _open_run(guests, ANNA)
    path, evil = f"/v1/runs/{run}/tasks", {"first": 1, "tasks": [{"command": ["evil"]}]}
    for who, status in ((MONA, 403), (MIKE, 404), (OLAF, 404)):
        assert guests.ask("POST", path, evil, token=guests.people[who].token).status == status
    for secret in (guests.people[ANNA].enrol.secret, guests.people[ANNA].host.session):
        assert guests.ask("POST", path, evil, token=secret).code == "forbidden"
    assert guests.do("GET", f"/v1/runs/{run}")["arrays"] == []
    for first, token in ((1, guests.people[ANNA].token), (2, guests.admin)):
        done = guests.do("POST", path, {"first": first, "tasks": [{"command": ["true"]}]}, token=token)
        assert done == {"run": run, "first": first, "tasks": 1, "again": False, "page": None}
    assert guests.do("POST", f"/v1/runs/{run}/close", {}, token=guests.people[MONA].token)["run"] == run
    late = guests.ask("POST", path, {"first": 3, "tasks": [{"command": ["true"]}]}, token=guests.people[ANNA].token)
    assert (late.status, late.code) == (409, "run_closed")


def test_a_revoked_token_is_dead_with_the_next_request(guests: Guests) -> None:
    token = guests.mint(owner=ANNA)
    assert guests.ask("GET", "/v1/whoami", token=token.secret).status == 200
    began = time.monotonic()
    guests.do("POST", "/v1/tokens/revoke", {"tokens": [token.id]})
    assert guests.ask("GET", "/v1/whoami", token=token.secret).status == 401
    assert time.monotonic() - began < 60.0  # what is promised; it is the next request
    guests.stop()
    guests.start()
    assert guests.ask("GET", "/v1/whoami", token=token.secret).status == 401


def test_a_revoked_enrolment_ends_its_pilots_and_neither_comes_back(guests: Guests) -> None:
    enrol = guests.mint("enrol", owner=ANNA)
    pilot = guests.join(enrol.secret, ANNA)
    assert pilot.talk().status == 200
    assert guests.do("POST", "/v1/tokens/revoke", {"tokens": [enrol.id]}) == {"revoked": 1, "pilots": 1}
    assert pilot.talk().code == "revoked"
    again = guests.register(ANNA, former={"pilot": pilot.name, "session": pilot.session})
    assert guests.ask("POST", "/v1/pilots", again, token=pilot.session).status == 403
    assert guests.ask("POST", "/v1/pilots", guests.register(ANNA), token=enrol.secret).status == 401
    assert guests.ask("GET", "/v1/pilot.pyz", token=pilot.session).status == 401
    guests.stop()
    guests.start()
    assert guests.ask("POST", "/v1/pilots", again, token=pilot.session).status == 403
    assert guests.ask("POST", "/v1/pilots", guests.register(ANNA), token=enrol.secret).status == 401


@pytest.mark.parametrize("path", ["/v1/pilots", "/v1/runs", "/v1/tokens"])
def test_a_token_that_is_revoked_while_its_body_is_on_the_way_does_nothing(path: str, guests: Guests) -> None:
    token = guests.mint("enrol" if path == "/v1/pilots" else "submit", owner=ANNA)
    body = {"/v1/pilots": guests.register(ANNA), "/v1/runs": guests.submission(ANNA), "/v1/tokens": {}}[path]
    data = json.dumps(body).encode()
    before = len(guests.do("GET", "/v1/pilots")["pilots"]), len(guests.do("GET", "/v1/runs")["runs"])
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token.secret}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    with connect(guests.url) as link:
        link.sendall(head.encode() + data[:1])
        used = lambda: next(r for r in guests.do("GET", "/v1/tokens")["tokens"] if r["token"] == token.id)["used"]  # noqa: E731
        guests.until(used, "the server has seen the token")
        guests.do("POST", "/v1/tokens/revoke", {"tokens": [token.id]})
        link.sendall(data[1:])
        assert link.recv(65_536).startswith(b"HTTP/1.1 401 ")
    assert before == (len(guests.do("GET", "/v1/pilots")["pilots"]), len(guests.do("GET", "/v1/runs")["runs"]))
    assert not [row for row in guests.do("GET", "/v1/tokens?all=1")["tokens"] if row["maker"] == ANNA][1:]


def test_revoking_a_site_or_a_user_leaves_everyone_elses_tokens_alone(guests: Guests) -> None:
    group = guests.mint("enrol", group=PHYS, site="zqphys-site")
    elsewhere = guests.mint("enrol", owner=ANNA, site="elsewhere")
    assert guests.do("POST", "/v1/tokens/revoke", {"site": f"{OLAF}-site"}) == {"revoked": 1, "pilots": 1}
    live = {row["token"] for row in guests.do("GET", "/v1/tokens")["tokens"]}
    assert {group.id, elsewhere.id, guests.people[ANNA].enrol.id} <= live
    assert guests.people[OLAF].enrol.id not in live
    guests.do("POST", "/v1/tokens/revoke", {"user": ANNA})
    live = {row["token"] for row in guests.do("GET", "/v1/tokens")["tokens"]}
    assert not {elsewhere.id, guests.people[ANNA].enrol.id} & live
    assert {group.id, guests.people[MIKE].enrol.id} <= live
    assert guests.ask("GET", "/v1/whoami", token=guests.people[ANNA].token).status == 401
    assert guests.people[ANNA].host.talk().status == 403
    assert guests.people[MIKE].host.talk().status == 200
    for asked in ({"user": ANNA}, {"site": "x"}, {"all": True}):
        assert guests.ask("POST", "/v1/tokens/revoke", asked, token=guests.people[MONA].token).status == 403


def test_a_change_of_role_or_group_counts_from_the_next_request(guests: Guests) -> None:
    mona, anna = guests.people[MONA], guests.people[ANNA]
    assert guests.ask("GET", f"/v1/runs/{anna.run}", token=mona.token).status == 200
    guests.do("POST", "/v1/users", {"name": MONA, "group": PHYS, "role": "user"})
    assert guests.ask("GET", f"/v1/runs/{anna.run}", token=mona.token).status == 404
    guests.do("POST", "/v1/users", {"name": MONA, "group": CHEM, "role": "manager"})
    assert guests.ask("GET", f"/v1/runs/{anna.run}", token=mona.token).status == 404
    assert guests.ask("GET", f"/v1/runs/{guests.people[OLAF].run}", token=mona.token).status == 200
    guests.do("POST", "/v1/users", {"name": MIKE, "role": "admin"})
    second = guests.mint(owner=MIKE, scopes=["read", "admin"])
    assert guests.ask("GET", "/v1/audit", token=second.secret).status == 200
    guests.do("POST", "/v1/users", {"name": MIKE, "role": "user"})
    assert guests.ask("GET", "/v1/audit", token=second.secret).status == 403
    assert guests.ask("GET", f"/v1/runs/{anna.run}", token=second.secret).status == 404


# --- giving away
def test_nobody_makes_tokens_for_others_or_with_more_than_they_have(guests: Guests) -> None:
    anna, mona = guests.people[ANNA], guests.people[MONA]
    few = guests.mint(owner=ANNA, scopes=["submit"]).secret
    refused: list[tuple[str, Json, int]] = [
        (anna.token, {"owner": MIKE}, 404),
        (anna.token, {"owner": "nobody"}, 404),
        (anna.token, {"kind": "enrol", "owner": MIKE}, 404),
        (anna.token, {"kind": "enrol", "group": PHYS}, 404),
        (anna.token, {"kind": "enrol", "group": CHEM}, 404),
        (anna.token, {"scopes": ["admin"]}, 403),
        (anna.token, {"scopes": ["metrics"]}, 403),
        (anna.token, {"scopes": ["everything"]}, 422),
        (anna.token, {"kind": "session"}, 422),
        (anna.token, {"expires": "91d"}, 422),
        (anna.token, {"kind": "enrol", "expires": "8d"}, 422),
        (anna.token, {"expires": 0}, 422),
        (few, {"scopes": ["submit", "read"]}, 403),
        (mona.token, {"owner": ANNA}, 404),
        (mona.token, {"kind": "enrol", "group": CHEM}, 404),
        (mona.token, {"kind": "submit", "group": PHYS}, 422),
        (guests.admin, {"owner": ANNA, "scopes": ["admin"]}, 403),
    ]
    for token, asked, status in refused:
        answer = guests.ask("POST", "/v1/tokens", asked, token=token)
        assert answer.status == status, (asked, answer)
    made = guests.do("POST", "/v1/tokens", {}, token=few)
    assert guests.do("GET", "/v1/whoami", token=made["token"])["scopes"] == ["submit"]
    names = [row["token"] for row in guests.do("GET", "/v1/tokens")["tokens"]]
    assert len(names) == len(set(names)) == 2 + 4 + 5 + 2  # this machine's, four people's, five for pilots, two above


def test_a_groups_pilots_are_drained_by_its_manager_and_administrators_only(guests: Guests) -> None:
    enrol = guests.mint("enrol", group=PHYS, by=guests.people[MONA].token)
    for token, status in (
        (guests.people[ANNA].token, 404),
        (guests.people[OLAF].token, 404),
        (guests.people[MONA].token, 200),
        (guests.admin, 200),
    ):
        pilot = guests.join(enrol.secret, PHYS)
        answer = guests.ask("POST", "/v1/pilots/drain", {"pilots": [pilot.name]}, token=token)
        assert answer.status == status
        none = guests.ask("POST", "/v1/pilots/drain", {"pilots": ["pffffff"]}, token=token)
        assert status == 200 or without(answer, pilot.name) == without(none, "pffffff")
    left = guests.join(enrol.secret, PHYS)
    guests.do("POST", "/v1/pilots/drain", {}, token=guests.people[ANNA].token)  # all hers, of which this is none
    states = {row["pilot"]: row["state"] for row in guests.do("GET", "/v1/pilots")["pilots"]}
    assert states[left.name] == "idle" and states[guests.people[ANNA].host.name] == "draining"


# --- the audit
def test_every_act_has_a_line_with_token_owner_address_and_outcome(guests: Guests) -> None:
    anna, olaf = guests.people[ANNA], guests.people[OLAF]
    mine = guests.do("GET", "/v1/whoami", token=anna.token)["token"]
    boss = guests.do("GET", "/v1/whoami")
    gone = guests.mint(owner=ANNA)
    pilot = guests.join(anna.enrol.secret, ANNA)
    opened = _open_run(guests, ANNA)
    acts: list[tuple[str, Any, str, str, str, int]] = [
        # path, body, token, its id, owner, status
        ("/v1/runs", guests.submission(ANNA), anna.token, mine, ANNA, 200),
        ("/v1/runs", {"tasks": []}, anna.token, mine, ANNA, 422),
        (f"/v1/runs/{opened}/close", {}, anna.token, mine, ANNA, 200),
        (f"/v1/runs/{olaf.run}/close", {}, anna.token, mine, ANNA, 404),
        (f"/v1/runs/{opened}/files", {"files": {"in": 1}}, anna.token, mine, ANNA, 409),
        (f"/v1/runs/{anna.run}/accept", {}, anna.token, mine, ANNA, 409),
        ("/v1/cancel", {"targets": [anna.run]}, anna.token, mine, ANNA, 200),
        ("/v1/cancel", {"targets": [olaf.run]}, anna.token, mine, ANNA, 404),
        ("/v1/retry", {"targets": [anna.run]}, anna.token, mine, ANNA, 200),
        ("/v1/set", {"targets": [anna.run], "fields": {"priority": 1}}, anna.token, mine, ANNA, 200),
        ("/v1/set", {"targets": [olaf.run], "fields": {"priority": 1}}, anna.token, mine, ANNA, 404),
        (f"/v1/runs/{anna.run}/copy", {}, anna.token, mine, ANNA, 200),
        ("/v1/remove", {"runs": [olaf.run]}, anna.token, mine, ANNA, 404),
        ("/v1/signal", {"targets": [anna.run], "signal": "USR1"}, anna.token, mine, ANNA, 200),
        ("/v1/pilots/drain", {"pilots": [pilot.name]}, anna.token, mine, ANNA, 200),
        ("/v1/pilots", guests.register(ANNA), anna.enrol.secret, anna.enrol.id, ANNA, 200),
        ("/v1/pilots", guests.register(ANNA, site="elsewhere"), anna.enrol.secret, anna.enrol.id, ANNA, 403),
        ("/v1/users", {"name": "new"}, anna.token, mine, ANNA, 403),
        ("/v1/users", {"name": "new"}, guests.admin, boss["token"], boss["owner"], 200),
        ("/v1/groups", {"name": "new"}, guests.admin, boss["token"], boss["owner"], 200),
        ("/v1/sites", {"name": "new", "holders": ["*"]}, anna.token, mine, ANNA, 403),
        ("/v1/sites", {"name": "new", "holders": ["*"]}, guests.admin, boss["token"], boss["owner"], 200),
        ("/v1/tokens", {"owner": MIKE}, anna.token, mine, ANNA, 404),
        ("/v1/tokens", {}, anna.token, mine, ANNA, 200),
        ("/v1/tokens/revoke", {"tokens": [gone.id]}, anna.token, mine, ANNA, 200),
        ("/v1/policy", {"version": 0, "policy": {"share": {ANNA: 9}}}, anna.token, mine, ANNA, 403),
        ("/v1/policy", {"version": 0, "policy": {"share": {ANNA: 2}}}, guests.admin, boss["token"], boss["owner"], 200),
        ("/v1/policy", {"version": 0, "policy": {}}, guests.admin, boss["token"], boss["owner"], 409),
        ("/v1/policy/shares", {"shares": {ANNA: 9}}, anna.token, mine, ANNA, 403),
        ("/v1/prune", {"older_than": "3650d"}, guests.admin, boss["token"], boss["owner"], 200),
        ("/v1/sites/report", {"site": "lab", "backend": "local"}, anna.token, mine, ANNA, 200),
        ("/v1/server/tunnel", {}, guests.admin, boss["token"], boss["owner"], 200),
        ("/v1/server/stop", {}, anna.token, mine, ANNA, 403),
    ]
    names = [f"POST {re.sub('/r[0-9]+/', '/{run}/', path)}" for path, *_ in acts]
    assert set(names) == {f"{r.method} {r.path}" for r in ROUTES if r.acts}
    newest = guests.do("GET", "/v1/audit?limit=1")["audit"][0]["seq"]
    for at, (path, body, token, _, _, status) in enumerate(acts):
        assert guests.ask("POST", path, body, token=token, source=f"127.0.1.{at + 1}").status == status, path
    lines = [line for line in guests.do("GET", "/v1/audit")["audit"] if line["seq"] > newest]
    acting = {f"{route.method} {route.path}" for route in ROUTES if route.acts}
    found = [
        (line["what"], line["token"], line["owner"], line["address"], line["outcome"], line["times"])
        for line in reversed(lines)
        if line["what"] in acting
    ]
    assert found == [
        (names[at], name, owner, f"127.0.1.{at + 1}", "ok" if status == 200 else str(status), 1)
        for at, (_, _, _, name, owner, status) in enumerate(acts)
    ]
    assert not [secret for secret in (anna.token, anna.enrol.secret, guests.admin) if secret in json.dumps(lines)]
    assert any(gone.id in line["about"] for line in lines)


def test_what_comes_a_thousand_times_a_second_is_counted_with_token_owner_and_address(guests: Guests) -> None:
    """Blobs, additions to a run and exchanges: each minute a line that says how many, and for whom."""
    counted = {f"{r.method} {r.path}" for r in ROUTES if r.method not in ("GET", "HEAD") and not r.acts}
    add, put, talk = "POST /v1/runs/{run}/tasks", "PUT /v1/blobs/{digest}", "POST /v1/pilots/{pilot}/exchange"
    assert counted == {add, put, talk, "POST /v1/pilots/{pilot}/bundle"}
    anna, run = guests.people[ANNA], _open_run(guests, ANNA)
    mine = guests.do("GET", "/v1/whoami", token=anna.token)["token"]
    for at in range(6):
        said = {"first": at + 1, "tasks": [{"command": ["true"]}]}
        assert guests.ask("POST", f"/v1/runs/{run}/tasks", said, token=anna.token, source="127.0.5.1").status == 200
        digest = f"sha256:{hashlib.sha256(b'%d' % at).hexdigest()}"
        answer = guests.ask(
            "PUT",
            f"/v1/blobs/{digest}",
            b"%d" % at,
            token=anna.token,
            headers={"Content-Type": BYTES},
            source="127.0.5.1",
        )
        assert answer.status == 200
    late = {"first": 99, "tasks": [{"command": ["true"]}]}
    assert guests.ask("POST", f"/v1/runs/{run}/tasks", late, token=anna.token, source="127.0.5.1").status == 409
    lines = [line for line in guests.do("GET", "/v1/audit")["audit"] if line["address"] == "127.0.5.1"]
    assert {(line["what"], line["token"], line["owner"], line["outcome"]) for line in lines} == {
        (add, mine, ANNA, "ok"), (put, mine, ANNA, "ok"), (add, mine, ANNA, "409")
    }  # fmt: skip
    for what, outcome, times in ((add, "ok", 6), (put, "ok", 6), (add, "409", 1)):
        found = [line["times"] for line in lines if (line["what"], line["outcome"]) == (what, outcome)]
        assert sum(found) == times and len(found) <= 2  # two, if a minute ended meanwhile


def test_reads_and_wrong_tokens_are_counted_with_their_address(guests: Guests) -> None:
    anna = guests.people[ANNA]
    mine = guests.do("GET", "/v1/whoami", token=anna.token)["token"]
    for _ in range(3):
        guests.ask("GET", "/v1/runs", token=anna.token, source="127.0.2.1")
        guests.ask("POST", "/v1/cancel", {"targets": ["r1"]}, token="shoal_sub_" + "y" * 43, source="127.0.2.2")
    lines = guests.do("GET", "/v1/audit")["audit"]
    read = [line for line in lines if line["address"] == "127.0.2.1" and line["what"] == "GET /v1/runs"]
    assert {(line["token"], line["owner"], line["outcome"]) for line in read} == {(mine, ANNA, "ok")}
    assert sum(line["times"] for line in read) == 3
    wrong = [line for line in lines if line["address"] == "127.0.2.2"]
    assert {(line["what"], line["token"], line["owner"], line["outcome"]) for line in wrong} == {
        ("POST /v1/cancel", "", "", "401")
    }
    assert sum(line["times"] for line in wrong) == 3


def test_a_made_up_session_is_nobody_and_leaves_counts_only(guests: Guests) -> None:
    """Otherwise anyone could write a line of the audit with each request, and hold sockets as one who is known."""
    for at in range(20):
        made_up = "shoal_ses_" + f"{at:043d}"
        for method, path, body in (("GET", "/v1/runs", None), ("POST", "/v1/cancel", {"targets": ["r1"]})):
            assert guests.ask(method, path, body, token=made_up, source="127.0.3.1").status == 401
        assert guests.ask("POST", "/v1/pilots", guests.register(ANNA), token=made_up, source="127.0.3.1").status == 401
        assert guests.ask("GET", "/v1/no-such-route", token=made_up, source="127.0.3.1").status == 401
    lines = [line for line in guests.do("GET", "/v1/audit")["audit"] if line["address"] == "127.0.3.1"]
    assert {line["outcome"] for line in lines} <= {"401", "429"}
    assert len(lines) <= 12 and sum(line["times"] for line in lines) >= 60


def test_the_list_of_tokens_shows_last_use_and_address(guests: Guests) -> None:
    token: Token = guests.mint(owner=ANNA)

    def row() -> Json:
        rows = guests.do("GET", "/v1/tokens", token=guests.people[ANNA].token)["tokens"]
        found: Json = next(row for row in rows if row["token"] == token.id)
        return found

    assert (row()["used"], row()["address"]) == (None, "")
    guests.ask("GET", "/v1/runs", token=token.secret, source="127.0.4.1")
    used = row()["used"]
    assert row()["address"] == "127.0.4.1" and abs(used - time.time()) < 30.0
    guests.ask("GET", "/v1/runs", token=token.secret, source="127.0.4.2")
    assert row()["address"] == "127.0.4.2" and row()["used"] > used
    guests.stop()
    guests.start()
    assert row()["address"] == "127.0.4.2"


def test_no_secret_lies_anywhere_but_in_the_files_of_the_servers_own_account(guests: Guests) -> None:
    guests.ask("GET", f"/v1/{guests.people[ANNA].token}", token=guests.people[ANNA].token)
    guests.ask("POST", "/v1/cancel", {"targets": [guests.people[ANNA].token]}, token=guests.people[ANNA].token)
    guests.mint(owner=ANNA, note=f"do not lose {guests.people[ANNA].token}")
    secrets = [
        secret
        for person in guests.people.values()
        for secret in (person.token, person.enrol.secret, person.host.session)
    ]
    own = [guests.admin, str(guests.told["enrol"])]
    command_line = [Path(f"/proc/{guests.pid}/{name}").read_bytes() for name in ("cmdline", "environ")]
    guests.stop()
    kept = {"token", "enrol", "server.json"}
    texts = [path.read_bytes() for path in guests.state.rglob("*") if path.is_file() and path.name not in kept]
    for secret in secrets + own:
        assert not [text for text in [*texts, guests.log.read_bytes(), *command_line] if secret.encode() in text]
