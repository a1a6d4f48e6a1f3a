"""A hundred wrong inputs and the very lines that answer them: what is wrong, where, and how to mend it.

The files in `wrong_inputs/` hold commands as they are typed (`$ shoal ...`), each with its exit status and the last
lines that it writes to standard error; `...` stands for anything. Each is typed in an empty directory by somebody who
never used Shoal, so that none depends on another.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.test_documents import PATIENCE, Shell

pytestmark = pytest.mark.integration
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


class Newcomer(Shell):
    """Somebody who never used Shoal, with the usual directories below their home."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        super().__init__(folder)
        home = folder / "home"
        home.mkdir()
        del self.env["XDG_STATE_HOME"]
        self.env["HOME"] = str(home)
        self.state = home / ".local" / "state" / "shoal"


def answer_to(case: WrongInput, folder: Path) -> str:
    """How a wrong input was answered, if not as it should be."""
    newcomer = Newcomer(folder)
    try:
        done = subprocess.run(
            ["bash", "-c", case.typed], cwd=newcomer.cwd, env=newcomer.env, text=True, timeout=PATIENCE, check=False,
            stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip
    finally:
        newcomer.close()
    if done.returncode == case.status and is_answered(case.lines, done.stderr):
        return ""
    return f"$ {case.typed}\n{done.returncode}: {done.stderr}  expected {case.status}: {case.lines}"


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_a_wrong_input_is_answered_by_what_where_and_how_to_mend_it(tmp_path: Path, file: Path) -> None:
    cases = read_inputs(file.read_text(encoding="utf-8"))
    wrong = [answer_to(case, tmp_path / str(number)) for number, case in enumerate(cases)]
    assert not any(wrong), "\n\n".join(["", *filter(None, wrong)])


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
