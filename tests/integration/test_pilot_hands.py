"""A real pilot from the built zip against a tiny server: processes, signals, files and outages as they happen."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from shoal.pilot.build_zip import build
from shoal.wire import codec
from shoal.wire.batches import report_of
from shoal.wire.messages import Capacity, Exchange, Lease, Order, Register, Registered, Reply, Report, Verdict
from tests.unix_http import UnixHTTPServer

pytestmark = pytest.mark.integration

TOKEN = "token-of-the-test"
OLDEST = next(iter(sorted((Path.home() / ".pyenv" / "versions").glob("3.9*/bin/python"))), None)
TIMES = Registered(
    "p0001", "s1", 1, beat=1.0, lease=10.0, hold=1.0, kill_after=60.0, grace=0.5, idle_end=30.0, spool_end=60.0
)


class Server:
    """Just enough of a server: it hands out what is put into `leases` and remembers what it is told."""

    def __init__(self, state: Path) -> None:
        self.file = state / "server.json"
        self.times = TIMES
        self.changed = threading.Condition()
        self.leases: list[Lease] = []
        self.orders: list[Order] = []
        self.registered: list[Register] = []
        self.reports: dict[str, Report] = {}
        self.exchanges: list[Exchange] = []
        self.texts: dict[tuple[str, str], str] = {}
        self.replies: dict[int, Reply] = {}
        self.arrivals: list[int] = []  # every seq that came in, repeats too
        self.lose_reply_with: Callable[[Exchange], bool] = lambda exchange: False
        self.disown = False
        self.blobs: dict[str, bytes] = {}
        self.asked: list[str] = []  # blobs that were put or got, with the run they were put for
        self.token = TOKEN
        self.http: UnixHTTPServer | None = None

    def open(self) -> None:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if outer.http is not self.server:
                    self.hang_up()
                elif self.headers["Authorization"] not in outer.bearers(self.path):
                    self.answer(401, {"error": {"code": "unauthorised", "message": "the token is wrong"}})
                elif self.path == "/v1/pilots":
                    self.answer(200, codec.encode(outer.register(codec.decode(Register, body))))
                else:
                    self.exchange(codec.decode(Exchange, body))

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                name = self.path.rpartition("/")[2]
                outer.asked.append(f"PUT {name}")
                outer.blobs[name.partition("?")[0]] = body
                self.answer(200, {})

            def do_GET(self) -> None:
                name = self.path.rpartition("/")[2]
                outer.asked.append(f"GET {name}")
                if name in outer.blobs:
                    self.answer(200, outer.blobs[name])
                else:
                    self.answer(404, {"error": {"code": "unknown_blob", "message": "there is no such blob"}})

            def exchange(self, exchange: Exchange, itself: bool = False) -> None:
                reply = outer.exchange(exchange)
                if isinstance(reply, str):
                    self.answer(409, {"error": {"code": reply, "message": reply}})
                elif outer.http is not self.server or outer.lose_reply_with(exchange):
                    self.hang_up()
                else:
                    self.answer(200, codec.encode(reply))

            def hang_up(self) -> None:
                self.close_connection = True
                self.connection.close()

            def answer(self, status: int, body: Any) -> None:
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            def finish(self) -> None:
                with contextlib.suppress(OSError, ValueError):
                    super().finish()

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Http(UnixHTTPServer):
            block_on_close = False

            def handle_error(self, request: object, client_address: object) -> None:
                pass

        self.http = Http(Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps({"url": self.http.url, "token": self.token, "pid": os.getpid()}))
        part.chmod(0o600)
        part.replace(self.file)

    def close(self) -> None:
        """No more answers, on open connections neither."""
        http, self.http = self.http, None
        if http is not None:
            http.shutdown()
            http.server_close()
        with self.changed:
            self.changed.notify_all()

    def bearers(self, path: str) -> list[str]:
        """Who may ask for this: a pilot under a session, and a new one with the token."""
        sessions = [f"Bearer s{number}" for number in range(1, len(self.registered) + 1)]
        return [*sessions, f"Bearer {self.token}"] if path == "/v1/pilots" else sessions

    def register(self, message: Register) -> Registered:
        with self.changed:
            self.registered.append(message)
            self.disown = False
            self.changed.notify_all()
            return replace(self.times, session=f"s{len(self.registered)}")

    def exchange(self, said: Exchange) -> Reply | str:
        with self.changed:
            self.arrivals.append(said.seq)
            self.changed.notify_all()
            if self.disown:
                return "re_enrol"
            if said.seq in self.replies:
                return self.replies[said.seq]
            self.exchanges.append(said)
            for report in said.reports:
                self.reports[report.attempt] = report
            for batch in said.batches:
                reports = [report_of(batch, at) for at in range(batch.count)]
                self.reports.update((report.attempt, report) for report in reports)
            for tail in said.tails:
                copy = self.texts.get((tail.attempt, tail.stream), "").encode()
                assert len(copy) >= tail.offset, "a piece is missing"
                self.texts[tail.attempt, tail.stream] = (copy[: tail.offset] + tail.text.encode()).decode()
            self.changed.notify_all()
            news = said.reports or said.batches or said.tails or (said.leaving and not said.held)
            self.changed.wait_for(
                lambda: news or self.leases or self.orders or self.arrivals[-1] != said.seq or self.http is None,
                self.times.hold,
            )
            leases: list[Lease] = []
            if self.arrivals[-1] == said.seq:
                leases, self.leases = self.leases, []
            orders, self.orders = self.orders, []
            verdicts = [Verdict(report.attempt, "recorded") for report in said.reports]
            verdicts += [Verdict(batch.attempt, "recorded", batch.count) for batch in said.batches]
            reply = self.replies[said.seq] = Reply(said.seq, 1, leases, orders, verdicts, hold=self.times.hold)
            return reply

    def give(self, *leases: Lease) -> None:
        with self.changed:
            self.leases += leases
            self.changed.notify_all()

    def order(self, *orders: Order) -> None:
        with self.changed:
            self.orders += orders
            self.changed.notify_all()

    def wait(self, what: Callable[[], object], seconds: float = 45.0) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: bool(what()), seconds), "did not happen in time"

    def report(self, lease: Lease) -> Report:
        self.wait(lambda: lease.attempt in self.reports)
        return self.reports[lease.attempt]

    def run(self, lease: Lease) -> Report:
        self.give(lease)
        return self.report(lease)

    def stage_of(self, lease: Lease) -> str:
        for exchange in reversed(self.exchanges):
            for held in exchange.held:
                if held.attempt == lease.attempt:
                    return held.stage
        return ""


class World:
    """A server, a submitter's directory, and the pilots of one test."""

    def __init__(self, root: Path, pyz: Path) -> None:
        self.root, self.pyz = root, pyz
        self.home, self.logs, self.tmp = root / "home", root / "logs", root / "tmp"
        for folder in (self.home, self.logs, self.tmp, root / "state"):
            folder.mkdir()
        self.env_file = root / "state" / "env.json"
        self.env_file.write_text(json.dumps({"PATH": os.environ["PATH"], "FRUIT": "apple", "SHOAL_TOKEN": "secret"}))
        (self.logs / "mark").write_text("x")
        self.server = Server(root / "state")
        self.server.times = replace(TIMES, log_dir=str(self.logs), log_mark="mark")
        self.mark = f"MARK_{uuid.uuid4().hex}"
        self.pilots: list[subprocess.Popen[str]] = []
        self.guards: list[int] = []
        self._element = 0

    def lease(self, *command: str, **more: Any) -> Lease:
        self._element += 1
        env = {self.mark: "1", **more.pop("env", {})}
        room = more.pop("room", Capacity(1))
        return Lease(
            f"r1.{self._element}#1@1", room, more.pop("rerun", "safe"), list(command), cwd=str(self.home),
            env_file=str(self.env_file), env=env, **more,
        )  # fmt: skip

    def pilot(self, *words: str, python: str = sys.executable) -> subprocess.Popen[str]:
        started = subprocess.Popen(
            [
                python,
                "-I",
                str(self.pyz),
                "--server-file",
                str(self.server.file),
                "--cores",
                "2",
                "--cache-dir",
                str(self.root / "cache"),
                *words,
            ],
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), "TMPDIR": str(self.tmp), "SHOAL_X": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pilots.append(started)
        return started

    def guards_of(self, pilot: subprocess.Popen[str]) -> list[int]:
        text = Path(f"/proc/{pilot.pid}/task/{pilot.pid}/children").read_text()
        guards = [int(word) for word in text.split()]
        assert guards and {Path(f"/proc/{guard}/comm").read_text() for guard in guards} == {"shoal-guard\n"}
        self.guards += guards
        return guards

    def guard_of(self, pilot: subprocess.Popen[str]) -> int:
        """The first: it has all that is alone on its pilot, or not plain."""
        return self.guards_of(pilot)[0]

    def processes(self) -> list[int]:
        """Every living process that a task of this test started, directly or not."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                with contextlib.suppress(OSError):
                    zombie = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
                    if not zombie and self.mark.encode() in (folder / "environ").read_bytes():
                        found.append(int(folder.name))
        return found

    def until(self, what: Callable[[], object], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end, "did not happen in time"
            time.sleep(0.02)

    def log(self, lease: Lease, stream: str = "out") -> Path:
        number = lease.attempt.split(".")[1].split("#")[0]
        return self.logs / "r1" / "0" / f"{number}.1.{stream}"

    def end(self, pilot: subprocess.Popen[str], code: int = 0) -> str:
        """Ask a pilot to end, and expect it to leave nothing behind. Another code than 0 is an end of its own accord."""
        if pilot.poll() is None and not code:
            pilot.send_signal(signal.SIGTERM)
        out, err = pilot.communicate(timeout=60)
        assert pilot.returncode == code, (out, err)
        assert TOKEN not in out + err
        assert self.processes() == []
        assert list(self.tmp.glob("*/*")) == []
        return out


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zip") / "pilot.pyz"
    build(path)
    return path


@pytest.fixture
def world(tmp_path: Path, pyz: Path) -> Iterator[World]:
    world = World(tmp_path, pyz)
    world.server.open()
    yield world
    for guard in world.guards:
        with contextlib.suppress(OSError):  # only if it is still this guard
            if Path(f"/proc/{guard}/comm").read_text() == "shoal-guard\n":
                os.kill(guard, signal.SIGCONT)
    for pilot in world.pilots:
        if pilot.poll() is None:
            pilot.send_signal(signal.SIGCONT)
            pilot.kill()
        pilot.communicate()
    for pid in world.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    world.server.close()


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


# --- commands and their surroundings ---


@pytest.mark.parametrize("version", ["this", "oldest"])
def test_a_command_runs_where_and_as_its_submitter_would(world: World, version: str) -> None:
    if version == "oldest" and OLDEST is None:
        pytest.skip("no Python 3.9 in ~/.pyenv: the pilot was NOT run on the oldest Python")
    pilot = world.pilot(python=sys.executable if version == "this" else str(OLDEST))
    (world.home / "in.txt").write_text("from a file\n")
    lease = world.lease(
        *python(
            "import os, sys, json; print(sys.stdin.read(), end=''); print(json.dumps([os.getcwd(), dict(os.environ)]))"
        ),
        stdin="in.txt",
        env={"SHOAL_SEED": "7"},
        room=Capacity(2),
    )
    report = world.server.run(lease)
    assert (report.outcome, report.exit_code, report.cause) == ("succeeded", 0, "")
    assert report.started is not None and abs(report.started - time.time()) < 60
    assert report.duration > 0 and report.cpu > 0 and report.max_rss > 1_000_000
    out = world.log(lease).read_text().splitlines()
    assert out[0] == "from a file"
    cwd, env = json.loads(out[1])
    assert report.last_line == out[1][-4096:]
    assert cwd == str(world.home)
    assert env["FRUIT"] == "apple" and env["SHOAL_SEED"] == "7"
    assert (env["SHOAL_RUN"], env["SHOAL_TASK"], env["SHOAL_ATTEMPT"]) == ("r1", "r1.1", "r1.1#1")
    assert env["OMP_NUM_THREADS"] == "2"
    assert not {"SHOAL_TOKEN", "SHOAL_X"} & set(env)
    assert not world.log(lease, "err").exists()
    assert world.log(lease).stat().st_mode & 0o777 == 0o600
    out_text = world.end(pilot)
    assert "joined unix:/" in out_text and "with 2 slots" in out_text
    assert "pilot ended: SIGTERM received" in out_text
    assert any(said.leaving and said.held == [] for said in world.server.exchanges[-2:])  # two may be under way


def test_an_own_directory_gets_inputs_and_gives_outputs_when_the_server_agreed(world: World) -> None:
    pilot = world.pilot()
    (world.home / "data").mkdir()
    (world.home / "data" / "in").write_text("3")
    lease = world.lease(
        own=True,
        shell="test $(cat data/in) = 3 && mkdir deep && echo 4 > deep/out && echo x > other && pwd",
        inputs=["data/in"],
        outputs=["deep/out"],
    )
    report = world.server.run(lease)
    assert report.outcome == "succeeded", report
    assert report.new_files == ["other"]
    assert report.last_line.startswith(str(world.tmp))
    world.until(lambda: (world.home / "deep" / "out").exists())
    assert (world.home / "deep" / "out").read_text() == "4\n"
    assert sorted(path.name for path in (world.home / "deep").iterdir()) == ["out"]
    missing = world.server.run(world.lease("true", own=True, inputs=["nope"]))
    assert (missing.outcome, missing.cause) == ("failed", "stage_in") and "nope" in missing.message
    absent = world.server.run(world.lease("true", own=True, outputs=["never"]))
    assert (absent.outcome, absent.cause) == ("failed", "output_missing") and "never" in absent.message
    absent = world.server.run(world.lease("true", outputs=["never"]))
    assert (absent.outcome, absent.cause) == ("failed", "output_missing")
    linked = world.server.run(world.lease(own=True, shell="ln -s /etc/passwd out", outputs=["out"]))
    assert (linked.outcome, linked.cause) == ("failed", "stage_out") and "output_refused" in linked.message
    world.end(pilot)


def test_ends_are_told_as_they_were(world: World) -> None:
    pilot = world.pilot()
    server = world.server
    wrong = server.run(world.lease("sh", "-c", "echo so; echo why >&2; exit 3"))
    assert (wrong.outcome, wrong.cause, wrong.exit_code, wrong.message) == ("failed", "task_error", 3, "exit code 3")
    assert (wrong.last_line, wrong.stderr_tail) == ("so", "why\n")
    crash = server.run(world.lease("sh", "-c", "kill -SEGV $$"))
    assert (crash.cause, crash.signal) == ("signal", signal.SIGSEGV) and "SIGSEGV" in crash.message
    unknown = server.run(world.lease("no-such-program", "x"))
    assert (unknown.cause, unknown.exit_code, unknown.message) == (
        "task_error",
        127,
        "command not found: no-such-program",
    )
    assert "command not found: no-such-program" in unknown.stderr_tail
    (world.home / "plain").write_text("text")
    barred = server.run(world.lease("./plain"))
    assert (barred.cause, barred.exit_code) == ("task_error", 126) and "not executable" in barred.message
    lost = server.run(replace(world.lease("true"), cwd=str(world.home / "gone")))
    assert (lost.outcome, lost.cause) == ("failed", "task_error") and str(world.home / "gone") in lost.message
    cancelled = world.lease("sleep", "60")
    server.give(cancelled)
    server.wait(lambda: server.stage_of(cancelled) == "running")
    server.order(Order("cancel", cancelled.attempt, "no longer wanted"))
    told = server.report(cancelled)
    assert (told.outcome, told.cause, told.message) == ("cancelled", "cancelled", "no longer wanted")
    world.end(pilot)


def test_a_stream_is_seen_as_it_is_written_while_somebody_watches(world: World) -> None:
    world.server.times = TIMES
    server, pilot = world.server, world.pilot()
    lease = world.lease("sh", "-c", "echo one; while ! test -e go; do sleep 0.02; done; echo two; sleep 600")
    server.give(lease)
    server.wait(lambda: server.stage_of(lease) == "running")
    server.order(Order("tail", lease.attempt, stream="stdout"))
    server.wait(lambda: server.texts.get((lease.attempt, "stdout")) == "one\n")
    (world.home / "go").touch()
    server.wait(lambda: server.texts[lease.attempt, "stdout"] == "one\ntwo\n")
    server.order(Order("cancel", lease.attempt, "seen enough"))
    server.report(lease)
    world.end(pilot)


def test_a_long_stream_arrives_whole_where_the_server_cannot_read_it(world: World) -> None:
    world.server.times = TIMES
    pilot = world.pilot()
    short = world.lease(*python("for n in range(100_000): print(n)"))
    long = world.lease(*python("for n in range(1_000_000): print(n)"))
    texts = world.server.texts
    for lease, size in ((short, 588_890), (long, 6_888_890)):
        assert world.server.run(lease).out == size
        world.server.wait(partial(lambda key, size: len(texts[key]) >= size, (lease.attempt, "stdout"), size))
    assert world.server.texts[short.attempt, "stdout"] == "".join(f"{n}\n" for n in range(100_000))
    assert world.server.texts[long.attempt, "stdout"] == "".join(f"{n}\n" for n in range(1_000_000))
    world.end(pilot)


def test_a_signal_reaches_a_running_task(world: World) -> None:
    server, pilot = world.server, world.pilot()
    lease = world.lease("sh", "-c", "trap 'echo got; exit 7' USR1; touch ready; while :; do sleep 0.02; done")
    server.give(lease)
    world.until((world.home / "ready").exists)
    server.order(Order("signal", lease.attempt, signal=int(signal.SIGUSR1)))
    assert server.report(lease).exit_code == 7
    assert world.log(lease).read_text() == "got\n"
    world.end(pilot)


def test_streams_go_as_tails_where_the_server_cannot_read_them(world: World) -> None:
    world.server.times = TIMES
    pilot = world.pilot()
    lease = world.lease("sh", "-c", "echo out; echo err >&2")
    world.server.run(lease)
    world.server.wait(lambda: len(world.server.texts) == 2)
    assert world.server.texts == {(lease.attempt, "stdout"): "out\n", (lease.attempt, "stderr"): "err\n"}
    world.until(lambda: not list(world.tmp.glob("*/*/logs/r1/0/*")))
    world.end(pilot)


# --- limits ---


def test_a_time_limit_ends_a_whole_tree_that_does_not_want_to(world: World) -> None:
    pilot = world.pilot()
    stubborn = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def off(double):
    if os.fork() == 0:
        os.setsid()
        if double and os.fork():
            os._exit(0)
        time.sleep(600)
off(False); off(True)
os.execve(sys.executable, [sys.executable, "-c", '''
import os, time
if os.fork() == 0:
    os.setsid()
    os.execve("/bin/sleep", ["sleep", "600"], {})
time.sleep(600)'''], dict(os.environ))
"""
    lease = world.lease(*python(stubborn), time=1.0)
    world.server.give(lease)
    world.until(lambda: len(world.processes()) >= 3)
    report = world.server.report(lease)
    assert (report.outcome, report.cause) == ("failed", "over_time") and "1 s" in report.message
    assert 1.4 < report.duration < 4
    assert world.processes() == []
    for guard in world.guards_of(pilot):
        assert Path(f"/proc/{guard}/task/{guard}/children").read_text().split() == []
    world.end(pilot)


def test_what_a_task_leaves_behind_ends_with_it(world: World) -> None:
    pilot = world.pilot()
    report = world.server.run(
        world.lease("sh", "-c", "setsid sleep 600 & sleep 600 & (setsid setsid sleep 600 &) ; exit 0")
    )
    assert report.outcome == "succeeded"
    assert world.processes() == []
    world.end(pilot)


def test_a_task_that_is_asked_to_end_may_use_its_grace(world: World) -> None:
    world.server.times = replace(world.server.times, grace=10.0)
    pilot = world.pilot()
    child = "trap 'sleep 0.3; echo saved > kept; exit 0' TERM; touch ready; while :; do sleep 0.05; done"
    lease = world.lease("sh", "-c", f'sh -c "{child}"; true')
    world.server.give(lease)
    world.until(lambda: (world.home / "ready").exists())
    world.server.wait(lambda: world.server.stage_of(lease) == "running")
    world.server.order(Order("cancel", lease.attempt, "enough"))
    assert world.server.report(lease).outcome == "cancelled"
    assert (world.home / "kept").read_text() == "saved\n"
    world.end(pilot)


def test_a_memory_limit_kills_the_one_that_passes_it(world: World) -> None:
    pilot = world.pilot()
    greedy = "import time; x = bytearray(300 << 20); x[::4096] = b'1' * len(x[::4096]); time.sleep(60)"
    lease = world.lease("sh", "-c", f'"{sys.executable}" -c "{greedy}"; true', room=Capacity(1, memory=100 << 20))
    modest = world.lease("sleep", "1", room=Capacity(1, memory=100 << 20))
    world.server.give(lease, modest)
    report = world.server.report(lease)
    assert (report.outcome, report.cause) == ("failed", "out_of_memory"), report
    assert report.max_rss >= 100 << 20 and "100 MiB" in report.message
    assert world.server.report(modest).outcome == "succeeded"
    world.end(pilot)


def test_pages_shared_by_forked_processes_count_once(world: World) -> None:
    pilot = world.pilot()
    sharing = """
import os, time
x = bytearray(60 << 20)
x[::4096] = b'1' * len(x[::4096])
for _ in range(4):
    if os.fork() == 0:
        time.sleep(1.5); os._exit(0)
for _ in range(4):
    os.wait()
"""
    report = world.server.run(world.lease(*python(sharing), room=Capacity(1, memory=150 << 20)))
    assert report.outcome == "succeeded", report
    world.end(pilot)


def test_fifty_megabytes_of_output_are_bounded_and_hurt_nobody(world: World) -> None:
    pilot = world.pilot()
    chatty = """
import sys
print("first")
for i in range(500):
    sys.stdout.write("x" * 99 + "\\n" + "y" * 99_999 + "\\n")
print("last")
"""
    lease = world.lease(*python(chatty), max_output=1 << 20)
    report = world.server.run(lease)
    assert (report.outcome, report.last_line) == ("succeeded", "last")
    assert "bytes of its stdout were left out" in report.message
    text = world.log(lease).read_text()
    assert len(text) == report.out <= 1 << 20
    assert text.startswith("first\n") and text.endswith("last\n")
    (mark,) = [line for line in text.splitlines() if "left out by shoal" in line]
    assert 40_000_000 < int(mark.split()[1]) <= 50_050_012
    world.end(pilot)


# --- the pilot, its guard and the server fall ---


def test_a_killed_pilot_leaves_no_task_running(world: World) -> None:
    pilot = world.pilot()
    lease = world.lease("sh", "-c", "setsid sleep 600 & sleep 600")
    world.server.give(lease)
    world.until(lambda: len(world.processes()) == 3)
    guards = world.guards_of(pilot)
    pilot.kill()
    world.until(lambda: not world.processes())
    world.until(lambda: not any(Path(f"/proc/{guard}").exists() for guard in guards))
    assert list(world.tmp.glob("*/*")) == []


def test_a_stopped_pilot_does_not_keep_an_exclusive_task_alive(world: World) -> None:
    world.server.times = replace(world.server.times, kill_after=2.0)
    pilot = world.pilot()
    exclusive, safe = world.lease("sleep", "600", rerun="exclusive"), world.lease("sleep", "600")
    world.server.give(exclusive, safe)
    world.until(lambda: len(world.processes()) == 2)
    world.server.wait(lambda: world.server.stage_of(exclusive) == "running")
    pilot.send_signal(signal.SIGSTOP)
    world.until(lambda: len(world.processes()) == 1)
    pilot.send_signal(signal.SIGCONT)
    report = world.server.report(exclusive)
    assert (report.outcome, report.cause) == ("returned", "pilot_lost")
    assert safe.attempt not in world.server.reports
    seen = len(world.server.exchanges)
    world.server.wait(lambda: len(world.server.exchanges) > seen + 1)  # contact is fresh again
    pilot.send_signal(signal.SIGTERM)
    world.server.wait(lambda: world.server.exchanges[-1].leaving)
    world.end(pilot)
    assert world.server.reports[safe.attempt].outcome == "returned"


def test_a_stopped_guard_does_not_keep_an_exclusive_task_alive(world: World) -> None:
    world.server.times = replace(world.server.times, kill_after=2.0)
    pilot = world.pilot()
    lease = world.lease("sleep", "600", rerun="exclusive")
    world.server.give(lease)
    world.server.wait(lambda: world.server.stage_of(lease) == "running")
    os.kill(world.guard_of(pilot), signal.SIGSTOP)
    world.server.close()
    world.until(lambda: not world.processes())
    world.server.open()
    assert world.server.report(lease).outcome == "returned"
    world.end(pilot, code=3)


def test_without_its_guard_a_pilot_ends_all_tasks_and_gives_them_back(world: World) -> None:
    pilot = world.pilot()
    first, second = world.lease("sh", "-c", "setsid sleep 600 & sleep 600"), world.lease("sleep", "600")
    third = world.lease("sleep", "600")  # no slot for it: waits in the pilot
    world.server.give(first, second, third)
    world.until(lambda: len(world.processes()) == 4)
    world.server.wait(lambda: world.server.stage_of(second) == "running")
    os.kill(world.guard_of(pilot), signal.SIGKILL)
    for lease in (first, second):
        report = world.server.report(lease)
        assert (report.outcome, report.cause) == ("returned", "host_unfit")
        assert report.started is not None
    waiting = world.server.report(third)
    assert (waiting.outcome, waiting.started) == ("returned", None)
    assert world.processes() == []
    world.end(pilot, code=3)


def test_sigterm_finishes_what_runs_and_returns_what_waits(world: World) -> None:
    pilot = world.pilot()
    running = [world.lease("sh", "-c", "while ! test -e go; do sleep 0.05; done") for _ in range(2)]
    waiting = world.lease("true")
    world.server.give(*running, waiting)
    world.server.wait(lambda: world.server.stage_of(running[1]) == "running")
    pilot.send_signal(signal.SIGTERM)
    assert world.server.report(waiting).outcome == "returned"
    assert pilot.poll() is None
    (world.home / "go").touch()
    assert {world.server.report(lease).outcome for lease in running} == {"succeeded"}
    pilot.wait(60)
    world.end(pilot)


def test_a_second_sigterm_stops_what_runs(world: World) -> None:
    pilot = world.pilot()
    lease = world.lease("sleep", "600")
    world.server.give(lease)
    world.server.wait(lambda: world.server.stage_of(lease) == "running")
    pilot.send_signal(signal.SIGTERM)
    world.server.wait(lambda: world.server.exchanges[-1].leaving)
    world.end(pilot)
    assert world.server.reports[lease.attempt].outcome == "returned"


def test_reports_are_kept_through_an_outage_and_a_move_of_the_server(world: World) -> None:
    pilot = world.pilot()
    lease = world.lease("sleep", "1")
    world.server.give(lease)
    world.server.wait(lambda: world.server.stage_of(lease) == "running")
    world.server.close()
    time.sleep(2)
    assert lease.attempt not in world.server.reports
    world.server.token = "another-token"
    world.server.open()
    assert world.server.report(lease).outcome == "succeeded"
    assert len(world.server.registered) == 1
    world.end(pilot)


def test_an_exchange_whose_reply_was_lost_is_sent_again_under_its_number(world: World) -> None:
    pilot = world.pilot()
    lost: list[int] = []

    def lose(exchange: Exchange) -> bool:
        if exchange.reports and not lost:
            lost.append(exchange.seq)
            return True
        return False

    world.server.lose_reply_with = lose
    lease = world.lease("true")
    world.server.run(lease)
    world.server.wait(lambda: lost and world.server.arrivals.count(lost[0]) == 2)
    assert len([e for e in world.server.exchanges if e.reports]) == 1
    world.end(pilot)


def test_a_disowned_pilot_enrols_again_and_keeps_its_tasks(world: World) -> None:
    pilot = world.pilot()
    lease = world.lease("sh", "-c", "while ! test -e go; do sleep 0.05; done")
    world.server.give(lease)
    world.server.wait(lambda: world.server.stage_of(lease) == "running")
    world.server.disown = True
    world.server.wait(lambda: len(world.server.registered) == 2)
    former = world.server.registered[1].former
    assert former is not None and (former.pilot, former.session) == ("p0001", "s1")
    (world.home / "go").touch()
    assert world.server.report(lease).outcome == "succeeded"
    world.end(pilot)


def test_a_refused_pilot_says_why_and_ends(world: World) -> None:
    world.server.file.write_text(world.server.file.read_text().replace(TOKEN, "stale"))
    pilot = world.pilot()
    out, err = pilot.communicate(timeout=60)
    assert pilot.returncode == 4
    assert "the token is wrong" in out
    assert "stale" not in out + err


# --- unfit hosts ---


def check_unfit(world: World, work_dir: str, words: str) -> None:
    lease = world.lease("touch", str(world.home / "harm"))
    world.server.give(lease)
    pilot = world.pilot("--work-dir", work_dir)
    out, _ = pilot.communicate(timeout=60)
    assert pilot.returncode == 3
    assert words in out
    assert [register.unfit != [] for register in world.server.registered] == [True]
    assert words in world.server.registered[0].unfit[0]
    assert world.server.exchanges == [] and not (world.home / "harm").exists()


def test_a_host_without_a_place_to_work_takes_no_task(world: World) -> None:
    check_unfit(world, "/proc/nowhere", "cannot be made")


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("mount"), reason="only root may mount: noexec was NOT tried")
def test_a_host_whose_work_directory_runs_no_programs_takes_no_task(world: World) -> None:
    place = world.root / "mount"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec,size=128m", "tmpfs", str(place)], check=False).returncode:
        pytest.skip("this container does not allow mounts: noexec was NOT tried")
    try:
        check_unfit(world, str(place), "noexec")
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_work_directory_that_vanishes_makes_the_pilot_leave(world: World) -> None:
    world.server.times = replace(world.server.times, hold=10.0)  # the answer with the next lease finds it gone
    pilot = world.pilot()
    world.server.run(world.lease("true"))
    (work,) = world.tmp.glob("*/*")
    shutil.rmtree(work)
    lease = world.lease("touch", "harm")
    world.server.give(lease)
    # It may notice by the answer to its first report, and be gone before it gets this one.
    world.server.wait(lambda: lease.attempt in world.server.reports or pilot.poll() is not None)
    report = world.server.reports.get(lease.attempt)
    assert report is None or report.outcome == "returned"
    assert not (world.home / "harm").exists()
    world.end(pilot, code=3)


def test_an_idle_pilot_uses_no_processor(world: World) -> None:
    world.server.times = replace(world.server.times, hold=10.0)
    pilot = world.pilot()
    world.server.run(world.lease("true"))
    pids = [pilot.pid, *world.guards_of(pilot)]

    def ticks() -> int:
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
        return sum(int(field[11]) + int(field[12]) for field in fields)

    time.sleep(0.5)
    before = ticks()
    time.sleep(2)
    assert ticks() - before <= 4  # of 200
    world.end(pilot)
