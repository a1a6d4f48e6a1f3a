"""Splitting at `--`, and the line for those who forget it."""

from __future__ import annotations

import pytest

from shoal.cli.main import invoke

FORGOTTEN = [
    (("run", "echo", "hi"), "shoal run -- echo hi"),
    (("run", "python", "x.py", "--seed", "1"), "shoal run -- python x.py --seed 1"),
    (("run", "--name", "n", "./sim", "--deep", "3"), "shoal run --name n -- ./sim --deep 3"),
    (("sweep", "x=1..3", "echo", "{x}"), "shoal sweep x=1..3 -- echo '{x}'"),
    (("sweep", "x=1..3", "--retries", "2", "./sim", "-v"), "shoal sweep x=1..3 --retries 2 -- ./sim -v"),
    (("submit", "ls", "-l"), "shoal submit -- ls -l"),
]


@pytest.mark.parametrize(("words", "right"), FORGOTTEN)
def test_a_forgotten_separator_is_answered_with_the_right_command(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], right: str
) -> None:
    assert invoke(words) == 2
    seen = capsys.readouterr()
    assert f"(write: {right})" in seen.err
    assert seen.err.count("\n") == 1
    assert seen.out == ""


def test_options_behind_the_separator_belong_to_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "--dry-run", "--", "echo", "--name", "--", "-q"]) == 0
    assert "echo --name -- -q" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("run", "nofile.sh", "42"), "there is no script nofile.sh; a command goes after -- (write: shoal run -- nofile.sh 42)"),
        (("run", "./nope", "-x"), "there is no script ./nope; a command goes after -- (write: shoal run -- ./nope -x)"),
        (("run", "."), ". is a directory (name a script or a task file, or a command after --)"),
        (("submit", "/tmp"), "/tmp is a directory (name a script or a task file, or a command after --)"),
        (("hosts", "x"), "shoal hosts takes no x here (see `shoal hosts --help`)"),
        (("prune", "a", "b"), "shoal prune takes no a b here (see `shoal prune --help`)"),
        (("run", "--key", "", "--", "true"),
         "key: the key is empty, and would keep nothing from running twice (leave it out, or name this work)"),
    ],
)  # fmt: skip
def test_words_that_cannot_be_meant_are_told_as_what_they_are(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], line: str
) -> None:
    assert invoke(words) == 2
    assert capsys.readouterr().err == f"shoal: {line}\n"
