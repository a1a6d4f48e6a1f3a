"""The server of one command: a client to act, a source to read; and options that many commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from shoal.client.client import Client
from shoal.client.config import find_target as find_server
from shoal.client.connection import embedded_server
from shoal.client.connection.provisioner_process import ensure_running, folder_of, site_names
from shoal.client.console import say as say
from shoal.model.errors import BadInput, Unreachable, echo
from shoal.model.file_names import DATABASE
from shoal.model.ids import target_of
from shoal.model.limits import MAX_PAGE
from shoal.report.data_source import Json, Source, nothing_submitted, open_file, source_of
from shoal.report.run_names import TASK, find_run, find_target

F = TypeVar("F", bound=Callable[..., Any])


class Session:
    """The server that a command is for."""

    def __init__(self, server: str | None = None, changes: bool = False) -> None:
        """`changes`: the command changes something, so that it says in the end on which server, if that is not the embedded
        one."""
        self.target = find_server(server)
        if changes:
            self.tell(at_once=False)

    def tell(self, at_once: bool = True) -> None:
        """Say which server is used, and why; not with --json or --quiet."""
        context = click.get_current_context(silent=True)
        given = context.params if context is not None else {}
        if self.target.url is None or given.get("as_json") or given.get("quiet"):
            return
        line = f"server {self.target.url} ({self.target.origin})"
        if at_once or context is None or not isinstance(context.obj, list):
            say(line)
        else:
            context.obj.append(line)

    @property
    def is_embedded(self) -> bool:
        """True if it is the embedded server."""
        return self.target.url is None

    @property
    def is_far(self) -> bool:
        """True if tasks run on hosts unlike this one."""
        return self.target.is_remote

    def runs_elsewhere(self, client: Client) -> bool:
        """True if tasks may run on hosts that do not see the files here: of a server elsewhere, of a site, or those that join a
        server which others reach."""
        if self.is_far or self.site_names:
            return True
        return any(not address.startswith("unix:") for address in client.server().get("addresses") or ())

    def client(self) -> Client:
        """A client; the embedded server is started if it does not run."""
        return embedded_server.connect(self.target, say)

    @property
    def site_names(self) -> list[str]:
        """The sites that the person has for this server."""
        return site_names(self._provision())

    def wake_provisioner(self) -> None:
        """Start the provisioner of the person's sites, if there are any and it was killed."""
        ensure_running(self.target.url, self._provision())

    def _provision(self) -> Path:
        return folder_of(self.target.url, embedded_server.state_dir())

    def running(self) -> Client | None:
        """A client of the configured server, or of the embedded one if it runs; nothing is started."""
        return embedded_server.running_client(self.target)

    def shared_client(self) -> Client:
        """A client of a server for several people, which the embedded one is not."""
        if self.is_embedded:
            raise Unreachable(
                "no server for others is running, and the embedded one is for you alone", code="not_running",
                hint="start one with `shoal server start --listen :8443`, or `shoal login -` to another's",
            )  # fmt: skip
        return self.client()

    def any_client(self, what: str) -> Client:
        """A client of the server if it runs; `what` needs one, and starts none."""
        client = self.running()
        if client is None:
            silent = embedded_server.not_answering(embedded_server.state_dir())
            if silent is not None:
                raise silent
            raise Unreachable(
                f"{what} needs a running server", code="not_running", hint="`shoal server start` starts one"
            )
        return client

    def client_for(self, what: str) -> Client:
        """A client to act on a run or task; no server is started where nothing was ever submitted."""
        if self.is_embedded and not (embedded_server.state_dir() / DATABASE).exists():
            raise nothing_submitted(what)
        return self.client()

    def source(self) -> Source:
        """The source to read; no server is started."""
        return source_of(self.target, say)

    def find_target(self, text: str, wanted: str = TASK) -> str:
        """The id of a run or task, which may be given by the name of its run; nothing is read for an id."""
        if target_of(text) is not None:
            return text
        with self.source() as source:
            return find_target(source, text, say, wanted)

    def find_run(self, text: str) -> str:
        """The id of a run, which may be given by its name; nothing is read for an id."""
        if isinstance(target_of(text), int):
            return text
        with self.source() as source:
            return find_run(source, text, say)

    def bulk_source(self) -> Source:
        """The source to read much: of the embedded server the database file, which is faster than the server."""
        if self.is_embedded:
            return open_file(embedded_server.state_dir(say))
        return self.source()


def read_pages(ask: Callable[[int, Any], Json], key: str, limit: int) -> tuple[list[Json], Any]:
    """Rows of several pages, up to a limit (0: all), and where the next page would begin; None: that was all.

    `ask` gets the size of a page and where it begins, which is None for the first.
    """
    rows: list[Json] = []
    start = None
    while True:
        page = ask(min(MAX_PAGE, limit - len(rows)) if limit else MAX_PAGE, start)
        rows += page[key]
        start = page["next"]
        if start is None or (limit and len(rows) >= limit):
            return rows, start


def state_directory(text: str) -> Path:
    """The directory that a --state option names."""
    path = Path(text).absolute()
    if not path.is_dir():
        raise BadInput(
            f"there is no directory {echo(text)!r}", code="no_such_directory", field="--state",
            hint="name a server's state directory",
        )  # fmt: skip
    return path


def server_option(command: F) -> F:
    """`--server URL`, the same on every command."""
    return click.option("--server", metavar="NAME|URL", help="Server to use [default: see `shoal server list`].")(
        command
    )


def json_option(command: F) -> F:
    """`--json`, the same on every listing."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(command)


def argv_of(*options: tuple[str, object]) -> list[str]:
    """Options as arguments of a program: a flag is True, a tuple gives one argument each, None is left out."""
    arguments: list[str] = []
    for name, value in options:
        for each in value if isinstance(value, tuple) else (value,):
            if each is True:
                arguments.append(name)
            elif each is not None and each is not False:
                arguments += [name, f"{each:g}" if isinstance(each, float) else str(each)]
    return arguments


def common_options(command: F) -> F:
    """`--json` and `--server URL`."""
    return json_option(server_option(command))


LIMIT_OPTION = click.option("--limit", type=click.IntRange(0), metavar="N", help="Rows to show; 0: all.")
