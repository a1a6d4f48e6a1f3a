"""`shoal pilots`, `shoal pilot start|build`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

import click

from shoal.cli.session import Session, json_option, server_option
from shoal.cli.tables import clean, print_json, print_lines, table
from shoal.client.embedded import state_dir
from shoal.model.errors import Refused, Unreachable, echo
from shoal.model.layout import SERVER_FILE
from shoal.model.quantities import show_duration, show_size
from shoal.model.states import PilotState
from shoal.wire.task import did_you_mean

NO_SERVER = 4  # the pilot's exit code for it


@click.command()
@click.option("--state", help="Only pilots in this state: idle, busy, draining, gone [default: all but gone].")
@click.option("--all", "show_all", is_flag=True, help="Also those that are gone.")
@json_option
@server_option
def pilots(state: str | None, show_all: bool, as_json: bool, server: str | None) -> None:
    """List the pilots: where they are, what they offer, what they do.

    \b
    Examples:
      shoal pilots
      shoal pilots --state idle --json
    """
    known = [word.value for word in PilotState]
    if state is not None and state not in known:
        raise click.UsageError(f"{clean(echo(state))!r} is not a state of a pilot ({did_you_mean(state, known)})")
    session = Session(server)
    with session.source() as source:
        rows = source.pilots(state or "")["pilots"]
    if state is None and not show_all:
        rows = [row for row in rows if row["state"] != "gone"]
    if as_json:
        print_json({"pilots": rows})
        return
    if not rows:
        if session.is_embedded:
            click.echo("no pilots: the embedded server starts one when there is work, `shoal pilot start` adds one")
        else:
            click.echo("no pilots, so nothing runs: start one with `shoal pilot start`")
        return
    now = time.time()
    print_lines(table(("pilot", "state", "host", "site", "cores", "memory", "age", "note"), [
        (
            row["pilot"], row["state"], row["host"], row["site"], row["cores"],
            show_size(row["memory"]) if row["memory"] else "-", show_duration(max(0.0, now - row["joined"])),
            row.get("reason") or "-",
        ) for row in rows
    ]))  # fmt: skip


@click.group()
def pilot() -> None:
    """Start a pilot on this machine, or build the one file that a pilot is.

    \b
    Examples:
      shoal pilot start --cores 4
      shoal pilot build -o pilot.pyz
    """


@pilot.command()
@click.option("--cores", type=click.IntRange(1), metavar="N", help="Offer so many cores [default: all there are].")
@click.option("--site", metavar="NAME", help="The site this machine belongs to [default: the server says].")
@click.option("--idle-end", type=click.FloatRange(min=0.0), metavar="S", help="End after S seconds without a task.")
@server_option
def start(cores: int | None, site: str | None, idle_end: float | None, server: str | None) -> int:
    """Run a pilot here, in the foreground; Ctrl-C lets it finish what runs and end.

    \b
    Examples:
      shoal pilot start
      shoal pilot start --cores 4 --idle-end 600
    """
    from shoal.pilot.build import build

    session = Session(server)
    with tempfile.TemporaryDirectory(prefix="shoal-pilot-") as folder:  # made 0700
        words = _place_words(session, Path(folder))
        build(Path(folder) / "pilot.pyz")
        words += ["--cores", str(cores)] if cores is not None else []
        words += ["--site", site] if site is not None else []
        words += ["--idle-end", f"{idle_end:g}"] if idle_end is not None else []
        code = _run_here([sys.executable, str(Path(folder) / "pilot.pyz"), *words])
    if code == 0:
        return 0
    words_ = f"the pilot ended with exit code {code}"
    if code == NO_SERVER:
        raise Unreachable(words_, hint="it lost the server; its last lines above say why")
    raise Refused(words_, code="pilot_ended", hint="its last lines above say why")


def _place_words(session: Session, folder: Path) -> list[str]:
    """How the pilot finds the server: by its file, which follows an embedded server to each new address."""
    client = session.client()
    if session.target.url is None:
        return ["--server-file", str(state_dir() / SERVER_FILE)]
    if not client.health():
        raise Unreachable(
            f"no answer from {session.target.url}", hint="is the server running? see `shoal server status`"
        )
    token = folder / "token"
    with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(session.target.token)
    return ["--server", session.target.url, "--token-file", str(token)]


def _run_here(words: list[str]) -> int:
    """Run a child in the foreground: it gets the terminal's Ctrl-C itself, and the signals that we get."""
    child = subprocess.Popen(words)

    def pass_on(number: int, _: FrameType | None) -> None:
        child.send_signal(number)

    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on),
        signal.SIGHUP: signal.signal(signal.SIGHUP, pass_on),
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
    }
    try:
        return child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pilot.command()
@click.option(
    "-o", "--output", "file", default="pilot.pyz", show_default=True, metavar="FILE", help="Where to write it."
)
@json_option
def build(file: str, as_json: bool) -> None:
    """Build pilot.pyz: one file of standard-library Python that runs on any host with Python 3.9 or newer.

    \b
    Examples:
      shoal pilot build
      shoal pilot build -o /tmp/pilot.pyz
    """
    from shoal.pilot.build import build as make

    path = Path(file)
    if path.is_dir():
        raise click.UsageError(f"{clean(echo(file))} is a directory (name a file: -o {clean(echo(file))}/pilot.pyz)")
    try:
        digest = make(path)
        size = path.stat().st_size
    except OSError as error:
        raise Refused(
            f"cannot write {echo(file)}: {error.strerror}", code="unwritable", hint="name a directory you can write to"
        ) from None
    if as_json:
        print_json({"file": str(path), "sha256": digest, "bytes": size})
    else:
        click.echo(f"{clean(str(path))}  {show_size(size)}  sha256:{digest}")
