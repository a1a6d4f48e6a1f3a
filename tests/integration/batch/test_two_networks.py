"""A server on a laptop, a login host that reaches it, and compute hosts that reach only the login host: three networks.

Real Slurm: its controller is on the login host, its hosts are in the network behind. Pilots there come by `ssh -R` to the
login host's loopback and a relay beside it. Nothing is left at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import namespaces
from tests.integration.batch import slurm as real_slurm
from tests.integration.batch import sshd as real_sshd
from tests.integration.batch.daemons import until
from tests.integration.batch.person import Person
from tests.integration.batch.slurm import ACCOUNT, SlurmCluster
from tests.integration.batch.sshd import SshServer
from tests.integration.cluster import free_port
from tests.integration.namespaces import LAPTOP, LOGIN, Namespace

pytestmark = [pytest.mark.integration, pytest.mark.slow]
TASKS = 24


class Networks:
    """The three networks with Slurm, an ssh server and a person at the laptop."""

    def __init__(self, networks: tuple[Namespace, Namespace, Namespace], slurm: SlurmCluster, ssh: SshServer) -> None:
        self.laptop, self.login, self.compute = networks
        self.slurm, self.ssh = slurm, ssh


@pytest.fixture
def networks(tmp_path: Path) -> Iterator[Networks]:
    if reason := namespaces.missing() or real_slurm.why_not() or real_sshd.why_not():
        pytest.skip(f"{reason}: a login host with compute hosts behind it was NOT tested")
    with contextlib.ExitStack() as stack:
        laptop, login, compute = stack.enter_context(namespaces.in_a_row())
        slurm = SlurmCluster(login, compute)
        stack.callback(slurm.stop)
        slurm.start(tmp_path / "slurm")
        ssh = SshServer(env=slurm.settings, namespace=login, address=LOGIN)
        stack.callback(ssh.stop)
        ssh.start(tmp_path / "sshd")
        yield Networks((laptop, login, compute), slurm, ssh)


def test_compute_hosts_that_reach_only_login_do_a_sweep_through_the_relay(networks: Networks, tmp_path: Path) -> None:
    laptop, login, compute, slurm = networks.laptop, networks.login, networks.compute, networks.slurm
    before = set(login.pids())
    anna, port = Person(tmp_path / "anna", network=laptop), free_port()
    try:
        anna.shoal("server", "start", "--listen", f"{LAPTOP}:{port}")
        login.do(lambda: socket.create_connection((LAPTOP, port), 5.0)).close()
        with pytest.raises(OSError):
            compute.do(lambda: socket.create_connection((LAPTOP, port), 2.0))
        config = str(networks.ssh.client_config())
        said = anna.shoal(
            "site", "add", "hpc", "slurm+ssh://login", "--ssh-config", config, "--account", ACCOUNT, "--cores", "1",
            "--max-pilots", "3", "--directory", str(tmp_path / "hpc"),
        )  # fmt: skip
        assert f"directly at {LAPTOP}:{port}, or by a tunnel over ssh" in said
        assert "test pilot" in said
        said = anna.shoal(
            "site", "add", "box", "ssh://box", "--ssh-config", config, "--cores", "1", "--max-pilots", "1",
            "--directory", str(tmp_path / "box"),
        )  # fmt: skip
        assert "test pilot" in said
        ledger = tmp_path / "ledger"  # the payload's own: what it computed, and in which network
        task = f"readlink /proc/self/ns/net | sed s/^/{{x}}\\ / >>{ledger}; sleep 0.2; echo $(({{x}} * {{x}}))"
        anna.shoal("sweep", "--site", "hpc", f"x=1..{TASKS}", "--", "sh", "-c", task)
        lines = [line.split() for line in ledger.read_text().splitlines()]
        assert sorted(int(x) for x, _ in lines) == list(range(1, TASKS + 1)), "each once"
        assert {network for _, network in lines} == {network_of(compute)}
        rows = [json.loads(line) for line in anna.shoal("results", "r1", "--json").splitlines()]
        assert {row["x"]: row["result"] for row in rows} == {x: x * x for x in range(1, TASKS + 1)}
        ledger.unlink()
        anna.shoal("sweep", "--site", "box", "x=1..4", "--", "sh", "-c", task)
        assert {line.split()[1] for line in ledger.read_text().splitlines()} == {network_of(login)}
        anna.wait_for(lambda: not left(slurm))  # given back when nothing waits
        for site in ("hpc", "box"):
            assert "nothing of it runs" in anna.shoal("site", "remove", site)
        until(lambda: not extra(login, before), lambda: f"left on login: {extra(login, before)}")
        assert not slurm.run("squeue", "-h").stdout.strip()
        assert not [path.name for path in (tmp_path / "hpc").iterdir() if path.suffix in (".ticket", ".sh")]
    finally:
        anna.end()


def network_of(network: Namespace) -> str:
    """How a process of this network names it."""
    return network.do(lambda: os.readlink("/proc/thread-self/ns/net"))


def left(slurm: SlurmCluster) -> bool:
    """True while jobs wait or run."""
    return any(state in ("PENDING", "RUNNING") for state, _ in slurm.squeue().values())


def extra(network: Namespace, before: set[int]) -> dict[int, str]:
    """Processes of a network that were not there before."""
    found = {}
    for pid in set(network.pids()) - before:
        with contextlib.suppress(OSError):
            found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    return found
