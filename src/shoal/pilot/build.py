"""Make pilot.pyz from a literal list of modules; the same source gives the same bytes on every machine.

Runs on the server, not in the zip. Files are stored, not packed: what packing makes depends on the zlib at hand.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import zipfile
from pathlib import Path

MODULES: tuple[str, ...] = (
    "shoal",
    "shoal.model",
    "shoal.model.blobs",
    "shoal.model.credentials",
    "shoal.model.errors",
    "shoal.model.ids",
    "shoal.model.layout",
    "shoal.model.limits",
    "shoal.model.rangeset",
    "shoal.model.sweep",
    "shoal.pilot",
    "shoal.pilot.agent",
    "shoal.pilot.allocation",
    "shoal.pilot.attempts",
    "shoal.pilot.blobs",
    "shoal.pilot.calls",
    "shoal.pilot.carry",
    "shoal.pilot.cgroup",
    "shoal.pilot.channel",
    "shoal.pilot.checkpoint",
    "shoal.pilot.checkpoint_watch",
    "shoal.pilot.container",
    "shoal.pilot.crashes",
    "shoal.pilot.endings",
    "shoal.pilot.followers",
    "shoal.pilot.flights",
    "shoal.pilot.gate",
    "shoal.pilot.guard",
    "shoal.pilot.host_lock",
    "shoal.pilot.joining",
    "shoal.pilot.killings",
    "shoal.pilot.leftovers",
    "shoal.pilot.lines",
    "shoal.pilot.loop",
    "shoal.pilot.main",
    "shoal.pilot.memory",
    "shoal.pilot.moves",
    "shoal.pilot.network",
    "shoal.pilot.outbox",
    "shoal.pilot.outcome",
    "shoal.pilot.pid_namespace",
    "shoal.pilot.pieces",
    "shoal.pilot.place",
    "shoal.pilot.porter",
    "shoal.pilot.probe",
    "shoal.pilot.proofs",
    "shoal.pilot.published",
    "shoal.pilot.renewal",
    "shoal.pilot.runner",
    "shoal.pilot.runner_door",
    "shoal.pilot.runner_failure",
    "shoal.pilot.runner_line",
    "shoal.pilot.runner_load",
    "shoal.pilot.runner_output",
    "shoal.pilot.runner_pool",
    "shoal.pilot.runners",
    "shoal.pilot.seen",
    "shoal.pilot.setup",
    "shoal.pilot.siblings",
    "shoal.pilot.slots",
    "shoal.pilot.space",
    "shoal.pilot.spawn",
    "shoal.pilot.stage",
    "shoal.pilot.strays",
    "shoal.pilot.streams",
    "shoal.pilot.successor",
    "shoal.pilot.tags",
    "shoal.pilot.tails",
    "shoal.pilot.tls",
    "shoal.pilot.tree",
    "shoal.pilot.uplink",
    "shoal.pilot.urges",
    "shoal.pilot.vitals",
    "shoal.pilot.voice",
    "shoal.pilot.ward",
    "shoal.sched",
    "shoal.sched.assign",
    "shoal.sched.expr",
    "shoal.sched.expr.names",
    "shoal.sched.expr.parse",
    "shoal.sched.expr.scalar",
    "shoal.sched.expr.tree",
    "shoal.sched.size",
    "shoal.wire",
    "shoal.wire.batches",
    "shoal.wire.blobs",
    "shoal.wire.chunk",
    "shoal.wire.codec",
    "shoal.wire.http1",
    "shoal.wire.join",
    "shoal.wire.messages",
    "shoal.wire.payload",
    "shoal.wire.unix_socket",
)
_SOURCE = Path(__file__).resolve().parents[2]
_FIRST_LINE = b"#!/usr/bin/env python3\n"
_MAIN = b"""import sys

if sys.version_info < (3, 9):
    sys.exit("this pilot needs Python 3.9 or newer, this is " + sys.version.split()[0])

from shoal.pilot.main import main

sys.exit(main())
"""


def _file_of(module: str) -> Path:
    base = _SOURCE.joinpath(*module.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def build(path: Path) -> str:
    """Write the zip to `path`, all of it or nothing; returns its SHA-256."""
    files = {_file_of(module).relative_to(_SOURCE).as_posix(): _file_of(module).read_bytes() for module in MODULES}
    files["__main__.py"] = _MAIN
    packed = io.BytesIO()
    packed.write(_FIRST_LINE)
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])
    data = packed.getvalue()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(data)
    part.chmod(0o755)
    part.replace(path)
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    build(Path(sys.argv[1]))
