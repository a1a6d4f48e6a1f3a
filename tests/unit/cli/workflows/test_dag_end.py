"""How a workflow ended, by what the server keeps of its tasks."""

from __future__ import annotations

import pytest

from shoal.cli.workflows.dag_end import end_of
from shoal.flow.dag import build, document
from shoal.model.errors import EventsGone
from tests.unit.cli.fake_client import FakeClient
from tests.unit.flow.formats.dagman.reading import vertices
from tests.unit.report.fake_source import FakeSource, Json, run_info, task_row

DAG = "JOB A a.sub\nJOB B a.sub\nSERVICE S a.sub\n"


def client(dag: str, rows: list[Json]) -> FakeClient:
    """A server that keeps no events any more of a run, whose tasks ended so."""
    tables = document(build(vertices(dag).vertices))["tasks"]
    counts = {state: sum(row["state"] == state for row in rows) for state in {row["state"] for row in rows}}
    info = run_info(tables, counts=counts, finished=2.0)
    return FakeClient(FakeSource(info, rows), [EventsGone("gone", oldest=9)])


@pytest.mark.parametrize(
    ("line", "ended", "status"),
    [
        ("ABORT-DAG-ON A 9 RETURN 4", {"state": "failed", "exit_code": 9}, 4),
        ("ABORT-DAG-ON A -9 RETURN 4", {"state": "failed", "exit_code": None, "signal": 9}, 4),
        ("ABORT-DAG-ON A 0 RETURN 4", {}, 4),
        ("ABORT-DAG-ON A 9 RETURN 4", {"state": "failed", "exit_code": 8}, 1),
        ("ABORT-DAG-ON A 9 RETURN 4", {"state": "cancelled", "exit_code": 9}, 1),
        ("ABORT-DAG-ON A 9 RETURN 4", {}, 1),
        ("ABORT-DAG-ON S 0 RETURN 4", {}, 1),
    ],
)
def test_what_aborted_a_workflow_is_known_also_when_its_events_are_no_longer_kept(
    line: str, ended: Json, status: int
) -> None:
    """automated-workflows/node-pass-or-fail.rst, Stopping the DAG on Node Failure: the workflow ends with RETURN."""
    dag = f"{DAG}{line}\n"
    rows = [task_row(1, **ended), task_row(2, state="cancelled", exit_code=None), task_row(3)]
    assert end_of(client(dag, rows), "r1", vertices(dag)).status == status
