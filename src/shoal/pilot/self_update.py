"""Self-update: our own digest, and replacing this program by the next pilot in the same process."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import sys
from typing import Callable, Optional

from shoal.pilot.host import memfd
from shoal.wire.join import Join

_MESH = ("mesh", "mesh_port", "mesh_address", "shared_dir", "address_dir")
_CACHE = ("cache_dir", "cache_max", "cache_reserve")
_OPEN_FILE = re.compile(r"/proc/self/fd/([0-9]+)")


def own_digest(pack: Optional[Callable[[], bytes]] = None) -> str:
    """SHA-256 of the zip that we run from, or of what `pack` makes of the package that we run from; empty if it cannot
    be read."""
    archive = getattr(globals().get("__loader__"), "archive", "")
    try:
        if pack is not None:
            return hashlib.sha256(pack()).hexdigest()
        with open(archive, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


def keep_zip_private() -> None:
    """Keep programs that we start from inheriting the zip, if it is a file in memory."""
    found = _OPEN_FILE.fullmatch(sys.argv[0])
    if found:
        with contextlib.suppress(OSError):
            os.set_inheritable(int(found[1]), False)


def options_again(options: argparse.Namespace) -> list[str]:
    """The command line of the next pilot; without the join string."""
    argv: list[str] = []
    names = ("server_file", "server", "token_file", "cores", "site", "work_dir", "idle_end", "until", *_CACHE, *_MESH)
    for name in names:
        value = getattr(options, name)
        if value is not None and value != "":
            argv += [f"--{name.replace('_', '-')}", str(value)]
    for tag in options.tag:
        argv += ["--tag", tag]
    for rule in options.storage:
        argv += ["--storage", rule]
    switches = ("no_pid_namespace", "no_cgroup", "verbose")
    return argv + [f"--{name.replace('_', '-')}" for name in switches if getattr(options, name)]


def become(zip_fd: int, options: argparse.Namespace, join: Optional[Join]) -> None:
    """Replace this program by the pilot in that file; returns only by OSError."""
    argv = options_again(options)
    if join is not None:
        argv += ["--join-fd", str(memfd.hold(str(join).encode(), inherit=True))]
    os.set_inheritable(zip_fd, True)
    python = sys.executable or os.readlink("/proc/self/exe")
    os.execv(python, [python, "-I", memfd.path_of(zip_fd), *argv])
