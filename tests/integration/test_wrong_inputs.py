"""A hundred wrong inputs and the very lines that answer them: what is wrong, where, and how to mend it.

The files in `wrong_inputs/` hold commands as they are typed (`$ shoal ...`), each with its exit status and the last
lines that it writes to standard error; `...` stands for anything. All commands of a file are typed one after another
in one directory that is empty at first, with one embedded server.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.test_documents import PATIENCE, Shell, shell

pytestmark = pytest.mark.integration
__all__ = ["shell"]  # the fixture
FILES = sorted(Path(__file__).with_name("wrong_inputs").glob("*.txt"))


class WrongInput(NamedTuple):
    """A command, and how it must be answered."""

    typed: str
    status: int
    lines: list[str]


def read_inputs(text: str) -> list[WrongInput]:
    """The commands of a file; a line that begins with # is a comment."""
    found: list[WrongInput] = []
    for block in re.split(r"\n\s*\n", text):
        lines = [line for line in block.splitlines() if line.strip() and not line.startswith("#")]
        if lines:
            status, _, first = lines[1].partition(": ")
            assert lines[0].startswith("$ ") and status.isdecimal(), f"not a command and its answer: {block}"
            found.append(WrongInput(lines[0][2:], int(status), [first, *lines[2:]]))
    return found


def is_answered(expected: list[str], printed: str) -> bool:
    """True if these are the last lines that were printed."""
    last = printed.splitlines()[-len(expected) :]
    return len(last) == len(expected) and all(
        re.fullmatch(".*".join(map(re.escape, line.split("..."))), said)
        for line, said in zip(expected, last, strict=True)
    )


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_a_wrong_input_is_answered_by_what_where_and_how_to_mend_it(shell: Shell, file: Path) -> None:
    wrong = []
    for case in read_inputs(file.read_text(encoding="utf-8")):
        done = subprocess.run(
            ["bash", "-c", case.typed], cwd=shell.cwd, env=shell.env, text=True, timeout=PATIENCE, check=False,
            stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip
        if done.returncode != case.status or not is_answered(case.lines, done.stderr):
            wrong.append(f"$ {case.typed}\n{done.returncode}: {done.stderr}  expected {case.status}: {case.lines}")
    assert not wrong, "\n\n".join(["", *wrong])


def test_there_are_a_hundred() -> None:
    assert sum(len(read_inputs(file.read_text(encoding="utf-8"))) for file in FILES) >= 100


@pytest.mark.parametrize(
    ("printed", "is_right"),
    [
        ("shoal: no run r9; see it", True),
        ("shoal: no run r9; look", False),
        ("x\nshoal: no run r9; see it", True),
        ("", False),
    ],
)
def test_an_answer_is_compared_whole(printed: str, is_right: bool) -> None:
    assert is_answered(["shoal: no run ...; see it"], printed) is is_right
