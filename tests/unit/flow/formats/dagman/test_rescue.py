"""Rescue files."""

from __future__ import annotations

import pytest

from shoal.flow.formats.dagman.rescue import newest, read_rescue, rescue_name, write_rescue
from shoal.model.errors import BadInput


def test_what_is_written_is_read() -> None:
    text = write_rescue("w.dag", "r3", ["A", "S+B"], ["C"], 3)
    assert read_rescue(text, "w.dag.rescue001") == {"A", "S+B"}


def test_a_file_of_dagman_is_read() -> None:
    assert read_rescue("# Rescue DAG file\n\n# Total number of Nodes: 2\nDONE A\nRETRY B 2\n", "r") == {"A"}


def test_the_newest_counts() -> None:
    names = ["w.dag.rescue001", "w.dag.rescue012", "w.dag.rescue.003.old", "w.dag"]
    assert newest(names) == 12
    assert newest([]) == 0
    assert rescue_name("w.dag", 13) == "w.dag.rescue013"


def test_a_whole_rescue_file_is_refused_as_a_partial_one() -> None:
    with pytest.raises(BadInput, match="r:1: 'JOB' is no line"):
        read_rescue("JOB A a.sub\n", "r")
