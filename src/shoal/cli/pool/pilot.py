"""`shoal pilots`, `shoal hosts`, `shoal pilot start|build`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import click

from shoal.cli.admin.people import holder
from shoal.cli.admin.token import join_of
from shoal.cli.output.tables import clean, print_json, print_lines, table
from shoal.cli.session import Session, json_option, say, server_option
from shoal.client.connection.embedded_server import state_dir
from shoal.model.credentials import ENROL
from shoal.model.errors import Refused, ShoalError, Unreachable, echo
from shoal.model.layout import SERVER_FILE
from shoal.model.quantities import show_duration, show_size
from shoal.model.states import PilotState
from shoal.report.pilots import choose, parse_columns, parse_where, unknown_notes, value_of
from shoal.report.source import Json
from shoal.wire.checks import did_you_mean
from shoal.wire.http import unix_socket
from shoal.wire.join import MAX_ADDRESSES, Join

NO_SERVER = 4  # the pilot's exit code for it
ENROL_FOR = "7d"  # as long as there may be; it is revoked when the pilot ends
AT_ONCE = 2  # the pilot, and itself come back before the server has given up the first


@click.command()
@click.option("--state", help="Only pilots in this state: idle, busy, draining, gone [default: all but gone].")
@click.option("--all", "show_all", is_flag=True, help="Also those that are gone.")
@click.option("--where", metavar="EXPR", help="Only pilots for which this expression over their tags holds.")
@click.option("--columns", metavar="TAG,TAG", help="Show these tags of each pilot instead of the usual columns.")
@json_option
@server_option
def pilots(
    state: str | None, show_all: bool, where: str | None, columns: str | None, as_json: bool, server: str | None
) -> None:
    """List the pilots: where they are, what they offer, what they do.

    \b
    Examples:
      shoal pilots
      shoal pilots --state idle --json
      shoal pilots --where 'cores >= 8 and site in ["a", "b"]'
      shoal pilots --columns site,cpu,load
    """
    known = [word.value for word in PilotState]
    if state is not None and state not in known:
        raise click.UsageError(f"{clean(echo(state))!r} is not a state of a pilot ({did_you_mean(state, known)})")
    expr = parse_where(where) if where is not None else None
    names = parse_columns(columns) if columns is not None else []
    session = Session(server)
    with session.source() as source:
        rows = source.pilots(state or "")["pilots"]
    if state is None and not show_all:
        rows = [row for row in rows if row["state"] != "gone"]
    there, now = bool(rows), time.time()
    if expr is not None or names:
        for note in unknown_notes(rows, expr, names, now):
            say(note)
        chosen = choose(rows, expr, now)
        rows = [row for row, _ in chosen]
        if names:
            _print_tags(names, [facts for _, facts in chosen], as_json)
            return
    if as_json:
        print_json({"pilots": rows})
        return
    if not rows:
        if there:
            click.echo(f"of the pilots there are, none fits {clean(echo(where))}")
        elif session.is_embedded:
            click.echo("no pilots: the embedded server starts one when there is work, `shoal pilot start` adds one")
        else:
            click.echo("no pilots, so nothing runs: start one with `shoal pilot start`")
        return
    print_lines(table(("pilot", "state", "host", "site", "cores", "memory", "age", "note"), [
        (
            row["pilot"], _marked(row), row["host"], row["site"], row["cores"],
            show_size(row["memory"]) if row["memory"] else "-", show_duration(max(0.0, now - row["joined"])),
            _note(row, now),
        ) for row in rows
    ]))  # fmt: skip


def _marked(row: Json) -> str:
    """The state of a pilot, with what keeps work from it."""
    marks = [mark for mark, is_so in (("banned", row.get("banned")), ("silent", row.get("suspect"))) if is_so]
    return " ".join([str(row["state"]), *marks])


def _note(row: Json, now: float) -> str:
    """Why a pilot ends, gets nothing, or is not heard."""
    notes = [row["reason"]] if row.get("reason") else []
    if row.get("banned"):
        until = row.get("banned_until")
        left = f"for {show_duration(max(0.0, until - now))}" if until is not None else "until its trial is over"
        notes.append(f"banned {left} ({row['banned']})")
    if row.get("suspect"):
        notes.append(f"silent for {show_duration(max(0.0, now - row['seen']))}")
    return "; ".join(notes) or "-"


def _print_tags(names: list[str], facts: list[Json], as_json: bool) -> None:
    """Pilots by the tags that were asked for; one that a pilot has not is null."""
    rows = [[value_of(found, name) for name in names] for found in facts]
    if as_json:
        print_json({"pilots": [dict(zip(names, row, strict=True)) for row in rows]})
    else:
        print_lines(table(names, rows))


@click.command()
@json_option
@server_option
def hosts(as_json: bool, server: str | None) -> None:
    """List the hosts: what each of them did, over all the pilots it ever had.

    \b
    Examples:
      shoal hosts
      shoal hosts --json
    """
    with Session(server).any_client("the list of hosts") as client:
        answer = client.hosts()
    if as_json:
        print_json(answer)
        return
    if not answer["hosts"]:
        click.echo("no hosts yet: `shoal pilot start` or `shoal join` brings one in")
        return
    now = time.time()
    head = ("host", "site", "for", "pilots now", "ever", "succeeded", "failed", "lost", "core time", "known", "seen")
    print_lines(table(head, [
        (
            row["host"], row["site"], holder(row), row["living"], row["pilots"], row["succeeded"], row["failed"],
            row["lost"], show_duration(row["busy"]), _ago(now, row["first"]), _ago(now, row["seen"]),
        ) for row in answer["hosts"]
    ]))  # fmt: skip


def _ago(now: float, then: float) -> str:
    return f"{show_duration(max(0.0, now - then))} ago"


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
@click.option(
    "--tag", "tags", multiple=True, metavar="NAME=VALUE", help="Describe this host to tasks; may be repeated."
)
@server_option
def start(
    cores: int | None, site: str | None, idle_end: float | None, tags: tuple[str, ...], server: str | None
) -> int:
    """Run a pilot here, in the foreground; Ctrl-C lets it finish what runs and end.

    \b
    Examples:
      shoal pilot start
      shoal pilot start --cores 4 --idle-end 600
      shoal pilot start --tag disk=ssd --tag rack=7
    """
    from shoal.pilot.build import build
    from shoal.pilot.host.tags import parse_tags

    parse_tags(tags)
    session = Session(server)
    with tempfile.TemporaryDirectory(prefix="shoal-pilot-") as folder, _placed(session, site) as (words, descriptors):
        build(Path(folder) / "pilot.pyz")
        words += ["--cores", str(cores)] if cores is not None else []
        words += ["--site", site] if site is not None else []
        words += ["--idle-end", f"{idle_end:g}"] if idle_end is not None else []
        words += [word for tag in tags for word in ("--tag", tag)]
        code = _run_here([sys.executable, str(Path(folder) / "pilot.pyz"), *words], descriptors)
    if code == 0:
        return 0
    words_ = f"the pilot ended with exit code {code}"
    if code == NO_SERVER:
        raise Unreachable(words_, hint="it lost the server; its last lines above say why")
    raise Refused(words_, code="pilot_ended", hint="its last lines above say why")


@contextlib.contextmanager
def _placed(session: Session, site: str | None) -> Iterator[tuple[list[str], tuple[int, ...]]]:
    """How the pilot finds the server, as words and open files for it.

    An embedded server by its file, which follows it to each new address. Any other by a join string with an
    enrolment token of its own, which ends with the pilot.
    """
    client = session.client()
    if session.is_embedded:
        yield ["--server-file", str(state_dir() / SERVER_FILE)], ()
        return
    with client:
        answer = client.new_token(
            ENROL, site=site, max_pilots=AT_ONCE, expires=ENROL_FOR, note=f"shoal pilot start on {os.uname().nodename}"
        )
        # The answer names every address; the one that works from here goes first.
        descriptor = _open_secret(str(_near(client.url, join_of(client, answer))))
        try:
            yield ["--join-fd", str(descriptor)], (descriptor,)
        finally:
            os.close(descriptor)
            with contextlib.suppress(ShoalError):  # else it ends by itself
                client.revoke([str(answer["id"])])


def _near(url: str, join: Join) -> Join:
    """The join string with the address that we use before the others."""
    if url.startswith(unix_socket.SCHEME):
        return Join((unix_socket.to_address(url.removeprefix(unix_socket.SCHEME)),), "", join.token)
    address = url.removeprefix("https://")
    address = address if address.rpartition(":")[2].isdecimal() else f"{address}:443"
    others = [other for other in join.addresses if other != address]
    return Join((address, *others)[:MAX_ADDRESSES], join.fingerprint, join.token)


def _open_secret(text: str) -> int:
    """A file in memory that only a child can read which it is passed to: neither argv nor environment shows it."""
    descriptor = os.memfd_create("shoal-join")
    os.write(descriptor, text.encode("ascii"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _run_here(words: list[str], descriptors: tuple[int, ...]) -> int:
    """Run a child in the foreground: it gets the terminal's Ctrl-C itself, and the signals that we get."""
    child = subprocess.Popen(words, pass_fds=descriptors)

    def pass_on(number: int, _: FrameType | None) -> None:
        child.send_signal(number)

    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on),
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
    }
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # under nohup it stays ignored, here and in the child
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, pass_on)
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
