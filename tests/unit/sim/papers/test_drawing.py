"""The figure of an experiment."""

from __future__ import annotations

import pytest

from shoal.sim.papers.drawing import draw
from shoal.sim.papers.findings import run
from shoal.sim.papers.registry import EXPERIMENTS

pytest.importorskip("matplotlib")


def test_curves_axes_and_numbers_are_readable() -> None:
    found = run(EXPERIMENTS["u.start"], 2)
    text = draw(found, "svg").decode()
    assert text == draw(found, "svg").decode()  # the same bytes each time
    for word in (">drawn<", ">q^K<", "jobs submitted", "[DIANE 3.3]", ">100<"):
        assert word in text
    assert "mathdefault" not in text  # a power of ten as the text of a formula
