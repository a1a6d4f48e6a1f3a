"""Queue waits from a file of the user's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shoal.model.errors import BadInput
from shoal.sim.papers.waits import read_waits, waits_of


def test_own_waits_are_read_and_drawn_between_the_shortest_and_the_longest(tmp_path: Path) -> None:
    path = tmp_path / "waits"
    path.write_text("# probes\n60\n\n 3600 \n0\n1e2\n")
    waits = read_waits(str(path))
    drawn = waits.sample(np.random.default_rng(1), 2_000)
    assert waits.name == "own" and len(waits.seconds) == 4
    assert drawn.min() > 0.0 and drawn.max() == pytest.approx(3600.0)
    assert 40.0 < np.median(drawn) < 150.0


def test_one_wait_is_always_the_same() -> None:
    drawn = waits_of("own", np.array([30.0])).sample(np.random.default_rng(1), 50)
    assert drawn == pytest.approx(np.full(50, 30.0))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no wait"),
        ("# only a comment\n", "holds no wait"),
        ("10\nsoon\n", "line 2: 'soon' is not a wait"),
        ("10\n-1\n", "line 2: '-1' is not a wait"),
        ("nan\n", "line 1: 'nan' is not a wait"),
        ("inf\n", "line 1: 'inf' is not a wait"),
        ("1,5\n", "line 1: '1,5' is not a wait"),
        ("\x1b[31m\n", r"'\\x1b[31m' is not a wait"),
    ],
)
def test_a_wrong_file_is_told_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "waits"
    path.write_text(text)
    with pytest.raises(BadInput) as refused:
        read_waits(str(path))
    assert told in refused.value.line and refused.value.field == "--waits"


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(BadInput, match="cannot read"):
            read_waits(str(path))


def test_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    (tmp_path / "waits").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="line 1"):
        read_waits(str(tmp_path / "waits"))
