from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from shoal.cli.output.kept_outputs import Fetched, Output, fetch, outputs_of
from shoal.model.errors import Refused
from shoal.model.task.kept_files import KeptFile, pack
from shoal.report.data_source import OUTCOME


def kept(data: bytes, mode: int = 0o644) -> KeptFile:
    return KeptFile(f"sha256:{hashlib.sha256(data).hexdigest()}", len(data), mode)


class Source:
    """A run of two tables, whose reports name more than was declared."""

    def __init__(self, *results: str) -> None:
        self._results = results

    def run(self, run: str) -> dict[str, Any]:
        sweep = {"command": ["true"], "params": {"x": "1..2"}, "outputs": ["out/{x}"]}
        return {"arrays": [{"first": 3, "task": {"command": ["true"], "outputs": ["c"]}}, {"first": 1, "task": sweep}]}

    def outcomes(self, run: str, values: bool = False) -> Iterator[tuple[Any, ...]]:
        assert values
        for element, result in enumerate(self._results, 1):
            yield tuple({"element": element, "result": result}.get(name) for name in OUTCOME)


class Client:
    """Blobs in memory."""

    def __init__(self, *blobs: bytes) -> None:
        self._blobs = {kept(data).digest: data for data in blobs}
        self.saved = 0

    def save_blob(self, digest: str, file: BinaryIO) -> None:
        file.write(self._blobs[digest])
        self.saved += 1


def test_only_what_a_task_declared_is_an_output_of_it() -> None:
    """Names in a report come from a pilot: they never decide what is written here."""
    file = kept(b"x")
    lies = pack({"../evil": file, "out/2": file, "out/1": file, "sim": file})
    found = list(outputs_of(Source(lies, "", pack({"c": file, "out/1": file})), "r1"))  # type: ignore[arg-type]
    assert [(one.task, one.name) for one in found] == [("r1.1", "out/1"), ("r1.3", "c")]
    found = list(outputs_of(Source(lies, "", pack({"c": file})), "r1", ["out/*"]))  # type: ignore[arg-type]
    assert [one.name for one in found] == ["out/1"]


def test_files_are_fetched_whole_or_not_at_all_and_what_is_there_is_left(tmp_path: Path) -> None:
    client = Client(b"one", b"two")
    told: list[Fetched] = []
    wanted = [Output("r1.1", "deep/one", kept(b"one", 0o755), 1e9), Output("r1.2", "two", kept(b"two"), 1e9)]
    assert fetch(client, iter(wanted), str(tmp_path), told.append) == Fetched(2, 6, 0, 0)  # type: ignore[arg-type]
    assert (tmp_path / "two").stat().st_mtime == 1e9, "when the task ended: --resume goes by it"
    assert (tmp_path / "deep" / "one").read_bytes() == b"one"
    assert (tmp_path / "deep" / "one").stat().st_mode & 0o100
    (tmp_path / "two").write_bytes(b"TWO")
    found = fetch(client, iter(wanted), str(tmp_path), told.append)  # type: ignore[arg-type]
    assert found == told[-1] == Fetched(0, 0, 1, 1), "what was written later is another run's, or a person's"
    assert (tmp_path / "two").read_bytes() == b"TWO"
    found = fetch(client, iter(wanted), str(tmp_path), told.append, replaces=True)  # type: ignore[arg-type]
    assert found == Fetched(1, 3, 1, 0)
    assert (tmp_path / "two").read_bytes() == b"two"
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match=r"file/x of r1\.3"):
        fetch(client, iter([Output("r1.3", "file/x", kept(b"two"), 1e9)]), str(tmp_path), told.append)  # type: ignore[arg-type]
    assert not list(tmp_path.rglob("*.part"))
