"""Runners as real interpreters under a real guard: calls, crashes, limits, output, blobs, stops."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import math
import os
import pickle
import random
import select
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy
import pytest

import shoal
from shoal.model.blobs import is_digest
from shoal.model.limits import MAX_INLINE
from shoal.pilot.build_zip import build
from shoal.pilot.commands import streams
from shoal.pilot.commands.streams import Bound
from shoal.pilot.functions import runner_process, runners
from shoal.pilot.functions.runners import Runners
from shoal.pilot.guard import proctree
from shoal.pilot.guard.channel import Channel
from shoal.wire import chunk, payload
from shoal.wire.messages import Batch, Capacity, Lease, Report
from tests.unit.blobbed import blob_of

pytestmark = pytest.mark.integration

BE_GUARD = (
    "import socket, sys; from shoal.pilot.guard import guard; guard._be_guard(socket.socket(fileno=int(sys.argv[1])))"
)
OLDEST = next(iter(sorted((Path.home() / ".pyenv" / "versions").glob("3.9*/bin/python"))), None)
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
needs_oldest = pytest.mark.skipif(OLDEST is None, reason="no Python 3.9 on this machine (looked in ~/.pyenv/versions)")

# Functions of this file are sent by value: a runner cannot import it.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def to_text(value: Any) -> str:
    return payload.to_text(cloudpickle.dumps(value))


class World:
    """Runners, the guard under them, and what they told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir(mode=0o700)
        ours, theirs = socket.socketpair()
        argv = [sys.executable, "-c", BE_GUARD, str(theirs.fileno())]
        self.guard = subprocess.Popen(argv, pass_fds=[theirs.fileno()])
        theirs.close()
        self.channel = Channel(ours)
        self.env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        self.told: dict[str, list[tuple[Batch | None, tuple[Report, ...], bool]]] = {}
        self.stores: list[tuple[str, Callable[[str | None, str], None]]] = []
        self.holds_stores = False
        self.fetches: list[str] = []
        self.delay = 0.0
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.count = 0
        self.runners = self.make()

    def make(self, cores: int = 2, work: Path | None = None) -> Runners:
        return Runners(
            send_guard=self.channel.send,
            work=str(work or self.work),
            prepare=lambda lease: ({**self.env, **lease.env}, str(self.folder)),
            fetch=self.fetch,
            store=self.store,
            ended=lambda piece, batch, reports, over: self.told.setdefault(piece, []).append((batch, reports, over)),
            log_paths=lambda attempt: streams.log_paths(str(self.folder / "logs"), attempt),
            grace=0.5,
            cores=cores,
        )

    # --- blobs
    def blob(self, value: Any) -> str:
        data = blob_of(value)
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        (self.folder / digest[7:]).write_bytes(data)
        return digest

    def fetch(self, digest: str, then: Callable[[str | None, str], None]) -> None:
        self.fetches.append(digest)
        path = self.folder / digest[7:]
        found = (str(path), "") if path.exists() else (None, "nobody has it")
        self.later.append((proctree.now() + self.delay, lambda: then(*found)))

    def store(self, path: str, then: Callable[[str | None, str], None]) -> None:
        self.stores.append((path, then))
        if not self.holds_stores:
            self.settle()

    def settle(self, error: str = "") -> None:
        path, then = self.stores.pop()
        data = Path(path).read_bytes()
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        (self.folder / digest[7:]).write_bytes(data)
        then(None if error else digest, error)

    # --- leases
    def lease(self, function: Any, calls: list[Any], **more: Any) -> Lease:
        """`calls` are argument tuples, or payload texts."""
        self.count += 1
        env = {"SHOAL_PYTHONPATH": os.pathsep.join(sys.path), "SHOAL_PYTHON_VERSION": VERSION, **more.pop("env", {})}
        texts = [call if isinstance(call, str) else to_text((call, {})) for call in calls]
        what = function if isinstance(function, str) else to_text(function)
        room = more.pop("room", Capacity(cores=1))
        fields = {"python": sys.executable, "seed": 7, "session": "mine", **more}
        name = f"r{self.count}.11#2@3"
        return Lease(name, room, "safe", function=what, calls=texts, count=len(texts), env=env, **fields)

    # --- life
    def turn(self, wait: float = 0.2) -> None:
        due = self.runners.deadline()
        times = [wait, *(at - proctree.now() for at, _ in self.later)]
        if due is not None:
            times.append(due - proctree.now())
        ready, _, _ = select.select([self.runners.fileno(), self.channel.fileno()], [], [], max(0.0, min(times)))
        if self.runners.fileno() in ready:
            self.runners.receive()
        if self.channel.fileno() in ready:
            for news in self.channel.receive():
                assert self.runners.hear_guard(news)
        now = proctree.now()
        due_now, self.later = [w for at, w in self.later if at <= now], [x for x in self.later if x[0] > now]
        for work in due_now:
            work()
        self.runners.tick(proctree.now())

    def until(self, what: Callable[[], object], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end, self.told
            self.turn()

    def is_over(self, lease: Lease) -> bool:
        return any(over for _, _, over in self.told.get(lease.attempt, []))

    def finish(self, lease: Lease, seconds: float = 60.0) -> list[Report]:
        """What was told of a lease, call by call, once it is over."""
        self.until(lambda: self.is_over(lease), seconds)
        return self.calls(lease)

    def calls(self, lease: Lease) -> list[Report]:
        found: list[Report] = []
        told = self.told.get(lease.attempt, [])
        for batch, reports, over in told:
            assert not over or (batch, reports, over) == told[-1]
            if batch is not None:
                found += spread(batch)
            found += reports
        first = 11
        for at, report in enumerate(found):
            assert report.attempt == lease.attempt.replace(".11#", f".{first + at}#"), "not in order"
        return found

    def run(self, function: Any, calls: list[Any], **more: Any) -> list[Report]:
        lease = self.lease(function, calls, **more)
        self.runners.start(lease)
        return self.finish(lease)

    def value(self, report: Report) -> Any:
        if is_digest(report.result):
            return payload.load((self.folder / report.result[7:]).read_bytes())
        return pickle.loads(payload.of_text(report.result))

    def values(self, function: Any, calls: list[Any], **more: Any) -> list[Any]:
        reports = self.run(function, calls, **more)
        assert [report.outcome for report in reports] == ["succeeded"] * len(calls), reports
        return [self.value(report) for report in reports]

    def log(self, report: Report, stream: int = 0) -> str:
        path = Path(streams.log_paths(str(self.folder / "logs"), report.attempt)[stream])
        return path.read_text() if path.exists() else ""

    def processes(self) -> list[int]:
        return [pid for pid in proctree.children(self.guard.pid) if not proctree.is_zombie(pid)]

    def close(self) -> None:
        self.runners.close()
        self.channel.close()
        try:
            assert self.guard.wait(60) == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                self.guard.kill()
            self.guard.wait()


def spread(batch: Batch) -> list[Report]:
    first, rest = batch.attempt.split("#")
    run, element = first.split(".")

    def column(values: list[Any], at: int, empty: Any) -> Any:
        assert len(values) in (0, batch.count)
        return values[at] if values else empty

    return [
        Report(
            f"{run}.{int(element) + at}#{rest}",
            "succeeded",
            started=batch.started[at],
            duration=batch.duration[at],
            cpu=batch.cpu[at],
            max_rss=batch.max_rss[at],
            last_line=column(batch.last_line, at, ""),
            result=batch.result[at],
            out=column(batch.out, at, 0),
            err=column(batch.err, at, 0),
        )
        for at in range(batch.count)
    ]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


# --- calls
def test_calls_of_a_piece_come_back_in_order_as_batches(world: World) -> None:
    lease = world.lease(lambda x, y=0: (x, y), [(1,), to_text(((2,), {"y": 5})), (3,)])
    before = time.time()
    world.runners.start(lease)
    reports = world.finish(lease)
    assert [world.value(report) for report in reports] == [(1, 0), (2, 5), (3, 0)]
    # On a busy machine there may be more words: after 50 ms a runner tells what it has so far.
    told = world.told[lease.attempt]
    assert sum(batch.count for batch, _, _ in told if batch is not None) == 3 and not any(said for _, said, _ in told)
    for report in reports:
        assert before < report.started < time.time()  # type: ignore[operator]
        assert 0 < report.duration < 5 and 0 < report.cpu < 5 and report.max_rss > 1 << 20
        assert (report.out, report.err, report.last_line) == (0, 0, "")


def test_calls_that_are_reported_before_their_piece_ends_say_what_memory_they_took(world: World) -> None:
    reports = world.run(time.sleep, [(0.0,), (0.3,)])
    assert [report.max_rss > 1 << 20 for report in reports] == [True, True]


def test_a_runner_is_kept_for_the_next_piece_of_its_kind(world: World) -> None:
    first = world.values(os.getpid, [(), ()])
    assert first[0] == first[1] == world.values(os.getpid, [()])[0]
    assert world.values(os.getpid, [()], env={"OMP_NUM_THREADS": "3"}) != first[:1]
    assert world.values(os.getpid, [()], room=Capacity(cores=1, memory=1 << 30)) != first[:1]
    world.until(lambda: len(world.processes()) <= 3)  # two, and the spare one


def test_runners_of_two_pieces_work_at_the_same_time(world: World) -> None:
    def nap() -> int:
        time.sleep(0.3)
        return os.getpid()

    world.values(os.getpid, [()])
    leases = [world.lease(nap, [()]) for _ in range(2)]
    for lease in leases:
        world.runners.start(lease)
    pids = {world.value(world.finish(lease)[0]) for lease in leases}
    assert len(pids) == 2


def test_each_call_sees_its_own_task_in_the_environment(world: World) -> None:
    def see() -> list[str]:
        names = ("RUN", "TASK", "ATTEMPT", "SEED", "INDEX")
        child = subprocess.run(["sh", "-c", "echo $SHOAL_TASK"], capture_output=True, text=True, check=True)
        return [*(os.environ["SHOAL_" + name] for name in names), child.stdout.strip(), os.getcwd()]

    seen = world.values(see, [(), ()], params=[{"i": 5}, {"i": 9}])
    assert seen == [
        ["r1", f"r1.{n}", f"r1.{n}#2", str(chunk.seed_of(7, n)), i, f"r1.{n}", str(world.folder)]
        for n, i in ((11, "5"), (12, "9"))
    ]
    single = world.values(see, [()], seed=None, env={"SHOAL_SEED": "4", "SHOAL_INDEX": "2"})
    assert single[0][3:5] == ["4", "2"]
    names = world.values(lambda: sorted(name for name in os.environ if name.startswith("SHOAL_")), [()], seed=None)
    assert names == [["SHOAL_ATTEMPT", "SHOAL_RUN", "SHOAL_TASK"]]


def test_generators_are_seeded_for_each_call_where_that_is_wished(world: World) -> None:
    def draw() -> tuple[float, float]:
        return random.random(), float(numpy.random.random())

    world.values(lambda: numpy.__version__, [()])
    calls: list[Any] = [(), ()]
    first = world.values(draw, calls, env={"SHOAL_RESEED": "1"})
    expected = []
    for element in (11, 12):
        random.seed(chunk.seed_of(7, element))
        numpy.random.seed(chunk.seed_of(7, element))
        expected.append(draw())
    assert first == expected
    assert world.values(draw, calls) != expected


def test_user_code_finds_the_submitters_own_shoal(world: World) -> None:
    def find() -> tuple[str, str, bool]:
        import shoal
        from shoal.wire import payload
        from shoal.wire.messages import Lease

        return shoal.__file__, sys.modules[Lease.__module__].__file__ or "", payload.resolver is not None

    ((top, messages, is_set),) = world.values(find, [()])
    assert (top, is_set) == (shoal.__file__, True)
    assert messages.startswith(os.path.dirname(str(shoal.__file__)))


def test_modules_beside_the_submitters_script_are_found(world: World) -> None:
    (world.folder / "lib").mkdir()
    (world.folder / "lib" / "theirs.py").write_text("def f(x):\n    return x + 1\n")
    text = payload.to_text(b"ctheirs\nf\n.")
    path = os.pathsep.join([str(world.folder / "lib"), "/no/such/folder", *sys.path])
    assert world.values(text, [(1,)], env={"SHOAL_PYTHONPATH": path}) == [2]
    (report,) = world.run(text, [(1,)])
    assert (report.outcome, report.cause, report.message) == (
        "failed", "task_error", "ModuleNotFoundError: No module named 'theirs'",
    )  # fmt: skip


def test_files_in_the_directory_do_not_hide_the_standard_library(world: World) -> None:
    (world.folder / "socket.py").write_text("raise SystemExit('the wrong one')")
    assert world.values(math.sqrt, [(4,)]) == [2.0]


def test_a_very_long_directory_is_no_problem(world: World) -> None:
    work = world.folder / ("w" * 100) / ("v" * 100)
    work.mkdir(parents=True)
    world.runners.close()
    world.runners = world.make(work=work)
    assert world.values(math.sqrt, [(4,)]) == [2.0]


# --- failures
def test_an_exception_fails_its_call_alone(world: World) -> None:
    def halve(x: int) -> int:
        if x % 2:
            raise ValueError(f"odd:\n{x}")
        return x // 2

    reports = world.run(halve, [(2,), (3,), (4,), (6,)])
    assert [report.outcome for report in reports] == ["succeeded", "failed", "succeeded", "succeeded"]
    failed = reports[1]
    assert (failed.cause, failed.message) == ("task_error", "ValueError: odd: 3")
    error, trace = world.value(failed)
    assert isinstance(error, ValueError) and error.args == ("odd:\n3",)
    assert trace.startswith("Traceback") and "in halve" in trace and "runner.py" not in trace
    assert failed.stderr_tail == trace and failed.err == 0 and failed.duration > 0


class Odd(Exception):
    """Goes into a pickle and does not come out."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__("odd")


def test_exceptions_that_cannot_travel_become_plain_ones(world: World) -> None:
    def fail(how: int) -> None:
        if how:
            raise Odd(1, 2)
        error = ValueError("x")
        error.lock = threading.Lock()  # type: ignore[attr-defined]
        raise error

    reports = world.run(fail, [(0,), (1,)])
    assert [report.message for report in reports] == ["ValueError: x", "Odd: odd"]
    for report, text in zip(reports, ("ValueError('x')", "Odd('odd')"), strict=True):
        error, _ = world.value(report)
        assert type(error) is RuntimeError and str(error) == text


def test_a_result_that_cannot_be_pickled_fails(world: World) -> None:
    first, second = world.run(lambda x: threading.Lock() if x else 1, [(1,), (0,)])
    assert (first.outcome, first.cause) == ("failed", "task_error")
    assert first.message == "its result cannot be pickled: TypeError: cannot pickle '_thread.lock' object"
    assert isinstance(world.value(first)[0], TypeError)
    assert second.outcome == "succeeded"


def test_leaving_a_function_the_wrong_way_is_its_failure(world: World) -> None:
    def leave(how: str) -> int:
        if how == "exit":
            sys.exit(3)
        if how == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        return os.getpid()

    first, second, third = world.run(leave, [("exit",), ("interrupt",), ("",)])
    assert first.message == "SystemExit: the function called sys.exit(3)"
    assert isinstance(world.value(first)[0], SystemExit)
    assert (second.outcome, second.message) == ("failed", "KeyboardInterrupt")
    assert third.outcome == "succeeded"


def test_a_function_that_ends_its_interpreter_ends_only_itself(world: World) -> None:
    def end(x: int) -> int:
        print("at", x)
        if x == 2:
            os._exit(3)
        return x

    reports = world.run(end, [(0,), (1,), (2,), (3,)])
    assert [report.outcome for report in reports] == ["succeeded", "succeeded", "failed"]  # the last never began
    assert reports[2].message == "the function ended its interpreter (exit code 3)"
    assert (reports[2].cause, reports[2].exit_code, reports[2].last_line) == ("task_error", 3, "at 2")
    assert world.log(reports[2]) == "at 2\n"
    assert world.values(end, [(3,)]) == [3]


def test_a_crash_names_the_signal_and_the_call(world: World) -> None:
    def crash(x: int, word: str = "") -> int:
        print("before", x, file=sys.stderr)
        if x == 2:
            ctypes.string_at(0)
        return x

    calls = [to_text(((x,), {"word": "abc"})) for x in range(4)]
    lease = world.lease(crash, calls)
    world.runners.start(lease)
    reports = world.finish(lease)
    assert [report.outcome for report in reports] == ["succeeded", "succeeded", "failed"]
    last = reports[2]
    assert last.message == "killed by signal 11 (SIGSEGV) while calling crash(2, word='abc')"
    assert (last.cause, last.signal, last.exit_code) == ("signal", 11, None)
    assert last.stderr_tail.startswith("before 2\nFatal Python error: Segmentation fault") and last.err > 20
    assert last.cpu < 0.05 < last.cpu + 1 and 0 < last.duration < 5
    assert [world.value(report) for report in reports[:2]] == [0, 1]
    assert len(world.processes()) <= 2  # the one that told what the call was is kept, and a spare one
    assert world.value(world.run(crash, [(3,)])[0]) == 3


def test_a_call_that_cannot_even_be_described_is_named_by_its_digest(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deadly:
        def __reduce__(self) -> Any:
            return ctypes.string_at, (0,)

    text = payload.to_text(pickle.dumps(((Deadly(),), {})))
    (report,) = world.run(lambda x: x, [text])
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    assert report.message.startswith("killed by signal 11 (SIGSEGV) while calling the function sha256:")
    assert report.message.endswith(f"with the arguments sha256:{digest}")

    class Slow:
        def __repr__(self) -> str:
            time.sleep(60)
            return "slow"

    def die(x: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(runners, "DESCRIBE", 0.3)
    (report,) = world.run(die, [(Slow(),)])
    assert "(SIGKILL) while calling the function sha256:" in report.message
    assert report.message.endswith("; perhaps the system ran out of memory")


def test_a_function_that_closes_every_file_harms_only_itself(world: World) -> None:
    def close(path: str) -> None:
        os.closerange(3, 2000)
        files = [open(path, "wb") for _ in range(20)]  # noqa: SIM115
        time.sleep(10 if path.endswith("slow") else 0)
        for file in files:
            file.close()

    for name, words in (
        ("quick", "the function ended its interpreter (exit code 1)"),
        ("slow", "the function closed its runner's connection"),
    ):
        path = world.folder / name
        (report,) = world.run(close, [(str(path),)])
        assert (report.outcome, report.cause, report.message) == ("failed", "task_error", words)
        assert path.read_bytes() == b"" and report.duration < 9
    assert world.values(math.sqrt, [(4,)]) == [2.0]


# --- initializers
def test_an_initializer_is_called_once_in_each_runner(world: World) -> None:
    def prepare(word: str) -> None:
        os.environ["MARK"] = os.environ.get("MARK", "") + word

    def read() -> str:
        return os.environ["MARK"]

    initializer = to_text((prepare, ("x",)))
    assert world.values(read, [(), ()], initializer=initializer) == ["x", "x"]
    assert world.values(read, [()], initializer=initializer) == ["x"]


def test_an_initializer_that_fails_fails_every_call(world: World) -> None:
    def prepare() -> None:
        raise OSError("no data here")

    initializer = to_text((prepare, ()))
    for _ in range(2):
        reports = world.run(math.sqrt, [(4,), (9,)], initializer=initializer)
        assert [report.message for report in reports] == ["initializer failed: OSError: no data here"] * 2
        assert {(report.outcome, report.cause) for report in reports} == {("failed", "initializer")}
        assert isinstance(world.value(reports[1])[0], OSError)
    dead = to_text((os._exit, (4,)))
    (report,) = world.run(math.sqrt, [(4,), (9,)], initializer=dead)
    assert report.message == "initializer failed: it ended its interpreter (exit code 4)"


# --- limits
def test_the_time_limit_is_one_for_each_call(world: World) -> None:
    lease = world.lease(time.sleep, [(0.3,)] * 4 + [(30,), (0,)], time=0.7)
    world.runners.start(lease)
    reports = world.finish(lease)
    assert [report.outcome for report in reports] == ["succeeded"] * 4 + ["failed"]
    last = reports[4]
    assert (last.cause, last.message) == ("over_time", "stopped at its time limit of 0.7 s")
    assert 0.6 < last.duration < 3
    assert world.values(math.sqrt, [(4,)], time=0.7) == [2.0]


def test_too_much_memory_ends_the_call_and_its_runner(world: World) -> None:
    def fill(size: int) -> int:
        kept = b"x" * size
        time.sleep(5 if size > 1000 else 0)
        return len(kept)

    reports = world.run(fill, [(10,), (300 << 20,), (10,)], room=Capacity(cores=1, memory=150 << 20))
    assert [report.outcome for report in reports] == ["succeeded", "failed"]
    assert reports[1].cause == "out_of_memory"
    assert reports[1].message.endswith("its memory limit is 150 MiB") and reports[1].max_rss > 150 << 20


def test_what_ended_is_told_while_a_later_call_runs(world: World) -> None:
    lease = world.lease(time.sleep, [(0,), (0.02,), (5,), (0,)])
    world.runners.start(lease)
    world.until(lambda: len(world.calls(lease)) == 2, 3.0)
    assert not world.is_over(lease)
    assert world.runners.stop(lease.attempt.replace(".11#", ".13#"), "enough")
    world.finish(lease)


# --- output
def test_what_a_call_writes_goes_to_its_own_files(world: World) -> None:
    def write(how: str) -> str:
        if how == "print":
            print("printed", how)
            print("wrong", file=sys.stderr)
        elif how == "os":
            os.write(1, b"raw\n")
            sys.stdout.write("no newline")
        elif how == "child":
            subprocess.run(["sh", "-c", "echo from a child; echo and its stderr >&2"], check=True)
        elif how == "c":
            ctypes.CDLL(None).printf(b"from C")
        elif how == "replaced":
            with contextlib.redirect_stdout(sys.stderr):
                print("elsewhere")
        return how

    words = ["print", "quiet", "os", "child", "quiet", "c", "replaced"]
    reports = world.run(write, [(word,) for word in words])
    assert [world.value(report) for report in reports] == words
    outs = ["printed print\n", "", "raw\nno newline", "from a child\n", "", "from C", ""]
    errs = ["wrong\n", "", "", "and its stderr\n", "", "", "elsewhere\n"]
    assert [world.log(report) for report in reports] == outs
    assert [world.log(report, 1) for report in reports] == errs
    assert [report.out for report in reports] == [len(text) for text in outs]
    assert [report.err for report in reports] == [len(text) for text in errs]
    assert [report.last_line for report in reports] == [text.splitlines()[-1] if text else "" for text in outs]
    quiet = streams.log_paths(str(world.folder / "logs"), reports[1].attempt)
    assert not any(os.path.exists(path) for path in quiet)


@pytest.mark.parametrize("said", ["", "first; "])
def test_a_child_that_a_call_left_behind_does_not_write_into_anothers_file(world: World, said: str) -> None:
    def leave() -> None:
        if said:
            print(said, end="")
        subprocess.Popen(["sh", "-c", "sleep 0.3; echo late"])

    def wait() -> None:
        time.sleep(0.6)
        print("mine")

    def choose(what: int) -> None:
        (wait if what else leave)()

    reports = world.run(choose, [(0,), (1,)])
    assert world.log(reports[1]) == "mine\n"
    assert world.log(reports[0]) == ("first; late\n" if said else "")


def test_endless_output_is_cut_while_it_is_written_and_after(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_process, "Bound", partial(Bound, most=1 << 20))

    def write(count: int) -> None:
        for _ in range(count):
            print("x" * 9999)
            time.sleep(0 if count < 1000 else 0.001)
        print("the end")

    lease = world.lease(write, [(1500,), (300,)])
    world.runners.start(lease)
    files = None
    largest = 0
    while not world.is_over(lease):
        world.turn(0.05)
        files = world.runners.files(lease.attempt) or files
        with contextlib.suppress(OSError):
            largest = max(largest, os.stat(files[0]).st_size if files else 0)
    first, second = world.finish(lease)
    assert 0 < largest < 14_000_000
    assert (first.last_line, second.last_line) == ("the end", "the end")
    for report, written in ((first, 15_000_008), (second, 3_000_008)):
        left_out = int(report.message.split()[0].replace(",", ""))
        assert abs(report.out + left_out - written) < 500_000  # what is written during a cut is lost, and not counted
    for report in (first, second):
        assert len(world.log(report)) == report.out <= 1 << 20 and "bytes left out by shoal" in world.log(report)


# --- payloads
def test_large_results_are_put_away_and_told_in_order(world: World) -> None:
    def make(size: int) -> bytes:
        return b"x" * size

    world.holds_stores = True
    lease = world.lease(make, [(1,), (MAX_INLINE,), (2,), (3 * MAX_INLINE,), (4,)])
    world.runners.start(lease)
    world.until(lambda: len(world.stores) == 2)
    assert len(world.calls(lease)) == 1 and not world.is_over(lease)
    world.settle()  # the later one
    assert len(world.calls(lease)) == 1
    world.settle()
    reports = world.finish(lease)
    assert [len(world.value(report)) for report in reports] == [1, MAX_INLINE, 2, 3 * MAX_INLINE, 4]
    assert is_digest(reports[1].result) and not is_digest(reports[2].result)
    assert list((world.work / "runners" / "results").iterdir()) == []


def test_a_result_that_cannot_be_put_away_fails(world: World) -> None:
    world.holds_stores = True
    lease = world.lease(lambda: "x" * 100_000, [()])
    world.runners.start(lease)
    world.until(lambda: world.stores)
    world.settle("the disk is full")
    (report,) = world.finish(lease)
    assert (report.outcome, report.cause, report.result) == ("failed", "stage_out", "")
    assert report.message == "its result could not be put away: the disk is full"


def test_arrays_in_arguments_are_mapped_not_copied(world: World) -> None:
    def look(array: Any) -> tuple[bool, bool, float]:
        before = float(array[0])
        array[0] = 5  # nobody else sees that
        return bool(array.flags.owndata), bool(array.flags.writeable), before

    digest = world.blob(((numpy.arange(1e6),), {}))
    assert world.values(look, [digest, digest]) == [(False, True, 0.0)] * 2
    (big,) = world.values(lambda n: numpy.ones(n), [(100_000,)])
    assert big.sum() == 100_000
    (small,) = world.values(lambda n: numpy.ones(n), [(10,)])
    assert small.sum() == 10 and small.flags.writeable


def test_a_ref_is_loaded_once_and_is_read_only(world: World) -> None:
    def look(array: Any, at: int) -> tuple[int, bool, float]:
        return id(array), bool(array.flags.writeable), float(array[at])

    ref = payload.Ref(world.blob(numpy.arange(1e6)))
    first, second = world.values(look, [(ref, 1), (ref, 2)])
    assert first[0] == second[0] and not first[1] and (first[2], second[2]) == (1.0, 2.0)
    assert world.fetches == [ref.digest]


def test_functions_and_initializers_may_be_blobs(world: World) -> None:
    weight = numpy.arange(50_000.0)

    def total(x: float) -> float:
        return float(weight.sum()) + x

    data = cloudpickle.dumps(total)
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    (world.folder / digest[7:]).write_bytes(data)
    assert world.values(digest, [(1,), (2,)]) == [weight.sum() + 1, weight.sum() + 2]
    assert world.values(digest, [(3,)]) == [weight.sum() + 3]


def test_a_blob_that_nobody_has_fails_the_call(world: World) -> None:
    digest = "sha256:" + "0" * 64
    first, second = world.run(lambda x: x, [digest, (1,)])
    assert (first.outcome, first.cause) == ("failed", "stage_in")
    assert first.message == f"OSError: cannot get {digest}: nobody has it"
    assert second.outcome == "succeeded"


def test_time_spent_waiting_for_a_blob_does_not_count(world: World) -> None:
    world.values(math.sqrt, [(4,)], time=0.4)
    world.delay = 1.0
    digest = world.blob(((4,), {}))
    assert world.values(math.sqrt, [digest], time=0.4) == [2.0]


def test_classes_of_the_submitters_script_come_back_as_themselves(world: World) -> None:
    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    Point.__module__, Point.__qualname__ = "__main__", "Point"
    (point,) = world.values(lambda p: type(p)(p.x + 1), [(Point(1),)])
    assert type(point) is Point and point.x == 2


def test_children_of_functions_hold_nothing_of_ours(world: World) -> None:
    def look() -> list[str]:
        listing = "import os; print([os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')[:-1]])"
        run = subprocess.run(
            [sys.executable, "-c", listing], capture_output=True, text=True, check=True, close_fds=False
        )
        read, write = os.pipe()
        if os.fork() == 0:
            names = []
            for fd in os.listdir("/proc/self/fd"):
                with contextlib.suppress(OSError):
                    names.append(os.readlink(f"/proc/self/fd/{fd}"))
            os.write(write, "\n".join(names).encode())
            os._exit(0)
        os.close(write)
        with open(read) as file:
            text = file.read()
        os.wait()
        return [run.stdout, text]

    ((executed, forked),) = world.values(look, [()])
    assert "memfd:shoal" not in executed and "socket" not in executed, executed
    assert "socket" not in forked, forked


def test_a_forked_child_that_comes_back_does_not_speak_for_the_runner(world: World) -> None:
    def fork(x: int) -> int:
        os.fork()
        return x

    assert world.values(fork, [(1,), (2,)]) == [1, 2]


def test_the_cpu_time_of_children_belongs_to_the_call_that_waited_for_them(world: World) -> None:
    def burn(seconds: float) -> None:
        code = f"import time\nwhile time.process_time() < {seconds}: pass"
        subprocess.run([sys.executable, "-S", "-c", code], check=True)

    def choose(seconds: float) -> None:
        burn(seconds) if seconds else None

    first, second, third = world.run(choose, [(0.3,), (0,), (0.1,)])
    assert first.cpu > 0.25 and 0 <= second.cpu < 0.05 and 0.05 < third.cpu < 0.25


# --- stopping, signals
def test_a_running_call_is_stopped_and_the_later_ones_never_begin(world: World) -> None:
    lease = world.lease(time.sleep, [(0,), (30,), (0,)])
    running, nobody = lease.attempt.replace(".11#", ".12#"), lease.attempt.replace(".11#", ".14#")
    world.runners.start(lease)
    world.until(lambda: world.calls(lease))
    assert not world.runners.stop(nobody, "no such")
    assert not world.runners.stop("r99.1#1@1", "no such")
    began = time.monotonic()
    assert world.runners.stop(running, "cancelled by ada")
    reports = world.finish(lease)
    assert time.monotonic() - began < 25, "it would have taken 30 s"
    assert [report.outcome for report in reports] == ["succeeded", "failed"]
    assert (reports[1].cause, reports[1].message) == ("cancelled", "cancelled by ada")
    world.until(lambda: len(world.processes()) <= 1)  # the spare one, if there was time to start it
    assert world.values(math.sqrt, [(4,)]) == [2.0]
    assert not world.runners.stop(running, "again")


def test_a_call_that_ignores_sigterm_is_killed_after_the_grace(world: World) -> None:
    def deaf() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("deaf")
        time.sleep(30)

    lease = world.lease(deaf, [()])
    world.runners.start(lease)
    world.until(lambda: (f := world.runners.files(lease.attempt)) and "deaf" in Path(f[0]).read_text())
    world.runners.stop(lease.attempt, "enough")
    (report,) = world.finish(lease)
    assert (report.cause, report.signal, report.last_line) == ("cancelled", signal.SIGKILL, "deaf")


def test_a_call_that_has_not_begun_never_begins(world: World) -> None:
    def touch(path: str) -> int:
        Path(path).touch()
        time.sleep(0.3)
        return os.getpid()

    paths = [world.folder / f"touched{n}" for n in range(4)]
    lease = world.lease(touch, [(str(path),) for path in paths])
    world.runners.start(lease)
    world.until(lambda: paths[0].exists())
    assert world.runners.stop(lease.attempt.replace(".11#", ".13#"), "not needed")
    assert world.runners.stop(lease.attempt.replace(".11#", ".13#"), "not needed")
    reports = world.finish(lease)
    assert [report.outcome for report in reports] == ["succeeded", "succeeded", "failed", "succeeded"]
    assert (reports[2].cause, reports[2].message) == ("cancelled", "not needed")
    assert [path.exists() for path in paths] == [True, True, False, True]
    assert world.value(reports[3]) == world.value(reports[0])  # the runner was not harmed


def test_calls_are_stopped_before_their_runner_is_there(world: World) -> None:
    lease = world.lease(lambda path: Path(path).touch(), [(str(world.folder / "a"),), (str(world.folder / "b"),)])
    world.runners.start(lease)
    world.runners.stop(lease.attempt, "first")
    assert lease.attempt not in world.told
    world.runners.stop(lease.attempt.replace(".11#", ".12#"), "second")
    assert world.is_over(lease)
    assert [report.message for report in world.calls(lease)] == ["first", "second"]
    other = world.lease(os.getpid, [(), ()])
    world.runners.start(other)
    world.runners.stop(other.attempt, "first")
    assert [report.outcome for report in world.finish(other)] == ["failed", "succeeded"]
    assert not (world.folder / "a").exists() and not (world.folder / "b").exists()


def test_a_signal_reaches_the_running_call(world: World) -> None:
    def wait() -> list[int]:
        got: list[int] = []
        signal.signal(signal.SIGUSR1, lambda number, frame: got.append(number))
        print("ready")
        while not got:
            time.sleep(0.01)
        return got

    lease = world.lease(wait, [()])
    world.runners.start(lease)
    world.until(lambda: (f := world.runners.files(lease.attempt)) and "ready" in Path(f[0]).read_text())
    assert world.runners.signal(lease.attempt, signal.SIGUSR1)
    assert not world.runners.signal("r99.1#1@1", signal.SIGUSR1)
    (report,) = world.finish(lease)
    assert world.value(report) == [signal.SIGUSR1]


def test_an_interrupted_wait_for_a_blob_does_not_confuse_the_next_call(world: World) -> None:
    world.values(math.sqrt, [(4,)])
    world.delay = 0.5
    lease = world.lease(math.sqrt, [world.blob(((9,), {})), world.blob(((16,), {})), (25,)])
    world.runners.start(lease)
    world.until(lambda: world.runners._runners["runner-1"].needed)
    assert world.runners.signal(lease.attempt, signal.SIGINT)
    first, second, third = world.finish(lease)
    assert (first.outcome, first.message) == ("failed", "KeyboardInterrupt")
    assert (world.value(second), world.value(third)) == (4.0, 5.0)
    assert world.values(math.sqrt, [(4,)]) == [2.0]


# --- life of runners
def test_an_unused_runner_ends_and_may_tidy_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "IDLE", 0.3)
    mark = world.folder / "tidied"

    def plan(path: str) -> None:
        import atexit

        atexit.register(Path(path).touch)

    world.values(plan, [(str(mark),)])
    assert world.processes()
    world.until(lambda: not world.processes())
    assert mark.exists()
    world.until(lambda: not list((world.work / "runners").glob("runner-*")))
    world.until(lambda: world.runners.deadline() is None)
    assert world.values(math.sqrt, [(4,)]) == [2.0]


def test_an_unused_runner_that_does_not_end_is_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "IDLE", 0.2)
    world.values(lambda: threading.Thread(target=time.sleep, args=(60,)).start(), [()])
    world.until(lambda: not world.processes(), 10)


def test_idle_runners_of_other_kinds_make_room(world: World) -> None:
    for number in range(4):
        world.values(os.getpid, [()], env={"KIND": str(number)})
    world.until(lambda: len(world.processes()) <= 3)  # two, and the spare one


def test_runners_end_with_the_line_to_them(world: World) -> None:
    world.values(math.sqrt, [(4,)])
    pids = world.processes()  # of the runner, and of the spare one
    world.runners.close()
    end = time.monotonic() + 10
    while not all(proctree.is_zombie(pid) for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.01)
    world.runners = world.make()


def test_everything_goes_back_when_the_guard_is_lost(world: World) -> None:
    lease = world.lease(time.sleep, [(0,), (30,), (0,)])
    world.runners.start(lease)
    world.until(lambda: world.calls(lease))
    world.runners.abandon("the guard process died")
    assert world.is_over(lease)
    second = world.calls(lease)[1]
    assert (second.outcome, second.cause, second.message) == ("returned", "host_unfit", "the guard process died")


# --- interpreters
def write_python(path: Path, text: str) -> str:
    path.write_text(textwrap.dedent(text))
    path.chmod(0o755)
    return str(path)


def test_an_interpreter_that_does_not_begin_is_the_hosts_fault(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = write_python(world.folder / "broken", "#!/bin/sh\necho no such library >&2\nexit 7\n")
    reports = world.run(math.sqrt, [(4,), (9,)], python=broken)
    assert {(report.outcome, report.cause) for report in reports} == {("returned", "host_unfit")} and len(reports) == 2
    assert reports[0].message == f"{broken} on this host ended with exit code 7 as it began: no such library"
    monkeypatch.setattr(runners, "HELLO", 0.3)
    slow = write_python(world.folder / "slow", "#!/bin/sh\nsleep 30\n")
    (report,) = world.run(math.sqrt, [(4,)], python=slow)
    assert (report.outcome, report.cause) == ("returned", "host_unfit") and "did not begin within" in report.message


def test_where_there_is_no_interpreter_calls_go_back(world: World) -> None:
    world.env["PATH"] = str(world.folder)
    (report,) = world.run(math.sqrt, [(4,)], python="/no/such/python")
    assert (report.outcome, report.cause) == ("returned", "host_unfit")
    assert report.message == "there is no /no/such/python here, and no python3 on the PATH"
    write_python(world.folder / "python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    assert world.values(math.sqrt, [(4,)], python="/no/such/python") == [2.0]


def test_a_directory_that_is_gone_fails_the_calls(world: World) -> None:
    world.runners.close()
    world.runners = world.make()
    gone = world.folder / "gone"
    world.runners._prepare = lambda lease: (dict(world.env), str(gone))
    (report,) = world.run(math.sqrt, [(4,)])
    assert (report.outcome, report.cause, report.message) == ("failed", "task_error", f"no such directory: {gone}")


@needs_oldest
def test_functions_of_another_python_go_back_with_a_clear_sentence(world: World) -> None:
    reports = world.run(math.sqrt, [(4,), (9,)], python=str(OLDEST))
    assert {(report.outcome, report.cause) for report in reports} == {("returned", "host_unfit")} and len(reports) == 2
    assert reports[0].message == (
        f"the function was made by Python {VERSION}, and {OLDEST} on this host is 3.9: "
        f"give python= the path of a Python {VERSION} that this host has"
    )


# A pilot in few lines: a piece of two calls, on what is in the zip alone.
SMALL_PILOT = """
import os, select, sys, tempfile
sys.path.insert(0, sys.argv[1])
from shoal.pilot.guard import guard, proctree
from shoal.pilot.guard.messages import Quit
line, pid = guard.launch()
from shoal.pilot.functions.runners import Runners
from shoal.wire.messages import Capacity, Lease
told = []
work = sys.argv[2]
runners = Runners(
    send_guard=line.send, work=work, prepare=lambda lease: (dict(os.environ), work), fetch=None, store=None,
    ended=lambda *said: told.append(said), log_paths=lambda attempt: ("", ""), grace=1.0,
)
runners.start(Lease("r1.1#1@1", Capacity(cores=1), "safe", function=sys.argv[3], calls=sys.argv[4:], count=2,
                    python=sys.executable))
while not told:
    for ready in select.select([runners, line], [], [], 10)[0]:
        [runners.hear_guard(news) for news in line.receive()] if ready is line else runners.receive()
    runners.tick(proctree.now())
runners.close()
line.send(Quit())
os.waitpid(pid, 0)
print(told[0][1].result, told[0][3])
"""


@pytest.mark.parametrize("python", [pytest.param(str(OLDEST), marks=needs_oldest), sys.executable])
def test_a_pilot_from_the_zip_has_all_that_runners_need(tmp_path: Path, python: str) -> None:
    build(tmp_path / "pilot.pyz")
    (tmp_path / "work").mkdir()
    call = payload.to_text(pickle.dumps(((9,), {}), protocol=4))
    words = [str(tmp_path / "pilot.pyz"), str(tmp_path / "work"), payload.to_text(b"cmath\nsqrt\n."), call, call]
    argv = [python, "-I", "-c", SMALL_PILOT, *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    result = payload.to_text(pickle.dumps(3.0, protocol=5))
    assert done.stdout == f"{[result, result]} True\n", done.stderr
    assert done.stderr == ""


def test_the_arguments_are_those_of_the_script(world: World) -> None:
    def arguments() -> list[str]:
        import sys

        return sys.argv

    assert world.values(arguments, [()], env={"SHOAL_ARGV": '["fit.py", "--fast"]'}) == [["fit.py", "--fast"]]


@needs_oldest
def test_the_oldest_python_runs_functions(world: World) -> None:
    root = payload.to_text(b"cmath\nsqrt\n.")
    old = {"python": str(OLDEST), "env": {"SHOAL_PYTHON_VERSION": "3.9", "SHOAL_PYTHONPATH": ""}}
    nine = payload.to_text(pickle.dumps(((9,), {})))
    assert world.values(root, [nine], **old) == [3.0]
    (failed,) = world.run(root, [payload.to_text(pickle.dumps((("x",), {})))], **old)
    assert failed.message.startswith("TypeError: must be real number")
    crash = payload.to_text(b"cctypes\nstring_at\n.")
    (dead,) = world.run(crash, [payload.to_text(pickle.dumps(((0,), {})))], **old)
    assert dead.message == "killed by signal 11 (SIGSEGV) while calling string_at(0)"


@needs_oldest
def test_a_host_without_cloudpickle_gives_such_functions_back(world: World) -> None:
    (report,) = world.run(
        lambda: 1, [payload.to_text(pickle.dumps(((), {})))], python=str(OLDEST),
        env={"SHOAL_PYTHON_VERSION": "3.9", "SHOAL_PYTHONPATH": ""},
    )  # fmt: skip
    assert (report.outcome, report.cause) == ("returned", "host_unfit")
    assert f"{OLDEST} on this host has no cloudpickle" in report.message and "python=" in report.message


# --- chains: calls that wait for others of their lane [ADR 0064]
def test_behind_a_call_of_a_chain_that_did_not_succeed_none_begins(world: World) -> None:
    def touch(path: str, fails: bool) -> None:
        Path(path).touch()
        if fails:
            raise ValueError("no")

    paths = [world.folder / f"touched{n}" for n in range(4)]
    lease = world.lease(touch, [(str(path), at == 1) for at, path in enumerate(paths)])
    lease = replace(lease, parents=[[], [11, 12], [12, 13], [11, 12]])
    world.runners.start(lease)
    reports = world.finish(lease)
    assert [report.outcome for report in reports] == ["succeeded", "failed"], (
        "the others are for the agent to decide about"
    )
    assert [path.exists() for path in paths] == [True, True, False, False]
    assert world.values(os.getpid, [()]) and len(world.processes()) <= 2, "the runner was not harmed"
