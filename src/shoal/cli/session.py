"""One command's dealings with servers: which one, a client when work is to be done, a source when only reading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from shoal.cli.tables import clean
from shoal.client import embedded
from shoal.client.client import Client
from shoal.client.config import find_target
from shoal.model.errors import NotFound, echo
from shoal.model.layout import DATABASE
from shoal.report.source import Source, open_file, source_of

F = TypeVar("F", bound=Callable[..., Any])


def say(text: str) -> None:
    """A note to the person, on standard error so that output can be piped."""
    click.echo(f"shoal: {clean(text)}", err=True)


class Session:
    """The server this command is for."""

    def __init__(self, server: str | None = None) -> None:
        self.target = find_target(server)

    @property
    def is_embedded(self) -> bool:
        """Is it the embedded server?"""
        return self.target.url is None

    def client(self) -> Client:
        """A client; the embedded server is started if it does not run."""
        if self.target.url is not None:
            return Client(self.target.url, self.target.token)
        return embedded.connect(say)

    def running(self) -> Client | None:
        """A client of a server that runs; nothing is started."""
        if self.target.url is not None:
            return Client(self.target.url, self.target.token)
        return embedded.running(embedded.state_dir())

    def client_for(self, what: str) -> Client:
        """A client to act on something that exists; no server is started where nothing was ever submitted."""
        if self.is_embedded and not (embedded.state_dir() / DATABASE).exists():
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
            return open_file(embedded.state_dir(say))
        return self.source()


def server_option(command: F) -> F:
    """`--server URL`, the same on every command."""
    return click.option(
        "--server", metavar="URL", help="Server to use (else $SHOAL_SERVER, ./shoal.toml, your config, embedded)."
    )(command)


def json_option(command: F) -> F:
    """`--json`, the same on every listing."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(command)
