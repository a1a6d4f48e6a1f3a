"""Nodes as vertices: which task fields they get, and when a shell text is needed."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.flow.dag import build, document
from shoal.model.errors import BadInput
from shoal.wire.submission import parse_submission
from tests.unit.flow.formats.dagman.reading import vertices


def table(dag: str, **files: str) -> dict[str, Any]:
    """The table of the first vertex, which passes the checks of all submissions."""
    found = vertices(dag, frozenset(), **files)
    parse_submission(document(build(found.vertices)))
    return dict(found.vertices[0].table)


def test_a_plain_node_is_a_plain_command() -> None:
    assert table('JOB A a.sub\nVARS A x="1"\n') == {"command": ["/bin/echo", "A", "1"]}


def test_commands_of_the_description_become_fields() -> None:
    sub = """executable = sim
arguments = -n 5
environment = "A=1 B='two words'"
input = in.txt
output = out/$(Cluster).txt
error = err.txt
request_cpus = 4
request_memory = 2048
request_disk = 3 GB
request_gpus = 1
allowed_execute_duration = 60
max_retries = 3
priority = 7
container_image = image.sif
+Extra = "no"
queue
"""
    assert table("JOB A a.sub\n", a_sub=sub) == {
        "command": ["sim", "-n", "5"], "env": {"A": "1", "B": "two words"}, "stdin": "in.txt", "stdout": "out/1.txt",
        "stderr": "err.txt", "cores": 4, "memory": "2048M", "disk": "3GB", "gpus": 1, "time": 60, "retries": 3, "priority": 7,
        "container": "image.sif",
    }  # fmt: skip


def test_commands_of_the_dag_file_override_those_of_the_description() -> None:
    sub = "executable = x\npriority = 1\nmax_retries = 9\nqueue\n"
    found = table("JOB A a.sub\nPRIORITY A 5\nRETRY A 2 UNLESS-EXIT 4\nABORT-DAG-ON A 9 RETURN 1\n", a_sub=sub)
    assert found == {"command": ["x"], "priority": 5, "retries": 2, "unless_exit": [4], "abort_on": [9]}


def test_files_that_several_nodes_write_are_redirected_to_inside() -> None:
    found = vertices("JOB A a.sub\nJOB B a.sub\n", frozenset(), a_sub="executable=x\noutput=one.txt\nqueue\n").vertices
    assert all("stdout" not in vertex.table and "one.txt" in vertex.table["shell"] for vertex in found)
    parse_submission(document(build(found)))


def test_a_late_macro_is_filled_in_by_the_shell() -> None:
    text = table("JOB A a.sub\n", a_sub="executable = x\narguments = try-$(RETRY)\noutput=o.$(RETRY)\nqueue\n")["shell"]
    assert 'call x try-"${retry}"' in text
    assert '>o."${retry}"' in text


def test_a_program_beside_the_file_is_run_from_there() -> None:
    files = {"a_sub": "executable = sim.sh\nqueue\n", "sim_sh": ""}
    assert table("JOB A a.sub\n", **files)["command"] == ["./sim.sh"]
    assert table("JOB A a.sub\n", a_sub=files["a_sub"])["command"] == ["sim.sh"]


def test_a_program_is_seen_from_where_the_run_is_submitted_whatever_its_initialdir() -> None:
    """users-manual/file-transfer.rst, File Paths for File Transfer: "The expected location of the executable is not affected by
    the initialdir command." """
    files = {"a_sub": "executable = prog.sh\ninitialdir = $(D)\nqueue\n", "prog_sh": ""}
    assert table('JOB A a.sub\nVARS A D="/data/a/run1"\n', **files)["command"] == ["/data/a/prog.sh"]
    assert table('JOB A a.sub\nVARS A D="run1"\n', **files)["command"] == ["../prog.sh"]
    below = {"a_sub": "executable = bin/prog\ninitialdir = /data/p\nqueue\n"}
    assert table("JOB A a.sub\n", **below)["command"] == ["/data/a/bin/prog"]
    found = vertices("JOB A a.sub DIR sub\n", frozenset(), **{"sub/a_sub": below["a_sub"]}).vertices
    assert found[0].table["command"] == ["/data/a/sub/bin/prog"]


def test_a_directory_is_where_the_job_runs_and_its_files_are() -> None:
    sub = "executable = /bin/x\ninitialdir = sub\noutput = o.txt\ninput = i.txt\nqueue\n"
    assert table("JOB A a.sub\n", a_sub=sub) == {
        "command": ["/bin/x"], "cwd": "sub", "stdin": "i.txt", "stdout": "sub/o.txt",
    }  # fmt: skip


def test_scripts_run_where_the_workflow_does_or_the_node_and_not_in_the_initialdir_of_its_job() -> None:
    """automated-workflows/dagman-introduction.rst, JOB: DIR is "a working directory for this node, from which the HTCondor job
    will be submitted, and from which a PRE and/or POST script will be run"; `initialdir` is a command of the job's alone."""
    sub = "executable = /bin/x\ninitialdir = run1\ninput = i\noutput = o\ntransfer_input_files = j\nqueue\n"
    found = table("JOB A a.sub\nSCRIPT PRE A p\n", a_sub=sub)
    assert (found.get("cwd"), found["inputs"]) == (None, ["run1/j"])
    assert "call p </dev/null; pre=$?" in found["shell"]
    assert "cd -- run1 || exit 125\n( call /bin/x) <i >o; result=$?" in found["shell"]
    below = vertices("JOB A a.sub DIR sub\nSCRIPT POST A p\n", frozenset(), **{"sub/a_sub": sub}).vertices[0].table
    assert below["cwd"] == "sub"
    assert "cd -- run1 ||" in below["shell"]
    assert table("JOB A a.sub\n", a_sub=sub)["cwd"] == "run1"


def test_a_directory_that_is_known_when_an_attempt_begins_is_entered_then() -> None:
    sub = "executable = /bin/x\ninitialdir = try-$(RETRY)\noutput = o\ntransfer_input_files = j\nqueue\n"
    found = table("JOB A a.sub\n", a_sub=sub)
    assert found.keys() == {"shell"}
    assert 'cd -- try-"${retry}" || exit 125\n( call /bin/x) </dev/null >o;' in found["shell"]


def test_several_jobs_of_a_node_are_several_vertices_and_one_for_all_of_them() -> None:
    dag = "JOB A a.sub\nJOB B b.sub\nPARENT A CHILD B\n"
    found = vertices(
        dag, frozenset(), a_sub="executable=x\narguments=$(Process)\nqueue 3\n", b_sub="executable=y\nqueue\n"
    )
    assert [vertex.name for vertex in found.vertices] == ["A.0", "A.1", "A.2", "A", "B"]
    assert found.vertices[3].table == {"noop": True}
    assert (found.vertices[3].parents, found.vertices[4].parents) == (("A.0", "A.1", "A.2"), ("A",))
    assert found.nodes["A"] == ["A.0", "A.1", "A.2"]


def test_a_node_with_scripts_queues_one_job() -> None:
    with pytest.raises(BadInput, match="has scripts and queues 2 jobs"):
        vertices("JOB A a.sub\nSCRIPT PRE A x\n", frozenset(), a_sub="executable=x\nqueue 2\n")


def test_nobody_waits_for_what_is_done() -> None:
    dag = "JOB A a.sub\nJOB B a.sub DONE\nJOB C a.sub\nPARENT A B CHILD C\n"
    assert vertices(dag).vertices[2].parents == ("A",)
    found = vertices(dag, frozenset({"A"})).vertices
    assert [vertex.table for vertex in found[:2]] == [{"noop": True}] * 2
    assert found[2].parents == ()


def test_a_rescue_file_of_another_workflow_is_refused() -> None:
    with pytest.raises(BadInput, match="names 'X'"):
        vertices("JOB A a.sub\n", frozenset({"X"}))


def test_what_is_transferred_from_elsewhere_gives_the_job_a_directory_of_its_own() -> None:
    sub = "executable = x\ntransfer_input_files = data/a.txt, b.txt\nqueue\n"
    found = table("JOB A a.sub\n", a_sub=sub)
    assert found["inputs"] == ["data/a.txt", "b.txt"]
    assert "mktemp -d" in found["shell"]
    plain = table(
        "JOB A a.sub\n", a_sub="executable = x\ntransfer_input_files = b.txt\ntransfer_output_files = o\nqueue\n"
    )
    assert plain == {"command": ["x"], "inputs": ["b.txt"], "outputs": ["o"]}


def test_final_and_service_nodes_have_these_roles() -> None:
    found = vertices("JOB A a.sub\nFINAL F a.sub\nSERVICE S a.sub\n")
    assert [vertex.table.get("role", "") for vertex in found.vertices] == ["", "final", "service"]
    assert found.final == "F" and set(found.asides) == {"S"}


def test_a_sub_workflow_is_a_task_that_runs_it() -> None:
    assert table("SUBDAG EXTERNAL A b.dag DIR sub\n") == {"command": ["shoal", "dag", "b.dag"], "cwd": "sub"}


def test_everything_waits_until_the_provisioner_is_ready() -> None:
    found = vertices("JOB A a.sub\nJOB B a.sub\nPARENT A CHILD B\nPROVISIONER P a.sub\n")
    by_name = {vertex.name: vertex for vertex in found.vertices}
    assert by_name["A"].parents == ("P.gate",)
    assert by_name["B"].parents == ("A",)
    assert "condor_chirp" in by_name["P"].table["shell"]


@pytest.mark.parametrize(
    ("sub", "words"),
    [
        ("queue\n", "no executable"),
        ("executable = x\nuniverse = vm\nqueue\n", "universe vm"),
        ("executable = x\nrequest_cpus = many\nqueue\n", "is no number"),
        ("executable = x\nrequest_memory = 2 boxes\nqueue\n", "is no size"),
    ],
)
def test_what_cannot_run_is_refused(sub: str, words: str) -> None:
    with pytest.raises(BadInput) as wrong:
        vertices("JOB A a.sub\n", frozenset(), a_sub=sub)
    assert words in wrong.value.message.replace("'", "")


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ('arguments = "a"b"', "a.sub:2: a double quote stands alone"),
        ("request_memory = abc", "a.sub:2: request_memory"),
        ("request_cpus = -1", "a.sub:2: request_cpus"),
        ("request_cpus = $(x)", "a.sub:2: request_cpus"),
        ("environment = 1x=2", "a.sub:2: 1x=2"),
        ("universe = vm", "a.sub:2: universe vm"),
        ("arguments = $$(Memory)", "a.sub:2: $$(Memory)"),
    ],
)
def test_an_error_of_a_description_has_its_line(line: str, where: str) -> None:
    with pytest.raises(BadInput) as wrong:
        vertices('JOB A a.sub\nVARS A x="many"\n', frozenset(), a_sub=f"executable = x\n{line}\nqueue\n")
    assert wrong.value.message.replace("'", "").startswith(where)


def test_what_variables_of_a_node_or_items_of_a_queue_say_wrong_is_placed_there() -> None:
    with pytest.raises(BadInput, match=r"^w\.dag:1: request_cpus"):
        vertices('JOB A a.sub\nVARS A request_cpus="none"\n', frozenset(), a_sub="executable = x\nqueue\n")
    with pytest.raises(BadInput, match=r"^a\.sub:2: request_cpus"):
        vertices("JOB A a.sub\n", frozenset(), a_sub="executable = x\nqueue request_cpus in (1 none)\n")


def test_each_job_of_a_queue_has_what_its_item_asks_for() -> None:
    found = vertices("JOB A a.sub\n", frozenset(), a_sub="executable = x\nqueue request_cpus in (1 4)\n").vertices
    assert [vertex.table.get("cores") for vertex in found] == [1, 4, None]


def test_a_file_that_is_named_twice_counts_once() -> None:
    sub = "executable = x\ntransfer_input_files = b,b\ntransfer_output_files = a, a\nqueue\n"
    found = table("JOB A a.sub\n", a_sub=sub)
    assert (found["inputs"], found["outputs"]) == (["b"], ["a"])


def test_outputs_of_a_job_that_transfers_nothing_may_have_any_names() -> None:
    sub = "executable = x\nshould_transfer_files = NO\ntransfer_output_files = ./a, d/, d, ../b, /c, .e/f\nqueue\n"
    assert table("JOB A a.sub\n", a_sub=sub) == {"command": ["x"], "outputs": ["a", "d", ".e/f"]}


def test_a_file_that_several_nodes_write_is_known_by_any_of_its_names() -> None:
    subs = {f"{name}_sub": f"executable=x\noutput={file}\nqueue\n" for name, file in (("a", "./o"), ("b", "d/../o"))}
    found = vertices("JOB A a.sub\nJOB B b.sub\n", frozenset(), **subs).vertices
    assert [vertex.table.keys() for vertex in found] == [{"shell"}, {"shell"}]


def test_what_is_not_carried_over_is_said_once() -> None:
    found = vertices(
        "JOB A a.sub\nJOB B a.sub\n", frozenset(), a_sub="executable=x\nrequirements = Memory > 5\nqueue\n"
    )
    assert len(found.notices) == 1 and "requirements" in found.notices[0]
