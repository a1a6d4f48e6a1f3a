"""Values from files, standard input and patterns."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from shoal.cli.arguments.values import expand_tables, params_of
from shoal.model.errors import BadInput
from shoal.model.task.sweep import Value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.txt", "c.csv", ".hidden.txt"):
        (tmp_path / name).touch()
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "d.txt").touch()
    (tmp_path / "list").write_bytes(b"\xef\xbb\xbfone two\r\n\n007\n12\n1.5\n*.txt\na,b\n")
    return tmp_path


def values(folder: Path, axis: str) -> str | list[Value]:
    (found,) = params_of([axis], str(folder)).values()
    return found


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        ("x=1..10", "1..10"),
        ("x=a,b", "a,b"),
        ("x=a@b", "a@b"),
        ("x=[1", "[1"),
        ("f=*.txt", ["a.txt", "b.txt"]),
        ("f=?.csv", ["c.csv"]),
        ("f=[ab].txt", ["a.txt", "b.txt"]),
        ("f=**/d.txt", ["deep/er/d.txt"]),
        ("f=*.csv,x,3..4,@list", ["c.csv", "x", 3, 4, "one two", "007", 12, 1.5, "*.txt", "a,b"]),
        ("f==*.txt", ["*.txt"]),
        ("f==a,@b", ["a,@b"]),
        ("f==", [""]),
    ],
)
def test_values_are_looked_up(folder: Path, axis: str, expected: str | list[Value]) -> None:
    assert values(folder, axis) == expected


@pytest.mark.parametrize("axis", ["x=-", "x=@-"])
def test_values_come_from_standard_input(folder: Path, monkeypatch: pytest.MonkeyPatch, axis: str) -> None:
    stdin = SimpleNamespace(buffer=io.BytesIO(b"a\nb\n"), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stdin)
    assert values(folder, axis) == ["a", "b"]


def test_a_person_is_told_what_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a\n"), isatty=lambda: True))
    values(folder, "x=-")
    assert capsys.readouterr().err == "shoal: reading the values of x, one a line, until Ctrl-D\n"


def test_standard_input_is_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a\n"), isatty=lambda: False))
    with pytest.raises(BadInput, match="standard input is read for x already"):
        params_of(["x=-", "y=@-"], str(folder))


@pytest.mark.parametrize(
    ("axis", "said"),
    [
        ("f=*.nope", "f: '*.nope' matches no file (check the pattern; for the text itself write f==*.nope)"),
        (
            "x=@gone",
            "x: cannot read 'gone': No such file or directory (name a file with one value a line; "
            "for the text itself write x==@gone)",
        ),
        ("x=@c.csv", "x: c.csv has no values (write one value a line)"),
        ("x=@deep", "x: cannot read 'deep': Is a directory (name a file with one value a line; "
         "for the text itself write x==@deep)"),
        ("1x=*.txt", "'1x' is not a parameter name (letters, digits and _, not a digit first)"),
        ("x=1..,*.txt", "x: '1..' is not a range (a range is 1..10 or 10..100:10, a list is a,b,c)"),
    ],
)  # fmt: skip
def test_what_cannot_be_looked_up_is_told(folder: Path, axis: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        params_of([axis], str(folder))
    assert caught.value.line == said


def test_bytes_that_are_no_text_are_told(folder: Path) -> None:
    (folder / "bytes").write_bytes(b"a\n\xff\n")
    with pytest.raises(BadInput, match="bytes is not UTF-8 at byte 2"):
        values(folder, "x=@bytes")


def test_a_parameter_is_named_once(folder: Path) -> None:
    with pytest.raises(BadInput, match="x is given twice"):
        params_of(["x=1", "x=*.txt"], str(folder))


def test_the_tables_of_a_file_are_looked_up_and_lists_are_literal(folder: Path) -> None:
    tables = [{"params": {"f": "*.csv", "g": ["*.csv"], "h": "1..2"}}, {"params": [{"f": "*"}]}, "wrong"]
    assert expand_tables(tables, str(folder)) == [
        {"params": {"f": ["c.csv"], "g": ["*.csv"], "h": "1..2"}},
        *tables[1:],
    ]
    assert expand_tables("wrong", str(folder)) == "wrong"
