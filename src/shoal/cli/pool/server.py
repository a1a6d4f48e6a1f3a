"""`shoal server start|stop|status|list|use|backup|restore|check`: a server of one's own, or a look at the embedded one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from shoal.cli.output.describe import moment, until
from shoal.cli.output.json_documents import iso_document
from shoal.cli.output.tables import clean, pairs, print_json, print_lines
from shoal.cli.pool.backup import backup, check, restore
from shoal.cli.pool.known_servers import list_servers, use
from shoal.cli.session import Session, argv_of, common_options, json_option, say, server_option, state_directory
from shoal.client.client import Client
from shoal.client.config import DURABILITIES, EMBEDDED, echo_path, find_target, own_state, read_server_file
from shoal.client.connection import embedded_server
from shoal.client.known_servers import OWN, known_servers, remember_started
from shoal.model.errors import BadInput, Refused, Unreachable, echo
from shoal.model.file_names import SERVER_LOG, TOKEN_FILE
from shoal.model.quantities import many, parse_size, show_size

STOP_WITHIN = 15.0
DRAIN_WITHIN = 60.0  # seconds that pilots get to finish what they have
_HOST = re.compile(r"|[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")
_TIMES = ("_ends", "_expires", "_until")  # ends of the names of times in the future

_STATE = click.option("--state", metavar="DIR", help="The server's state directory.")


@click.group()
def server() -> None:
    """Start a server of your own, stop it, look at it, choose one, or copy its database.

    Without one, an embedded server comes and goes by itself. All commands use the same server, the first of: --server,
    $SHOAL_SERVER, ./shoal.toml, what `shoal server use` chose, a running server of yours, the embedded one.

    \b
    Examples:
      shoal server start
      shoal server start --listen :8443
      shoal server list
      shoal server use embedded
      shoal server status
      shoal server stop
      shoal server backup
    """


for _command in (list_servers, use, backup, restore, check):
    server.add_command(_command)


@server.command()
@click.option("--state", metavar="DIR", help="State directory [default: $XDG_STATE_HOME/shoal/server].")
@click.option(
    "--listen", multiple=True, metavar="HOST:PORT",
    help="Open it to others over TLS; :8443 is every interface (repeat for more).",
)  # fmt: skip
@click.option(
    "--address", multiple=True, metavar="NAME:PORT",
    help="Another address that others reach it by, e.g. behind a NAT (repeat for more).",
)  # fmt: skip
@click.option(
    "--blob-quota", metavar="SIZE", help="Bytes of large arguments and results for each person [default: 20G]."
)
@click.option(
    "--durability", type=click.Choice(DURABILITIES),
    help="normal: faster, but a power cut may take the last moments [default: full].",
)  # fmt: skip
@click.option("--new-ca", is_flag=True, help="Make a new CA: everyone must log in and join anew.")
@click.option("--foreground", is_flag=True, help="Stay here until Ctrl-C.")
@json_option
def start(
    state: str | None,
    listen: tuple[str, ...],
    address: tuple[str, ...],
    blob_quota: str | None,
    durability: str | None,
    new_ca: bool,
    foreground: bool,
    as_json: bool,
) -> int:
    """Start a server of your own on this machine; it stays until it is stopped. With --listen others can use it too.

    Your own account reaches it by a Unix socket in its state directory, everyone else over TLS.

    \b
    Examples:
      shoal server start
      shoal server start --listen :8443
      shoal server start --listen 10.0.0.5:8443 --address box.example.org:8443
      shoal server start --state /data/shoal --listen 127.0.0.1:9000
    """
    for option, addresses in (("--listen", listen), ("--address", address)):
        for text in addresses:
            check_listen(text, option)
    if address and not listen:
        raise click.UsageError("--address needs --listen (e.g. --listen :8443)")
    state_dir = embedded_server.make_private(Path(state).absolute() if state is not None else own_state())
    client = embedded_server.running(state_dir)
    if client is not None:
        client.close()
        hint = "use it, or `shoal server stop`"
        raise Refused(f"a server runs on {echo_path(state_dir)} already: {client.url}", code="in_use", hint=hint)
    quota = parse_size(blob_quota, "--blob-quota") if blob_quota is not None else None
    arguments = argv_of(
        ("--state", state_dir), ("--listen", listen), ("--address", address), ("--blob-quota", quota),
        ("--durability", durability), ("--new-ca", new_ca),
    )  # fmt: skip
    if foreground:
        remember_started(state_dir)
        return _stay(arguments)
    remember_started(state_dir)
    with embedded_server.start(state_dir, arguments) as client:
        facts = client.server() if listen else {}
    reached = {name: facts[name] for name in ("addresses", "fingerprint") if facts.get(name)}
    if as_json:
        print_json({"url": client.url, "state": str(state_dir), "token_file": str(state_dir / TOKEN_FILE), **reached})
        return 0
    shown: list[tuple[str, object]] = [("server", client.url), ("token", f"in {state_dir / TOKEN_FILE}")]
    print_lines(pairs([*shown, ("log", state_dir / SERVER_LOG), *_facts(reached)]))
    used = find_target()
    if used.url == client.url:
        click.echo("your commands use it while it runs (`shoal server list`, `shoal server use embedded`)")
    else:
        name = next((one.name for one in known_servers().values() if one.state == str(state_dir)), OWN)
        click.echo(f"use it: shoal server use {name} (now your commands use {used.url or EMBEDDED}: {used.origin})")
    click.echo("it needs a pilot to run anything: shoal pilot start" + _server_word(used.url, client.url))
    if listen:
        click.echo("let people in: shoal user add anna, then shoal token new --user anna")
        click.echo("let a host work: shoal join")
    return 0


def _server_word(used: str | None, url: str) -> str:
    """The option that names a server, where commands would use another."""
    return "" if used == url else f" --server {url}"


def check_listen(text: str, option: str) -> None:
    """`HOST:PORT`, `[::1]:8443` or, to listen everywhere, `:8443`."""
    host, colon, port = text.rpartition(":")
    right = bool(colon) and port.isdecimal() and 0 < int(port) < 65536 and _HOST.fullmatch(host) is not None
    if not right or (option == "--address" and not host):
        example = "box.example.org:8443" + (" or :8443" if option == "--listen" else "")
        raise BadInput(
            f"{echo(text)!r} is not HOST:PORT", code="bad_listen", field=option, hint=f"e.g. {option} {example}"
        )


def _stay(arguments: list[str]) -> int:
    child = subprocess.Popen([sys.executable, "-m", "shoal.server", *arguments], stdin=subprocess.DEVNULL)
    try:
        code = child.wait()
    except KeyboardInterrupt:
        code = child.wait()  # the server got the Ctrl-C, too, and shuts down
    # The server itself wrote why it refused; only its status is passed on.
    return code if code >= 0 else 128 - code


def _find(state: str | None, address: str | None) -> tuple[Client | None, Path | None]:
    """The server of a state directory or of an address, else the one that all commands use."""
    if state is not None and address is not None:
        raise BadInput("--state and --server together", code="usage", hint="give one of them")
    if state is not None:
        state_dir = state_directory(state)
        return embedded_server.running(state_dir), state_dir
    session = Session(address)
    if session.is_embedded or session.target.state is not None:
        state_dir = session.target.state or embedded_server.state_dir()
        return embedded_server.running(state_dir), state_dir
    client = session.client()
    if not client.health():
        raise Unreachable(f"no answer from {client.url}", hint="start it with `shoal server start`")
    return client, None


@server.command()
@_STATE
@common_options
def status(state: str | None, as_json: bool, server: str | None) -> None:
    """How the server is. Exit status 4 if none runs.

    \b
    Examples:
      shoal server status
      shoal server status --state /data/shoal
    """
    client, state_dir = _find(state, server)
    if client is None:
        _check_silent(state_dir)
        raise Unreachable(
            f"no server is running on {echo_path(state_dir or '')}", code="not_running",
            hint="the next `shoal run` starts the embedded one; `shoal server start` one of your own",
        )  # fmt: skip
    with client:
        facts = client.server()
    if as_json:
        print_json(iso_document({"url": client.url, **facts}))
        return
    shown: list[tuple[str, object]] = [("server", client.url)]
    if state_dir is not None:
        shown.append(("state", clean(str(state_dir))))
    print_lines(pairs([*shown, *_facts(facts)]))


def _facts(facts: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """The status of a server, in units that people read; empty values are left out."""
    for name, value in facts.items():
        if value in ("", None, []) or name in ("url", "state_dir", "started"):
            continue
        if name == "since":
            yield name, moment(value)
        elif name.endswith("bytes"):
            yield name.replace("_", " "), show_size(value)
        elif name.endswith(_TIMES) and isinstance(value, (int, float)):
            yield clean(name).replace("_", " "), until(value)
        elif isinstance(value, list):
            yield clean(name).replace("_", " "), ", ".join(clean(part) for part in value)
        else:
            yield clean(name).replace("_", " "), value


@server.command()
@_STATE
@click.option("--pilots", "with_pilots", is_flag=True, help="Let its pilots finish what runs and end first.")
@server_option
def stop(state: str | None, with_pilots: bool, server: str | None) -> None:
    """Stop the server. Pilots keep running tasks and come back to the next server, unless --pilots ends them.

    \b
    Examples:
      shoal server stop
      shoal server stop --pilots
    """
    client, state_dir = _find(state, server)
    if client is None:
        _check_silent(state_dir)
        click.echo(f"no server is running on {clean(str(state_dir))}")
        return
    if state_dir != embedded_server.state_dir():
        say(f"server {client.url}")
    server_file = read_server_file(state_dir) if state_dir is not None else None
    with client:
        facts = client.server()
        if with_pilots:
            client.drain()
            _tell_open_work(facts, with_pilots)
            wait_for_pilots(client)
        client.stop()
        if not with_pilots:  # not before it is certain that it may be stopped
            _tell_open_work(facts, with_pilots)
        wait_until_gone(client, server_file.pid if server_file is not None else 0)
    click.echo("stopped")


def _check_silent(state_dir: Path | None) -> None:
    """Raise if there is a server that does not answer, which is not the same as none."""
    silent = embedded_server.not_answering(state_dir) if state_dir is not None else None
    if silent is not None:
        raise silent


def _tell_open_work(facts: dict[str, Any], with_pilots: bool) -> None:
    """Say what stopping means for unfinished work."""
    live, runs = int(facts.get("live", 0)), int(facts.get("open_runs", 0))
    if live and with_pilots:
        say(f"waiting until the pilots have finished {many(live, 'task')} (at most {DRAIN_WITHIN:.0f} s)")
    elif live:
        say(f"{many(live, 'task')} with pilots: what runs goes on there, and is reported to the next server")
    if runs:
        say(f"{many(runs, 'open run')} will go on with the next server")


def wait_for_pilots(client: Client, within: float = DRAIN_WITHIN) -> None:
    """Wait until all pilots, which were asked to finish, have ended."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        if all(row["state"] == "gone" for row in client.pilots()["pilots"]):
            return
        time.sleep(0.1)
    hint = "cancel the runs first, or leave out --pilots"
    raise Refused(f"pilots still run tasks after {within:.0f} s", code="still_running", hint=hint)


def wait_until_gone(client: Client, pid: int) -> None:
    """Wait until its process has ended, or at least does not answer."""
    end = time.monotonic() + STOP_WITHIN
    while time.monotonic() < end:
        if not (embedded_server.is_alive(pid) if pid else client.health()):
            return
        time.sleep(0.05)
    if pid:
        os.kill(pid, signal.SIGKILL)  # everything it acknowledged is on disk, so it is safe to kill a server that hangs
