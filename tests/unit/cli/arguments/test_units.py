"""Numbers without a unit, for people from Slurm."""

from __future__ import annotations

import click
import pytest

from shoal.cli.arguments.units import FiniteRange, unit_notes


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"time": "1"}, "--time 1 is taken as 1 second, not minutes as in Slurm; write 1s or 1m"),
        ({"time": "10"}, "--time 10 is taken as 10 seconds, not minutes as in Slurm; write 10s or 10m"),
        ({"deadline": "90"}, "--deadline 90 is taken as 90 seconds, not minutes as in Slurm; write 90s or 90m"),
        (
            {"time": "10:30"},
            "--time 10:30 is taken as 10h30m (hours:minutes), not minutes:seconds as in Slurm; write 10h30m or 10m30s",
        ),
        ({"memory": "4000"}, "--memory 4000 is taken as 4,000 bytes, not megabytes as in Slurm; write 4000M"),
        ({"disk": "1"}, "--disk 1 is taken as 1 byte, not megabytes as in Slurm; write 1M"),
    ],
)
def test_a_bare_number_is_noted_with_the_unit_that_was_taken(given: dict[str, str], said: str) -> None:
    assert list(unit_notes(given)) == [said]


@pytest.mark.parametrize(
    "given",
    [
        {"time": "10s"}, {"time": "10m"}, {"time": "01:00:00"}, {"time": None}, {"memory": "4G"}, {"disk": None}, {},
        {"memory": "4294967296"},  # a program that counts in bytes
        {"deadline": "2026-11-16T08:00"},
    ],
)  # fmt: skip
def test_what_has_a_unit_is_not(given: dict[str, str]) -> None:
    assert list(unit_notes(given)) == []


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "0"])
def test_a_factor_is_finite(text: str) -> None:
    factor = FiniteRange(min=0, min_open=True)
    assert factor.convert("2.5", None, None) == 2.5
    with pytest.raises(click.BadParameter):
        factor.convert(text, None, None)
