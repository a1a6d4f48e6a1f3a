"""`shoal server start|stop|status`: a server of one's own, or a look at the embedded one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from shoal.cli.describe import moment
from shoal.cli.session import Session, json_option, say, server_option
from shoal.cli.tables import clean, pairs, print_json, print_lines
from shoal.client import embedded
from shoal.client.client import Client
from shoal.client.config import echo_path, own_state, read_server_file
from shoal.model.errors import BadInput, Refused, Unreachable, echo
from shoal.model.layout import SERVER_LOG
from shoal.model.quantities import many, show_size

PORT = 8443
TOKEN = "token"  # the server's file for it; unlike its server.json it stays when the server ends
STOP_WITHIN = 15.0
DRAIN_WITHIN = 60.0  # seconds that pilots get to finish what they have

_STATE = click.option("--state", metavar="DIR", help="The server's state directory.")


@click.group()
def server() -> None:
    """Start a server of your own, stop it, or look at it. Without one, an embedded server comes and goes by itself.

    \b
    Examples:
      shoal server start
      shoal server status
      shoal server stop
    """


@server.command()
@click.option("--state", metavar="DIR", help="State directory [default: $XDG_STATE_HOME/shoal/server].")
@click.option("--port", type=click.IntRange(1, 65535), default=PORT, show_default=True, help="Port on 127.0.0.1.")
@click.option("--foreground", is_flag=True, help="Stay here until Ctrl-C.")
@json_option
def start(state: str | None, port: int, foreground: bool, as_json: bool) -> int:
    """Start a server of your own on this machine; it stays until it is stopped.

    \b
    Examples:
      shoal server start
      shoal server start --state /data/shoal --port 9000
    """
    place = embedded.make_private(Path(state).absolute() if state is not None else own_state())
    client = embedded.running(place)
    if client is not None:
        client.close()
        raise Refused(
            f"a server runs on {echo_path(place)} already: {client.url}",
            code="in_use",
            hint="use it, or `shoal server stop`",
        )
    words = ["--state", str(place), "--port", str(port)]
    if foreground:
        return _stay(words)
    client = embedded.start(place, words)
    if as_json:
        print_json({"url": client.url, "state": str(place), "token_file": str(place / TOKEN)})
        return 0
    print_lines(pairs([("server", client.url), ("token", f"in {place / TOKEN}"), ("log", place / SERVER_LOG)]))
    click.echo(f"use it: export SHOAL_SERVER={client.url}")
    click.echo(f"it needs a pilot to run anything: shoal pilot start --server {client.url}")
    return 0


def _stay(words: list[str]) -> int:
    child = subprocess.Popen([sys.executable, "-m", "shoal.server", *words], stdin=subprocess.DEVNULL)
    try:
        code = child.wait()
    except KeyboardInterrupt:
        code = child.wait()  # it got the Ctrl-C too, and ends in order
    # What it refused it has said itself; only the status is left to pass on.
    return code if code >= 0 else 128 - code


def _find(state: str | None, address: str | None) -> tuple[Client | None, Path | None]:
    """The server that is meant: of a state directory, of an address, else the configured or the embedded one."""
    if state is not None and address is not None:
        raise BadInput("--state and --server together", code="usage", hint="give one of them")
    if state is not None:
        place = Path(state).absolute()
        if not place.is_dir():
            raise BadInput(
                f"there is no directory {echo(state)!r}",
                code="no_such_directory",
                field="--state",
                hint="name a server's state directory",
            )
        return embedded.running(place), place
    session = Session(address)
    if session.is_embedded:
        place = embedded.state_dir()
        client = embedded.running(place)
        if client is None and embedded.running(own_state()) is not None:
            place = own_state()  # nobody configured it, but it is the only one there is
            client = embedded.running(place)
        return client, place
    client = session.client()
    if not client.health():
        raise Unreachable(f"no answer from {client.url}", hint="start it with `shoal server start`")
    return client, None


@server.command()
@_STATE
@json_option
@server_option
def status(state: str | None, as_json: bool, server: str | None) -> None:
    """How the server is. Exit status 4 if none runs.

    \b
    Examples:
      shoal server status
      shoal server status --state /data/shoal
    """
    client, place = _find(state, server)
    if client is None:
        raise Unreachable(
            f"no server is running on {echo_path(place or '')}", code="not_running",
            hint="the next `shoal run` starts the embedded one; `shoal server start` one of your own",
        )  # fmt: skip
    with client:
        facts = client.server()
    if as_json:
        print_json({"url": client.url, **facts})
        return
    shown: list[tuple[str, object]] = [("server", client.url)]
    if place is not None:
        shown.append(("state", clean(str(place))))
    print_lines(pairs([*shown, *_facts(facts)]))


def _facts(facts: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """What a server says of itself, in units people read; what is empty is left out."""
    for name, value in facts.items():
        if value in ("", None) or name in ("url", "state_dir", "started"):
            continue
        if name == "since":
            yield name, moment(value)
        elif name.endswith("bytes"):
            yield name.replace("_", " "), show_size(value)
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
    client, place = _find(state, server)
    if client is None:
        click.echo(f"no server is running on {clean(str(place))}")
        return
    told: dict[str, Any] = (read_server_file(place) or {}) if place is not None else {}
    _tell_open_work(client.server(), with_pilots)
    if with_pilots:
        drain(client)
    client.stop()
    wait_until_gone(client, int(told.get("pid", 0)))
    client.close()
    click.echo("stopped")


def _tell_open_work(facts: dict[str, Any], with_pilots: bool) -> None:
    """What stopping means for the work that is open."""
    live, runs = int(facts.get("live", 0)), int(facts.get("open_runs", 0))
    if live and with_pilots:
        say(f"waiting until the pilots have finished {many(live, 'task')} (at most {DRAIN_WITHIN:.0f} s)")
    elif live:
        say(f"{many(live, 'task')} with pilots: what runs goes on there, and is reported to the next server")
    if runs:
        say(f"{many(runs, 'open run')} will go on with the next server")


def drain(client: Client, within: float = DRAIN_WITHIN) -> None:
    """Ask all pilots to finish and end, and wait for it."""
    client.drain()
    end = time.monotonic() + within
    while time.monotonic() < end:
        if all(row["state"] == "gone" for row in client.pilots()["pilots"]):
            return
        time.sleep(0.1)
    raise Refused(
        f"pilots still run tasks after {within:.0f} s",
        code="still_running",
        hint="cancel the runs first, or leave out --pilots",
    )


def wait_until_gone(client: Client, pid: int) -> None:
    """Until its process has ended, or at least nobody answers."""
    end = time.monotonic() + STOP_WITHIN
    while time.monotonic() < end:
        if not (embedded.is_alive(pid) if pid else client.health()):
            return
        time.sleep(0.05)
    if pid:
        os.kill(pid, signal.SIGKILL)  # everything it acknowledged is on disk; a server that hangs helps nobody
