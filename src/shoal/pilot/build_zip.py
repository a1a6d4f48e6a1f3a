"""Builds pilot.pyz: the same source gives the same bytes on every machine.

This module runs where Shoal is installed and is not in the zip. Files are stored uncompressed, because the output of
compression depends on the version of zlib. It writes the format by itself: a pilot that runs from the package asks for
the digest at its start, and the standard library's module takes longer to import than this does altogether.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
from binascii import crc32
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# The pilot's own package is in the zip as a whole, but for these modules; of the packages it imports, these modules are.
NOT_IN_ZIP = {"shoal.pilot.__main__", "shoal.pilot.build_zip"}
IMPORTED: dict[str, tuple[str, ...]] = {
    "shoal.dht": ("key", "lookup", "messages", "peer", "peers", "records", "routing_table"),
    "shoal.data": ("catalogue", "sources"),
    "shoal.model": (
        "blobs",
        "credentials",
        "errors",
        "file_names",
        "ids",
        "lazy_dataclass",
        "limits",
        "rangeset",
        "quantities",
        "file_systems",
    ),
    "shoal.model.task": ("checks", "content", "kept_files", "shell_quote", "sweep", "url_input", "visible"),
    "shoal.sched": ("batch_size", "fit", "linear_assignment"),
    "shoal.sched.expr": ("names", "parse", "scalar", "tree"),
    "shoal.sched.leader": ("bids",),
    "shoal.sched.partial": ("contribution", "exact_sum", "reducers"),
    "shoal.wire": (
        "batches",
        "chunk",
        "codec",
        "join",
        "messages",
        "module_sources",
        "payload",
        "seal",
    ),
    "shoal.wire.http": ("blob_transfer", "connection", "http1", "relay_preamble", "streamed", "unix_socket"),
}
_SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
_DATE = 1 << 5 | 1  # 1 January 1980
_MODE = 0o644
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
    found = set()
    for folder, _, files in os.walk(os.path.join(_SOURCE, "shoal", "pilot")):
        package = os.path.relpath(folder, _SOURCE).replace(os.sep, ".")
        found |= {f"{package}.{name[:-3]}" for name in files if name.endswith(".py")}
    found = {name[: -len(".__init__")] if name.endswith(".__init__") else name for name in found} - NOT_IN_ZIP
    for package, names in IMPORTED.items():
        found |= {package, *(f"{package}.{name}" for name in names)}
    return sorted({"shoal", *found})


def _file_of(module: str) -> str:
    """The path of a module below the source."""
    base = module.replace(".", "/")
    return f"{base}/__init__.py" if os.path.isdir(os.path.join(_SOURCE, base)) else f"{base}.py"


def pack() -> bytes:
    """The bytes of the zip."""
    files = {"__main__.py": _MAIN}
    for name in map(_file_of, list_modules()):
        with open(os.path.join(_SOURCE, name), "rb", buffering=0) as file:
            files[name] = file.read()
    parts, listing, offset = [_FIRST_LINE], [], len(_FIRST_LINE)
    for name in sorted(files):
        data, encoded = files[name], name.encode("ascii")
        # Version 2.0, stored, 1980-01-01, checksum, sizes, length of the name.
        entry = struct.pack("<HHHHHLLLHH", 20, 0, 0, 0, _DATE, crc32(data), len(data), len(data), len(encoded), 0)
        parts += [b"PK\3\4", entry, encoded, data]
        # Made on Unix; no comment, first disk, a binary file; its mode and where it is.
        more = struct.pack("<HHHLL", 0, 0, 0, _MODE << 16, offset)
        listing += [b"PK\1\2", struct.pack("<H", 3 << 8 | 20), entry, more, encoded]
        offset += 4 + len(entry) + len(encoded) + len(data)
    size = sum(map(len, listing))
    end = struct.pack("<HHHHLLH", 0, 0, len(files), len(files), size, offset, 0)
    return b"".join([*parts, *listing, b"PK\5\6", end])


def build(path: Path) -> str:
    """Write the zip to `path`, all of it or nothing; returns its SHA-256."""
    data = pack()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(data)
    part.chmod(0o755)
    part.replace(path)
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    from pathlib import Path

    build(Path(sys.argv[1]))
