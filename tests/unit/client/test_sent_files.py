from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.client import sent_files
from shoal.client.sent_files import SentFiles, may_send
from shoal.model.blobs import digest_of
from shoal.model.errors import BadInput, TooLarge
from shoal.wire.task import parse_spec


class Server:
    """Takes blobs."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def put(self, fd: int, tell: Callable[[int], None]) -> tuple[str, int]:
        data = os.pread(fd, 1 << 20, 0)
        tell(len(data))
        self.sent.append(digest_of([data]))
        return self.sent[-1], len(data)


def spec(**fields: Any) -> Any:
    return parse_spec({"command": ["./sim", "{x}"], **fields})


def test_names_with_braces_are_sent_as_they_are_where_there_are_no_parameters(tmp_path: Path) -> None:
    for name in ("{x}", "sim{y}"):
        (tmp_path / name).write_text(name)
    files = SentFiles(Server().put)
    assert files.of(spec(command=["./sim{y}"], inputs=["{x}"]), str(tmp_path)).keys() == {"{x}", "./sim{y}"}


def test_inputs_of_all_tasks_and_the_program_are_sent_once_each(tmp_path: Path) -> None:
    for name, text in (("sim", "program"), ("1.in", "one"), ("2.in", "two"), ("common", "")):
        (tmp_path / name).write_text(text)
    (tmp_path / "sim").chmod(0o750)
    server = Server()
    files = SentFiles(server.put)
    task = spec(params={"x": "1..2"}, inputs=["{x}.in", "common"])
    found = files.of(task, str(tmp_path))
    assert found == {
        "1.in": f"{digest_of([b'one'])} 644 3", "2.in": f"{digest_of([b'two'])} 644 3",
        "common": f"{digest_of([b''])} 644 0", "./sim": f"{digest_of([b'program'])} 750 7",
    }  # fmt: skip
    assert files.of(task, str(tmp_path)) == found
    assert len(server.sent) == 4


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("gone", "pipe"):
        with pytest.raises(BadInput, match=name):
            SentFiles(Server().put).of(spec(inputs=[name]), str(tmp_path))


def test_all_that_is_in_a_directory_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d" / "e" / "empty").mkdir(parents=True)
    (tmp_path / "d" / "e" / "a").write_text("A")
    (tmp_path / "d" / "b").symlink_to(tmp_path / "d" / "e" / "a")
    server = Server()
    files = SentFiles(server.put)
    found = files.of(spec(command=["true"], inputs=["./d/"]), str(tmp_path))
    text = f"{digest_of([b'A'])} 644 1"
    assert found == {"d/b": text, "d/e/a": text, "d/e/empty": "directory 755"}
    (tmp_path / "d" / "round").symlink_to(tmp_path / "d")
    with pytest.raises(BadInput, match="d/round is a link to a directory"):
        SentFiles(server.put).of(spec(inputs=["d"]), str(tmp_path))
    (tmp_path / "d" / "round").unlink()
    monkeypatch.setattr(sent_files, "MAX_DIRECTORY", 1)
    with pytest.raises(TooLarge, match="more than 1 file"):
        SentFiles(server.put).of(spec(inputs=["d"]), str(tmp_path))


def test_what_declares_nothing_or_lies_elsewhere_is_not_sent() -> None:
    assert may_send(spec(inputs=["a"]))
    assert may_send(spec(outputs=["a"]))
    assert may_send(spec(site="hpc"))
    assert not may_send(spec())
    assert not may_send(spec(inputs=["../a"]))
    assert not may_send(spec(inputs=["/a"]))
    assert not may_send(spec(inputs=["{x}"], params={"x": ["a", "/b"]})), "the values count, not the text"
    assert may_send(spec(inputs=["{x}", "}"])), "without parameters, braces are part of a name"
    assert not may_send(spec(inputs=["a"], cwd="sub"))
    assert not may_send(spec(inputs=["a"], stdout="out"))


def test_what_is_at_a_url_of_fsspec_is_sent_by_whoever_submits(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    (tmp_path / "1.in").write_text("one")
    server, told = Server(), list[tuple[int, int, int]]()
    files = SentFiles(server.put, lambda *said: told.append(said))
    url = f"local://{tmp_path}/{{x}}.in"
    task = spec(params={"x": "1..1"}, inputs=[url, "https://host/not-this"])
    assert files.of_urls(task) == {url.replace("{x}", "1"): f"{digest_of([b'one'])} 644 3"}
    assert told == [(0, 0, 3), (1, 3, 0)]
    wrong = spec(params={"x": "1..1"}, inputs=[f"local://{tmp_path}/1.in#sha256={'0' * 64}"])
    with pytest.raises(BadInput, match="is not sha256:000"):
        files.of_urls(wrong)


def test_what_is_not_here_and_an_earlier_run_wrote_is_named_and_not_sent(tmp_path: Path) -> None:
    (tmp_path / "sim").write_text("program")
    (tmp_path / "a").write_text("here")
    earlier = {"a": "of r1", "b": "b of r1", "out/x": "x of r1", "out/deep/y": "y of r1", "other": "of r1"}
    found = SentFiles(Server().put).of(spec(inputs=["a", "b", "out"]), str(tmp_path), (), earlier)
    assert {name: text for name, text in found.items() if name != "./sim"} == {
        "a": f"{digest_of([b'here'])} 644 4", "b": "b of r1", "out/x": "x of r1", "out/deep/y": "y of r1",
    }  # fmt: skip
