"""What every backend promises, on the real systems: here, and over a real ssh connection."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.provision import registry, site_url
from shoal.provision.backend import ENDED, QUEUED, RUNNING, BackendError, Order, Shape, Status
from shoal.provision.shell import LocalShell, Shell, SshShell
from tests.integration.batch.daemons import until
from tests.integration.batch.grid_engine import GridEngine
from tests.integration.batch.slurm import ACCOUNT, HOSTS, SlurmCluster
from tests.integration.batch.sshd import SshServer

pytestmark = [pytest.mark.integration, pytest.mark.slow]
Servers = Callable[..., SshServer]
PREFIX = "shoal-t3st"


class Site:
    """A backend with a shell, as the provisioner will use them."""

    _numbers = itertools.count(1)

    def __init__(self, backend: str, shell: Shell, directory: Path) -> None:
        self.backend, self.shell, self.directory = registry.make(backend), shell, str(directory)
        self.prefix = f"{PREFIX}{next(self._numbers)}-"
        shell.make_directory(self.directory)

    def submit(
        self, command: str, *, hosts: int = 1, cores: int = 1, minutes: int = 5, number: int = 1, **options: str
    ) -> str:
        """Submit an allocation that runs a line of sh; returns its id."""
        shape = Shape(cores=cores, seconds=60 * minutes, hosts=hosts)
        order = Order(f"{self.prefix}{number}", shape, self.directory, ("sh", "-c", command), options)
        path = f"{self.directory}/{order.name}.sh"
        self.shell.put(path, self.backend.script(order).encode(), 0o700)
        return self.backend.parse_submit(self.shell.run(self.backend.submit(order, path)))

    def look(self, *ids: str) -> dict[str, Status]:
        """The states that the system gives."""
        said = self.shell.run(self.backend.status(self.prefix, ids))
        return {status.id: status for status in self.backend.parse_status(said, self.prefix, ids)}

    def wait(self, id: str, state: str, reason: str = "") -> Status:
        """Wait until an allocation is in a state, for a reason that begins so; one that is no longer known has ended."""

        def seen() -> Status | None:
            found = self.look(id).get(id, Status(id, "", ENDED))
            return found if found.state == state and found.reason.startswith(reason) else None

        return until(seen, lambda: f"{id} is {state} {reason}: {self.look(id)}\n{self.log()}") or Status("", "", "")

    def cancel(self, *ids: str) -> int:
        """Cancel allocations; returns the exit status of the command."""
        return self.shell.run(self.backend.cancel(ids)).status

    def log(self, number: int = 1) -> str:
        """What an allocation printed."""
        return self.shell.read_tail(f"{self.directory}/{self.prefix}{number}.log", 10_000).decode()


@pytest.fixture(params=["here", "ssh"])
def reach(
    request: pytest.FixtureRequest, ssh_server: Servers, tmp_path: Path
) -> Iterator[Callable[[str, dict[str, str]], Site]]:
    """Makes a site on this machine, or on one that is reached by ssh: (name of the backend, environment of its commands)."""
    opened: list[Shell] = []

    def make(backend: str, settings: dict[str, str]) -> Site:
        if request.param == "here":
            shell: Shell = LocalShell({"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **settings})
        else:
            server = ssh_server(env={**settings, "HOME": str(tmp_path)})
            shell = SshShell(site_url.parse(f"{backend}+ssh://login"), options=("-F", str(server.client_config())))
        opened.append(shell)
        return Site(backend, shell, tmp_path / "site")

    yield make
    for shell in opened:
        shell.close()


Reach = Callable[[str, dict[str, str]], Site]


# --- Slurm
def test_an_allocation_of_slurm_runs_one_start_on_each_host_and_ends(slurm: SlurmCluster, reach: Reach) -> None:
    site = reach("slurm", dict(slurm.settings))
    id = site.submit(
        'echo "on $SLURMD_NODENAME until $SHOAL_ALLOCATION_ENDS"; sleep 2', hosts=2, cores=2, account=ACCOUNT
    )
    assert site.wait(id, RUNNING).hosts == "n[1-2]"
    assert site.wait(id, ENDED) == Status(id, f"{site.prefix}1", ENDED, "", "n[1-2]")
    lines = [line.split() for line in site.log().splitlines()]
    assert sorted(line[1] for line in lines) == list(HOSTS), site.log()
    assert all(len(line) == 4 for line in lines), "the end of the allocation was not handed on"


def test_slurm_says_why_an_allocation_waits_and_a_cancelled_one_ends(slurm: SlurmCluster, reach: Reach) -> None:
    site = reach("slurm", dict(slurm.settings))
    id = site.submit("sleep 60", minutes=120)
    site.wait(id, QUEUED, "PartitionTimeLimit")
    runs = site.submit("sleep 60", number=2)
    site.wait(runs, RUNNING)
    assert set(site.look()) == {id, runs}, "those of this prefix are found without their ids"
    assert site.cancel(id, runs) == 0
    assert site.wait(id, ENDED).reason == "CANCELLED"
    assert site.wait(runs, ENDED).reason == "CANCELLED"
    assert site.cancel(id, runs) == 0, "one that has ended does no harm"


def test_slurm_refuses_a_bad_account_and_its_words_are_shown(slurm: SlurmCluster, reach: Reach) -> None:
    site = reach("slurm", dict(slurm.settings))
    with pytest.raises(BackendError, match="Invalid account or account/partition combination specified"):
        site.submit("true", account="nosuch")
    with pytest.raises(BackendError, match="invalid partition specified: nosuch"):
        site.submit("true", partition="nosuch")
    assert site.look() == {}


def test_a_limit_of_slurm_is_the_reason_of_the_allocation_that_waits(slurm: SlurmCluster, reach: Reach) -> None:
    site = reach("slurm", dict(slurm.settings))
    slurm.set_qos_limit("MaxJobsPerUser", 1)
    site.wait(site.submit("sleep 60"), RUNNING)
    site.wait(site.submit("sleep 60", number=2), QUEUED, "QOSMaxJobsPerUserLimit")


def test_the_end_of_an_allocation_of_slurm_has_its_reason(slurm: SlurmCluster, reach: Reach) -> None:
    site = reach("slurm", dict(slurm.settings))
    failed, killed = site.submit("exit 3"), site.submit("sleep 60", number=2)
    assert site.wait(failed, ENDED).reason.startswith("FAILED")
    site.wait(killed, RUNNING)
    slurm.run("scancel", killed)  # by an administrator, unexpectedly
    assert site.wait(killed, ENDED).reason == "CANCELLED"


def test_slurm_that_has_forgotten_an_allocation_is_asked_by_its_accounting(slurm: SlurmCluster, reach: Reach) -> None:
    site = reach("slurm", dict(slurm.settings))
    id = site.submit("exit 3")
    site.wait(id, ENDED)
    slurm.forget_ended()
    assert site.look() == {}
    assert site.wait(id, ENDED, "FAILED").reason == "FAILED exit code 3:0"


def test_no_controller_of_slurm_is_an_error_and_nothing_is_forgotten(slurm: SlurmCluster) -> None:
    site = Site("slurm", LocalShell(slurm.env), slurm.directory / "no_controller")
    id = site.submit("sleep 60")
    site.wait(id, RUNNING)
    slurm.end_controller()
    with pytest.raises(BackendError, match="Unable to contact slurm controller"):
        site.look(id)
    with pytest.raises(BackendError, match="Unable to contact slurm controller"):
        site.submit("true", number=2)
    slurm.restart_controller()
    assert site.wait(id, RUNNING).name == f"{site.prefix}1"


# --- Grid Engine
def test_an_allocation_of_grid_engine_runs_and_ends(grid_engine: GridEngine, reach: Reach) -> None:
    site = reach("sge", dict(grid_engine.settings))
    id = site.submit('echo "until $SHOAL_ALLOCATION_ENDS with $NSLOTS"; sleep 3', cores=2)
    assert site.wait(id, RUNNING).name == f"{site.prefix}1"
    site.wait(id, ENDED)
    assert site.log().split()[-1] == "2", site.log()


def test_an_allocation_of_grid_engine_waits_and_is_cancelled(grid_engine: GridEngine, reach: Reach) -> None:
    site = reach("sge", dict(grid_engine.settings))
    runs, waits = site.submit("sleep 60", cores=4), site.submit("sleep 60", number=2)
    site.wait(runs, RUNNING)
    site.wait(waits, QUEUED)
    site.cancel(runs, waits)
    site.wait(waits, ENDED)
    site.wait(runs, ENDED)
    assert site.look() == {}


def test_grid_engine_refuses_in_its_own_words(grid_engine: GridEngine, reach: Reach) -> None:
    site = reach("sge", dict(grid_engine.settings))
    with pytest.raises(BackendError, match="nosuch"):
        site.submit("true", project="nosuch")
    with pytest.raises(BackendError, match="nosuch"):
        site.submit("true", cores=2, pe="nosuch")
    assert site.look() == {}


# --- a machine itself
def test_a_process_of_a_machine_runs_is_cancelled_and_tells_its_exit_status(reach: Reach) -> None:
    site = reach("local", {})
    runs, fails = site.submit("echo there; sleep 60"), site.submit("exit 3", number=2)
    assert site.wait(fails, ENDED).reason == "exit status 3"
    site.wait(runs, RUNNING)
    until(lambda: site.log().startswith("there\n"), lambda: f"it begins: {site.log()}")
    assert site.cancel(runs) == 0
    site.wait(runs, ENDED)
    assert site.log().startswith("there\n")


def test_a_process_that_ends_at_once_has_an_id_too(reach: Reach) -> None:
    site = reach("local", {})
    ids = [site.submit("exit 3", number=number) for number in range(1, 11)]
    assert len(set(ids)) == 10
    # Of all at once: what has ended, and is not asked for, is forgotten.
    wanted = {id: Status(id, f"{site.prefix}{number}", ENDED, "exit status 3") for number, id in enumerate(ids, 1)}
    until(lambda: site.look(*ids) == wanted, lambda: f"all have ended: {site.look(*ids)}")


# --- ssh
def test_a_cut_connection_is_an_error_once_and_the_next_command_makes_a_new_one(
    ssh_server: Servers, tmp_path: Path
) -> None:
    server = ssh_server(env={"HOME": str(tmp_path)})
    shell = SshShell(site_url.parse("ssh://box"), options=("-F", str(server.client_config())))
    try:
        site = Site("local", shell, tmp_path / "site")
        id = site.submit("sleep 60")
        server.cut()
        with pytest.raises(BackendError):
            for _ in range(2):  # the process that held the connection may have noticed first, then there is no error
                site.look(id)
            server.down()
            site.look(id)
        server.restart()
        assert site.wait(id, RUNNING).id == id, "what was started through the lost connection runs on"
        assert site.cancel(id) == 0
        site.wait(id, ENDED)
    finally:
        shell.close()
