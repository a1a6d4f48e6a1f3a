"""What `shoal dag` makes of a file, before anything is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.cli.workflows.dag import _read


def test_force_holds_for_sub_workflows_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """automated-workflows/dagman-using-other-dags.rst, Preserved DAGMan Options: -Force is among those "preserved and passed
    down to all Sub-DAGs in the workflow"."""
    (tmp_path / "w.dag").write_text("SUBDAG EXTERNAL A sub.dag\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    for options, words in (({"force": True}, ["--force", "sub.dag"]), ({}, ["--quiet", "sub.dag"])):
        (vertex,) = _read("w.dag", options).dag.vertices
        assert vertex.table["command"][-2:] == words
