"""A real Slurm for tests: munge, MariaDB, slurmdbd, slurmctld and two slurmd, all below one directory on free ports.

Nothing of the machine is changed or used: munge has its own key and socket, the database has no port at all, and clients
find this Slurm by SLURM_CONF. Jobs are root's. Only the processes that were started here are signalled, by their numbers.
With two networks, the controller and all commands are in that of the login host, and the hosts' daemons in the other.
"""

from __future__ import annotations

import secrets
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.integration.batch.daemons import Daemons, missing, until
from tests.integration.cluster import free_port
from tests.integration.namespaces import COMPUTE, LOGIN_INSIDE, Namespace

HOSTS = ("n1", "n2")
CORES = 2  # of each host
PARTITION, MAX_MINUTES = "main", 60
ACCOUNT, CLUSTER = "phys", "shoaltest"
PROGRAMS = {
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "slurmdbd": "slurmdbd",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "sacctmgr": "slurm-client",
}

# Jobs start at once: the scheduler looks each second and does not wait for more of them. A job that was cancelled gets
# 2 s, and a command gives up after 5 s if no controller answers.
_SLURM_CONF = """
ClusterName={cluster}
SlurmctldHost={host}({login_address})
SlurmUser=root
SlurmdUser=root
SlurmctldPort={controller}
SlurmdPort={n1}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={directory}/munge.socket
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
KillWait=2
MessageTimeout=5
MinJobAge=300
JobRequeue=0
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={database}
AccountingStoragePass={directory}/munge.socket
AccountingStorageEnforce=associations,limits,qos
NodeName=n1 NodeHostname={host} NodeAddr={compute_address} Port={n1} CPUs={cores} RealMemory=2000
NodeName=n2 NodeHostname={host} NodeAddr={compute_address} Port={n2} CPUs={cores} RealMemory=2000
PartitionName={partition} Nodes=n1,n2 Default=YES MaxTime={minutes} DefaultTime=5 DefMemPerCPU=100 State=UP
"""
_SLURMDBD_CONF = """
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={database}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=acct
LogFile={directory}/slurmdbd.log
PidFile={directory}/slurmdbd.pid
"""
# Small, because it holds a few rows; what a crash of the machine would lose does not matter.
_DATABASE = (
    "--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0", "--aria-pagecache-buffer-size=1M", "--key-buffer-size=1M", "--performance-schema=OFF",
)  # fmt: skip


def why_not() -> str:
    """Why there can be no Slurm here; empty if there can."""
    return missing(PROGRAMS)


class SlurmCluster:
    """One Slurm: `start` it, use `env` for its commands, and `stop` it whatever happened."""

    def __init__(self, login: Namespace | None = None, compute: Namespace | None = None) -> None:
        self._login, self._compute = login, compute
        self._daemons: Daemons | None = None
        self.directory = Path()
        self._limits: set[tuple[str, str]] = set()  # that are set
        self._is_changed = False  # the partition

    # --- its life
    def start(self, directory: Path) -> None:
        """Start all of it below this directory, and wait until both hosts are idle."""
        self.directory = directory
        self._daemons = Daemons(directory, {"SLURM_CONF": str(directory / "slurm.conf")})
        (directory / "state").mkdir()
        ports = {name: free_port() for name in ("controller", "database", *HOSTS)}
        values = {
            "cluster": CLUSTER, "host": socket.gethostname().partition(".")[0], "directory": directory, "cores": CORES,
            "partition": PARTITION, "minutes": MAX_MINUTES,
            "login_address": LOGIN_INSIDE if self._login else "127.0.0.1",
            "compute_address": COMPUTE if self._compute else "127.0.0.1", **ports,
        }  # fmt: skip
        self._write("slurm.conf", _SLURM_CONF.format(**values))
        self._write("slurmdbd.conf", _SLURMDBD_CONF.format(**values))
        self._start_munge()
        self._start_database()
        self._start_accounting()
        self._start_controller()
        for host in HOSTS:
            self.start_host(host)
        until(lambda: self.host_states() == {"idle"}, lambda: f"all hosts are idle\n{self.story()}")

    def stop(self) -> None:
        """End everything, jobs too; hosts first, the database last."""
        if self._daemons is not None:
            daemons, self._daemons = self._daemons, None
            hosts = [f"slurmd-{host}" for host in HOSTS]
            daemons.close([*hosts, "slurmctld", "slurmdbd", "mariadbd", "munged"])

    @property
    def _all(self) -> Daemons:
        assert self._daemons is not None, "start it first"
        return self._daemons

    @property
    def env(self) -> dict[str, str]:
        """The environment of its commands and of whoever calls them."""
        return dict(self._all.env)

    @property
    def settings(self) -> Mapping[str, str]:
        """The little that a command needs beside any other environment, for example behind ssh."""
        return {"SLURM_CONF": self._all.env["SLURM_CONF"]}

    def story(self) -> str:
        """The ends of all its logs."""
        return self._all.story()

    def _write(self, name: str, text: str, mode: int = 0o600) -> None:
        path = self.directory / name
        path.touch(mode)  # before anything is in it: slurmdbd refuses a file that others may read
        path.write_text(text, encoding="utf-8")

    def _start_munge(self) -> None:
        key, at = self.directory / "munge.key", self.directory / "munge.socket"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(128))
        # --force: it warns of directories that others may not enter, which is just what is wanted here.
        options = [f"--{name}-file={self.directory / f'munged.{name}'}" for name in ("log", "pid", "seed")]
        self._all.spawn("munged", "munged", "-F", "--force", f"--socket={at}", f"--key-file={key}", *options)
        self._all.wait("munged", at.exists, "munge has its socket")

    def _start_database(self) -> None:
        data, at = f"--datadir={self.directory / 'db'}", self._database_socket
        # When it starts it removes what looks like a temporary table: in /tmp also those of another Slurm that starts just now.
        own = f"--tmpdir={self.directory / 'db-tmp'}"
        (self.directory / "db-tmp").mkdir()
        tools = ("mariadb-install-db", "--no-defaults", "--user=root", "--auth-root-authentication-method=normal")
        self._all.run(*tools, "--skip-test-db", data, own, *_DATABASE)
        options = (
            "--user=root",
            f"--socket={at}",
            f"--pid-file={self.directory / 'mariadbd.pid'}",
            "--skip-networking",
        )
        self._all.spawn("mariadbd", "mariadbd", "--no-defaults", *options, data, own, *_DATABASE)
        self._all.wait("mariadbd", at.exists, "the database has its socket")

    @property
    def _database_socket(self) -> Path:
        return self.directory / "mariadbd.socket"

    def _start_accounting(self) -> None:
        self._all.spawn(
            "slurmdbd", *_in(self._login, "slurmdbd", "-D"), env={"MYSQL_UNIX_PORT": str(self._database_socket)}
        )
        self._all.wait(
            "slurmdbd", lambda: self.run("sacctmgr", "-n", "list", "cluster", check=False).returncode == 0,
            "the accounting answers",
        )  # fmt: skip
        self.run("sacctmgr", "-i", "add", "cluster", CLUSTER)
        self.add_account(ACCOUNT)

    def _start_controller(self) -> None:
        self._all.spawn("slurmctld", *_in(self._login, "slurmctld", "-D"))
        self._all.wait("slurmctld", self.answers, "slurmctld answers")

    def start_host(self, host: str) -> None:
        """Start the daemon of a host."""
        self._all.spawn(f"slurmd-{host}", *_in(self._compute, "slurmd", "-D", "-N", host))

    def kill_host(self, host: str) -> None:
        """kill -9 of the daemon of a host, as if the host had lost its power; its jobs run on until Slurm ends them."""
        self._all.end(f"slurmd-{host}", signal.SIGKILL)

    # --- the controller
    def answers(self) -> bool:
        """True if the controller answers."""
        return self.run("scontrol", "ping", check=False).returncode == 0

    def kill_controller(self) -> None:
        """kill -9 of slurmctld. It writes down what it knows every few seconds: younger jobs may be forgotten by it."""
        self._all.end("slurmctld", signal.SIGKILL)

    def end_controller(self) -> None:
        """Have slurmctld end as it should, with all that it knows written down."""
        self._all.end("slurmctld")

    def forget_ended(self) -> None:
        """Have the controller forget the jobs that have ended, as it does after MinJobAge; the accounting still has them."""
        path = self.directory / "slurm.conf"
        text = path.read_text(encoding="utf-8")
        try:
            path.write_text(text.replace("MinJobAge=300", "MinJobAge=2"), encoding="utf-8")
            self.run("scontrol", "reconfigure")
            # It looks for such jobs twice a minute; a restart reads none of them.
            until(lambda: not self.squeue(), lambda: f"all jobs are forgotten: {self.squeue()}")
        finally:
            path.write_text(text, encoding="utf-8")
            self.run("scontrol", "reconfigure")

    def restart_controller(self) -> None:
        """Start slurmctld again, with all that it had saved; one that runs is ended first."""
        self._all.end("slurmctld")
        self._start_controller()
        until(lambda: not self.host_states() & {"unknown", "down"}, lambda: f"hosts are known again\n{self.story()}")

    # --- what an administrator does
    def add_account(self, name: str) -> None:
        """Make an account, and let root use it."""
        self.run("sacctmgr", "-i", "add", "account", name, f"cluster={CLUSTER}")
        self.run("sacctmgr", "-i", "add", "user", "root", f"account={name}", f"cluster={CLUSTER}")

    def set_qos_limit(self, limit: str = "MaxJobsPerUser", value: int = 1, qos: str = "normal") -> None:
        """Set a limit of a quality of service; -1 takes it away."""
        self.run("sacctmgr", "-i", "modify", "qos", qos, "set", f"{limit}={value}")
        self._limits.add((limit, qos))

    def set_partition(self, **values: str) -> None:
        """Change the partition: MaxTime, State; `reset` gives it back."""
        self.run("scontrol", "update", f"PartitionName={PARTITION}", *(f"{name}={to}" for name, to in values.items()))
        self._is_changed = True

    def drain(self, host: str, reason: str = "a test drains it") -> None:
        """Let a host get no more jobs."""
        self.run("scontrol", "update", f"nodename={host}", "state=drain", f"reason={reason}")

    def resume(self, host: str) -> None:
        """Give a drained host back."""
        self.run("scontrol", "update", f"nodename={host}", "state=resume")

    def reset(self) -> None:
        """Make it as it was at first, but for jobs that have ended: everything runs, no job, no limit, no drained host."""
        if not self._all.lives("slurmctld"):
            self.restart_controller()
        for host in HOSTS:
            if not self._all.lives(f"slurmd-{host}"):
                self._all.end(f"slurmd-{host}")
                self.start_host(host)
        for limit, qos in list(self._limits):
            self.set_qos_limit(limit, -1, qos)
        self._limits.clear()
        if self._is_changed:
            self.set_partition(MaxTime=str(MAX_MINUTES), State="UP")
            self._is_changed = False
        self.run("scancel", "--user=root", check=False)
        until(lambda: not self.run("squeue", "-h").stdout.strip(), "no job is left")
        for host in HOSTS:
            if self.host_states(host) & {"drained", "draining", "down"}:
                self.resume(host)
        until(lambda: self.host_states() == {"idle"}, lambda: f"all hosts are idle\n{self.story()}")

    # --- what anybody does
    def run(self, *argv: str, check: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm."""
        return self._all.run(*_in(self._login, *argv), check=check, stdin=stdin)

    def sbatch(self, script: str, *options: str) -> str:
        """Submit a script; returns the number of the job. What it prints goes to JOB.txt of the directory."""
        options = ("--parsable", f"--output={self.directory}/%j.txt", *options)
        return self.run("sbatch", *options, stdin=f"#!/bin/sh\n{script}\n").stdout.strip().partition(";")[0]

    def squeue(self, *options: str) -> dict[str, tuple[str, str]]:
        """Every job that Slurm remembers: its number -> (state, reason)."""
        lines = self.run("squeue", "-h", "-t", "all", "-o", "%i|%T|%r", *options).stdout.splitlines()
        return {job: (state, reason) for job, state, reason in (line.strip().split("|", 2) for line in lines)}

    def wait_state(self, job: str, *states: str) -> str:
        """Wait until a job is in one of these states; returns its reason."""
        until(lambda: self.squeue().get(job, ("", ""))[0] in states, lambda: f"{job} is {states}: {self.squeue()}")
        return self.squeue()[job][1]

    def wait_reason(self, job: str, reason: str) -> None:
        """Wait until a job waits for a reason that begins so; the scheduler's first word may be another one."""
        until(
            lambda: self.squeue().get(job, ("", ""))[1].startswith(reason),
            lambda: f"{job} has {reason}: {self.squeue()}",
        )

    def output(self, job: str) -> str:
        """What a job printed."""
        return (self.directory / f"{job}.txt").read_text(encoding="utf-8", errors="replace")

    def host_states(self, *hosts: str) -> set[str]:
        """idle, mixed, allocated, drained, down, unknown, ..., in the words of sinfo, of all hosts or of these."""
        chosen = ["-n", ",".join(hosts)] if hosts else []
        states = self.run("sinfo", "-h", "-N", *chosen, "-o", "%T", check=False).stdout.split()
        return {state.rstrip("*") for state in states}


def _in(network: Namespace | None, *argv: str) -> list[str]:
    """A command in a network; None: in that of the test. `ip netns exec` would hide the cgroups that slurmd looks for."""
    return ["nsenter", f"--net=/run/netns/{network.name}", "--", *argv] if network is not None else list(argv)
