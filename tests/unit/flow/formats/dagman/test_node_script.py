"""The shell text of a node, run by a real shell: every row of the manual's table 2.1 [node-pass-or-fail.rst]."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from shoal.flow.formats.dagman.node_script import Job, node_script, provisioner_script, quoted
from shoal.flow.formats.dagman.nodes import Script


def run(folder: Path, text: str, **env: str) -> int:
    return subprocess.run(
        ["/bin/sh", "-c", text], cwd=folder, env={"PATH": "/usr/bin:/bin", **env}, check=False
    ).returncode


def script(code: str) -> Script | None:
    return None if code == "-" else Script(("/bin/sh", "-c", f"exit {0 if code == 'S' else 3}"), "w.dag:1")


@pytest.mark.parametrize("row", [
    "-S-S", "-F-F", "-SSS", "-SFF", "-FSS", "-FFF", "SS-S", "SF-F", "SSSS", "SSFF", "SFSS", "SFFF", "FS-F", "FSSF",
])  # fmt: skip
def test_the_table_of_the_manual(row: str, tmp_path: Path) -> None:
    pre, job, post, node = list(row)
    words = ["/bin/sh", "-c", f"touch ran; exit {0 if job == 'S' else 4}"]
    text = node_script("A", Job(words, {}), script(pre), script(post), None, 0)
    assert (run(tmp_path, text) == 0) is (node == "S")
    assert (tmp_path / "ran").exists() is (pre != "F")


@pytest.mark.parametrize("text", ["plain", "two words", "it's", '"q"', "$x `y` \\", "", "line\nline", "-n", "*"])
def test_every_argument_arrives_as_it_is(text: str, tmp_path: Path) -> None:
    job = Job(["/bin/sh", "-c", 'printf %s "$1" >found', "sh", text], {})
    assert run(tmp_path, node_script("A", job, None, None, None, 0)) == 0
    assert (tmp_path / "found").read_text() == text


def test_marks_become_variables() -> None:
    assert quoted("a b\x01retry\x01c") == "'a b'\"${retry}\"c"


def test_a_job_in_a_directory_of_its_own_brings_back_what_is_new_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "in.txt").write_text("in")
    (tmp_path / "data" / "more").mkdir()
    (tmp_path / "data" / "more" / "deep.txt").write_text("deep")
    words = ["/bin/sh", "-c", "cat in.txt deep.txt >out.txt; mkdir sub; touch sub/lost"]
    text = node_script("A", Job(words, {}, boxed=["data/in.txt", "data/more/"]), None, None, None, 0)
    assert run(tmp_path, text, TMPDIR=str(tmp_path)) == 0
    assert (tmp_path / "out.txt").read_text() == "indeep"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "out.txt"]


def test_named_outputs_come_back_where_they_are_wanted(tmp_path: Path) -> None:
    words = ["/bin/sh", "-c", "echo 1 >a; echo 2 >b; echo 3 >c"]
    job = Job(words, {}, boxed=[], returned=[("a", ""), ("b", "other")])
    assert run(tmp_path, node_script("A", job, None, None, None, 0), TMPDIR=str(tmp_path)) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "other"]


def test_a_directory_that_comes_back_again_is_filled_up_and_not_put_into_itself(tmp_path: Path) -> None:
    """users-manual/file-transfer.rst, Specifying What Files to Transfer: "the directory d1 and all its contents are specified,
    and therefore transferred", to d1, also if another attempt or another node has brought files there."""
    words = ["/bin/sh", "-c", 'mkdir -p d/deep; echo "$0" >d/deep/one; echo "$0" >"d/of-$0"', "\x01retry\x01"]
    text = node_script("A", Job(words, {}, boxed=[], returned=[("d", ""), ("d/deep", "other/")]), None, None, None, 0)
    for retry in ("0", "1"):
        assert run(tmp_path, text, TMPDIR=str(tmp_path), SHOAL_RETRY=retry) == 0
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert found == ["d/deep/one", "d/of-0", "d/of-1", "other/one"]
    assert (tmp_path / "d" / "deep" / "one").read_text() == "1\n"


def test_a_file_outside_of_the_directory_comes_back_under_its_last_name(tmp_path: Path) -> None:
    """users-manual/file-transfer.rst, Example 6: "The output file /tmp/out1 is transferred back to the job's initial working
    directory" under its last name."""
    (tmp_path / "here").mkdir()
    out = f"{tmp_path}/out1"
    job = Job(["/bin/sh", "-c", f"echo 1 >{out}"], {}, boxed=[], returned=[(out, "")])
    assert run(tmp_path / "here", node_script("A", job, None, None, None, 0), TMPDIR=str(tmp_path)) == 0
    assert (tmp_path / "here" / "out1").read_text() == "1\n"


@pytest.mark.parametrize(("code", "ended"), [(0, 125), (3, 3)])
def test_a_node_whose_named_output_was_not_written_has_failed(code: int, ended: int, tmp_path: Path) -> None:
    """users-manual/file-transfer.rst, Specifying What Files to Transfer: "When this comma separated list is defined, and any of
    the files or directories do not exist as the job exits, HTCondor considers this an error"."""
    job = Job(["/bin/sh", "-c", f"exit {code}"], {}, boxed=[], returned=[("a", "")])
    assert run(tmp_path, node_script("A", job, None, None, None, 0), TMPDIR=str(tmp_path)) == ended


@pytest.mark.parametrize("boxed", [None, []])
def test_a_node_whose_job_a_signal_ends_ends_by_it(boxed: list[str] | None, tmp_path: Path) -> None:
    """automated-workflows/dagman-scripts.rst, Special script argument macros: "A job that dies due to a signal is reported with
    a $RETURN value representing the additive inverse of the signal number"; ABORT-DAG-ON and UNLESS-EXIT compare with it."""
    job = Job(["/bin/sh", "-c", "kill -9 $$"], {}, boxed=boxed)
    assert run(tmp_path, node_script("A", job, None, None, None, 0), TMPDIR=str(tmp_path)) == -9
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [128, 147, 150, 193, 255])
def test_an_exit_code_that_no_signal_has_stays_one(code: int, tmp_path: Path) -> None:
    job = Job(["/bin/sh", "-c", f"exit {code}"], {})
    assert run(tmp_path, node_script("A", job, None, None, None, 0)) == code


def test_an_exit_code_that_the_workflow_names_is_no_signal(tmp_path: Path) -> None:
    job = Job(["/bin/sh", "-c", "exit 139"], {})
    assert run(tmp_path, node_script("A", job, None, None, None, 0, (139, 3))) == 139


def test_a_script_that_a_signal_ends_says_how_its_node_ended(tmp_path: Path) -> None:
    killed = Script(("/bin/sh", "-c", "kill -15 $$"), "w.dag:1")
    assert run(tmp_path, node_script("A", Job(["/bin/true"], {}), killed, None, None, 0)) == -15
    assert run(tmp_path, node_script("A", Job(["/bin/true"], {}), None, killed, None, 0)) == -15


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("folder", ["", "below"])
def test_a_directory_of_its_own_does_not_outlive_a_job_that_is_stopped(
    number: int, folder: str, tmp_path: Path
) -> None:
    (tmp_path / "below").mkdir()
    post = Script(("/bin/sh", "-c", "touch after"), "w.dag:1")
    words = ["/bin/sh", "-c", f"touch {tmp_path}/begun; exec sleep 600"]
    text = node_script("A", Job(words, {}, boxed=[], folder=folder), None, post, None, 0)
    env = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    assert _stopped(text, tmp_path, env, number) == -number
    assert sorted(path.name for path in tmp_path.iterdir()) == ["begun", "below"]


def test_a_provisioner_that_is_stopped_says_so_and_leaves_no_tools(tmp_path: Path) -> None:
    text = provisioner_script(f"touch {tmp_path}/begun; sleep 600")
    env = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "SHOAL_RUN": "r1"}
    assert _stopped(text, tmp_path, env, signal.SIGTERM) != 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [".shoal-r1-ready-ended", "begun"]


def _stopped(text: str, folder: Path, env: dict[str, str], number: int) -> int:
    """How a text ends whose processes get a signal when it has made the file `begun`."""
    with subprocess.Popen(["/bin/sh", "-c", text], cwd=folder, env=env, start_new_session=True) as process:
        while not (folder / "begun").exists():
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, number)
        return process.wait(60)
