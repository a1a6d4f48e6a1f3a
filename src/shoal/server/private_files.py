"""Files that only their owner reads, written whole or not at all and durably [security S12]."""

from __future__ import annotations

import os
from pathlib import Path

from shoal.db.database_lock import sync_folder


def write_private(path: Path, data: bytes) -> None:
    """Write a file under another name and rename it: it is never partial, and never readable by others."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)  # of a server that was killed here
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    sync_folder(path.parent)
