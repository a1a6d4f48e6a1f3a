"""Requests for the wire fuzz, made from the server's own OpenAPI description: good ones, and good ones broken by design.

A Wish is what hypothesis draws: it names things of the server (a run, a pilot's session) by `Ref` only, so that the
same seed draws the same wishes. `test_fuzz.py` gives each Ref its meaning when the wish is sent.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from shoal.wire.messages import PROTOCOL

Json = Any
JSON = "application/json"
Resolve = Callable[["Ref"], Json]


@dataclass(frozen=True)
class Ref:
    """Something that the server has: the index chooses among those there are when the request is sent."""

    kind: str
    index: int


@dataclass(frozen=True)
class Operation:
    """One call of the description."""

    method: str
    path: str
    words: tuple[str, ...]  # parameters in the path
    query: tuple[dict[str, Any], ...]
    body: dict[str, Any] | None
    takes: str  # the media type of its body; empty if it has none
    answer: dict[str, Any]
    media: str
    public: bool
    about: str  # "Tokens of kind submit with scope read; rule: listing."

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True)
class Wish:
    """A request before it is sent."""

    operation: Operation
    token: Ref
    words: dict[str, Any]
    query: list[tuple[str, Any]]
    body: Any
    damages: list[tuple[str, Any]] = field(default_factory=list)
    tls: bool = False


@dataclass(frozen=True)
class Sent:
    """A request as bytes, and its description."""

    data: bytes
    head_only: bool  # a HEAD request has no body in its answer
    clean: bool  # well-formed HTTP: the connection can be used again
    texts: tuple[str, ...]  # everything in it that an error might repeat


class Description:
    """The document of `GET /v1/openapi.json`."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.schemas: dict[str, Any] = document["components"]["schemas"]
        self.failure = {"$ref": "#/components/schemas/ErrorAnswer"}
        self.operations = [
            self._operation(method, path, described)
            for path, methods in document["paths"].items()
            for method, described in methods.items()
        ]

    def _operation(self, method: str, path: str, described: dict[str, Any]) -> Operation:
        ((media, content),) = described["responses"]["200"]["content"].items()
        body = described.get("requestBody")
        return Operation(
            method.upper(), path,
            tuple(p["name"] for p in described["parameters"] if p["in"] == "path"),
            tuple(p for p in described["parameters"] if p["in"] == "query"),
            body["content"].get(JSON, {}).get("schema") if body is not None else None,
            next(iter(body["content"])) if body is not None else "",
            content["schema"], media, described.get("security") == [], described["description"],
        )  # fmt: skip

    def look_up(self, schema: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """A schema and its name, if it has one."""
        if "$ref" not in schema:
            return "", schema
        name = schema["$ref"].rpartition("/")[2]
        return name, self.schemas[name]

    def misfits(self, value: Json, schema: dict[str, Any], where: str = "$") -> Iterator[str]:
        """Where a value does not fit its schema."""
        _, schema = self.look_up(schema)
        if "anyOf" in schema:
            if not any(next(self.misfits(value, option), None) is None for option in schema["anyOf"]):
                yield f"{where}: {value!r:.80} fits none of {schema['anyOf']}"
            return
        kind = schema.get("type")
        if kind is not None and not _IS[kind](value):
            yield f"{where}: {value!r:.80} is no {kind}"
        elif kind == "array":
            for at, item in enumerate(value):
                yield from self.misfits(item, schema["items"], f"{where}[{at}]")
        elif kind == "object":
            for name in schema.get("required", ()):
                if name not in value:
                    yield f"{where}.{name} is missing"
            for name, item in value.items():
                inner = schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))
                yield from self.misfits(item, inner, f"{where}.{name}")


_IS: dict[str, Callable[[Json], bool]] = {
    "string": lambda v: isinstance(v, str),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
}


# --- good values: the schema gives the type, this table what is sensible of it
def _ref(kind: str) -> SearchStrategy[Ref]:
    return st.builds(Ref, st.just(kind), st.integers(0, 999))


def _some(*values: Any) -> SearchStrategy[Any]:
    return st.sampled_from(values)


def _no_proof(attempt: Ref) -> Json:
    return {"attempt": attempt, "count": 1, "proof": "ab" * 16}


_WORD = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8)
_TEXT = st.text(max_size=30)
_TARGETS = st.lists(_ref("target"), min_size=1, max_size=3)
_QUANTITY = _some("30d", "2h", 86_400, 900.5, "00:10:00")
_LABELS = st.dictionaries(_WORD, _TEXT.filter(lambda text: "\0" not in text), max_size=2)
_PAYLOAD = _some("gAROLg==", "gASVAgAAAAAAAABdlC4=", "gARLAS4=", "AAAA", "gARdLg==") | st.builds(
    Ref, st.just("digest"), st.integers(0, 999)
)
SENSIBLE: dict[str, SearchStrategy[Any]] = {
    # --- requests of people
    "Targets.targets": _TARGETS,
    "RetryRequest.targets": _TARGETS,
    "SignalRequest.targets": _TARGETS,
    "SetRequest.targets": _TARGETS,
    "SetRequest.fields": _some({"priority": 1}, {"retries": 2}, {"time": "2h"}),
    "CopyRequest.fields": _some({}, {"priority": 1}),
    "CopyRequest.only": _some("", "", "1", "failed"),
    "CopyRequest.key": _some("", "", "k1") | _WORD,
    "RemoveRequest.runs": st.lists(_ref("run"), min_size=1, max_size=1),
    "SignalRequest.signal": _some("USR1", "SIGTERM", "cont", 10, 15),
    "Where.state": _some("failed", "cancelled", "lost"),
    "Where.cause": _some("task_error", "over_time", "signal", "cancelled"),
    "Where.exit_code": st.integers(-9, 9),
    "Where.host": _some("*", "fuzz*", "n0[1-3]", "?", "none"),
    "Where.site": _some("*", "box", "local"),
    "Where.message": _some("*", "*license*"),
    "DrainRequest.pilots": st.lists(_ref("old pilot"), min_size=1, max_size=2),
    "PruneRequest.older_than": _some("30d", "400d", 86_400 * 90, None),
    "PruneRequest.keep": _some("2G", 2**31, "100M", None),
    "NewToken.kind": _some("submit", "enrol"),
    "NewToken.owner": _some("", "", "anna", "bert"),
    "NewToken.group": _some("", "", "phys"),
    "NewToken.site": _some("", "box", "far.site"),
    "NewToken.max_pilots": st.none() | st.integers(1, 1_000),
    "NewToken.expires": st.none() | _some("1d", "2h", 3_600),
    "NewToken.uses": st.none() | st.integers(1, 9),
    "NewToken.scopes": _some([], [], ["read"], ["submit", "read"], ["metrics"], ["admin"]),
    "Revoke.tokens": st.lists(_ref("victim"), min_size=1, max_size=2),
    "Revoke.user": st.just(""),
    "Revoke.site": st.just(""),
    "Revoke.all": st.just(False),
    "NewUser.name": _some("u1", "u2", "u3", "dora.m"),
    "NewUser.group": _some("", "phys", "chem"),
    "NewUser.role": _some("user", "manager"),
    "PolicyBody.version": st.just(Ref("policy version", 0)),
    "SharesBody.shares": st.dictionaries(_some("anna", "bert"), _some(1, 2.5, 0.5), min_size=1, max_size=2),
    "NewGroup.name": _some("g1", "g2", "bio_x"),
    # --- submissions
    "SubmissionBody.name": _TEXT.filter(lambda text: "\0" not in text),
    "SubmissionBody.cwd": _some("", "/tmp", "/none"),
    "SubmissionBody.key": _some("", "", "", "k1", "k2") | _WORD,
    "SubmissionBody.max_fail": st.none() | st.integers(1, 100),
    "SubmissionBody.max_running": st.none() | st.integers(1, 100),
    "SubmissionBody.seed": st.none() | st.integers(0, 2**63 - 1),
    "SubmissionBody.labels": _LABELS,
    "SubmissionBody.open": _some(False, False, False, True),
    "AdditionBody.first": _some(*[Ref("next element", 0)] * 6, Ref("next element", 1), 1, 2),
    "SubmissionBody.environment": st.none() | st.dictionaries(_WORD, _WORD, max_size=3),
    "SubmissionBody.environment_file": st.none() | st.just(f"/data/me/{'a1' * 32}.json"),
    "SubmissionBody.resume": st.booleans(),
    "SubmissionBody.fingerprints": st.none() | _some({}, {"environment": "a1"}, {"files": {"sim.py": "b2"}}),
    "TaskTable.name": st.none(),  # names tie tasks together: set apart below
    "TaskTable.command": st.lists(_TEXT.map(lambda t: t.replace("\0", "0")), max_size=3).map(lambda w: ["echo", *w]),
    "TaskTable.shell": st.none(),
    "TaskTable.cwd": _some("/tmp", "sub"),
    "TaskTable.env": st.dictionaries(_WORD.map("V".__add__), _WORD, max_size=2),
    "TaskTable.stdin": _some("in.txt"),
    "TaskTable.inputs": st.lists(_WORD, max_size=2),
    "TaskTable.outputs": st.lists(_WORD, max_size=2, unique=True),
    "TaskTable.cores": st.integers(1, 4) | st.just(65_536),
    "TaskTable.memory": _some(1, "1M", "4G", 10**6),
    "TaskTable.disk": _some(1, "1M", "1.5T"),
    "TaskTable.gpus": _some(0, 0, 0, 1),
    "TaskTable.time": _QUANTITY,
    "TaskTable.retries": st.integers(0, 3),
    "TaskTable.rerun": _some("safe", "exclusive"),
    "TaskTable.priority": st.integers(-5, 5) | st.floats(-9.0, 9.0),
    "TaskTable.labels": _LABELS,
    "TaskTable.params": st.none() | _some({"x": "1..4"}, {"x": [1, 2.5, "a", 10**40], "y": "a,b"}, [{"x": 1}, {"x": "2"}]),
    "TaskTable.array": st.none() | _some("1-5", "0-99%3", "1-100000", "1,3,7"),
    "TaskTable.after": st.just([]),
    "TaskTable.function": _PAYLOAD,
    "TaskTable.calls": st.lists(_PAYLOAD, min_size=1, max_size=5),
    "TaskTable.initializer": _PAYLOAD,
    "TaskTable.finalizer": _PAYLOAD,
    "TaskTable.max_tasks_per_child": st.integers(0, 5),
    "TaskTable.python": _some("/usr/bin/python3", "python3"),
    # --- pilots
    "Register.protocol": _some(*[PROTOCOL] * 4, *[PROTOCOL - 1] * 3, 1),
    "Register.version": _WORD,
    "Register.host": _some("fuzz1", "fuzz2", "n01.cluster"),
    "Register.identity": _some("id1", "id2", "id3"),
    "Register.site": st.just(""),
    "Register.former": st.none() | st.builds(lambda p, s: {"pilot": p, "session": s}, _ref("pilot"), _ref("session")),
    "Register.unfit": _some([], [], [], [], ["no /bin/sh"]),
    "Register.nonce": st.just("") | _WORD,
    "Register.digest": _some("", "", "ab" * 32),
    "Register.ended": st.just([]) | st.lists(_WORD, max_size=2) | st.lists(_ref("ended"), max_size=1),
    "Exchange.protocol": _some(*[Ref("my protocol", 0)] * 12, PROTOCOL, PROTOCOL - 1, 1),
    "Exchange.pilot": st.just(Ref("my pilot", 0)),
    "Exchange.session": st.just(Ref("my session", 0)),
    "Exchange.seq": _some(*[Ref("next seq", 0)] * 6, Ref("same seq", 0), Ref("past seq", 1), Ref("past seq", 2)),
    "Exchange.ack": st.just(Ref("same seq", 0)),
    "Exchange.held": _some(Ref("held", 0), Ref("held", 0), Ref("held", 0), []),
    "Exchange.batches": st.lists(st.integers(1, 4).flatmap(lambda count: _batch(count)), max_size=2),
    "Exchange.proofs": _some(*[Ref("proofs", 0)] * 3, []) | st.lists(_ref("attempt").map(_no_proof), max_size=2),
    "Exchange.ended": _some(*[()] * 8, (Ref("ended", 1),)).map(list) | st.lists(_WORD, max_size=2),
    "Exchange.leaving": _some(*[""] * 30, "its time is over"),
    "Exchange.nonce": st.just(""),
    "Exchange.free": _some(Ref("all room", 0), {}, {"cores": 1}),
    "Room.cores": _some(1, 4, 64),
    "Room.memory": _some(0, 2**33),
    "Room.disk": _some(0, 2**40),
    "Room.gpus": _some(0, 1),
    "Held.attempt": _ref("attempt"),
    "Held.count": _some(1, 1, 1, 2),
    "Held.stage": _some("leased", "running", "done"),
    "Report.attempt": _ref("attempt"),
    "Report.outcome": _some("succeeded", "failed", "cancelled", "returned", "checkpointed"),
    "Report.files": st.dictionaries(_WORD, _ref("digest"), max_size=2),
    "Report.cause": _some("", "task_error", "over_time", "signal"),
    "Report.exit_code": st.none() | st.integers(-255, 255),
    "Report.signal": st.none() | st.integers(1, 64),
    "Report.started": st.none() | _some(0.0, 1.7e9, 4.3e9),
    "Report.duration": st.floats(0.0, 1e6),
    "Report.cpu": st.floats(0.0, 1e6),
    "Report.max_rss": st.integers(0, 2**40),
    "Report.result": st.just("") | _PAYLOAD,
    "Report.out": st.integers(0, 2**40),
    "Report.err": st.integers(0, 2**40),
    "Published.attempt": _ref("attempt"),
    "Checkpoint.attempt": _ref("attempt"),
    "Checkpoint.files": st.dictionaries(_WORD, _ref("digest"), max_size=2),
    "Tail.attempt": _ref("attempt"),
    "Tail.stream": _some("stdout", "stderr"),
    "Tail.offset": _some(0, 0, 5, 4_096),
}  # fmt: skip


def _batch(count: int) -> SearchStrategy[Any]:
    """So many successes of neighbours, with some of their columns."""
    columns: dict[str, SearchStrategy[Any]] = {
        "started": _some(0.0, 1.7e9), "duration": st.floats(0.0, 1e6), "cpu": st.floats(0.0, 1e6), "last_line": _TEXT,
        "max_rss": st.integers(0, 2**40), "result": _PAYLOAD, "out": st.integers(0, 2**40), "err": st.integers(0, 2**40),
    }  # fmt: skip
    lists = {name: st.lists(column, min_size=count, max_size=count) for name, column in columns.items()}
    return st.fixed_dictionaries({"attempt": _ref("chunk") | _ref("attempt"), "count": st.just(count)}, optional=lists)


WORDS: dict[str, SearchStrategy[Any]] = {  # parameters of paths and queries, by call or by name
    "run": _ref("run"),
    "POST /v1/runs/{run}/tasks run": _ref("open run"),
    "POST /v1/runs/{run}/close run": _ref("open run") | _ref("run"),
    "GET /v1/runs/{run}/results run": _ref("open run") | _ref("run"),
    "task": _ref("task"),
    "target": _ref("target") | _ref("pilot"),
    "pilot": st.just(Ref("my pilot", 0)),
    "digest": _ref("digest"),
    "GET /v1/runs state": _some("open", "finished"),
    "GET /v1/runs before": _ref("run"),
    "GET /v1/runs/{run}/tasks state": _some("failed", "succeeded,lost", "ready"),
    "GET /v1/pilots state": _some("idle", "busy", "gone"),
    "name": _some("*", "f*", "a?b"),
    "owner": _some("anna", "bert", "nobody"),
    "stream": _some("stdout", "stderr"),
    "kind": _some("task_finished", "pilot_joined,run_submitted"),
    "token": _ref("victim"),
    "wait": _some(0, 0, 1),  # longer ones are answered late by design
    "limit": _some(1, 3, 50, 1_000),
    "attempt": _some(1, 2),
    "offset": _some(0, 0, 7, 10**18),
    "after": _some(0, 0, 5, 10**18),
    "all": _some(0, 1),
}


# --- odd values
_CONTROL = st.text("\x00\x01\x07\x1b\r\n\t\x7f\x9b\u2028\u202e\ufeff", min_size=1, max_size=8)
_WILD = st.characters(codec="utf-8")
ODD: SearchStrategy[Any] = st.one_of(
    _some(None, True, False, 0, -1, 1, 0.5, -0.0, 1e308, -1e308, 5e-324, "", " ", [], {}, [[]], [None], {"": None}),
    _some(2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**18, 10**63, -(10**62), "9" * 70, "1e999"),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(_WILD, max_size=20),
    _CONTROL,
    st.builds(lambda c, n: c * n, _some("x", "é", "\x1b", "😀", "[", "*a", "../", "%"), _some(81, 257, 1_025, 5_000, 70_000)),
    _some("__proto__", "../../etc/passwd", "' OR 1=1 --", "r1.1#1@1", "(a+)+$", "{x}", "$(id)", "<img onerror>", "\ufeff"),
    _ref("target"), _ref("pilot"),
    st.recursive(_some(None, 1, "a"), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORD, inner, max_size=3)),
)  # fmt: skip
_NASTY = st.one_of(
    _some("..", ".", "%2e%2e", "%00", "r1%00", "r1%0d%0aX:1", "%ff%fe", "%ed%a0%80", "r1%2F..", "r0", "r-1", "r1.0", "p", "-"),
    _some("r" + "9" * 30, "r1." + "9" * 18, "p" + "f" * 40, "r" + "1" * 9_000, "r1#1", "r1?x", ";", "%", "%zz", "\\", "{run}"),
    st.text(_WILD, min_size=1, max_size=12).map(lambda text: quote(text, safe="")),
    st.text(_WILD, min_size=90, max_size=120).map(lambda text: quote(text, safe="")),
    st.just("shoal_sub_" + "A" * 43),
)  # fmt: skip
_HEADERS = st.one_of(
    _some(
        ("Host", "evil.example"), ("Host", ""), ("Host", "127.0.0.1:99999999"), ("Host", "[::1"), ("Host", "a b"),
        ("Origin", "http://evil.example"), ("Origin", "null"), ("Origin", "http://[::1"), ("Origin", "http://127.0.0.1"),
        ("Expect", "100-continue"), ("Expect", "the-unexpected"), ("Upgrade", "websocket"), ("Upgrade", "h2c"),
        ("Connection", "close"), ("Connection", "Upgrade, HTTP2-Settings"), ("Content-Encoding", "gzip"),
        ("Content-Encoding", "br"), ("Accept-Encoding", "gzip;q=x"), ("Content-Type", "text/plain"), ("Content-Type", "x"),
        ("Content-Type", 'application/json; charset="\x80'), ("Content-Type", "multipart/form-data; boundary=x"),
        ("Range", "bytes=5-1"), ("Range", "bytes=0-0,0-0"), ("If-Modified-Since", "never"), ("Cookie", "a=b; ;;="),
        ("X-Forwarded-For", "10.0.0.1"), ("Authorization", "Basic QTpC"), ("Authorization", "Bearer"), ("X-HTTP-Method", "PUT"),
        ("Transfer-Encoding", "identity"), ("Content-Length", "7"), ("Content-Length", "-1"), ("Content-Length", "1e3"),
        ("Content-Length", "99999999999999999999"), ("Trailer", "Host"), ("Accept", "text/html"), ("Forwarded", "for=\"[::1"),
        ("X-Long", "y" * 9_000),
    ),
    st.tuples(
        st.text(string.ascii_letters + "-", min_size=1, max_size=12).map("X-".__add__),
        st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=40),
    ),
)  # fmt: skip
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "BREW", "PROPFIND")
BROKEN = (
    b"", b"\r\n\r\n", b"GET\r\n\r\n", b"GET /v1/health\r\n\r\n", b"GET /v1/health HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01",
    b"GET /v1/health HTTP/1.1\r\nHost\r\n\r\n", b"GET /v1/health HTTP/1.1\r\n Host: x\r\n\r\n", b"\0" * 64,
    b"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n0\r\n\r\n",
    b"GET http://evil.example/v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"GET * HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"CONNECT evil.example:443 HTTP/1.1\r\n\r\n",
    b"GET //[::1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"GET http://[::1/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\rb\r\n\r\n",
    b"GET /v1/health HTTP/1.1\r\n" + b"X: y\r\n" * 4_000 + b"\r\n", b"GET /v1/health HTTP/0.9\r\n\r\n",
    b"POST /v1/cancel HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer shoal_sub_\xff\xfe\r\n\r\n",
    b"GET /v1/\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /v1/health?%F0%9F=\xf0\x9f HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
)  # fmt: skip
_AT = st.integers(0, 60)  # which place of a body: modulo how many there are
_BYTES: dict[str, SearchStrategy[Any]] = {
    "cut": st.integers(1, 60),
    "noise": st.tuples(_AT, st.binary(min_size=1, max_size=12)),
    "replace all": st.binary(max_size=60),
    "twin keys": st.just(None),
    "literal": _some(b"NaN", b"Infinity", b"-Infinity", b"1e400", b"1" * 10_000, b"1" * 65, b"'a'", b"0x10", b'"\\ud800"', b"01"),
    "deep": _some(33, 1_000, 100_000),
    "byte order mark": st.just(None),
    "not an object": _some(b"[]", b"5", b"null", b'"x"', b"", b" ", b"[{}]"),
    "not UTF-8": _AT,
}  # fmt: skip
_BODY: dict[str, SearchStrategy[Any]] = {
    "wrong value": st.tuples(_AT, ODD),
    "missing": _AT,
    "added": st.tuples(_AT, st.text(_WILD, max_size=10) | _some("x" * 200, "core", "\x1b[31m"), ODD),
    "renamed": st.tuples(_AT, _some("s", "_", "X" * 100, "\n")),
}
_REST: dict[str, SearchStrategy[Any]] = {
    "path": st.tuples(st.integers(0, 9), _NASTY),
    "query": st.tuples(st.text(_WILD, max_size=8) | _some("limit", "state", "name", "after", "x" * 100), ODD),
    "header": _HEADERS,
    "method": st.sampled_from(METHODS),
    "token": st.builds(Ref, _some("any", "revoked", "wrong", "cut", "none", "session", "enrol", "reader"), st.integers(0, 99)),
    "chunked": st.just(None),
    "media": _some(("Content-Type", "text/plain"), ("Content-Type", ""), ("Content-Encoding", "gzip")),
    "length": _some("99999999999", "67108865", "8388609"),
    "range": st.tuples(
        st.just("Content-Range"),
        _some("bytes */7", "bytes 0-6/7", "bytes 0-0/7", "bytes 6-6/7", "bytes 3-1/7", "bytes */", "bytes x", "bytes */-1",
              "bytes 0-6/99999999999", "bytes */1099511627777", "bytes */" + "9" * 30, "items 0-6/7", "bytes 0-6/7\t", ""),
    ),
    "raw": st.sampled_from(range(len(BROKEN))) | st.binary(min_size=1, max_size=200),
}  # fmt: skip
DAMAGES = {**_BYTES, **_BODY, **_REST}
_DAMAGE = {kind: st.tuples(st.just(kind), how) for kind, how in DAMAGES.items()}
BAD_FRAMES = ("raw", "range", "header", "length", "media", "method")  # after which a connection is not used again


# --- wishes
class Wishes:
    """Strategies made from a description."""

    def __init__(self, description: Description) -> None:
        self.description = description

    def value(self, schema: dict[str, Any], place: str = "") -> SearchStrategy[Any]:
        """Good values of a schema."""
        if place in SENSIBLE:
            return SENSIBLE[place]
        name, schema = self.description.look_up(schema)
        if "anyOf" in schema:
            return st.one_of([self.value(option) for option in schema["anyOf"]])
        kind = schema.get("type")
        if kind == "object" and "properties" in schema:
            parts = {key: self.value(inner, f"{name}.{key}") for key, inner in schema["properties"].items()}
            needed = {key: parts.pop(key) for key in schema.get("required", ())}
            if name == "TaskTable":
                return self._task(parts)
            return st.fixed_dictionaries(needed, optional=parts).map(_plausible)
        if kind == "object":
            inner = schema.get("additionalProperties", {})
            return st.dictionaries(_WORD, self.value(inner) if inner else _some(1, "a", True), max_size=3)
        if kind == "array":
            return st.lists(self.value(schema["items"]), min_size=1 if "TaskTable" in str(schema) else 0, max_size=3)
        plain: dict[str | None, SearchStrategy[Any]] = {
            "string": _TEXT, "integer": st.integers(0, 100), "number": st.floats(0, 100), "boolean": st.booleans(),
            "null": st.none(), None: _some(1, "a", True),
        }  # fmt: skip
        return plain[kind]

    def _task(self, parts: dict[str, SearchStrategy[Any]]) -> SearchStrategy[Any]:
        """A command, or now and then a function."""
        calls = ("function", "calls", "initializer", "finalizer", "max_tasks_per_child", "python")
        moves = ("params", "array", "stdin", "inputs", "outputs", "command")
        rest = {key: part for key, part in parts.items() if key not in ("name", "shell", "after", "after_any")}
        command = {key: part for key, part in rest.items() if key not in calls}
        function = {key: part for key, part in rest.items() if key not in moves}
        commands = st.fixed_dictionaries({"command": command.pop("command")}, optional=command).map(_plausible)
        needed = {key: function.pop(key) for key in calls[:2]}
        return st.one_of(commands, commands, commands, st.fixed_dictionaries(needed, optional=function))

    def _query(self, operation: Operation) -> SearchStrategy[list[tuple[str, Any]]]:
        parts: dict[str, SearchStrategy[Any]] = {}
        for query in operation.query:
            name, low, high = query["name"], query["schema"].get("minimum"), query["schema"].get("maximum")
            bounded = st.integers(low, high) if low is not None else _WORD
            parts[name] = WORDS.get(f"{operation} {name}", WORDS.get(name, bounded))
        return st.fixed_dictionaries({}, optional=parts).map(lambda found: list(found.items()))

    def of(self, operation: Operation) -> SearchStrategy[Wish]:
        """Wishes for one call: good ones, and more broken ones."""
        stop = operation.path == "/v1/server/stop"  # its good ones end the server
        kinds = [*_REST]
        if operation.body is not None:
            kinds += [*_BYTES, *_BODY, *_BODY, *["wrong value"] * 6]  # the deepest code is behind good JSON
        elif operation.takes:
            kinds += ["cut", "noise", "replace all", "range", "range", "range"]
        if not operation.takes:
            kinds = [kind for kind in kinds if kind not in ("chunked", "length", "media")]
        if not operation.words:
            kinds.remove("path")
        damage = st.sampled_from(kinds).flatmap(_DAMAGE.__getitem__)
        if stop:
            damage = st.tuples(st.just("not an object"), _BYTES["not an object"])
        count = st.just(1) if stop else st.sampled_from([0, 0, 1, 1, 1, 2, 3])
        several = [st.lists(damage, min_size=n, max_size=n) for n in range(4)]
        damages = count.flatmap(several.__getitem__)
        return st.builds(
            Wish,
            st.just(operation),
            st.builds(Ref, st.just("fitting"), st.integers(0, 999)),
            st.fixed_dictionaries({word: WORDS.get(f"{operation} {word}", WORDS[word]) for word in operation.words}),
            self._query(operation),
            self._body(operation),
            damages,
            st.booleans(),
        )

    def _body(self, operation: Operation) -> SearchStrategy[Any]:
        if operation.body is not None:
            return self.value(operation.body)
        return st.just(Ref("bytes", 0)) if operation.takes else st.none()

    def all(self) -> SearchStrategy[Wish]:
        """Wishes for every call; those with bodies are sent more often, for more can be wrong in them."""
        heavy = {"/v1/runs": 6, "/v1/runs/{run}/tasks": 5, "/v1/pilots": 4, "/v1/pilots/{pilot}/exchange": 9}
        many = [o for o in self.description.operations for _ in range(heavy.get(o.path, 3) if o.takes else 1)]
        made = {str(operation): self.of(operation) for operation in many}  # once: it costs more than a draw
        return st.sampled_from(many).flatmap(lambda operation: made[str(operation)])


def _plausible(found: dict[str, Any]) -> dict[str, Any]:
    """Drop fields that exclude each other."""
    if "command" in found and found.get("params") is not None:
        found = {**found, "array": None}
    if "environment_file" in found and "environment" in found:
        found = {key: value for key, value in found.items() if key != "environment_file"}
    if found.get("group"):
        found = {**found, "owner": "", "kind": "enrol"} if "role" not in found else found
    if found.get("kind") == "enrol":
        found = {**found, "scopes": []}
    elif "max_pilots" in found or "uses" in found:
        found = {**found, "max_pilots": None, "uses": None}
    return {key: value for key, value in found.items() if not (key in ("params", "array") and value is None)}


# --- from a wish to bytes
def resolve(value: Any, meaning: Resolve) -> Json:
    """Plain data: every Ref is replaced by its value."""
    if isinstance(value, Ref):
        return meaning(value)
    if isinstance(value, dict):
        return {key: resolve(item, meaning) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [resolve(item, meaning) for item in value]
    return value


def places(value: Json) -> list[tuple[Any, Any]]:
    """Every container with a key of its own, depth first."""
    found: list[tuple[Any, Any]] = []
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    for key in keys:
        found.append((value, key))
        found += places(value[key])
    return found


def break_body(body: Json, kind: str, how: Any) -> Json:
    """The body with one thing wrong in it."""
    root = {"": body}
    at = how if isinstance(how, int) else how[0]
    if kind in ("missing", "renamed"):
        named = [(box, key) for box, key in places(body) if isinstance(box, dict)]
        if named:
            box, key = named[at % len(named)]
            value = box.pop(key)
            if kind == "renamed":
                box[f"{key}{how[1]}"] = value
    elif kind == "added":
        boxes = [root[""], *(box[key] for box, key in places(body))]
        boxes = [box for box in boxes if isinstance(box, dict)]
        if boxes:
            boxes[at % len(boxes)][how[1]] = how[2]
    else:
        spots = [*places(body), (root, "")]
        box, key = spots[at % len(spots)]
        box[key] = how[1]
    return root[""]


def break_bytes(data: bytes, kind: str, how: Any) -> bytes:
    """The encoded body with something wrong in it."""
    if kind == "cut":
        return data[: -min(how, len(data))]
    if kind == "noise":
        at = how[0] % (len(data) + 1)
        noise: bytes = how[1]
        return data[:at] + noise + data[at + len(noise) :]
    if kind == "twin keys":
        return data.replace(b"{", b'{"a\\u001b":1,"a\\u001b":2,', 1)
    if kind == "literal":
        return data.replace(b":", b":" + how + b',"z":', 1)
    if kind == "deep":
        return data.replace(b":", b":" + b"[" * how + b"]" * how + b',"z":', 1)
    if kind == "byte order mark":
        return b"\xef\xbb\xbf" + data
    if kind == "not UTF-8":
        at = how % (len(data) + 1)
        return data[:at] + b"\xff" + data[at:]
    return bytes(how)  # the body is replaced whole


def texts_of(value: Json) -> Iterator[str]:
    """Every text in plain data, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from texts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)
    elif isinstance(value, int):
        yield str(value)


def _query_text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return quote(text.encode("utf-8", "replace"), safe="")


def build(wish: Wish, meaning: Resolve, host: str, harmless: Callable[[Json], Json]) -> Sent:
    """The bytes of a wish."""
    breaks = wish.damages
    raw = [how for kind, how in breaks if kind == "raw"]
    if raw:
        data = BROKEN[raw[0]] if isinstance(raw[0], int) else raw[0]
        return Sent(data, False, False, (data.decode("latin-1"), data.decode("utf-8", "replace")))
    words = {name: quote(str(meaning(ref)), safe="") for name, ref in wish.words.items()}
    query = [(quote(name), _query_text(resolve(value, meaning))) for name, value in wish.query]
    body = resolve(wish.body, meaning)
    method, headers, chunked, fresh = wish.operation.method, [], False, True
    token = wish.token
    for kind, how in breaks:
        if kind in _BODY:
            how = resolve(how, meaning)
            body = break_body(body, kind, how)
        elif kind == "path":
            names = list(words)
            words[names[how[0] % len(names)]] = how[1]
        elif kind == "query" and "wait" not in how[0]:
            query.append((quote(how[0].encode("utf-8", "replace")), _query_text(resolve(how[1], meaning))))
        elif kind in ("header", "media", "range"):
            headers.append(how)
        elif kind == "length":
            headers.append(("Content-Length", how))
        elif kind == "method":
            method = how
        elif kind == "token":
            token = how
        elif kind == "chunked":
            chunked = True
    data = b""
    if wish.operation.takes:
        data = json.dumps(harmless(body)).encode("utf-8", "replace") if not isinstance(body, bytes) else body
        for kind, how in breaks:
            if kind in _BYTES:
                data = break_bytes(data, kind, how)
    path = wish.operation.path
    for name, word in words.items():
        path = path.replace("{" + name + "}", word)
    target = path + ("?" + "&".join(f"{name}={value}" for name, value in query) if query else "")
    fresh = any(kind in BAD_FRAMES for kind, _ in breaks)
    head = _head(method, target, host, meaning(token), headers, data, chunked, wish.operation.takes)
    fresh = fresh or len(head) > 8_000  # refused while it is still being sent: the answer may be lost in the reset
    texts = (*texts_of(body), target, data.decode("utf-8", "replace"), *(f"{n}: {v}" for n, v in headers), method)
    framed = b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data) if chunked and data else b"0\r\n\r\n" if chunked else data
    return Sent(head + framed, method == "HEAD", not fresh, texts)


def _head(
    method: str,
    target: str,
    host: str,
    token: str,
    more: list[tuple[str, str]],
    data: bytes,
    chunked: bool,
    takes: str,
) -> bytes:
    lines = {"host": f"Host: {host}"}
    if token:
        lines["authorization"] = f"Authorization: Bearer {token}"
    if takes:
        lines["content-type"] = f"Content-Type: {takes}"
        if chunked:
            lines["transfer-encoding"] = "Transfer-Encoding: chunked"
        else:
            lines["content-length"] = f"Content-Length: {len(data)}"
    for name, value in more:
        lines[name.lower()] = f"{name}: {value}"
    text = "\r\n".join([f"{method} {target} HTTP/1.1", *lines.values(), "", ""])
    return text.encode("utf-8", "replace")
