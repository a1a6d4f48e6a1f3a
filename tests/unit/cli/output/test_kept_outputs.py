from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from shoal.cli.output.kept_outputs import Fetched, KeptContents, Output, fetch, outputs_of
from shoal.model.errors import Refused
from shoal.model.task.kept_files import KeptFile, pack
from shoal.report.data_source import OUTCOME


def kept(data: bytes, mode: int = 0o644) -> KeptFile:
    return KeptFile(f"sha256:{hashlib.sha256(data).hexdigest()}", len(data), mode)


class Source:
    """A run of two tables, whose reports name more than was declared."""

    def __init__(self, *results: str) -> None:
        self._results = results
        self.readings = 0

    def run(self, run: str) -> dict[str, Any]:
        sweep = {"command": ["true"], "params": {"x": "1..2"}, "outputs": ["out/{x}"]}
        return {"arrays": [{"first": 3, "task": {"command": ["true"], "outputs": ["c"]}}, {"first": 1, "task": sweep}]}

    def outcomes(self, run: str, values: bool = False) -> Iterator[tuple[Any, ...]]:
        assert values
        self.readings += 1
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


def test_a_link_stays_and_what_is_no_plain_file_is_not_replaced(tmp_path: Path) -> None:
    client = Client(b"one")
    (tmp_path / "one").symlink_to("real")
    fetch(client, iter([Output("r1.1", "one", kept(b"one"), 1e9)]), str(tmp_path), lambda done: None)  # type: ignore[arg-type]
    assert (tmp_path / "one").is_symlink() and (tmp_path / "real").read_bytes() == b"one"
    os.mkfifo(tmp_path / "pipe")
    os.utime(tmp_path / "pipe", (1, 1))
    with pytest.raises(Refused, match=r"pipe of r1\.1 is here no plain file"):
        fetch(client, iter([Output("r1.1", "pipe", kept(b"one"), 1e9)]), str(tmp_path), lambda done: None)  # type: ignore[arg-type]
    assert (tmp_path / "pipe").is_fifo()


class Stored(Source):
    """A run of one task, which has outputs of all kinds."""

    def run(self, run: str) -> dict[str, Any]:
        store = {"s": "file:///s", "far": "memory://bucket/far"}
        return {"arrays": [{"first": 1, "task": {"command": ["true"], "outputs": ["dir", "s", "far"], "store": store}}]}


def test_the_longest_name_is_fetched_and_advice_fits_what_went_wrong(tmp_path: Path) -> None:
    client, name = Client(b"one"), "x" * 255
    fetched = fetch(client, iter([Output("r1.1", name, kept(b"one"), 1e9)]), str(tmp_path), lambda done: None)  # type: ignore[arg-type]
    assert fetched.files == 1 and [path.name for path in tmp_path.iterdir()] == [name]
    with pytest.raises(Refused, match="File name too long") as error:
        fetch(client, iter([Output("r1.1", name + "y", kept(b"one"), 1e9)]), str(tmp_path), lambda done: None)  # type: ignore[arg-type]
    assert "space" not in error.value.hint and "longer names" in error.value.hint


def test_what_a_pilot_stored_is_left_and_what_it_could_not_is_brought_there(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    files = {
        "dir/a": kept(b"one"),
        "dir/b": kept(b"two"),
        "s": kept(b"two")._replace(url="file:///s"),
        "far": kept(b"one"),
    }
    source, client = Stored(pack(files)), Client(b"one", b"two")
    found = list(outputs_of(source, "r1", ["dir/*", "s", "far"]))  # type: ignore[arg-type]
    assert [(one.name, one.place, one.file.url) for one in found] == [
        ("dir/a", "", ""), ("dir/b", "", ""), ("s", "", "file:///s"), ("far", "memory://bucket/far", ""),
    ]  # fmt: skip
    done = fetch(client, iter(found), str(tmp_path), lambda done: None)  # type: ignore[arg-type]
    assert done == Fetched(2, 9, 0, 0, 2)
    assert fsspec.open("memory://bucket/far").open().read() == b"one"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "dir"]
    again = fetch(client, iter(found), str(tmp_path), lambda done: None)  # type: ignore[arg-type]
    assert (again.same, again.stored) == (3, 1), "what is there already is not brought again"


def test_a_later_run_reads_what_an_earlier_one_or_one_task_of_it_left(tmp_path: Path) -> None:
    source = Source(
        pack({"out/1": kept(b"one")}), pack({"out/2": kept(b"two")._replace(url="file:///x")}), pack({"c": kept(b"c")})
    )
    contents = KeptContents(source)  # type: ignore[arg-type]
    found = contents.of(["r1", "not-a-run"])
    assert found == {"out/1": f"{kept(b'one').digest} 644 3", "c": f"{kept(b'c').digest} 644 1"}
    assert set(contents.of(["r1.3"])) == {"c"}
    assert contents.of(["r1.1", "r1.2"]) == {"out/1": found["out/1"]}
    assert source.readings == 1, "however many names say what is wanted of it"
