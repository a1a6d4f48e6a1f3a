"""The guard as its own process, without a pilot: orders in, news out."""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from shoal.pilot.guard import proctree
from shoal.pilot.guard.channel import Channel
from shoal.pilot.guard.messages import (
    Ended,
    FromGuard,
    LastContact,
    NotStarted,
    SendSignal,
    Start,
    Started,
    Stop,
    ToGuard,
    WorkDirectory,
)
from shoal.pilot.guard.spawn import BASES_KEPT

Report = TypeVar("Report", Started, Ended, NotStarted)

BE_GUARD = (
    "import socket, sys; from shoal.pilot.guard import guard; guard._be_guard(socket.socket(fileno=int(sys.argv[1])))"
)


class Line:
    """A guard process and the pilot's end of the line to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [sys.executable, "-c", BE_GUARD, str(theirs.fileno())], pass_fds=[theirs.fileno()]
        )
        theirs.close()
        self.channel = Channel(ours)
        self._reports: list[FromGuard] = []

    def send(self, message: ToGuard) -> None:
        self.channel.send(message)

    def start(self, name: str, *argv: str, **more: Any) -> None:
        env = {"PATH": os.environ["PATH"], "SHOAL_ATTEMPT": name}
        out, err = (str(self.folder / f"{name}.{stream}") for stream in ("out", "err"))
        self.send(replace(Start(name, list(argv), str(self.folder), env, out, err, grace=5.0, umask=0o022), **more))

    def hear(self, kind: type[Report], name: str, seconds: float = 60.0) -> Report:
        """The next report of this kind on this attempt."""
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.channel, selectors.EVENT_READ)
            while True:
                for report in self._reports:
                    if isinstance(report, kind) and report.attempt == name:
                        self._reports.remove(report)
                        return report
                assert time.monotonic() < end and not self.channel.closed, (kind, name, self._reports)
                self.channel.flush()
                selector.select(0.02 if self.channel.wants_write else 0.5)
                self._reports += self.channel.receive()

    def next(self, piece: str, seconds: float = 60.0) -> FromGuard:
        """The next report on a piece, or one of it."""
        end = time.monotonic() + seconds
        while True:
            for report in self._reports:
                if piece in (report.attempt, getattr(report, "piece", "")):
                    self._reports.remove(report)
                    return report
            assert time.monotonic() < end and not self.channel.closed, (piece, self._reports)
            self.channel.flush()
            time.sleep(0.005)
            self._reports += self.channel.receive()

    def run(self, *argv: str, **more: Any) -> Ended:
        self.start("a", *argv, **more)
        return self.hear(Ended, "a")

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()

    def children(self) -> list[int]:
        return proctree.children(self.process.pid)


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    line = Line(tmp_path)
    yield line
    line.channel.close()
    try:
        assert line.process.wait(10) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            line.process.kill()
        line.process.wait()


def until_file(path: Path) -> None:
    end = time.monotonic() + 10
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_command_is_started_and_its_end_told(line: Line) -> None:
    line.start("a", "sh", "-c", "echo out; echo err >&2; pwd; exit 5")
    assert line.hear(Started, "a").pid > 0
    news = line.hear(Ended, "a")
    assert (news.exit_code, news.signal, news.why) == (5, None, "")
    assert news.duration > 0 and news.max_rss > 0 and news.cpu >= 0
    assert line.text("a.out") == f"out\n{line.folder}\n"
    assert line.text("a.err") == "err\n"


def test_a_task_sees_nothing_of_the_guard(line: Line) -> None:
    see = "import os, signal, resource; print(sorted(os.listdir('/proc/self/fd')), os.getsid(0) == os.getpid())\n"
    see += "print([signal.getsignal(n) == signal.SIG_DFL for n in (1, 3, 13, 15, 17)], resource.getrlimit(4)[0])\n"
    see += "old = os.umask(0); print(oct(old), signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    line.run(sys.executable, "-S", "-c", see)
    files, signals, rest = line.text("a.out").splitlines()
    assert files.startswith("['0', '1', '2', '3'] True")  # 3 is the listing itself
    # Python itself ignores SIGPIPE; the others must be as by hand.
    assert signals == "[True, True, False, True, True] 0"
    assert rest == "0o22 set()"


def test_a_signal_is_told_and_empty_streams_leave_no_file(line: Line) -> None:
    news = line.run("sh", "-c", "kill -SEGV $$")
    assert (news.exit_code, news.signal) == (None, signal.SIGSEGV)
    assert list(line.folder.iterdir()) == []


def test_stdin_comes_from_a_file_or_is_empty(line: Line) -> None:
    (line.folder / "in").write_text("hello")
    line.run("cat", stdin=str(line.folder / "in"))
    assert line.text("a.out") == "hello"
    assert line.run("cat").exit_code == 0


@pytest.mark.parametrize(
    ("argv", "cause", "code", "words"),
    [
        (["no-such-thing"], "task_error", 127, "command not found: no-such-thing"),
        (["./plain"], "task_error", 126, "not executable"),
        (["./script"], "task_error", 126, "neither a program nor a script"),
        (["./lost"], "task_error", 127, "interpreter"),
        (["nul\0"], "task_error", 126, "null byte"),
        (["true", "x" * 3_000_000], "task_error", 126, "Argument list too long"),
    ],
)
def test_a_command_that_cannot_be_run_is_the_tasks_error(
    line: Line, argv: list[str], cause: str, code: int, words: str
) -> None:
    (line.folder / "plain").touch()
    (line.folder / "script").write_text("echo x")
    (line.folder / "lost").write_text("#!/no/such/sh\n")
    for name in ("script", "lost"):
        (line.folder / name).chmod(0o755)
    line.start("a", *argv)
    news = line.hear(NotStarted, "a")
    assert (news.cause, news.exit_code) == (cause, code)
    assert words in news.message
    assert words in line.text("a.err")


def test_a_missing_directory_is_named(line: Line) -> None:
    line.start("a", "true", cwd="/no/such/place")
    news = line.hear(NotStarted, "a")
    assert news.cause == "task_error" and "/no/such/place" in news.message


def test_streams_that_cannot_be_written_are_the_hosts_fault(line: Line) -> None:
    line.start("a", "true", stdout="/proc/nowhere/out")
    assert line.hear(NotStarted, "a").cause == "host_unfit"


def test_a_stopped_task_gets_sigterm_once_and_its_grace(line: Line) -> None:
    line.start("a", "sh", "-c", "trap 'echo got >> got' TERM; touch ready; while :; do sleep 0.02; done")
    until_file(line.folder / "ready")
    line.send(Stop("a", 0.4))
    news = line.hear(Ended, "a")
    assert (news.signal, news.why) == (signal.SIGKILL, "stopped")
    assert line.text("got") == "got\n"


def test_who_is_called_back_leaves_the_line_but_who_has_begun_goes_on(line: Line) -> None:
    """A call to come back may cross with the start: that must not end the task."""
    line.start("a", "sh", "-c", "sleep 0.3")
    line.start("b", "true", after="a")
    line.hear(Started, "a")
    for name in ("a", "b"):
        line.send(Stop(name, None))
    assert line.hear(NotStarted, "b").message == "stopped"
    assert line.hear(Ended, "a").exit_code == 0


def test_a_signal_goes_to_the_whole_group_and_the_task_goes_on(line: Line) -> None:
    inner = "(trap 'echo > inner; exit' USR1; touch inner_ready; while :; do sleep 0.02; done) &"
    outer = "trap 'echo > got' USR1; touch ready; while ! test -e go; do sleep 0.02; done"
    line.start("a", "sh", "-c", f"{inner} {outer}")
    for name in ("ready", "inner_ready"):
        until_file(line.folder / name)
    line.send(SendSignal("a", int(signal.SIGUSR1)))
    line.send(SendSignal("gone", int(signal.SIGKILL)))
    for name in ("got", "inner"):
        until_file(line.folder / name)
    (line.folder / "go").touch()
    news = line.hear(Ended, "a")
    assert (news.exit_code, news.why) == (0, "")


def test_a_task_has_limits_on_processor_time_and_files_only_where_it_asked_for_them(line: Line) -> None:
    see = "import resource as r; print(r.getrlimit(r.RLIMIT_CPU), r.getrlimit(r.RLIMIT_FSIZE))"
    wait = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
    line.start("a", sys.executable, "-c", wait + see, cpu=12.5, file_size=1 << 30)
    line.start("b", sys.executable, "-c", wait + see)
    for name in ("a", "b"):
        line.hear(Started, name)
    (line.folder / "go").touch()
    for name in ("a", "b"):
        line.hear(Ended, name)
    before = resource.getrlimit(resource.RLIMIT_CPU), resource.getrlimit(resource.RLIMIT_FSIZE)
    assert line.text("a.out") == f"(13, 18) ({1 << 30}, {1 << 30})\n"
    assert line.text("b.out") == f"{before[0]} {before[1]}\n"


def test_a_limit_above_what_the_host_allows_is_what_the_host_allows(line: Line) -> None:
    see = "import os, time, resource as r\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
    see += "print(r.getrlimit(r.RLIMIT_FSIZE))"
    resource.prlimit(line.process.pid, resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    line.start("a", sys.executable, "-c", see, file_size=1 << 30)
    line.hear(Started, "a")
    (line.folder / "go").touch()
    line.hear(Ended, "a")
    assert line.text("a.out") == f"({1 << 20}, {1 << 20})\n"


def test_processor_time_beyond_its_limit_ends_a_task(line: Line) -> None:
    news = line.run(sys.executable, "-S", "-c", "while True: pass", cpu=0.5)
    assert news.signal == signal.SIGXCPU


def test_the_end_tells_which_streams_were_cut(line: Line) -> None:
    news = line.run("sh", "-c", "head -c 3000000 /dev/zero; echo short >&2", max_output=1 << 20)
    assert news.left_out.keys() == {"stdout"}
    assert 2_900_000 < news.left_out["stdout"] + news.sizes["stdout"] < 3_000_100
    assert news.sizes["stderr"] == 6


def test_a_time_limit_is_kept(line: Line) -> None:
    news = line.run("sleep", "60", time=0.2)
    assert (news.signal, news.why) == (signal.SIGTERM, "time")
    assert 0.2 <= news.duration < 5


def test_an_exclusive_task_ends_without_contact_others_go_on(line: Line) -> None:
    line.send(LastContact(proctree.now(), 0.3))
    line.start("a", "sleep", "60", exclusive=True)
    line.start("b", "sleep", "60")
    news = line.hear(Ended, "a")
    assert (news.signal, news.why) == (signal.SIGKILL, "contact")
    line.send(Stop("b", 5.0))
    assert line.hear(Ended, "b").why == "stopped"


def test_contact_keeps_an_exclusive_task_alive(line: Line) -> None:
    line.send(LastContact(proctree.now(), 0.3))
    line.start("a", "sleep", "0.6", exclusive=True)
    line.send(LastContact(proctree.now() + 10, 0.3))
    assert line.hear(Ended, "a").exit_code == 0


def test_orphans_of_one_task_end_with_it_and_those_of_another_stay(line: Line) -> None:
    line.start(
        "b", "sh", "-c", "(setsid sleep 61 & echo $! > b.pid); touch ready; while ! test -e go; do sleep 0.02; done"
    )
    until_file(line.folder / "ready")
    line.run("sh", "-c", "(setsid sleep 60 & echo $! > a.pid)")
    assert not os.path.exists(f"/proc/{line.text('a.pid').strip()}")
    assert os.path.exists(f"/proc/{line.text('b.pid').strip()}")
    (line.folder / "go").touch()
    line.hear(Ended, "b")
    assert line.children() == []


def test_an_orphan_that_hides_whose_it_is_ends_when_all_it_may_belong_to_have_ended(line: Line) -> None:
    line.start("b", "sh", "-c", "touch ready; while ! test -e go; do sleep 0.02; done")
    until_file(line.folder / "ready")
    line.run("sh", "-c", "env -i setsid sleep 60 & echo $! > a.pid; sleep 0.3")
    assert os.path.exists(f"/proc/{line.text('a.pid').strip()}")
    (line.folder / "go").touch()
    line.hear(Ended, "b")
    assert line.children() == []


def test_when_the_pilot_hangs_up_everything_ends_and_its_directory_goes(line: Line) -> None:
    work = line.folder / "work"
    work.mkdir()
    line.send(WorkDirectory(str(work)))
    line.start("a", "sh", "-c", "trap '' TERM; (setsid sleep 60 & echo $! > pid); touch ready; sleep 60")
    until_file(line.folder / "ready")
    line.channel.close()
    assert line.process.wait(60) == 0
    assert not os.path.exists(f"/proc/{line.text('pid').strip()}")
    assert not work.exists()


def test_signals_meant_for_the_pilot_do_not_end_the_guard(line: Line) -> None:
    line.run("true")  # it is up
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        line.process.send_signal(number)
    assert line.run("true").exit_code == 0


def test_a_task_of_a_moment_leaves_what_it_wrote_and_a_longer_one_shows_it_meanwhile(line: Line) -> None:
    news = line.run("sh", "-c", "echo short")
    assert (line.text("a.out"), news.wrote) == ("short\n", ["stdout"])
    line.start("b", "sh", "-c", "echo begun; while ! test -e go; do sleep 0.02; done; echo over")
    until_file(line.folder / "b.out")
    assert line.text("b.out") == "begun\n"
    (line.folder / "go").touch()
    assert line.hear(Ended, "b").wrote == ["stdout"]
    assert line.text("b.out") == "begun\nover\n" and not (line.folder / "b.err").exists()


def test_silent_tasks_one_after_another_leave_nothing_and_hold_nothing_open(line: Line) -> None:
    for at in range(20):
        line.start(str(at), "true")
        line.hear(Ended, str(at))
    assert list(line.folder.iterdir()) == []
    assert len(os.listdir(f"/proc/{line.process.pid}/fd")) < 20
    assert os.readlink(f"/proc/{line.process.pid}/cwd") == "/"


def test_a_start_tells_when_it_was(line: Line) -> None:
    before = time.time()
    line.start("a", "sleep", "60")
    assert before <= line.hear(Started, "a").at <= time.time()


def test_a_start_may_wait_for_the_end_of_another(line: Line) -> None:
    line.start("a", "sh", "-c", "while ! test -e go; do sleep 0.02; done; echo a >> order")
    line.start("b", "sh", "-c", "echo b >> order", after="a")
    line.start("c", "sh", "-c", "echo c >> order", after="b")
    line.hear(Started, "a")
    assert len(line.children()) == 1
    (line.folder / "go").touch()
    for name in ("a", "b", "c"):
        assert line.hear(Ended, name).exit_code == 0
    assert line.text("order") == "a\nb\nc\n"
    line.start("d", "true", after="a")  # over already
    line.hear(Ended, "d")


def test_a_start_that_failed_lets_the_next_one_begin(line: Line) -> None:
    line.start("a", "sh", "-c", "while ! test -e go; do sleep 0.02; done")
    line.start("b", "no-such-thing", after="a")
    line.start("c", "true", after="b")
    (line.folder / "go").touch()
    line.hear(NotStarted, "b")
    assert line.hear(Ended, "c").exit_code == 0


def test_a_start_that_waits_can_be_stopped_and_never_begins(line: Line) -> None:
    line.start("a", "sh", "-c", "while ! test -e go; do sleep 0.02; done")
    line.start("b", "touch", "harm", after="a")
    line.start("c", "true", after="b")
    line.send(Stop("b", 5.0))
    assert line.hear(NotStarted, "b").cause == "cancelled"
    (line.folder / "go").touch()
    line.hear(Ended, "c")
    assert not (line.folder / "harm").exists()


def test_many_short_tasks_in_two_rows_are_all_told(line: Line) -> None:
    for at in range(100):
        line.start(str(at), "true", after=str(at - 2))
    for at in range(100):
        assert line.hear(Ended, str(at)).exit_code == 0
    assert line.children() == []


def test_when_the_pilot_hangs_up_what_waits_never_begins(line: Line) -> None:
    line.start("a", "sleep", "60")
    line.start("b", "touch", "harm", after="a")
    line.hear(Started, "a")
    line.channel.close()
    assert line.process.wait(60) == 0
    assert not (line.folder / "harm").exists()


def test_a_start_that_waits_keeps_its_environment_though_many_others_come(line: Line) -> None:
    """Was: the ninth environment pushed the first one out, and the guard ended with a KeyError when `b` began."""
    bare = {"SHOAL_ATTEMPT": "b"}
    line.start("a", "sh", "-c", "while ! test -e go; do sleep 0.02; done")
    line.start("first", "true", base=0, base_env=dict(os.environ, COLOUR="red"))
    line.start("b", "sh", "-c", "echo $COLOUR", env=bare, base=0, after="a")
    for number in range(1, BASES_KEPT + 2):
        line.start(f"other{number}", "true", base=number, base_env=dict(os.environ))
        line.hear(Ended, f"other{number}")
    (line.folder / "go").touch()
    assert line.hear(Ended, "b").exit_code == 0
    assert line.text("b.out") == "red\n"
