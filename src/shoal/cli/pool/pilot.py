"""`shoal pilot start|drain|stop|build`: a pilot on this machine, the end of pilots, the one file that a pilot is."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import click

from shoal.cli.admin.token import join_of
from shoal.cli.arguments.units import FiniteRange
from shoal.cli.output.tables import clean, print_json
from shoal.cli.output.whole_file import write_whole
from shoal.cli.pool import end_pilots
from shoal.cli.pool.file_options import MESH_OPTIONS, STORAGE_OPTION, check_storage, mesh_options
from shoal.cli.pool.lifetime import LIFETIME_OPTIONS, lifetime_options
from shoal.cli.session import Session, argv_of, json_option, server_option
from shoal.client.connection.embedded_server import state_dir
from shoal.model.credentials import ENROL
from shoal.model.errors import Refused, ShoalError, Unreachable, echo
from shoal.model.file_names import SERVER_FILE
from shoal.model.quantities import parse_size, show_size
from shoal.wire.http import unix_socket
from shoal.wire.join import MAX_ADDRESSES, Join

NO_SERVER = 4  # the pilot's exit code for a lost server
ENROL_FOR = "7d"  # the longest that is allowed; the token is revoked when the pilot ends
AT_ONCE = 2  # the pilot, and its successor if it registers again before the server has lost the first


@click.group()
def pilot() -> None:
    """Start a pilot on this machine, end pilots in order, or build the one file that a pilot is.

    \b
    Examples:
      shoal pilot start --cores 4
      shoal pilot drain p3f9c
      shoal pilot build -o pilot.pyz
    """


pilot.add_command(end_pilots.drain)
pilot.add_command(end_pilots.stop)


@pilot.command()
@click.option("--cores", type=click.IntRange(1), metavar="N", help="Offer so many cores [default: all there are].")
@click.option("--site", metavar="NAME", help="The site this machine belongs to [default: the server says].")
@click.option("--idle-end", type=FiniteRange(min=0.0), metavar="S", help="End after S seconds without a task.")
@LIFETIME_OPTIONS
@click.option(
    "--tag", "tags", multiple=True, metavar="NAME=VALUE", help="Describe this host to tasks; may be repeated."
)
@MESH_OPTIONS
@click.option(
    "--cache-dir", metavar="DIR", help="Keep files for the tasks of this host's pilots there [default: in /var/tmp]."
)
@click.option(
    "--cache-max",
    metavar="SIZE",
    help="That cache and its reserve take at most so much [default: half of the disk, up to 64G].",
)
@click.option(
    "--cache-reserve",
    metavar="SIZE",
    help="What of it stays free for what tasks write [default: a twentieth of the disk, up to 2G].",
)
@STORAGE_OPTION
@server_option
def start(
    cores: int | None, site: str | None, idle_end: float | None, lifetime: str | None, until: str | None,
    tags: tuple[str, ...], cache_dir: str | None, cache_max: str | None, cache_reserve: str | None,
    storage: tuple[str, ...], mesh: str | None, mesh_port: str | None, mesh_address: str | None, shared_dir: str | None,
    server: str | None,
) -> int:  # fmt: skip
    """Run a pilot here, in the foreground; Ctrl-C lets it finish what runs and end.

    \b
    Examples:
      shoal pilot start
      shoal pilot start --cores 4 --idle-end 600
      shoal pilot start --until 18:00
      shoal pilot start --tag disk=ssd --tag rack=7
      shoal pilot start --mesh-port 9700-9799
      shoal pilot start --cache-dir /scratch --cache-max 200G
    """
    from shoal.pilot.build_zip import build
    from shoal.pilot.host.tags import parse_tags

    parse_tags(tags)
    check_storage(storage)
    sizes = [
        parse_size(text, name) if text else None
        for name, text in (("--cache-max", cache_max), ("--cache-reserve", cache_reserve))
    ]
    ending = (*lifetime_options(lifetime, until), *mesh_options(mesh, mesh_port, mesh_address, shared_dir))
    session = Session(server)
    with tempfile.TemporaryDirectory(prefix="shoal-pilot-") as folder, _server_options(session, site) as (found, fds):
        file = Path(folder) / "pilot.pyz"
        build(file)
        session.tell()
        options = argv_of(
            ("--cores", cores),
            ("--site", site),
            ("--idle-end", idle_end),
            *ending,
            ("--tag", tags),
            ("--storage", storage),
            ("--cache-dir", cache_dir),
            ("--cache-max", sizes[0]),
            ("--cache-reserve", sizes[1]),
        )
        code = _run_here([sys.executable, str(file), *found, *options], fds)
    if code == 0:
        return 0
    ended = f"the pilot ended with exit code {code}"
    if code == NO_SERVER:
        raise Unreachable(ended, hint="it lost the server; its last lines above say why")
    raise Refused(ended, code="pilot_ended", hint="its last lines above say why")


@contextlib.contextmanager
def _server_options(session: Session, site: str | None) -> Iterator[tuple[list[str], tuple[int, ...]]]:
    """Options of the pilot that name the server, and files to be passed open.

    The embedded server is named by its server file, which has its address after each start. Any other by a join string
    with an enrolment token, which is revoked when the pilot ends.
    """
    client = session.client()
    if session.is_embedded:
        yield ["--server-file", str(state_dir() / SERVER_FILE)], ()
        return
    with client:
        answer = client.new_token(
            ENROL, site=site, max_pilots=AT_ONCE, expires=ENROL_FOR, note=f"shoal pilot start on {os.uname().nodename}"
        )
        # The response has every address of the server; the one that works from here goes first.
        descriptor = _open_secret(str(_near(client.url, join_of(client, answer))))
        try:
            yield ["--join-fd", str(descriptor)], (descriptor,)
        finally:
            os.close(descriptor)
            with contextlib.suppress(ShoalError):  # else it ends by itself
                client.revoke([str(answer["id"])])


def _near(url: str, join: Join) -> Join:
    """The join string with the address of this client before the others."""
    if url.startswith(unix_socket.SCHEME):
        return Join((unix_socket.to_address(url.removeprefix(unix_socket.SCHEME)),), "", join.token)
    address = url.removeprefix("https://")
    address = address if address.rpartition(":")[2].isdecimal() else f"{address}:443"
    others = [other for other in join.addresses if other != address]
    return Join((address, *others)[:MAX_ADDRESSES], join.fingerprint, join.token)


def _open_secret(text: str) -> int:
    """A file in memory for a child process: neither its arguments nor its environment show the text."""
    descriptor = os.memfd_create("shoal-join")
    os.write(descriptor, text.encode("ascii"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _run_here(argv: list[str], descriptors: tuple[int, ...]) -> int:
    """Run a child in the foreground: it gets Ctrl-C from the terminal, and other signals from this process."""
    child = subprocess.Popen(argv, pass_fds=descriptors)

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
    from shoal.pilot.build_zip import pack

    path = Path(file)
    if path.is_dir():
        raise click.UsageError(f"{clean(echo(file))} is a directory (name a file: -o {clean(echo(file))}/pilot.pyz)")
    data = pack()
    digest, size = hashlib.sha256(data).hexdigest(), len(data)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, data, 0o755)
    except OSError as error:
        raise Refused(
            f"cannot write {echo(file)}: {error.strerror}", code="unwritable", hint="name a directory you can write to"
        ) from None
    if as_json:
        print_json({"file": str(path), "sha256": digest, "bytes": size})
    else:
        click.echo(f"{clean(str(path))}  {show_size(size)}  sha256:{digest}")
