"""Real batch systems come up in a test, and do and say what the backends rely on."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.integration import namespaces
from tests.integration.batch.grid_engine import GridEngine
from tests.integration.batch.slurm import ACCOUNT, HOSTS, SlurmCluster
from tests.integration.batch.sshd import SshServer

pytestmark = [pytest.mark.integration, pytest.mark.slow]


# --- Slurm
def test_a_job_of_slurm_runs_on_both_hosts(slurm: SlurmCluster) -> None:
    job = slurm.sbatch("srun sh -c 'echo $SLURMD_NODENAME'; sleep 0.5", "--nodes=2", f"--account={ACCOUNT}")
    slurm.wait_state(job, "RUNNING", "COMPLETED")
    slurm.wait_state(job, "COMPLETED")
    assert sorted(slurm.output(job).split()) == list(HOSTS)


def test_slurm_refuses_an_account_that_is_not_ours_in_its_own_words(slurm: SlurmCluster) -> None:
    refused = slurm.run("sbatch", "--account=nosuch", "--wrap=true", check=False)
    assert refused.returncode != 0
    assert "Invalid account or account/partition combination specified" in refused.stderr
    slurm.add_account("nosuch2")
    assert slurm.sbatch("true", "--account=nosuch2").isdigit()


def test_slurm_says_that_a_partition_allows_less_time(slurm: SlurmCluster) -> None:
    job = slurm.sbatch("true", "--time=120")
    slurm.wait_reason(job, "PartitionTimeLimit")


def test_slurm_says_that_a_limit_holds_a_job_back(slurm: SlurmCluster) -> None:
    slurm.set_qos_limit("MaxJobsPerUser", 1)
    first = slurm.sbatch("sleep 60")
    slurm.wait_state(first, "RUNNING")
    slurm.wait_reason(slurm.sbatch("true"), "QOSMaxJobsPerUserLimit")


def test_a_drained_host_of_slurm_gets_no_job(slurm: SlurmCluster) -> None:
    slurm.drain("n1")
    job = slurm.sbatch("echo $SLURMD_NODENAME")
    slurm.wait_state(job, "COMPLETED")
    assert slurm.output(job).split() == ["n2"]
    slurm.wait_reason(slurm.sbatch("true", "--nodes=2"), "ReqNodeNotAvail, UnavailableNodes:n1")


def test_slurm_remembers_a_job_over_a_restart_of_its_controller(slurm: SlurmCluster) -> None:
    job = slurm.sbatch("sleep 60")
    slurm.wait_state(job, "RUNNING")
    slurm.restart_controller()
    slurm.wait_state(job, "RUNNING")


# --- Grid Engine
def test_a_job_of_grid_engine_runs(grid_engine: GridEngine) -> None:
    job = grid_engine.qsub("echo $NSLOTS; sleep 0.5", "-pe", "smp", "2")
    grid_engine.wait_state(job, "r", "")
    grid_engine.wait_state(job, "")
    assert grid_engine.output(job).split() == ["2"]


def test_a_job_of_grid_engine_waits_while_another_has_all_slots(grid_engine: GridEngine) -> None:
    first = grid_engine.qsub("sleep 60", "-pe", "smp", "4")
    grid_engine.wait_state(first, "r")
    second = grid_engine.qsub("true")
    grid_engine.wait_state(second, "qw")
    grid_engine.run("qdel", first)
    grid_engine.wait_state(second, "")


def test_grid_engine_remembers_a_job_over_a_kill_of_its_master(grid_engine: GridEngine) -> None:
    job = grid_engine.qsub("sleep 60")
    grid_engine.wait_state(job, "r")
    grid_engine.kill_master()
    assert grid_engine.run("qstat", check=False).returncode != 0
    grid_engine.start_master()
    grid_engine.wait_state(job, "r")


# --- ssh
def test_a_command_runs_through_ssh_and_finds_the_batch_system(
    slurm: SlurmCluster, ssh_server: Callable[..., SshServer]
) -> None:
    server = ssh_server(env=slurm.settings)
    assert server.ssh("sinfo", "-h", "-o", "%R").stdout.split() == ["main"]
    assert server.ssh("exit 7", check=False, host="box").returncode == 7


def test_a_connection_that_is_cut_ends_and_the_next_one_works(ssh_server: Callable[..., SshServer]) -> None:
    server = ssh_server()
    with subprocess.Popen(
        ["ssh", "-F", str(server.client_config()), "box", "echo there; sleep 60"], stdout=subprocess.PIPE
    ) as client:
        assert client.stdout is not None and client.stdout.readline() == b"there\n"
        server.cut()
        assert client.wait(20.0) == 255
    assert server.ssh("echo", "again").stdout == "again\n"
    server.down()
    assert server.ssh("true", check=False).returncode == 255
    server.restart()
    assert server.ssh("true").returncode == 0


def test_an_ssh_server_of_another_host_is_reached_from_this_one_only_by_its_network(
    ssh_server: Callable[..., SshServer],
) -> None:
    if reason := namespaces.missing():
        pytest.skip(reason)
    with namespaces.joined() as (near, far):
        server = ssh_server(namespace=far, address=namespaces.FAR)
        command = ["ssh", "-F", str(server.client_config()), "login", "ip -o addr show far0"]
        done = subprocess.run(near.argv(*command), capture_output=True, text=True, timeout=60, check=False)
        assert namespaces.FAR in done.stdout, done.stderr
        server.stop()
