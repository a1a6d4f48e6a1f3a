"""`shoal server list|use`: the servers that an account knows, and which one its commands talk to."""

from __future__ import annotations

import os
from pathlib import Path

import click

from shoal.cli.output.tables import clean, print_json, print_table
from shoal.cli.session import common_options, say
from shoal.client.client import Client
from shoal.client.config import EMBEDDED, LOCAL_FILE, Target, config_files, find_target, read_config, read_server_file
from shoal.client.connection import embedded_server
from shoal.client.known_servers import OWN, KnownServer, chosen, is_running, known_servers, target_of
from shoal.client.known_servers import choose as write_choice
from shoal.model.errors import ShoalError
from shoal.model.file_names import SOCKET_FILE
from shoal.model.lazy_dataclass import dataclass

ANSWER_WITHIN = 3.0  # seconds that a server gets to show that it is up


@dataclass(frozen=True)
class Row:
    """One line of the list."""

    name: str
    address: str
    origin: str
    up: bool
    why: str = ""  # why it is the one in use


@click.command("list")
@common_options
def list_servers(as_json: bool, server: str | None) -> None:
    """List the servers that you can use by name, whether they are up, and which one your commands talk to.

    The first of these counts: --server, $SHOAL_SERVER, ./shoal.toml, what `shoal server use` chose, a running server of
    yours, the embedded server.

    \b
    Examples:
      shoal server list
      shoal server list --json
    """
    wrong = ""
    try:
        target = find_target(server)
    except ShoalError as error:  # the list shall show what can be chosen instead
        target, wrong = None, error.line
    found = rows(target)
    if as_json:
        fields = [{**vars(row), "in_use": bool(row.why)} for row in found]
        print_json({"servers": fields, "wrong": wrong})
    else:
        print_table(
            ("used", "name", "address", "from", "up", "why"),
            [("*" if r.why else "", r.name, r.address, r.origin, "yes" if r.up else "no", r.why or "-") for r in found],
            "",
        )
    if wrong:
        say(wrong)


def rows(target: Target | None) -> list[Row]:
    """Every server with a name, and those that a file or the environment names by their addresses."""
    state = embedded_server.state_dir()
    is_used = target is not None and target.url is None
    here = read_server_file(state)
    is_up = here is not None and is_running(here)
    why = target.origin if target is not None else ""
    why = "no other is chosen or running" if why == "default" else why
    found = [
        Row(
            EMBEDDED,
            f"unix:{state / SOCKET_FILE}" if here is None else here.url,
            "by itself",
            is_up,
            why if is_used else "",
        )
    ]
    for entry in known_servers().values():
        row = _row(entry, target)
        if entry.name != OWN or row.up or row.why or os.path.isdir(entry.state):
            found.append(row)
    for origin, url in _named():
        if not any(row.address == url or row.name == url for row in found):
            is_chosen = target is not None and target.url == url
            found.append(
                Row("-", url, origin, _answers(target) if is_chosen and target else False, origin if is_chosen else "")
            )
    if target is not None and target.url is not None and not any(row.why for row in found):
        found.append(Row("-", target.url, target.origin, _answers(target), target.origin))
    return found


def _named() -> list[tuple[str, str]]:
    """Servers that the environment and the files name by their addresses."""
    named = [("$SHOAL_SERVER", os.environ.get("SHOAL_SERVER", ""))]
    named += [(str(file), read_config(file).get("server", "")) for file in config_files()]
    return [(origin, url) for origin, url in named if ":" in url]


def _row(entry: KnownServer, target: Target | None) -> Row:
    address, up = entry.server, False
    if entry.state:
        here = read_server_file(Path(entry.state))
        up = here is not None and is_running(here)
        address = here.url if here is not None and up else f"unix:{entry.state}/{SOCKET_FILE}"
    is_used = target is not None and target.url == address
    if not entry.state:
        try:
            up = _answers(target if is_used and target is not None else target_of(entry.name, "list"))
        except ShoalError:  # its token's file is gone, for example
            up = False
    origin = "started here" if entry.state else "login"
    return Row(entry.name, address, origin, up, target.origin if is_used and target is not None else "")


def _answers(target: Target) -> bool:
    if target.url is None:
        return False
    with Client(target.url, target.token, target.ca) as client:
        return client.health(timeout=ANSWER_WITHIN)


@click.command()
@click.argument("name", metavar="[NAME]", required=False)
@click.option(
    "--default", "is_default", is_flag=True, help="Choose none: a running server of yours, else the embedded one."
)
def use(name: str | None, is_default: bool) -> None:
    """Have your commands talk to a server from now on: a name that `shoal server list` shows, or `embedded`.

    It is written into your config.toml. --server, $SHOAL_SERVER and ./shoal.toml still go before it.

    \b
    Examples:
      shoal server use box
      shoal server use embedded
      shoal server use --default
    """
    if (name is None) is not is_default:
        raise click.UsageError("name one server, or give --default (see `shoal server list`)")
    before = chosen()
    file = write_choice(name or "")
    if name:
        click.echo(f"{clean(str(file))}: your commands use {clean(name)} from now on")
    else:
        click.echo(f"{clean(str(file))}: no server is chosen" + (f" (it was {clean(before)})" if before else ""))
    _tell_what_goes_before(name or "")


def _tell_what_goes_before(name: str) -> None:
    """A choice that does not count here is said to be so."""
    over = "$SHOAL_SERVER" if os.environ.get("SHOAL_SERVER") else ""
    over = over or (f"./{LOCAL_FILE}" if read_config(Path(LOCAL_FILE)).get("server") else "")
    if over:
        say(f"note: {over} goes before it here")
    elif name and name != EMBEDDED:
        try:
            find_target()
        except ShoalError as error:
            say(f"note: {error.line}")
