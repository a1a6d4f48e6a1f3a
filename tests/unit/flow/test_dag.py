"""The graph of a workflow: its checks, its edges, its shape, and the submission that it becomes."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from shoal.flow.dag import Dag, Edges, Vertex, build, document, shape
from shoal.model.errors import BadInput
from shoal.model.limits import MAX_PARENTS
from shoal.wire.submission import parse_submission

TRUE = {"command": ["true"]}


def vertex(name: str, *parents: str, **more: object) -> Vertex:
    return Vertex(name, {**TRUE, **more}, parents, where=f"w.dag:{len(name)}")


def diamond() -> Dag:
    return build([vertex("a"), vertex("b", "a"), vertex("c", "a"), vertex("d", "b", "c")])


def names(dag: Dag, places: list[int]) -> list[str]:
    return [dag.vertices[at].name for at in places]


def test_levels_widths_and_critical_path_of_a_diamond() -> None:
    found = shape(diamond(), [1.0, 2.0, 5.0, 1.0])
    assert [names(diamond(), level) for level in found.levels] == [["a"], ["b", "c"], ["d"]]
    assert found.widths == [1, 2, 1]
    assert names(diamond(), found.path) == ["a", "c", "d"]
    assert found.length == 7.0


def test_without_durations_the_critical_path_counts_vertices() -> None:
    assert shape(diamond()).length == 3.0


def test_the_width_of_a_level_counts_the_tasks_of_arrays() -> None:
    dag = build([Vertex("a", TRUE), Vertex("b", TRUE, ("a",), tasks=40), vertex("c", "a")])
    assert shape(dag).widths == [1, 41]


def test_a_cycle_is_named_in_the_order_of_its_edges_with_the_place_of_one() -> None:
    with pytest.raises(BadInput) as wrong:
        build([vertex("root"), vertex("a", "root", "c"), vertex("b", "a"), vertex("c", "b")])
    assert wrong.value.code == "cycle"
    ring = wrong.value.message.partition("tasks wait for each other: ")[2].split(" -> ")
    assert ring[0] == ring[-1]
    assert set(pairwise(ring)) == {("a", "b"), ("b", "c"), ("c", "a")}
    assert wrong.value.message.startswith("w.dag:1: ")


def test_a_vertex_that_waits_for_itself_is_a_cycle() -> None:
    with pytest.raises(BadInput, match="a -> a"):
        build([vertex("a", "a")])


def test_a_long_cycle_is_shortened() -> None:
    with pytest.raises(BadInput) as wrong:
        build([vertex(f"v{at}", f"v{(at + 1) % 50}") for at in range(50)])
    assert wrong.value.message.count(" -> ") == 8


def test_an_unknown_parent_is_named_with_the_nearest_name() -> None:
    with pytest.raises(BadInput) as wrong:
        build([vertex("mProject"), vertex("mAdd", "mProjekt")])
    assert wrong.value.code == "unknown_task"
    assert "'mProjekt'" in wrong.value.message
    assert wrong.value.hint == "did you mean mProject"


def test_two_vertices_of_one_name_are_refused_with_both_places() -> None:
    with pytest.raises(BadInput) as wrong:
        build([vertex("a"), vertex("bb"), vertex("a")])
    assert wrong.value.code == "duplicate_name"
    assert "w.dag:1" in wrong.value.message
    assert "w.dag:1" in wrong.value.hint


def test_an_empty_workflow_is_refused() -> None:
    with pytest.raises(BadInput, match="no task"):
        build([])


def test_a_vertex_with_too_many_parents_is_refused() -> None:
    many = [vertex(f"v{at}") for at in range(MAX_PARENTS + 1)]
    with pytest.raises(BadInput, match="parents"):
        build([*many, vertex("last", *(one.name for one in many))])


def test_files_make_edges_wherever_they_are_named_from() -> None:
    dag = build(
        [
            Vertex("write", {**TRUE, "cwd": "sub", "outputs": ["x.txt"]}),
            Vertex("read", {**TRUE, "inputs": ["./sub/x.txt", "raw.txt"]}),
            Vertex("log", {**TRUE, "stdout": "log/a.txt"}),
            Vertex("feed", {**TRUE, "cwd": "log", "stdin": "a.txt"}),
        ],
        Edges.FILES,
    )
    assert dag.after == [[], [0], [], [2]]


def test_files_and_named_parents_add_up_and_an_edge_counts_once() -> None:
    vertices = [
        vertex("a", outputs=["x"]),
        vertex("b"),
        Vertex("c", {**TRUE, "inputs": ["x"]}, ("a",), ("b",)),
    ]
    assert build(vertices, Edges.BOTH).after[2] == [0]
    assert build(vertices, Edges.BOTH).after_any[2] == [1]
    assert build(vertices, Edges.FILES).after_any[2] == []


def test_a_file_that_its_own_writer_reads_is_no_edge() -> None:
    assert build([vertex("a", inputs=["x"], outputs=["x"])], Edges.FILES).after == [[]]


def test_two_writers_of_one_file_are_refused() -> None:
    with pytest.raises(BadInput, match="both write") as wrong:
        build([vertex("a", outputs=["x"]), vertex("b", outputs=["./x"])], Edges.FILES)
    assert wrong.value.code == "duplicate_output"


def test_the_document_is_one_submission_with_the_same_edges() -> None:
    dag = build([vertex("a"), Vertex("b", TRUE, (), ("a",)), vertex("c", "a", "b", after=["r7"])])
    submission = parse_submission(document(dag, name="w", max_running=3))
    assert [spec.after for spec in submission.specs] == [(), (), ("r7", "a", "b")]
    assert [spec.after_any for spec in submission.specs] == [(), ("a",), ()]
    assert (submission.name, submission.max_running) == ("w", 3)


def test_a_chain_of_many_vertices_needs_no_recursion() -> None:
    many = 20_000
    dag = build([vertex(f"v{at}", *([f"v{at - 1}"] if at else ())) for at in range(many)])
    assert len(shape(dag).levels) == many


def test_random_graphs_are_ordered_and_their_levels_rise_along_each_edge() -> None:
    for seed in range(50):
        rng = random.Random(seed)
        many = rng.randint(1, 60)
        rank = list(range(many))
        rng.shuffle(rank)
        vertices = [
            vertex(f"v{at}", *(f"v{p}" for p in range(many) if rank[p] < rank[at] and rng.random() < 0.1))
            for at in range(many)
        ]
        dag = build(vertices)
        place = {at: number for number, at in enumerate(dag.order)}
        found = shape(dag, [rng.random() for _ in vertices])
        level = {at: number for number, one in enumerate(found.levels) for at in one}
        assert sorted(dag.order) == list(range(many))
        for at in range(many):
            for parent in dag.parents(at):
                assert place[parent] < place[at], seed
                assert level[parent] < level[at], seed
                assert at in dag.children[parent], seed
        assert all(b in dag.children[a] for a, b in pairwise(found.path)), seed
