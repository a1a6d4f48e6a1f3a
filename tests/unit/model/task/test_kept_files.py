from __future__ import annotations

import json

import pytest

from shoal.model.task.kept_files import KeptFile, declared, is_written, pack, unpack

FILE = KeptFile(f"sha256:{'a' * 64}", 12, 0o755)


def test_outputs_come_back_as_they_were_named() -> None:
    files = {"out/1.json": FILE, "ä": FILE._replace(size=0, mode=0o600)}
    assert unpack(pack(files)) == files
    files["stored"] = FILE._replace(url="https://h/out/1.json")
    assert unpack(pack(files)) == files


def test_what_is_in_a_directory_that_was_declared_is_an_output_and_nothing_that_leads_elsewhere() -> None:
    names = ["out", "out/a", "out/b/c", "other", "out/../evil", "/out/x", "outer/a", "out/./a"]
    assert list(declared(dict.fromkeys(names, FILE), ["out"])) == ["out", "out/a", "out/b/c"]
    assert is_written("out/b/c", {"out/b"}) and not is_written("out", {"out/b"})


@pytest.mark.parametrize(
    "text",
    [
        "", "AAAA", f"sha256:{'a' * 64}", '{"kept":', '{"kept":[]}', '{"kept":{"a":[]}}', '{"kept":{"a":["b",1,1]}}',
        json.dumps({"kept": {"a": [FILE.digest, -1, 420]}}, separators=(",", ":")),
        json.dumps({"kept": {"a": [FILE.digest, 2**60 + 1, 420]}}, separators=(",", ":")),
        f'{{"kept":{{"a":["{FILE.digest}",1e400,420]}}}}', f'{{"kept":{{"a":["{FILE.digest}",1,1e400]}}}}',
        f'{{"kept":{{"a":["{FILE.digest}",NaN,420]}}}}', '{"kept":' + "[" * 60_000, '{"kept":' + '{"a":' * 12_000,
        json.dumps({"kept": {"a": [*FILE.row, "file:///a b"]}}, separators=(",", ":")),
        json.dumps({"kept": {"a": [FILE.digest, "x", 420]}}, separators=(",", ":")),
        json.dumps({"kept": {str(at): FILE.row for at in range(2_001)}}, separators=(",", ":")),
    ],
)  # fmt: skip
def test_what_is_no_such_text_names_no_outputs(text: str) -> None:
    assert unpack(text) == {}


def test_too_many_names_are_refused_where_they_are_made() -> None:
    with pytest.raises(ValueError, match="64 KiB"):
        pack({f"{at:0200}": FILE for at in range(300)})
