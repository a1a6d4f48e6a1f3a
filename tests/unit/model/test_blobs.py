"""Names of blobs: what becomes the name of a file is checked to the last character."""

from __future__ import annotations

import hashlib

import pytest

from shoal.model.blobs import Bytes, digest_of, parse_digest
from shoal.model.errors import BadInput
from shoal.model.file_names import blob_name

GOOD = "sha256:" + "ab" * 32


def test_a_digest_is_taken_as_it_is() -> None:
    assert parse_digest(GOOD) == GOOD
    assert blob_name(GOOD) == f"ab/{'ab' * 32}"


@pytest.mark.parametrize(
    "text",
    [
        "", "sha256:", "ab" * 32, GOOD.upper(), "sha256:" + "AB" * 32, GOOD[:-1], GOOD + "0", GOOD + "\n", "sha1:" + "ab" * 20,
        "sha256:" + "../" * 21 + "a", "sha256:" + "g" * 64, " " + GOOD, "sha256:" + "٣" * 64,
    ],
)  # fmt: skip
def test_anything_else_names_no_blob(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_digest(text)
    assert caught.value.code == "bad_digest" and "64 hexadecimal" in caught.value.hint


def test_a_digest_is_that_of_all_parts_one_after_another() -> None:
    parts: list[Bytes] = [b"ab", bytearray(b""), memoryview(b"xcx")[1:2]]
    assert digest_of(parts) == f"sha256:{hashlib.sha256(b'abc').hexdigest()}" == digest_of([b"abc"])
