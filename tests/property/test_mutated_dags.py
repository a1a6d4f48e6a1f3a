"""DAGMan files with random damage: each is read to the end or refused with one line that names a place; never a traceback, and
never half a workflow, since nothing is submitted before all of it was checked."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from shoal.flow.dag import build, document
from shoal.flow.formats.dagman.dag_file import read_dag
from shoal.flow.formats.dagman.source import Surroundings
from shoal.flow.formats.dagman.translate import translate
from shoal.model.errors import BadInput, ShoalError
from shoal.wire.submission import parse_submission

DAGS = Path(__file__).parents[1] / "integration" / "dags"
FILES = {
    path.relative_to(DAGS).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(DAGS.rglob("*"))
    if path.is_file()
}
MANY = 2_000 if os.environ.get("SHOAL_PROVE") == "1" else 300
WORDS = [
    "JOB", "PARENT", "CHILD", "ALL_NODES", "SPLICE", "RETRY", "-1", "99999999999", "{", "}", '"', "'", "\\", "$(", "$(x", "$$(y)",
    "queue", "queue 0", "queue x in (", "if", "endif", "=", "\x00", "\ud800", "é" * 300, "+", "%", "diamond.dag", "../x", "\n",
    "FINAL", "DIR", "A", "include : a", "\x01retry\x01",
]  # fmt: skip


def damaged(text: str, rng: random.Random) -> str:
    """A text with one to four random changes."""
    for _ in range(rng.randint(1, 4)):
        at, end = sorted(rng.randint(0, len(text)) for _ in range(2))
        end = min(end, at + 40)
        lines = text.split("\n")
        row = rng.randrange(len(lines))
        match rng.randrange(6):
            case 0:
                text = text[:at] + text[end:]
            case 1:
                text = text[:at] + rng.choice(WORDS) + text[at:]
            case 2:
                text = text[:at] + text[at:end] * rng.randint(2, 5) + text[end:]
            case 3:
                text = "\n".join([*lines[:row], *lines[row + 1 :]])
            case 4:
                text = "\n".join([*lines[:row], *lines[row : row + 1] * 2, *lines[row + 1 :]])
            case _:
                words = lines[row].split(" ")
                words[rng.randrange(len(words))] = rng.choice(WORDS)
                text = "\n".join([*lines[:row], " ".join(words), *lines[row + 1 :]])
    return text


@pytest.mark.parametrize("part", range(10))
def test_a_damaged_file_is_read_or_refused_in_one_line(part: int) -> None:
    refused = 0
    for seed in range(part, MANY, 10):
        rng = random.Random(seed)
        main = rng.choice([name for name in FILES if name.endswith(".dag")])
        touched = rng.choice([main, main, rng.choice(list(FILES))])
        files = {**FILES, touched: damaged(FILES[touched], rng)}

        def read(name: str, files: dict[str, str] = files) -> str:
            if name not in files:
                raise BadInput(f"cannot read {name}", code="no_such_file")
            return files[name]

        around = Surroundings(read, files.__contains__)
        try:
            found = translate(read_dag(main, around), around)
            submission = parse_submission(document(build(found.vertices), name=main, cwd="/data"))
        except ShoalError as error:
            refused += 1
            assert "\n" not in error.line and len(error.line) < 2_000, (seed, error.line)
        else:
            assert len(submission.specs) == len(found.vertices), seed
    assert refused > MANY // 100
