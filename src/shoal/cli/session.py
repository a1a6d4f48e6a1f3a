"""One command's dealings with servers: which one, a client when work is to be done, a source when only reading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from shoal.client.client import Client
from shoal.client.config import find_target, own_state
from shoal.client.connection import embedded_server
from shoal.client.console import say as say
from shoal.model.errors import NotFound, Unreachable, echo
from shoal.model.layout import DATABASE
from shoal.report.source import Source, open_file, source_of

F = TypeVar("F", bound=Callable[..., Any])


class Session:
    """The server this command is for."""

    def __init__(self, server: str | None = None) -> None:
        self.target = find_target(server)

    @property
    def is_embedded(self) -> bool:
        """Is it the embedded server?"""
        return self.target.url is None

    @property
    def is_far(self) -> bool:
        """True if tasks run on hosts unlike this one."""
        return self.target.is_remote

    def client(self) -> Client:
        """A client; the embedded server is started if it does not run."""
        return embedded_server.connect(self.target, say)

    def running(self) -> Client | None:
        """A client of the configured server, or of the embedded one if it runs; nothing is started."""
        return embedded_server.running_client(self.target)

    def shared_client(self) -> Client:
        """A client of a server for several people: the configured one, else one of our own on this machine."""
        if not self.is_embedded:
            return self.client()
        client = embedded_server.running(own_state())
        if client is None:
            raise Unreachable(
                "no server for others is running, and the embedded one is for you alone", code="not_running",
                hint="start one with `shoal server start --listen :8443`, or `shoal login -` to another's",
            )  # fmt: skip
        return client

    def any_client(self, what: str) -> Client:
        """A client of whatever server there is; `what` needs one."""
        client = self.running() or embedded_server.running(own_state())
        if client is None:
            raise Unreachable(
                f"{what} needs a running server", code="not_running", hint="`shoal server start` starts one"
            )
        return client

    def client_for(self, what: str) -> Client:
        """A client to act on something that exists; no server is started where nothing was ever submitted."""
        if self.is_embedded and not (embedded_server.state_dir() / DATABASE).exists():
            raise NotFound(
                f"there is no {echo(what)}: nothing was submitted here yet", code="unknown_run",
                hint="try `shoal run -- echo hello`",
            )  # fmt: skip
        return self.client()

    def source(self) -> Source:
        """Where to read; nothing is started."""
        return source_of(self.target, say)

    def bulk_source(self) -> Source:
        """Where to read much at once: the embedded server's file is nearer than the server."""
        if self.is_embedded:
            return open_file(embedded_server.state_dir(say))
        return self.source()


def server_option(command: F) -> F:
    """`--server URL`, the same on every command."""
    return click.option(
        "--server", metavar="URL", help="Server to use (else $SHOAL_SERVER, ./shoal.toml, your config, embedded)."
    )(command)


def json_option(command: F) -> F:
    """`--json`, the same on every listing."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(command)


LIMIT_OPTION = click.option("--limit", type=click.IntRange(0), metavar="N", help="Rows to show; 0: all.")
