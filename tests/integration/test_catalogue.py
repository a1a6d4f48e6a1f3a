"""The bad-input catalogue [input E0], one case a line, its row in the test's name; real processes throughout.

Rows 13 to 26, 32 to 40 and 42 to 48 are held by `tests/unit/wire` and `test_wrong_use.py`. Where our form differs from
the table's words, a comment at the row says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shoal.db.database_lock import check_location
from shoal.model.credentials import make
from shoal.model.errors import Refused
from shoal.model.file_names import DATABASE, SERVER_FILE
from shoal.model.limits import MAX_BODY, MAX_TIME
from shoal.server.auth.certificate_authority import CertificateAuthority
from shoal.wire.messages import PROTOCOL
from tests.integration.cluster import Cluster, clean_env
from tests.integration.test_fuzz import Answer, House
from tests.integration.wire_fuzz import Sent
from tests.unix_http import connect

pytestmark = pytest.mark.integration
PROVE = os.environ.get("SHOAL_PROVE") == "1"
Json = dict[str, Any]
PATIENT = {"beat": 0.05, "suspect": 3_600.0, "lease": 3_600.0, "quarantine": 0.2}  # nobody is lost while a test thinks
SOON = 20.0  # seconds for the refusal of something huge, on a busy machine


# --- one server for all that is only said
class FalsePilot:
    """A pilot that says what a case wants said."""

    def __init__(self, stand: Stand, token: str = "", **more: Any) -> None:
        self.stand = stand
        answer = stand.post("/v1/pilots", {**REGISTER, **more}, token or stand.context.enrol)
        assert answer.status == 200, answer
        told = answer.json()
        self.name, self.session, self.seq = told["pilot"], told["session"], 0

    def say(self, seq: int | None = None, **more: Any) -> Answer:
        """One exchange."""
        self.seq = self.seq + 1 if seq is None else seq
        body = {
            "protocol": PROTOCOL, "pilot": self.name, "session": self.session, "seq": self.seq, "ack": self.seq - 1,
            "free": {"cores": 0}, **more,
        }  # fmt: skip
        return self.stand.post(f"/v1/pilots/{self.name}/exchange", body, self.session)

    def lease(self, run: str) -> str:
        """Take an attempt of a run, of which there must be one to have."""
        for _ in range(100):
            leases = self.say(free={"cores": 1}).json()["leases"]
            if leases:
                attempt = str(leases[0]["attempt"])
                assert attempt.startswith(f"{run}."), (attempt, run)
                return attempt
        raise AssertionError(f"nothing of {run} was handed out")

    def verdict(self, attempt: str, outcome: str = "succeeded", **more: Any) -> str:
        """What becomes of a report."""
        answer = self.say(reports=[{"attempt": attempt, "outcome": outcome, **more}])
        assert answer.status == 200, answer
        return str(answer.json()["verdicts"][0]["verdict"])


REGISTER: Json = {"protocol": PROTOCOL, "version": "1", "host": "h", "identity": "i", "room": {"cores": 1}}


class Stand:
    """The server, two people with tokens, and short ways to speak to it."""

    def __init__(self, context: House) -> None:
        self.context = context
        self.tokens: dict[str, str] = {}
        for name in ("anna", "olaf"):
            context.call("POST", "/v1/users", {"name": name})
            self.tokens[name] = context.call("POST", "/v1/tokens", {"owner": name})["token"]
        self.speaker = FalsePilot(self)  # for what is wrong whoever says it
        assert self.post("/v1/cancel", {"targets": [self.submit()]}).json()["cancelled"] == 1  # there is an r1

    def send(
        self, method: str, path: str, data: bytes | None = None, token: str | None = None, **headers: str | None
    ) -> Answer:
        """One request on a connection of its own; `Content_Type=None` leaves a header out."""
        said: dict[str, str | None] = {"Host": "127.0.0.1", "Connection": "close"}
        if token != "":
            said["Authorization"] = f"Bearer {token or self.context.admin}"
        if data is not None:
            said |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
        said |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in said.items() if v is not None), "", ""]
        return self.raw("\r\n".join(lines).encode() + (data or b""), method == "HEAD")

    def raw(self, data: bytes, head_only: bool = False) -> Answer:
        """Bytes as they are."""
        return self.context.send(Sent(data, head_only, False, ()), None, patience=10.0)

    def post(self, path: str, body: Any, token: str | None = None) -> Answer:
        """A body that is JSON, good or bad."""
        return self.send("POST", path, json.dumps(body).encode(), token)

    def submit(self, owner: str = "", **more: Any) -> str:
        """A run of one task."""
        answer = self.post("/v1/runs", {"tasks": [{"command": ["true"], **more}]}, self.tokens.get(owner))
        assert answer.status == 200, answer
        return str(answer.json()["run"])

    def state(self, task: str) -> str:
        """The state of a task."""
        return str(self.context.call("GET", f"/v1/tasks/{task}")["state"])

    def nonce(self, run: str) -> str:
        """What tells a run from one of the same number in another history; only pilots that run it hear it."""
        with contextlib.closing(sqlite3.connect(f"file:{self.context.state / DATABASE}?mode=ro", uri=True)) as database:
            return str(database.execute("SELECT nonce FROM runs WHERE run = ?", (int(run[1:]),)).fetchone()[0])

    def counts(self) -> Json:
        """Everything that a refused request must leave alone."""
        with contextlib.closing(sqlite3.connect(f"file:{self.context.state / DATABASE}?mode=ro", uri=True)) as database:
            return {
                table: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in ("runs", "arrays", "tasks", "pilots", "events", "users", "tokens")
            }

    def expect(self, answer: Answer, status: int, code: str, *words: str) -> None:
        """The form of a refusal: its status, its code, and that it names what is wrong."""
        assert answer.status == status, answer
        error = answer.json()["error"]
        assert set(error) == {"code", "message", "field", "hint"}
        assert error["code"] == code, error
        text = " ".join(error.values())
        assert error["message"] and text.isprintable() and "Traceback" not in text
        for word in words:
            assert word in text, error


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """One server for the whole file."""
    context = House(tmp_path_factory.mktemp("catalogue"))
    context.start("--timing", json.dumps(PATIENT))
    try:
        yield Stand(context)
        text = context.log.read_text(encoding="utf-8", errors="replace")
        assert "Traceback" not in text and "defect" not in text, text[-3_000:]
    finally:
        context.close()


@dataclass(frozen=True)
class Place:
    """What a case may use."""

    stand: Stand
    tmp_path: Path
    pilot_zip: Path


@dataclass(frozen=True)
class Case:
    """A row of the catalogue, one of its inputs."""

    row: int
    name: str
    check: Callable[[Place], None]
    changes: bool = False  # a case that does good things beside the bad one


CASES: list[Case] = []


def case(row: int, name: str, changes: bool = True) -> Callable[[Callable[[Place], None]], Callable[[Place], None]]:
    """Put a function into the table."""

    def put(check: Callable[[Place], None]) -> Callable[[Place], None]:
        CASES.append(Case(row, name, check, changes))
        return check

    return put


def refused(row: int, name: str, status: int, code: str, *words: str, **request: Any) -> None:
    """Put one request that is refused, and changes nothing, into the table."""

    def check(place: Place) -> None:
        place.stand.expect(place.stand.send(**request), status, code, *words)

    CASES.append(Case(row, name, check))


def bad_body(
    row: int, name: str, data: bytes, status: int, code: str, *words: str, exchange: str | None = None
) -> None:
    """The same body for each of the three readers: messages, submissions, and the fast one of exchanges."""
    for path in ("/v1/cancel", "/v1/runs", "/v1/pilots/ID/exchange"):
        expected = exchange if exchange is not None and "ID" in path else code
        if not expected:
            continue

        def check(place: Place, path: str = path, expected: str = expected) -> None:
            speaker = place.stand.speaker
            token = None if "ID" not in path else speaker.session
            began = time.monotonic()
            answer = place.stand.send("POST", path.replace("ID", speaker.name), data, token)
            place.stand.expect(answer, status, expected, *words)
            assert time.monotonic() - began < SOON

        CASES.append(Case(row, f"{name} {path.rpartition('/')[2]}", check))


# --- rows 1 to 12: the body
EXCHANGE = b'{"protocol":4,"pilot":"p0123","session":"s","seq":%s,"ack":0,"free":{}}'
for _text in (b"hello", b'{"targets": [', b"{'targets': []}", b'{"targets": ["r1"]} x', b"<xml/>"):
    bad_body(1, repr(_text), _text, 400, "bad_json", "line 1 column")
for _text in (b"", b" \n\t"):
    bad_body(2, repr(_text), _text, 400, "empty_body")
for _text in (b"[]", b"5", b'"r1"', b"null", b"[{}]"):
    bad_body(3, repr(_text), _text, 400, "want_object")
# An exchange is read by the fast decoder, for which the last of two keys counts: what pilots say is written by us.
bad_body(4, "twice", b'{"targets": ["r1"], "targets": ["r2"]}', 400, "duplicate_key", "targets", exchange="")
bad_body(4, "inside", b'{"a": {"b\\u001b": 1, "b\\u001b": 1}}', 400, "duplicate_key", "b\\x1b", exchange="")
for _text in (b"NaN", b"Infinity", b"-Infinity", b"1e400"):
    # The literal is named instead of the field: the parser meets it before there are fields.
    bad_body(5, _text.decode(), EXCHANGE % _text, 400, "not_finite", _text.decode())
for _digits in (65, 10_000, 1_000_000):
    bad_body(7, f"{_digits} digits", EXCHANGE % (b"9" * _digits), 400, "number_too_long", "at most 64", exchange="")
bad_body(7, "in an exchange", EXCHANGE % (b"9" * 10_000), 400, "number_too_long", "at most 64")
for _depth in (33, 100_000):
    bad_body(8, f"{_depth} lists", EXCHANGE % (b"[" * _depth + b"]" * _depth), 400, "too_deep", "32", exchange="")
    bad_body(8, f"{_depth} objects", b'{"a":' * _depth + b"1" + b"}" * _depth, 400, "too_deep", "32", exchange="")
bad_body(8, "in an exchange", EXCHANGE % (b"[" * 100_000 + b"]" * 100_000), 400, "too_deep", "32")
for _length in (2**30, MAX_BODY + 1, 10**18):
    refused(
        9, f"says {_length} bytes", 413, "too_large", str(MAX_BODY),
        method="POST", path="/v1/cancel", data=b"{}", Content_Length=str(_length),
    )  # fmt: skip


@case(9, "endless chunks", changes=False)
def _endless(place: Place) -> None:
    """Refused in the middle: it does not go on reading."""
    context = place.stand.context
    with connect(context.url, 30) as opened:
        head = f"POST /v1/cancel HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {context.admin}\r\n"
        opened.sendall(f"{head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        piece, end = b"10000\r\n" + b" " * 65_536 + b"\r\n", time.monotonic() + 20
        said, cut = b"", False
        opened.settimeout(0.001)
        while not cut and time.monotonic() < end:
            try:
                opened.sendall(piece)
            except TimeoutError:
                pass
            except OSError:
                cut = True
            with contextlib.suppress(OSError):
                said += opened.recv(4_096)
        assert cut, "it was read on and on"
        assert b"HTTP/1.1 413" in said and b"too_large" in said, said


_BOMB = zlib.compress(b" " * 50_000_000, 9)
for _encoding in ("gzip", "deflate", "br", "zstd", "x-gzip"):
    refused(
        10, _encoding, 415, "encoding_refused", method="POST", path="/v1/runs", data=_BOMB, Content_Encoding=_encoding
    )
bad_body(11, "not UTF-8", b'{"targets": ["\xff"]}', 400, "bad_utf8", "byte 14")
bad_body(11, "cut UTF-8", b'{"targets": ["\xc3"]}', 400, "bad_utf8", "byte 14")
bad_body(11, "lone surrogate", b'{"pilot": "\\ud800", "targets": ["\\udfff"]}', 400, "bad_utf8", "surrogate")
bad_body(11, "UTF-16", '{"targets": []}'.encode("utf-16"), 400, "bad_utf8", "byte 0")


@case(11, "byte order mark is accepted")
def _bom(place: Place) -> None:
    run, pilot = place.stand.submit(), FalsePilot(place.stand)
    body = b"\xef\xbb\xbf" + json.dumps({"targets": [run]}).encode()
    assert place.stand.send("POST", "/v1/cancel", body).json() == {"cancelled": 1, "already_final": 0}
    said = EXCHANGE.replace(b"p0123", pilot.name.encode()).replace(b'"s"', json.dumps(pilot.session).encode())
    path = f"/v1/pilots/{pilot.name}/exchange"
    assert place.stand.send("POST", path, b"\xef\xbb\xbf" + said % b"1", pilot.session).status == 200


for _kind in ("text/plain", None, "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "json", ""):
    for _path in ("/v1/runs", "/v1/cancel", "/v1/tokens", "/v1/prune"):
        refused(
            12, f"{_kind} {_path}", 415, "want_json", "application/json",
            method="POST", path=_path, data=b"{}", Content_Type=_kind,
        )  # fmt: skip


# --- row 51: streams without end
# --- rows 27 to 31: what no pilot is, and expressions
def tasks(**fields: Any) -> bytes:
    """A submission of one task."""
    return json.dumps({"tasks": [{"command": ["true"], **fields}]}).encode()


@case(27, "what no pilot could ever give waits with the reason and the nearest; strict refuses it")
def _never_fits(place: Place) -> None:
    stand = place.stand
    run = stand.submit(memory="900T")
    (reason,) = stand.context.call("GET", f"/v1/why/{run}")["reasons"]
    assert stand.state(f"{run}.1") == "ready" and "900.0T of memory" in reason["text"] and "site" in reason["text"]
    strict = {"tasks": [{"command": ["true"], "memory": "900T"}], "strict": True}
    stand.expect(stand.post("/v1/runs", strict), 422, "never_fits", "900.0T")
    assert stand.post("/v1/cancel", {"targets": [run]}).json()["cancelled"] == 1


for _words, _word in (
    ("foo(1) > 2", "known: abs"),
    ("task.coresx > 1", "did you mean task.cores"),
    ("task.zzz > 1", "known:"),
):
    refused(
        28,
        _words,
        422,
        "unknown_attribute",
        _word,
        "column",
        method="POST",
        path="/v1/runs",
        data=tasks(require=_words),
    )


@case(28, "an unknown tag is accepted with a warning that names the nearest")
def _unknown_tag(place: Place) -> None:
    answer = place.stand.post("/v1/runs", json.loads(tasks(require="memry_mb > 1"))).json()
    assert "memry_mb" in answer["warnings"][0] and "memory_mb" in answer["warnings"][0]
    assert place.stand.post("/v1/cancel", {"targets": [answer["run"]]}).json()["cancelled"] == 1


for _words in (
    "__import__('os')",
    "().__class__",
    "x.__class__ == 1",
    "cores >",
    "1 < 2 < 3",
    "lambda: 1",
    "x; y",
    "'a",
):
    refused(29, _words, 422, "bad_expression", "column", method="POST", path="/v1/runs", data=tasks(rank=_words))
for _title, _words in (
    ("a megabyte", "x" * (1 << 20)),
    ("10,000 parentheses", "(" * 2_000 + "1" + ")" * 2_000),
    ("powers of powers", "9**9**9"),
    ("a thousand terms", " + ".join(["1"] * 1_000)),
):
    refused(30, _title, 422, "expression_too_complex", method="POST", path="/v1/runs", data=tasks(require=_words))


@case(31, "true for no pilot, or a type error: not matched, and shown in why")
def _never_true(place: Place) -> None:
    stand = place.stand
    pilot = FalsePilot(stand)
    for require, words in (
        ("cores > 10000", "holds on 0"),
        ("host + 1 > 2", "holds on 0"),
        ("cores == 'x'", "holds on 0"),
    ):
        run = stand.submit(require=require)
        assert (
            pilot.say(free={"cores": 1}, tails=[{"attempt": "r1.1#1@1", "stream": "stdout", "text": ""}]).json()[
                "leases"
            ]
            == []
        )
        (reason,) = stand.context.call("GET", f"/v1/why/{run}")["reasons"]
        assert words in reason["text"] and require.split()[0] in reason["text"] and reason["fix"]
        assert stand.post("/v1/cancel", {"targets": [run]}).json()["cancelled"] == 1


# An overflow is undefined here, which is worse than every number; `why` explains requirements, a rank keeps nothing from
# running, so no flag is set.
@case(6, "a rank of 1e308 is accepted; one that overflows counts as none, and the task runs all the same")
def _large_rank(place: Place) -> None:
    for rank in ("1e308", "1e308 * 10 - cores"):
        run = place.stand.submit(rank=rank)
        pilot = FalsePilot(place.stand)
        assert pilot.verdict(pilot.lease(run)) == "recorded"


# --- rows 74 to 76: shares, quotas, names
def ruled(**document: Any) -> bytes:
    """A policy."""
    return json.dumps({"version": 0, "policy": document}).encode()


for _row, _title, _code, _document in (
    (74, "a negative share", "range", {"share": {"anna": -1}}),
    (74, "a share that is a text", "range", {"share": {"anna": "2"}}),
    (74, "an endless share", "range", {"share": {"anna": 1e308}}),
    (74, "an unknown person", "unknown_user", {"share": {"nobody": 1}}),
    (75, "a negative quota", "range", {"quota": [{"who": "anna", "cores": -1}]}),
    (75, "an endless quota", "range", {"quota": [{"who": "anna", "core_hours": 1e308}]}),
    (75, "a quota of nothing", "required", {"quota": [{"who": "anna"}]}),
):
    refused(_row, _title, 422, _code, method="POST", path="/v1/policy", data=ruled(**_document))


@case(74, "share 0 runs only when nobody else can; NaN is not even JSON")
def _share_zero(place: Place) -> None:
    stand = place.stand
    version = stand.context.call("GET", "/v1/policy")["version"]
    answer = stand.post("/v1/policy", {"version": version, "policy": {"share": {"anna": 0}}})
    assert answer.status == 200 and answer.json()["version"] == version + 1
    stand.expect(stand.send("POST", "/v1/policy", ruled(share={"anna": float("nan")})), 400, "not_finite")


@case(75, "a quota below what runs: accepted, nothing is stopped, nothing starts")
def _below_use(place: Place) -> None:
    stand = place.stand
    run = stand.submit(array="1-3")
    pilot = FalsePilot(stand)
    attempt = pilot.lease(run)
    owner = stand.context.call("GET", f"/v1/runs/{run}")["owner"]
    version = stand.context.call("GET", "/v1/policy")["version"]
    answer = stand.post("/v1/policy", {"version": version, "policy": {"quota": [{"who": owner, "cores": 0}]}})
    assert answer.status == 200 and "nothing" in " ".join(answer.json()["notes"])
    assert pilot.say(held=[{"attempt": attempt, "stage": "running"}]).json()["orders"] == []
    assert pilot.verdict(attempt) == "recorded" and stand.state(attempt.partition("#")[0]) == "succeeded"
    assert "over quota" in stand.context.call("GET", f"/v1/why/{run}")["reasons"][0]["text"]
    assert stand.post("/v1/policy", {"version": version + 1, "policy": {}}).status == 200
    assert stand.post("/v1/cancel", {"targets": [run]}).json()["cancelled"] == 2


for _person in ("", "root", "../x", "x" * 1_024, "\u0430nna", "Anna", "a b"):
    _user = json.dumps({"name": _person}).encode()
    refused(76, repr(_person[:9]), 422, "bad_name", method="POST", path="/v1/users", data=_user)


@case(51, "streams without end, without newline, of NULs")
def _streams(place: Place) -> None:
    """10 GiB with SHOAL_PROVE=1. The stream is kept to its bound, head and tail with a mark between, and the task ends well;
    its message says what is missing."""
    size = "10G" if PROVE else "300M"
    cluster = Cluster(place.tmp_path / "cluster", place.pilot_zip)
    try:
        cluster.start_server("--no-pilot")
        cluster.start_pilot()
        scripts = [
            f"head -c {size} /dev/zero",
            f"yes | head -c {size}",
            "head -c 50M /dev/zero | tr '\\0' x; echo e >&2",
        ]
        run = cluster.submit(*[{"shell": script, "max_output": "1M"} for script in scripts])
        assert cluster.wait_run(run, 600.0 if PROVE else 60.0)["succeeded"] == len(scripts)
        for element in range(1, len(scripts) + 1):
            kept = (cluster.state / f"logs/r{run}/0/{element}.1.out").read_bytes()
            assert len(kept) <= 1 << 20
            assert b"bytes left out by shoal" in kept
            assert "bytes of its stdout were left out" in cluster.row(run, element)["message"]
    finally:
        cluster.close()


# --- rows 52 to 60: what pilots say. Reports are answered by verdicts inside a 200, one each: a pilot sends many at once
# and must learn the fate of every one, so a status for the whole cannot tell it.
@case(52, "unknown task: verdict unknown")
def _unknown(place: Place) -> None:
    run, pilot = place.stand.submit(), FalsePilot(place.stand)
    for attempt in ("r999999.1#1@1", f"{run}.2#1@1", f"{run}.99#1@1"):
        assert pilot.verdict(attempt) == "unknown"
    place.stand.post("/v1/cancel", {"targets": [run]})


@case(52, "old attempt: verdict stale, and adopted if safe and a success")
def _old(place: Place) -> None:
    """What a pilot gave back is over, whatever it says of it then: only what was given up as lost is adopted."""
    for rerun, outcome in (("exclusive", "succeeded"), ("safe", "failed"), ("safe", "succeeded")):
        run, pilot = place.stand.submit(rerun=rerun), FalsePilot(place.stand)
        old = pilot.lease(run)
        reply = pilot.say(reports=[{"attempt": old, "outcome": "returned"}]).json()
        (new,) = [lease["attempt"] for lease in reply["leases"]]
        assert old != new and new.startswith(f"{run}.1#2@")
        assert pilot.verdict(old, outcome) == "stale", (rerun, outcome)
        assert place.stand.state(f"{run}.1") == "leased"
        assert pilot.verdict(new) == "recorded"
    for outcome, verdict in (("failed", "stale"), ("succeeded", "adopted")):
        run, lost = place.stand.submit(rerun="safe"), FalsePilot(place.stand)
        old = lost.lease(run)
        other = FalsePilot(place.stand, ended=[hashlib.sha256(lost.session.encode()).hexdigest()])
        new = other.lease(run)
        assert old != new and new.startswith(f"{run}.1#2@")
        assert other.verdict(old, outcome) == "stale", "it never held that one"
        again = FalsePilot(place.stand, former={"pilot": lost.name, "session": lost.session})
        assert again.verdict(old, outcome) == verdict
        assert place.stand.state(f"{run}.1") == ("succeeded" if verdict == "adopted" else "leased")
        assert other.verdict(new) == ("final" if verdict == "adopted" else "recorded")


@case(52, "another pilot's lease: stale; another owner's: unknown")
def _others(place: Place) -> None:
    stand = place.stand
    enrol = stand.context.call("POST", "/v1/tokens", {"kind": "enrol", "owner": "olaf"})["token"]
    run, holder = stand.submit(), FalsePilot(stand)
    attempt = holder.lease(run)
    assert FalsePilot(stand).verdict(attempt) == "stale"
    assert FalsePilot(stand, enrol).verdict(attempt) == "unknown"
    assert stand.state(f"{run}.1") == "leased"
    assert holder.verdict(attempt) == "recorded"


@case(52, "no attempt at all", changes=True)
def _no_attempt(place: Place) -> None:
    pilot = FalsePilot(place.stand)
    for text in ("", "r1.1", "r1.1#0@1", "r1.1#1", "x" * 500, "r1.1#1@1\n"):
        said = pilot.say(reports=[{"attempt": text, "outcome": "succeeded"}])
        place.stand.expect(said, 422, "bad_id", "r12.7#2@3")


@case(53, "succeeded twice, then failed: recorded each time, and nothing changes")
def _twice(place: Place) -> None:
    """The verdict speaks of the attempt, which is recorded; that it now says otherwise changes nothing."""
    run, pilot = place.stand.submit(retries=3), FalsePilot(place.stand)
    attempt = pilot.lease(run)
    assert [pilot.verdict(attempt, outcome) for outcome in ("succeeded", "succeeded", "failed")] == ["recorded"] * 3
    assert place.stand.state(f"{run}.1") == "succeeded"
    other = attempt.replace("#1@", "#2@")
    assert pilot.verdict(other, "failed") == "final"
    events = place.stand.context.call("GET", f"/v1/events?run={run}&kind=task_finished")["events"]
    assert len(events) == 1


@case(54, "unknown outcome")
def _outcome(place: Place) -> None:
    run, pilot = place.stand.submit(), FalsePilot(place.stand)
    attempt = pilot.lease(run)
    for word in ("done", "", "SUCCEEDED", "running", "lost", "\x1b[31m", "d" * 1_000):
        said = pilot.say(reports=[{"attempt": attempt, "outcome": word}])
        place.stand.expect(said, 422, "unknown_state", "outcome", "succeeded, failed, cancelled, returned")
        assert "d" * 81 not in said.body.decode()
    said = pilot.say(reports=[{"attempt": attempt, "outcome": "failed", "cause": "bad luck"}])
    place.stand.expect(said, 422, "unknown_state", "cause")
    assert place.stand.state(f"{run}.1") == "leased"
    assert pilot.verdict(attempt) == "recorded"


@case(54, "queued to succeeded: an attempt that nobody was given is unknown, or stale by the run's true name")
def _illegal(place: Place) -> None:
    run, pilot = place.stand.submit(cores=2), FalsePilot(place.stand)
    nonce = place.stand.nonce(run)
    for attempt in (f"{run}.1#1@1", f"{run}.1#7@1"):
        assert pilot.verdict(attempt) == "unknown"
        assert pilot.verdict(f"{attempt}~{'0' * len(nonce)}") == "unknown"
        assert pilot.verdict(f"{attempt}~{nonce}") == "stale", "even who guesses it was given nothing"
    assert place.stand.state(f"{run}.1") == "ready"
    place.stand.post("/v1/cancel", {"targets": [run]})


@case(55, "exit codes")
def _exit_codes(place: Place) -> None:
    run, pilot = place.stand.submit(retries=5), FalsePilot(place.stand)
    attempt = pilot.lease(run)
    for value, code in (
        (99_999, "range"),
        (-256, "range"),
        (256, "range"),
        (2**64, "range"),
        ("0", "wrong_type"),
        (0.5, "wrong_type"),
        (True, "wrong_type"),
    ):
        said = pilot.say(reports=[{"attempt": attempt, "outcome": "failed", "exit_code": value}])
        place.stand.expect(said, 422, code, "exit_code", *(["-255 to 255"] if code == "range" else []))
    for good in (-11, 255, None):
        assert pilot.verdict(attempt, "failed", exit_code=good) == "recorded"
        attempt = pilot.lease(run)
    place.stand.post("/v1/cancel", {"targets": [run]})


@case(56, "times of another world are accepted and flagged")
def _times(place: Place) -> None:
    for started in (0.0, 1.0, 4_294_967_296.0, MAX_TIME):
        run, pilot = place.stand.submit(), FalsePilot(place.stand)
        assert pilot.verdict(pilot.lease(run), started=started, duration=5.0) == "recorded"
        (event,) = place.stand.context.call("GET", f"/v1/events?run={run}&kind=task_finished")["events"]
        assert event["data"]["clock_skew"] != 0
        assert abs(event["time"] - time.time()) < 60, "the journal has the server's own time"
    run, pilot = place.stand.submit(), FalsePilot(place.stand)
    attempt = pilot.lease(run)
    for wrong in (
        {"started": -1.0},
        {"started": 1e15},
        {"duration": -5.0},
        {"cpu": 1e300},
        {"max_rss": 2**62},
        {"signal": -9},
    ):
        said = pilot.say(reports=[{"attempt": attempt, "outcome": "succeeded", **wrong}])
        place.stand.expect(said, 422, "range", "reports")
    assert pilot.verdict(attempt, started=time.time(), duration=0.5) == "recorded"


@case(57, "never seen: enrol again", changes=False)
def _never(place: Place) -> None:
    stand = place.stand
    session = make("session", "n" * 43)
    body = {"protocol": PROTOCOL, "pilot": "p0123", "session": session, "seq": 1, "ack": 0, "free": {}}
    stand.expect(stand.post("/v1/pilots/p0123/exchange", body, session), 409, "re_enrol", "register again")
    body |= {"session": stand.speaker.session}
    said = stand.post(f"/v1/pilots/{stand.speaker.name}/exchange", body, stand.speaker.session)
    stand.expect(said, 422, "range", "another pilot")
    # One that ended over an hour ago is refused with 401: `tests/unit/engine` and the security matrix hold it.


@case(57, "sent away: 403 with the reason")
def _sent_away(place: Place) -> None:
    stand = place.stand
    made = stand.context.call("POST", "/v1/tokens", {"kind": "enrol", "owner": "anna"})
    pilot = FalsePilot(stand, made["token"])
    stand.context.call("POST", "/v1/tokens/revoke", {"tokens": [made["id"]]})
    stand.expect(pilot.say(), 403, "revoked", "revoked")


@case(58, "more free than there is")
def _free(place: Place) -> None:
    pilot = FalsePilot(place.stand, room={"cores": 2, "memory": 100})
    for free in (
        {"cores": 1_000_000},
        {"cores": 3},
        {"cores": -1},
        {"memory": -(10**9)},
        {"memory": 101},
        {"gpus": 1},
        {"disk": 2**70},
    ):
        place.stand.expect(pilot.say(free=free), 422, "range", "free", "0 to what was registered")
    place.stand.expect(pilot.say(free={"cores": 1.5}), 422, "wrong_type", "free.cores")
    assert pilot.say(free={"cores": 0}).status == 200


for _room in (
    {"cores": 0},
    {"cores": 1_000_000},
    {"cores": 1, "memory": -1},
    {"cores": 1, "disk": 2**61},
    {"cores": 1, "gpus": -1},
    {},
):

    @case(58, f"registers with {_room}", changes=False)
    def _registers(place: Place, room: Json = _room) -> None:
        said = place.stand.post("/v1/pilots", {**REGISTER, "room": room}, place.stand.context.enrol)
        place.stand.expect(said, 422, "range", "room", "cores from 1 to 65536")


@case(58, "another site than its token's", changes=False)
def _site(place: Place) -> None:
    said = place.stand.post("/v1/pilots", {**REGISTER, "site": "elsewhere"}, place.stand.context.enrol)
    place.stand.expect(said, 403, "other_site", "site local", "leave the site out")


@case(59, "two pilots with one session: both must enrol again")
def _clone(place: Place) -> None:
    pilot = FalsePilot(place.stand)
    assert pilot.say(nonce="one").status == 200
    place.stand.expect(pilot.say(seq=1, nonce="two"), 409, "session_in_use", "register again")
    for _ in range(2):
        place.stand.expect(pilot.say(seq=2, nonce="one"), 409, "re_enrol")


@case(60, "same sequence: the same reply; going back: replay")
def _replay(place: Place) -> None:
    run, pilot = place.stand.submit(), FalsePilot(place.stand)
    attempt = pilot.lease(run)
    seq = pilot.seq
    first = pilot.say(reports=[{"attempt": attempt, "outcome": "succeeded"}])
    again = pilot.say(seq=seq + 1, reports=[{"attempt": attempt, "outcome": "failed"}])
    assert again.json() == first.json()
    assert place.stand.state(f"{run}.1") == "succeeded"
    for _ in range(3):
        assert pilot.say().status == 200
    newest = pilot.seq
    place.stand.expect(pilot.say(seq=newest - 3), 409, "replay", str(newest - 3))
    place.stand.expect(pilot.say(seq=0), 422, "range")
    place.stand.expect(pilot.say(seq=-5), 422, "range")


# --- rows 61 and 63: tokens
@case(61, "every token that is not good is refused with one text")
def _tokens(place: Place) -> None:
    """A token that expired is held by `test_access.py`, where time is an argument: the shortest life is a second."""
    stand, admin = place.stand, place.stand.context.admin
    dead = stand.context.call("POST", "/v1/tokens", {"owner": "anna"})
    stand.context.call("POST", "/v1/tokens/revoke", {"tokens": [dead["id"]]})
    brief = stand.context.call("POST", "/v1/tokens", {"owner": "anna", "expires": "1s"})["token"]
    time.sleep(1.1)
    bearers = [
        None, "", "Bearer", f"Bearer {admin[:-1]}", f"Bearer {admin}x",
        f"bearer {admin}", f"Basic {admin}", f"Bearer  {admin}", f"Bearer {make('submit', 'q' * 43)}", "Bearer \xff\xfe",
        f"Bearer {admin.replace('sub', 'enr')}", "Bearer " + "x" * 5_000, admin,
    ]  # fmt: skip
    texts = set()
    for bearer in bearers:
        answer = stand.send("GET", "/v1/runs", token="", Authorization=bearer)
        stand.expect(answer, 401, "unauthorised")
        assert answer.headers["Connection"] == "close"
        texts.add(answer.body)
    assert len(texts) == 1
    for token, code in ((dead["token"], "token_revoked"), (brief, "token_expired")):  # told to whoever has all of it
        stand.expect(stand.send("GET", "/v1/runs", token="", Authorization=f"Bearer {token}"), 401, code)
        stand.expect(stand.send("GET", "/v1/runs", token="", Authorization=f"Bearer {token[:-1]}"), 401, "unauthorised")
    stand.expect(stand.send("GET", "/v1/runs", token="", Authorization=f"Bearer {admin}\n x"), 400, "http")


@case(61, "a token of another kind: 403")
def _other_kind(place: Place) -> None:
    stand = place.stand
    pilot = FalsePilot(stand)
    for token in (stand.context.enrol, pilot.session):
        stand.expect(stand.send("GET", "/v1/runs", token=token), 403, "forbidden", "submit")
    said = stand.post("/v1/pilots", REGISTER, stand.context.admin)
    stand.expect(said, 403, "forbidden", "kind submit")
    stand.expect(stand.post("/v1/users", {"name": "x"}, stand.tokens["anna"]), 403, "forbidden", "scope admin")


@case(63, "more pilots than the token lets in")
def _full(place: Place) -> None:
    stand = place.stand
    made = stand.context.call("POST", "/v1/tokens", {"kind": "enrol", "owner": "anna", "max_pilots": 2})["token"]
    for _ in range(2):
        FalsePilot(stand, made)
    said = stand.post("/v1/pilots", REGISTER, made)
    stand.expect(said, 429, "site_full", "2 pilots")
    assert int(said.headers["Retry-After"]) > 0


# --- rows 69 to 73: the request line
_LISTS = ("/v1/runs", "/v1/pilots", "/v1/hosts", "/v1/tokens", "/v1/audit", "/v1/events")
for _limit in ("0", "-1", "1001", "1000000000", "x", "1.5", "%2B1", "%D9%A1", "", "9" * 40):
    for _path in _LISTS:
        refused(
            69, f"{_path} limit={_limit[:12]}", 422, "range", "limit", "1 to 1000",
            method="GET", path=f"{_path}?limit={_limit}",
        )  # fmt: skip
for _query, _code, _word in (
    ("runs?before=12", "bad_id", "r12"), ("runs?before=r0", "bad_id", "r12"), ("runs?before=r1'--", "bad_id", "r12"),
    ("events?after=-1", "range", "after"), ("events?after=1e3", "range", "after"), ("audit?before=x", "range", "before"),
    ("runs?sort=name;drop", "unknown_field", "sort"), ("runs?order=desc", "unknown_field", "did you mean owner"),
    ("runs?state=done", "unknown_state", "open or finished"), ("pilots?state=idel", "unknown_state", "idle"),
    ("events?kind=task_done", "unknown_kind", "task_finished"), ("hosts?state=idle", "unknown_field", "known: limit"),
    ("runs/r1/tasks?state=done", "unknown_state", "succeeded"), ("health?x=1", "unknown_field", "there is none"),
):  # fmt: skip

    @case(69, _query, changes=False)
    def _cursor(place: Place, query: str = _query, code: str = _code, word: str = _word) -> None:
        place.stand.expect(place.stand.send("GET", f"/v1/{query}"), 422, code, word)


@case(69, "a log from far beyond its end")
def _beyond(place: Place) -> None:
    run, pilot = place.stand.submit(), FalsePilot(place.stand)
    attempt = pilot.lease(run)
    pilot.say(
        held=[{"attempt": attempt, "stage": "running"}], tails=[{"attempt": attempt, "stream": "stdout", "text": "x\n"}]
    )
    assert place.stand.send("GET", f"/v1/tasks/{run}.1/logs").body == b"x\n"
    for offset in (2, 10**12, 10**18):
        answer = place.stand.send("GET", f"/v1/tasks/{run}.1/logs?offset={offset}")
        assert (answer.status, answer.body, answer.headers["X-Shoal-Next"]) == (200, b"", str(offset))
    place.stand.expect(place.stand.send("GET", f"/v1/tasks/{run}.1/logs?offset=-1"), 422, "range", "offset")
    place.stand.expect(
        place.stand.send("GET", f"/v1/tasks/{run}.1/logs?stream=stdin"), 422, "range", "stdout or stderr"
    )
    assert pilot.verdict(attempt) == "recorded"


@case(70, "a regular expression is no filter: its letters are letters")
def _regex(place: Place) -> None:
    """Filters are globs, so the text of an expression is taken by the letter and fits nothing; none can take long."""
    stand = place.stand
    run = stand.post("/v1/runs", {"name": "a" * 200, "tasks": [{"command": ["true"]}]}).json()["run"]
    began = time.monotonic()
    for glob in ("%28a%2B%29%2B%24", "a%2B", "%5Ea", "*a" * 60 + "b", "%5B" * 200, "a%7Cb"):
        assert stand.send("GET", f"/v1/runs?name={glob}").json()["runs"] == []
    for path, field in (("runs?name=" + "x" * 300, "name"), ("runs?name=" + "x" * 1_025, "name")):
        assert stand.send("GET", f"/v1/{path}").json()["error"]["field"] == field
    stand.expect(stand.send("GET", "/v1/events?kind=%28a%2B%29%2B%24"), 422, "unknown_kind")
    pilot = FalsePilot(stand)
    assert pilot.verdict(pilot.lease(run), "failed") == "recorded"
    for field in ("host", "site", "message"):
        for wide in ("*a" * 100_000, "[" * 300):
            said = stand.post("/v1/retry", {"targets": [run], "where": {field: wide}})
            stand.expect(said, 422, "too_long", f"where.{field}", "256")
    assert stand.post("/v1/retry", {"targets": [run], "where": {"host": "*a" * 100 + "b"}}).json()["tasks"] == 0
    assert time.monotonic() - began < 2 * SOON
    assert len(stand.send("GET", "/v1/runs?name=aaa*").json()["runs"]) == 1
    stand.post("/v1/cancel", {"targets": [run]})


for _path in (
    "/v1/runs/%2e%2e/%2e%2e/etc/passwd", "/v1/../v1/runs", "/v1//runs", "//v1/runs", "/v1/runs/r1%00", "/v1/runs?name=%00",
    "/v1/runs/..%2fserver.json", "/v1/runs/%2E%2e", "/v1/tasks/r1.1/..", "/v1/runs/a\\b", "/v1/tasks/..%5c..%5cx/logs",
):  # fmt: skip
    refused(71, _path, 400, "bad_path", method="GET", path=_path)
refused(71, "9 KB path", 400, "http", method="GET", path="/v1/runs/" + "a" * 9_000)
refused(71, "9 KB query", 400, "http", method="GET", path="/v1/runs?name=" + "a" * 9_000)
refused(71, "not ours", 404, "no_such_route", method="GET", path="/etc/passwd")
refused(71, "dot segments encoded twice", 422, "bad_id", method="GET", path="/v1/runs/%252e%252e")

for _method, _path in (
    ("TRACE", "/v1/runs"), ("DELETE", "/v1/runs"), ("DELETE", "/v1/tokens"), ("PUT", "/v1/users"), ("PATCH", "/v1/runs/r1"),
    ("OPTIONS", "/v1/cancel"), ("HEAD", "/v1/runs"), ("POST", "/v1/events"), ("GET", "/v1/cancel"),
):  # fmt: skip

    @case(72, f"{_method} {_path}", changes=False)
    def _method_is_not(place: Place, method: str = _method, path: str = _path) -> None:
        answer = place.stand.send(method, path)
        assert answer.status == 405 and answer.headers["Allow"], answer
        if method != "HEAD":
            place.stand.expect(answer, 405, "method")


@case(72, "a flood of HEAD", changes=False)
def _heads(place: Place) -> None:
    began = time.monotonic()
    assert {place.stand.send("HEAD", "/v1/health").status for _ in range(200)} == {405}
    assert time.monotonic() - began < 60.0
    assert place.stand.send("GET", "/v1/health", token="").json() == {"ok": True}


_HOST = b"Host: 127.0.0.1\r\n"
for _name, _raw in {
    "HTTP/0.9": b"GET /v1/health\r\n\r\n",
    "a method that is none": b"BREW /v1/runs HTTP/1.1\r\n" + _HOST + b"\r\n",
    "HTTP/9.9": b"GET /v1/health HTTP/9.9\r\n" + _HOST + b"\r\n",
    "two Content-Length": b"POST /v1/cancel HTTP/1.1\r\n" + _HOST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "CL and TE": b"POST /v1/cancel HTTP/1.1\r\n"
    + _HOST
    + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bad chunk": b"POST /v1/cancel HTTP/1.1\r\n" + _HOST + b"Transfer-Encoding: chunked, chunked\r\n\r\nzz\r\n",
    "negative length": b"POST /v1/cancel HTTP/1.1\r\n" + _HOST + b"Content-Length: -1\r\n\r\n",
    "space before colon": b"GET /v1/health HTTP/1.1\r\nHost : 127.0.0.1\r\n\r\n",
    "folded header": b"GET /v1/health HTTP/1.1\r\n" + _HOST + b"X: a\r\n b\r\n\r\n",
    "bare CR": b"GET /v1/health HTTP/1.1\r\n" + _HOST + b"X: a\rb\r\n\r\n",
    "NUL in a header": b"GET /v1/health HTTP/1.1\r\n" + _HOST + b"X: a\0b\r\n\r\n",
    "TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "10,000 headers": b"GET /v1/health HTTP/1.1\r\n" + _HOST + b"X: y\r\n" * 10_000 + b"\r\n",
    "20 KB header": b"GET /v1/health HTTP/1.1\r\n" + _HOST + b"X: " + b"y" * 20_000 + b"\r\n\r\n",
}.items():

    @case(72, _name, changes=False)
    def _malformed(place: Place, raw: bytes = _raw) -> None:
        answer = place.stand.raw(raw)
        place.stand.expect(answer, 400, "http", "not HTTP")
        assert answer.headers.get("Connection", "close") == "close" and answer.headers["Server"] == "shoal"
        assert len(answer.body) < 400


for _host in (
    "evil.example",
    "evil.example:8443",
    "127.0.0.1.evil.example",
    "localhost.evil",
    "",
    "a b",
    "[::1",
    "@127.0.0.1",
):
    refused(73, f"Host {_host!r}", 421, "wrong_host", method="GET", path="/v1/health", Host=_host)
for _origin in (
    "http://evil.example",
    "null",
    "http://127.0.0.1.evil.example",
    "http://[::1",
    "https://6.6.6.6",
    "http://127.0.0.1:1",
    "",
):
    for _kind in ("application/json", "application/x-www-form-urlencoded", "text/plain"):
        refused(
            73, f"Origin {_origin!r} {_kind}", 403, "bad_origin", "another site",
            method="POST", path="/v1/runs", data=b'{"tasks": [{"command": ["true"]}]}', Origin=_origin, Content_Type=_kind,
        )  # fmt: skip


@case(73, "our own origin is no other site")
def _own_origin(place: Place) -> None:
    said = place.stand.send("POST", "/v1/cancel", b'{"targets": ["r1"]}', Origin="http://127.0.0.1", Host="127.0.0.1")
    assert said.status in (200, 404), said


# --- rows 84 and 85: cancelling
@case(84, "unknown, finished, another's, while starting")
def _cancel(place: Place) -> None:
    stand = place.stand
    for target, code in (("r999999", "unknown_run"), ("r999999.1", "unknown_task")):
        stand.expect(stand.post("/v1/cancel", {"targets": [target]}), 404, code, target)
    run = stand.submit("anna")
    stand.expect(stand.post("/v1/cancel", {"targets": [f"{run}.2"]}), 404, "unknown_task", "1 task")
    for target in (run, f"{run}.1"):
        theirs = stand.post("/v1/cancel", {"targets": [target]}, stand.tokens["olaf"])
        none = stand.post("/v1/cancel", {"targets": [target.replace(run, "r999999")]}, stand.tokens["olaf"])
        assert theirs.status == none.status == 404
        assert theirs.body.replace(run.encode(), b"") == none.body.replace(b"r999999", b""), (
            "nobody learns what there is"
        )
    assert stand.state(f"{run}.1") == "ready"
    for expected in ({"cancelled": 1, "already_final": 0}, {"cancelled": 0, "already_final": 1}):
        assert stand.post("/v1/cancel", {"targets": [f"{run}.1"]}).json() == expected
    begun, pilot = stand.submit(), FalsePilot(stand)
    attempt = pilot.lease(begun)
    assert stand.post("/v1/cancel", {"targets": [begun]}).json()["cancelled"] == 1
    orders = pilot.say(held=[{"attempt": attempt, "stage": "running"}]).json()["orders"]
    assert [(order["kind"], order["attempt"]) for order in orders][:1] == [("cancel", attempt)]
    assert pilot.verdict(attempt) == "final"
    assert stand.state(f"{begun}.1") == "cancelled"


@case(84, "one that is wrong among many: none is cancelled")
def _cancel_some(place: Place) -> None:
    stand, run = place.stand, place.stand.submit()
    for wrong, status in (("r999999", 404), ("p3f9c", 422), ("r1.x", 422), ("", 422)):
        assert stand.post("/v1/cancel", {"targets": [run, wrong]}).status == status
    for wrong_list in ([], [run] * 10_001):
        stand.expect(stand.post("/v1/cancel", {"targets": wrong_list}), 422, "required", "targets")
    assert stand.state(f"{run}.1") == "ready"
    stand.post("/v1/cancel", {"targets": [run]})


@case(85, "10,000 cancels of one task: one change")
def _cancel_all(place: Place) -> None:
    """Ten thousand in one call, and as many calls at once as connections of one token may be at work."""
    stand, run = place.stand, place.stand.submit()
    answers: list[Json] = []

    def cancel() -> None:
        for _ in range(10):
            answers.append(stand.post("/v1/cancel", {"targets": [f"{run}.1"] * 100}).json())

    threads = [threading.Thread(target=cancel) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 100 and sum(answer["cancelled"] for answer in answers) == 1
    assert {answer["cancelled"] + answer["already_final"] for answer in answers} == {1}
    assert stand.post("/v1/cancel", {"targets": [f"{run}.1"] * 10_000}).json() == {"cancelled": 0, "already_final": 1}
    events = stand.context.call("GET", f"/v1/events?run={run}")["events"]
    assert len([event for event in events if event["kind"] in ("tasks_closed", "task_finished")]) == 1


# --- rows 62 and 77 to 81: starts and hosts, as processes
def run_server(state: Path, *words: str, within: float = 30.0) -> subprocess.CompletedProcess[str]:
    """A server that must not start."""
    argv = [sys.executable, "-m", "shoal.server", "--state", str(state), "--no-pilot", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=within, env=clean_env(), check=False)


def expect_no_start(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """One line, exit 3."""
    assert done.returncode == 3, done
    lines = [line for line in done.stderr.splitlines() if line.startswith("shoal server: ")]
    assert len(lines) == 1 and "Traceback" not in done.stderr, done.stderr
    for word in words:
        assert word in lines[0], lines


@contextlib.contextmanager
def small_disk(folder: Path, options: str) -> Iterator[Path]:
    """A file system of its own; needs root."""
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"SKIPPED LOUDLY: no file system can be mounted here: {done.stderr.decode(errors='replace')}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextlib.contextmanager
def server_on(folder: Path, log: Path) -> Iterator[House]:
    """A server of its own."""
    context = House(folder)
    context.log = log
    context.start("--timing", json.dumps(PATIENT))
    try:
        yield context
    finally:
        context.close()


def run_pilot(place: Place, *words: str, within: float = 60.0) -> subprocess.CompletedProcess[str]:
    """A pilot to its end."""
    argv = [sys.executable, "-I", str(place.pilot_zip), *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=within, env=clean_env(), check=False)


@case(62, "join string with another fingerprint, or of another server")
def _join(place: Place) -> None:
    context = place.stand.context
    made = context.call("POST", "/v1/tokens", {"kind": "enrol"})
    address, good = f"127.0.0.1:{context.tls}", made["fingerprint"]
    file = place.tmp_path / "join"
    file.touch(0o600)
    before = place.stand.counts()["pilots"]
    for fingerprint in ("0" * 64, good[:-1] + ("0" if good[-1] != "0" else "1")):
        file.write_text(f"{address}#{fingerprint}#{made['token']}\n")
        done = run_pilot(place, "--join-file", str(file), "--work-dir", str(place.tmp_path))
        assert done.returncode == 4, done
        assert "server certificate does not match" in done.stdout + done.stderr, done
        assert made["token"] not in done.stdout + done.stderr and "Traceback" not in done.stderr
    for text in ("", "box:8443", f"{address}#{good}#{made['token'][:-1]}", f"{address}#{good[:-1]}#{made['token']}"):
        file.write_text(text)
        done = run_pilot(place, "--join-file", str(file), "--work-dir", str(place.tmp_path))
        assert done.returncode == 4 and "join string" in done.stdout + done.stderr, done
        assert made["token"][:-1] not in done.stdout + done.stderr
    assert place.stand.counts()["pilots"] == before


_CONFIGS: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "unknown key": ('serve = "x"\n', 2, ("shoal.toml:1", "did you mean server")),
    "wrong type": ("\nserver = 5\n", 2, ("shoal.toml:2", "must be a text", 'server = "..."')),
    "duplicate": ('server = "embedded"\nserver = "embedded"\n', 2, ("shoal.toml:2",)),
    "not TOML": ("server embedded\n", 2, ("shoal.toml:1", "not TOML")),
    "bad address": ('server = "ftp://x"\n', 2, ("ftp://x",)),
    "world-readable secret": ('server = "unix:/none"\ntoken_file = "open"\n', 3, ("open", "chmod 600")),
    "secret is missing": ('server = "unix:/none"\ntoken_file = "none"\n', 2, ("none",)),
    "too large": ("#" * 70_000, 2, ("shoal.toml", "too large")),
}
for _name in [*_CONFIGS, "unreadable", "empty file", "not UTF-8"]:

    @case(77, _name, changes=False)
    def _config(place: Place, name: str = _name) -> None:
        text, status, words = _CONFIGS.get(name, ("", 2, ("shoal.toml", "cannot be read")))
        file = place.tmp_path / "shoal.toml"
        (place.tmp_path / "open").write_text("secret\n")
        (place.tmp_path / "open").chmod(0o644)
        if name == "unreadable":
            file.mkdir()
        else:
            file.write_bytes(b"\xff\xfe" if name == "not UTF-8" else text.encode())
        env = {**clean_env(), "HOME": str(place.tmp_path), "XDG_STATE_HOME": str(place.tmp_path / "state")}
        argv = [sys.executable, "-m", "shoal.cli", "ps"]
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=60, cwd=place.tmp_path, env=env, check=False
        )
        if name == "empty file":  # says nothing, and so nothing wrong
            assert done.returncode == 0, done
            return
        assert done.returncode == status, done
        assert done.stderr.count("\n") == 1 and "secret" not in done.stderr.replace("secrets", ""), done
        for word in words:
            assert word in done.stderr, done


@case(78, "port taken", changes=False)
def _port(place: Place) -> None:
    context = place.stand.context
    taken = f"127.0.0.1:{context.tls}"
    expect_no_start(run_server(place.tmp_path / "b", "--listen", taken), taken, "in use")
    expect_no_start(run_server(place.tmp_path / "c", "--listen", "192.0.2.1:0"), "192.0.2.1")
    for wrong in ("box", "box:99999", ":x", "[::1:5"):
        expect_no_start(run_server(place.tmp_path / "d", "--listen", wrong), "--listen", "8443")


@case(78, "database in use by another server", changes=False)
def _locked(place: Place) -> None:
    context = place.stand.context
    assert context.process is not None
    expect_no_start(run_server(context.state), "in use by another server", str(context.process.pid))
    assert context.call("GET", "/v1/health") == {"ok": True}


@case(78, "database of a newer version, of another program, or none at all", changes=False)
def _databases(place: Place) -> None:
    def make_newer(path: Path) -> str:
        shutil.copy(place.stand.context.state / DATABASE, path)
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA journal_mode=DELETE")
            database.execute("PRAGMA user_version = 99")
        return "newer Shoal (schema 99"

    def make_foreign(path: Path) -> str:
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE bookmarks (url TEXT)")
        return "another program"

    def make_text(path: Path) -> str:
        path.write_text("this is not a database, though it is long enough to look\n" * 50)
        return "not a database"

    def make_folder(path: Path) -> str:
        path.mkdir()
        return "cannot open"

    for kind in (make_newer, make_foreign, make_text, make_folder):
        state = place.tmp_path / kind.__name__
        state.mkdir(mode=0o700)
        word = kind(state / DATABASE)
        before = (state / DATABASE).read_bytes() if kind is not make_folder else b""
        expect_no_start(run_server(state), word)
        assert kind is make_folder or (state / DATABASE).read_bytes() == before, "it was touched"
        assert not (state / SERVER_FILE).exists()


@case(78, "state directory that cannot be one", changes=False)
def _state(place: Place) -> None:
    plain = place.tmp_path / "plain"
    plain.write_text("x")
    for state in (plain, plain / "below"):
        expect_no_start(run_server(state), "state directory", "--state")
    # A network file system cannot be had here; the table of mounts can.
    table = "30 1 0:40 / / rw - ext4 /dev/vda rw\n31 30 0:41 / /tmp rw - nfs4 box:/x rw\n"
    with pytest.raises(Refused, match=r"network file system \(nfs4\)"):
        check_location("/tmp/shoal.db", table)


@case(79, "clock in 1970", changes=False)
def _clock(place: Place) -> None:
    """The wall clock of a test machine is not ours to set: the authority is asked, which says it at every start."""
    for number, (now, words) in enumerate(((0.0, "1970"), (1e9, "2001"))):
        state = place.tmp_path / str(number)
        state.mkdir(mode=0o700)
        authority = CertificateAuthority.open(state, ["box"], now)
        assert "clock looks wrong" in authority.trouble and words in authority.trouble
        assert authority.context() is not None, "it starts all the same"
        later = CertificateAuthority.open(state, ["box"], time.time())
        assert later.trouble == "" or "clock" in later.trouble
    old = place.tmp_path / "old"
    old.mkdir(mode=0o700)
    CertificateAuthority.open(old, ["box"], time.time())
    assert "clock looks wrong" in CertificateAuthority.open(old, ["box"], 86_400.0).trouble


@case(80, "no space, or read-only, at the start", changes=False)
def _full_start(place: Place) -> None:
    with small_disk(place.tmp_path / "tiny", "size=64k") as disk:
        (disk / "ballast").write_bytes(b"x" * 48 * 1024)
        done = run_server(disk / "state")
        expect_no_start(done)
        assert "space" in done.stderr or "full" in done.stderr, done.stderr
    with small_disk(place.tmp_path / "frozen", "size=1m") as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        expect_no_start(run_server(disk / "state"), "state directory", "Read-only")


@case(80, "no space at a submission and at a result: 507, accepted work is kept", changes=False)
def _full_later(place: Place) -> None:
    with small_disk(place.tmp_path / "small", "size=6m") as disk, server_on(disk, place.tmp_path / "log") as context:
        stand = Stand(context)
        run, pilot = stand.submit(), FalsePilot(stand)
        attempt = pilot.lease(run)
        ballast = disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4_096)
        outcomes: list[Answer] = []
        late = threading.Thread(
            target=lambda: outcomes.append(pilot.say(reports=[{"attempt": attempt, "outcome": "succeeded"}]))
        )
        late.start()
        refusal = None
        body: Json = {"tasks": [{"command": ["x" * 60_000]}], "environment": {"A": "b" * 20_000}}
        end = time.monotonic() + 30
        while refusal is None and time.monotonic() < end:
            answer = stand.context.send(
                Sent(_raw_post("/v1/runs", context.admin, body), False, False, ()), None, patience=3.0
            )
            refusal = answer if answer.status not in (0, 200) else None
        assert refusal is not None
        stand.expect(refusal, 507, "disk_full", "full", "free some space")
        assert context.process is not None and context.process.poll() is None
        assert stand.send("GET", "/v1/health", token="").status == 200
        ballast.unlink()
        late.join(30)
        assert [answer.json()["verdicts"][0]["verdict"] for answer in outcomes] == ["recorded"], (
            "it landed with the space"
        )
        end = time.monotonic() + 30
        while stand.post("/v1/runs", body).status == 507 and time.monotonic() < end:
            time.sleep(0.2)
        assert stand.state(f"{run}.1") == "succeeded"
        assert stand.submit()


def _raw_post(path: str, token: str, body: Json) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def expect_unfit(place: Place, work: Path, *words: str) -> None:
    """The pilot says why, tells the server, and takes no task."""
    context = place.stand.context
    run = place.stand.submit()
    after = context.call("GET", "/v1/server")["last_seq"]
    done = run_pilot(place, "--server-file", str(context.state / SERVER_FILE), "--work-dir", str(work))
    state = place.stand.state(f"{run}.1")
    place.stand.post("/v1/cancel", {"targets": [run]})
    assert done.returncode == 3, done
    said = done.stdout + done.stderr
    assert "this host is unfit" in said and "--work-dir" in said and "Traceback" not in said
    for word in words:
        assert word in said, said
    assert state == "ready"
    events = context.call("GET", f"/v1/events?after={after}&kind=pilot_unfit")["events"]
    assert len(events) == 1 and events[0]["data"]["reasons"], events


@case(81, "work directory cannot be made, or is read-only")
def _no_work_dir(place: Place) -> None:
    plain = place.tmp_path / "plain"
    plain.write_text("x")
    expect_unfit(place, plain, "cannot be made")
    with small_disk(place.tmp_path / "frozen", "size=200m") as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        expect_unfit(place, disk, "cannot be made")


@case(81, "work directory is full, or runs no programs")
def _full_work_dir(place: Place) -> None:
    with small_disk(place.tmp_path / "small", "size=4m") as disk:
        expect_unfit(place, disk, "MiB are free", "64 are needed")
    with small_disk(place.tmp_path / "noexec", "size=200m,noexec") as disk:
        expect_unfit(place, disk, "noexec")


@case(81, "work directory is deleted under a living pilot")
def _gone_work_dir(place: Place) -> None:
    context = place.stand.context
    work = place.tmp_path / "work"
    work.mkdir()
    argv = [sys.executable, "-I", str(place.pilot_zip), "--server-file", str(context.state / SERVER_FILE)]
    after = context.call("GET", "/v1/server")["last_seq"]
    with subprocess.Popen(
        [*argv, "--work-dir", str(work), "--cores", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=clean_env(),
    ) as pilot:
        try:
            end = time.monotonic() + 30
            while not context.call("GET", f"/v1/events?after={after}&kind=pilot_joined")["events"]:
                assert time.monotonic() < end and pilot.poll() is None
                time.sleep(0.05)
            shutil.rmtree(work)
            said = pilot.communicate(timeout=60)[0].decode(errors="replace")
        finally:
            pilot.kill()
    assert pilot.returncode == 3 and "host_unfit" in said, said
    end = time.monotonic() + 10
    while not (events := context.call("GET", f"/v1/events?after={after}&kind=pilot_draining")["events"]):
        assert time.monotonic() < end, "the server was not told"
        time.sleep(0.05)
    assert ["host_unfit" in event["data"]["why"] for event in events] == [True]


# --- the table is run
@pytest.mark.parametrize("one", CASES, ids=lambda one: f"E{one.row:02d} {one.name}"[:90])
@pytest.mark.timeout(900 if PROVE else 180)
def test_a_row_of_the_catalogue_is_answered_as_promised(
    one: Case, stand: Stand, tmp_path: Path, pilot_zip: Path
) -> None:
    before = stand.counts()
    one.check(Place(stand, tmp_path, pilot_zip))
    if not one.changes:
        assert stand.counts() == before, "something was half-applied"


def test_every_row_that_this_file_is_for_has_a_case() -> None:
    rows = {*range(1, 13), *range(27, 32), *range(51, 64), *range(69, 82), 84, 85}
    assert {one.row for one in CASES} == rows


def test_a_resume_of_ten_million_elements_that_never_ran_holds_nobody_up(stand: Stand) -> None:
    """Each was once looked at by itself, for minutes, on the thread that all lists wait for."""
    body = {"tasks": [{"command": ["never-run-before"], "array": "1-10000000"}], "resume": True}
    began = time.monotonic()
    answer = stand.post("/v1/runs", body)
    assert answer.json()["reruns"] == [{"count": 10_000_000, "why": "not run before", "again": False}]
    assert stand.send("GET", "/v1/runs").status == 200
    assert time.monotonic() - began < 60.0
    stand.post("/v1/cancel", {"targets": [answer.json()["run"]]})


def test_a_token_named_twice_is_revoked_once(stand: Stand) -> None:
    made = stand.context.call("POST", "/v1/tokens", {"owner": "anna"})["id"]
    assert stand.post("/v1/tokens/revoke", {"tokens": [made] * 1_000}).json() == {"revoked": 1, "pilots": 0}
