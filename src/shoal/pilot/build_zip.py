"""Builds pilot.pyz: the same source gives the same bytes on every machine.

This module runs on the server and is not in the zip. Files are stored uncompressed, because the output of compression
depends on the version of zlib.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import zipfile
from pathlib import Path

# The pilot's own package is in the zip as a whole, but for this module; of the packages it imports, these modules are.
NOT_IN_ZIP = "shoal.pilot.build_zip"
IMPORTED: dict[str, tuple[str, ...]] = {
    "shoal.model": ("blobs", "credentials", "errors", "file_names", "ids", "lazy_dataclass", "limits", "rangeset"),
    "shoal.model.task": ("checks", "shell_quote", "sweep", "visible"),
    "shoal.sched": ("batch_size",),
    "shoal.wire": ("batches", "chunk", "codec", "join", "messages", "module_sources", "payload"),
    "shoal.wire.http": ("blob_transfer", "connection", "http1", "unix_socket"),
}
_SOURCE = Path(__file__).resolve().parents[2]
_FIRST_LINE = b"#!/usr/bin/env python3\n"
_MAIN = b"""import sys

if sys.version_info < (3, 9):
    sys.exit(
        "shoal: this pilot needs Python 3.9 or newer, and this is "
        + sys.version.split()[0]
        + " (start it with a newer one: python3.11 pilot.pyz ...)"
    )

from shoal.pilot.main import main

sys.exit(main())
"""


def list_modules() -> list[str]:
    """The dotted names of the modules and packages in the zip, sorted."""
    own = (_SOURCE / "shoal" / "pilot").rglob("*.py")
    found = {".".join(path.relative_to(_SOURCE).with_suffix("").parts) for path in own}
    found = {name[: -len(".__init__")] if name.endswith(".__init__") else name for name in found} - {NOT_IN_ZIP}
    for package, names in IMPORTED.items():
        found |= {package, *(f"{package}.{name}" for name in names)}
    return sorted({"shoal", *found})


def _file_of(module: str) -> Path:
    base = _SOURCE.joinpath(*module.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def build(path: Path) -> str:
    """Write the zip to `path`, all of it or nothing; returns its SHA-256."""
    files = {file.relative_to(_SOURCE).as_posix(): file.read_bytes() for file in map(_file_of, list_modules())}
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
