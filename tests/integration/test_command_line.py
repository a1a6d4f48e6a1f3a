"""The command line on real servers and pilots: every command as a person types it."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shoal.client.connection.embedded_server import is_alive
from shoal.model.file_names import SERVER_FILE

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]
SHOAL = [sys.executable, "-m", "shoal.cli"]


@dataclass(frozen=True)
class Said:
    """What a command said, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def run(self) -> str:
        """The run that a summary speaks of: its first word."""
        return self.out.split()[0].rstrip(":")

    def json(self) -> Any:
        """Standard output as one document."""
        return json.loads(self.out)


class Terminal:
    """A person's shell: a directory, an environment, and a state of its own that is cleared away at the end."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        self.cwd = folder / "work"
        self.cwd.mkdir(parents=True)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("SHOAL_", "XDG_"))}
        self.env |= {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), "COLUMNS": "100"}

    @property
    def state(self) -> Path:
        """The embedded server's state directory."""
        return self.home / "state" / "shoal"

    def start(self, *words: str, **more: Any) -> subprocess.Popen[str]:
        """Start a command and go on."""
        env = {**self.env, **more.pop("env", {})}
        return subprocess.Popen(
            [*SHOAL, *words], cwd=more.pop("cwd", self.cwd), env=env, text=True, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *words: str, timeout: float = 60.0, **more: Any) -> Said:
        """Run a command to its end."""
        with self.start(*words, **more) as child:
            try:
                out, err = child.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                child.kill()
                out, err = child.communicate()
                pytest.fail(f"shoal {' '.join(words)} did not end\n{out}\n{err}")
        return Said(child.returncode, out, err)

    def good(self, *words: str, **more: Any) -> Said:
        """Run a command that must succeed."""
        said = self.run(*words, **more)
        assert said.status == 0, said
        return said

    def submit(self, *words: str) -> str:
        """Submit, and return the run."""
        return self.good("submit", *words).out.strip()

    def server_pid(self) -> int:
        """The embedded server's process."""
        return int(json.loads((self.state / SERVER_FILE).read_text(encoding="utf-8"))["pid"])

    def close(self) -> None:
        """Stop the server and its pilots, in order if they will, else not."""
        pids = [*self._pids()]
        if self.state.exists():
            self.run("cancel", *[f"r{row['run']}" for row in self._open_runs()] or ["r999"])
            self.run("server", "stop", "--pilots", timeout=90.0)
        for pid in {*pids, *self._pids()}:
            end = time.monotonic() + 5
            while is_alive(pid) and time.monotonic() < end:
                time.sleep(0.05)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _open_runs(self) -> list[dict[str, Any]]:
        said = self.run("ps", "--state", "open", "--json")
        rows: list[dict[str, Any]] = said.json()["runs"] if said.status == 0 else []
        return [{**row, "run": str(row["run"]).lstrip("r")} for row in rows]

    def _pids(self) -> Iterator[int]:
        with contextlib.suppress(OSError, ValueError, KeyError):
            yield self.server_pid()
        with contextlib.suppress(OSError, ValueError):
            yield int((self.state / "pilot.pid").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """One shell and one embedded server for the tests of a module."""
    shell = Terminal(tmp_path_factory.mktemp("home"))
    try:
        yield shell
    finally:
        shell.close()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Terminal]:
    """A shell of a test's own, for tests that hurt the server."""
    shell = Terminal(tmp_path)
    try:
        yield shell
    finally:
        shell.close()


# --- run


def test_a_command_runs_as_if_it_ran_here(terminal: Terminal) -> None:
    said = terminal.run("run", "--env", "A=b", "--", "sh", "-c", "pwd; echo $A >&2; echo $MINE", env={"MINE": "yes"})
    assert said.status == 0
    assert said.out == f"{terminal.cwd}\nyes\n"
    own, end = said.err.splitlines()[-2:]  # a slow start shows progress before
    assert own == "b" and re.fullmatch(r"shoal: r\d+\.1 succeeded in \S+ on \S+", end)


def test_a_failed_command_gives_its_own_status_also_in_words(terminal: Terminal) -> None:
    said = terminal.run("run", "--", "sh", "-c", "echo partial; exit 3")
    assert (said.status, said.out) == (3, "partial\n")
    assert said.err.rstrip().endswith("failed: the command ended with exit code 3")


def test_shell_text_stdin_and_secrets(terminal: Terminal) -> None:
    (terminal.cwd / "in.txt").write_text("b\na\nb\n", encoding="utf-8")
    said = terminal.run(
        "run", "-q", "--stdin", "in.txt", "--shell", "--", "sort | uniq -c | wc -l; env | grep -c SECRET",
        env={"SHOAL_TOKEN": "SECRET"},
    )  # fmt: skip
    assert said.out.split() == ["2", "0"]


def test_a_time_limit_and_retries_are_kept(terminal: Terminal) -> None:
    said = terminal.run("run", "--time", "1s", "--", "sleep", "30")
    assert said.status == 128 + 15
    assert "failed: stopped at its time limit of 1 s (ended by signal 15)" in said.err
    failed = terminal.run("run", "--retries", "2", "--json", "--", "sh", "-c", "exit 1")
    assert failed.status == 1
    row = json.loads(terminal.good("results", failed.json()["run"], "--json").out)
    assert (row["state"], row["attempts"], row["exit_code"]) == ("failed", 3, 1)


def test_an_array_runs_so_many_at_once(terminal: Terminal) -> None:
    said = terminal.run(
        "run", "--array", "1-6%1", "--name", "arr", "--", "sh", "-c", "echo {i} $SHOAL_INDEX $SHOAL_TASK"
    )
    assert said.status == 0
    run = said.run
    lines = [json.loads(line)["result"] for line in terminal.good("results", run, "--json").out.splitlines()]
    assert lines == [f"{i} {i} {run}.{i}" for i in range(1, 7)]


# --- sweep, results, and every listing


def test_a_sweep_gives_one_row_per_element_in_every_form(terminal: Terminal) -> None:
    script = 'import json; print(json.dumps({"y": {x} ** 2, "mode": "{mode}"}))'
    script = script.replace('{"y"', '{{"y"').replace('"}))', '"}}))')
    said = terminal.run("sweep", "x=1..3", "mode=a,b", "--name", "squares", "--", "python3", "-c", script)
    assert said.status == 0, said
    run = said.run
    assert "6 tasks: 6 succeeded" in said.out
    rows = [json.loads(line) for line in terminal.good("results", run, "--json").out.splitlines()]
    assert [(row["task"], row["x"], row["mode"]) for row in rows[:2]] == [(f"{run}.1", 1, "a"), (f"{run}.2", 1, "b")]
    assert [row["result"]["y"] for row in rows] == [1, 1, 4, 4, 9, 9]
    table = list(csv.DictReader(io.StringIO(terminal.good("results", run, "--csv").out)))
    assert [(row["y"], row["mode"], row["result_mode"]) for row in table[:2]] == [("1", "a", "a"), ("1", "b", "b")]
    assert len(terminal.good("results", run).out.splitlines()) == 7
    for words in (
        ["ps"],
        ["ps", run],
        ["show", run],
        ["show", f"{run}.2"],
        ["why", run],
        ["pilots"],
        ["server", "status"],
    ):
        assert isinstance(terminal.good(*words, "--json").json(), dict), words
        assert terminal.good(*words).out
    assert terminal.good("logs", f"{run}.1").out == '{"y": 1, "mode": "a"}\n'
    assert terminal.good("logs", f"{run}.1", "--stderr").out == ""


def test_python_gives_the_same_rows(terminal: Terminal) -> None:
    run = terminal.submit("x=1..3", "--", "sh", "-c", 'echo "{{\\"v\\": {x}}}"')
    terminal.good("wait", run)
    script = f"import shoal, json; print(json.dumps(shoal.results('{run}')))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=terminal.env,
        cwd=terminal.cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    rows = json.loads(done.stdout)
    assert [(row["x"], row["v"], row["state"]) for row in rows] == [(n, n, "succeeded") for n in (1, 2, 3)]


def test_resume_runs_only_what_is_missing_and_says_so(terminal: Terminal) -> None:
    script = terminal.cwd / "step.sh"
    script.write_text("echo $1; test $1 != 3 -o -e fixed\n", encoding="utf-8")
    words = ("--", "sh", "step.sh", "{x}")
    first = terminal.run("sweep", "x=1..4", *words)
    assert first.status == 1
    (terminal.cwd / "fixed").touch()
    second = terminal.run("sweep", "--resume", "x=1..5", *words)
    assert second.status == 0, second
    assert "3 of 5 tasks are not run again" in second.err
    assert f"1 task runs again: failed in {first.run}" in second.err
    assert "1 task runs: not run before" in second.err
    time.sleep(0.01)
    script.write_text("echo changed\n", encoding="utf-8")
    third = terminal.run("sweep", "--resume", "x=1..5", *words)
    assert "not run again" not in third.err
    assert "step.sh changed" in third.err


def test_max_fail_cancels_the_rest(terminal: Terminal) -> None:
    said = terminal.run("sweep", "--max-fail", "2", "x=1..200", "--", "sh", "-c", "exit {x}")
    assert said.status == 1
    run = said.run
    counts = terminal.good("show", run, "--json").json()["counts"]
    assert counts["cancelled"] > 100
    assert 2 <= counts["failed"] <= 10


def test_why_of_a_run_that_failed_says_what_of_it_failed(terminal: Terminal) -> None:
    run = terminal.submit("x=1..4", "--", "sh", "-c", "exit $(({x} / 3))")
    terminal.run("wait", "-q", run)
    said = terminal.good("why", run).out
    assert "2 failed, 2 succeeded" in said
    assert said.count("failed (task_error)") == 1 and f"{run}.3 failed (task_error): " in said


def test_submit_wait_cancel_retry(terminal: Terminal) -> None:
    run = terminal.submit("--", "sh", "-c", "test -e go || sleep 60")
    assert json.loads(terminal.good("cancel", run, "--json").out)["cancelled"] == 1
    assert terminal.run("wait", run).status == 1
    assert "already" in terminal.good("cancel", run).out  # row 84: not an error
    (terminal.cwd / "go").touch()
    assert f"shoal wait {run}" in terminal.good("retry", run).out
    assert terminal.good("wait", run, "--json").json()["counts"]["succeeded"] == 1
    assert "nothing to retry" in terminal.good("retry", run).out


def test_waiting_for_a_single_task_shows_its_output_and_the_latest_run_needs_no_name(terminal: Terminal) -> None:
    run = terminal.submit("--", "sh", "-c", "echo out; echo err >&2")
    waited = terminal.good("wait")
    assert waited.out == "out\n"
    assert waited.err.startswith(f"shoal: the latest run: {run}\nerr\n")
    assert terminal.good("results", "--csv").out.splitlines()[1].startswith(f"{run}.1,succeeded,0,0.")
    assert terminal.good("show").out.split()[1] == run


def test_what_can_never_run_is_said_and_not_waited_for(terminal: Terminal) -> None:
    """Nobody waits without being told why."""
    said = terminal.run("run", "--cores", "60000", "--", "true")
    assert (said.status, said.out) == (125, "")
    line = said.err.splitlines()[-1]
    run = line.split()[1]
    for part in ("no pilot is large enough", "needs 60,000 cores", "ask for less", f"shoal cancel {run}"):
        assert part in line
    assert "1 ready" in terminal.good("show", run).out  # it stays queued
    assert terminal.good("cancel", run).out == "1 task cancelled\n"


def test_open_work_is_told_of_when_the_server_is_stopped_and_gone(fresh: Terminal) -> None:
    run = fresh.submit("x=1..200", "--", "sleep", "5")
    _until(lambda: fresh.good("show", run, "--json").json()["counts"].get("live"))
    shown = fresh.good("ps", run).out.splitlines()[0]
    assert re.fullmatch(rf"{run}: running, 200 tasks: (\d+ running, )?(\d+ (more )?with pilots, )?\d+ ready", shown)
    stopped = fresh.good("server", "stop")
    assert stopped.out == "stopped\n"
    assert "what runs goes on" in stopped.err
    assert "1 open run will go on with the next server" in stopped.err
    assert f"`shoal wait {run}`" in fresh.good("ps").err


def test_the_same_key_never_runs_twice(terminal: Terminal) -> None:
    """Row 42."""
    first = terminal.submit("--key", "once", "--", "echo", "a")
    again = terminal.good("submit", "--key", "once", "--", "echo", "a")
    assert again.out.strip() == first
    assert "nothing new was submitted" in again.err
    other = terminal.run("submit", "--key", "once", "--", "echo", "b")
    assert other.status == 2
    assert f"belongs to {first}" in other.err


def test_children_of_a_failed_task_fail_with_it(terminal: Terminal) -> None:
    (terminal.cwd / "dag.toml").write_text(
        '[[tasks]]\nname = "a"\nshell = "exit 1"\n[[tasks]]\nname = "b"\nshell = "echo b"\narray = "1-3"\nafter = ["a"]\n',
        encoding="utf-8",
    )
    said = terminal.run("run", "dag.toml")
    assert said.status == 1
    assert "3 dependency_failed, e.g. r" in said.out
    run = said.run
    never = terminal.run("logs", f"{run}.2")
    assert (never.status, never.err.count("\n")) == (3, 1)
    assert f"{run}.2 never ran, it is failed: " in never.err
    states = [json.loads(line)["cause"] for line in terminal.good("results", run, "--json").out.splitlines()]
    assert states == ["task_error"] + ["dependency_failed"] * 3


def test_hostile_text_cannot_reach_the_terminal(terminal: Terminal) -> None:
    """Rows 20 to 22."""
    name = "evil\x1b]0;title\x07\u202egnp <script>"
    run = terminal.submit("--name", name, "--label", f"k={name}", "--", "printf", "\\033[2Jboo\\n")
    terminal.run("wait", run)
    for words in (["ps"], ["show", run], ["show", f"{run}.1"], ["results", run], ["wait", run, "--json"]):
        out = terminal.run(*words).out
        assert "\x1b" not in out.replace("\x1b[0m", "").replace("\x1b[1m", "")
        assert "\u202e" not in out
    assert terminal.good("show", run, "--json").json()["name"] == name


# --- examples


def test_the_documented_task_file_runs(terminal: Terminal) -> None:
    said = terminal.run("run", "examples/first.toml", cwd=ROOT)
    assert said.status == 0, said
    assert "16 tasks: 16 succeeded" in said.out


@pytest.mark.slow
def test_the_demonstration_runs_and_leaves_nothing(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "examples/demo.py"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "what happened" in done.stdout
    assert "30 succeeded" in done.stdout
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("shoal-demo")]


# --- servers that come, go and die


def test_reading_works_without_a_server(fresh: Terminal) -> None:
    run = fresh.submit("x=1..3", "--name", "kept", "--", "echo", "{x}")
    fresh.good("wait", run)
    online = {words: fresh.good(*words).out for words in _readings(run)}
    assert fresh.good("server", "stop", "--pilots").out == "stopped\n"
    assert fresh.run("server", "status").status == 4
    for words, out in online.items():
        assert _ageless(fresh.good(*words).out) == _ageless(out), words
    assert "succeeded" in fresh.good("why", f"{run}.1").out
    assert not (fresh.state / SERVER_FILE).exists()  # nobody was started


def _readings(run: str) -> list[tuple[str, ...]]:
    return [("ps",), ("ps", run), ("show", run), ("results", run), ("results", run, "--csv"), ("logs", f"{run}.2")]


def _ageless(text: str) -> str:
    """The text without durations, which differ, and so without the widths of columns."""
    return " ".join(re.sub(r"\s+\d+(\.\d+)?(ms|s|m\d\ds)\b|\([^)]* ago\)", "", text).split())


def test_a_killed_embedded_server_is_started_again_while_waiting(fresh: Terminal) -> None:
    with fresh.start("sweep", "x=1..40", "--", "sleep", "0.1") as waiting:
        _until(lambda: (fresh.state / SERVER_FILE).exists())
        time.sleep(1.0)
        os.kill(fresh.server_pid(), signal.SIGKILL)
        out, err = waiting.communicate(timeout=100)
    assert waiting.returncode == 0, err
    assert "started again" in err
    assert "40 tasks: 40 succeeded" in out


def _wait_for_progress(waiting: subprocess.Popen[str]) -> None:
    """Until a command says how far its run is: it waits, and hears Ctrl-C."""
    assert waiting.stderr is not None
    while "/50" not in (line := waiting.stderr.readline()):
        assert line, "it ended"


def test_ctrl_c_detaches_and_a_second_one_cancels(fresh: Terminal) -> None:
    run = fresh.submit("x=1..50", "--", "sleep", "2")
    with fresh.start("wait", run) as waiting:
        _wait_for_progress(waiting)
        waiting.send_signal(signal.SIGINT)
        _, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 130
    assert f"shoal wait {run}" in err
    assert f"shoal cancel {run}" in err
    assert fresh.good("show", run, "--json").json()["finished"] is None
    with fresh.start("wait", run) as waiting:
        _wait_for_progress(waiting)
        waiting.send_signal(signal.SIGINT)
        assert waiting.stderr is not None
        told = waiting.stderr.readline()
        while f"shoal cancel {run}" not in told:  # what it says before it ends, and is still to be heard
            assert told, "it ended without a word"
            told = waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        _, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 130
    assert "tasks cancelled" in err
    assert fresh.good("show", run, "--json").json()["finished"] is not None


def test_many_commands_at_once_start_one_server(fresh: Terminal) -> None:
    children = [fresh.start("submit", "--", "true") for _ in range(6)]
    runs = set()
    for child in children:
        out, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
        runs.add(out.strip())
    assert runs == {f"r{n}" for n in range(1, 7)}
    log = (fresh.state / "server.log").read_text(encoding="utf-8")
    assert log.count("listening") == 1


def test_a_server_of_ones_own(fresh: Terminal) -> None:
    port = _free_port()
    place = fresh.home / "own"
    said = fresh.good("server", "start", "--state", str(place), "--listen", f"127.0.0.1:{port}", "--json").json()
    url = f"unix:{place}/sock"
    try:
        assert said["url"] == url
        token = Path(said["token_file"]).read_text(encoding="utf-8").strip()
        (fresh.cwd / "shoal.toml").write_text(
            f'server = "{url}"\ntoken_file = "{said["token_file"]}"\n', encoding="utf-8"
        )
        refused = fresh.run("ps", cwd=fresh.home, env={"SHOAL_SERVER": url})
        assert (refused.status, refused.err.count("\n")) == (3, 1)  # no token there
        assert fresh.good("ps", cwd=fresh.home, env={"SHOAL_SERVER": url, "SHOAL_TOKEN": token}).out
        assert fresh.good("pilots").out == "no pilots, so nothing runs: start one with `shoal pilot start`\n"
        with fresh.start("pilot", "start", "--cores", "1") as pilot:
            done = fresh.good("run", "--", "echo", "over there")
            assert done.out == "over there\n"
            pilot.send_signal(signal.SIGTERM)
            pilot.communicate(timeout=30)
        assert pilot.returncode == 0
        taken = fresh.run("server", "start", "--state", str(fresh.home / "two"), "--listen", f"127.0.0.1:{port}")
        assert taken.status == 3  # row 78
        assert taken.err.count("\n") == 1
        assert str(port) in taken.err
        twice = fresh.run("server", "start", "--state", str(place))
        assert (twice.status, twice.err.count("\n")) == (3, 1)
        assert fresh.good("server", "status", "--state", str(place), "--json").json()["mode"] == "own"
    finally:
        fresh.run("server", "stop", "--state", str(place))
    assert fresh.run("ps").status == 4
    assert not fresh.state.exists()  # the embedded one was never needed


def test_a_pilot_is_built_the_same_twice(terminal: Terminal) -> None:
    first = terminal.good("pilot", "build", "-o", "a.pyz", "--json").json()
    second = terminal.good("pilot", "build", "-o", "b.pyz", "--json").json()
    assert first["sha256"] == second["sha256"]
    assert (terminal.cwd / "a.pyz").read_bytes() == (terminal.cwd / "b.pyz").read_bytes()


def test_prune_deletes_old_logs_and_keeps_results(fresh: Terminal) -> None:
    run = fresh.submit("--", "echo", "kept")
    fresh.good("wait", run)
    assert "logs deleted" in fresh.good("prune").out  # nothing is so old
    fresh.good("server", "stop", "--pilots")  # a server remembers for a while what it ran itself, and its logs
    assert fresh.good("logs", f"{run}.1").out == "kept\n"
    other = fresh.submit("--", "echo", "other")
    fresh.good("wait", other)
    time.sleep(1.1)
    assert fresh.good("prune", "--older-than", "1s", "--json").json()["log_bytes"] > 0
    assert fresh.good("logs", f"{run}.1").out == ""
    fresh.good("server", "stop", "--pilots")
    assert "logs deleted" in fresh.good("prune", "--older-than", "1s").out
    assert fresh.good("logs", f"{other}.1").out == ""
    assert json.loads(fresh.good("results", run, "--json").out)["result"] == "kept"


def _until(is_true: Any, within: float = 30.0) -> None:
    end = time.monotonic() + within
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
