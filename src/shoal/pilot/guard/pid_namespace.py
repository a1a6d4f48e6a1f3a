"""A PID namespace around the guard: whatever its tasks start is killed by the kernel in the moment in which the guard
ends, whatever ended it, and no task can see, stop or kill the guard or the pilot.

The guard is process 1 of the namespace. The kernel delivers no SIGKILL or SIGSTOP to process 1 from inside, and kills
all other processes of the namespace when process 1 is gone: nothing can detach from it, neither by a double fork nor by
a session of its own, nor by an environment of its own. A parent-death signal does less: it is not inherited by children,
is dropped when a program with the set-user-ID bit is executed, and follows the thread, not the process.

It needs CAP_SYS_ADMIN, so most often root. A user namespace would give that to everyone, but takes from the tasks their
further groups, programs with the set-user-ID bit and rootless containers, so it is not used without being asked for.
"""

from __future__ import annotations

import ctypes
import os
import secrets

_CLONE_NEWNS, _CLONE_NEWPID = 0x00020000, 0x20000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_SLAVE = 2, 4, 8, 16384, 1 << 19
# Two pilots of one host would else give their tasks the same small process numbers, and with them the same names of
# temporary files to all programs that make these from their number.
_FIRST_PID, _PID_SPREAD = 1_000, 24_000


def leave() -> None:
    """Let the next child be process 1 of a new namespace; OSError where that is not permitted."""
    _call("unshare", ctypes.c_int(_CLONE_NEWPID))


def settle() -> None:
    """In process 1: show it and its descendants their own /proc. OSError where that cannot be had: then /proc would
    show the processes of others under the numbers of ours."""
    _call("unshare", ctypes.c_int(_CLONE_NEWNS))
    # What the host mounts or unmounts later is seen here too, but nothing that is mounted here gets out.
    _call("mount", b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None)
    _call("mount", b"proc", b"/proc", b"proc", ctypes.c_ulong(_MS_NOSUID | _MS_NODEV | _MS_NOEXEC), None)
    if os.getpid() != 1 or os.readlink("/proc/self") != "1":
        raise OSError("the new namespace does not show itself")
    try:
        with open("/proc/sys/kernel/ns_last_pid", "w", encoding="ascii") as file:
            file.write(str(_FIRST_PID + secrets.randbelow(_PID_SPREAD)))
    except OSError:
        pass  # they begin at 2: nothing depends on it here


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
