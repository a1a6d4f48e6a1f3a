"""Runs by their names."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.model.errors import BadInput
from shoal.report.data_source import HttpSource
from shoal.report.run_names import find_run, find_target
from tests.unit.report.fake_source import FakeSource, run_info

Json = dict[str, Any]


class Named(FakeSource):
    """Runs with names, newest first."""

    def __init__(self, *runs: tuple[str, str]) -> None:
        super().__init__(run_info([]))
        self.rows = [{"run": run, "name": name, "owner": "me"} for run, name in runs]

    def runs(self, state: str = "", name: str = "", limit: int = 50, before: str = "") -> Json:
        self.asked.append(("runs", name))
        return {"runs": self.rows, "next": None}


class Shared(HttpSource):
    """A server with runs of several people."""

    def __init__(self, *runs: tuple[str, str, str]) -> None:
        self.rows = [{"run": run, "name": name, "owner": owner} for run, name, owner in runs]
        self.client: Any = self
        self.runs: Any = lambda **asked: {"runs": self.rows, "next": None}

    def whoami(self) -> Json:
        return {"owner": "ann"}


def test_an_id_is_an_id_and_nothing_is_read() -> None:
    source, said = Named(("r3", "r12")), list[str]()
    assert find_target(source, "r12", said.append) == "r12"
    assert find_target(source, "r12.7", said.append) == "r12.7"
    assert find_run(source, "r12", said.append) == "r12"
    assert (source.asked, said) == ([], [])


def test_the_latest_run_of_a_name_is_meant_and_told() -> None:
    source, said = Named(("r9", "train2"), ("r8", "train"), ("r3", "train")), list[str]()
    assert find_target(source, "train", said.append) == "r8"
    assert said == ["train is r8, the latest of 2 runs with this name"]
    assert find_target(source, "train.7", said.append) == "r8.7"
    assert find_run(source, "train2", said.append) == "r9"
    assert source.asked[-1] == ("runs", "[t]rain2")  # a hundred newer runs whose names begin so would hide it


def test_a_name_may_look_like_a_task_or_a_pattern() -> None:
    source, said = Named(("r9", "v1.2"), ("r8", "v1"), ("r7", "a[*]?")), list[str]()
    assert find_target(source, "v1.2", said.append) == "r9"
    assert find_target(source, "v1.3", said.append) == "r8.3"
    assert find_target(source, "a[*]?", said.append) == "r7"
    assert source.asked[-1] == ("runs", "a[[][*]][?]")


def test_what_names_nothing_is_told() -> None:
    source = Named(("r9", "train"))
    for text in ("tra", "", "x" * 1000, "train.0", "12"):
        with pytest.raises(BadInput, match="is neither a run nor a task, and no run has that name"):
            find_target(source, text, print)
    with pytest.raises(BadInput, match="'tra' is not a run, and no run has that name"):
        find_run(source, "tra", print)
    with pytest.raises(BadInput, match=r"train\.7 is a task"):
        find_run(source, "train.7", print)


def test_of_several_people_ones_own_run_is_meant() -> None:
    source = Shared(("r9", "train", "bob"), ("r8", "train", "ann"), ("r3", "train", "bob"))
    assert find_target(source, "train", print) == "r8"
    source = Shared(("r9", "train", "bob"), ("r8", "train", "eve"), ("r3", "train", "bob"))
    with pytest.raises(
        BadInput, match=r"several people have a run named 'train': r8 \(eve\), r9 \(bob\)|r9 \(bob\), r8"
    ):
        find_target(source, "train", print)
