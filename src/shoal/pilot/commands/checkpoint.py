"""Checkpoint files: restored before a part of a task begins, stored when it ends [GWP G10].

They travel as blobs, also where the next part sees the same directory: there may be nothing left of it by then. Paths
are walked as those of outputs (`files.carry`): no symbolic link, nothing out of the task's directory. All of it blocks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Optional

from shoal.model.blobs import digest_of
from shoal.pilot.commands.files import StageError, open_below, put_below
from shoal.pilot.files.fetch import NoBlob
from shoal.pilot.uplink.blobs import Blobs
from shoal.wire.http.blob_transfer import CHECKPOINT

WINDOW = 30.0  # seconds for which a pilot that leaves tries to store checkpoints, after the grace of its tasks
PIECE = 1 << 20
Look = tuple[int, int, int]  # state of a file, which changes whenever it is written or replaced
_WHAT = "checkpoint"


def look(base: str, names: Sequence[str]) -> dict[str, Optional[Look]]:
    """The present states of files. Compared with later ones they show which were written, without any clock."""
    return {name: _look(os.path.join(base, name)) for name in names}


def _look(path: str) -> Optional[Look]:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def is_written(base: str, before: Mapping[str, Optional[Look]]) -> bool:
    """True if all of them exist and were written since."""
    now = look(base, list(before))
    return all(now[name] is not None and now[name] != seen for name, seen in before.items())


def restore(base: str, files: Mapping[str, str], blobs: Blobs, umask: int) -> None:
    """Restore what the last part wrote, unless it is there already."""
    for name, digest in files.items():
        if _digest(base, name) == digest:
            continue  # a directory that both parts see
        try:
            source = blobs.fetch(digest)
        except NoBlob as error:
            raise StageError("stage_in", f"checkpoint {name} cannot be had: {error}") from None
        try:
            put_below(base, name, source, umask, _WHAT)
        finally:
            blobs.free(digest)


def _digest(base: str, name: str) -> str:
    try:
        with open_below(base, name, _WHAT) as fd, open(os.dup(fd), "rb", buffering=0) as file:
            return digest_of(iter(lambda: file.read(PIECE), b""))
    except StageError as error:
        if error.cause == "output_missing":
            return ""
        raise StageError("stage_in", str(error)) from None
    except OSError as error:
        raise StageError("stage_in", f"checkpoint {name} cannot be read: {error.strerror}") from None


def keep(base: str, names: Sequence[str], blobs: Blobs, run: str, patience: Optional[float]) -> dict[str, str]:
    """Put the files on the server; returns their digests. StageError where one is missing or cannot be kept."""
    for name in names:
        with open_below(base, name, _WHAT):
            pass  # all of them, before the first is sent
    kept: dict[str, str] = {}
    end = time.monotonic() + (patience or 0.0)  # of them all
    for name in names:
        left = None if patience is None else max(0.0, end - time.monotonic())
        try:
            with open_below(base, name, _WHAT) as fd:
                kept[name] = blobs.store_file(fd, run, left, CHECKPOINT)
        except NoBlob as error:
            raise StageError("stage_out", f"checkpoint {name} cannot be kept: {error}") from None
    return kept
