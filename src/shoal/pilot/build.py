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
    "shoal.pilot.agent.agent",
    "shoal.pilot.agent.allocation",
    "shoal.pilot.agent.events",
    "shoal.pilot.agent.guard_queue",
    "shoal.pilot.agent.in_flight",
    "shoal.pilot.agent.lease_dedup",
    "shoal.pilot.agent.lease_proofs",
    "shoal.pilot.agent.outbox",
    "shoal.pilot.agent.outcome",
    "shoal.pilot.agent.registration",
    "shoal.pilot.agent.renewal",
    "shoal.pilot.agent.send_schedule",
    "shoal.pilot.agent.slots",
    "shoal.pilot.commands",
    "shoal.pilot.commands.checkpoint",
    "shoal.pilot.commands.checkpoint_watch",
    "shoal.pilot.commands.container",
    "shoal.pilot.commands.ending",
    "shoal.pilot.commands.executor",
    "shoal.pilot.commands.files",
    "shoal.pilot.commands.setup",
    "shoal.pilot.commands.staging",
    "shoal.pilot.commands.streams",
    "shoal.pilot.functions",
    "shoal.pilot.functions.crash_report",
    "shoal.pilot.functions.executor",
    "shoal.pilot.functions.listener",
    "shoal.pilot.functions.piece",
    "shoal.pilot.functions.runner_process",
    "shoal.pilot.functions.runners",
    "shoal.pilot.guard",
    "shoal.pilot.guard.cgroup",
    "shoal.pilot.guard.channel",
    "shoal.pilot.guard.child",
    "shoal.pilot.guard.guard",
    "shoal.pilot.guard.messages",
    "shoal.pilot.guard.oom",
    "shoal.pilot.guard.orphans",
    "shoal.pilot.guard.pid_namespace",
    "shoal.pilot.guard.proctree",
    "shoal.pilot.guard.queued_starts",
    "shoal.pilot.guard.spawn",
    "shoal.pilot.guard.start_stage",
    "shoal.pilot.host",
    "shoal.pilot.host.cleanup",
    "shoal.pilot.host.disk_space",
    "shoal.pilot.host.file_threads",
    "shoal.pilot.host.logging",
    "shoal.pilot.host.memory_files",
    "shoal.pilot.host.probe",
    "shoal.pilot.host.registry",
    "shoal.pilot.host.tag_pipes",
    "shoal.pilot.host.tags",
    "shoal.pilot.host.usage",
    "shoal.pilot.loop",
    "shoal.pilot.main",
    "shoal.pilot.runner",
    "shoal.pilot.runner.failure",
    "shoal.pilot.runner.load",
    "shoal.pilot.runner.main",
    "shoal.pilot.runner.messages",
    "shoal.pilot.runner.output",
    "shoal.pilot.self_update",
    "shoal.pilot.uplink",
    "shoal.pilot.uplink.blobs",
    "shoal.pilot.uplink.latency",
    "shoal.pilot.uplink.log_upload",
    "shoal.pilot.uplink.server_address",
    "shoal.pilot.uplink.tls",
    "shoal.pilot.uplink.uplink",
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
    "shoal.wire.chunk",
    "shoal.wire.codec",
    "shoal.wire.http",
    "shoal.wire.http.blob_transfer",
    "shoal.wire.http.http1",
    "shoal.wire.http.unix_socket",
    "shoal.wire.join",
    "shoal.wire.messages",
    "shoal.wire.payload",
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
