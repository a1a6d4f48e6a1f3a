"""What survives kill -9, SIGSTOP, lost replies and outages: real processes, killed in the middle of real work.

Every test proves that its fault happened before it looks at what came of it. SHOAL_PROVE=1 runs larger counts.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.db.reader import Reader
from shoal.model.errors import Refused, Unreachable
from shoal.model.file_names import DATABASE, LOGS, SERVER_FILE, environment_name
from tests.integration import patient_server
from tests.integration.cluster import (
    PATIENCE,
    Cluster,
    Json,
    PilotProcess,
    clean_env,
    files_below,
    free_port,
    insist,
    is_dead,
    processes_with,
    scan,
    state_of,
)
from tests.integration.fault_proxy import Fate, FaultProxy, Message

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
PROVE = os.environ.get("SHOAL_PROVE") == "1"
SHOAL = str(Path(sys.executable).with_name("shoal"))
CALM = {"lease": 30.0, "quarantine": 20.0}  # for tests in which nobody may be given up, however busy the machine


def appending(path: Path, **more: Any) -> Json:
    """A short command that adds its attempt to a file: one line, one write, at the end."""
    return {"command": ["/bin/sh", "-c", 'echo "$SHOAL_ATTEMPT" >> "$0"', str(path)], **more}


def starts(path: Path) -> Counter[str]:
    """How often each task was started, by the lines it wrote."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return Counter(line.partition("#")[0] for line in text.splitlines())


def once(run: int, total: int) -> Counter[str]:
    """Every task of a run exactly once."""
    return Counter(f"r{run}.{element}" for element in range(1, total + 1))


@contextlib.contextmanager
def proxied(cluster: Cluster) -> Iterator[tuple[FaultProxy, Path]]:
    """A proxy before the cluster's server, and the server file of a pilot that goes through it."""
    proxy = FaultProxy(cluster.address()["url"])
    file = cluster.folder / "proxied.json"
    file.touch(0o600)
    file.write_text(json.dumps({**cluster.address(), "url": proxy.url}), encoding="utf-8")
    try:
        yield proxy, file
    finally:
        for pilot in cluster.pilots:
            if pilot.is_alive:
                pilot.process.kill()
                pilot.process.wait(10.0)
        proxy.close()


class PatientCluster(Cluster):
    """A cluster whose server waits long for the write lock of its database."""

    def server_argv(self, *more: str, state: Path | None = None) -> list[str]:
        """The same server, started by the script that makes it wait."""
        python, *words = super().server_argv(*more, state=state)
        return [python, patient_server.__file__, *words]


@pytest.fixture
def patient(tmp_path: Path, pilot_zip: Path) -> Iterator[PatientCluster]:
    """Such a cluster, ended and checked for leaks."""
    made = PatientCluster(tmp_path / "cluster", pilot_zip)
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def commits_held(cluster: PatientCluster) -> Iterator[None]:
    """Nothing becomes durable in here: the database's write lock is ours."""
    with contextlib.closing(sqlite3.connect(cluster.state / DATABASE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


# --- the server is killed
@pytest.mark.slow
def test_server_killed_in_the_middle_of_5000_commands_records_each_once_and_reruns_nothing(cluster: Cluster) -> None:
    (total, kills), lines = ((20_000, 10) if PROVE else (5_000, 2)), cluster.cwd / "lines"
    cluster.timing |= CALM
    cluster.start_server()
    pilots = [cluster.start_pilot(2) for _ in range(2)]
    run = cluster.submit(appending(lines, array=f"1-{total}", retries=3))
    rng, part = random.Random(2), total // (kills + 1)
    for kill in range(1, kills + 1):
        cluster.wait_succeeded(run, kill * part + rng.randrange(part // 2), 240)
        cluster.kill_server()
        assert cluster.succeeded(run) < total  # in the middle
        assert all(pilot.is_alive for pilot in pilots)
        cluster.start_server()  # what they had ran on without a server
    assert cluster.wait_run(run, 240) == {"succeeded": total}
    assert len(cluster.events("server_started")) == kills + 1
    cluster.check_recorded_once(run, total)
    assert starts(lines) == once(run, total)
    assert not cluster.events("task_retried", "task_lost_pilot", "task_returned", "report_refused")
    # The living pilots were kept: the same processes under the same names, never given up, never enrolled again.
    assert len(cluster.events("pilot_joined")) == 2 and not cluster.events("pilot_gone")
    for pilot in pilots:
        assert pilot.is_alive and len(pilot.names) == 1
        assert cluster.pilot_row(pilot.name)["state"] in ("idle", "busy")


def test_running_tasks_of_every_kind_outlive_a_killed_server(cluster: Cluster) -> None:
    cluster.timing |= {**CALM, "hold": 30.0}
    gate = cluster.cwd / "gate"
    cluster.start_server()
    pilot = cluster.start_pilot(3)
    run = cluster.submit(*(cluster.telling(gate, rerun=rerun) for rerun in ("safe", "exclusive", "never")))
    cluster.wait_running(run, (1, 2, 3))
    cluster.until(lambda: len(cluster.lives()) == 3, "all have told of themselves")
    before = {life.pid for life in cluster.lives()}
    cluster.kill_server()
    assert len(before) == 3 and not any(map(is_dead, before))
    gate.touch()  # they end while there is nobody to tell
    cluster.until(lambda: all(map(is_dead, before)), "the payloads end")
    cluster.start_server()
    assert cluster.wait_run(run) == {"succeeded": 3}
    cluster.check_recorded_once(run, 3)
    assert {life.pid for life in cluster.lives()} == before
    assert [row["attempt"] for row in cluster.rows(run)] == [1, 1, 1] and pilot.is_alive


@pytest.mark.slow
def test_submissions_answered_exist_once_whenever_the_server_is_killed(cluster: Cluster) -> None:
    rounds, clients, rng = (60 if PROVE else 5), 3, random.Random(5)
    cluster.timing |= CALM
    lines = cluster.cwd / "lines"
    cluster.start_server()
    cluster.start_pilot(2)
    over, fresh, give_up = threading.Event(), threading.Event(), time.monotonic() + 500.0
    answered: dict[str, str] = {}
    broken: list[BaseException] = []
    interrupted = [0] * clients

    def submit_steadily(who: int) -> None:
        try:
            for number in range(100_000):
                if over.is_set():
                    return
                body = cluster.submission(appending(lines, array="1-2"), key=f"key-{who}-{number}")
                said, tries = insist(cluster.client, body, give_up)
                answered[body["key"]] = said["run"]
                fresh.set()
                interrupted[who] += tries > 1
                time.sleep(0.01)
        except BaseException as error:
            broken.append(error)

    threads = [threading.Thread(target=submit_steadily, args=(who,), daemon=True) for who in range(clients)]
    for thread in threads:
        thread.start()
    for _ in range(rounds):
        fresh.clear()
        assert fresh.wait(60) or broken, "submissions go on"
        time.sleep(rng.uniform(0.2, 1.0))  # the moment of the kill is the point
        cluster.kill_server()
        cluster.start_server()
    over.set()
    for thread in threads:
        thread.join(60.0)
        assert not thread.is_alive(), f"a submission gets no answer\n{cluster.story()}"
    assert not broken, broken
    assert len(cluster.events("server_started")) == rounds + 1
    with Reader(cluster.state / DATABASE) as reader:
        runs: list[Json] = []
        while page := reader.runs(limit=1_000, before=runs[-1]["run"] if runs else None):
            runs += page
    by_key = {row["key"]: f"r{row['run']}" for row in runs}
    assert len(by_key) == len(runs)  # no key made two runs
    assert by_key == answered and len(answered) >= rounds
    assert sum(interrupted) >= rounds // 2, interrupted
    # The same again is the same run, also after the last restart.
    for key in [*list(answered)[:3], *rng.sample(sorted(answered), 5)]:
        body = cluster.submission(appending(lines, array="1-2"), key=key)
        said, _ = insist(cluster.client, body, time.monotonic() + 30)
        assert (said["run"], said["again"]) == (answered[key], True)
    for row in runs:
        assert cluster.wait_run(row["run"], 240) == {"succeeded": 2}
    finals = Counter((event["run"], event["task"]) for event in cluster.events("task_finished"))
    assert finals == Counter((row["run"], element) for row in runs for element in (1, 2))
    # A copy leased in the uncommitted gap may run twice [protocol 10]; no task may be missing.
    assert set(starts(lines)) == {f"r{run}.{element}" for run, element in finals}


def crash_in_a_submission(cluster: PatientCluster, rerun: str = "exclusive") -> None:
    """Kill the server while a submission waits for its commit, and if it may begin before that, when it has begun;
    restart it."""
    failed: list[Exception] = []

    def submit() -> None:
        try:
            cluster.submit({**cluster.telling(0.0), "rerun": rerun})
        except (Unreachable, Refused) as error:
            failed.append(error)

    with commits_held(cluster):
        thread = threading.Thread(target=submit, daemon=True)
        thread.start()
        number = 2 if rerun == "safe" else 1
        cluster.until(lambda: (cluster.state / environment_name(number)).exists(), "the submission is there")
        if rerun == "safe":
            cluster.until(lambda: any(life.task == "r2.1" for life in cluster.lives()), "its task has begun")
        end = time.monotonic() + 0.7
        while rerun != "safe" and time.monotonic() < end:  # that nothing happens takes its time
            assert not cluster.lives()
            time.sleep(0.02)
        cluster.kill_server()
    thread.join(30.0)
    assert len(failed) == 1 and isinstance(failed[0], Unreachable)
    cluster.start_server()


@pytest.mark.parametrize("rerun", ["exclusive", "never"])
def test_nothing_that_must_not_run_twice_is_started_before_its_submission_is_durable(
    patient: PatientCluster, rerun: str
) -> None:
    cluster = patient
    cluster.timing |= CALM
    cluster.start_server()
    cluster.start_pilot(1)
    crash_in_a_submission(cluster, rerun)
    run = cluster.submit(cluster.telling(0.0))
    assert run == 1 and cluster.wait_run(run) == {"succeeded": 1}
    assert len(cluster.lives()) == 1


def test_what_began_of_a_submission_that_never_became_durable_counts_for_nobody(patient: PatientCluster) -> None:
    """A crash gives an uncommitted run's number to other work [ADR 0034]."""
    cluster = patient
    cluster.timing |= CALM
    cluster.start_server()
    cluster.start_pilot(1)
    assert cluster.wait_run(cluster.submit(cluster.telling(0.0))) == {"succeeded": 1}
    time.sleep(0.5)  # until the pilot waits for work again
    crash_in_a_submission(cluster, "safe")
    run = cluster.submit(cluster.telling(0.0))
    assert run == 2 and cluster.wait_run(run) == {"succeeded": 1}
    assert [(event["run"], event["task"]) for event in cluster.events("task_finished")] == [(1, 1), (2, 1)]
    assert len(cluster.lives()) == 3, "it ran again, for the run that was accepted"


def test_environment_of_a_submission_that_never_became_durable_is_nobodys(patient: PatientCluster) -> None:
    cluster = patient
    cluster.timing |= CALM
    cluster.start_server()
    cluster.start_pilot(1)
    crash_in_a_submission(cluster)
    body = cluster.submission({"command": ["/usr/bin/env"]})
    assert "CLUSTER" in body.pop("environment")  # so the run that never was had it, and this one has none
    with cluster.client() as client:
        assert client.submit(body)["run"] == "r1"
        assert cluster.wait_run(1) == {"succeeded": 1}
        said = client.logs("r1.1").data.decode()
    assert "SHOAL_RUN=r1" in said and "CLUSTER=" not in said


def test_key_repeated_before_the_commit_takes_nobodys_environment(patient: PatientCluster) -> None:
    cluster = patient
    cluster.timing |= CALM
    cluster.start_server()
    answers: dict[str, str] = {}

    def submit(who: str, key: str) -> None:
        with cluster.client() as client:
            answers[who] = client.submit(cluster.submission(cluster.telling(0.0), key=key))["run"]

    threads = [threading.Thread(target=submit, args=pair, daemon=True) for pair in (("first", "k"), ("again", "k"))]
    threads.append(threading.Thread(target=submit, args=("other", "other"), daemon=True))
    with commits_held(cluster):
        threads[0].start()
        cluster.until(lambda: mark(cluster, 1), "the first is there")
        threads[1].start()
        time.sleep(0.3)  # the repeated one need not leave a trace to wait for
        before = mark(cluster, 2)
        threads[2].start()
        cluster.until(lambda: mark(cluster, 2) != before, "the other is there")
        assert not answers  # all of them wait for one commit
    for thread in threads:
        thread.join(30.0)
    assert answers == {"first": "r1", "again": "r1", "other": "r2"}
    assert (cluster.state / environment_name(1)).exists()
    assert (cluster.state / environment_name(2)).exists()


def mark(cluster: Cluster, run: int) -> tuple[int, ...]:
    """Which file holds a run's environment just now."""
    with contextlib.suppress(FileNotFoundError):
        found = (cluster.state / environment_name(run)).stat()
        return found.st_ino, found.st_mtime_ns
    return ()


def test_copy_born_in_the_uncommitted_gap_is_adopted_and_not_run_again(patient: PatientCluster) -> None:
    """A safe lease is sent before it is durable [protocol 10]: the held list tells the next server of it."""
    cluster = patient
    cluster.timing |= CALM
    gate, locked = cluster.cwd / "gate", threading.Event()
    cluster.start_server()

    def hold_back(request: Message) -> Fate:
        assert "exchange" not in request.path or locked.wait(60)
        return Fate.PASS

    with proxied(cluster) as (proxy, file):
        proxy.on_request = hold_back
        pilot = cluster.start_pilot(1, server_file=file)
        run = cluster.submit(cluster.telling(gate))
        with commits_held(cluster):
            locked.set()
            life = cluster.wait_start(f"r{run}.1")
            cluster.kill_server()
        assert not cluster.row(run) and not cluster.events("tasks_leased")  # truly uncommitted
        proxy.target = cluster.start_server()
        adopted = cluster.until(lambda: cluster.events("task_adopted"), "the living copy is adopted")
        gate.touch()
        assert cluster.wait_run(run) == {"succeeded": 1}
        assert adopted[0]["data"]["how"] == "living copy" and pilot.is_alive
        cluster.check_recorded_once(run, 1)
        assert [copy.pid for copy in cluster.lives()] == [life.pid]


# --- a pilot is killed
def begin_one_of_each(cluster: Cluster) -> tuple[PilotProcess, PilotProcess, int]:
    """A pilot that runs a safe, an exclusive and a never task, and another that is free."""
    cluster.start_server()
    first = cluster.start_pilot(3)
    waits = "60,0.1"
    safe, exclusive = (cluster.telling(waits, rerun=rerun, retries=2) for rerun in ("safe", "exclusive"))
    run = cluster.submit(safe, exclusive, cluster.telling(waits, rerun="never"))
    cluster.wait_running(run, (1, 2, 3))
    for element in (1, 2, 3):
        cluster.wait_start(f"r{run}.{element}")
    return first, cluster.start_pilot(3), run


def check_one_of_each(cluster: Cluster, run: int, killed_at: float, other: str, lost: str) -> None:
    """Safe ran elsewhere, by the word of the other pilot on this host or after the lease; exclusive alone after its hold,
    never is lost; nothing was burnt."""
    t = cluster.timing
    counts = cluster.wait_run(run)
    assert counts == {"succeeded": 2, "lost": 1}
    safe, exclusive, never = cluster.rows(run)
    assert (safe["state"], safe["attempt"], safe["retries"], safe["pilot"]) == ("succeeded", 2, 0, other)
    assert (exclusive["state"], exclusive["attempt"], exclusive["retries"]) == ("succeeded", 2, 0)
    assert (never["state"], never["attempt"], never["cause"]) == ("lost", 1, "pilot_lost")
    after = {life.task: life.start - killed_at for life in cluster.lives() if life.attempt == 2}
    assert after[f"r{run}.1"] < t["lease"] + PATIENCE
    assert t["hold"] + t["margin"] - 6 * t["beat"] < after[f"r{run}.2"] < t["hold"] + PATIENCE
    assert set(after) == {f"r{run}.1", f"r{run}.2"}
    assert Counter(event["task"] for event in cluster.events("task_finished", run=run)) == Counter([1, 2, 3])
    # The journal tells the story.
    told = [(e["kind"], e["task"], e["data"].get("next")) for e in cluster.events("task_lost_pilot", run=run)]
    assert sorted(told) == [
        ("task_lost_pilot", 1, "ready again"),
        ("task_lost_pilot", 2, "ready again"),
        ("task_lost_pilot", 2, "waits for its hold to end"),
        ("task_lost_pilot", 3, "waits for its hold to end"),
    ]
    gone = {e["pilot"]: e["data"]["reason"] for e in cluster.events("pilot_gone")}
    assert gone.keys() == {lost} and gone[lost].startswith(("silent for", f"its process is gone, says {other}"))


@pytest.mark.slow
def test_killed_pilot_safe_runs_elsewhere_exclusive_after_its_hold_never_is_lost(cluster: Cluster) -> None:
    first, second, run = begin_one_of_each(cluster)
    pids = [life.pid for life in cluster.lives()]
    lost = first.name
    killed_at = time.monotonic()
    first.kill()
    cluster.until(lambda: all(map(is_dead, pids)), "its guard ends its tasks")
    cluster.until(lambda: not any(first.work.iterdir()), "its guard removes its directory")
    check_one_of_each(cluster, run, killed_at, second.name, lost)
    assert all(life.alone for life in cluster.lives())


@pytest.mark.slow
@pytest.mark.parametrize("victims", ["group", "pilot and guard"])
def test_pilot_killed_with_its_guard_leaves_no_second_copy_of_an_exclusive_task(cluster: Cluster, victims: str) -> None:
    first, second, run = begin_one_of_each(cluster)
    lives, lost, guard = cluster.lives(), first.name, first.guard
    killed_at = time.monotonic()
    try:
        if victims == "group":
            first.kill_group()
        else:
            first.stop()  # so that neither sees the other die
            os.kill(guard, signal.SIGKILL)
            first.kill()
            cluster.until(lambda: is_dead(guard), "the guard is dead too")
        check_one_of_each(cluster, run, killed_at, second.name, lost)
        assert [life.alone for life in cluster.lives(f"r{run}.2")] == [True, True]
        watched = lives if victims == "group" else [life for life in lives if life.task == f"r{run}.2"]
        assert all(is_dead(life.pid) for life in watched), "tasks run on that nobody watches"
    finally:
        for life in lives:
            with contextlib.suppress(ProcessLookupError):
                os.kill(life.pid, signal.SIGKILL)


@pytest.mark.slow
def test_guard_killed_alone_ends_its_tasks_and_nothing_is_burnt(cluster: Cluster) -> None:
    first, second, run = begin_one_of_each(cluster)
    pids = [life.pid for life in cluster.lives()]
    os.kill(first.guard, signal.SIGKILL)
    cluster.until(lambda: all(map(is_dead, pids)), "no task goes on without a guard")
    assert cluster.wait_run(run) == {"succeeded": 2, "lost": 1}
    assert first.process.wait(30) == 3  # this host is unfit
    rows = cluster.rows(run)
    assert [row["retries"] for row in rows] == [0, 0, 0] and rows[2]["state"] == "lost"
    assert {row["pilot"] for row in rows[:2]} == {second.name}
    assert all(life.alone for life in cluster.lives())


# --- a pilot is frozen
@pytest.mark.slow
def test_frozen_pilot_comes_back_after_another_finished_and_each_is_recorded_once(cluster: Cluster) -> None:
    gate = cluster.cwd / "gate"
    cluster.start_server()
    frozen = cluster.start_pilot(2)
    # Both end under the frozen pilot. Of the first the other pilot's copy ends before the thaw, of the second after.
    run = cluster.submit(cluster.telling("1,0.1"), cluster.telling(f"1,{gate}"))
    cluster.wait_running(run, (1, 2))
    frozen.stop()
    cluster.until(lambda: state_of(frozen.pid) == "T", "the pilot is frozen")
    cluster.until(lambda: all(life.end for life in cluster.lives()), "its payloads end under it")
    assert len(cluster.lives()) == 2
    other = cluster.start_pilot(2)
    cluster.until(lambda: cluster.row(run, 1)["state"] == "succeeded", "another finishes the first")
    second = cluster.wait_start(f"r{run}.2", copies=2)
    assert state_of(frozen.pid) == "T" and [e["pilot"] for e in cluster.events("pilot_gone")] == [frozen.name]
    frozen.cont()
    assert cluster.wait_run(run) == {"succeeded": 2}
    cluster.until(lambda: is_dead(second.pid), "the copy that is not needed is ended")
    first_row, second_row = cluster.rows(run)
    assert (first_row["attempt"], first_row["pilot"]) == (2, other.name)
    assert second_row["winner"].startswith("1@") and second_row["pilot"] == frozen.name
    assert [(e["task"], e["data"]["how"]) for e in cluster.events("task_adopted")] == [(2, "late success")]
    cluster.check_recorded_once(run, 2)
    # It has a new name, says who it was, and works on.
    assert len(frozen.names) == 2 and frozen.names[0] in cluster.pilot_row(frozen.names[1])["former"]
    with cluster.client() as client:
        client.drain([other.name])
    assert other.process.wait(30) == 0
    more = cluster.submit(cluster.telling(0.0), cluster.telling(0.0))
    assert cluster.wait_run(more) == {"succeeded": 2}
    assert {row["pilot"] for row in cluster.rows(more)} == {frozen.name}


@pytest.mark.slow
def test_exclusive_task_of_a_frozen_pilot_is_ended_by_the_guard_before_another_starts(cluster: Cluster) -> None:
    t = cluster.timing
    cluster.start_server()
    frozen = cluster.start_pilot(1)
    run = cluster.submit(cluster.telling("60,0.3", rerun="exclusive", retries=1))
    cluster.wait_running(run)
    life = cluster.wait_start(f"r{run}.1")
    cluster.start_pilot(1)
    stopped_at = time.monotonic()
    frozen.stop()
    cluster.until(lambda: state_of(frozen.pid) == "T", "the pilot is frozen")
    cluster.until(lambda: is_dead(life.pid), "its guard ends the exclusive task")
    dead_at = time.monotonic()
    # It counts from the sending of the last exchange that was answered: two beats before, some more on a busy machine.
    assert 0.8 * t["hold"] - 6 * t["beat"] < dead_at - stopped_at
    second = cluster.wait_start(f"r{run}.1", copies=2)
    assert second.alone and second.start - stopped_at > t["hold"] + t["margin"] - 6 * t["beat"]
    assert cluster.wait_run(run) == {"succeeded": 1}
    assert state_of(frozen.pid) == "T"
    frozen.cont()
    cluster.until(lambda: len(frozen.names) == 2, "the thawed pilot enrols again")
    frozen.process.terminate()
    assert frozen.process.wait(30) == 0  # it has told of the end of its copy, which changed nothing
    row = cluster.row(run)
    assert (row["state"], row["attempt"], row["retries"]) == ("succeeded", 2, 0)
    cluster.check_recorded_once(run, 1)
    assert [life.attempt for life in cluster.lives()] == [1, 2]


@pytest.mark.slow
def test_exclusive_copy_on_a_host_that_was_frozen_whole_is_dead_soon_after_the_thaw(cluster: Cluster) -> None:
    gate = cluster.cwd / "gate"
    cluster.start_server()
    frozen = cluster.start_pilot(1)
    run = cluster.submit(cluster.telling(f"60,{gate}", rerun="exclusive"))
    cluster.wait_running(run)
    old = cluster.wait_start(f"r{run}.1")
    cluster.start_pilot(1)
    host = [frozen.pid, frozen.guard, old.pid]
    for pid in host:
        os.kill(pid, signal.SIGSTOP)
    cluster.until(lambda: all(state_of(pid) == "T" for pid in host), "the host is frozen")
    new = cluster.wait_start(f"r{run}.1", copies=2)
    thawed_at = time.monotonic()
    for pid in host:
        with contextlib.suppress(ProcessLookupError):  # the guard may be quicker than we
            os.kill(pid, signal.SIGCONT)
    cluster.until(lambda: is_dead(old.pid), "the old copy ends, long before its own end after a minute")
    assert time.monotonic() - thawed_at < 30.0 and not is_dead(new.pid)
    gate.touch()
    assert cluster.wait_run(run) == {"succeeded": 1}
    assert cluster.row(run)["attempt"] == 2 and old.pid != new.pid


@pytest.mark.slow
def test_lease_that_reached_a_pilot_after_its_hold_is_not_started(cluster: Cluster) -> None:
    """The lease of an exclusive or never task is its start: one that was read too late must not be."""
    cluster.timing |= {"beat": 3.0, "suspect": 4.0, "lease": 5.0, "hold": 5.0}
    lines, gate = cluster.cwd / "lines", cluster.cwd / "gate"
    cluster.start_server()
    append = ["/bin/sh", "-c", 'echo "$SHOAL_ATTEMPT" >> "$0"; while [ ! -e "$1" ]; do sleep 0.05; done']
    command = [*append, str(lines), str(gate)]
    asked: dict[int, float] = {}  # exchanges without an answer, and since when

    def on_request(request: Message) -> Fate:
        if "exchange" in request.path:
            asked[request.json()["seq"]] = time.monotonic()
        return Fate.PASS

    def on_reply(request: Message, reply: Message) -> Fate:
        asked.pop(request.json().get("seq", 0), None)
        return Fate.PASS

    def is_parked() -> bool:
        # Not answered at once, and not about to be.
        return any(0.3 < time.monotonic() - since < 1.0 for since in list(asked.values()))

    with proxied(cluster) as (proxy, file):
        proxy.on_request, proxy.on_reply = on_request, on_reply
        frozen = cluster.start_pilot(2, server_file=file)
        cluster.until(is_parked, "the pilot's exchange waits at the server")
        # The reply with the leases will lie in the socket of the frozen one.
        frozen.stop()
        cluster.until(lambda: state_of(frozen.pid) == "T", "the pilot is frozen")
        run = cluster.submit({"command": command, "rerun": "exclusive"}, {"command": command, "rerun": "never"})
        cluster.until(lambda: cluster.events("tasks_leased"), "the leases are sent")
        assert not starts(lines)
        other = cluster.start_pilot(2)
        cluster.until(lambda: cluster.row(run, 2)["state"] == "lost", "never is lost")
        cluster.until(lambda: starts(lines), "exclusive starts elsewhere")
        assert cluster.row(run, 1)["pilot"] == other.name
        frozen.cont()
        cluster.until(lambda: len(frozen.names) == 2, "the thawed pilot enrols again")
        with cluster.client() as client:
            client.drain([frozen.name])
        cluster.until(lambda: not frozen.is_alive, "the thawed pilot has nothing more to do")
        gate.touch()
        cluster.wait_run(run)
        assert cluster.row(run, 2)["state"] == "lost"
        assert lines.read_text(encoding="utf-8").split() == [f"r{run}.1#2"]  # nothing of attempt 1 ever ran


# --- the network
@pytest.mark.slow
def test_lost_replies_lose_no_lease_and_run_nothing_twice(cluster: Cluster) -> None:
    total, lines = (3_000 if PROVE else 400), cluster.cwd / "lines"
    cluster.timing |= CALM
    cluster.start_server()
    dropped: Counter[tuple[str, int]] = Counter()
    sessions: set[str] = set()

    def drop_leases(request: Message, reply: Message) -> Fate:
        """Each third reply that carries leases is lost: once, twice or three times running."""
        said = request.json()
        sessions.update([said["session"]] if "session" in said else [])
        key = (said.get("pilot", ""), said.get("seq", 0))
        if reply.json().get("leases") and key[1] % 3 == 0 and dropped[key] < 1 + key[1] % 9 // 3:
            dropped[key] += 1
            return Fate.DROP_REPLY
        return Fate.PASS

    with proxied(cluster) as (proxy, file):
        proxy.on_reply = drop_leases
        pilot = cluster.start_pilot(2, server_file=file)
        tasks = [appending(lines, rerun=rerun, array=f"1-{n}") for rerun, n in (("exclusive", 10), ("never", 10))]
        run = cluster.submit(*tasks, appending(lines, array=f"1-{total - 20}"))
        assert cluster.wait_run(run, 300) == {"succeeded": total}
        assert proxy.counts[Fate.DROP_REPLY] == dropped.total() >= 5
        assert max(dropped.values()) >= 2  # the same one, again and again
        cluster.check_recorded_once(run, total)
        assert starts(lines) == once(run, total)
        assert {row["attempt"] for row in cluster.rows(run)} == {1}
        assert pilot.is_alive and len(pilot.names) == 1 and len(sessions) == 1
        assert not cluster.events("task_lost_pilot", "task_returned", "task_adopted", "report_refused")
    # What pilot and server know each other by is nowhere but in their memory.
    assert scan(files_below(cluster.folder), sessions.pop()) == []


@pytest.mark.slow
def test_requests_cut_and_delivered_twice_change_nothing(cluster: Cluster) -> None:
    total, lines = (6_000 if PROVE else 700), cluster.cwd / "lines"
    cluster.timing |= CALM
    cluster.start_server()
    rng, lock = random.Random(4), threading.Lock()
    tried: Counter[int] = Counter()

    def choose(*fates: Fate) -> Fate:
        with lock:
            return rng.choice([Fate.PASS, Fate.PASS, *fates])

    def on_request(request: Message) -> Fate:
        said = request.json()
        if not (said.get("reports") or said.get("batches")):
            return Fate.PASS
        with lock:
            tried[said["seq"]] += 1
        return choose(Fate.TWICE, Fate.CUT_REQUEST) if tried[said["seq"]] < 3 else Fate.PASS

    def on_reply(request: Message, reply: Message) -> Fate:
        said = request.json()
        if (said.get("reports") or said.get("batches")) and tried[said["seq"]] < 3:
            time.sleep(rng.uniform(0.0, 0.1))  # so that replies overtake each other
            return choose(Fate.CUT_REPLY, Fate.DROP_REPLY)
        return Fate.PASS

    with proxied(cluster) as (proxy, file):
        proxy.on_request, proxy.on_reply = on_request, on_reply
        pilot = cluster.start_pilot(2, server_file=file)
        tasks = [appending(lines, array="1-20") for _ in range(total // 20)]  # so that many reports travel
        run = cluster.submit(*tasks)
        cluster.wait_succeeded(run, total // 2, 240)
        proxy.cut()  # both lines at once
        assert cluster.wait_run(run, 300) == {"succeeded": total}
        happened = {fate: proxy.counts[fate] for fate in Fate}
        assert all(happened.values()), happened
        cluster.check_recorded_once(run, total)
        assert starts(lines) == once(run, total)
        assert {row["attempt"] for row in cluster.rows(run)} == {1}
        assert len(pilot.names) == 1


# --- refusals at the start
def refused(argv: list[str]) -> str:
    """What a server that must not start says: one line, exit status 3."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd="/", env=clean_env(), check=False)
    assert (done.returncode, done.stdout) == (3, ""), done
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("shoal server: "), done.stderr
    return done.stderr


def test_server_that_must_not_start_says_so_in_one_line(cluster: Cluster) -> None:
    port = free_port()
    cluster.start_server("--listen", f"127.0.0.1:{port}")
    assert f"in use by another server (process {cluster.server_pid})" in refused(cluster.server_argv())
    other = cluster.folder / "other"
    assert f"127.0.0.1:{port} cannot be listened on: Address already in use" in refused(
        cluster.server_argv("--listen", f"127.0.0.1:{port}", state=other)
    )
    assert not (other / SERVER_FILE).exists()
    wrong = cluster.folder / "wrong"
    wrong.mkdir(0o700)
    text = b"this is not a database, but long enough to be taken for one\n" * 100
    (wrong / DATABASE).write_bytes(text)
    assert "is not a database" in refused(cluster.server_argv(state=wrong))
    assert (wrong / DATABASE).read_bytes() == text
    # The one that was there first has noticed nothing, and the free state directory can be had.
    run = cluster.submit(cluster.telling(0.0))
    cluster.start_pilot(1)
    assert cluster.wait_run(run) == {"succeeded": 1}
    cluster.stop_server()
    assert "is not a database" in refused(cluster.server_argv(state=wrong))


# --- drain and outage
@pytest.mark.parametrize("how", ["order", "signal"])
def test_drained_pilot_finishes_what_runs_gives_back_the_rest_and_leaves_nothing(cluster: Cluster, how: str) -> None:
    total, lines, gate = 150, cluster.cwd / "lines", cluster.cwd / "gate"
    cluster.timing |= CALM
    cluster.start_server()
    pilot = cluster.start_pilot(2)
    long = cluster.submit(cluster.telling(gate, priority=5))
    cluster.wait_running(long)
    short = ["/bin/sh", "-c", 'echo "$SHOAL_ATTEMPT" >> "$0"; sleep 0.03', str(lines)]
    run = cluster.submit({"command": short, "array": f"1-{total}"})
    cluster.wait_succeeded(run, 20)  # by now short tasks are fetched ahead
    if how == "order":
        with cluster.client() as client:
            assert client.drain([pilot.name]) == {"pilots": 1}
    else:
        pilot.process.terminate()
    returned = cluster.until(lambda: cluster.events("task_returned", run=run), "unstarted tasks come back")
    assert not any(event["data"]["started"] for event in returned)
    assert pilot.is_alive and cluster.row(long)["state"] == "running"
    assert cluster.succeeded(run) < total
    gate.touch()
    assert pilot.process.wait(30) == 0
    assert not [pid for pid, _ in processes_with(str(pilot.work))]
    assert not any(pilot.work.iterdir())
    assert cluster.wait_run(long) == {"succeeded": 1}
    assert cluster.row(long)["attempt"] == 1 and len(cluster.lives()) == 1
    row = cluster.pilot_row(pilot.name)
    assert row["state"] == "gone" and ("drained" if how == "order" else "SIGTERM") in row["reason"]
    assert not cluster.events("task_lost_pilot")
    cluster.start_pilot(2)
    assert cluster.wait_run(run) == {"succeeded": total}
    cluster.check_recorded_once(run, total)
    assert starts(lines) == once(run, total)


@pytest.mark.slow
def test_idle_pilot_ends_in_a_long_outage_and_one_with_reports_keeps_them(cluster: Cluster) -> None:
    # Longer than the longest pause between a pilot's tries (5 s).
    cluster.timing |= {**CALM, "quarantine": 3.0, "idle_end": 6.0}
    gate = cluster.cwd / "gate"
    cluster.start_server()
    busy = cluster.start_pilot(1)
    run = cluster.submit(cluster.telling(gate))
    cluster.wait_running(run)
    idle = cluster.start_pilot(1)
    stopped_at = time.monotonic()
    cluster.stop_server()
    gate.touch()
    life = cluster.until(lambda: [life for life in cluster.lives() if life.end], "the payload ends")[0]
    assert life.end is not None and life.end > stopped_at
    assert idle.process.wait(60) == 4
    assert time.monotonic() - stopped_at > cluster.timing["idle_end"] - 3 * cluster.timing["beat"]
    assert "no contact with the server" in idle.log.read_text(encoding="utf-8")
    assert not any(idle.work.iterdir())
    while time.monotonic() - stopped_at < 1.5 * cluster.timing["idle_end"]:
        assert busy.is_alive  # it has something to say, and waits
        time.sleep(0.05)
    assert cluster.row(run)["state"] == "running"
    cluster.start_server()
    assert cluster.wait_run(run) == {"succeeded": 1}
    assert cluster.row(run)["attempt"] == 1 and len(cluster.lives()) == 1 and len(busy.names) == 1
    cluster.check_recorded_once(run, 1)
    more = cluster.submit(cluster.telling(0.0))
    assert cluster.wait_run(more) == {"succeeded": 1}
    assert cluster.row(more)["pilot"] == busy.name


# --- the embedded server
class Home:
    """A person's directory with an embedded server's state in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state, self.cwd = folder, folder / "state" / "shoal", folder / "cwd"
        self.cwd.mkdir(parents=True)
        self.env = {**clean_env(), "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A shoal command in the background."""
        return subprocess.Popen(
            [SHOAL, *words], cwd=self.cwd, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    def run(self, *words: str) -> str:
        """A shoal command that must succeed."""
        with self.start(*words) as child:
            out, _ = child.communicate(timeout=120)
        assert child.returncode == 0, out
        return out

    def pid(self, name: str) -> int:
        """The process of the server or of its pilot; 0 if it is not known (yet)."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            text = (self.state / name).read_text(encoding="utf-8")
            return int(json.loads(text)["pid"] if name == SERVER_FILE else text)
        return 0


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A home; what was started for it is ended and nothing is left."""
    made = Home(tmp_path / "home")
    yield made
    with made.start("server", "stop", "--pilots") as child:
        out, _ = child.communicate(timeout=120)
    end = time.monotonic() + 15.0
    while (left := dict(processes_with(str(made.folder)))) and time.monotonic() < end:
        time.sleep(0.05)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, (left, out)


def wait_for(condition: Callable[[], Any], what: str, within: float = 60.0) -> None:
    """Wait until something is true."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, f"not within {within:g} s: {what}"
        time.sleep(0.02)


@pytest.mark.slow
def test_shoal_run_waits_through_kills_of_the_embedded_server(home: Home) -> None:
    total, lines = 60, home.cwd / "lines"
    script = f'echo "$SHOAL_ATTEMPT" >> {lines}; sleep 0.15'

    def kill_server_at(count: int) -> int:
        wait_for(lambda: starts(lines).total() >= count, f"{count} tasks run")
        server, pilot = home.pid(SERVER_FILE), home.pid("pilot.pid")
        os.kill(server, signal.SIGKILL)
        wait_for(lambda: is_dead(server), "the server dies")
        assert starts(lines).total() < total and not is_dead(pilot)
        wait_for(lambda: home.pid(SERVER_FILE) not in (0, server), "another server")
        return pilot

    with home.start("run", "--array", f"1-{total}", "--", "/bin/sh", "-c", script) as child:
        pilots = [kill_server_at(part * total // 4) for part in (1, 2)]
        out, _ = child.communicate(timeout=240)
    assert child.returncode == 0, out
    assert out.count("started again") == 2 and "Traceback" not in out, out
    assert starts(lines) == once(1, total)
    assert {home.pid("pilot.pid"), *pilots} == {pilots[0]}  # the same pilot all the time
    with Reader(home.state / DATABASE) as reader:
        finals = Counter(e["task"] for e in reader.events(after=0, run=1, kinds=["task_finished"]))
        rows = reader.tasks(1)
    assert finals == Counter(range(1, total + 1))
    assert {(row["state"], row["retries"]) for row in rows} == {("succeeded", 0)}
    # Each ran once. After a kill first attempts begin one number higher: the one below may have been handed out.
    numbers = [row["attempt"] for row in rows]
    assert numbers == sorted(numbers) and 1 == numbers[0] < numbers[-1] <= 3


@pytest.mark.slow
def test_shoal_run_goes_on_with_a_new_pilot_when_its_own_is_killed(home: Home) -> None:
    total, lines = 30, home.cwd / "lines"
    script = f'echo "$SHOAL_ATTEMPT" >> {lines}; sleep 0.2'
    with home.start("run", "--array", f"1-{total}", "--", "/bin/sh", "-c", script) as child:
        wait_for(lambda: starts(lines).total() >= 5, "tasks run")
        pilot = home.pid("pilot.pid")
        os.kill(pilot, signal.SIGKILL)
        wait_for(lambda: is_dead(pilot), "the pilot dies")
        out, _ = child.communicate(timeout=240)
    assert child.returncode == 0, out
    assert home.pid("pilot.pid") != pilot
    with Reader(home.state / DATABASE) as reader:
        rows = reader.tasks(1)
        finals = Counter(e["task"] for e in reader.events(after=0, run=1, kinds=["task_finished"]))
        gone = reader.events(after=0, kinds=["pilot_gone"])
    assert finals == Counter(range(1, total + 1))
    assert {(row["state"], row["retries"]) for row in rows} == {("succeeded", 0)}
    assert f"its process {pilot} is gone" in [event["data"]["reason"] for event in gone]
    # Only what the dead pilot held was begun twice, and at least one of that was running.
    again = {f"r1.{row['element']}" for row in rows if row["attempt"] == 2}
    assert {row["attempt"] for row in rows} == {1, 2}
    assert {task for task, count in starts(lines).items() if count > 1} <= again
    assert set(starts(lines)) == set(once(1, total))


# --- secrets
def test_token_and_environment_are_kept_where_only_their_owner_reads(cluster: Cluster) -> None:
    cluster.timing |= CALM
    gate = cluster.cwd / "gate"
    cluster.start_server()
    token = cluster.address()["token"]
    assert len(token) > 32
    cluster.start_pilot(2, "--verbose")
    environment = {"PATH": os.environ["PATH"], "MINE": "kept-for-me", "SHOAL_TOKEN": token, "SHOAL_SERVER": "x"}
    body = {**cluster.submission(cluster.telling(gate), cluster.telling(gate, cwd="own")), "environment": environment}
    with cluster.client() as client:
        run = int(client.submit(body)["run"][1:])
    kept = cluster.state / environment_name(run)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 and stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert json.loads(kept.read_text(encoding="utf-8")) == {"PATH": os.environ["PATH"], "MINE": "kept-for-me"}
    cluster.wait_running(run, (1, 2))
    # A refused call, a crash and a restart give it more chances to end up somewhere.
    with cluster.client() as client:
        client._transport._token = token[:-1]
        with pytest.raises(Refused, match="missing, wrong or expired"):
            client.server()
    cluster.kill_server()
    cluster.start_server("--durability", "normal")
    assert cluster.address()["token"] == token
    wait_for(lambda: len(cluster.lives()) == 2, "both run")
    for life in cluster.lives():
        names = dict(
            entry.split(b"=", 1)
            for entry in Path(f"/proc/{life.pid}/environ").read_bytes().split(b"\0")
            if b"=" in entry
        )
        assert names[b"MINE"] == b"kept-for-me" and b"SHOAL_TOKEN" not in names and b"SHOAL_SERVER" not in names
    assert processes_holding(token) == []
    gate.touch()
    assert cluster.wait_run(run) == {"succeeded": 2}
    cluster.kill_server()  # what is in the database's log stays there
    allowed = {cluster.state / SERVER_FILE, cluster.state / "token"}
    assert set(scan(files_below(cluster.folder), token)) == allowed
    assert (cluster.state / f"{DATABASE}-wal").stat().st_size > 0
    for path in [cluster.state, *cluster.state.rglob("*")]:
        # The zip of the pilot, which the server may just have built, is no secret.
        assert path.name == "pilot.pyz" or path.stat().st_mode & 0o077 == 0, f"{path} is open to others"
    assert scan(cluster.state.glob(f"{DATABASE}*"), "kept-for-me") == []  # environments are not in the database
    # Retention takes the logs; the environment stays as private as it was, for a retry needs it.
    cluster.start_server()
    assert (cluster.state / LOGS / f"r{run}").exists()
    with cluster.client() as client:
        client.prune(0.001, 1 << 30)
    assert not (cluster.state / LOGS / f"r{run}").exists()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def processes_holding(token: str) -> list[str]:
    """Processes that show the token in their command line or environment."""
    return [line for _, line in processes_with(token)]
