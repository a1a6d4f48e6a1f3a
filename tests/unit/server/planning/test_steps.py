"""The list of planning steps, and where the steps of other packages come into it [SPHINX S1; ADR 0059]."""

from __future__ import annotations

import importlib.metadata

import pytest

from shoal.server.planning import steps


@pytest.fixture(autouse=True)
def _anew() -> None:
    steps.steps.cache_clear()


class Audit:
    """A step of somebody else."""

    before = "unaccepted"


def bring(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    points = [importlib.metadata.EntryPoint(name, f"{__name__}:Audit", steps.GROUP) for name in names]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)


def test_the_states_are_those_of_the_paper_in_its_order() -> None:
    assert [place.stage for place in steps.steps()] == ["unreduced", "unpredicted", "unaccepted", "unplanned"]
    assert steps.next_stage("unplanned") == "unfinished" and steps.step_of("unknown") is None


def test_a_step_of_another_package_is_put_where_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    bring(monkeypatch, "unaudited")
    assert steps.next_stage("unpredicted") == "unaudited" and steps.next_stage("unaudited") == "unaccepted"
    assert isinstance(steps.step_of("unaudited"), Audit)


@pytest.mark.parametrize("name", ["unplanned", "unfinished", "Not A State"])
def test_one_that_cannot_be_is_left_out(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    bring(monkeypatch, name)
    assert len(steps.steps()) == 4
