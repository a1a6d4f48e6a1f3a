"""Pilots whose hosts have files, and tasks that read them."""

from __future__ import annotations

import hashlib
from typing import Any

from shoal.wire.messages import CachedFile, Reply
from tests.unit.engine.stand import FakePilot, Stand

MB = 1_000_000


def digest(name: str) -> str:
    """The digest of a file that is called so wherever it lies."""
    return "sha256:" + hashlib.sha256(name.encode()).hexdigest()


def reads(*names: str, **more: Any) -> dict[str, Any]:
    """A task that reads these files, whose content travels."""
    return {"inputs": list(names), "content": {name: f"{digest(name)} 644" for name in names}, **more}


def sweep(*names: str, **more: Any) -> dict[str, Any]:
    """A sweep with a task for each of these files."""
    spec = {"inputs": ["{f}"], "params": {"f": list(names)}, "content": {n: f"{digest(n)} 644" for n in names}}
    return {**spec, "command": ["true", "{f}"], **more}


def host(stand: Stand, name: str, *files: str, cores: int = 1, **more: Any) -> FakePilot:
    """A pilot on a host of its own that has told of these files; it does not wait for work yet."""
    pilot = stand.pilot(cores, host=name, identity=f"id of {name}", **more)
    if files:
        tell(pilot, *files)
    return pilot


def tell(pilot: FakePilot, *files: str, size: int = 100 * MB, gone: tuple[str, ...] = ()) -> Reply:
    """The pilot tells of files in its cache, and of such as left it."""
    return pilot.talk(cached=[CachedFile(digest(f), size) for f in files], uncached=[digest(f) for f in gone])


def inputs_of(leases: list[Any]) -> list[str]:
    """The names of what leased tasks read."""
    return [name for lease in leases for name in lease.content]
