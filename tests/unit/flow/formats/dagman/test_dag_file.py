"""`.dag` files as they are read: commands, the order in which they count, splices, and one clear error for what is wrong."""

from __future__ import annotations

import pytest

from shoal.model.errors import BadInput
from tests.unit.flow.formats.dagman.reading import read, vertices

AB = "JOB A a.sub\nJOB B a.sub\n"


def refused(dag: str, **files: str) -> BadInput:
    with pytest.raises(BadInput) as wrong:
        vertices(dag, frozenset(), **files)
    return wrong.value


def test_what_is_said_about_a_node_may_come_before_it() -> None:
    assert read("PRIORITY A 5\nRETRY A 2 UNLESS-EXIT 7\nJOB A a.sub\n").nodes["A"].priority == 5


def test_commands_and_options_are_read_in_any_case() -> None:
    node = read("job A a.sub dir sub noop\nretry A 1\nparent A child B\nJob B a.sub\n").nodes["A"]
    assert (node.folder, node.is_noop, node.retries) == ("sub", True, 1)


def test_lines_may_be_continued_and_commented_out() -> None:
    found = read("# nothing\nJOB A \\\n  a.sub\n\nJOB B a.sub\nPARENT A \\\nCHILD B\n")
    assert [edge.children for edge in found.edges] == [("B",)]


def test_of_several_lines_about_one_thing_the_last_counts() -> None:
    nodes = read(f'{AB}VARS A name="A"\nVARS ALL_NODES name="X"\nVARS A name="foo"\n').nodes
    assert [node.before["name"] for node in nodes.values()] == ["foo", "X"]


def test_all_nodes_is_not_about_the_final_one() -> None:
    nodes = read("JOB A a.sub\nFINAL F a.sub\nRETRY all_nodes 3\n").nodes
    assert [node.retries for node in nodes.values()] == [3, 0]


def test_nodes_of_splices_have_their_name_before_them_and_edges_their_ends() -> None:
    inner = "JOB X a.sub\nJOB Y a.sub\nJOB Z a.sub\nPARENT X CHILD Y Z\n"
    found = read("JOB A a.sub\nSPLICE S s.dag\nPARENT A CHILD S\nJOB B a.sub\nPARENT S CHILD B\n", s_dag=inner)
    assert list(found.nodes) == ["A", "S+X", "S+Y", "S+Z", "B"]
    edges = {(edge.parents, edge.children) for edge in found.edges}
    assert {(("A",), ("S+X",)), (("S+Y", "S+Z"), ("B",))} <= edges


def test_categories_of_splices_are_their_own_unless_they_begin_with_plus() -> None:
    inner = "JOB X a.sub\nCATEGORY X c\nMAXJOBS c 5\nJOB Y a.sub\nCATEGORY Y +g\nMAXJOBS +g 1\n"
    found = read("SPLICE S s.dag\nMAXJOBS S+c 10\nMAXJOBS +g 2\n", s_dag=inner)
    assert [node.category for node in found.nodes.values()] == ["S+c", "+g"]
    assert found.limits == {"S+c": 10, "+g": 2}


def test_a_splice_in_a_directory_is_read_and_runs_there() -> None:
    files = {"sub/s.dag": "JOB X x.sub DIR deep\n", "sub/deep/x.sub": "executable=/bin/true\nqueue\n"}
    from shoal.flow.formats.dagman.dag_file import read_dag
    from shoal.flow.formats.dagman.translate import translate
    from tests.unit.flow.formats.dagman.reading import around

    surroundings = around({**files, "w.dag": "SPLICE S s.dag DIR sub\n"})
    (vertex,) = translate(read_dag("w.dag", surroundings), surroundings).vertices
    assert vertex.table["cwd"] == "sub/deep"


def test_lines_without_effect_are_noticed_with_the_reason() -> None:
    found = read(f"{AB}CONFIG c.conf\nDOT d.dot UPDATE\nSET_JOB_ATTR x = 1\nSCRIPT HOLD A h.sh\n")
    assert [notice.split(": ")[1] for notice in found.notices] == ["CONFIG", "DOT", "SET_JOB_ATTR", "SCRIPT HOLD"]


def test_many_parents_of_many_children_meet_in_a_vertex_that_does_nothing() -> None:
    names = [f"n{at}" for at in range(60)]
    jobs = "".join(f"JOB {name} a.sub\n" for name in names)
    found = vertices(f"{jobs}PARENT {' '.join(names[:30])} CHILD {' '.join(names[30:])}\n").vertices
    join = found[-1]
    assert (join.table, len(join.parents)) == ({"noop": True}, 30)
    assert {vertex.parents for vertex in found[30:60]} == {(join.name,)}


@pytest.mark.parametrize(
    ("dag", "place", "words"),
    [
        ("JOB A a.sub\nJBO B a.sub\n", 2, "there is no command 'JBO'"),
        ("JOB A\n", 1, "needs more words"),
        ("JOB A a.sub DONE NOOB\n", 1, "'NOOB' does not go here"),
        ("JOB A.B a.sub\n", 1, "no name of a node"),
        ("JOB child a.sub\n", 1, "no name of a node"),
        ("JOB A a.sub\nJOB A a.sub\n", 2, "is there already"),
        ("JOB A a.sub\nPARENT A CHILD C\n", 2, "there is no node 'C'"),
        ("JOB A a.sub\nPARENT A\n", 2, "CHILD"),
        ("JOB A a.sub\nPARENT A CHILD\n", 2, "CHILD"),
        ("JOB A a.sub\nRETRY A -1\n", 2, "out of range"),
        ("JOB A a.sub\nRETRY A 1 UNLESS 2\n", 2, "does not go here"),
        ("JOB A a.sub\nVARS A x=1\n", 2, "is no macro"),
        ('JOB A a.sub\nVARS A x="1\n', 2, "is no macro"),
        ('JOB A a.sub\nVARS A queuex="1"\n', 2, "no macro is named"),
        ("JOB A a.sub\nSCRIPT BEFORE A x\n", 2, "no time for a script"),
        ("JOB A a.sub\nSCRIPT PRE A\n", 2, "needs more words"),
        ("JOB A a.sub\nABORT-DAG-ON A 300\n", 2, "out of range"),
        ("JOB A a.sub\nPRIORITY A high\n", 2, "out of range"),
        ("JOB A a.sub\nCATEGORY A\n", 2, "needs more words"),
        ("FINAL F a.sub\nRETRY F 2\n", 2, "does not apply to the FINAL node"),
        ("FINAL F a.sub\nFINAL G a.sub\n", 2, "two FINAL nodes"),
        ("FINAL F a.sub DONE\n", 1, "'DONE' does not go here"),
        ("JOB A a.sub\nFINAL F a.sub\nPARENT A CHILD F\n", 3, "FINAL node"),
        ("JOB A {\n executable = x\n", 1, "is not closed"),
        ("SUBMIT-DESCRIPTION d {\n}\nSUBMIT-DESCRIPTION d {\n}\n", 3, "two descriptions"),
        ("SUBDAG A b.dag\n", 1, "EXTERNAL"),
        ("SPLICE S w.dag\n", 1, "is inside itself"),
        ("INCLUDE w.dag\n", 1, "is inside itself"),
        ("INCLUDE none.dag\n", 1, "cannot read none.dag"),
        ("JOB A none.sub\n", 1, "cannot read none.sub"),
        ("JOB A a.sub\nREJECT\n", 2, "REJECT"),
        ("JOB A a.sub\nCONNECT S T\n", 2, "is no splice"),
        ("JOB A a.sub\nPIN_IN A 0\n", 2, "out of range"),
        ("JOB A a.sub\nENV PUT x\n", 2, "ENV"),
        ("JOB A a.sub\nMAXJOBS c\n", 2, "needs more words"),
        ("JOB A a.sub\nDONE ALL_NODES\n", 2, "names one node"),
    ],
)  # fmt: skip
def test_wrong_lines_are_refused_with_their_place(dag: str, place: int, words: str) -> None:
    error = refused(dag)
    assert error.message.startswith(f"w.dag:{place}: "), error.message
    assert words in error.line
    assert error.hint or "is no" in error.message or "FINAL" in error.message


def test_a_cycle_of_nodes_is_found_before_anything_is_submitted() -> None:
    from shoal.flow.dag import build

    found = vertices(f"{AB}PARENT A CHILD B\nPARENT B CHILD A\n")
    with pytest.raises(BadInput, match=r"^w\.dag:[12]: tasks wait for each other: (A -> B -> A|B -> A -> B)"):
        build(found.vertices)


@pytest.mark.parametrize(
    ("pins", "words"),
    [
        ("PIN_OUT X 2\n", "has the PIN_OUTs"),
        ("PIN_OUT X 1\nPIN_OUT X 2\n", "has 2 PIN_OUTs"),
    ],
)
def test_pins_that_do_not_fit_are_refused(pins: str, words: str) -> None:
    top = "SPLICE S s.dag\nSPLICE T t.dag\nCONNECT S T\n"
    assert words in refused(top, s_dag=f"JOB X a.sub\n{pins}", t_dag="JOB Y a.sub\nPIN_IN Y 1\n").message


def test_an_initial_node_without_a_pin_is_refused() -> None:
    top = "SPLICE S s.dag\nSPLICE T t.dag\nCONNECT S T\n"
    inner = "JOB Y a.sub\nPIN_IN Y 1\nJOB Z a.sub\n"
    assert "has no PIN_IN" in refused(top, s_dag="JOB X a.sub\nPIN_OUT X 1\n", t_dag=inner).message


def test_a_file_without_nodes_is_refused() -> None:
    assert "no node in it" in refused("# nothing\n").message
