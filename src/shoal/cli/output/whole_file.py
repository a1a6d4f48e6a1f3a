"""Files that a command writes whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: str, text: str) -> None:
    """Write a file under another name beside it first: a full disk leaves no part of it."""
    beside = Path(path).parent / f".shoal-{os.getpid()}.part"
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
