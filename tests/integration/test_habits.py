"""Habits of others, and the display: what people from Slurm, GNU parallel and shells type, on real servers and pilots."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_command_line import SHOAL, Terminal, fresh, terminal

__all__ = ["fresh", "terminal"]  # fixtures
pytestmark = pytest.mark.integration
SOON = 60.0
HOLD = "while [ ! -e {gate} ]; do sleep 0.02; done"


def until(condition: Callable[[], Any], within: float = SOON) -> Any:
    end = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def write_ledger(gate: str, word: str) -> list[str]:
    """A command that waits for a file and then writes a word into the ledger."""
    return ["sh", "-c", f"{HOLD.format(gate=gate)}; echo {word} >> ledger"]


# --- dependencies between runs
def test_runs_wait_for_each_other_also_over_the_death_of_the_server(fresh: Terminal) -> None:
    first = fresh.submit("--name", "make", "--", *write_ledger("gate", "made"))
    second = fresh.submit("--after", "make", "--", "sh", "-c", "echo used >> ledger")
    third = fresh.submit("--after-any", f"{first}.1", "--", "sh", "-c", "echo ended >> ledger")
    os.kill(fresh.server_pid(), signal.SIGKILL)
    waits = fresh.good("why", second).out
    assert f"it waits for {first} make (0 of 1 done)" in waits and "no server is running" in waits
    assert not (fresh.cwd / "ledger").exists()
    (fresh.cwd / "gate").touch()
    fresh.good("wait", "-q", second, third)
    made, *rest = (fresh.cwd / "ledger").read_text(encoding="utf-8").split()
    assert (made, sorted(rest)) == ("made", ["ended", "used"])


def test_what_needs_a_failed_run_never_starts_and_says_why(terminal: Terminal) -> None:
    failed = terminal.submit("--", "sh", "-c", f"{HOLD.format(gate='fail')}; exit 3")
    needs = terminal.submit("--after", failed, "--", "touch", "started")
    (terminal.cwd / "fail").touch()
    said = terminal.run("wait", needs)
    assert said.status == 1
    assert said.err.splitlines()[-1] == f"shoal: {needs}.1 failed: {failed} did not succeed"
    row = json.loads(terminal.good("results", needs, "--json").out)
    assert (row["state"], row["cause"]) == ("failed", "dependency_failed")
    late = terminal.run("run", "--after", f"{failed}.1", "--", "touch", "started")  # it ended before this came
    assert (late.status, (terminal.cwd / "started").exists()) == (125, False)
    retried = terminal.run("retry", needs)
    hint = f"retry that first: `shoal retry {failed}`"
    assert (retried.status, retried.err) == (3, f"shoal: {failed}, which it waits for, did not succeed ({hint})\n")
    terminal.good("run", "-q", "--after-any", failed, "--", "touch", "started")
    assert (terminal.cwd / "started").exists()


# --- names, values, scripts
def test_a_run_is_addressed_by_its_name(terminal: Terminal) -> None:
    old = terminal.submit("--name", "twins", "--", "echo", "old")
    new = terminal.submit("--name", "twins", "x=1..2", "--", "echo", "new{x}")
    said = terminal.good("wait", "-q", "twins", old)
    assert said.err.splitlines()[0] == f"shoal: twins is {new}, the latest of 2 runs with this name"
    assert terminal.good("logs", "twins.2").out == "new2\n"
    assert terminal.good("show", "twins", "--json").json()["run"] == new
    code = "import shoal; print([row['result'] for row in shoal.results('twins')])"
    found = subprocess.run(
        [sys.executable, "-c", code], env=terminal.env, capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout == "['new1', 'new2']\n"


def test_values_come_from_files_patterns_and_standard_input(terminal: Terminal) -> None:
    data = terminal.cwd / "data"
    data.mkdir()
    for name in ("a.csv", "b.tar.gz"):
        (data / name).write_text(name, encoding="utf-8")
    (terminal.cwd / "list").write_text("one two\n007\n", encoding="utf-8")
    words = ["sweep", "-q", "f=data/*", "x=@list", "n=-", "--", "sh", "-c", 'echo "$@" >> "{f.stem}.out"', "sh",
             "{f.name}", "{f.suffix}", "{f.parent}", "{x}", "{n}"]  # fmt: skip
    done = subprocess.run(
        [*SHOAL, *words], cwd=terminal.cwd, env=terminal.env, input="5\n", text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    lines = {file.name: sorted(file.read_text(encoding="utf-8").splitlines()) for file in terminal.cwd.glob("*.out")}
    assert lines == {
        "a.out": ["a.csv .csv data 007 5", "a.csv .csv data one two 5"],
        "b.tar.out": ["b.tar.gz .gz data 007 5", "b.tar.gz .gz data one two 5"],
    }


def test_a_script_brings_its_options(terminal: Terminal) -> None:
    script = terminal.cwd / "job.py"
    script.write_text(
        f"#!{sys.executable}\n#SHOAL --cores 2 --env WORD='a b'\n#SHOAL --name from-script\n"
        "import os, sys\nprint(os.environ['OMP_NUM_THREADS'], os.environ['WORD'], *sys.argv[1:])\n",
        encoding="utf-8",
    )
    assert terminal.good("run", "-q", "job.py", "--name", "mine").out == "2 a b --name mine\n"
    assert terminal.good("run", "-q", "--cores", "1", "--name", "other", "job.py").out == "1 a b\n"
    assert terminal.good("ps", "--name", "from-script", "--json").json()["runs"][0]["state"] == "succeeded"


def test_only_so_many_tasks_run_at_once(terminal: Terminal) -> None:
    command = ["sh", "-c", "echo begin >> one; sleep 0.05; echo end >> one"]
    terminal.good("sweep", "-q", "-j", "1", "x=1..6", "--", *command)
    assert (terminal.cwd / "one").read_text(encoding="utf-8").split() == ["begin", "end"] * 6


# --- display
def test_ps_counts_what_really_runs(fresh: Terminal) -> None:
    run = fresh.submit("x=1..40", "--", "sh", "-c", f"echo {{x}} >> ledger; {HOLD.format(gate='go')}")

    def row() -> dict[str, Any]:
        found: dict[str, Any] = fresh.good("ps", "--json").json()["runs"][0]
        return found

    slots = until(lambda: fresh.good("server", "status", "--json").json()["slots"])
    until(lambda: row()["counts"]["running"] == slots)
    found = row()
    started = len((fresh.cwd / "ledger").read_text(encoding="utf-8").split())
    assert (found["run"], found["state"], found["counts"]["running"]) == (run, "running", started)
    shown = fresh.good("ps").out.splitlines()
    assert shown[0].split()[5] == "running" and shown[1].split()[5] == str(slots)
    (fresh.cwd / "go").touch()


def test_the_time_that_is_left_is_seen_on_terminals_of_any_width(terminal: Terminal) -> None:
    run = terminal.submit(
        "--name", "narrow", "x=1..3", "--", "sh", "-c", f"[ {{x}} = 1 ] || {HOLD.format(gate='wide')}"
    )
    until(lambda: terminal.good("show", run, "--json").json()["counts"].get("succeeded"))
    lines = {columns: _line_on_terminal(terminal, columns, "wait", run) for columns in (80, 60, 40)}
    (terminal.cwd / "wide").touch()
    for columns, line in lines.items():
        assert re.match(rf"{run}\b.*1/3 .*about \S+ left", line) and len(line) <= columns, (columns, line)
    assert "running 2" in lines[80] and "narrow" in lines[80]
    assert "pilot" not in lines[60] and "#" not in lines[40]


def _line_on_terminal(terminal: Terminal, columns: int, *words: str) -> str:
    """The first moving line that tells how long it will take, on a terminal of this width."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {name: value for name, value in terminal.env.items() if name not in ("COLUMNS", "LINES")} | {"TERM": "xterm"}
    with subprocess.Popen(
        [*SHOAL, *words], cwd=terminal.cwd, env=env, stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs
    ) as child:
        os.close(theirs)
        seen = b""
        end = time.monotonic() + SOON
        while b" left" not in seen and time.monotonic() < end:
            if select.select([ours], [], [], 1.0)[0]:
                seen += os.read(ours, 4096)
        child.kill()
    os.close(ours)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode())
    return next((line for line in re.split(r"[\r\n]+", plain) if " left" in line), plain)


def test_a_dry_run_of_resume_says_what_would_be_reused(terminal: Terminal) -> None:
    command = ["--", "sh", "-c", "test {x} -lt 3"]
    run = terminal.run("sweep", "--json", "x=1..3", *command).json()["run"]
    said = terminal.good("sweep", "--resume", "--dry-run", "x=1..4", *command).out.splitlines()
    assert said[-4:] == [
        "--resume: 2 of 4 tasks would not run again: an earlier equal run has the results",
        f"  taken over: x=1 from {run}.1; x=2 from {run}.2",
        f"  1 task runs again: failed in {run}",
        "  1 task runs: not run before",
    ]
    assert terminal.good("ps", "--limit", "1", "--json").json()["runs"][0]["run"] == run  # nothing was submitted


def test_json_has_states_whole_ids_and_iso_times(terminal: Terminal) -> None:
    run = terminal.run("run", "--json", "--", "true").json()
    moment = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
    listed = terminal.good("ps", "--limit", "1", "--json").json()["runs"][0]
    (task,) = terminal.good("ps", run["run"], "--state", "succeeded", "--json").json()["tasks"]
    shown = terminal.good("show", f"{run['run']}.1", "--json").json()
    events = [json.loads(line) for line in terminal.good("events", "--run", run["run"], "--json").out.splitlines()]
    for found in (run, listed, task, shown, shown["task"], shown["run"]):
        assert found["state"] == "succeeded"
    for found in (listed, task, shown["task"], shown["run"], *events):
        assert found["run"] == run["run"]
    assert task["task"] == shown["id"] == shown["task"]["task"] == f"{run['run']}.1"
    assert {event["task"] for event in events if event["kind"] == "task_finished"} == {f"{run['run']}.1"}
    for found in (listed["created"], listed["finished"], task["started"], task["ended"], events[0]["time"]):
        assert moment.fullmatch(found)


def test_a_cancelled_run_of_an_executor_is_cancelled(terminal: Terminal) -> None:
    script = """
import time, shoal
from concurrent.futures import BrokenExecutor, CancelledError
with shoal.Executor(name="calls", attach=False) as pool:
    future = pool.submit(time.sleep, 600)
    try:
        future.result()
    except CancelledError:
        print("cancelled")
    try:
        pool.submit(abs, 1).result()
    except BrokenExecutor as error:
        print(error)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], env=terminal.env, cwd=terminal.cwd, stdout=subprocess.PIPE, text=True
    ) as child:
        until(lambda: terminal.run("ps", "calls", "--json", "--state", "running").out.count('"task"'))
        run = terminal.good("show", "calls", "--json").json()["run"]
        terminal.good("cancel", "calls")
        assert terminal.good("show", run, "--json").json()["state"] == "cancelled"
        out, _ = child.communicate(timeout=60)
    assert out.splitlines() == ["cancelled", f"{run} was cancelled, so that it takes no more calls"]
    listed = next(row for row in terminal.good("ps", "--json").json()["runs"] if row["run"] == run)
    assert (listed["state"], listed["counts"]["live"]) == ("cancelled", 0)


def test_a_browser_gets_a_line_and_nothing_that_is_secret(terminal: Terminal) -> None:
    terminal.good("run", "-q", "--", "true")
    answers = {}
    for path in ("/", "/v1/runs"):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(terminal.state / "sock"))
            connection = http.client.HTTPConnection("localhost")
            connection.sock = sock
            connection.request("GET", path)
            answer = connection.getresponse()
            answers[path] = (answer.status, answer.headers["Content-Type"], answer.read().decode())
    status, kind, text = answers["/"]
    assert (status, kind) == (200, "text/plain; charset=utf-8")
    assert text.startswith("This is a Shoal server.") and "shoal login" in text
    assert not re.search(r"\d", text)  # no version, port or address
    assert answers["/v1/runs"][0] == 401


SHELLS = {
    "bash": 'eval "$(shoal completion bash)"; COMP_WORDS=(shoal ca); COMP_CWORD=1; _shoal_completion shoal; '
    'echo "${COMPREPLY[@]}"',
    "zsh": 'autoload -U compinit; compinit -u; eval "$(shoal completion zsh)"; whence -w _shoal_completion',
    "fish": "shoal completion fish | source; complete -C 'shoal ca'",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_real_shell_takes_the_script_for_completion(terminal: Terminal, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed; what it is answered is in tests/unit/cli/test_completion.py")
    binaries = str(Path(sys.executable).parent)
    env = {**terminal.env, "PATH": f"{binaries}:{terminal.env['PATH']}"}
    done = subprocess.run([shell, "-c", SHELLS[shell]], env=env, capture_output=True, text=True, timeout=60, check=True)
    assert ("function" if shell == "zsh" else "cancel") in done.stdout
