from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shoal.client.sent_files import SentFiles, may_send
from shoal.model.blobs import Bytes, digest_of
from shoal.model.errors import BadInput
from shoal.wire.task import parse_spec


class Server:
    """Takes blobs."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def put(self, parts: Sequence[Bytes]) -> str:
        self.sent.append(digest_of(parts))
        return self.sent[-1]


def spec(**fields: Any) -> Any:
    return parse_spec({"command": ["./sim", "{x}"], **fields})


def test_inputs_of_all_tasks_and_the_program_are_sent_once_each(tmp_path: Path) -> None:
    for name, text in (("sim", "program"), ("1.in", "one"), ("2.in", "two"), ("common", "")):
        (tmp_path / name).write_text(text)
    (tmp_path / "sim").chmod(0o750)
    server = Server()
    files = SentFiles(server.put)
    task = spec(params={"x": "1..2"}, inputs=["{x}.in", "common"])
    found = files.of(task, str(tmp_path))
    assert found == {
        "1.in": f"{digest_of([b'one'])} 644", "2.in": f"{digest_of([b'two'])} 644", "common": f"{digest_of([b''])} 644",
        "./sim": f"{digest_of([b'program'])} 750",
    }  # fmt: skip
    assert files.of(task, str(tmp_path)) == found
    assert len(server.sent) == 4


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for name in ("gone", "folder"):
        (tmp_path / "folder").mkdir(exist_ok=True)
        with pytest.raises(BadInput, match=name):
            SentFiles(Server().put).of(spec(inputs=[name]), str(tmp_path))


def test_what_declares_nothing_or_lies_elsewhere_is_not_sent() -> None:
    assert may_send(spec(inputs=["a"]))
    assert may_send(spec(outputs=["a"]))
    assert may_send(spec(site="hpc"))
    assert not may_send(spec())
    assert not may_send(spec(inputs=["../a"]))
    assert not may_send(spec(inputs=["/a"]))
    assert not may_send(spec(inputs=["{x}"], params={"x": ["a", "/b"]})), "the values count, not the text"
    assert not may_send(spec(inputs=["a"], cwd="sub"))
    assert not may_send(spec(inputs=["a"], stdout="out"))
