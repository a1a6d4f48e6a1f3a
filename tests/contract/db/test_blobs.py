"""What a database keeps of blobs: names, sizes and who holds them, in the order in which it is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.db.sqlite import Database
from shoal.model.blobs import BlobChange, BlobDrop, BlobRefDrop, BlobRefRow, BlobRow

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database.open(tmp_path / "shoal.db") as database:
        yield database


def test_blobs_and_references_come_back(database: Database) -> None:
    rows: list[BlobChange] = [
        BlobRow(A, 5, 1.0),
        BlobRefRow(A, "ann", 0, 1.0),
        BlobRow(B, 1 << 40, 2.0),
        BlobRefRow(B, "bob", 7, 2.0),
    ]
    database.apply(rows)
    blobs, refs = database.blobs()
    assert sorted(blobs) == [rows[0], rows[2]] and sorted(refs) == [rows[1], rows[3]]


def test_the_same_again_is_the_same_blob_and_a_younger_reference(database: Database) -> None:
    database.apply([BlobRow(A, 5, 1.0), BlobRefRow(A, "ann", 0, 1.0)])
    database.apply([BlobRow(A, 5, 9.0), BlobRefRow(A, "ann", 0, 9.0)])
    assert database.blobs() == ([BlobRow(A, 5, 1.0)], [BlobRefRow(A, "ann", 0, 9.0)])


def test_what_is_dropped_and_made_again_in_one_batch_is_there(database: Database) -> None:
    ref, again = BlobRefRow(A, "ann", 3, 1.0), BlobRefRow(A, "ann", 3, 2.0)
    database.apply([BlobRow(A, 5, 1.0), ref, BlobRefDrop(A, "ann", 3), BlobDrop(A), BlobRow(A, 5, 2.0), again])
    assert database.blobs() == ([BlobRow(A, 5, 2.0)], [again])
    database.apply([BlobRefDrop(A, "ann", 3), BlobDrop(A), BlobDrop(B), BlobRefDrop(B, "bob", 1)])
    assert database.blobs() == ([], [])


def test_a_reference_goes_alone(database: Database) -> None:
    rows = [BlobRefRow(A, owner, run, 1.0) for owner in ("ann", "bob") for run in (0, 1)]
    database.apply([BlobRow(A, 5, 1.0), *rows, BlobRefDrop(A, "ann", 1)])
    assert sorted(database.blobs()[1]) == [rows[0], rows[2], rows[3]]
