"""A server and pilots as real processes on loopback, with their state in one folder: to be killed, stopped and watched.

Every process started here names the folder in its command line or environment, so that at the end all of them can
be found, also those whose parent is gone. Only processes of this cluster are ever signalled, by their number.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from shoal.client.client import Client
from shoal.db.reader import Reader
from shoal.model.errors import Unreachable
from shoal.model.file_names import DATABASE, SERVER_FILE
from shoal.pilot import build_zip

T = TypeVar("T")
PROVE = os.environ.get("SHOAL_PROVE") == "1"
Json = dict[str, Any]
FAST: dict[str, float] = {
    "beat": 0.5, "suspect": 1.0, "lease": 3.0, "hold": 4.0, "margin": 0.5, "quarantine": 3.0, "grace": 1.0,
}  # fmt: skip
PATIENCE = 60.0  # for what takes a second on an idle machine
LOOK = 0.02  # seconds between two checks of a condition
CALM_LOOK = 0.05  # and when it was not true for a second: a look costs some milliseconds of what is waited for
MOST_PIDS = 1 << 22  # no process of Linux has a higher number

# A task that logs its start and end: `start` with whether it was alone (the kernel drops the lock when a copy dies,
# however it dies), then it waits, then `end`. The wait is per attempt: seconds, or a file that has to appear.
PAYLOAD = """
import fcntl, json, os, sys, time
log, waits = sys.argv[1], sys.argv[2].split(",")
task, attempt = os.environ["SHOAL_TASK"], int(os.environ["SHOAL_ATTEMPT"].partition("#")[2])
lock = os.open(f"{log}.{task}.lock", os.O_RDWR | os.O_CREAT, 0o600)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    alone = True
except OSError:
    alone = False
output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
def write(what):
    line = {"what": what, "task": task, "attempt": attempt, "pid": os.getpid(), "at": time.monotonic(), "alone": alone}
    os.write(output, (json.dumps(line) + "\\n").encode())
write("start")
wait = waits[min(attempt, len(waits)) - 1]
if wait.startswith("/"):
    while not os.path.exists(wait):
        time.sleep(0.01)
else:
    time.sleep(float(wait))
write("end")
"""


@dataclass(frozen=True)
class Life:
    """One copy of a payload as it logged itself; `end` is None if it did not reach its end."""

    task: str
    attempt: int
    pid: int
    start: float
    alone: bool
    end: float | None


@dataclass(eq=False)
class PilotProcess:
    """One pilot of the cluster."""

    process: subprocess.Popen[bytes]
    log: Path
    work: Path

    @property
    def pid(self) -> int:
        """Its process, which also leads its group."""
        return self.process.pid

    @property
    def names(self) -> list[str]:
        """Every name a server gave it, in order."""
        return re.findall(r"joined pilot=(p[0-9a-f]+)", self.log.read_text(encoding="utf-8", errors="replace"))

    @property
    def name(self) -> str:
        """Its name now."""
        return self.names[-1]

    @property
    def guard(self) -> int:
        """Its guard's process."""
        return next(pid for pid in children(self.pid) if comm(pid) == "shoal-guard")

    @property
    def is_alive(self) -> bool:
        """True if it has not ended."""
        return self.process.poll() is None

    def stop(self) -> None:
        """Freeze the pilot alone; its guard and its tasks run on."""
        os.kill(self.pid, signal.SIGSTOP)

    def cont(self) -> None:
        """Thaw it."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """kill -9 of the pilot alone, and proof that it died of it."""
        self.process.kill()
        assert self.process.wait(PATIENCE) == -signal.SIGKILL

    def kill_group(self) -> None:
        """kill -9 of its process group."""
        os.killpg(self.pid, signal.SIGKILL)
        assert self.process.wait(PATIENCE) == -signal.SIGKILL


@dataclass(eq=False)
class Cluster:
    """One server, its pilots, and what they did."""

    folder: Path
    zip: Path
    timing: dict[str, float] = field(default_factory=lambda: dict(FAST))
    pilots: list[PilotProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = self.folder / "state"
        self.cwd = self.folder / "cwd"
        self.work = self.folder / "work"
        self.cwd.mkdir(parents=True)
        self.work.mkdir()
        self.server_log = self.folder / "server.log"
        self.tale = self.cwd / "tale"  # what payloads log
        self.payload = self.folder / "payload.py"
        self.payload.write_text(PAYLOAD, encoding="utf-8")
        self._server: subprocess.Popen[bytes] | None = None
        self._host_pids: dict[tuple[str, int, int], int] = {}
        self._sockets = listening_here()

    # --- waiting
    def until(self, condition: Callable[[], T], what: str, within: float = PATIENCE) -> T:
        """Wait until a condition is true, and return its value; fail with the logs of the processes if it never is."""
        start = time.monotonic()
        while True:
            found = condition()
            if found:
                return found
            waited = time.monotonic() - start
            if waited > within:
                raise AssertionError(f"not within {within:g} s: {what}\n{self.story()}")
            time.sleep(LOOK if waited < 1.0 else CALM_LOOK)

    def story(self, lines: int = 15) -> str:
        """The ends of all logs."""
        parts = []
        for path in [self.server_log, *(pilot.log for pilot in self.pilots)]:
            if path.exists():
                tail = path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
                parts.append("\n".join([f"--- {path.name}", *tail]))
        return "\n".join(parts)

    # --- the server
    def server_argv(self, *more: str, state: Path | None = None) -> list[str]:
        """The command line of a server of this cluster."""
        timing = json.dumps(self.timing)
        options = ["--state", str(state or self.state), "--timing", timing, *more]
        return [sys.executable, "-m", "shoal.server", *options]

    def start_server(self, *more: str) -> str:
        """Start the server and wait until it answers; returns its address, which is the same each time."""
        assert self._server is None
        with self.server_log.open("ab") as log:
            self._server = subprocess.Popen(
                self.server_argv(*more), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                env=clean_env(), start_new_session=True,
            )  # fmt: skip
        self.until(self._answers, "the server answers")
        return str(self.address()["url"])

    def _answers(self) -> bool:
        assert self._server is not None
        assert self._server.poll() is None, f"the server ended with {self._server.returncode}\n{self.story()}"
        with contextlib.suppress(OSError, ValueError, KeyError):
            address = self.address()
            with Client(address["url"]) as client:
                return bool(address["pid"] == self._server.pid) and client.health()
        return False

    def address(self) -> Json:
        """The address file of the server: url, token, pid."""
        found: Json = json.loads((self.state / SERVER_FILE).read_text(encoding="utf-8"))
        return found

    @property
    def server_pid(self) -> int:
        """The server's process."""
        assert self._server is not None
        return self._server.pid

    def kill_server(self) -> None:
        """kill -9 of the server, and proof that it died of it."""
        server, self._server = self._server, None
        assert server is not None and server.poll() is None, f"the server ended by itself\n{self.story()}"
        server.kill()
        assert server.wait(PATIENCE) == -signal.SIGKILL

    def stop_server(self) -> None:
        """Have the server end as it should."""
        server, self._server = self._server, None
        assert server is not None and server.poll() is None, f"the server ended by itself\n{self.story()}"
        server.terminate()
        assert server.wait(PATIENCE) == 0, self.story()

    def client(self, timeout: float = 30.0) -> Client:
        """A client of the server as it is now."""
        address = self.address()
        return Client(address["url"], address["token"], timeout=timeout)

    # --- pilots
    def pilot_argv(self) -> list[str]:
        """How a pilot is started: as a server starts its own, from the package, whose byte code is at hand; from the zip,
        which is compiled at each start, with SHOAL_PROVE=1, or if it is not that of this package."""
        if PROVE or self.zip.read_bytes() != pack_once():
            return [sys.executable, "-I", str(self.zip)]
        return [sys.executable, "-I", "-S", str(Path(build_zip.__file__).with_name("__main__.py"))]

    def start_pilot(
        self, cores: int = 2, *more: str, server_file: Path | None = None, under: tuple[str, ...] = ()
    ) -> PilotProcess:
        """Start a pilot (under another program that becomes it, if one is given) and wait until it has joined."""
        number = len(self.pilots) + 1
        log, work = self.folder / f"pilot{number}.log", self.work / str(number)
        work.mkdir()
        options = ["--server-file", str(server_file or self.state / SERVER_FILE), "--cores", str(cores)]
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*under, *self.pilot_argv(), *options, "--work-dir", str(work), *more],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/", env=clean_env(), start_new_session=True,
            )  # fmt: skip
        pilot = PilotProcess(process, log, work)
        self.pilots.append(pilot)
        self.until(lambda: pilot.names or not pilot.is_alive, "the pilot joins")
        assert pilot.is_alive, self.story()
        return pilot

    def pilot_row(self, name: str) -> Json:
        """A pilot as the database has it."""
        with Reader(self.state / DATABASE) as reader:
            found = reader.pilot(name)
        assert found is not None, name
        return {**found._asdict(), "tags": json.loads(found.tags or "{}")}

    # --- work
    def telling(self, wait: str | float | Path = 0.0, **more: Any) -> Json:
        """A task that logs its start and end; `wait` is seconds or a file, by commas one for each attempt."""
        argv = [sys.executable, "-I", "-S", str(self.payload), str(self.tale), str(wait)]
        return {"command": argv, **more}

    def submission(self, *tasks: Json, **more: Any) -> Json:
        """A whole submission with the directory and environment of this cluster."""
        environment = {"PATH": os.environ["PATH"], "SHOAL_TEST": "1", "CLUSTER": str(self.folder)}
        return {"cwd": str(self.cwd), "environment": environment, "tasks": list(tasks), **more}

    def submit(self, *tasks: Json, **more: Any) -> int:
        """Submit a run; returns its number."""
        with self.client() as client:
            return int(client.submit(self.submission(*tasks, **more))["run"][1:])

    def wait_run(self, run: int, within: float = PATIENCE) -> Json:
        """Wait for the end of a run, over any number of servers; returns its counts."""

        def counted() -> Json:
            found = self.run_row(run)
            counts: Json = found["counts"] if found["finished"] is not None else {}
            return counts

        return self.until(counted, f"r{run} is finished", within)

    # --- what the database has, with or without a server
    def run_row(self, run: int) -> Json:
        """A run's row."""
        with Reader(self.state / DATABASE) as reader:
            found = reader.run(run)
        assert found is not None, f"r{run} is not there"
        return found

    def succeeded(self, run: int) -> int:
        """How many tasks of a run have succeeded so far."""
        return int(self.run_row(run)["counts"].get("succeeded", 0))

    def wait_succeeded(self, run: int, count: int, within: float = PATIENCE) -> None:
        """Wait until so many tasks of a run have succeeded."""
        self.until(lambda: self.succeeded(run) >= count, f"{count} tasks of r{run} are done", within)

    def wait_running(self, run: int, elements: Iterable[int] = (1,)) -> None:
        """Wait until the server knows that these tasks run."""
        left = set(elements)

        def all_run() -> bool:
            left.difference_update([e for e in left if self.row(run, e).get("state") == "running"])
            return not left

        self.until(all_run, f"{left} of r{run} run")

    def rows(self, run: int) -> list[Json]:
        """All rows of a run's tasks."""
        found: list[Json] = []
        with Reader(self.state / DATABASE) as reader:
            while page := reader.tasks(run, after=found[-1]["element"] if found else 0):
                found += page
        return found

    def row(self, run: int, element: int = 1) -> Json:
        """One task's row; empty if it has none yet."""
        with Reader(self.state / DATABASE) as reader:
            return reader.task(run, element) or {}

    def events(self, *kinds: str, run: int | None = None, task: int | None = None) -> list[Json]:
        """The journal, whole or in part."""
        found: list[Json] = []
        after = 0
        with Reader(self.state / DATABASE) as reader:
            while page := reader.events(after=after, run=run, kinds=kinds or None):
                after = page[-1]["seq"]
                found += page
        return [event for event in found if task is None or event["task"] == task]

    def check_recorded_once(self, run: int, total: int) -> None:
        """Each task of a run has one row, succeeded, and became final once; no retry was burnt; no gap in the journal."""
        rows = self.rows(run)
        assert [row["element"] for row in rows] == list(range(1, total + 1))
        wrong = [row for row in rows if row["state"] != "succeeded" or row["retries"] or row["exit_code"] != 0]
        assert not wrong, wrong[:3]
        finals = Counter(event["task"] for event in self.events("task_finished", run=run))
        assert finals == Counter(range(1, total + 1)), [task for task, n in finals.items() if n != 1][:10]
        assert len(self.events("run_finished", run=run)) == 1
        seqs = [event["seq"] for event in self.events()]
        assert seqs == list(range(1, len(seqs) + 1))

    # --- what payloads logged
    def lives(self, task: str = "") -> list[Life]:
        """Every copy of a payload that ever started, oldest first."""
        with contextlib.suppress(FileNotFoundError):
            logged = [json.loads(line) for line in self.tale.read_text(encoding="utf-8").splitlines()]
            ends = {(line["task"], line["pid"]): line["at"] for line in logged if line["what"] == "end"}
            return [
                Life(t["task"], t["attempt"], self._host_pid(t), t["at"], t["alone"], ends.get((t["task"], t["pid"])))
                for t in logged
                if t["what"] == "start" and task in ("", t["task"])
            ]
        return []

    def _host_pid(self, line: Json) -> int:
        """The number that this host has for a payload, which may run in a PID namespace and have another number there.

        One that was never seen alive gets a number that no process has.
        """
        key = (line["task"], line["attempt"], line["pid"])
        if key not in self._host_pids:
            self._host_pids[key] = find_process(f"SHOAL_ATTEMPT={line['task']}#{line['attempt']}", line["pid"]) or (
                MOST_PIDS + line["pid"]
            )
        return self._host_pids[key]

    def wait_start(self, task: str, copies: int = 1, within: float = PATIENCE) -> Life:
        """Wait for the n-th copy of a task to start."""
        return self.until(lambda: self.lives(task)[copies - 1 :], f"copy {copies} of {task} starts", within)[0]

    # --- the end
    def processes(self) -> dict[int, str]:
        """Every living process that names this cluster's folder, but this one."""
        return {pid: line for pid, line in processes_with(str(self.folder)) if pid != os.getpid()}

    def close(self) -> None:
        """End all processes of this cluster by their numbers and see that nothing is left of them."""
        if self._server is not None and self._server.poll() is None:
            self._server.kill()
        for pilot in self.pilots:
            if pilot.is_alive:
                pilot.process.kill()  # its guard ends its tasks
        for process in [p for p in [self._server, *(pilot.process for pilot in self.pilots)] if p is not None]:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
        end = time.monotonic() + PATIENCE
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(LOOK)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert not left, f"processes left behind: {left}\n{self.story()}"
        bound = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
        assert str(self.folder) not in bound, "a socket of this cluster is still listened on"
        assert listening_here() <= self._sockets, "this process was left with a listening socket"


@cache
def pack_once() -> bytes:
    """The pilot's zip as this package makes it."""
    return build_zip.pack()


# --- processes and sockets as the kernel shows them
def clean_env() -> dict[str, str]:
    """Our environment without anything of Shoal's."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SHOAL_", "XDG_"))}


def children(pid: int) -> list[int]:
    """Direct children of a process."""
    with contextlib.suppress(OSError):
        texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
        return [int(number) for text in texts for number in text.split()]
    return []


def comm(pid: int) -> str:
    """A process's short name."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def state_of(pid: int) -> str:
    """R, S, T, Z, ...; empty if there is no such process."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def is_dead(pid: int) -> bool:
    """True if it ended, also if it was not reaped yet."""
    return state_of(pid) in ("", "Z", "X")


def processes_with(text: str) -> Iterator[tuple[int, str]]:
    """Living processes whose command line or environment holds a text."""
    needle = os.fsencode(text)
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or is_dead(int(entry)):
            continue
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                data = Path(f"/proc/{entry}/{name}").read_bytes()
                if needle in data:
                    yield int(entry), f"{comm(int(entry))}: " + data[:300].replace(b"\0", b" ").decode(errors="replace")
                    break


def find_process(entry: str, inner: int) -> int:
    """The living process with this entry in its environment that calls itself `inner`; 0: there is none."""
    needle = os.fsencode(entry)
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, ValueError):
            status = Path(f"/proc/{name}/status").read_text()
            (own,) = re.findall(r"^NSpid:.*?(\d+)$", status, re.MULTILINE)
            if int(own) == inner and needle in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                return int(name)
    return 0


def _listeners() -> dict[str, int]:
    """Inode -> port of every TCP socket that listens."""
    found = {}
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A":
                    found[fields[9]] = int(fields[1].rpartition(":")[2], 16)
    return found


def _inodes(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if target.startswith("socket:["):
                    found.add(target[8:-1])
    return found


def listening_here() -> set[str]:
    """Sockets that this very process listens on."""
    return _inodes(os.getpid()) & set(_listeners())


def free_port() -> int:
    """A port that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def insist(client: Callable[[], Client], submission: Json, give_up: float) -> tuple[Json, int]:
    """Submit with a key until it is answered, whatever happens to the server meanwhile; the answer, and the tries."""
    assert submission["key"]
    for tries in itertools.count(1):
        try:
            with client() as connected:
                return connected.submit(submission), tries
        except (Unreachable, OSError, ValueError, KeyError):
            # No address file, half of one, no server, or a server that ended before it answered.
            assert time.monotonic() < give_up, "no answer to a submission"
            time.sleep(LOOK)
    raise AssertionError("unreachable")


def files_below(folder: Path) -> list[Path]:
    """All files below a directory; others may be removing some meanwhile."""
    return [Path(inner) / name for inner, _, names in os.walk(folder) for name in names]


def scan(paths: Iterable[Path], needle: str) -> list[Path]:
    """Files that hold a text."""

    def holds(path: Path) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return path.is_file() and os.fsencode(needle) in path.read_bytes()
        return False

    return [path for path in paths if holds(path)]
