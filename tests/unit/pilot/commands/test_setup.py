"""The script before a command, run by each shell that may run it, and what its end means."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from shoal.pilot.commands import setup
from shoal.pilot.guard.start_progress import StartStage
from shoal.wire.messages import Report

SHELLS = [path for path in ("/bin/sh", "/bin/bash") if os.access(path, os.X_OK)]


def run(folder: Path, shell: str, lines: list[str], *argv: str) -> tuple[StartStage, subprocess.CompletedProcess[str]]:
    start_stage = StartStage(str(folder / "it's a mark"), tuple(lines))
    script = folder / "script"
    script.write_text(setup.script(start_stage, setup.run_command(start_stage.mark, argv)))
    env = {"PATH": os.environ["PATH"], "GIVEN": "1"}
    done = subprocess.run([shell, str(script)], env=env, input="typed", capture_output=True, text=True, check=False)
    return start_stage, done


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("word", ["", "a b", "it's", '"$GIVEN"', "`id`", "line\nline", "-n", "*", "\\"])
def test_each_word_reaches_the_command_as_it_is(tmp_path: Path, shell: str, word: str) -> None:
    start_stage, done = run(tmp_path, shell, ["set -- other words", "set -C"], "printf", "[%s]", word, "end")
    assert (done.stdout, done.returncode, start_stage.reached()) == (f"[{word}][end]", 0, ("command", ""))


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("lines", "where", "code"),
    [
        (["true", "false", "true"], "1", 1),
        (["exit 4"], "0", 4),
        (["f() { return 9; }", "f"], "1", 9),
        (["exec true"], "0", 0),
        (["# only words", "", "   "], "command", 0),
        (["false || true"], "command", 0),
        (["X=1; false; true"], "command", 0),
    ],
)
def test_the_first_line_that_fails_is_the_last(
    tmp_path: Path, shell: str, lines: list[str], where: str, code: int
) -> None:
    start_stage, done = run(tmp_path, shell, lines, "cat")
    assert (start_stage.reached(), done.returncode) == ((where, ""), code)
    assert done.stdout == ("typed" if where == "command" else ""), "what is typed is for the command"


GATE = StartStage("/mark", ("export A=1", "  module load gcc  "), "debian:12")
FAILED = Report("r1.1#1@1", "failed", "task_error", "exit code 125", exit_code=125)


@pytest.mark.parametrize(
    ("where", "runtime", "stderr", "message"),
    [
        ("1", "", "", "set-up failed: module load gcc (exit 125)"),
        ("7", "", "", "set-up failed: it could not begin (exit 125)"),
        ("", "", "", "set-up failed: it could not begin (exit 125)"),
        ("none", "", "", "no container runtime (apptainer, podman, docker) on this host"),
        ("image", "/usr/bin/podman", "", "container image debian:12 cannot be had with podman (exit 125)"),
        ("command", "/usr/bin/podman", "x\nError: no\n", "the container could not be started by podman (exit 125)"),
        ("command", "docker", "docker: Error response\n", "the container could not be started by docker (exit 125)"),
        ("command", "/usr/bin/podman", "an Error: of mine\n", ""),
        ("command", "apptainer", "FATAL: \n", ""),
        ("command", "", "Error: \n", ""),
    ],
)
def test_what_was_not_the_commands_doing_is_the_hosts(where: str, runtime: str, stderr: str, message: str) -> None:
    report = setup.judge(GATE, FAILED, where, runtime, stderr)
    expected = ("host_unfit", message) if message else ("task_error", "exit code 125")
    assert (report.outcome, report.cause, report.message) == ("failed", *expected)


def test_a_set_up_that_ends_well_without_the_command_has_failed() -> None:
    report = setup.judge(GATE, Report("r1.1#1@1", "succeeded", exit_code=0), "0", "", "")
    assert (report.outcome, report.cause, report.message) == (
        "failed",
        "host_unfit",
        "set-up failed: export A=1 (exit 0)",
    )


@pytest.mark.parametrize("cause", ["over_time", "out_of_memory", "cancelled", "pilot_lost"])
def test_what_we_ended_ourselves_keeps_its_cause(cause: str) -> None:
    report = Report("r1.1#1@1", "failed", cause, signal=9)
    assert setup.judge(GATE, report, "0", "", "") is report


def test_a_line_as_long_as_it_may_be_is_cut_in_the_message() -> None:
    report = setup.judge(StartStage("/mark", ("x" * 4096,)), FAILED, "0", "", "")
    assert len(report.message) < 400 and report.message.endswith("... (exit 125)")


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("debian:12", False), ("docker://debian:12", False), ("ghcr.io/a/b@sha256:12", False), ("a.sif", True),
        ("/data/tree", True), ("oras://x/y", True), ("library://x", True),
    ],
)  # fmt: skip
def test_files_are_for_apptainer_only(image: str, expected: bool) -> None:
    assert setup.is_file(image) is expected
