"""Commands as they are typed, on a fake source and a fake client: output, JSON, and what is sent."""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import re
import time
from pathlib import Path
from typing import Any

import click
import pytest

from shoal.cli.commands import COMMANDS, GROUPS, HABITS, cli
from shoal.cli.main import invoke
from shoal.cli.session import Session
from shoal.cli.tasks import show
from shoal.cli.tasks.options import OPTION_GROUPS
from shoal.cli.tasks.run import run as run_command
from shoal.model.errors import Unreachable
from shoal.report.data_source import HttpSource
from shoal.wire.payload import to_text
from tests.unit.cli.fake_client import FakeClient
from tests.unit.report.fake_source import FakeSource, run_info, task_row

SWEEP = {"name": "sim", "command": ["./sim", "{x}"], "params": {"x": "1..3"}}
PILOT = {
    "pilot": "p3f9c", "state": "busy", "reason": "", "owner": "me", "site": "local", "host": "laptop", "cores": 4,
    "memory": 1 << 30, "disk": 0, "gpus": 0, "version": "0.1.0", "tags": {"os": "linux"}, "joined": 100.0, "ended": None,
}  # fmt: skip


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSource:
    """A finished sweep with a hostile name, one failure and JSON results."""
    info = run_info(
        [SWEEP], name="evil\x1b[31m", counts={"succeeded": 2, "failed": 1}, finished=110.0, labels={"k": "v"}
    )
    rows = [
        task_row(1, last_line='{"pi": 3.1}'),
        task_row(2, last_line="\x1b]0;x\x07[red]hi"),
        task_row(3, state="failed", cause="task_error", exit_code=2, message="exit code 2"),
    ]
    events = [
        {
            "seq": 1,
            "time": 100.0,
            "kind": "task_finished",
            "run": 1,
            "task": 3,
            "attempt": 1,
            "pilot": "p3f9c",
            "data": {"state": "failed", "cause": "task_error"},
        }
    ]
    logs = {("r1.1", "stdout"): b"hello\n", ("r1.1", "stderr"): b"oops\n"}
    found = FakeSource(info, rows, events, logs, [PILOT], [{"text": "it failed", "fix": "shoal retry r1"}])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Session, "source", lambda self: found)
    monkeypatch.setattr(Session, "bulk_source", lambda self: found)
    return found


@pytest.fixture
def client(source: FakeSource, monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    found = FakeClient(source)
    monkeypatch.setattr(Session, "client", lambda self: found)
    monkeypatch.setattr(Session, "client_for", lambda self, what: found)
    return found


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = invoke(words)
    seen = capsys.readouterr()
    return status, seen.out, seen.err


def test_ps_lists_runs_with_hostile_names_escaped(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "ps")
    assert status == 0
    assert "\x1b[31m" not in out
    assert "evil\\x1b[31m" in out
    assert "failed" in out


def test_ps_of_a_run_shows_what_failed(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "ps", "r1")
    assert "r1.3" in out
    assert "r1.1" not in out
    _, out, _ = run(capsys, "ps", "r1", "--state", "succeeded")
    assert "r1.1" in out


def test_ps_tells_the_time_left_of_a_run_that_a_server_works_at(
    client: FakeClient, source: FakeSource, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    source.info.update(name="", finished=None, total=42, counts={"succeeded": 20, "running": 2, "live": 2})
    source.all_rows = [task_row(n, duration=60.0) for n in range(1, 21)]
    source.all_rows += [task_row(n, state="running", leased=now, started=None, duration=None) for n in (21, 22)]
    assert run(capsys, "ps")[1].splitlines()[1].endswith(" -")  # the file alone does not say what runs
    assert "left" not in run(capsys, "ps", "r1")[1]
    monkeypatch.setattr(Session, "source", lambda self: HttpSource(client))
    first, second = run(capsys, "ps")[1].splitlines()
    assert first.endswith("left") and re.search(r" 1[01]m\d\ds \(9 in 10: 1[1-3]m\d\ds\)$", second)
    assert re.search(r"; about 1[01]m\d\ds left \(9 in 10 within 1[1-3]m\d\ds\)\n", run(capsys, "ps", "r1")[1])


@pytest.mark.parametrize(
    "words",
    [("ps",), ("ps", "r1"), ("show", "r1"), ("show", "r1.1"), ("show", "p3f9c"), ("why", "r1"), ("pilots",)],
)
def test_every_listing_has_json_as_one_document(
    source: FakeSource, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    status, out, err = run(capsys, *words, "--json")
    assert (status, err) == (0, "")
    assert isinstance(json.loads(out), dict)
    assert out.count("\n") == 1
    assert "\x1b" not in out


def test_show_tells_run_task_and_pilot(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "show", "r1")
    for part in ("./sim", "x=1..3", "/data", "k=v", "r1.1 .. 3"):
        assert part in out
    _, out, _ = run(capsys, "show", "r1.3")
    for part in ("./sim 3", "x=3", "task_error: exit code 2", "laptop", "task finished #1 on p3f9c"):
        assert part in out
    _, out, _ = run(capsys, "show", "p3f9c")
    for part in ("busy", "4 cores", "1.0G", "os=linux"):
        assert part in out


def test_results_of_calls_are_a_table_of_arguments_and_values(
    source: FakeSource, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = [to_text(pickle.dumps(((n,), {}))) for n in range(2)]
    info = run_info([{"function": "AA==", "calls": calls, "labels": {"function": "f"}}])
    source.info.update(info)
    source.all_rows = [task_row(n, result=to_text(pickle.dumps([n * 10, b"x"]))) for n in (1, 2)]
    lines = run(capsys, "results", "r1")[1].splitlines()
    assert lines[0].split() == ["task", "call", "state", "exit_code", "duration", "host", "cause", "attempts", "result"]
    assert lines[2].split()[:3] == ["r1.2", "f(1)", "succeeded"] and lines[2].endswith("[20, \"b'x'\"]")
    rows = list(csv.DictReader(io.StringIO(run(capsys, "results", "r1", "--csv")[1])))
    assert [(row["call"], row["started"], row["ended"]) for row in rows] == [
        ("f(0)", "1.0", "2.0"),
        ("f(1)", "1.0", "2.0"),
    ]


def test_the_outcome_is_one_word_for_programs_that_ask_again(
    source: FakeSource, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for task, word in (("r1", "failed"), ("r1.1", "success"), ("r1.3", "failed")):
        assert run(capsys, "show", "--outcome", task) == (0, f"{word}\n", "")
    source.info["finished"] = None
    assert run(capsys, "show", "--outcome", "r1")[1] == "running\n"
    source.info.update(finished=110.0, counts={"succeeded": 3})
    away = iter([Unreachable("no answer"), Unreachable("no answer")])

    def answer(run: str) -> dict[str, Any]:
        for error in away:
            raise error
        return source.info

    monkeypatch.setattr(show, "PAUSE", 0.0)
    monkeypatch.setattr(source, "run", answer)
    assert run(capsys, "show", "--outcome", "r1") == (0, "success\n", "")
    away = iter([Unreachable("no answer")])
    monkeypatch.setattr(show, "PATIENCE", -1.0)
    assert run(capsys, "show", "--outcome", "r1")[0] == 4


def test_an_open_run_is_counted_in_words_and_in_order(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    source.info.update(name="", finished=None, total=30, counts={"live": 4, "failed": 1, "succeeded": 2, "lost": 1})
    counted = "2 succeeded, 4 with pilots, 22 ready, 1 failed, 1 lost"
    assert run(capsys, "ps", "r1")[1].splitlines()[0] == f"r1: running, 30 tasks: {counted}"
    assert f"30 (4 done: {counted})" in run(capsys, "show", "r1")[1]
    source.info["arrays"][0]["task"] = {**SWEEP, "after": ["x"]}
    assert "22 ready or waiting" in run(capsys, "show", "r1")[1]
    source.info.update(total=1, counts={"live": 1}, arrays=source.info["arrays"][:1])
    assert run(capsys, "ps", "r1")[1].splitlines()[0] == "r1: running, 1 task: 1 with pilots"


def test_open_runs_without_a_server_are_told(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "ps")[2] == ""
    source.info["finished"] = None
    _, out, err = run(capsys, "ps")
    assert "r1" in out
    assert err.count("\n") == 1
    assert "`shoal wait r1`" in err


def test_the_latest_run_needs_no_name(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("results",), ("show",), ("why",)):
        status, out, err = run(capsys, *words)
        assert (status, out) == (0, run(capsys, *words, "r1")[1])
        assert err == "shoal: the latest run: r1 (evil\\x1b[31m)\n"


def test_what_names_nothing_is_told_with_what_would(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("show", "why"):
        status, _, err = run(capsys, command, "p99xyz")
        assert status == 2
        assert "neither a run nor a task nor a pilot" in err
    assert run(capsys, "logs")[2] == "shoal: shoal logs needs TASK (e.g. shoal logs r12.7)\n"


def test_why_gives_reasons_and_fixes(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "why", "r1.1")
    assert out == "r1.1 is ready:\n  it failed\n    -> shoal retry r1\n"


def test_logs_go_out_byte_for_byte(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "logs", "r1.1")[1] == "hello\n"
    assert run(capsys, "logs", "r1.1", "--stderr", "--attempt", "2")[1] == "oops\n"
    assert source.asked[-1] == ("logs", "r1.1", "stderr", 2)


def test_logs_of_what_never_ran_say_why(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    source.all_logs = dict.fromkeys([("r1.1", "stdout"), ("r1.2", "stdout"), ("r1.3", "stdout")], b"")
    source.all_rows = [task_row(2)]
    assert "r1.1 has not started yet (see `shoal why r1.1`)" in run(capsys, "logs", "r1.1")[2]
    assert run(capsys, "logs", "r1.2") == (0, "", "")
    assert "r1.2 had only 1 attempt (" in run(capsys, "logs", "r1.2", "--attempt", "2")[2]
    source.info["spans"] = [{"low": 3, "high": 4, "state": "cancelled", "cause": "cancelled", "message": "2 failed"}]
    status, _, err = run(capsys, "logs", "r1.3")
    assert (status, err) == (3, "shoal: r1.3 never ran, it is cancelled: 2 failed (see `shoal show r1.3`)\n")


def test_an_empty_log_on_a_terminal_says_so(
    source: FakeSource, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source.all_logs["r1.1", "stdout"] = b""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run(capsys, "logs", "r1.1")[2] == "shoal: nothing on standard output; try --stderr\n"


def test_results_as_table_csv_and_json_lines(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "results", "r1")
    assert len(out.splitlines()) == 4
    assert "\x1b]0" not in out
    rows = list(csv.DictReader(io.StringIO(run(capsys, "results", "r1", "--csv")[1])))
    assert [row["x"] for row in rows] == ["1", "2", "3"]
    assert (rows[0]["pi"], rows[0]["result"]) == ("3.1", '{"pi": 3.1}')
    assert rows[2]["state"] == "failed"
    lines = run(capsys, "results", "r1", "--json", "--limit", "2")[1].splitlines()
    assert [json.loads(line)["result"] for line in lines] == [{"pi": 3.1}, "\x1b]0;x\x07[red]hi"]


def test_pilots_are_listed(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "pilots")
    assert "p3f9c" in out
    source.all_pilots = [{**PILOT, "state": "gone"}]
    assert "the embedded server starts one" in run(capsys, "pilots")[1]
    own = run(capsys, "pilots", "--server", "unix:/run/shoal-9")[1]
    assert own == "no pilots, so nothing runs: start one with `shoal pilot start`\n"
    assert "gone" in run(capsys, "pilots", "--all")[1]


def test_cancel_and_retry_say_what_they_did(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "cancel", "r1", "r1.2")[1] == "2 tasks cancelled\n"
    client.already_final = 1
    assert run(capsys, "cancel", "r1")[1] == "3 tasks cancelled, 1 was finished already\n"
    assert run(capsys, "retry", "r1")[1] == "2 tasks ready again: shoal wait r1\n"
    assert json.loads(run(capsys, "retry", "r1", "--json")[1]) == {"tasks": 2, "runs": ["r1"]}


def test_submit_sends_the_task_with_its_environment_and_a_key(
    client: FakeClient, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_TOKEN", "secret")
    status, out, _ = run(capsys, "submit", "x=1..3", "--name", "n", "--", "sh", "-c", "echo {x}")
    assert (status, out) == (0, "r1\n")
    sent = client.submitted[0]
    assert list(sent["tasks"][0].pop("visible")) == [os.getcwd()]  # it prefers this directory
    assert sent["tasks"] == [{"command": ["sh", "-c", "echo {x}"], "params": {"x": "1..3"}}]
    assert sent["key"].startswith("auto-")
    assert "PATH" in sent["environment"]
    assert "secret" not in json.dumps(sent)
    assert "resume" not in sent


def test_resume_tells_what_is_skipped_and_why_the_rest_runs(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    reruns = [{"count": 1, "why": "failed in r1", "again": True}, {"count": 2, "why": "not run before", "again": False}]
    client.answer |= {"reused": 2, "reruns": reruns}
    _, _, err = run(capsys, "submit", "x=1..3", "--resume", "--", "echo", "{x}")
    assert client.submitted[0]["resume"] is True
    assert set(client.submitted[0]["fingerprints"]) == {"environment", "files"}
    assert err.splitlines() == [
        "shoal: 2 of 3 tasks are not run again: an earlier equal run has the results",
        "shoal: 1 task runs again: failed in r1",
        "shoal: 2 tasks run: not run before",
    ]


@pytest.mark.parametrize(
    ("axis", "note"),
    [
        ("x=1-3", "shoal: note: x=1-3 is one value, the text 1-3; a range is x=1..3\n"),
        ("x=-1:3", "shoal: note: x=-1:3 is one value, the text -1:3; a range is x=-1..3\n"),
        ("x=1..3", ""),
        ("x=2024-05-01", ""),
        ("x=a-b", ""),
    ],
)
def test_a_range_written_as_elsewhere_is_noted(
    client: FakeClient, capsys: pytest.CaptureFixture[str], axis: str, note: str
) -> None:
    status, _, err = run(capsys, "submit", axis, "--", "echo", "{x}")
    assert (status, err) == (0, note)


def test_a_server_that_ends_during_submit_is_started_again_and_the_key_stays(
    client: FakeClient, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[Any] = []

    def submit(submission: dict[str, Any]) -> dict[str, Any]:
        tries.append(submission["key"])
        if len(tries) == 1:
            raise Unreachable("it ended")
        return client.answer

    monkeypatch.setattr(client, "submit", submit)
    assert run(capsys, "submit", "--", "echo")[0] == 0
    assert len(tries) == 2
    assert tries[0] == tries[1]


def test_dry_run_shows_what_would_be_and_sends_nothing(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("run", "sweep", "submit"):
        axes = [] if command == "run" else ["x=1..5"]
        word = "5" if axes else "1"
        status, out, _ = run(capsys, command, "--dry-run", *axes, "--memory", "1G", "--", "echo", "a b")
        assert status == 0
        assert out.startswith(f"{word} task")
        assert "echo 'a b'" in out
        assert "1.0G memory" in out
    document = json.loads(run(capsys, "run", "--dry-run", "--json", "--", "echo", "x")[1])
    assert (document["tasks"], document["specs"][0]["commands"]) == (1, ["echo x"])
    assert client.submitted == []


def test_a_dry_run_with_an_expression_asks_what_pilots_have(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    client.answer |= {"warnings": ["no pilot has the tag nope"]}
    status, _, err = run(capsys, "run", "--require", "nope == 3", "--dry-run", "--", "echo")
    assert (status, err) == (0, "shoal: note: no pilot has the tag nope\n")
    assert [document["dry_run"] for document in client.submitted] == [True]


def test_the_empty_device_is_no_input(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "submit", "--stdin", "/dev/null", "--", "cat")[0] == 0
    assert "stdin" not in client.submitted[0]["tasks"][0]


def test_every_command_explains_itself_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        status, out, _ = run(capsys, name, "--help")
        assert status == 0
        assert f"shoal {name}" in out.replace("Usage: shoal", "")
    status, out, _ = run(capsys, "--help")
    assert all(name in out for name in COMMANDS)


def test_every_command_is_in_one_group_of_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(GROUPS) == ["Work", "Look", "Pool", "People", "Plan", "Server"]
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(COMMANDS)
    _, out, _ = run(capsys, "--help")
    assert [out.index(f"\n{group}:\n") for group in GROUPS] == sorted(out.index(f"\n{group}:\n") for group in GROUPS)


def test_the_options_of_every_day_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("run", "sweep", "submit"):
        _, out, _ = run(capsys, command, "--help")
        every_day, rest = out.split("\nEvery day:\n")[1].split("\n\n", 1)
        assert "--cores" in every_day and "--after " in every_day and "-j, --jobs" in every_day
        assert "--checkpoint-every" in rest and "--json" in rest.split("\nThis command:\n")[1]
    grouped = [name for names in OPTION_GROUPS.values() for name in names]
    declared = {param.name for param in run_command.params if isinstance(param, click.Option)}
    assert declared == set(grouped) - {"help"}  # an option in no group would be shown at the end


@pytest.mark.parametrize(
    "theirs", ["queue", "status", "kill", "squeue", "sbatch", "scancel", "qsub", "qstat", "qdel", "list", "top"]
)
def test_commands_of_others_are_answered_with_ours(capsys: pytest.CaptureFixture[str], theirs: str) -> None:
    said = f"shoal: there is no command '{theirs}' (here it is: shoal {HABITS[theirs]})\n"
    assert run(capsys, theirs, "x") == (2, "", said)
    assert HABITS[theirs] in COMMANDS and not HABITS.keys() & COMMANDS.keys()


def test_jobs_at_once_are_a_field_of_the_run(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "submit", "-j", "3", "x=1..9", "--", "echo", "{x}")[0] == 0
    assert client.submitted[0]["max_running"] == 3
    assert run(capsys, "submit", "-j0", "--", "echo")[0] == 2


def test_a_bare_time_is_noted_with_its_unit(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "submit", "--time", "10", "--", "echo")
    assert (status, client.submitted[0]["tasks"][0]["time"]) == (0, "10")
    assert err == "shoal: note: --time 10 is taken as 10 seconds, not minutes as in Slurm; write 10s or 10m\n"


def test_a_run_is_named_where_its_id_would_do(
    client: FakeClient, source: FakeSource, capsys: pytest.CaptureFixture[str]
) -> None:
    source.info["name"] = "scan"
    for words in (("ps",), ("show",), ("why",), ("results",), ("cancel",), ("retry",)):
        assert run(capsys, *words, "scan")[0] == 0, words
    assert run(capsys, "logs", "scan.1")[1] == "hello\n"
    assert client.cancelled == ["r1"]
    run(capsys, "submit", "--after", "scan,r7.1", "--after-any", "scan.2", "--", "echo")
    sent = client.submitted[0]["tasks"][0]
    assert (sent["after"], sent["after_any"]) == (["r1", "r7.1"], ["r1.2"])


def test_all_tables_of_a_file_wait_for_what_the_command_line_names(
    client: FakeClient, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "t.toml").write_text(
        '[[tasks]]\nname = "a"\ncommand = ["true"]\n[[tasks]]\ncommand = ["true"]\nafter = ["a"]\n', encoding="utf-8"
    )
    assert run(capsys, "submit", "--after", "r7", "t.toml")[0] == 0
    assert [table["after"] for table in client.submitted[0]["tasks"]] == [["r7"], ["a", "r7"]]


def test_a_dry_run_of_resume_says_what_would_be_reused(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    client.answer |= {
        "tasks": 8,
        "reused": 7,
        "reuses": [{"element": n, "task": f"r4.{n}"} for n in range(1, 8)],
        "reruns": [{"count": 1, "why": "failed in r1", "again": True}],
    }
    _, out, _ = run(capsys, "sweep", "--resume", "--dry-run", "x=11..18", "--", "echo", "{x}")
    assert client.submitted[0]["dry_run"] is True and client.submitted[0]["resume"] is True
    assert out.splitlines()[-3:] == [
        "--resume: 7 of 8 tasks would not run again: an earlier equal run has the results",
        "  taken over: x=11 from r4.1; x=12 from r4.2; x=13 from r4.3; x=14 from r4.4; x=15 from r4.5; and 2 more",
        "  1 task runs again: failed in r1",
    ]
    document = json.loads(run(capsys, "sweep", "--resume", "--dry-run", "--json", "x=11..18", "--", "echo", "{x}")[1])
    assert document["reused"] == 7 and len(document["reuses"]) == 7


def test_runs_that_wait_or_are_open_are_called_so(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    source.info.update(name="", finished=None, total=3, counts={"live": 0, "running": 0, "waiting": 2, "succeeded": 1})
    assert run(capsys, "ps", "r1")[1].splitlines()[0] == "r1: waiting, 3 tasks: 1 succeeded, 2 waiting"
    source.info.update(counts={"live": 2, "running": 1, "succeeded": 1})
    assert run(capsys, "ps", "r1")[1].splitlines()[0] == (
        "r1: running, 3 tasks: 1 succeeded, 1 running, 1 more with pilots"
    )
    assert json.loads(run(capsys, "ps", "--json")[1])["runs"][0]["state"] == "running"
    source.info.update(counts={"cancelled": 3}, open=1)
    assert run(capsys, "ps", "r1")[1].startswith("r1: open, ")
    source.info.update(finished=120.0)
    assert run(capsys, "ps", "r1")[1].startswith("r1: cancelled, ")


def test_without_a_command_a_newcomer_sees_three(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys)
    assert status == 0
    for command in ("shoal run", "shoal sweep", "shoal results"):
        assert command in out


def test_a_defect_is_one_line_and_no_traceback(
    source: FakeSource, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "runs", lambda *a: 1 / 0)
    status, out, err = run(capsys, "ps")
    assert (status, out) == (70, "")
    assert err.startswith("shoal: internal error: ZeroDivisionError")
    assert err.count("\n") == 1
    monkeypatch.setenv("SHOAL_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        invoke(["ps"])


def test_commands_are_loaded_only_when_used() -> None:
    assert set(COMMANDS) == set(cli.list_commands(None))  # type: ignore[arg-type]  # the context is not looked at
