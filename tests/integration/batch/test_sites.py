"""Sites as a person uses them: `shoal site add`, a sweep, and nothing left behind. Real systems, real processes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.batch.person import Person
from tests.integration.batch.slurm import ACCOUNT, SlurmCluster
from tests.integration.batch.sshd import SshServer

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def of_slurm(person: Callable[..., Person], slurm: SlurmCluster) -> Person:
    return person(**{name: value for name, value in slurm.env.items() if name.startswith(("SLURM", "PATH"))})


def left(slurm: SlurmCluster) -> set[str]:
    """Jobs that wait or run."""
    return {job for job, (state, _) in slurm.squeue().items() if state in ("PENDING", "RUNNING")}


def test_a_sweep_runs_on_slurm_and_gives_everything_back(person: Callable[..., Person], slurm: SlurmCluster) -> None:
    anna = of_slurm(person, slurm)
    said = anna.shoal("site", "add", "hpc", "slurm://", "--account", ACCOUNT, "--cores", "1", "--max-pilots", "4")
    assert "test pilot" in said
    assert "site hpc is used from now on" in said
    ledger = anna.work / "ledger"
    said = anna.shoal("sweep", "--site", "hpc", "x=1..500", "--", "sh", "-c", f"echo {{x}} >>{ledger}")
    assert "500 succeeded" in said
    assert sorted(map(int, ledger.read_text().split())) == list(range(1, 501))
    assert [row["site"] for row in anna.json("acct", "--by", "site")["rows"] if row["tasks"]] == ["hpc"]
    anna.wait_for(lambda: not left(slurm))  # released when nothing waits


def test_slurm_refuses_an_account_and_the_terminal_says_why(person: Callable[..., Person], slurm: SlurmCluster) -> None:
    anna = of_slurm(person, slurm)
    said = anna.shoal("site", "add", "hpc", "slurm://", "--account", "nosuch", status=3, within=30.0)
    assert "Invalid account or account/partition combination specified" in said
    assert not left(slurm)


def test_the_reason_of_the_batch_system_is_in_the_terminal(person: Callable[..., Person], slurm: SlurmCluster) -> None:
    anna = of_slurm(person, slurm)
    slurm.set_qos_limit("MaxJobsPerUser", 1)
    other = slurm.sbatch("sleep 600")
    slurm.wait_state(other, "RUNNING")
    anna.shoal("site", "add", "hpc", "slurm://", "--account", ACCOUNT, "--cores", "1", "--no-test")
    run = anna.start("run", "--site", "hpc", "--", "true")
    assert run.stdout is not None
    line = next(text for text in run.stdout if "nothing runs" in text and "QOSMaxJobsPerUserLimit" in text)
    assert "hpc: 1 allocation waits" in line
    run.kill()
    run.communicate()
    assert "QOSMaxJobsPerUserLimit" in anna.shoal("why", "site:hpc")
    anna.shoal("cancel", "r1")
    assert "nothing of it runs" in anna.shoal("site", "remove", "hpc")
    anna.wait_for(lambda: left(slurm) == {other})


def test_a_controller_that_restarts_loses_no_work(person: Callable[..., Person], slurm: SlurmCluster) -> None:
    anna = of_slurm(person, slurm)
    anna.shoal("site", "add", "hpc", "slurm://", "--account", ACCOUNT, "--cores", "1", "--max-pilots", "2", "--no-test")
    ledger = anna.work / "ledger"
    run = anna.start("sweep", "--site", "hpc", "x=1..10", "--", "sh", "-c", f"sleep 1; echo {{x}} >>{ledger}")
    anna.wait_for(lambda: ledger.exists())
    slurm.restart_controller()
    said, _ = run.communicate(timeout=150)
    assert run.returncode == 0, said
    assert set(map(int, ledger.read_text().split())) == set(range(1, 11))
    anna.wait_for(lambda: not left(slurm))


def test_no_allocation_is_forgotten_after_a_kill(person: Callable[..., Person], slurm: SlurmCluster) -> None:
    anna = of_slurm(person, slurm)
    anna.shoal("site", "add", "hpc", "slurm://", "--account", ACCOUNT, "--cores", "1", "--max-pilots", "2", "--no-test")
    run = anna.shoal("submit", "--site", "hpc", "--", "sleep", "600")
    assert "r1" in run
    anna.wait_for(lambda: bool(left(slurm)))
    anna.kill_provisioner()
    for file in (anna.provision / "allocations").glob("hpc.json"):
        file.unlink()  # even its own memory is lost: the batch system knows them by name
    assert "nothing of it runs" in anna.shoal("site", "remove", "hpc")
    assert not left(slurm)


def test_a_box_over_ssh_runs_tasks(person: Callable[..., Person], ssh_server: Callable[..., SshServer]) -> None:
    sshd, anna = ssh_server(), person()
    config = str(sshd.client_config())
    said = anna.shoal("site", "add", "box", "ssh://login", "--ssh-config", config, "--cores", "2", "--max-pilots", "1")
    assert "its pilots reach the server by a tunnel over ssh" in said
    assert "test pilot" in said
    said = anna.shoal("run", "--site", "box", "--cwd", "own", "--", "echo", "from the box")
    assert "from the box" in said
    assert re.search(r"box +ssh://login", anna.shoal("site", "list"))
    assert "nothing of it runs" in anna.shoal("site", "remove", "box")


def test_tickets_and_keys_are_in_no_argument_and_no_environment(
    person: Callable[..., Person], ssh_server: Callable[..., SshServer]
) -> None:
    sshd, anna = ssh_server(), person()
    config = str(sshd.client_config())
    anna.shoal("site", "add", "box", "ssh://login", "--ssh-config", config, "--cores", "1")
    seen = b""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            for name in ("cmdline", "environ"):
                try:
                    seen += (entry / name).read_bytes()
                except OSError:
                    continue
    assert b"shoal_enr_" not in seen
    assert b"shoal_rel_" not in seen
    folder = Path(anna.json("site", "show", "box")["directory"])
    for file in folder.iterdir():
        assert file.stat().st_mode & 0o077 == 0
        assert file.suffix in (".ticket", ".pyz") or not re.search(rb"shoal_(enr|rel|sub)_", file.read_bytes())


def test_a_wrong_site_is_one_clear_line(person: Callable[..., Person]) -> None:
    anna = person()
    for words, text in (
        (("add", "x", "slrum://"), "no backend slrum"),
        (("add", "x", "ssh://nosuchhost.invalid"), "nosuchhost.invalid"),
        (("add", "x", "slurm://", "--account", "a\n#SBATCH --uid=0"), "account"),
        (("add", "x", "slurm://", "--budget", "many"), "core hours"),
        (("add", "Root Box", "local://"), "cannot be a name"),
        (("show", "nowhere"), "you have no site"),
        (("remove", "nowhere"), "you have no site"),
        (("ban", "nowhere"), "you have no site"),
    ):
        said = anna.shoal("site", *words, status=None)
        assert text in said, said
        assert "Traceback" not in said


def test_a_budget_is_never_crossed(person: Callable[..., Person]) -> None:
    anna = person()
    anna.shoal("site", "add", "here", "local://", "--cores", "1", "--time", "1h", "--budget", "1.5ch", "--no-test")
    anna.shoal("submit", "--site", "here", "--array", "1-50", "--", "sleep", "600")
    anna.wait_for(lambda: "budget" in anna.shoal("why", "site:here"))
    row = anna.json("site", "show", "here")
    assert 0.0 < row["used_core_hours"] + row["reserved_core_hours"] <= 1.5
    assert sum(one["seconds"] * one["cores"] for one in anna.ledger("here")) <= 1.5 * 3600.0
    anna.shoal("site", "remove", "here")  # its pilot has a task for ten minutes
