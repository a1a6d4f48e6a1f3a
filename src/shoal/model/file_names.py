"""Names of files that more than one process reads, and of those that a file is written as before it gets its own name."""

from __future__ import annotations

import hashlib

DATABASE = "shoal.db"
DATABASE_LOCK = "shoal.db.lock"  # has the process id of the server that has the database, or had it last
SERVER_FILE = "server.json"  # {"url", "token", "pid"}, mode 0600
SOCKET_FILE = "sock"  # the server of this directory listens here, for its own account only
TUNNEL_SOCKET = "tls.sock"  # the same server over TLS, for what comes through a tunnel from other hosts
SITES_FILE = "provision/sites.json"  # where this account gets machines
SERVER_LOG = "server.log"
TOKEN_FILE = "token"  # the administrator's; unlike server.json it remains when the server ends
ENROL_FILE = "enrol"  # admits pilots of this account
PILOT_PIDS = "pilot.pid"  # the processes of this server's own pilots, the latest last
PILOT_ZIP = "pilot.pyz"  # the pilot that a server distributes
START_LOCK = "start.lock"
ENVIRONMENTS = "env"  # env/r12.json: the submitter's environment, mode 0600
LOGS = "logs"
RESERVE = "reserve"  # bytes that are given up when the disk is full
BLOBS = "blobs"  # blobs/ab/HEX: bytes by their SHA-256
LOG_MARK = "mark"  # a pilot that can read it shares the server's file system
SUFFIX = {"stdout": "out", "stderr": "err"}
_SHOWN = 100  # bytes of a name that remain of it in that of a temporary file; a file system may take 143, most take 255


def environment_name(run: int) -> str:
    """The file with the submitter's environment of a run, below the state directory."""
    return f"{ENVIRONMENTS}/r{run}.json"


def log_name(run: int, element: int, number: int, stream: str) -> str:
    """The file with a stream of an attempt, below the log directory; at most a thousand tasks a folder."""
    return f"r{run}/{element // 1000}/{element}.{number}.{SUFFIX[stream]}"


def blob_name(digest: str) -> str:
    """The file of the blob `sha256:HEX`, below the blob directory; the name must have been checked."""
    name = digest.partition(":")[2]
    return f"{name[:2]}/{name}"


def beside(path: str, mark: str) -> str:
    """The path of a temporary file in the folder of another: named as that is and marked, and short however long its name is."""
    folder, slash, name = path.rpartition("/")
    whole = _bytes_of(name)
    if len(whole) > _SHOWN:
        shown = name[:_SHOWN]
        while len(_bytes_of(shown)) > _SHOWN:  # by characters: some file systems take no part of one
            shown = shown[:-1]
        name = f"{shown}-{hashlib.sha256(whole).hexdigest()[:12]}"
    return f"{folder}{slash}{name}.{mark}"


def _bytes_of(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
