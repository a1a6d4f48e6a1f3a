"""How far a workflow is: levels with counts, the critical path so far, and which tasks people mean."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.model.errors import BadInput, NotFound
from shoal.report.workflows.progress import (
    Chosen,
    Progress,
    choose,
    document,
    is_workflow,
    read_graph,
    read_progress,
    tasks_in,
)
from tests.unit.report.fake_source import FakeSource, Json, run_info, task_row

# split (1) -> work (2, 3, an array) -> join (4), look (5), which need not succeed; aside (6) is for itself.
TABLES: list[Json] = [
    {"name": "split", "command": ["x"]},
    {"name": "work", "command": ["x"], "array": "1-2", "after": ["split", "r77"]},
    {"name": "join", "command": ["x"], "after": ["work"]},
    {"name": "look", "command": ["x"], "after_any": ["work"]},
    {"command": ["x"]},
]


def row(element: int, start: float, end: float | None, **more: Any) -> Json:
    if end is None:
        return task_row(element, **{"state": "leased", "started": start, "ended": None, "duration": None, **more})
    return task_row(element, **{"started": start, "ended": end, "duration": end - start, **more})


def read(rows: list[Json], now: float | None = None, **info: Any) -> Progress:
    found = run_info(TABLES, **info)
    return read_progress(FakeSource(found, rows), found, now)


def levels(progress: Progress) -> list[dict[str, int]]:
    return [{state: count for state, count in counts.items() if count} for counts in progress.levels]


def test_a_run_whose_tables_wait_for_each_other_is_a_workflow() -> None:
    assert is_workflow(run_info(TABLES))
    assert not is_workflow(run_info([{"name": "a", "command": ["x"], "after": ["r12"]}, {"command": ["x"]}]))


def test_before_it_begins_only_the_first_level_is_ready() -> None:
    progress = read([])
    assert levels(progress) == [{"ready": 2}, {"waiting": 2}, {"waiting": 2}]
    assert progress.path == ([], 0.0)


def test_levels_count_tasks_by_state_and_the_path_goes_on_while_one_runs() -> None:
    rows = [row(1, 10.0, 14.0), row(2, 15.0, 16.0), row(3, 15.0, None), row(6, 10.0, 11.0)]
    progress = read(rows, now=25.0)
    assert levels(progress) == [{"done": 2}, {"done": 1, "running": 1}, {"waiting": 2}]
    assert progress.path == (["split", "work"], 14.0)


def test_who_waits_for_an_end_is_ready_after_a_failure() -> None:
    spans = [{"low": 4, "high": 5, "state": "failed", "cause": "dependency_failed"}]
    progress = read([row(1, 0.0, 1.0), row(2, 1.0, 2.0, state="failed"), row(3, 1.0, 2.0)], spans=spans)
    assert levels(progress) == [{"done": 1, "ready": 1}, {"done": 1, "failed": 1}, {"failed": 1, "ready": 1}]


def test_pieces_of_divisible_work_are_one_vertex() -> None:
    tables: list[Json] = [
        {"name": "work", "command": ["x"], "units": {"first": 0, "count": 5, "cut": True}},
        {"name": "sum", "command": ["x"], "after": ["work"]},
        {"name": "work", "command": ["x"], "units": {"first": 5, "count": 5, "cut": True}},
    ]
    found = run_info(tables)
    graph = read_graph(found)
    assert [vertex.name for vertex in graph.dag.vertices] == ["work", "sum"]
    assert graph.elements[0] == [range(1, 2), range(3, 4)] and graph.levels == [[0], [1]]


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        (Chosen(vertices=("work",)), ["work"]),
        (Chosen(vertices=("*o*",)), ["work", "join", "look"]),
        (Chosen(levels=(1,)), ["split", "r1.6"]),
        (Chosen(below=("work",)), ["work", "join", "look"]),
        (Chosen(vertices=("split",), levels=(3,)), ["split", "join", "look"]),
    ],
)
def test_vertices_are_named_by_pattern_level_and_what_is_below(chosen: Chosen, names: list[str]) -> None:
    graph = read_graph(run_info(TABLES))
    assert [graph.dag.vertices[at].name for at in choose(graph, chosen)] == names


def test_what_is_not_there_is_refused() -> None:
    graph = read_graph(run_info(TABLES))
    with pytest.raises(NotFound, match="there is no vertex 'wrok' in this run") as caught:
        choose(graph, Chosen(below=("wrok",)))
    assert caught.value.hint == "did you mean work"
    with pytest.raises(BadInput, match="there is no level 4"):
        choose(graph, Chosen(levels=(4,)))


def test_only_tasks_in_the_wanted_states_are_meant() -> None:
    found = run_info(TABLES, spans=[{"low": 4, "high": 6, "state": "failed"}])
    source = FakeSource(found, [row(1, 0.0, 1.0), row(2, 1.0, 2.0, state="failed"), row(3, 1.0, 2.0)])
    graph = read_graph(found)
    at = choose(graph, Chosen(below=("split",)))
    assert tasks_in(source, found, at, graph, ("failed",)) == ["r1.2", "r1.4", "r1.5"]
    assert tasks_in(source, found, range(5), graph, ("ready",)) == ["r1.6"]


def test_programs_get_levels_and_path() -> None:
    shown = document(read([row(1, 10.0, 14.0)]))
    assert shown["levels"][0] == {
        "level": 1, "vertices": ["split", "r1.6"], "waiting": 0, "ready": 1, "running": 0, "done": 1, "failed": 0,
        "cancelled": 0,
    }  # fmt: skip
    assert shown["critical_path"] == {"vertices": ["split"], "seconds": 4.0}


def test_a_final_task_is_of_no_level_and_what_was_cancelled_did_not_fail() -> None:
    tables: list[Json] = [*TABLES, {"name": "last", "command": ["x"], "role": "final"}]
    found = run_info(tables, spans=[{"low": 2, "high": 4, "state": "cancelled"}])
    progress = read_progress(FakeSource(found, [row(1, 0.0, 1.0)]), found, None)
    assert [progress.graph.dag.vertices[at].name for at in progress.graph.levels[0]] == ["split", "r1.6"]
    assert levels(progress)[1] == {"cancelled": 2}
    last = choose(progress.graph, Chosen(vertices=("last",)))
    assert last not in (choose(progress.graph, Chosen(levels=(level,))) for level in (1, 2, 3)) and len(last) == 1
