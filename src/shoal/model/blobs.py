"""Blobs: bytes named by their SHA-256 [protocol 6]. Their names, and the rows that the database keeps of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import NamedTuple, Union

from shoal.model.errors import BadInput, echo

Bytes = Union[bytes, bytearray, memoryview]
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class BlobRow(NamedTuple):
    """One blob, whole and on the disk."""

    digest: str
    size: int
    created: float


class BlobRefRow(NamedTuple):
    """Somebody holds a blob for a run; run 0: they have put it, and not used it yet."""

    digest: str
    owner: str
    run: int
    since: float


class BlobRows(NamedTuple):
    """All blobs of a database, and who holds them."""

    blobs: list[BlobRow]
    refs: list[BlobRefRow]


class BlobDrop(NamedTuple):
    """The blob is gone."""

    digest: str


class BlobRefDrop(NamedTuple):
    """The blob is not held for this run any more."""

    digest: str
    owner: str
    run: int


BlobChange = Union[BlobRow, BlobRefRow, BlobDrop, BlobRefDrop]
BLOB_CHANGES = (BlobRow, BlobRefRow, BlobDrop, BlobRefDrop)


def is_digest(text: str) -> bool:
    """Does the text name a blob?"""
    return _DIGEST.fullmatch(text) is not None


def parse_digest(text: str) -> str:
    """The name of a blob, if it is one: it becomes the name of a file [input E49]."""
    if not _DIGEST.fullmatch(text):
        raise BadInput(
            f"{echo(text)!r} does not name a blob",
            code="bad_digest",
            field="digest",
            hint="sha256: and 64 hexadecimal digits in lower case",
        )
    return text


def digest_of(parts: Iterable[Bytes]) -> str:
    """The name of the bytes in these parts, one after another."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return f"sha256:{found.hexdigest()}"
