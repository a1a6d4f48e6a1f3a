"""Each `*.txt` beside this file is a story: a command, `----`, and what came of it, word for word.

`pytest tests/scenario --rewrite` writes what comes of them now; the diff is to be read like any other change.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.scenario.stage import Stage

HERE = Path(__file__).parent
SCENARIOS = sorted(path.stem for path in HERE.glob("*.txt"))
LINE = "----\n"


class Block(NamedTuple):
    """One command with the comment above it, and what it is to say."""

    comment: str
    command: str
    said: str


def parse(text: str) -> list[Block]:
    """The blocks of a scenario, which empty lines divide."""
    blocks = []
    for part in text.strip().split("\n\n"):
        head, line, said = f"{part}\n".partition(LINE)
        assert line, f"a block without {LINE.strip()}: {part!r}"
        *comments, command = head.splitlines()
        assert all(comment.startswith("#") for comment in comments), head
        blocks.append(Block("".join(f"{comment}\n" for comment in comments), command, said))
    return blocks


def play(blocks: list[Block]) -> str:
    """The same scenario with what its commands say now."""
    stage = Stage()
    try:
        return "\n".join(f"{b.comment}{b.command}\n{LINE}{stage.perform(b.command)}" for b in blocks)
    finally:
        stage.close()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_goes_as_it_is_written(name: str, request: pytest.FixtureRequest) -> None:
    path = HERE / f"{name}.txt"
    written = path.read_text(encoding="utf-8")
    said = play(parse(written))
    if request.config.getoption("--rewrite"):
        path.write_text(said, encoding="utf-8")
        return
    assert said == written, f"read the diff; pytest tests/scenario --rewrite takes it as it is now ({path.name})"


def test_a_scenario_that_says_another_thing_is_caught() -> None:
    """The runner compares what comes of a command, and nothing that is written stands for it."""
    blocks = parse("# one host\npilot a\n----\n\nsubmit -- work 5\n----\nnothing at all\n")
    said = play(blocks)
    assert "task" in parse(said)[1].said and "nothing at all" not in said
    assert parse(said)[0].comment == "# one host\n" and play(parse(said)) == said, "and the same again every time"


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 6
