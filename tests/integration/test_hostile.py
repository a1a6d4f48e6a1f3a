"""Hundreds of hostile words (`make prove`: three thousand) through a real server and, where they are let in, a real pilot.

Names, paths and values are made by a seeded generator from traversal, control characters, terminal sequences, shell and
format metacharacters, encodings, look-alikes and sheer length. Nothing may be made or read outside its place, no shell
may see them that was not asked for, no terminal may get them raw, and no answer may be a 5xx. Promise D: 1,000
traversal names and 1,000 hostile values, 0 escapes.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import pty
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Cluster, clean_env
from tests.unix_http import UnixHTTPConnection, connect

pytestmark = [pytest.mark.integration, pytest.mark.slow]
Json = dict[str, Any]
EACH = 1_000 if os.environ.get("SHOAL_PROVE") == "1" else 80  # of each kind
SEED = 20261116
TOKENS = 8  # of one person, who may ask 200 times a second with all of them
CANARY = "zq-canary-text-that-nobody-prints"
SGR = re.compile(r"\x1b\[(?:0|1|2|3[1236])m")  # the colours that the command line itself uses
STATE_FILES = re.compile(
    r"shoal\.db(?:-wal|-shm|\.lock)?|token|enrol|server\.json|port|pilot\.pyz|reserve|env|env/r\d+\.json|logs|logs/mark"
    r"|logs/r\d+(?:/\d+(?:/\d+\.\d+\.(?:out|err))?)?"
    r"|blobs(?:/part(?:/[0-9a-f]{32}(?:/[0-9a-f]{64}(?:\.\d+)?)?)?|/[0-9a-f]{2}(?:/[0-9a-f]{64})?)?"
)
CONTROLS = (
    "\0", "\n", "\r", "\t", "\x07", "\x08", "\x1b[2J", "\x1b[38;5;196m", "\x1b]0;owned\x07", "\x1b]8;;http://x/\x1b\\",
    "\x1b[6n", "\x1bP+q544e\x1b\\", "\x7f", "\x85", "\x9b41m", "\x9d0;t\x9c", "\u2028", "\u200b", "\u202e", "\u2066",
    "\ufeff", "\ud800", "\U000e0041",
)  # fmt: skip
LOOKALIKES = ("\uff0e\uff0e\uff0f", "\u2215", "\u2024\u2024/", "e\u0301", "\u212b", "\u0131", "ﬁ", "\u3000", "💥", "ß")
ENCODED = ("%2e%2e%2f", "%252e%252e%252f", "..%c0%af", "%00", "%0d%0aX-Evil: 1", "%u002e", "&#46;&#46;/", "\\x2e\\x2e/")
TEXTS = (
    "'; DROP TABLE runs;--",
    "<script>alert(1)</script>",
    "%s%n%p",
    "{x}",
    "{{x}}",
    "{x.__class__}",
    "{0}",
    "{",
    "}",
)
LONG = ("A" * 300, "é" * 3_000, "../" * 2_000, "\x1b[31m" * 200, "a" * 255, "/" * 5_000)


def atoms(guard: Path) -> tuple[str, ...]:
    """The pieces of which everything is made; what could do harm does it to the guarded directory."""
    hit, canary = guard / "pwned", guard / "canary"
    up = "../" * 12
    traversal = (
        "..", "../x", f"{up}{str(hit)[1:]}", f"{up}{str(canary)[1:]}", str(hit), str(canary), str(guard), "/etc/passwd",
        "a/../../b", "....//", "..\\..\\x", "./../.", "~root/x", "~/x", "//x", ".", "", " ", "-rf", "--help", "/dev/null",
        "/proc/self/environ", "/dev/fd/0", "file:///etc/passwd", "NUL", "x/", "/",
    )  # fmt: skip
    shell = (
        f"$(touch {hit})", f"`touch {hit}`", f";touch {hit};", f"|touch {hit}", f"&& touch {hit} #", f"\ntouch {hit}\n",
        f">{hit}", f"<{canary}", f"$(cat {canary})", "${IFS}", "$HOME", "$((1/0))", "'", '"', "\\", "*", "?", "[a-z]*",
        "!", "#", "~", "$", "`", "$'\\n'", "\\$(id)", "%d", f"'; touch {hit}; '", f'"; touch {hit}; "', "-x", "=",
    )  # fmt: skip
    return (*traversal, *shell, *CONTROLS, *LOOKALIKES, *ENCODED, *TEXTS, *LONG)


def words(guard: Path, kind: str) -> list[str]:
    """A thousand different hostile words: every atom alone, then mixtures; the same in each run."""
    rng = random.Random(f"{SEED} {kind}")
    pieces = atoms(guard)
    found = dict.fromkeys(pieces)
    while len(found) < EACH:
        found["".join(rng.choice(pieces) for _ in range(rng.randint(2, 4)))] = None
    return list(found)[:EACH]


class Stage:
    """A server, a pilot, a guarded directory, and everything that was answered."""

    def __init__(self, cluster: Cluster, guard: Path) -> None:
        self.cluster, self.guard = cluster, guard
        guard.mkdir()
        (guard / "canary").write_text(CANARY)
        (guard / "inner").mkdir()
        (guard / "inner" / "canary").write_text(CANARY)
        self.before = self.listing(guard)
        cluster.start_server("--durability", "normal")  # nothing is killed here, and there is much to write
        self.url = str(cluster.address()["url"])
        with cluster.client() as client:
            scopes = ["submit", "read", "cancel", "admin"]
            self.tokens = [client.new_token("submit", scopes=scopes)["token"] for _ in range(TOKENS)]
            self.enrol = client.new_token("enrol", site="box")["token"]
        self.statuses: Counter[str] = Counter()
        self.asked = 0
        self._connection = self._connect()

    @staticmethod
    def listing(folder: Path) -> dict[str, str]:
        """Every name below a folder, with what is in it."""
        found = {}
        for path in sorted(folder.rglob("*")):
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
            found[str(path.relative_to(folder))] = content
        return found

    def _connect(self) -> http.client.HTTPConnection:
        return UnixHTTPConnection(self.url)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def ask(self, method: str, path: str, body: Any = None, token: str = "") -> tuple[int, Json]:
        """A request; its answer is judged: no 5xx, nothing raw, no canary."""
        self.asked += 1
        headers = {"Authorization": f"Bearer {token or self.tokens[self.asked % TOKENS]}"}
        data = None if body is None else json.dumps(body)
        headers |= {"Content-Type": "application/json"} if data is not None else {}
        while True:
            try:
                self._connection.request(method, path, data, headers)
                answer = self._connection.getresponse()
                raw = answer.read()
            except (ConnectionError, http.client.HTTPException):
                self._connection.close()  # the server closes behind some refusals
                self._connection = self._connect()
                continue
            if answer.status == 429:
                time.sleep(0.2)
                continue
            self.judge(f"{method} {path[:60]}", answer.status, answer.getheaders(), raw)
            return answer.status, json.loads(raw)

    def judge(self, what: str, status: int, headers: list[tuple[str, str]], raw: bytes) -> None:
        """What holds for every answer."""
        self.statuses[f"{status // 100}xx"] += 1
        assert status < 500, (what, status, raw[:500])
        assert not [byte for byte in raw if byte < 0x20], (what, raw[:500])
        assert CANARY.encode() not in raw, (what, raw[:500])
        assert not [name for name, _ in headers if name.lower() == "x-evil"], headers
        if status >= 400:
            told = json.loads(raw)["error"]
            assert all(text.isprintable() for text in told.values()), (what, told)
            assert len(raw) < 4_000, (what, "an answer repeats too much")

    def submit(self, **submission: Any) -> str:
        """Submit; the run's name, or nothing if it was refused."""
        said = {"cwd": str(self.cluster.cwd), "environment": {"PATH": "/usr/bin:/bin"}, **submission}
        status, told = self.ask("POST", "/v1/runs", {k: v for k, v in said.items() if v is not None})
        assert status in (200, 400, 413, 422), (status, told)
        return str(told["run"]) if status == 200 else ""

    def check_guarded(self) -> None:
        """The guarded directory is as it was, and no file is where none belongs."""
        assert self.listing(self.guard) == self.before
        state = [str(path.relative_to(self.cluster.state)) for path in self.cluster.state.rglob("*")]
        assert not [name for name in state if not STATE_FILES.fullmatch(name)]
        outside = {path.name for path in self.cluster.folder.iterdir()}
        assert outside == {"state", "cwd", "work", "server.log", "payload.py", "pilot1.log"}, outside
        assert {path.name for path in self.guard.parent.iterdir()} == {"cluster", "guard", "home"}

    def wait(self) -> None:
        """Wait until every run is over."""
        end = time.monotonic() + 90.0
        while (told := self.ask("GET", "/v1/server")[1])["open_runs"]:
            assert time.monotonic() < end, (told, self.cluster.story())
            time.sleep(0.1)

    def output(self, run: str, stream: str = "out") -> bytes:
        """What the only task of a run printed."""
        with contextlib.suppress(FileNotFoundError):
            return (self.cluster.state / "logs" / run / "0" / f"1.1.{stream}").read_bytes()
        return b""

    def terminal(self, *words: str) -> str:
        """What a command shows on a terminal."""
        told = self.cluster.address()
        home = self.guard.parent / "home"
        env = {
            **clean_env(), "TERM": "xterm-256color", "COLUMNS": "200", "SHOAL_SERVER": told["url"],
            "SHOAL_TOKEN": told["token"], "XDG_STATE_HOME": str(home), "XDG_CONFIG_HOME": str(home), "LANG": "C.UTF-8",
        }  # fmt: skip
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "shoal.cli", *words], stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=home,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        found = bytearray()
        with contextlib.suppress(OSError):  # the other end was closed
            while piece := os.read(ours, 65_536):
                found += piece
        os.close(ours)
        assert process.wait(60.0) in (0, 1, 3), (words, process.returncode, bytes(found[-500:]))
        return found.decode("utf-8", "surrogateescape")

    def check_terminal(self, *words: str) -> str:
        """Nothing raw comes to a terminal: neither control nor direction characters; returns what it showed."""
        shown = SGR.sub("", self.terminal(*words))
        raw = sorted({c for c in shown if not c.isprintable() and c not in "\r\n\t"})
        assert not raw, (words, raw, [line for line in shown.splitlines() if set(line) & set(raw)][:3])
        assert CANARY not in shown
        return shown


@pytest.fixture
def stage(tmp_path: Path, cluster: Cluster) -> Iterator[Stage]:
    """The stage, with one pilot."""
    (tmp_path / "home").mkdir(mode=0o700)
    made = Stage(cluster, tmp_path / "guard")
    cluster.start_pilot(4)
    yield made
    assert cluster.pilots[0].is_alive, "the pilot got through it"
    made.close()
    cluster.stop_server()
    assert "Traceback" not in cluster.story(10_000), cluster.story()
    made.check_guarded()


def test_hostile_names_are_refused_or_kept_as_text(stage: Stage) -> None:
    """Runs, tasks, labels, keys, people, groups and sites."""
    quick = [{"command": ["true"]}]
    accepted: list[tuple[str, str, str]] = []  # run, what, word
    for at, word in enumerate(words(stage.guard, "names")):
        what = ("run", "task", "label", "text", "key", "user", "group", "site")[at % 8]
        run = ""
        if what == "run":
            run = stage.submit(name=word, tasks=quick)
        elif what == "task":
            run = stage.submit(tasks=[{"name": word, "command": ["true"]}])
        elif what == "label":
            run = stage.submit(tasks=quick, labels={word: "x"})
        elif what == "text":
            run = stage.submit(tasks=[{"command": ["true"], "labels": {"x": word}}], labels={"x": word})
        elif what == "key":
            run = stage.submit(tasks=quick, key=word)
        else:
            _name_someone(stage, what, word)
        if run:
            accepted.append((run, what, word))
    assert len(accepted) > EACH / 5 and stage.statuses["4xx"] > EACH / 5, stage.statuses
    stage.wait()
    rows = {f"r{row['run']}": row for row in _all_runs(stage)}
    assert all(rows[run]["counts"]["succeeded"] == 1 for run, _, _ in accepted)
    assert all(rows[run]["name"] == word for run, what, word in accepted if what == "run"), "kept as it was"
    for command in (
        ["ps", "--limit", "0"],
        ["events"],
        ["audit"],
        ["user", "list"],
        ["group", "list"],
        ["token", "list"],
    ):
        stage.check_terminal(*command)
    odd = [(run, word) for run, what, word in accepted if what != "key" and not word.isprintable()]
    for run, _ in odd[:4]:
        stage.check_terminal("show", run)
    assert len(odd) > EACH / 20
    print(f"\nnames: {EACH}, {dict(stage.statuses)}, {len(accepted)} runs")


def _name_someone(stage: Stage, what: str, word: str) -> None:
    """People and sites have plain names."""
    if what == "site":
        status, told = stage.ask("POST", "/v1/tokens", {"kind": "enrol", "site": word, "note": word[:100]})
    else:
        status, told = stage.ask("POST", f"/v1/{what}s", {"name": word})
    plain = re.fullmatch(r"[a-z_][a-z0-9_.-]{0,63}", word) is not None or (what == "site" and word == "")
    assert (status == 200) == plain, (what, word, told)


def _all_runs(stage: Stage) -> list[Json]:
    found: list[Json] = []
    before = ""
    while True:
        _, page = stage.ask("GET", f"/v1/runs?limit=1000{before}")
        found += page["runs"]
        if page["next"] is None:
            return found
        before = f"&before={page['next']}"


def test_hostile_paths_lead_nowhere(stage: Stage) -> None:
    """Directories, inputs, outputs, standard input, environment files, streams, attempts, pilots, URLs."""
    cwd = stage.cluster.cwd
    accepted: list[tuple[str, str, str]] = []
    digest = hashlib.sha256(b"{}").hexdigest()
    enrolled = _enrol(stage, "plain", {})
    roles: dict[str, Callable[[str], str]] = {
        "cwd": lambda w: stage.submit(tasks=[{"command": ["true"], "cwd": w}]),
        "run cwd": lambda w: stage.submit(cwd=w, tasks=[{"command": ["true"]}]),
        "input": lambda w: stage.submit(tasks=[{"command": ["true"], "cwd": "own", "inputs": [w]}]),
        "output": lambda w: stage.submit(
            tasks=[{"command": ["sh", "-c", 'case $1 in */*) mkdir -p "${1%/*}";; esac; echo made > "$1"', "sh", w],
                    "cwd": "own", "outputs": [w]}]
        ),
        "filled output": lambda w: stage.submit(
            tasks=[{"command": ["true"], "cwd": "own", "outputs": ["{x}"], "params": {"x": [w]}}]
        ),
        "filled visible output": lambda w: stage.submit(
            tasks=[{"command": ["true"], "outputs": ["{x}"], "params": {"x": [w]}}]
        ),
        "stdin": lambda w: stage.submit(tasks=[{"command": ["true"], "stdin": w}]),
        "environment": lambda w: stage.submit(environment=None, environment_file=w, tasks=[{"command": ["env"]}]),
        "named environment": lambda w: stage.submit(
            environment=None, environment_file=f"/{w}/{digest}.json", tasks=[{"command": ["env"]}]
        ),
        "url": lambda w: _raw_url(stage, w),
        "stream": lambda w: _quoted(stage, w),
        "pilot": lambda w: _speak(stage, enrolled, w),
    }  # fmt: skip
    for at, word in enumerate(words(stage.guard, "paths")):
        what = list(roles)[at % len(roles)]
        run = roles[what](word)
        if run:
            accepted.append((run, what, word))
    for steps in range(1, 12):  # one of them leads from a task's own directory to the guarded one
        word = f"{'../' * steps}guard/canary"
        assert not roles["filled output"](word), word  # refused before anything runs
    assert len(accepted) > EACH / 4 and stage.statuses["4xx"] > EACH / 4, stage.statuses
    stage.wait()
    expected = {word for _, what, word in accepted if what == "output"}
    made = {str(path.relative_to(cwd)) for path in cwd.rglob("*") if path.is_file()}
    assert made <= expected, sorted(made - expected)[:5]
    assert made, "plain names are brought"
    assert not list(cwd.rglob("*.part"))
    for run, what, word in accepted:
        assert CANARY.encode() not in stage.output(run) + stage.output(run, "err"), (what, word)
        if "filled" in what:
            row = stage.cluster.row(int(run[1:]))
            assert ".." not in word.split("/") and word[:1] != "/", word
            bad = word[:1] in ("/", "-", "") or {"..", ".", ""} & set(word.split("/"))
            assert row["state"] == "failed", (what, word, row)
            assert "output_refused" in row["message"] or not bad, (what, word, row["message"])
        if "environment" in what:
            assert b"SHOAL_TEST" not in stage.output(run)
    assert list(stage.cluster.pilots[0].work.glob("*/tasks/*")) == [], "own directories are gone"
    for run, _, _ in [one for one in accepted if not one[2].isprintable()][:4]:
        stage.check_terminal("show", f"{run}.1")
        stage.check_terminal("why", run)
    print(f"\npaths: {EACH}, {dict(stage.statuses)}, {len(accepted)} runs, {len(made)} outputs")


def _raw_url(stage: Stage, word: str) -> str:
    """A path as it stands, past every client library."""
    for path in (f"/v1/runs/{word}", f"/v1/tasks/{word}/logs", f"/v1/blobs/sha256:{word}", f"/{word}"):
        line = path.encode("utf-8", "surrogatepass")
        head = f" HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {stage.tokens[0]}\r\nConnection: close\r\n\r\n"
        with connect(stage.url) as link:
            with contextlib.suppress(ConnectionError):
                link.sendall(b"GET " + line + head.encode())
            found = b""
            with contextlib.suppress(ConnectionError):
                while piece := link.recv(65_536):
                    found += piece
        if not found:
            continue  # more than the server cares to read
        top, _, raw = found.partition(b"\r\n\r\n")
        lines = top.decode("latin-1").split("\r\n")
        headers = [(name, value) for name, _, value in (text.partition(": ") for text in lines[1:])]
        status = int(lines[0].split()[1])
        if status == 429:
            time.sleep(0.2)
            continue
        stage.judge(f"GET {path[:60]!r}", status, headers, raw.partition(b"\r\nHTTP/1.1 ")[0])
        assert status in (200, 400, 404, 405, 414, 422) if word not in ("",) else status < 500, (path, status)
    return ""


def _quoted(stage: Stage, word: str) -> str:
    """The same as parameters, properly quoted."""
    from urllib.parse import quote

    text = quote(word.encode("utf-8", "surrogatepass"), safe="")
    for path in (f"/v1/tasks/r1.1/logs?stream={text}", f"/v1/tasks/r1.1/logs?attempt={text}", f"/v1/why/{text}",
                 f"/v1/events?run={text}", f"/v1/runs/{text}", f"/v1/blobs/{text}", f"/v1/blobs/sha256:{text}"):  # fmt: skip
        status, _ = stage.ask("GET", path)
        assert status in (200, 400, 404, 422), (path, status)
    status, _ = stage.ask("PUT", f"/v1/blobs/sha256:{text}", {})
    assert status in (400, 404, 422), status
    return ""


def _enrol(stage: Stage, host: str, tags: Json, **more: Any) -> Json:
    said = {
        "protocol": 4, "version": "0", "host": host, "identity": "emulated", "room": {"cores": 1}, "tags": tags,
        "nonce": hashlib.sha256(f"{host} {tags} {more}".encode("utf-8", "surrogatepass")).hexdigest(), **more,
    }  # fmt: skip
    status, told = stage.ask("POST", "/v1/pilots", said, token=stage.enrol)
    return {"status": status, **told}


def _speak(stage: Stage, enrolled: Json, word: str) -> str:
    """A pilot that names attempts, streams and pilots in its own way."""
    exchange = {
        "protocol": 4, "pilot": enrolled["pilot"], "session": enrolled["session"], "seq": stage.asked, "ack": 0,
        "free": {"cores": 0}, "nonce": f"n{stage.asked}",
    }  # fmt: skip
    path = f"/v1/pilots/{enrolled['pilot']}/exchange"
    for more in (
        {"tails": [{"attempt": word, "stream": "stdout", "text": "written"}]},
        {"tails": [{"attempt": "r1.1#1@1", "stream": word, "text": "written"}]},
        {"held": [{"attempt": word, "stage": "running"}]},
        {"reports": [{"attempt": word, "outcome": "succeeded"}]},
        {"pilot": word},
    ):
        said = {**exchange, **more, "leaving": ""}
        status, told = stage.ask("POST", path, said, token=enrolled["session"])
        assert status in (200, 400, 401, 403, 409, 422), (more, told)
        exchange["seq"] = int(exchange["seq"]) + 1
        exchange["nonce"] = f"n{exchange['seq']}"
    return ""


def test_hostile_values_reach_the_command_as_they_are_and_no_shell(stage: Stage) -> None:
    """Parameters, variables, arguments; and tags, hosts, sites, notes, signals, filters, quantities."""
    accepted: list[tuple[str, str, str]] = []
    printf = ["printf", "%s"]
    roles: dict[str, Callable[[str], str]] = {
        "param": lambda w: stage.submit(tasks=[{"command": [*printf, "{x}"], "params": {"x": [w]}}]),
        "table": lambda w: stage.submit(tasks=[{"command": [*printf, "{x}"], "params": [{"x": w}]}]),
        "argument": lambda w: stage.submit(tasks=[{"command": [*printf, w]}]),
        "variable": lambda w: stage.submit(tasks=[{"command": ["sh", "-c", 'printf %s "$V"'], "env": {"V": w}}]),
        "filled variable": lambda w: stage.submit(
            tasks=[{"shell": 'printf %s "$V"', "env": {"V": "{x}"}, "params": {"x": [w]}}]
        ),
        "submitter's": lambda w: stage.submit(environment={"V": w, "PATH": "/usr/bin:/bin"}, tasks=[{"shell": 'printf %s "$V"'}]),
        "host": lambda w: _tell_host(stage, w),
        "request": lambda w: _tell_request(stage, w),
    }  # fmt: skip
    for at, word in enumerate(words(stage.guard, "values")):
        what = list(roles)[at % len(roles)]
        run = roles[what](word)
        if run:
            accepted.append((run, what, word))
    assert len(accepted) > EACH / 2 and stage.statuses["4xx"] > EACH / 10, stage.statuses
    good = [word for _, what, word in accepted if what == "param"]
    batch = stage.submit(tasks=[{"command": ["printf", "%s\n", "{x}"], "params": {"x": good[:100]}}])
    stage.wait()
    wrong = [
        (what, word, got)
        for run, what, word in accepted
        if (got := stage.output(run)) != word.encode() and stage.cluster.row(int(run[1:]))["state"] == "succeeded"
    ]
    assert not wrong, wrong[:3]
    states = Counter(stage.cluster.row(int(run[1:]))["state"] for run, _, _ in accepted)
    assert states["succeeded"] == len(accepted), states
    for command in (["results", batch], ["ps", batch], ["show", batch], ["pilots", "--all"], ["hosts"], ["token", "list"],
                    ["ps"], ["audit"]):  # fmt: skip
        stage.check_terminal(*command)
    odd = [run for run, _, word in accepted if not word.isprintable() and "\0" not in word]
    for run in odd[:4]:
        stage.check_terminal("logs", f"{run}.1")
        stage.check_terminal("results", run)
    assert len(odd) > EACH / 10
    print(f"\nvalues: {EACH}, {dict(stage.statuses)}, {len(accepted)} tasks printed theirs byte for byte")


def _tell_host(stage: Stage, word: str) -> str:
    """A pilot that describes its host so."""
    for told in (
        _enrol(stage, word, {"tag": word}), _enrol(stage, "h", {word: word}), _enrol(stage, "h", {}, version=word),
        _enrol(stage, "h", {}, identity=word, unfit=[word]),
    ):  # fmt: skip
        assert told["status"] in (200, 400, 422), told
    assert _enrol(stage, "h", {}, site=word)["status"] in ((200,) if word in ("", "box") else (400, 403))
    return ""


def _tell_request(stage: Stage, word: str) -> str:
    """Everything else that takes a word, a quarter of it for each."""
    requests: tuple[tuple[str, Json], ...] = (
        ("/v1/tokens", {"kind": "submit", "note": word}),
        ("/v1/tokens", {"kind": word}),
        ("/v1/tokens", {"kind": "submit", "expires": word}),
        ("/v1/tokens", {"kind": "submit", "scopes": [word]}),
        ("/v1/tokens/revoke", {"site": word or "x"}),
        ("/v1/tokens/revoke", {"tokens": [word]}),
        ("/v1/signal", {"targets": ["r1"], "signal": word}),
        ("/v1/signal", {"targets": [word], "signal": "USR1"}),
        ("/v1/cancel", {"targets": [word]}),
        ("/v1/retry", {"targets": ["r1"], "where": {"message": word, "host": word, "site": word}}),
        ("/v1/retry", {"targets": ["r1"], "where": {"cause": word}}),
        ("/v1/pilots/drain", {"pilots": [word]}),
        ("/v1/prune", {"older_than": word, "keep": "2G"}),
        ("/v1/runs", {"tasks": [{"command": ["true"], "time": word}]}),
        ("/v1/runs", {"tasks": [{"command": ["true"], "memory": word}]}),
        ("/v1/runs", {"tasks": [{"command": ["true"], "array": word}]}),
        ("/v1/runs", {"tasks": [{"command": ["true"], "env": {word: "x"}}]}),
        ("/v1/runs", {"tasks": [{"command": ["true"], word: "x"}]}),
        ("/v1/runs", {"tasks": [{"command": ["true"], "after": [word]}]}),
        ("/v1/runs", {"tasks": [{"command": ["true"], "params": {word: "1"}}]}),
    )
    for path, body in requests[stage.asked % 4 :: 4]:
        status, told = stage.ask("POST", path, body)
        assert status in (200, 400, 403, 404, 413, 422), (path, body, told)
    return ""
