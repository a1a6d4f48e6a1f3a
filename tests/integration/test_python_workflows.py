"""`shoal.Workflow` in programs of their own: commands and functions, failures by name, and programs that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.test_wfformat import Here, embedded

pytestmark = pytest.mark.integration

COMMANDS = """
import shoal, sys
wf = shoal.Workflow("numbers")
split = wf.task("printf 'a b\\\\nc\\\\n' > text; echo split", outputs=["text"])
count = wf.task("until test -f go; do sleep 0.05; done; wc -w < text", inputs=[split.out("text")], name="count")
square = wf.task("echo $(({i} * {i})) | tee {i}.n", array="1-3", outputs=["{i}.n"], after=[split], name="square")
total = wf.task("cat 1.n 2.n 3.n | paste -sd+ | sed 's/+/ /g'", inputs=[square.out("{i}.n")], name="total")
going = wf.submit()
print(going.run, total.result(), flush=True)
if "wait" in sys.argv:
    going.wait()
"""

CALLS = """
import os, shoal, sys, time
def note(what):
    with open("calls", "a") as file:
        file.write(what + "\\n")
def load(n):
    note(f"load {n}")
    return list(range(n))
def add(a, b, *, wait=False):
    while wait and not os.path.exists("go"):
        time.sleep(0.05)
    note("add")
    return sum(a) + sum(b)
def tell(value):
    return f"total {value}"
wf = shoal.Workflow("calls")
a, b = wf.call(load, 3, name="three"), wf.call(load, 4, name="four")
c = wf.call(add, a, b, wait=True, name="sum")
d = wf.call(tell, c)
going = wf.submit()
a.result(), b.result()
print("loaded", flush=True)
print(going.results()["tell"], flush=True)
"""

FAILING = """
import shoal
def bang(x):
    raise ValueError(f"no {x}")
wf = shoal.Workflow()
first = wf.task("exit 3", name="first")
wf.task("true", name="second", after=[first])
third = wf.task("echo fine", name="third")
try:
    wf.run()
except shoal.WorkflowFailed as error:
    print(error)
    print(*error.failures, third.result())
wf = shoal.Workflow()
shout = wf.call(bang, 7, name="shout")
last = wf.call(len, shout, name="last")
command = wf.task("echo 12", name="command")
number = wf.call(int, command, name="number")
try:
    wf.run()
except shoal.WorkflowFailed as error:
    print(type(error.failures["shout"]).__name__, error.failures["shout"], *error.failures["shout"].__notes__)
try:
    last.result()
except shoal.TaskFailed as error:
    print(error, repr(error.__cause__))
print(number.result())
"""


def start(here: Here, program: str, *words: str) -> subprocess.Popen[str]:
    (here.folder / "program.py").write_text(program)
    argv = [sys.executable, "program.py", *words]
    return subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=here.env, cwd=here.folder
    )


def run(here: Here, program: str, *words: str) -> str:
    process = start(here, program, *words)
    told, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return told


def kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def test_a_workflow_of_commands_outlives_its_program_and_is_found_again(tmp_path: Path) -> None:
    with embedded(tmp_path) as here:
        program = start(here, COMMANDS, "wait")
        assert program.stdout is not None
        assert program.stdout.readline() == "r1 1 4 9\n"
        kill(program)
        (tmp_path / "go").touch()
        again = "import shoal; going = shoal.Workflow.attach({}); print(going.results(), going.done(), going.states()['count'])"
        for name in ('"numbers"', '"r1"'):
            assert run(here, again.format(name)) == (
                "{'printf': 'split', 'count': '3', 'square': ['1', '4', '9'], 'total': '1 4 9'}"
                " True Counter({'succeeded': 1})\n"
            )
        assert "level 1         1 done  (printf)" in here.shoal("show", "r1")


def test_calls_feed_calls_and_a_program_started_again_goes_on(tmp_path: Path) -> None:
    with embedded(tmp_path) as here:
        program = start(here, CALLS)
        assert program.stdout is not None
        assert program.stdout.readline() == "loaded\n"
        kill(program)
        (tmp_path / "go").touch()
        assert run(here, CALLS).splitlines() == ["loaded", "total 9"]
        calls = (tmp_path / "calls").read_text().split("\n")
        assert sorted(filter(None, calls)) == ["add", "load 3", "load 4"]


def test_failures_name_their_vertices_and_the_others_go_on(tmp_path: Path) -> None:
    with embedded(tmp_path) as here:
        told = run(here, FAILING).splitlines()
        assert told[0].startswith(
            "r1: 1 of 3 vertices failed (first), and 1 vertex that waited for them: first (r1.1) failed: task_error"
        )
        assert told[1:] == [
            "first fine", "ValueError no 7 raised by 'shout' of the workflow r2",
            "last never ran: shout did not succeed ValueError('no 7')", "12",
        ]  # fmt: skip


def test_ctrl_c_leaves_a_workflow_of_commands_to_the_server(tmp_path: Path) -> None:
    with embedded(tmp_path) as here:
        waiting = "import shoal\nwf = shoal.Workflow('slow')\nwf.task('touch begun; sleep 1; echo done', name='one')\nwf.run()\n"
        program = start(here, waiting)
        end = time.monotonic() + 60
        while not (tmp_path / "begun").exists():
            assert time.monotonic() < end
            time.sleep(0.02)
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=60)
        assert "detached, r1 goes on.  come back: shoal.Workflow.attach('r1')" in errors
        assert run(here, "import shoal; print(shoal.Workflow.attach('slow').results(60))") == "{'one': 'done'}\n"


CANCELLED = """
import shoal, time
def wait(n):
    while True:
        time.sleep(0.05)
for wf in (shoal.Workflow("commands"), shoal.Workflow("calls")):
    first = wf.call(wait, 1, name="first") if wf.name == "calls" else wf.task("sleep 600", name="first")
    wf.task("true", name="second", after=[first])
    going = wf.submit()
    assert not going.wait(0.5) and not going.done()
    going.cancel()
    assert going.wait(60), going.states()
    print({name: [*states] for name, states in going.states().items()})
    try:
        going.results()
    except shoal.WorkflowFailed as error:
        print(*error.failures)
"""


def test_a_cancelled_workflow_ends_whether_the_server_has_it_or_the_program_drives_it(tmp_path: Path) -> None:
    with embedded(tmp_path) as here:
        states = "{'first': ['cancelled'], 'second': ['cancelled']}"
        assert run(here, CANCELLED).splitlines() == [states, "first second"] * 2
