"""The embedded server: one per user, started as a process of its own when first needed [protocol 1]."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from shoal.client.client import Client
from shoal.client.config import Target, durability, echo_path, read_server_file, state_home
from shoal.client.connection.provisioner_process import ensure_running, folder_of
from shoal.model.errors import Refused, Unreachable, printable
from shoal.model.file_names import DATABASE, DATABASE_LOCK, SERVER_LOG, START_LOCK
from shoal.model.file_systems import file_system, is_network
from shoal.wire.http.connection import is_readable

START_WITHIN = 15.0
ENDS_WITHIN = 1.0  # seconds that a server takes to end once it has closed its files
QUITS_WITHIN = 8.0  # seconds that a start waits for a server that answers no more, because it may be about to end
LOG_LINES = 3  # of the log that are shown when a server did not start
MAX_LOG_LINE = 200  # characters of those before the last
REFUSAL = "shoal server: "  # how the line begins that says why a server does not start
LEAST_FREE = 64 * 1024  # bytes without which a server cannot write to its log
MAX_LOG = 16 * 1024 * 1024  # bytes; then a new log is begun, and the last one is kept beside it
MOUNTS = Path("/proc/self/mountinfo")

Say = Callable[[str], None]
_started: list[subprocess.Popen[bytes]] = []  # kept, so that Python does not warn of a child still running


def state_dir(say: Say | None = None) -> Path:
    """The embedded server's state directory, always on a local disk; `say` tells once if it is not the usual one."""
    usual = state_home()
    kind = _file_system_of(usual)
    if not is_network(kind):
        return usual
    other = _local_state(usual)
    if say is not None and not (other / DATABASE).exists():
        say(f"{usual} is on a network file system ({kind}), so Shoal keeps its state in {other}")
    return other


def _local_state(usual: Path, base: Path = Path("/var/tmp")) -> Path:
    """A state directory on this host's own disk: the one with our name, unless somebody else made it first.

    Anybody may write to `base`, so anybody may have made a directory with the name that we would use. Then a random
    name is used, and a file in the usual directory records it: one for each host, because hosts share that directory.
    """
    expected = base / f"shoal-{os.getuid()}"
    memo = usual / f"state-on-{os.uname().nodename}"
    with contextlib.suppress(OSError, ValueError):
        remembered = Path(memo.read_text(encoding="utf-8").strip())
        if remembered.parent == base and _is_ours(remembered):
            return remembered
    try:
        expected.mkdir(mode=0o700)
    except FileExistsError:
        if _is_ours(expected):
            return expected
    except OSError:
        return expected  # `make_private` then says what is wrong
    else:
        return expected
    try:
        import tempfile

        made = Path(tempfile.mkdtemp(prefix=f"shoal-{os.getuid()}-", dir=base))
        usual.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = memo.with_name(f"{memo.name}.{os.getpid()}")
        part.write_text(f"{made}\n", encoding="utf-8")
        part.replace(memo)
    except OSError as error:
        raise Refused(
            f"{expected} belongs to somebody else, and no other directory can be kept: {error.strerror}",
            code="bad_state_dir",
            hint="set XDG_STATE_HOME to a directory of your own on a local disk",
        ) from None
    return made


def _is_ours(path: Path) -> bool:
    """True for a directory of our own, not a link, that nobody else can write to."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _file_system_of(path: Path) -> str:
    """The type of the file system a path is (or would be) on; empty if this system does not tell."""
    try:
        return file_system(os.path.realpath(path), MOUNTS.read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError:
        return ""


def make_private(path: Path) -> Path:
    """The directory, made 0700 if need be; refused if it is another user's or open to others."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as error:
        raise Refused(
            f"cannot make the state directory {echo_path(path)}: {error.strerror}", code="bad_state_dir",
            hint="set XDG_STATE_HOME to a directory you can write to",
        ) from None  # fmt: skip
    if found.st_uid != os.getuid():
        raise Refused(
            f"the state directory {echo_path(path)} belongs to another user", code="bad_state_dir",
            hint="set XDG_STATE_HOME to a directory of your own",
        )  # fmt: skip
    if found.st_mode & 0o077:
        path.chmod(0o700)
    return path


def unusable(state: Path, error: OSError) -> Refused:
    """The refusal of a state directory in which no file can be made: a full or read-only disk."""
    return Refused(
        f"cannot write in the state directory {echo_path(state)}: {error.strerror}", code="bad_state_dir",
        hint="free some space, or set XDG_STATE_HOME to a directory you can write to",
    )  # fmt: skip


def running(state: Path) -> Client | None:
    """A client of the server that runs on this state directory, if one does and answers."""
    server = read_server_file(state)
    if server is None or not is_alive(server.pid):
        return None
    if server.url.startswith("http:"):
        if not _is_server(server.pid):
            return None  # the file of a server that has ended
        raise Refused(
            f"a server of an older Shoal (process {server.pid}) runs on {echo_path(state)}, reached over plain http only",
            code="old_server",
            hint=f"kill {server.pid}; what its pilots run goes on, and is reported to the next server",
        )
    client = Client(server.url, server.token)
    # Right after it started, or on a machine under load, it may answer late: ask twice.
    return client if client.health() or (not _is_stopped(server.pid) and client.health(timeout=5.0)) else None


def _is_server(pid: int) -> bool:
    """True if this process is a server, and not another one that got the same id later."""
    return "shoal.server" in _words(pid)


def _words(pid: int) -> list[str]:
    """The command line of a process; empty if there is none to be read."""
    try:
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
    except OSError:
        return []


def not_answering(state: Path) -> Unreachable | None:
    """The error about a server that has this state directory although none answers there; None if there is no such one."""
    server, named = read_server_file(state), 0
    with contextlib.suppress(OSError, ValueError):
        named = int((state / DATABASE_LOCK).read_text(encoding="ascii"))
    for pid in (server.pid if server is not None else 0, named):
        words = _words(pid) if is_alive(pid) else []
        if "shoal.server" in words and str(state) in words:
            is_stopped = _is_stopped(pid)
            hint = f"`kill -CONT {pid}` lets it go on" if is_stopped else (
                f"its log: {state / SERVER_LOG}; `kill -9 {pid}` ends it if it stays so: what its pilots run goes on, "
                "and the next command starts another"
            )  # fmt: skip
            how = "is stopped and does not answer" if is_stopped else "does not answer"
            return Unreachable(f"the server (process {pid}) {how}", code="not_answering", hint=hint)
    return None


def is_alive(pid: int) -> bool:
    """True if there is such a process, and it is not a zombie."""
    if pid <= 1:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _run_state(pid) != "Z"


def _is_stopped(pid: int) -> bool:
    return _run_state(pid) in ("T", "t")


def _run_state(pid: int) -> str:
    """R, S, T (stopped), Z and so on; empty if this system does not tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def connect(target: Target, say: Say | None = None) -> Client:
    """A client of the target; the embedded server is started if it does not run, and the provisioner of the person's
    sites, if there are any."""
    client = _connect(target, say)
    ensure_running(target.url, folder_of(target.url, state_dir()))
    return client


def _connect(target: Target, say: Say | None) -> Client:
    if target.url is not None:
        return Client(target.url, target.token, target.ca)
    state = make_private(state_dir(say))
    client = running(state)
    if client is not None:
        return client
    chosen = durability()
    return start(state, ["--embedded", "--state", str(state), *(["--durability", chosen] if chosen else [])])


def running_client(target: Target, say: Say | None = None) -> Client | None:
    """A client of the target; None if it is the embedded server and that does not run."""
    if target.url is not None:
        return Client(target.url, target.token, target.ca)
    return running(state_dir(say))


def start(state: Path, arguments: list[str], within: float = START_WITHIN) -> Client:
    """Start a server on a state directory as a process of its own and wait until it answers."""
    with _only_one_starts(state):
        client = running(state)  # another command may have started it while we waited for the lock
        if client is not None:
            return client
        _wait_for_end(state)
        before = log_size(state)
        process, ready = spawn(state, arguments)
        _started.append(process)
        try:
            # One byte when it answers; the end without one when it has ended.
            is_told = is_readable(ready, within)
            if is_told and os.read(ready, 1):
                server = read_server_file(state)
                if server is not None and server.pid == process.pid:
                    return Client(server.url, server.token)
            if is_told:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(ENDS_WITHIN)  # its file is closed a moment before it has ended
        finally:
            os.close(ready)
        code = process.poll()
        if code is None:
            process.kill()
            process.wait()
    raise start_failure(state, code, within, before)


def _wait_for_end(state: Path) -> None:
    """Give a server that answers no more a moment to end; refuse to start another beside one that does not."""
    end = time.monotonic() + QUITS_WITHIN
    while (error := not_answering(state)) is not None:
        if "-CONT" in error.hint or time.monotonic() > end:
            raise error
        time.sleep(0.05)


def spawn(state: Path, arguments: list[str]) -> tuple[subprocess.Popen[bytes], int]:
    """Start the server's process: a session of its own, no terminal, output to its log; and a file to wait for it."""
    log = state / SERVER_LOG
    with contextlib.suppress(OSError):
        if log.stat().st_size > MAX_LOG:
            log.replace(log.with_suffix(".log.old"))
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise unusable(state, error) from None
    ready, tell = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "shoal.server", *arguments, "--ready-fd", str(tell)],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
            cwd="/",  # so that it keeps no directory of the user busy
            pass_fds=(tell,),
        )
    except BaseException:
        os.close(ready)
        raise
    finally:
        os.close(descriptor)
        os.close(tell)
    return process, ready


def log_size(state: Path) -> int:
    """How long the server's log is."""
    try:
        return (state / SERVER_LOG).stat().st_size
    except OSError:
        return 0


def start_failure(state: Path, code: int | None, within: float, before: int = 0) -> Refused | Unreachable:
    """Why the server did not start, in one line: the end of its log since `before`, and where the rest is."""
    log = state / SERVER_LOG
    if code is not None and _is_full(state):
        hint = "free some space there"
        return Refused(
            f"the server did not start: the disk of {printable(str(state))} is full", code="disk_full", hint=hint
        )
    size = log_size(state)
    try:
        with log.open("rb") as file:
            file.seek(max(0, size - 8192, before if before <= size else 0))
            lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    # The last line is the reason with its fix, often a command to be typed: it is never cut. Where the server itself
    # refused to start, it says all.
    is_refusal = bool(lines) and lines[-1].startswith(REFUSAL)
    shown = [*(line[:MAX_LOG_LINE] for line in lines[-LOG_LINES:-1] if not is_refusal), *lines[-1:]]
    tail = " | ".join(map(printable, shown)) or "it said nothing"
    if code is None:
        return Unreachable(f"the server did not answer within {within:.0f} s: {tail}", hint=f"its log: {log}")
    return Refused(f"the server did not start: {tail}", code="start_refused", hint=f"its log: {log}")


def _is_full(state: Path) -> bool:
    """True if a server that ended had no space for its files, and perhaps not even for saying so."""
    with contextlib.suppress(OSError):
        disk = os.statvfs(state)
        return disk.f_bavail * disk.f_frsize < LEAST_FREE
    return False


@contextlib.contextmanager
def _only_one_starts(state: Path) -> Iterator[None]:
    """Of two commands at once only one starts a server. The kernel frees the lock however this process ends."""
    try:
        descriptor = os.open(state / START_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable(state, error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
