"""What goes wrong at a batch system: the terminal says why within seconds, or the run recovers; nothing is lost or left."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.batch.daemons import find
from tests.integration.batch.grid_engine import GridEngine
from tests.integration.batch.person import Person
from tests.integration.batch.slurm import ACCOUNT, SlurmCluster
from tests.integration.batch.sshd import SshServer
from tests.integration.cluster import PROVE, free_port

pytestmark = [pytest.mark.integration, pytest.mark.slow]
# The promise is 10 s on a machine that is not busy; tests share theirs with others.
SOON = 10.0 if PROVE else 90.0
# Like sbatch, but its answer comes late: the moment in which a submission can be interrupted.
LATE_SBATCH = """#!/bin/sh
answer=$({sbatch} "$@") || exit
touch {mark}
sleep 8
printf '%s\\n' "$answer"
"""


def of_slurm(person: Callable[..., Person], slurm: SlurmCluster, tmp_path: Path, *more: str) -> Person:
    """A person with a site `hpc`."""
    anna = person(**{name: value for name, value in slurm.env.items() if name.startswith(("SLURM", "PATH"))})
    add(anna, tmp_path, "--max-pilots", "2", *more)
    return anna


def add(anna: Person, tmp_path: Path, *more: str, account: str = ACCOUNT, name: str = "hpc") -> None:
    anna.shoal(
        "site", "add", name, "slurm://", "--account", account, "--cores", "1", "--no-test",
        "--directory", str(tmp_path / name), *more,
    )  # fmt: skip


def waiting(slurm: SlurmCluster) -> set[str]:
    """Jobs that wait or run."""
    return {job for job, (state, _) in slurm.squeue().items() if state in ("PENDING", "RUNNING")}


def test_partition_and_account_that_slurm_does_not_allow_are_told_in_its_words(
    person: Callable[..., Person], slurm: SlurmCluster, tmp_path: Path
) -> None:
    anna, took = of_slurm(person, slurm, tmp_path), {}
    anna.shoal("ps")
    slurm.set_partition(MaxTime="2")  # it was an hour when the site was added
    line, took["partition limit"] = anna.until_said("PartitionTimeLimit", "run", "--site", "hpc", "--", "true")
    assert "hpc" in line
    assert "PartitionTimeLimit" in anna.shoal("why", "site:hpc")
    assert "PartitionTimeLimit" in anna.shoal("site", "list")
    anna.shoal("cancel", "r1")
    anna.wait_for(lambda: not waiting(slurm))
    slurm.set_partition(MaxTime="60", State="DRAIN")
    _, took["drained partition"] = anna.until_said("inactive or drain", "run", "--site", "hpc", "--", "true")
    slurm.set_partition(State="UP")
    anna.wait_for(lambda: "succeeded" in anna.shoal("wait", "r2", status=None))  # it goes on without anybody's help
    add(anna, tmp_path, account="nosuch", name="wrong")
    _, took["bad account"] = anna.until_said("Invalid account", "run", "--site", "wrong", "--", "true")
    anna.shoal("cancel", "r3")
    print("seconds until the reason was in the terminal:", {name: round(one, 1) for name, one in took.items()})
    assert max(took.values()) < SOON, took
    for site in ("hpc", "wrong"):
        assert "nothing of it runs" in anna.shoal("site", "remove", site)
    assert not waiting(slurm)


def test_a_controller_that_is_down_is_told_and_the_run_recovers(
    person: Callable[..., Person], slurm: SlurmCluster, tmp_path: Path
) -> None:
    if not PROVE:
        pytest.skip("a restart in the middle is in test_sites.py: SHOAL_PROVE=1 does this one, too")
    anna = of_slurm(person, slurm, tmp_path)
    slurm.end_controller()
    line, took = anna.until_said("slurm", "run", "--site", "hpc", "--", "true")
    print(f"seconds until the reason was in the terminal: {took:.1f}: {line.strip()}")
    assert "hpc" in line and took < 3 * SOON  # its commands try for some seconds themselves
    slurm.restart_controller()
    assert "succeeded" in anna.shoal("wait", "r1")
    anna.wait_for(lambda: not waiting(slurm))


def test_allocations_that_are_cancelled_lose_no_task_and_count_none_twice(
    person: Callable[..., Person], slurm: SlurmCluster, tmp_path: Path
) -> None:
    """[promise I2] [promise I3] [promise I6] with real allocations, killed by `scancel` in the middle of their tasks."""
    anna = of_slurm(person, slurm, tmp_path)
    ledger = anna.work / "ledger"  # a line when a task begins, and one when it ends
    count, kills = (60, 6) if PROVE else (12, 2)
    task = f"echo begin $1 $2 >>{ledger}; sleep 1; echo end $1 $2 >>{ledger}"
    for kind in ("safe", "never"):
        anna.shoal(
            "submit", "--site", "hpc", "--rerun", kind, f"x=1..{count}", "--", "sh", "-c", task, "sh", kind, "{x}"
        )
    seen: set[str] = set()

    def busy() -> set[str]:
        """Jobs whose pilot came: without pilots that never came the site need not rest for a minute."""
        came = {one["id"] for one in anna.ledger("hpc") if one["pilots"]}
        return (waiting(slurm) & came) - seen

    for _ in range(kills):
        anna.wait_for(lambda: in_the_middle(ledger) and busy())
        jobs = busy()
        seen.update(jobs)
        slurm.run("scancel", *jobs)
        ledger.with_name("mark").write_text(ledger.read_text())
    for run in ("r1", "r2"):
        anna.shoal("wait", run, status=None)
    safe, never = (anna.json("show", run)["counts"] for run in ("r1", "r2"))
    lines = Counter(tuple(line.split()) for line in ledger.read_text().splitlines())
    assert safe["succeeded"] == count, "no safe task is lost, and none fails for the sake of its allocation"
    rows = {
        run: [json.loads(line) for line in anna.shoal("results", run, "--json").splitlines()] for run in ("r1", "r2")
    }
    assert [row["x"] for row in rows["r1"]] == list(range(1, count + 1)), "each is counted once"
    assert all(lines["end", "safe", str(x)] >= 1 for x in range(1, count + 1))
    assert all(lines["begin", "never", str(x)] <= 1 for x in range(1, count + 1)), "never twice"
    ended = {row["x"] for row in rows["r2"] if row["state"] == "succeeded"}
    assert ended == {x for x in range(1, count + 1) if lines["end", "never", str(x)]}
    assert {row["state"] for row in rows["r2"]} <= {"succeeded", "lost"}, Counter(row["state"] for row in rows["r2"])
    assert never["succeeded"] + never.get("lost", 0) == count
    anna.wait_for(lambda: not waiting(slurm))


def in_the_middle(ledger: Path) -> bool:
    """True while a task has begun and not ended, of those that began since the last allocations were killed."""
    if not ledger.exists():
        return False
    mark = ledger.with_name("mark")
    text = ledger.read_text()[len(mark.read_text()) if mark.exists() else 0 :]
    return text.count("begin") > text.count("end")


def test_a_submission_that_was_interrupted_is_not_forgotten(
    person: Callable[..., Person], slurm: SlurmCluster, tmp_path: Path
) -> None:
    folder, mark = tmp_path / "bin", tmp_path / "submitted"
    folder.mkdir()
    (folder / "sbatch").write_text(LATE_SBATCH.format(sbatch=find("sbatch"), mark=mark))
    (folder / "sbatch").chmod(stat.S_IRWXU)
    anna = of_slurm(person, slurm, tmp_path, "--max-queued", "1", "--max-pilots", "1")
    usual = anna.env["PATH"]
    anna.env["PATH"] = f"{folder}:{usual}"
    anna.shoal("submit", "--site", "hpc", "--", "sh", "-c", f"echo once >>{anna.work}/ledger; sleep 2")
    anna.wait_for(mark.exists)
    anna.kill_provisioner()  # Slurm has the job, and nobody was told its number
    anna.env["PATH"] = usual
    assert "succeeded" in anna.shoal("wait", "r1")
    assert (anna.work / "ledger").read_text() == "once\n"
    assert len(slurm.squeue(f"--name={name_of(anna, slurm)}")) == 1, "it was recognised, so no other was asked for"
    assert "nothing of it runs" in anna.shoal("site", "remove", "hpc")
    assert not waiting(slurm)


def name_of(anna: Person, slurm: SlurmCluster) -> str:
    """The names of all allocations of this person, as squeue takes them."""
    word = json.loads((anna.provision / "sites.json").read_text())["word"]
    names = slurm.run("squeue", "-h", "-t", "all", "-o", "%j").stdout.split()
    return ",".join(sorted({name for name in names if word in name}))


def test_pilots_of_running_allocations_come_back_to_a_server_that_was_killed(
    person: Callable[..., Person], slurm: SlurmCluster, ssh_server: Callable[..., SshServer], tmp_path: Path
) -> None:
    login, anna = ssh_server(env=slurm.settings), person()
    anna.shoal(
        "site", "add", "hpc", "slurm+ssh://login", "--ssh-config", str(login.client_config()), "--account", ACCOUNT,
        "--cores", "1", "--max-pilots", "2", "--no-test", "--directory", str(tmp_path / "hpc"),
    )  # fmt: skip
    ledger = anna.work / "ledger"
    run = anna.start("sweep", "--site", "hpc", "x=1..16", "--", "sh", "-c", f"echo {{x}} >>{ledger}; sleep 1")
    anna.wait_for(lambda: ledger.exists() and len(waiting(slurm)) == 2)
    before = waiting(slurm)
    server = json.loads((anna.folder / "state" / "shoal" / "server.json").read_text())["pid"]
    os.kill(server, signal.SIGKILL)
    said, _ = run.communicate(timeout=150)
    assert run.returncode == 0, said + anna.story()
    assert "it was started again and the run goes on" in said
    assert Counter(ledger.read_text().split()) == Counter(map(str, range(1, 17))), "nothing ran again"
    used = {line.split()[1] for line in slurm.run("squeue", "-h", "-t", "all", "-o", "%i %i").stdout.splitlines()}
    assert before <= used
    anna.wait_for(lambda: not waiting(slurm))


def test_a_site_is_for_its_owners_tasks_only(
    person: Callable[..., Person], slurm: SlurmCluster, tmp_path: Path
) -> None:
    """Two people with one server: each has their own provisioner, and Anna's allocations never run Bert's tasks."""
    env = {name: value for name, value in slurm.env.items() if name.startswith(("SLURM", "PATH"))}
    keeper, anna, bert, port = person(), person(**env), person(**env), free_port()
    keeper.shoal("server", "start", "--listen", f"127.0.0.1:{port}")
    for name, one in (("anna", anna), ("bert", bert)):
        keeper.shoal("user", "add", name)
        token = next(word for word in keeper.shoal("token", "new", "--user", name).split() if word.count("#") == 2)
        one.shoal("login", "-", stdin=token)
    add(anna, tmp_path, "--max-pilots", "1", name="annas")
    ledger = tmp_path / "ledger"
    task = ("sh", "-c", f"echo {{x}} $SLURM_JOB_ID >>{ledger}; sleep 0.2")
    theirs = run_of(bert.shoal("submit", "x=1..4", "--", *task))
    mine = anna.shoal("sweep", "x=11..14", "--", *task)
    assert "4 succeeded" in mine
    assert {line.split()[0] for line in ledger.read_text().splitlines()} == {"11", "12", "13", "14"}
    assert "no pilot is connected" in bert.shoal("why", theirs)
    said = bert.shoal("submit", "--site", "annas", "--", "true", status=3)
    assert "there is no site 'annas'" in said, "naming it does not help, and tells nothing of Anna"
    add(bert, tmp_path, "--max-pilots", "1", name="berts")
    assert "4 succeeded" in bert.shoal("wait", theirs)
    assert sorted(int(line.split()[0]) for line in ledger.read_text().splitlines()) == [1, 2, 3, 4, 11, 12, 13, 14]
    for name, one in (("annas", anna), ("berts", bert)):
        assert "nothing of it runs" in one.shoal("site", "remove", name)
    assert not waiting(slurm)


def run_of(said: str) -> str:
    """The run that `submit` printed."""
    return next(line for line in said.splitlines() if re.fullmatch(r"r\d+", line))


def test_a_sweep_runs_on_grid_engine_as_a_person_would_do_it(
    person: Callable[..., Person], grid_engine: GridEngine, tmp_path: Path
) -> None:
    anna = person(**grid_engine.settings, PATH=grid_engine.env["PATH"])
    said = anna.shoal(
        "site", "add", "ge", "sge://", "--cores", "1", "--max-pilots", "2", "--directory", str(tmp_path / "ge")
    )
    assert "test pilot" in said
    ledger = anna.work / "ledger"
    said = anna.shoal("sweep", "--site", "ge", "x=1..20", "--", "sh", "-c", f"echo {{x}} >>{ledger}; sleep 0.1")
    assert "20 succeeded" in said
    assert sorted(map(int, ledger.read_text().split())) == list(range(1, 21))
    anna.wait_for(lambda: not grid_engine.qstat())
    assert "nothing of it runs" in anna.shoal("site", "remove", "ge")


def test_nothing_is_asked_again_and_again_of_a_partition_that_stays_closed(
    person: Callable[..., Person], slurm: SlurmCluster, tmp_path: Path
) -> None:
    """Unlimited waits: what waits is not multiplied, and says its reason for as long as it waits."""
    if not PROVE:
        pytest.skip("a minute of waiting: SHOAL_PROVE=1 does it")
    anna = of_slurm(person, slurm, tmp_path)
    slurm.set_partition(State="DOWN")
    anna.shoal("submit", "--site", "hpc", "x=1..50", "--", "true")
    anna.wait_for(lambda: "PartitionDown" in anna.shoal("why", "site:hpc"))
    jobs = waiting(slurm)
    assert len(jobs) == 2
    time.sleep(60.0)
    assert waiting(slurm) == jobs and "PartitionDown" in anna.shoal("why", "site:hpc")
    slurm.set_partition(State="UP")
    assert "50 succeeded" in anna.shoal("wait", "r1")


def test_a_site_goes_on_after_its_ssh_server_was_away_for_a_moment(
    person: Callable[..., Person], ssh_server: Callable[..., SshServer], tmp_path: Path
) -> None:
    sshd, anna = ssh_server(), person()
    config = str(sshd.client_config())
    anna.shoal(
        "site", "add", "box", "ssh://box", "--ssh-config", config, "--cores", "1", "--max-pilots", "1", "--no-test",
        "--directory", str(tmp_path / "box"),
    )  # fmt: skip
    ledger = tmp_path / "ledger"
    run = anna.start("sweep", "--site", "box", "x=1..6", "--", "sh", "-c", f"sleep 1; echo {{x}} >>{ledger}")
    anna.wait_for(lambda: any(one["id"] for one in anna.ledger("box")))
    sshd.down()  # with every connection
    time.sleep(4.0)
    sshd.restart()
    said, _ = run.communicate(timeout=180)
    assert run.returncode == 0, f"{said}\n{anna.story()}"
    assert set(ledger.read_text().split()) == {"1", "2", "3", "4", "5", "6"}
