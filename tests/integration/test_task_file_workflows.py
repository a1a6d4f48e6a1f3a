"""Workflows in task files: files make edges, `show` tells levels, and vertices are retried and cancelled by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.test_wfformat import Here, embedded

pytestmark = pytest.mark.integration

# Each `fit` reads what one `make` writes; the second `make` fails until there is a file `ok`.
FLOW = """
name = "flow"

[workflow]
edges = "files"

[[tasks]]
name = "make"
params = { x = "1..3" }
shell = "test {x} != 2 || test -f ok && echo {x} > out.{x}"
outputs = ["out.{x}"]

[[tasks]]
name = "fit"
params = { x = "1..3" }
shell = "test -s out.{x} && echo fit {x} > fit.{x}"
inputs = ["out.{x}"]
outputs = ["fit.{x}"]

[[tasks]]
name = "sum"
shell = "cat fit.1 fit.2 fit.3 > all"
inputs = ["fit.1", "fit.2", "fit.3"]
outputs = ["all"]
"""


def levels(here: Here, run: str) -> list[tuple[int, int]]:
    """How many tasks of each level are done, and failed."""
    return [(one["done"], one["failed"]) for one in json.loads(here.shoal("show", run, "--json"))["levels"]]


def test_a_subtree_of_a_workflow_is_retried_after_what_ailed_it_was_mended(tmp_path: Path) -> None:
    (tmp_path / "flow.toml").write_text(FLOW)
    with embedded(tmp_path) as here:
        here.shoal("run", "-q", "flow.toml", status=1)
        assert levels(here, "flow") == [(2, 1), (2, 1), (0, 1)]
        assert "level 2         2 done, 1 failed  (fit.1, fit.2, fit.3)" in here.shoal("show", "flow")
        assert "there is no vertex 'mak'" in here.shoal("retry", "flow", "--vertex", "mak", status=3)
        assert "which it waits for, did not succeed" in here.shoal("retry", "flow", "--level", "3", status=3)
        (tmp_path / "ok").touch()
        assert "3 tasks ready again" in here.shoal("retry", "flow", "--below", "make.2")
        here.shoal("wait", "-q", "flow")
        assert levels(here, "flow") == [(3, 0), (3, 0), (1, 0)]
        assert (tmp_path / "all").read_text() == "fit 1\nfit 2\nfit 3\n"


def test_a_resumed_workflow_runs_what_changed_and_what_is_below_and_says_why(tmp_path: Path) -> None:
    flow = FLOW.replace("test {x} != 2 || test -f ok && ", "").replace(
        'shell = "', 'shell = "echo ran >> ran.{x} && ', 2
    )
    flow = flow.replace('shell = "cat', 'shell = "echo ran >> ran.sum && cat')
    (tmp_path / "flow.toml").write_text(flow)

    def ran() -> dict[str, int]:
        """How often tasks ran since the last call."""
        found = {path.suffix[1:]: len(path.read_text().splitlines()) for path in tmp_path.glob("ran.*")}
        for path in tmp_path.glob("ran.*"):
            path.unlink()
        return found

    with embedded(tmp_path) as here:
        here.shoal("run", "-q", "flow.toml")
        assert ran() == {"1": 2, "2": 2, "3": 2, "sum": 1}
        told = here.shoal("run", "--resume", "flow.toml", errors=True)
        assert ran() == {} and "7 of 7 tasks are not run again" in told
        (tmp_path / "out.2").unlink()
        told = here.shoal("run", "--resume", "flow.toml", errors=True)
        assert ran() == {"2": 2, "sum": 1}
        assert "1 task runs again: a file that they wrote is gone (make.2)" in told
        assert "2 tasks run again: tasks that they wait for run (fit.2, sum)" in told
        (tmp_path / "flow.toml").write_text(flow.replace("cat fit.1", "cat fit.3 fit.1"))
        told = here.shoal("run", "--resume", "flow.toml", errors=True)
        assert ran() == {"sum": 1} and "1 task runs again: their shell changed since they ran (sum)" in told


def test_vertices_are_cancelled_by_name_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "work.toml").write_text(
        '[[tasks]]\nname = "a"\nshell = "until test -f go; do sleep 0.05; done"\n'
        '[[tasks]]\nname = "b"\nafter = ["a"]\nshell = "true"\n[[tasks]]\nname = "c"\nafter = ["b"]\nshell = "true"\n'
        '[[tasks]]\nname = "d"\nafter = ["a"]\nshell = "true"\n'
    )
    with embedded(tmp_path) as here:
        run = here.shoal("submit", "work.toml").strip()
        assert "2 tasks cancelled" in here.shoal("cancel", run, "--below", "b")
        (tmp_path / "go").touch()
        here.shoal("wait", "-q", run, status=1)
        states = [row.split(",")[1] for row in here.shoal("results", run, "--csv").splitlines()[1:]]
        assert states == ["succeeded", "cancelled", "cancelled", "succeeded"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[workflow]\n", "workflow: it needs one key, edges"),
        ('[workflow]\nedges = "all"\n', "work.toml:1: workflow: it needs one key, edges"),
        ("workflow = 3\n", "work.toml:1: workflow: it needs one key, edges"),
        (
            '[workflow]\nedges = "files"\n[[tasks]]\nshell = "x"\noutputs = ["o"]\n[[tasks]]\nshell = "y"\noutputs = ["o"]\n',
            "work.toml:8: tasks[1].outputs: 'o' is written by tasks[0], too",
        ),
        (
            '[workflow]\nedges = "files"\n[[tasks]]\nshell = "x"\ninputs = ["b"]\noutputs = ["a"]\n'
            '[[tasks]]\nshell = "y"\ninputs = ["a"]\noutputs = ["b"]\n',
            "tasks wait for each other: table",
        ),
        ('[[tasks]]\nshell = "x"\noutputs = ["a"]\n[[tasks]]\nshell = "y"\ninputs = ["a"]\n', "there is no file 'a'"),
    ],
)  # fmt: skip
def test_a_wrong_workflow_is_refused_with_its_line_and_nothing_is_submitted(
    tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "work.toml").write_text(text)
    answer = Here(tmp_path).shoal("run", "work.toml", status=2)
    assert told in answer and len(answer.splitlines()) == 1
    assert not (tmp_path / "state").exists()
