"""Start one task process, or explain why it could not be started and whose fault that is."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import resource
import signal
import subprocess
import sys
from collections import OrderedDict
from typing import NamedTuple, Optional, Union

from shoal.pilot.guard import proctree
from shoal.pilot.guard.messages import NotStarted, Start, StartPiece
from shoal.pilot.guard.pieces import Piece
from shoal.pilot.host import disk_space

# The host lacks something: the task may do well elsewhere.
_HOST = {
    errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ESTALE,
    errno.EROFS,
}  # fmt: skip
NOT_FOUND, NOT_RUNNABLE = 127, 126  # exit codes as shells have them
# A limit on files holds for the streams too, which are cut now and then: so much may be written in between.
STREAM_SLACK = 256 * 1024 * 1024
_CPU_GRACE = 5  # seconds from SIGXCPU to SIGKILL
BASES_KEPT = 8  # environments that many starts share
_Env = dict[bytes, bytes]
_HAS_SPAWN = hasattr(os, "posix_spawn")
_DEFAULT = [signal.SIGPIPE, signal.SIGXFSZ]  # Python ignores them; a task must not


class Launch(NamedTuple):
    """A start with the shared environment that it extends; a text says what is wrong with that."""

    start: Start
    base: Union[_Env, str]
    piece: Optional[Piece] = None  # of which it is one; the start of a whole piece is that of its template


class SpawnFailed(Exception):
    """A process could not be started."""

    def __init__(self, number: int, message: str, cause: str, exit_code: Optional[int] = None) -> None:
        super().__init__(message)
        self.number, self.cause, self.exit_code = number, cause, exit_code

    def report(self, attempt: str, piece: str = "") -> NotStarted:
        """What the pilot is sent."""
        return NotStarted(attempt, self.cause, str(self), self.exit_code, self.number, piece)

    @classmethod
    def for_streams(cls, error: OSError) -> SpawnFailed:
        """A stream could not be opened."""
        if disk_space.is_full(error):
            message = disk_space.no_space(
                os.path.dirname(str(error.filename)), error.errno or 0, "its streams were opened"
            )
            return cls(error.errno or 0, message, "host_unfit")
        return cls(error.errno or 0, f"cannot write {error.filename}: {error.strerror}", "host_unfit")


class Spawner:
    """Starts commands. The environment that most of them share is sent once and kept under its number."""

    def __init__(self) -> None:
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self.mark: _Env = {}  # identifies every task process as one of this pilot
        self._bases: OrderedDict[int, Union[_Env, str]] = OrderedDict()  # a text: what is wrong with it

    def prepare(self, start: Start) -> Launch:
        """Add the shared environment. A queued start keeps its own, since later ones may push it out of the cache."""
        if start.base is None:
            return Launch(start, {})
        if start.base_env is not None:
            try:
                self._bases[start.base] = _encode(start.base_env)
            except ValueError as error:
                self._bases[start.base] = str(error)
            if len(self._bases) > BASES_KEPT:
                self._bases.popitem(last=False)  # the pilot counts as we do, and sends it again
        return Launch(start, self._bases[start.base])

    def prepare_piece(self, message: StartPiece) -> Launch:
        """The same for a piece, with what its commands have in common of their own environments."""
        piece = Piece(message)
        launch = self.prepare(piece.template)
        base = launch.base
        if not isinstance(base, str):
            try:
                base = {**base, **_encode(piece.template.env), **self.mark}
            except ValueError as error:
                base = str(error)
        return Launch(piece.template, base, piece)

    def spawn(self, launch: Launch, out: int, err: int) -> int:
        """Start a command in a session of its own, writing to two open files; returns its pid."""
        start, stdin = launch.start, self._null
        try:
            if start.stdin:
                try:
                    stdin = os.open(start.stdin, os.O_RDONLY | os.O_CLOEXEC)
                except OSError as error:
                    cause = "host_unfit" if error.errno in _HOST else "stage_in"
                    message = f"cannot read stdin {start.stdin}: {error.strerror}"
                    raise SpawnFailed(error.errno or 0, message, cause) from None
            env = self.environment(launch)
            return _spawn_quickly(start, env, (stdin, out, err)) or _popen(start, env, (stdin, out, err))
        except SpawnFailed as failure:
            with contextlib.suppress(OSError):
                os.write(err, f"shoal: {failure}\n".encode("utf-8", "replace"))
            raise
        finally:
            if stdin != self._null:
                os.close(stdin)

    def environment(self, launch: Launch) -> _Env:
        """The whole environment of a command."""
        try:
            if isinstance(launch.base, str):
                raise ValueError(launch.base)
            return {**launch.base, **_encode(launch.start.env), **self.mark}
        except ValueError as error:
            raise _refused(launch.start, error) from None


def _encode(env: dict[str, str]) -> _Env:
    """As os.fsencode does it, several times as fast."""
    how = sys.getfilesystemencoding()
    return {name.encode(how, "surrogateescape"): value.encode(how, "surrogateescape") for name, value in env.items()}


def _spawn_quickly(start: Start, env: _Env, streams: tuple[int, int, int]) -> int:
    """Start it by posix_spawn, a tenth of a millisecond less than Popen; 0 if that could not be done.

    Whatever goes wrong is left to Popen, which then explains it. posix_spawn knows no directory and no umask, so we take
    on those of the task for a moment: this process has one thread. All our other files are closed on exec.
    """
    # An exclusive task must not outlive a guard that is killed together with its pilot: needs code before exec.
    if start.exclusive or not _HAS_SPAWN:
        return 0
    argv = start.argv
    mask = os.umask(start.umask)
    try:
        os.chdir(start.cwd)
        program = argv[0] if "/" in argv[0] else _find(argv[0], env)
        actions = [(os.POSIX_SPAWN_DUP2, fd, at) for at, fd in enumerate(streams)]
        return os.posix_spawn(program, argv, env, file_actions=actions, setsid=True, setsigdef=_DEFAULT)
    except (OSError, ValueError, NotImplementedError):
        return 0
    finally:
        os.umask(mask)
        os.chdir("/")


def _find(program: str, env: _Env) -> str:
    """The first of this name in PATH that looks as if it could be run."""
    for folder in os.fsdecode(env.get(b"PATH", os.fsencode(os.defpath))).split(os.pathsep):
        path = os.path.join(folder, program)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    raise FileNotFoundError(program)


def keep_files() -> None:
    """Let no task inherit a file of ours, also not one that we inherited; the three standard ones are always open."""
    fd = 0
    while fd <= 2:
        fd = os.open(os.devnull, os.O_RDWR)
    os.close(fd)
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if int(name) > 2:
                os.set_inheritable(int(name), False)


def set_limits(pid: int, start: Start) -> None:
    """Set limits that the kernel enforces on each process of the task [security S7]."""
    if start.cpu is not None:
        _limit(pid, resource.RLIMIT_CPU, math.ceil(start.cpu), _CPU_GRACE)
    if start.file_size is not None:
        _limit(pid, resource.RLIMIT_FSIZE, start.file_size, 0)


def _limit(pid: int, kind: int, soft: int, more: int) -> None:
    with contextlib.suppress(OSError):  # it has ended already
        _, most = resource.prlimit(pid, kind)
        hard = soft + more if most == resource.RLIM_INFINITY else min(soft + more, most)
        resource.prlimit(pid, kind, (min(soft, hard), hard))


def _popen(start: Start, env: _Env, streams: tuple[int, int, int]) -> int:
    try:
        child = subprocess.Popen(
            start.argv,
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            cwd=start.cwd,
            env=env,
            start_new_session=True,
            umask=start.umask,
            # Only here, since a function between fork and exec makes a start slower.
            preexec_fn=proctree.die_with_parent if start.exclusive else None,
        )
    except OSError as error:
        raise _explain(error, start.argv, start.cwd) from None
    except (ValueError, subprocess.SubprocessError) as error:
        raise _refused(start, error) from None
    child.returncode = 0  # the guard waits for it; the object must not
    return child.pid


def _refused(start: Start, error: Exception) -> SpawnFailed:
    return SpawnFailed(0, f"cannot run {start.argv[0]}: {error}", "task_error", NOT_RUNNABLE)


def _explain(error: OSError, argv: list[str], cwd: str) -> SpawnFailed:
    program, code = argv[0], None
    if error.errno in _HOST:
        return SpawnFailed(error.errno or 0, f"this host could not start a process: {error.strerror}", "host_unfit")
    if not os.path.isdir(cwd):
        message = f"no such directory: {cwd}"
    elif error.filename == cwd:
        message = f"cannot enter directory {cwd}: {error.strerror}"
    elif error.errno in (errno.ENOENT, errno.ENOTDIR):
        message, code = f"command not found: {program}", NOT_FOUND
        if "/" in program and os.path.exists(os.path.join(cwd, program)):
            message = f"cannot run {program}: the interpreter in its first line does not exist"
    else:
        why = {errno.ENOEXEC: "neither a program nor a script with a #! line", errno.EACCES: "not executable"}
        message, code = f"cannot run {program}: {why.get(error.errno or 0, error.strerror)}", NOT_RUNNABLE
    return SpawnFailed(error.errno or 0, message, "task_error", code)
