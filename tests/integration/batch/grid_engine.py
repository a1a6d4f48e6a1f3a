"""A real Grid Engine for tests: a qmaster and one execution host, with a root directory of their own, on free ports.

Nothing of the machine's own Grid Engine is changed: only its programs are used. It is configured to take jobs of root,
which it otherwise refuses, so no user has to be made. Only the processes that were started here are signalled.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

from tests.integration.batch.daemons import Daemons, missing, until
from tests.integration.cluster import free_port

QUEUE, SLOTS = "all.q", 4
PROGRAMS = {
    "sge_qmaster": "gridengine-master",
    "sge_execd": "gridengine-exec",
    "qconf": "gridengine-client",
    "qsub": "gridengine-client",
    "qstat": "gridengine-client",
    "/usr/lib/gridengine/spoolinit": "gridengine-master",
}
_PROGRAMS, _DEFAULTS = Path("/usr/lib/gridengine"), Path("/usr/share/gridengine")
_BOOTSTRAP = """
admin_user              none
default_domain          none
ignore_fqdn             false
spooling_method         berkeleydb
spooling_lib            libspoolb
spooling_params         {directory}/database
binary_path             /usr/sbin
qmaster_spool_dir       {directory}/qmaster
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1
"""


def why_not() -> str:
    """Why there can be no Grid Engine here; empty if there can."""
    return missing(PROGRAMS)


class GridEngine:
    """One Grid Engine: `start` it, use `env` for its commands, and `stop` it whatever happened."""

    def __init__(self) -> None:
        self._daemons: Daemons | None = None
        self.directory = Path()

    # --- its life
    def start(self, directory: Path) -> None:
        """Start all of it below this directory, and wait until its queue can run jobs."""
        self.directory = directory
        self._settings = {
            "SGE_ROOT": str(directory / "root"),
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": str(free_port()),
            "SGE_EXECD_PORT": str(free_port()),
        }
        self._daemons = Daemons(directory, self._settings)
        self._make_root()
        self._make_spool()
        self.start_master()
        self._spawn("execd", "sge_execd")
        self._configure()
        # An instance of the queue has a state (u: unknown) until its host has reported for the first time.
        until(lambda: self._queue_state() == "", lambda: f"{QUEUE} can run jobs: {self._queue_state()}\n{self.story()}")

    def stop(self) -> None:
        """End everything, jobs too; the master last."""
        if self._daemons is not None:
            daemons, self._daemons = self._daemons, None
            daemons.end("execd")
            daemons.end("qmaster", signal.SIGKILL)  # in good order it takes many seconds, and nobody needs its files
            daemons.close()

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
        return dict(self._settings)

    def story(self) -> str:
        """The ends of all its logs."""
        messages = self.directory / "qmaster" / "messages"
        tail = messages.read_text(encoding="utf-8", errors="replace").splitlines()[-12:] if messages.exists() else []
        return "\n".join([self._all.story(), "--- messages", *tail])

    def _make_root(self) -> None:
        root, common = self.directory / "root", self.directory / "root" / "default" / "common"
        common.mkdir(parents=True)
        # Below these it looks for its programs by the name of the machine's architecture.
        arch = self._all.run(str(_DEFAULTS / "util" / "arch")).stdout.strip()
        for name in ("bin", "lib", "utilbin"):
            (root / name).mkdir()
            (root / name / arch).symlink_to(_PROGRAMS)
        (root / "util").symlink_to(_DEFAULTS / "util")
        (common / "bootstrap").write_text(_BOOTSTRAP.format(directory=self.directory).lstrip(), encoding="utf-8")
        # The name of a host must be the same both ways: where it maps to loopback, only `localhost` is.
        (common / "act_qmaster").write_text("localhost\n", encoding="utf-8")
        aliases = sorted({socket.gethostname(), socket.getfqdn()} - {"localhost"})
        (common / "host_aliases").write_text(f"localhost {' '.join(aliases)}\n", encoding="utf-8")

    def _make_spool(self) -> None:
        for name in ("database", "qmaster/job_scripts", "execd"):
            (self.directory / name).mkdir(parents=True)
        changed = {
            "execd_spool_dir": str(self.directory / "execd"), "min_uid": "0", "min_gid": "0", "load_report_time": "00:00:01",
            "reporting_params": "accounting=true reporting=false flush_time=00:00:01 joblog=false sharelog=00:00:00",
            "mailer": "/bin/true",
        }  # fmt: skip
        lines = (_DEFAULTS / "default-configuration").read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if line and not line.startswith("#") and line.split()[0] not in changed]
        self._write("configuration", *kept, *(f"{name} {value}" for name, value in changed.items()))
        database, resources = self.directory / "database", _DEFAULTS / "util" / "resources"
        self._spool("spoolinit", "berkeleydb", "libspoolb", str(database), "init")
        self._spool("spooldefaults", "configuration", str(self.directory / "configuration"))
        self._spool("spooldefaults", "complexes", str(resources / "centry"))
        self._spool("spooldefaults", "usersets", str(resources / "usersets"))
        self._spool("spooldefaults", "managers", "root")

    def _spool(self, program: str, *arguments: str) -> None:
        self._all.run("env", f"LD_LIBRARY_PATH={_PROGRAMS}", str(_PROGRAMS / program), *arguments)

    def _write(self, name: str, *lines: str) -> str:
        (self.directory / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return str(self.directory / name)

    def _spawn(self, name: str, program: str) -> None:
        # SGE_ND: stay in the foreground. The spool library is found by this path only.
        self._all.spawn(name, program, env={"SGE_ND": "true", "LD_LIBRARY_PATH": str(_PROGRAMS)})

    def _configure(self) -> None:
        self.run("qconf", "-as", "localhost")
        until(lambda: "localhost" in self.run("qconf", "-sel", check=False).stdout, "the host has come")
        self.run("qconf", "-Ahgrp", self._write("group", "group_name @allhosts", "hostlist localhost"))
        for name in ("smp", "mpi", "make"):  # those that the template of a queue names
            self.run("qconf", "-Ap", str(_DEFAULTS / "util" / "resources" / "pe" / name))
        self.run("env", "EDITOR=true", "qconf", "-aq", QUEUE)
        self.run("qconf", "-aattr", "queue", "hostlist", "@allhosts", QUEUE)
        # A busy machine (load_thresholds) is no reason to hold the jobs of a test back.
        for name, value in (("slots", str(SLOTS)), ("load_thresholds", "NONE"), ("shell_start_mode", "unix_behavior")):
            self.run("qconf", "-rattr", "queue", name, value, QUEUE)
        changed = {
            "schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1", "job_load_adjustments": "NONE",
        }  # fmt: skip
        lines = self.run("qconf", "-ssconf").stdout.splitlines()
        kept = [line for line in lines if line.split()[0] not in changed]
        self.run("qconf", "-Msconf", self._write("scheduler", *kept, *(f"{k} {v}" for k, v in changed.items())))

    def _queue_state(self) -> str:
        """The state of the queue on its host: empty if all is well."""
        lines = self.run("qstat", "-f", "-q", QUEUE, check=False).stdout.splitlines()
        fields = next((line.split() for line in lines if line.startswith(QUEUE)), [])
        return "?" if len(fields) < 5 or fields[3] == "-NA-" else " ".join(fields[5:])

    # --- the master
    def answers(self) -> bool:
        """True if the master answers."""
        return self.run("qconf", "-sh", check=False).returncode == 0

    def kill_master(self) -> None:
        """kill -9 of the master."""
        self._all.end("qmaster", signal.SIGKILL)

    def start_master(self) -> None:
        """Start the master, for the first time or again with all that it had saved."""
        self._spawn("qmaster", "sge_qmaster")
        self._all.wait("qmaster", self.answers, "the master answers")

    def reset(self) -> None:
        """Make it as it was at first: everything runs, and there is no job."""
        if not self._all.lives("qmaster"):
            self._all.end("qmaster")
            self.start_master()
        if jobs := self.qstat():
            self.run("qdel", "-f", *jobs, check=False)
        until(lambda: not self.qstat(), lambda: f"no job is left: {self.qstat()}")
        if self._queue_state():  # the host's daemon looks for a new master after half a minute only
            self._all.end("execd")
            self._spawn("execd", "sge_execd")
        until(lambda: self._queue_state() == "", lambda: f"{QUEUE} can run jobs: {self._queue_state()}\n{self.story()}")

    # --- what anybody does
    def run(self, *argv: str, check: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command of Grid Engine."""
        return self._all.run(*argv, check=check, stdin=stdin)

    def qsub(self, script: str, *options: str) -> str:
        """Submit a script; returns the number of the job. What it prints goes to JOB.txt of the directory."""
        options = ("-terse", "-j", "y", "-o", f"{self.directory}/$JOB_ID.txt", *options)
        return self.run("qsub", *options, stdin=f"#!/bin/sh\n{script}\n").stdout.strip()

    def qstat(self) -> dict[str, str]:
        """Every job that waits or runs: its number -> its state (qw, r, hqw, Eqw, dr, ...)."""
        found = ElementTree.fromstring(self.run("qstat", "-u", "*", "-xml").stdout).iter("job_list")
        return {job.findtext("JB_job_number", ""): job.findtext("state", "") for job in found}

    def wait_state(self, job: str, *states: str) -> None:
        """Wait until a job is in one of these states; the state of one that is gone is empty."""
        until(
            lambda: self.qstat().get(job, "") in states,
            lambda: (
                f"{job} is {states}: {self.qstat()}\n{self.run('qstat', '-j', job, check=False).stdout}\n{self.story()}"
            ),
        )

    def output(self, job: str) -> str:
        """What a job printed."""
        return (self.directory / f"{job}.txt").read_text(encoding="utf-8", errors="replace")
