"""The provisioner as a process: where its files are, whether it runs, and how it is started [ADR 0045].

At most one for each person and server, by a lock that the kernel frees however it ends. Nothing of it is imported here.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from shoal.client.config import state_home

FOLDER, SITES, LOCK, LOG = "provision", "sites.json", "lock", "provisioner.log"
MAX_LOG = 4 * 1024 * 1024
LOCK_WITHIN = 0.5  # seconds
START_EVERY = 5.0  # seconds between two starts by one process: one that cannot go on is not started again and again
_started: dict[
    Path, tuple[float, subprocess.Popen[bytes]]
] = {}  # when, and the child, which is reaped when it has ended


def folder_of(url: str | None, embedded_state: Path) -> Path:
    """The directory of a person's sites for a server: in the state of the embedded one (no URL), apart for others."""
    if url is None:
        return embedded_state / FOLDER
    return state_home() / f"{FOLDER}-{sha256(url.encode()).hexdigest()[:12]}"


@contextmanager
def only_one(folder: Path) -> Iterator[bool]:
    """Hold the lock of the one provisioner; False if another has it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+") as lock:
        until = time.monotonic() + LOCK_WITHIN  # who only looks whether one runs holds it for a moment, too
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    yield False
                    return
                time.sleep(0.05)
        lock.truncate()
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield True


def is_running(folder: Path) -> bool:
    """True if a provisioner has the lock."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def site_names(folder: Path) -> list[str]:
    """The names of the person's sites; none if the file cannot be read, which `shoal site` says."""
    try:
        return [str(row["name"]) for row in json.loads((folder / SITES).read_bytes())["sites"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def ensure_running(url: str | None, folder: Path) -> None:
    """Start the provisioner of a server if the person has sites for it and none runs."""
    if not site_names(folder) or is_running(folder):
        return
    at, child = _started.get(folder, (float("-inf"), None))
    if time.monotonic() - at < START_EVERY or (child is not None and child.poll() is None):
        return
    path = folder / LOG
    if path.exists() and path.stat().st_size > MAX_LOG:
        path.replace(folder / f"{LOG}.old")
    output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        argv = [sys.executable, "-m", "shoal.provisioner", *(["--server", url] if url else [])]
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/"
        )
        _started[folder] = (time.monotonic(), process)
    finally:
        os.close(output)
