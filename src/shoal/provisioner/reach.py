"""How the pilots of a site reach the server: by its socket on this machine, by its own address, or by a relay.

That a login host reaches the server says nothing of the compute hosts behind it: their pilots get both ways, and take the
first that works.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shoal.client.client import Client
from shoal.client.config import write_private
from shoal.model.credentials import RELAY_PREFIX
from shoal.provision import site_url
from shoal.provision.backend import BackendError, Command
from shoal.provision.shell import LocalShell, SshShell
from shoal.provision.tunnel import Tunnel
from shoal.provisioner.site_file import SiteConfig

log = logging.getLogger(__name__)
UP_WITHIN = 45.0  # seconds
ALWAYS, NEVER = "always", "never"
# Tries each address for a few seconds and prints the first that answers.
_TRY = """
import socket, sys
for text in sys.argv[1:]:
    host, _, port = text.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), 5).close()
    except OSError:
        continue
    print(text)
    break
"""


class Reach:
    """The way of one site's pilots to the server."""

    def __init__(
        self, config: SiteConfig, folder: Path, shell: LocalShell | SshShell, client: Callable[[], Client]
    ) -> None:
        self._config, self._shell, self._client = config, shell, client
        self._file = folder / f"{config.name}.relay"
        self._url = site_url.parse(config.url)
        self._tunnel: Tunnel | None = None
        self._fingerprint = ""
        self._direct = ""  # the server's own address, if the host that we log in to reaches it
        self._looked_for: list[str] | None = None  # the server's addresses when that was found out
        self._is_shared = self._url.backend != "local"  # pilots run on other hosts than the one that we log in to

    @property
    def is_here(self) -> bool:
        """True if pilots run on this machine, under this account."""
        return self._url.backend == "local" and not self._url.is_remote

    @property
    def trouble(self) -> str:
        """Why pilots would not get through; empty if they would."""
        return f"the way to the server is down: {self._tunnel.trouble}" if self._tunnel and self._tunnel.trouble else ""

    def describe(self) -> str:
        """The way in words."""
        if self.is_here:
            return "by the server's socket on this machine"
        by_relay = "by a tunnel over ssh" if self._url.is_remote else "by a relay on this machine"
        if not self._direct:
            return by_relay
        return f"directly at {self._direct}" + (f", or {by_relay}" if self._tunnel is not None else "")

    def open(self) -> None:
        """Find the way, and open a tunnel if it takes one; returns when it is up."""
        if self.is_here:
            return
        if self._looked_for is None:
            addresses = self._server_addresses() if self._config.tunnel != ALWAYS else []
            self._direct = self._reached(addresses) if addresses else ""
            if not self._direct and self._config.tunnel == NEVER:
                raise BackendError(
                    f"the site does not reach the server at {', '.join(addresses) or 'any address'}",
                    hint="let it use a tunnel: --tunnel auto",
                )
            self._looked_for = addresses
        if self._direct and (self._config.tunnel == NEVER or not self._is_shared):
            return
        if self._tunnel is None:
            self._start_tunnel()
        assert self._tunnel is not None
        until = time.monotonic() + UP_WITHIN
        while not self._tunnel.is_up and time.monotonic() < until:
            time.sleep(0.1)
        if self._tunnel.is_up:
            self._remember(self._tunnel.port)
        elif not self._direct:
            raise BackendError(self.trouble, hint="see whether you can log in there, and whether it forwards ports")

    def note_server(self, server: dict[str, Any]) -> None:
        """Look for a way again at the next `open`, if the server woke up elsewhere; `server` is what it says of itself."""
        if self._looked_for is not None and self._config.tunnel != ALWAYS and tls_addresses(server) != self._looked_for:
            self._looked_for = None

    def address(self, token: dict[str, Any]) -> tuple[tuple[str, ...], str]:
        """The addresses and the fingerprint of a join string; `token` is the answer that brought the token."""
        if self.is_here:
            local = [address for address in token["addresses"] if address.startswith("unix:")]
            return tuple(local or token["addresses"]), "" if local else str(token["fingerprint"])
        direct = (self._direct,) if self._direct else ()
        relays = self._tunnel.address.split(",") if self._tunnel is not None and self._tunnel.address else []
        if not direct and not relays:
            raise BackendError(self.trouble or "there is no way to the server yet")
        return (*direct, *relays), str(token["fingerprint"]) if direct else self._fingerprint

    def close(self) -> None:
        """End the tunnel."""
        if self._tunnel is not None:
            self._tunnel.stop()
            self._tunnel = None

    def _server_addresses(self) -> list[str]:
        """Where the server speaks TLS, for everybody."""
        with self._client() as client:
            return tls_addresses(client.server())

    def _reached(self, addresses: list[str]) -> str:
        result = self._shell.run(Command((self._config.python, "-c", _TRY, *addresses)))
        return result.out.strip() if result.status == 0 else ""

    def _start_tunnel(self) -> None:
        server, self._fingerprint = self._server_socket()
        kept = json.loads(self._file.read_bytes()) if self._file.exists() else {}
        self._key = str(kept.get("key") or RELAY_PREFIX + secrets.token_urlsafe(32))
        self._remember(int(kept.get("port", 0)))
        ssh = self._shell.tunnel_argv() if isinstance(self._shell, SshShell) else ()
        ports = (int(kept.get("port", 0)), 0) if kept.get("port") else (0,)
        self._tunnel = Tunnel(ssh, server, self._is_shared, self._key, log.info, ports=ports)
        self._tunnel.start()

    def _server_socket(self) -> tuple[str | tuple[str, int], str]:
        """Where this machine reaches the server by TLS, and the fingerprint of its authority: a group's server at its
        address, one of this machine at a socket that it opens for tunnels."""
        with self._client() as client:
            if client.url.startswith("https://"):
                place = urlsplit(client.url)
                return (place.hostname or "", place.port or 443), str(client.server()["fingerprint"])
            answer = client.open_tunnel_socket()
        return str(answer["socket"]), str(answer["fingerprint"])

    def _remember(self, port: int) -> None:
        """Keep key and port, so that pilots find the relay of the next provisioner."""
        write_private(self._file, json.dumps({"key": self._key, "port": port}).encode())


def tls_addresses(server: dict[str, Any]) -> list[str]:
    """The addresses of a server that are for everybody, from what it says of itself."""
    return [address for address in server.get("addresses") or [] if not address.startswith("unix:")]
