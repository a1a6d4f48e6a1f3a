"""Names of files that more than one process reads: one place, so that nobody guesses."""

from __future__ import annotations

DATABASE = "shoal.db"
SERVER_FILE = "server.json"  # {"url", "token", "pid"}, mode 0600
SOCKET_FILE = "sock"  # where the server of this directory is reached, by its own account only
SERVER_LOG = "server.log"
TOKEN_FILE = "token"  # the administrator's; unlike server.json it stays when the server ends
ENROL_FILE = "enrol"  # lets pilots of this account in
PILOT_ZIP = "pilot.pyz"  # the pilot that a server hands out
START_LOCK = "start.lock"
ENVIRONMENTS = "env"  # env/r12.json: the submitter's environment, mode 0600
LOGS = "logs"
RESERVE = "reserve"  # bytes that are given up when the disk is full
BLOBS = "blobs"  # blobs/ab/HEX: bytes by their SHA-256
LOG_MARK = "mark"  # a pilot that can read it shares the server's file system
SUFFIX = {"stdout": "out", "stderr": "err"}


def environment_name(run: int) -> str:
    """Where the submitter's environment of a run rests, below the state directory."""
    return f"{ENVIRONMENTS}/r{run}.json"


def log_name(run: int, element: int, number: int, stream: str) -> str:
    """Where a stream of an attempt rests, below the log directory; at most a thousand tasks a folder."""
    return f"r{run}/{element // 1000}/{element}.{number}.{SUFFIX[stream]}"


def blob_name(digest: str) -> str:
    """Where the blob `sha256:HEX` rests, below the blob directory; a name that was not checked must not come here."""
    name = digest.partition(":")[2]
    return f"{name[:2]}/{name}"
