"""An OpenSSH server of a test: its own port, host key, authorized key and client configuration, all below one directory.

`ssh -F CONFIG login` reaches it. What is run through it gets the variables that it was made with, so that `ssh login sbatch`
finds the test's Slurm. Only processes that were started here, or through it, are signalled, by their numbers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.integration.batch.daemons import MARK, Daemons, find, missing, until
from tests.integration.cluster import children, free_port, is_dead
from tests.integration.namespaces import Namespace

ALIASES = ("box", "login")
PROGRAMS = {"sshd": "openssh-server", "ssh": "openssh-client", "ssh-keygen": "openssh-client"}
_SEPARATION = Path(
    "/run/sshd"
)  # sshd wants it, empty; where no service runs nobody has made it. It stays: other servers use it, too

# Keys are read by root, because an ordinary user cannot enter the directory of a test. No PAM: it may ask for a session
# of systemd, and it would refuse where there is none.
_SSHD_CONFIG = """
ListenAddress {address}
Port {port}
HostKey {directory}/host_key
PidFile {directory}/sshd.pid
AuthorizedKeysFile none
AuthorizedKeysCommand /bin/cat {directory}/user_key.pub
AuthorizedKeysCommandUser root
AllowUsers {user}
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
UseDNS no
AllowTcpForwarding yes
GatewayPorts no
X11Forwarding no
PrintMotd no
Subsystem sftp internal-sftp
"""
_SSH_CONFIG = """
Host {aliases}
    HostName {address}
    Port {port}
    User {user}
    IdentityFile {directory}/user_key
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile {directory}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    BatchMode yes
    ConnectTimeout 10
    LogLevel ERROR
"""


def why_not() -> str:
    """Why there can be no server here; empty if there can."""
    return missing(PROGRAMS)


class SshServer:
    """One server: `start` it, use `client_config`, and `stop` it whatever happened.

    `env` is what commands that are run through it have in their environment. `options` are more lines for sshd_config,
    which come first and so win: "MaxSessions 1".
    """

    def __init__(
        self, user: str = "root", env: Mapping[str, str] | None = None, *, namespace: Namespace | None = None,
        options: Sequence[str] = (), address: str = "127.0.0.1",
    ) -> None:  # fmt: skip
        self.user, self.namespace = user, namespace
        self.address = address
        self.port = 0
        self.directory = Path()
        self._variables = dict(env or {})
        self._options = tuple(options)
        self._daemons: Daemons | None = None

    # --- its life
    def start(self, directory: Path) -> None:
        """Start it below this directory, and wait until it listens."""
        self.directory = directory
        self._daemons = Daemons(directory)
        self.port = free_port()
        for name in ("host_key", "user_key"):
            self._daemons.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "shoal-test", "-f", name)
        host_key = (directory / "host_key.pub").read_text(encoding="utf-8")
        where = f"[{self.address}]:{self.port}"
        (directory / "known_hosts").write_text(f"{where} {host_key}", encoding="utf-8")
        values = {"address": self.address, "port": self.port, "directory": directory, "user": self.user}
        # A home of its own: what the start-up files of this account do may take long, and is broken off with the connection.
        home = directory / "home"
        home.mkdir(exist_ok=True)
        own = {"HOME": home, "PATH": os.environ["PATH"], **self._variables, MARK: directory}
        variables = " ".join(f'{name}="{value}"' for name, value in own.items())
        head = "\n".join([*self._options, f"SetEnv {variables}"])
        (directory / "sshd_config").write_text(head + _SSHD_CONFIG.format(**values), encoding="utf-8")
        client = _SSH_CONFIG.format(aliases=" ".join(ALIASES), **values)
        self.client_config().write_text(client.lstrip(), encoding="utf-8")
        _SEPARATION.mkdir(mode=0o755, exist_ok=True)
        self.restart()

    def restart(self) -> None:
        """Start it again, with the same keys and port; one that runs, and its connections, are ended first."""
        self.down()
        command = [str(find("sshd")), "-D", "-e", "-f", str(self.directory / "sshd_config")]
        self._all.spawn("sshd", *(self.namespace.argv(*command) if self.namespace else command))
        self._all.wait("sshd", self._listens, "the ssh server listens")

    def cut(self) -> None:
        """Break every connection, as a lost network does; the server itself goes on."""
        self._kill(self._connections())

    def down(self) -> None:
        """End the server and every connection."""
        assert self._daemons is not None, "start it first"
        connections = self._connections()
        self._all.end("sshd")
        self._kill(connections)

    def stop(self) -> None:
        """End the server, its connections and everything that was started through it."""
        if self._daemons is not None:
            self.down()
            daemons, self._daemons = self._daemons, None
            daemons.close()

    @property
    def _all(self) -> Daemons:
        assert self._daemons is not None, "start it first"
        return self._daemons

    def _connections(self) -> list[int]:
        """The processes of sshd for its connections: one as root, and for a user other than root one more."""
        pid = self._all.pid("sshd")
        found = children(pid) if pid else []
        return [*found, *(below for above in found for below in children(above) if _is_sshd(below))]

    def _kill(self, pids: Sequence[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: all(is_dead(pid) for pid in pids), "the connections are gone")

    def _listens(self) -> bool:
        def greeted() -> bool:
            with contextlib.suppress(OSError), socket.create_connection((self.address, self.port), 5.0) as connection:
                return connection.recv(4) == b"SSH-"
            return False

        return self.namespace.do(greeted) if self.namespace else greeted()

    # --- its use
    def client_config(self) -> Path:
        """The configuration file of a client, for `ssh -F` and SHOAL_SSH_CONFIG; its hosts are `box` and `login`."""
        return self.directory / "ssh_config"

    def ssh(self, *command: str, check: bool = True, host: str = "login") -> subprocess.CompletedProcess[str]:
        """Run a command through it."""
        return self._all.run("ssh", "-F", str(self.client_config()), host, *command, check=check)


def _is_sshd(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").startswith("sshd")
    return False
