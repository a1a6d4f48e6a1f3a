"""The embedded server: one per user, its own process, started when first needed [protocol 1]. Never imported here."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from shoal.client.client import Client
from shoal.client.config import durability, echo_path, read_server_file, state_home
from shoal.model.errors import Refused, Unreachable
from shoal.model.layout import DATABASE, SERVER_LOG, START_LOCK

START_WITHIN = 15.0
LOG_LINES = 3
LEAST_FREE = 64 * 1024  # bytes without which a server cannot write a line
MAX_LOG = 16 * 1024 * 1024  # then the log is begun anew, the last one kept beside it
# SQLite's locks cannot be trusted on these, so the database must not be there. The same list is in db/location.py,
# which the client does not see; a test holds the two together.
NETWORK_FILE_SYSTEMS = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "fhgfs", "sshfs", "ceph"),
        *("ceph-fuse", "9p", "afs", "glusterfs", "panfs", "pvfs2", "orangefs", "wekafs", "ncpfs", "coda"),
        *("moosefs", "mfs", "juicefs", "rclone", "s3fs"),
    )
)

Say = Callable[[str], None]
_started: list[subprocess.Popen[bytes]] = []  # kept, so that Python does not complain of a child still running


def state_dir(say: Say | None = None) -> Path:
    """Where the embedded server's state rests: local disk always; `say` hears once if that is not the usual place."""
    usual = state_home()
    kind = file_system(usual)
    if kind.removeprefix("fuse.") not in NETWORK_FILE_SYSTEMS:
        return usual
    other = _local_state(usual)
    if say is not None and not (other / DATABASE).exists():
        say(f"{usual} is on a network file system ({kind}), so Shoal keeps its state in {other}")
    return other


def _local_state(usual: Path, base: Path = Path("/var/tmp")) -> Path:
    """A directory for the state on this host's own disk: the one with our name, unless somebody else was there first.

    Anybody may write to `base`, so anybody may have laid the name that we would take. Then it is one that nobody could
    foresee, and a file in the usual place remembers it, for each host one, because hosts share that place.
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
        return expected  # whoever makes it private says what is wrong
    else:
        return expected
    try:
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
    """Is it a directory of ours, no link, that nobody else can write to?"""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def file_system(path: Path, mounts: str = "/proc/self/mounts") -> str:
    """The kind of file system a path is (or would be) on; empty if this system does not tell."""
    try:
        lines = Path(mounts).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    place = os.path.realpath(path)
    best, kind = "", ""
    for line in lines:
        parts = line.split(" ")
        if len(parts) < 3:
            continue
        point = parts[1].encode().decode("unicode_escape")  # blanks are written \040
        below = place == point or place.startswith(point.rstrip("/") + "/")
        if below and len(point) >= len(best):  # of two mounts on one point the later counts
            best, kind = point, parts[2]
    return kind


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
    told = read_server_file(state)
    if told is None or not is_alive(told["pid"]):
        return None
    if told["url"].startswith("http:"):
        if not _is_server(told["pid"]):
            return None  # left by one that is gone
        raise Refused(
            f"a server of an older Shoal (process {told['pid']}) runs on {echo_path(state)}, reached over plain http only",
            code="old_server",
            hint=f"kill {told['pid']}; what its pilots run goes on, and is reported to the next server",
        )
    client = Client(told["url"], str(told.get("token", "")))
    # Its first moments after binding, or a machine under load: ask twice before calling it dead.
    return client if client.health() or client.health(timeout=5.0) else None


def _is_server(pid: int) -> bool:
    """Is this process a server, and not one that got its number?"""
    with contextlib.suppress(OSError):
        return b"shoal.server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def is_alive(pid: int) -> bool:
    """Is there such a process (one that is not a zombie)?"""
    if pid <= 1:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return True


def connect(say: Say | None = None, state: Path | None = None) -> Client:
    """A client of the embedded server, started if it does not run."""
    place = make_private(state if state is not None else state_dir(say))
    client = running(place)
    if client is not None:
        return client
    chosen = durability()
    return start(place, ["--embedded", "--state", str(place), *(["--durability", chosen] if chosen else [])])


def start(state: Path, arguments: list[str], within: float = START_WITHIN) -> Client:
    """Start a server on a state directory as a process of its own and wait until it answers."""
    with _only_one_starts(state):
        client = running(state)  # another command may have started it while we waited for the lock
        if client is not None:
            return client
        before = log_size(state)
        process = spawn(state, arguments)
        _started.append(process)
        end = time.monotonic() + within
        while time.monotonic() < end:
            told = read_server_file(state)
            if told is not None and told["pid"] == process.pid:
                client = Client(told["url"], str(told.get("token", "")))
                if client.health():
                    return client
            if process.poll() is not None:
                break
            time.sleep(0.02)
        code = process.poll()
        if code is None:
            process.kill()
            process.wait()
    raise start_failure(state, code, within, before)


def spawn(state: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    """The server's process: own session, no terminal, words into its log."""
    log = state / SERVER_LOG
    with contextlib.suppress(OSError):
        if log.stat().st_size > MAX_LOG:
            log.replace(log.with_suffix(".log.old"))
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise unusable(state, error) from None
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "shoal.server", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
            cwd="/",  # so that it holds no directory of the user's
        )
    finally:
        os.close(descriptor)


def log_size(state: Path) -> int:
    """How long the server's log is."""
    try:
        return (state / SERVER_LOG).stat().st_size
    except OSError:
        return 0


def start_failure(state: Path, code: int | None, within: float, before: int = 0) -> Refused | Unreachable:
    """Why the server did not start, in one line: the end of what it logged since `before`, and where the rest is."""
    log = state / SERVER_LOG
    size = log_size(state)
    try:
        with log.open("rb") as file:
            file.seek(max(0, size - 8192, before if before <= size else 0))
            lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    tail = " | ".join(shorten(line) for line in lines[-LOG_LINES:]) or _silence(state)
    if code is None:
        return Unreachable(f"the server did not answer within {within:.0f} s: {tail}", hint=f"its log: {log}")
    return Refused(f"the server did not start: {tail}", code="start_refused", hint=f"its log: {log}")


def _silence(state: Path) -> str:
    """Why a server said nothing: on a full disk it could not."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(state).free < LEAST_FREE:
            return "the disk is full, so it could not even say why: free some space"
    return "it said nothing"


def shorten(line: str) -> str:
    """A line of a log, fit for one line of a terminal."""
    return "".join(c if c.isprintable() else " " for c in line)[:200]


@contextlib.contextmanager
def _only_one_starts(state: Path) -> Iterator[None]:
    """Two commands at once start one server, not two. The kernel frees the lock however we end."""
    try:
        descriptor = os.open(state / START_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable(state, error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
