"""One runner as the pilot sees it: its process, the connection to it, the log of its ended calls, the files it writes.

Decisions are made in `runners`; the other side is `pilot/runner/`.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import logging
import mmap
import os
import shutil
import socket
import time
from collections.abc import MutableSequence, Sequence
from typing import Any, NamedTuple, Optional

from shoal.model.ids import parse_attempt, run_text
from shoal.model.limits import MAX_STREAM
from shoal.pilot.commands.streams import Bound
from shoal.pilot.functions.call_batch import Entries, Piece
from shoal.pilot.functions.listener import RunnerConnection
from shoal.pilot.guard.messages import Start
from shoal.pilot.guard.spawn import STREAM_SLACK
from shoal.pilot.runner.main import IDLE, LOG_AT, OUT, REWIND, SKIPS, STAGE
from shoal.pilot.runner.messages import CallEnd, Hello, RunCalls, Skip, Welcome
from shoal.wire.messages import Lease, Report

log = logging.getLogger(__name__)

# What a runner consists of. It is written out, since the zip that we run from may be a file in memory of ours.
_CODE = (
    "shoal.model.limits", "shoal.wire.payload", "shoal.wire.module_sources", "shoal.pilot.runner.load",
    "shoal.pilot.runner.failure", "shoal.pilot.runner.output", "shoal.pilot.runner.messages",
    "shoal.pilot.runner.user_modules", "shoal.pilot.runner.main",
)  # fmt: skip
_BEGIN = """import sys
if sys.version_info < (3, 9):
    sys.exit("functions need Python 3.9 or newer, this is " + sys.version.split()[0])
if sys.path[0] == "":
    del sys.path[0]  # else a file of the task's directory could shadow one of the standard library
sys.path.insert(0, sys.argv[1])
from shoal.pilot.runner.main import main as begin
del sys
begin()
"""
# Variables of one task, or for us: they do not make runners differ.
_OWN = (
    "SHOAL_RUN", "SHOAL_TASK", "SHOAL_ATTEMPT", "SHOAL_SEED", "SHOAL_INDEX", "SHOAL_RESEED", "SHOAL_PYTHONPATH",
    "SHOAL_PYTHON_VERSION", "SHOAL_ARGV", "SHOAL_TAGS", "SHOAL_EMIT",
)  # fmt: skip
# Variables that differ between two shells of one person and mean nothing to an interpreter that starts: a spare one gets
# them when it is taken. Every other may have decided how it started (LANG, LD_LIBRARY_PATH, PYTHONHASHSEED, HOME, ...).
_LATE = frozenset({"PWD", "OLDPWD", "SHLVL", "_"})


class RunnerKind(NamedTuple):
    """Calls of the same kind can be made by the same runner [ADR 0024]."""

    python: str
    is_theirs: bool  # the submitter's own interpreter, not just some python3
    path: str  # the submitter's sys.path
    env: frozenset[tuple[str, str]]
    cwd: str
    initializer: str
    memory: int
    disk: int
    is_exclusive: bool
    session: str  # of the submitter, else the run
    modules: str  # the sources that travel with it
    finalizer: str = ""
    max_calls: int = 0  # that one runner may make; 0: any number
    argv: str = ""  # the submitter's sys.argv as JSON

    @property
    def bare(self) -> tuple[Any, ...]:
        """What an interpreter is started with before it is known whose calls it makes."""
        env = frozenset(pair for pair in self.env if pair[0] not in _LATE)
        return self.python, env, self.memory, self.disk, self.is_exclusive


def find_kind(lease: Lease, env: dict[str, str], cwd: str) -> Optional[RunnerKind]:
    """The kind of runner that a lease needs; changes `env`. None: there is no interpreter."""
    wanted, search = lease.python, env.get("PATH")
    python: Optional[str] = wanted
    if "/" in wanted:
        python = wanted if os.path.isfile(wanted) and os.access(wanted, os.X_OK) else None
    elif wanted:
        python = shutil.which(wanted, path=search)
    is_theirs = bool(python)
    python = python or shutil.which("python3", path=search)
    if not python:
        return None
    path = lease.env.get("SHOAL_PYTHONPATH", "")
    for name in _OWN:
        env.pop(name, None)
    room, exclusive = lease.room, lease.rerun == "exclusive"
    session = lease.session or run_text(parse_attempt(lease.attempt).run)
    return RunnerKind(
        python, is_theirs, path, frozenset(env.items()), cwd, lease.initializer, room.memory, room.disk, exclusive,
        session, lease.modules,
        lease.finalizer, lease.max_tasks_per_child, lease.env.get("SHOAL_ARGV", ""),
    )  # fmt: skip


def write_code(folder: str) -> None:
    """Write out the modules that a runner consists of."""
    for name in _CODE:
        spec = importlib.util.find_spec(name)
        loader: Any = spec.loader if spec is not None else None
        path = os.path.join(folder, *name.split(".")) + ".py"
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(loader.get_source(name))
        packages = name.split(".")[:-1]
        for depth in range(1, len(packages) + 1):
            with open(os.path.join(folder, *packages[:depth], "__init__.py"), "a", encoding="utf-8"):
                pass


class RunnerProcess:
    """A runner's process. `piece` is what it works on, or what it is being started for.

    A spare one was started before it is known for whom: it is a bare interpreter of a kind's `bare` part.
    """

    def __init__(self, key: str, kind: RunnerKind, base: str, now: float, is_spare: bool = False) -> None:
        self.key, self.kind, self._base, self.is_spare = key, kind, base, is_spare
        self._was_spare, self._started_as, self._hello = is_spare, kind, Hello("", "", 0.0, 0)
        self.folder = os.path.join(base, key)
        os.makedirs(self.folder, mode=0o700)
        self.connection: Optional[RunnerConnection] = None  # None: not yet, or no longer connected
        self.is_ready = False  # it has connected
        self.version = ""
        self.piece: Optional[Piece] = None
        self.is_sent = False  # it has the piece
        self.describes = False  # it describes the call that killed another runner
        self.crash: Optional[Report] = None  # the report that waits for that
        self.is_stopping = False  # the guard was asked to end it
        self.is_late = False  # because it never connected
        self.is_cut_off = False  # the connection ended
        self.over: Optional[int] = None  # because this call took too long
        self.since = now  # when it was started, or became idle
        self.began = now  # when the present call began, as far as is known
        self.due = now  # when to check it next
        self.read_at: Optional[float] = None  # when to read the log
        self.bound_at = 0.0  # when to measure how much it writes
        self.needed = ""  # the blob it waits for
        # Blobs that were requested and not yet given to it: None while being fetched, then path, error and time.
        self.blobs: dict[str, Optional[tuple[Optional[str], str, float]]] = {}
        self.rss = 0
        self.cpu_reported = 0.0  # seconds of its CPU time that are accounted for
        self._serial, self._skips = 0, 0
        self.is_initialized = False  # it had a piece
        self._given = 0  # calls
        self._at = LOG_AT
        self._bounds: dict[str, Bound] = {}  # by stream: the file that the present call writes to
        self.log = -1
        self._page: MutableSequence[int] = [0] * 4

    # --- start and end
    def start(self, grace: float, umask: int) -> Start:
        """The request to the guard to start it."""
        kind = self.kind
        return Start(
            self.key,
            [
                kind.python,
                "-c",
                _BEGIN,
                os.path.join(self._base, "code"),
                self._base,
                self.key,
                "spare" if self.is_spare else "",
            ],
            "/" if self.is_spare else kind.cwd,
            {**dict(kind.env), "SHOAL_ATTEMPT": self.key},
            os.path.join(self.folder, "start.out"),
            os.path.join(self.folder, "start.err"),
            grace,
            umask,
            memory=kind.memory,
            file_size=max(kind.disk, MAX_STREAM) + STREAM_SLACK if kind.disk > 0 else None,
            exclusive=kind.is_exclusive,
        )

    def connect(self, connection: RunnerConnection, hello: Hello) -> bool:
        """It has connected; False: it is a spare one, which waits until it is taken."""
        self.connection, self._hello = connection, hello
        if not self.is_spare:
            self._welcome(connection)
        return not self.is_spare

    @property
    def died_waiting(self) -> bool:
        """It was a spare one, and had not begun anything when it ended."""
        return self._was_spare and self._serial <= 1 and self.stage == IDLE

    def take(self, kind: RunnerKind) -> None:
        """Make a spare runner one of this kind."""
        self.kind, self.is_spare = kind, False
        if self.connection is not None:
            self._welcome(self.connection)

    def _welcome(self, connection: RunnerConnection) -> None:
        """Give it the log and what it needs to know."""
        self.log = _make_log(self.folder)
        self._page = memoryview(mmap.mmap(self.log, LOG_AT)).cast("Q")  # type: ignore[assignment]
        self.version, self.is_ready, self.cpu_reported = self._hello.version, True, self._hello.cpu
        self.rss = self._hello.rss  # also of calls that are read before the runner tells of them
        with contextlib.suppress(OSError):  # it is gone already: the guard will report that
            socket.send_fds(connection.sock, [b"\n"], [self.log])
        paths = self.kind.path.split(os.pathsep) if self.kind.path else []
        results = os.path.join(self._base, "results", self.key + ".")
        old, new = dict(self._started_as.env), dict(self.kind.env)
        env = {name: new.get(name) for name in _LATE if old.get(name) != new.get(name)}
        compiled = os.path.join(self._base, "compiled")
        connection.send(Welcome(paths, self.kind.is_theirs, self.folder, results, compiled, env, self.kind.argv))

    def send(self, message: tuple[Any, ...]) -> None:
        """Send a message, if it is connected."""
        if self.connection is not None:
            self.connection.send(message)

    def disconnect(self) -> None:
        """Close the connection: it ends when it notices."""
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def send_end(self) -> bool:
        """Have an idle runner with a finalizer end by itself; False: there is none to be called."""
        if self.connection is None or self.piece is not None or not self.kind.finalizer or not self.is_initialized:
            return False
        with contextlib.suppress(OSError):
            self.connection.sock.shutdown(socket.SHUT_WR)  # it sees that nothing more comes
        return True

    def await_end(self, until: float) -> None:
        """Wait until it has closed its side of the connection, that is until it has ended."""
        with contextlib.suppress(OSError):
            while self.connection is not None and (left := until - time.monotonic()) > 0:
                self.connection.sock.settimeout(left)
                if not self.connection.sock.recv(4096):
                    return

    def forget(self) -> None:
        """Release what belongs to a process that is gone."""
        self.disconnect()
        self._page = list(self._page)
        if self.log >= 0:
            os.close(self.log)
            self.log = -1
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- work
    def give(self, piece: Piece, now: float) -> None:
        """Send it a piece."""
        lease = piece.lease
        rewind = self._at > LOG_AT + REWIND
        if rewind:
            self._at = LOG_AT
        self._serial += 1
        self.is_sent, self.began, self.bound_at, self.over = True, now, now + 0.5, None
        params = lease.params
        self.send(
            RunCalls(
                self._serial,
                piece.first.run,
                piece.first.element,
                piece.first.number,
                lease.function,
                "" if self.is_initialized else lease.initializer,
                lease.modules,
                " ".join(lease.calls),
                self.kind.cwd,
                piece.pipe,
                {name: value for name, value in lease.env.items() if name in ("SHOAL_SEED", "SHOAL_INDEX")},
                lease.seed,
                [one["i"] for one in params] if params and "i" in params[0] else [],
                lease.env.get("SHOAL_RESEED") == "1",
                list(piece.stops),
                rewind,
                "" if self.is_initialized else lease.finalizer,
                piece.emits.rpartition(".")[0],
                bool(lease.parents),
            )
        )
        self.is_initialized = True
        self._given += piece.count

    def may_take(self, calls: int) -> bool:
        """True if it may make so many more calls."""
        return not self.kind.max_calls or self._given + calls <= self.kind.max_calls

    def wrong_version(self, lease: Lease) -> str:
        """Why it cannot make these calls, if its Python is another one than that which made the function."""
        wanted = lease.env.get("SHOAL_PYTHON_VERSION", self.version)
        if wanted == self.version:
            return ""
        return (
            f"the function was made by Python {wanted}, and {self.kind.python} on this host is {self.version}: "
            f"give python= the path of a Python {wanted} that this host has"
        )

    def payloads(self, lease: Lease) -> tuple[str, ...]:
        """The payload texts that it will need for these calls."""
        first = () if self.is_initialized else (lease.initializer, lease.finalizer, lease.modules)
        return (lease.function, *first, *lease.calls)

    def skip(self, at: int) -> None:
        """Skip a call of its piece. Takes effect before the next call, whichever that is."""
        self.send(Skip(self._serial, at))
        self._skips += 1
        self._page[SKIPS] = self._skips

    @property
    def stage(self) -> int:
        """What it did last: IDLE, INITIALIZING, LOADING or CALLING."""
        return self._page[STAGE]

    def read(self, now: float) -> Entries:
        """The calls that ended since the log was read last."""
        if self.log < 0:
            return Entries()
        size = os.fstat(self.log).st_size - self._at
        if size <= 0:
            return Entries()
        raw = os.pread(self.log, size, self._at)
        raw = raw[: raw.rfind(b"\n") + 1]
        self._at += len(raw)
        is_plain = b"{" not in raw  # which no base64 has
        try:
            rows: list[Any] = json.loads("[" + raw[:-1].decode().replace("\n", ",") + "]")
            if not is_plain:
                rows = [CallEnd(*row) if isinstance(row, list) else CallEnd(**row) for row in rows]
            self._note(rows, now)
        except (ValueError, TypeError, LookupError):
            log.error("runner's log is garbled runner=%s", self.key)
            return Entries()
        return Entries(plain=rows) if is_plain else Entries(full=rows)

    def _note(self, rows: Sequence[Sequence[Any]], now: float) -> None:
        """Account for the CPU time of these calls; the next one began when the last of them ended."""
        self.cpu_reported += sum([row[2] for row in rows]) / 1e9
        ago = time.monotonic_ns() - rows[-1][0] - rows[-1][1]
        self.began = max(self.began, now - max(0, ago) / 1e9)

    # --- what it writes
    def written(self) -> dict[str, list[int]]:
        """The files that the present call has written to: number and size by stream."""
        found = {}
        for at, stream in enumerate(("out", "err")):
            with contextlib.suppress(OSError):
                size = os.stat(f"{self.folder}/{stream}{self._page[OUT + at]}").st_size
                if size:
                    found[stream] = [self._page[OUT + at], size]
        return found

    def files(self) -> Optional[tuple[str, str]]:
        """The two files that the present call writes to; None: it has not opened them yet."""
        out, err = self._page[OUT], self._page[OUT + 1]
        return (f"{self.folder}/out{out}", f"{self.folder}/err{err}") if out and err else None

    def bound(self) -> None:
        """Cut what the present call writes, where it is too much."""
        for stream, (number, _) in self.written().items():
            path = f"{self.folder}/{stream}{number}"
            if stream not in self._bounds or self._bounds[stream].path != path:
                self._bounds[stream] = Bound(path)
            self._bounds[stream].look()

    def move(self, stream: str, number: int, size: int, path: str) -> tuple[int, int]:
        """Move a stream's file to its log; returns how many bytes are kept, and how many were left out."""
        source = f"{self.folder}/{stream}{number}"
        bound = self._bounds.pop(stream, None) or Bound(source)
        if bound.path != source:
            bound = Bound(source)
        try:
            _rename(source, path)
        except OSError as error:
            log.error("output of a call is lost path=%s error=%s", path, error)
            return 0, size
        bound.path = path
        bound.finish()
        return bound.size, bound.left_out


def _rename(source: str, path: str) -> None:
    for _ in range(2):
        try:
            os.rename(source, path)
            return
        except OSError as error:
            if error.errno == errno.EXDEV:
                shutil.copyfile(source, path)
                os.chmod(path, 0o600)
                os.unlink(source)
                return
            if not os.path.exists(source):
                raise
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    os.rename(source, path)


def _make_log(folder: str) -> int:
    """A file in memory, or where there are none, one without a name."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("shoal-runner", os.MFD_CLOEXEC)
    else:
        path = os.path.join(folder, "log")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.unlink(path)
    os.ftruncate(fd, LOG_AT)
    return fd
