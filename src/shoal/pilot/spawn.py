"""Start one task process, and say in plain words why it could not be started, and whose fault that is."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import resource
import subprocess
from typing import Any, Optional

from shoal.pilot import tree
from shoal.pilot.streams import open_stream

# The host lacks something: the task may do well elsewhere.
_HOST = {
    errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ESTALE,
    errno.EROFS,
}  # fmt: skip
NOT_FOUND, NOT_RUNNABLE = 127, 126  # as shells say it
# A bound on files holds for the streams too, which are cut now and then: so much may be written in between.
STREAM_ROOM = 256 * 1024 * 1024
_CPU_GRACE = 5  # seconds from SIGXCPU to SIGKILL


class SpawnFailed(Exception):
    """A process could not be started; `news` is what the guard tells the pilot."""

    def __init__(self, number: int, message: str, cause: str, exit_code: Optional[int] = None) -> None:
        super().__init__(message)
        self.news = {"errno": number, "message": message, "cause": cause, "exit_code": exit_code}


def spawn(order: dict[str, Any]) -> int:
    """Start the command of a `start` order in a session of its own; returns its process number."""
    opened: list[int] = []
    try:
        try:
            opened.append(os.open(order["stdin"] or os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise _judge(error, f"cannot read stdin {order['stdin']}: {error.strerror}", "stage_in") from None
        try:
            opened += [open_stream(order["stdout"]), open_stream(order["stderr"])]
        except OSError as error:
            message = f"cannot write {error.filename}: {error.strerror}"
            raise SpawnFailed(error.errno or 0, message, "host_unfit") from None
        try:
            child = _popen(order, opened)
        except SpawnFailed as failure:
            with contextlib.suppress(OSError):
                os.write(opened[2], f"shoal: {failure}\n".encode("utf-8", "replace"))
            raise
        child.returncode = 0  # the guard waits for it; the object must not
        return child.pid
    finally:
        for fd in opened:
            os.close(fd)


def set_limits(pid: int, order: dict[str, Any]) -> None:
    """Bounds that the kernel itself holds, on each process of the task [S7]."""
    if order["cpu"] is not None:
        _limit(pid, resource.RLIMIT_CPU, math.ceil(order["cpu"]), _CPU_GRACE)
    if order["file_size"] is not None:
        _limit(pid, resource.RLIMIT_FSIZE, order["file_size"], 0)


def _limit(pid: int, kind: int, soft: int, more: int) -> None:
    with contextlib.suppress(OSError):  # it has ended already
        _, most = resource.prlimit(pid, kind)
        hard = soft + more if most == resource.RLIM_INFINITY else min(soft + more, most)
        resource.prlimit(pid, kind, (min(soft, hard), hard))


def _popen(order: dict[str, Any], opened: list[int]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            order["argv"],
            stdin=opened[0],
            stdout=opened[1],
            stderr=opened[2],
            cwd=order["cwd"],
            env=order["env"],
            start_new_session=True,
            umask=order["umask"],
            # An exclusive task must not outlive a guard that is killed together with its pilot. Only here, since
            # a function between fork and exec makes a start slower.
            preexec_fn=tree.die_with_parent if order["exclusive"] else None,
        )
    except OSError as error:
        raise _explain(error, order["argv"], order["cwd"]) from None
    except (ValueError, subprocess.SubprocessError) as error:
        raise SpawnFailed(0, f"cannot run {order['argv'][0]}: {error}", "task_error", NOT_RUNNABLE) from None


def _judge(error: OSError, message: str, cause: str, code: Optional[int] = None) -> SpawnFailed:
    if error.errno in _HOST:
        return SpawnFailed(error.errno or 0, message, "host_unfit")
    return SpawnFailed(error.errno or 0, message, cause, code)


def _explain(error: OSError, argv: list[str], cwd: str) -> SpawnFailed:
    program = argv[0]
    if error.errno in _HOST:
        return _judge(error, f"this host could not start a process: {error.strerror}", "host_unfit")
    if not os.path.isdir(cwd):
        return _judge(error, f"no such directory: {cwd}", "task_error")
    if error.filename == cwd:
        return _judge(error, f"cannot enter directory {cwd}: {error.strerror}", "task_error")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        message = f"command not found: {program}"
        if "/" in program and os.path.exists(os.path.join(cwd, program)):
            message = f"cannot run {program}: the interpreter in its first line does not exist"
        return _judge(error, message, "task_error", NOT_FOUND)
    if error.errno == errno.ENOEXEC:
        message = f"cannot run {program}: neither a program nor a script with a #! line"
        return _judge(error, message, "task_error", NOT_RUNNABLE)
    if error.errno == errno.EACCES:
        return _judge(error, f"cannot run {program}: not executable", "task_error", NOT_RUNNABLE)
    return _judge(error, f"cannot run {program}: {error.strerror}", "task_error", NOT_RUNNABLE)
