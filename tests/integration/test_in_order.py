"""A person's work kept in order, on real servers and pilots: set, copy, rm, files, peek, and the ends of pilots."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import shoal
from shoal.cli.main import invoke
from tests.integration.cluster import PATIENCE, Cluster

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit status."""

    status: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """Standard output."""
        return self.out.decode()


Type = Callable[..., Said]


@pytest.fixture
def type_(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Type:
    """A running server, and a person who types commands to it."""
    cluster.start_server()

    def type_command(*words: str) -> Said:
        address = cluster.address()
        monkeypatch.setenv("SHOAL_SERVER", address["url"])
        monkeypatch.setenv("SHOAL_TOKEN", address["token"])
        capfdbinary.readouterr()
        status = invoke(words)
        out, err = capfdbinary.readouterr()
        return Said(status, out, err.decode().removeprefix("shoal: ").rstrip("\n"))

    return type_command


def test_files_and_peek_show_what_a_running_task_has_written_and_nothing_else(cluster: Cluster, type_: Type) -> None:
    secret, large = cluster.folder / "secret", cluster.folder / "large"
    secret.write_text("not for you")
    large.write_bytes(os.urandom(700_000))  # three answers of the pilot
    script = f"mkdir out; cp {large} out/large; ln -s {secret} away; echo working; echo done > ready; exec sleep 1000"
    run = cluster.submit({"shell": script, "cwd": "own"}, {"command": ["true"], "cores": 99}, {"command": ["true"]})
    cluster.start_pilot(2)
    cluster.wait_running(run)
    task = f"r{run}.1"
    cluster.until(lambda: "ready" in type_("files", task).text, "the task has written its files")
    assert {line.split()[0] for line in type_("files", task).text.splitlines()[1:]} == {"away@", "out/", "ready"}
    assert type_("peek", task, "out/large").out == large.read_bytes()
    assert type_("peek", task, "out/large", "--tail", "1K").out == large.read_bytes()[-1024:]
    assert type_("peek", task).out == b"working\n"
    listing = json.loads(type_("files", task, "out", "--json").text)
    assert [(entry["name"], entry["size"]) for entry in listing["entries"]] == [("large", 700_000)]

    away = type_("peek", task, "away")
    leads = f"{task}: away is a link that leads out of the task's directory, to {str(secret)[:40]}"
    assert (away.status, away.out, away.err[: len(leads)]) == (3, b"", leads)
    assert type_("peek", task, "../../../secret").err.endswith(
        f"leads out of the task's directory (see `shoal files {task}`)"
    )
    waits = type_("files", f"r{run}.2")
    assert (waits.status, waits.err) == (3, f"r{run}.2 has not started yet: it is ready (see `shoal why r{run}.2`)")
    cluster.until(lambda: cluster.row(run, 3).get("state") == "succeeded", "the third task is done")
    over = type_("peek", f"r{run}.3", "x").err
    assert over.startswith(f"r{run}.3 is over (succeeded): what it left is in {cluster.cwd}"), over


def test_a_peek_that_follows_ends_with_the_task(cluster: Cluster, type_: Type) -> None:
    go = cluster.folder / "go"
    script = f"echo one > log; while [ ! -e {go} ]; do sleep 0.1; done; echo two >> log; sleep 2.5"
    run = cluster.submit({"shell": script, "cwd": "own"})
    cluster.start_pilot()
    cluster.wait_running(run)
    go.touch()
    said = type_("peek", f"r{run}.1", "log", "--follow")
    assert (said.status, said.text) == (0, "one\ntwo\n")
    assert "over" in said.err or "does not run" in said.err


@pytest.mark.skipif(not os.environ.get("SHOAL_PROVE"), reason="waits ten seconds for a frozen pilot: SHOAL_PROVE=1")
def test_a_pilot_that_does_not_answer_is_named(cluster: Cluster, type_: Type) -> None:
    cluster.stop_server()
    cluster.timing |= {"lease": 300.0, "hold": 400.0}
    cluster.start_server()
    run = cluster.submit({"command": ["sleep", "1000"]})
    pilot = cluster.start_pilot()
    cluster.wait_running(run)
    pilot.stop()
    try:
        said = type_("files", f"r{run}.1")
    finally:
        pilot.cont()
    assert said.status == 4
    assert re.fullmatch(rf"pilot {pilot.name} on \S+ did not answer within 10 s \(it is frozen, .*\)", said.err)


def test_set_puts_a_run_first_and_the_change_outlives_the_server(cluster: Cluster, type_: Type) -> None:
    go = cluster.folder / "go"
    first = cluster.submit(cluster.telling(go))
    cluster.start_pilot(1)
    cluster.wait_start(f"r{first}.1")
    later, sooner, never = (cluster.submit(cluster.telling(cores=99, array="1-2")) for _ in range(3))
    assert "needs 99 cores" in type_("why", f"r{sooner}.1").text
    assert type_("set", f"r{later}", f"r{sooner}", "--cores", "1").text == "4 tasks changed\n"
    assert type_("set", f"r{sooner}.2", "--priority", "9").text == "1 task changed\n"
    assert type_("set", f"r{sooner}", "--priority", "0.5", "--time", "1h").text == "2 tasks changed\n"
    assert type_("set", f"r{sooner}.2", "--priority", "9").text == "1 task changed\n"
    assert type_("set", f"r{first}", "--memory", "1G").text == "0 tasks changed, 1 had begun and keeps its own\n"
    assert "needs 99 cores" not in type_("why", f"r{sooner}.1").text
    cluster.kill_server()
    cluster.start_server()
    go.touch()
    for run in (first, later, sooner):
        assert set(cluster.wait_run(run)) == {"succeeded"}
    order = [life.task for life in cluster.lives()]
    assert order == [f"r{first}.1", f"r{sooner}.2", f"r{sooner}.1", f"r{later}.1", f"r{later}.2"]
    assert cluster.row(never) == {}
    changes = [event["data"]["fields"] for event in cluster.events("tasks_changed", run=sooner)]
    assert {"priority": 0.5, "time": "1h"} in changes
    assert type_("set", f"r{first}", "--priority", "1").err.startswith(f"r{first} is over: nothing of it is queued")


def test_copy_runs_what_failed_with_changes_and_rm_leaves_the_accounts(cluster: Cluster, type_: Type) -> None:
    task = {"shell": '[ {x} != 2 ] || [ -n "$OK" ]; code=$?; echo $OK {x}; exit $code', "params": {"x": "1..3"}}
    run = cluster.submit(task, name="first")
    cluster.start_pilot(2)
    assert cluster.wait_run(run) == {"succeeded": 2, "failed": 1}
    copied = type_("copy", f"r{run}", "--only", "failed", "--env", "OK=fine", "--memory", "1G")
    assert (copied.status, copied.text) == (0, f"r{run + 1}\n"), copied
    assert copied.err == f"r{run + 1} has 1 task of r{run}"
    assert cluster.wait_run(run + 1) == {"succeeded": 1}
    assert cluster.row(run + 1)["last_line"] == "fine 2"
    assert cluster.run_row(run + 1)["name"] == "first"
    (table,) = cluster.run_row(run + 1)["arrays"]
    assert table["task"]["memory"] == "1G"

    open_run = cluster.submit({"command": ["true"], "cores": 99})
    refused = type_("rm", f"r{run}", f"r{open_run}", "--yes")
    assert refused.err == f"r{open_run} is not over: 1 task to go (`shoal cancel r{open_run}` ends it)"
    spent = type_("acct", "--json").text
    logs, environment = cluster.state / "logs" / f"r{run}", cluster.state / "env" / f"r{run}.json"
    assert logs.is_dir() and environment.is_file()
    removed = type_("rm", f"r{run}")
    assert re.fullmatch(rf"r{run} removed \(3 tasks, .* of logs\)\n", removed.text), removed
    assert not logs.exists() and not environment.exists()
    assert type_("show", f"r{run}").err == f"there is no run r{run} (see `shoal ps`)"
    assert lines(type_("acct", "--json").text) == lines(spent)
    type_("cancel", f"r{open_run}")
    assert type_("rm", f"r{open_run}").status == 0
    cluster.kill_server()
    cluster.start_server()
    assert cluster.submit({"command": ["true"]}) == open_run + 1, (
        "the highest number was removed, and is not used again"
    )
    seqs = [event["seq"] for event in cluster.events()]
    assert seqs == list(range(1, len(seqs) + 1))


def lines(document: str) -> list[tuple[str, float, int]]:
    """The accounts of `shoal acct --json`, without what changes with time."""
    return [(line["owner"], line["useful"], line["tasks"]) for line in json.loads(document)["rows"]]


def test_a_run_whose_results_another_shows_is_not_removed_alone(cluster: Cluster, type_: Type) -> None:
    cluster.start_pilot()
    first = cluster.submit({"command": ["echo", "x"]}, seed=1)
    cluster.wait_run(first)
    with cluster.client() as client:
        again = int(client.submit(cluster.submission({"command": ["echo", "x"]}, seed=1, resume=True))["run"][1:])
    cluster.wait_run(again)
    assert cluster.row(again)["reused"] == f"r{first}.1"
    said = type_("rm", f"r{first}").err
    assert said.startswith(f"r{again} took over results of r{first} (--resume)"), said
    assert type_("rm", "--yes", f"r{first}", f"r{again}").status == 0


def test_a_drained_pilot_finishes_and_ends_and_a_stopped_one_gives_back(cluster: Cluster, type_: Type) -> None:
    go = cluster.folder / "go"
    one = cluster.start_pilot(1)
    run = cluster.submit(cluster.telling(go))
    cluster.wait_running(run)
    assert type_("pilot", "drain", f"{one.name[:4]}*").text == "1 pilot told to finish and end\n"
    held = cluster.submit(cluster.telling("1000,0"))
    cluster.until(lambda: cluster.pilot_row(one.name)["state"] == "draining", "it drains")
    assert one.is_alive and not cluster.lives(f"r{held}.1"), "it finishes what runs, and takes nothing new"
    go.touch()
    assert one.process.wait(PATIENCE) == 0
    assert cluster.wait_run(run) == {"succeeded": 1}

    two = cluster.start_pilot(1)
    cluster.wait_running(held)
    said = type_("pilot", "stop", "--site", "local", "--deadline", "1s")
    assert said.text == "1 pilot told to stop, what still runs in 1.0s is stopped\n"
    assert two.process.wait(PATIENCE) == 0
    cluster.start_pilot(1)
    assert cluster.wait_run(held) == {"succeeded": 1}
    assert cluster.row(held)["retries"] == 0, "it was given back, and has not failed"
    assert type_("pilot", "drain", "p0123").err == "no pilot p0123 is connected (see `shoal pilots`)"


def test_a_pilot_with_a_lifetime_takes_what_can_end_in_time_and_ends_by_itself(cluster: Cluster, type_: Type) -> None:
    pilot = cluster.start_pilot(2, "--lifetime", "14")
    long, short = (cluster.submit(cluster.telling(time=limit)) for limit in (600, 1))
    assert cluster.wait_run(short) == {"succeeded": 1}
    why = type_("why", f"r{long}.1").text
    assert "ends" in why or "time" in why, why
    assert pilot.process.wait(PATIENCE) == 0
    assert "its lifetime ends in" in pilot.log.read_text()
    assert cluster.lives(f"r{long}.1") == []


def slow_square(number: int, tale: str) -> int:
    """Say that it began, and count."""
    with Path(tale).open("a", encoding="utf-8") as file:
        file.write(f"{number}\n")
    return number * number


def test_a_run_picks_the_next_task_for_a_free_slot(cluster: Cluster, type_: Type) -> None:
    type_("server", "status")  # sets the environment for the executor
    cluster.start_pilot(1, "--tag", "disk=ssd")
    tale = str(cluster.folder / "order")

    class LargestFirst(shoal.Run):
        def __init__(self) -> None:
            self.pilots: list[object] = []
            self.total = 0

        def start(self) -> None:
            for number in (2, 5, 3, 9, 4):
                self.submit(slow_square, number, tale).tag = number

        def choose(self, waiting: list[shoal.Task], pilot: dict[str, object]) -> shoal.Task | None:
            self.pilots.append(pilot.get("disk"))
            if any(task.tag == 4 for task in waiting) and len(waiting) == 1:
                assert waiting[0].cancel()
                return None
            return max(waiting, key=lambda task: int(task.tag))

        def done(self, task: shoal.Task) -> None:
            self.total += task.value

        def result(self) -> int:
            return self.total

    run = LargestFirst()
    assert run.execute() == 81 + 25 + 16 + 9 + 4
    assert Path(tale).read_text().split() == ["9", "5", "4", "3", "2"]
    assert set(run.pilots) == {"ssd"}


def test_a_name_does_wherever_a_run_or_task_is_asked_for(cluster: Cluster, type_: Type) -> None:
    assert type_("submit", "--name", "train", "--cores", "99", "--", "true").status == 0
    assert type_("set", "train", "--priority", "5").text == "1 task changed\n"
    assert type_("set", "train.1", "--priority", "6").text == "1 task changed\n"
    copied = type_("copy", "train", "--name", "again")
    assert copied.text == "r2\n"
    assert "r1.1 has not started yet" in type_("files", "train.1").err
    assert "r1.1 has not started yet" in type_("peek", "train.1", "x").err
    assert type_("cancel", "train").status == 0
    assert type_("rm", "train").text.startswith("r1 removed")
