"""The outputs of a command that ran where the submitter's files are not seen: kept on the server as blobs, and named in the
result of the task, where a function has the value that it returned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from shoal.model.blobs import is_digest
from shoal.model.limits import MAX_FILES, MAX_INLINE

START = '{"kept":'  # no payload of a function begins so


class KeptFile(NamedTuple):
    """One output: the blob that holds it, its size and its permission bits."""

    digest: str
    size: int
    mode: int


def pack(files: Mapping[str, KeptFile]) -> str:
    """The result of a command whose outputs were kept; ValueError if it is too long."""
    text = json.dumps({"kept": {name: list(file) for name, file in files.items()}}, separators=(",", ":"))
    if len(text.encode()) > MAX_INLINE:
        raise ValueError(f"the names of {len(files)} outputs take more than {MAX_INLINE // 1024} KiB")
    return text


def unpack(result: str) -> dict[str, KeptFile]:
    """The outputs that a result names; none of a result that is no such text, for it comes from a pilot."""
    if not result.startswith(START):
        return {}
    try:
        named: Any = json.loads(result)["kept"]
        files = {str(name): KeptFile(str(row[0]), int(row[1]), int(row[2]) & 0o777) for name, row in named.items()}
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return {}
    if len(files) > MAX_FILES or not all(is_digest(file.digest) and file.size >= 0 for file in files.values()):
        return {}
    return files
