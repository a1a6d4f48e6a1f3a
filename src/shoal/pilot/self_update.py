"""Becoming another pilot: our own digest, and the step from this program to the next one in the same process."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import sys
from typing import Optional

from shoal.pilot.host import memory_files
from shoal.wire.join import Join

_OPEN_FILE = re.compile(r"/proc/self/fd/([0-9]+)")


def own_digest() -> str:
    """SHA-256 of the zip that we run from; empty where we do not."""
    archive = getattr(globals().get("__loader__"), "archive", "")
    try:
        with open(archive, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


def keep_zip_private() -> None:
    """If we run from a file in memory, no program that we start or become has it too."""
    found = _OPEN_FILE.fullmatch(sys.argv[0])
    if found:
        with contextlib.suppress(OSError):
            os.set_inheritable(int(found[1]), False)


def words_again(chosen: argparse.Namespace) -> list[str]:
    """Our options, as the next pilot gets them; how it finds the server by a join string is not among them."""
    words: list[str] = []
    for name in ("server_file", "server", "token_file", "cores", "site", "work_dir", "idle_end"):
        value = getattr(chosen, name)
        if value is not None and value != "":
            words += [f"--{name.replace('_', '-')}", str(value)]
    for tag in chosen.tag:
        words += ["--tag", tag]
    switches = ("no_pid_namespace", "no_cgroup", "verbose")
    return words + [f"--{name.replace('_', '-')}" for name in switches if getattr(chosen, name)]


def become(zip_fd: int, chosen: argparse.Namespace, join: Optional[Join]) -> None:
    """Be the pilot in that file from here on; returns only by OSError."""
    words = words_again(chosen)
    if join is not None:
        words += ["--join-fd", str(memory_files.hold(str(join).encode(), inherit=True))]
    os.set_inheritable(zip_fd, True)
    python = sys.executable or os.readlink("/proc/self/exe")
    os.execv(python, [python, "-I", memory_files.path_of(zip_fd), *words])
