"""The outputs of a command that ran where the submitter's files are not seen, kept on the server as blobs, and those that were
stored where the task asks for it: named in the result of the task, where a function has the value that it returned.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from typing import Any, NamedTuple

from shoal.model.blobs import is_digest
from shoal.model.limits import MAX_BYTES, MAX_INLINE, MAX_KEPT_FILES

START = '{"kept":'  # no payload of a function begins so


class KeptFile(NamedTuple):
    """One output: the blob that holds it, its size and its permission bits; with a URL it is there, and not on the server."""

    digest: str
    size: int
    mode: int
    url: str = ""

    @property
    def row(self) -> list[Any]:
        """As it travels."""
        return [*self] if self.url else [*self[:3]]


def pack(files: Mapping[str, KeptFile]) -> str:
    """The result of a command whose outputs were kept; ValueError if it is too long."""
    text = json.dumps({"kept": {name: file.row for name, file in files.items()}}, separators=(",", ":"))
    if len(text.encode()) > MAX_INLINE:
        raise ValueError(f"the names of {len(files)} outputs take more than {MAX_INLINE // 1024} KiB")
    return text


def unpack(result: str) -> dict[str, KeptFile]:
    """The outputs that a result names; none of a result that is no such text, for it comes from a pilot."""
    if not result.startswith(START):
        return {}
    try:
        named: Any = json.loads(result)["kept"]
        files = {str(name): _file(*row) for name, row in named.items()}
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError):
        return {}  # the last two: a size of 1e400 is infinite, and brackets may be nested deeper than Python reads
    if len(files) > MAX_KEPT_FILES or not all(_is_right(file) for file in files.values()):
        return {}
    return files


def declared(files: Mapping[str, KeptFile], outputs: Iterable[str]) -> dict[str, KeptFile]:
    """Those of the files of a result that are outputs of these names, or are in an output that is a directory."""
    names = frozenset(outputs)
    return {name: file for name, file in files.items() if name in names or _is_inside(name, names)}


def is_written(name: str, outputs: Container[str]) -> bool:
    """True if a file has the name of an output, or is in one that is a directory."""
    return name in outputs or _is_inside(name, outputs)


def _is_inside(name: str, names: Container[str]) -> bool:
    parts = name.split("/")
    if parts[0] == "" or not {"", ".", ".."}.isdisjoint(parts):
        return False  # it leads elsewhere
    return any("/".join(parts[:count]) in names for count in range(1, len(parts)))


def _file(digest: Any, size: Any, mode: Any, url: Any = "") -> KeptFile:
    return KeptFile(str(digest), int(size), int(mode) & 0o777, str(url))


def _is_right(file: KeptFile) -> bool:
    return is_digest(file.digest) and 0 <= file.size <= MAX_BYTES and not {" ", "\0", "\n"} & set(file.url)
