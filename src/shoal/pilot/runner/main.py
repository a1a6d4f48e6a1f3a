"""Inside the submitter's interpreter: calls functions one after another and logs how each ended.

The guard starts it, `functions/runners` talks to it over a socket. How a call ended is written into a file in memory that
the pilot has too: so after a crash it is known what ended before it and which call crashed. The pilot is notified to read
it at the end of a piece, and whenever a call ends more than 50 ms after the last notification. There is no thread
and no timer of ours in the interpreter, and little is imported: it belongs to the functions.

Must run on every Python since 3.9, from a folder with nothing but this module and what it imports of shoal.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.machinery
import importlib.util
import json
import mmap
import os
import resource
import signal
import socket
import sys
import time
from binascii import b2a_base64
from collections import deque
from collections.abc import MutableSequence
from types import CoroutineType, ModuleType
from typing import Any, NoReturn, Optional

from shoal.pilot.runner import messages
from shoal.pilot.runner.failure import clean, in_one_line, pack_error, trace_of
from shoal.pilot.runner.load import Environ, HostLacks, Loads, Missing, NotPicklable, find_cloudpickle, pack
from shoal.pilot.runner.messages import CallEnd
from shoal.pilot.runner.output import Output
from shoal.pilot.runner.user_modules import UserModules

SOCKET = "socket"
# The first page of the file in memory is a row of numbers, written by one side and read by the other.
SKIPS, STAGE, OUT = 0, 1, 2  # skip orders sent (pilot); what is being done (runner); number of each stream's file
IDLE, INITIALIZING, LOADING, CALLING = range(4)
LOG_AT = 4096  # the log of ended calls begins here: a line of JSON for each
NOTIFY = 50_000_000  # nanoseconds between two notifications of the pilot
REWIND = 1 << 20  # a log that has grown so far begins anew with the next piece
_CHUNK = 1 << 18
_HIGH = 500  # our open files have numbers from here on
_QUICK = 100_000  # nanoseconds in which nobody starts a process
# Modules that stay imported: pickles refer to the first, and we are the other. A later `import shoal` is the submitter's.
_OURS = ("shoal.wire.payload", "shoal.pilot.runner.main")


def seed_of(master: int, element: int) -> int:
    """As `wire.chunk.seed_of`, which cannot be had without half of shoal; a test holds them equal."""
    digest = hashlib.sha256(f"{master}:{element}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


class PilotConnection:
    """Our end of the connection to the pilot."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._part = b""
        self._lines: deque[bytes] = deque()

    def send(self, message: tuple[Any, ...]) -> None:
        """Send a message; the pilot never makes us wait long."""
        try:
            self.sock.sendall(messages.encode(message))
        except OSError:
            self._leave()

    def read(self) -> Any:
        """The next message, whenever it comes. Ends the process if the pilot is gone."""
        while not self._lines:
            parts = [self._part]
            while True:
                try:
                    data = self.sock.recv(_CHUNK)
                except OSError:
                    data = b""
                if not data:
                    self._leave()
                parts.append(data)
                if b"\n" in data:
                    break
            *lines, self._part = b"".join(parts).split(b"\n")
            self._lines.extend(lines)
        return messages.decode(self._lines.popleft())

    def _leave(self) -> NoReturn:
        if self.sock.fileno() < 0:
            os._exit(0)  # we are a child that a function forked and forgot to end
        sys.exit(0)


class Runner:
    """One interpreter that calls functions."""

    def __init__(self, connection: PilotConnection, log: int, welcome: messages.Welcome) -> None:
        self._connection, self._log = connection, log
        self._results, self._stored = welcome.results, 0
        self._at = LOG_AT
        self._page: MutableSequence[int] = memoryview(mmap.mmap(log, LOG_AT)).cast("Q")  # type: ignore[assignment]  # of whole numbers
        self._loads = Loads(self._need)
        self._output = Output(welcome.folder, self._page, OUT)
        self._modules, self._installed = UserModules(welcome.compiled), ""
        self._modules.install(b"")
        self._skips = 0  # messages to skip a call that were received
        self._serial, self._skipped = 0, set[int]()  # of the present piece
        self._broken: Optional[BaseException] = None  # what the initializer raised
        self._finalizer: Optional[tuple[Any, Any]] = None  # a function and its arguments
        self._is_calling = False
        self._child_cpu = 0
        signal.signal(signal.SIGINT, self._on_interrupt)
        os.register_at_fork(after_in_child=self._forget)

    def serve(self) -> NoReturn:
        """Work until the pilot closes the connection; then the finalizer is called."""
        try:
            while True:
                message = self._receive(messages.RunCalls, messages.Describe)
                self._run(message) if isinstance(message, messages.RunCalls) else self._describe(message)
        finally:
            if self._finalizer is not None and self._log >= 0:  # else this is a child that a function forked
                function, args = self._finalizer
                function(*args)

    def _on_interrupt(self, number: int, frame: object) -> None:
        if self._is_calling:  # else it comes too late, and must not hit the next call
            raise KeyboardInterrupt

    def _forget(self) -> None:
        """In a process that a function forked: the connection and the log are not for it."""
        self._connection.sock.close()
        os.close(self._log)
        self._log = -1

    # --- receiving
    def _receive(self, *kinds: type) -> Any:
        """The next message of one of these types; calls to be skipped are noted in between."""
        while True:
            message = self._connection.read()
            if isinstance(message, messages.Skip):
                self._note_skip(message)
            elif isinstance(message, kinds):
                return message
            elif not isinstance(message, messages.Blob):  # which comes late if the call that needed it was interrupted
                sys.exit(f"shoal: unexpected message: {type(message).__name__}")

    def _read_skips(self) -> None:
        """Read all skip messages that the pilot has sent before the next call begins."""
        while self._skips != self._page[SKIPS]:
            self._note_skip(self._connection.read())

    def _note_skip(self, skip: messages.Skip) -> None:
        self._skips += 1
        if skip.serial == self._serial:  # else it comes late, its piece is over
            self._skipped.add(skip.at)

    def _need(self, digest: str) -> str:
        self._connection.send(messages.NeedBlob(digest))
        while True:
            blob = self._receive(messages.Blob)
            if blob.digest != digest:
                continue
            if blob.error:
                raise Missing(blob.error)
            path: str = blob.path
            return path

    # --- reporting
    def _write(self, entry: bytes) -> None:
        """Append one ended call to the log."""
        try:
            done = os.pwrite(self._log, entry, self._at)
            while done < len(entry):
                done += os.pwrite(self._log, entry[done:], self._at + done)
        except OSError:
            os._exit(0 if self._log < 0 else 1)  # a forked child that came back from its function, or no memory
        self._at += done

    def _notify(self, is_over: bool) -> None:
        self._connection.send(messages.Progress(is_over, peak_memory()))

    # --- a piece
    def _run(self, piece: messages.RunCalls) -> None:
        if self._modules.is_stale():
            self._connection.send(messages.Stale())
            return
        self._serial, self._skipped = piece.serial, set(piece.skip)
        if piece.rewind:
            os.ftruncate(self._log, LOG_AT)
            self._at = LOG_AT
        with contextlib.suppress(OSError):
            os.chdir(piece.cwd)  # a function may have gone elsewhere
        os.environ["SHOAL_RUN"] = f"r{piece.run}"
        os.environ.pop("SHOAL_TAGS", None)
        if piece.tags:
            os.environ["SHOAL_TAGS"] = piece.tags
        broken = self._import_from(piece.modules) or self._initialize(piece.initializer, piece.finalizer)
        function: Any = None
        if broken is None:
            self._page[STAGE] = LOADING
            began = time.perf_counter_ns()
            try:
                self._is_calling = True
                function = self._loads.function(piece.function)
            except BaseException as error:
                broken = error
            self._is_calling = False
            if time.perf_counter_ns() - began > NOTIFY:
                self._notify(False)  # the time of the first call counts from here
        self._page[STAGE] = CALLING
        self._call_all(piece, function, broken)
        self._page[STAGE] = IDLE
        self._notify(True)

    def _import_from(self, text: str) -> Optional[BaseException]:
        """Take over the modules of the session; returns what went wrong."""
        if text == self._installed:
            return None
        try:
            self._modules.install(self._loads.load(text))
        except BaseException as error:
            return error
        self._installed = text
        return None

    def _initialize(self, initializer: str, finalizer: str) -> Optional[BaseException]:
        if (initializer or finalizer) and self._broken is None:
            self._page[STAGE] = INITIALIZING
            try:
                self._is_calling = True
                # Loaded now: at the end there is no pilot any more to ask for a blob.
                final = self._loads.load(finalizer) if finalizer else None
                if initializer:
                    function, args = self._loads.load(initializer)
                    function(*args)
                self._finalizer = final
            except BaseException as error:
                self._broken = error
            self._is_calling = False
            self._notify(False)
        return self._broken

    def _call_all(self, piece: messages.RunCalls, function: Any, broken: Optional[BaseException]) -> None:
        """Make the calls of a piece. What costs time here costs it for each call."""
        load, output, page, environ = self._loads.load, self._output, self._page, Environ()
        clock, cpu_clock = time.perf_counter_ns, time.process_time_ns
        task, attempt, first = b"r%d." % piece.run, b"#%d" % piece.number, piece.first
        master, indices, reseed = piece.seed, piece.indices, piece.reseed
        emits = piece.emits.encode("utf-8", "surrogateescape") + b"." if piece.emits else b""
        for old in ("SHOAL_SEED", "SHOAL_INDEX", "SHOAL_EMIT"):
            os.environ.pop(old, None)  # of the last piece
        os.environ.update(piece.env)
        seed = int(piece.env.get("SHOAL_SEED", 0))
        notified = began = clock()
        used = cpu_clock()
        for at, text in enumerate(piece.calls.split()):
            if page[SKIPS] != self._skips:
                self._read_skips()
            if at in self._skipped:
                self._write_end(CallEnd(began, is_skipped=True))
                if piece.is_chain:
                    break
                continue
            element = first + at
            environ[b"SHOAL_TASK"] = name = b"%b%d" % (task, element)
            environ[b"SHOAL_ATTEMPT"] = name + attempt
            if emits:
                environ[b"SHOAL_EMIT"] = emits + b"%d" % element
            if master is not None:
                seed = seed_of(master, element)
                environ[b"SHOAL_SEED"] = b"%d" % seed
                environ[b"SHOAL_INDEX"] = str(indices[at]).encode() if indices else b"%d" % element
            if reseed:
                _reseed(seed)
            end: Optional[CallEnd] = None  # set where there is more to log than a result
            data: Any = b""
            try:
                if broken is None:
                    self._is_calling = True
                    args, kwargs = load(text)
                    value = function(*args, **kwargs)
                    if type(value) is CoroutineType:
                        value = _await(value)
                    self._is_calling = False
                    data = pack(value)
                    if type(data) is not bytes:
                        end = CallEnd(file=self._keep(data))
                else:
                    end = self._explain(broken)
            except BaseException as error:
                self._is_calling = False
                end = self._explain(error)
            args = kwargs = value = None
            if output.wrote():
                wrote = output.take(_has_children())
                end = (end or CallEnd())._replace(out=wrote.get("out"), err=wrote.get("err"))
            now, cpu, more = clock(), cpu_clock(), 0
            if now - began > _QUICK:
                if _has_children() and not (end and (end.out or end.err)):
                    output.take(True)  # what they write from now on belongs to no later call
                more = self._count_children()
            if end:
                if not end.outcome and not end.file:
                    end = end._replace(result=b2a_base64(data, newline=False).decode())
                self._write_end(end._replace(began=began, took=now - began, cpu=cpu - used + more))
            else:
                data = b2a_base64(data, newline=False)
                self._write(b'[%d,%d,%d,"%b"]\n' % (began, now - began, cpu - used + more, data))
            data = None
            if end and end.outcome and piece.is_chain:
                break
            began, used = now, cpu
            if now - notified > NOTIFY:
                self._notify(False)
                notified = now

    def _write_end(self, end: CallEnd) -> None:
        self._write(json.dumps(end._asdict()).encode() + b"\n")

    def _count_children(self) -> int:
        """CPU time of ended children since the last count."""
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        total = int((usage.ru_utime + usage.ru_stime) * 1e9)
        more, self._child_cpu = total - self._child_cpu, total
        return more

    def _keep(self, parts: Any) -> str:
        """A large result into a file of its own."""
        self._stored += 1
        path = f"{self._results}{self._stored}"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            for part in parts:
                file.write(part)
        return path

    # --- failures
    def _explain(self, error: BaseException) -> CallEnd:
        """How a failed call is logged."""
        cause, begin = "task_error", ""
        if isinstance(error, HostLacks):
            return CallEnd(outcome="returned", cause="host_unfit", message=str(error))
        if isinstance(error, Missing):
            cause, error = "stage_in", OSError(str(error))
        elif error is self._broken:
            cause, begin = "initializer", "initializer failed: "
        elif isinstance(error, NotPicklable) and isinstance(error.__cause__, Exception):
            begin, error = "its result cannot be pickled: ", error.__cause__
        self._modules.show_sources()
        trace = trace_of(error)
        end = CallEnd(outcome="failed", cause=cause, message=begin + in_one_line(error), trace=trace)
        data = pack_error(error, trace)
        if isinstance(data, bytes):
            return end._replace(result=b2a_base64(data, newline=False).decode())
        return end._replace(file=self._keep(data))

    def _describe(self, wanted: messages.Describe) -> None:
        text = ""
        with contextlib.suppress(BaseException):
            self._import_from(wanted.modules)
            text = clean(self._loads.describe(wanted.function, wanted.call))
        self._output.take(True)
        self._connection.send(messages.Described(text))


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _await(coroutine: Any) -> Any:
    """The result of an `async def`, in an event loop of its own."""
    import asyncio  # few functions need it

    return asyncio.run(coroutine)


def _reseed(seed: int) -> None:
    """The generators that programs use without asking, set as if the call were the only one [DIANE U12]."""
    import random

    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)


def arrange_path(theirs: list[str], is_theirs: bool) -> None:
    """`sys.path` as the submitter had it, as far as it exists here; another interpreter keeps its own in front."""
    ours = [one for one in sys.path if one]
    known = [one for one in theirs if not one or os.path.exists(one)]
    order = [*known, *ours] if is_theirs else [*ours, *known]
    sys.path[:] = dict.fromkeys(order)


def arguments_of(text: str) -> list[str]:
    """`sys.argv` of the submitter, as in a process that `multiprocessing` starts; as of `python -c` if it is not known."""
    with contextlib.suppress(ValueError):
        found = json.loads(text)
        if isinstance(found, list):
            return [str(one) for one in found]
    return ["-c"]


def set_variables(changes: dict[str, Optional[str]]) -> None:
    """Make the environment that of the session; None: not set."""
    for name, value in changes.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def keep_if_theirs(module: ModuleType) -> None:
    """Forget a package that was imported in advance, if the submitter's search path leads to another."""
    name = module.__name__
    spec = importlib.machinery.PathFinder.find_spec(name)
    if spec is None or spec.origin != module.__file__:
        for one in list(sys.modules):
            if one.split(".")[0] == name:
                del sys.modules[one]


def hide_modules() -> None:
    """Let a later `import shoal` find the submitter's, if there is one."""
    taken = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "shoal"}
    is_there = False
    with contextlib.suppress(ImportError, ValueError):
        is_there = importlib.util.find_spec("shoal") is not None
    sys.modules.update({name: taken[name] for name in (_OURS if is_there else taken)})


def raise_number(fd: int) -> int:
    """The same open file under a high number. A function that closes files that are not its own and opens others must
    not get one that we then write to."""
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    except OSError:  # not so many are allowed
        os.set_inheritable(fd, False)
        return fd
    os.close(fd)
    return high


def peak_memory() -> int:
    """The most memory that this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Run a runner; `sys.argv` has the folder with our code, that of the socket, our name, and whether we are to wait."""
    code, folder, name, is_spare = sys.argv[1:5]
    cloud = find_cloudpickle() if is_spare else None
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    near = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    sock.connect(f"/proc/self/fd/{near}/{SOCKET}")  # the whole path may be longer than a socket's may
    os.close(near)
    sock = socket.socket(fileno=raise_number(sock.detach()))
    connection = PilotConnection(sock)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    connection.send(messages.Hello(name, version, time.process_time(), peak_memory()))
    _, fds, _, _ = socket.recv_fds(sock, 1, 1)
    if not fds:
        sys.exit(0)
    log = raise_number(fds[0])
    welcome: messages.Welcome = connection.read()
    sys.path.remove(code)
    sys.argv[:] = arguments_of(welcome.argv)
    set_variables(welcome.env)
    arrange_path(welcome.path, welcome.is_theirs)
    if cloud is not None:
        keep_if_theirs(cloud)
    hide_modules()
    Runner(connection, log, welcome).serve()
