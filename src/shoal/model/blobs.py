"""Blobs: bytes named by their SHA-256 [protocol 6]; their names, and their rows in the database."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import NamedTuple, Union

from shoal.model.errors import BadInput, echo

Bytes = Union[bytes, bytearray, memoryview]
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class BlobRow(NamedTuple):
    """One blob that is complete on the disk."""

    digest: str
    size: int
    created: float


class BlobRefRow(NamedTuple):
    """A reference of a run to a blob; run 0: it was uploaded, and is not used yet."""

    digest: str
    owner: str
    run: int
    since: float


class BlobRows(NamedTuple):
    """All blobs of a database, and who holds them."""

    blobs: list[BlobRow]
    refs: list[BlobRefRow]


class BlobDrop(NamedTuple):
    """The blob was deleted."""

    digest: str


class BlobRefDrop(NamedTuple):
    """The reference of this run was dropped."""

    digest: str
    owner: str
    run: int


BlobChange = Union[BlobRow, BlobRefRow, BlobDrop, BlobRefDrop]
BLOB_CHANGES = (BlobRow, BlobRefRow, BlobDrop, BlobRefDrop)


def is_digest(text: str) -> bool:
    """True if the text is the name of a blob."""
    return _DIGEST.fullmatch(text) is not None


def parse_digest(text: str) -> str:
    """Check the name of a blob: it becomes the name of a file [input E49]."""
    if not _DIGEST.fullmatch(text):
        raise BadInput(
            f"{echo(text)!r} does not name a blob",
            code="bad_digest",
            field="digest",
            hint="sha256: and 64 hexadecimal digits in lower case",
        )
    return text


def digest_of(parts: Iterable[Bytes]) -> str:
    """The name of a blob that consists of these parts in order."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return f"sha256:{found.hexdigest()}"
