"""Start and shutdown of the server: state directory, database, addresses, tokens and periodic tasks."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import gc
import getpass
import json
import logging
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from shoal import __version__
from shoal.db.backups import restored_at
from shoal.db.database_lock import explained, way_out
from shoal.db.retention import KEEP_BYTES, KEEP_SECONDS
from shoal.db.sqlite import Database
from shoal.engine.commands import Drain
from shoal.model.credentials import ENROL, SUBMIT, redact
from shoal.model.errors import InternalError, Refused, ShoalError
from shoal.model.file_names import (
    BLOBS,
    DATABASE,
    ENVIRONMENTS,
    LOG_MARK,
    LOGS,
    SERVER_FILE,
    SITES_FILE,
    SOCKET_FILE,
    TUNNEL_SOCKET,
)
from shoal.model.ids import start_count
from shoal.model.limits import MAX_RESERVE, MAX_RESERVE_EMBEDDED
from shoal.model.quantities import parse_size
from shoal.model.timing import Timing
from shoal.server.auth.authentication import COUNT_FOR, Authentication
from shoal.server.auth.local_tokens import local_tokens
from shoal.server.blobs.registry import CHECKPOINTS_EVERY, QUOTA, Blobs
from shoal.server.blobs.uploads import Uploads
from shoal.server.context import Context
from shoal.server.disk_reserve import Reserve
from shoal.server.file_watch import FileWatch
from shoal.server.hooks.ban_hook import BanHook
from shoal.server.hooks.notify import Notifier
from shoal.server.http.app import make_app
from shoal.server.http.connections import ConnectionLimits, Connections, capacity_of, raise_file_limit
from shoal.server.http.listen import bind, bind_local, names_of, parse_address, reached_by
from shoal.server.http.protocol import HttpServer
from shoal.server.http.rate_limit import RateLimit
from shoal.server.http.tunnel_socket import TunnelSocket
from shoal.server.metrics import Metrics
from shoal.server.own_pilot import OriginalSettings, OwnPilot
from shoal.server.placement import PlacementLoop
from shoal.server.planning.deadline_watch import DeadlineWatch
from shoal.server.planning.planner import Planner
from shoal.server.private_files import write_private
from shoal.server.retention import prune
from shoal.server.service import Service
from shoal.wire.http import unix_socket

log = logging.getLogger(__name__)
TICK = 0.2
WATCH_EVERY = 1.0  # seconds between checks of the disk and the database's files
LINGER = 60.0  # seconds after its last work when an embedded server ends
PRUNE_EVERY = 3600.0
KEYS_EVERY = 600.0  # seconds between checks of tokens and certificates, which are renewed long before they end
LAG_EVERY = 0.1
SWITCH = 0.0005
GARBAGE = (50_000, 20, 100)


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="shoal.server", description="The Shoal server.")
    add = parser.add_argument
    add("--state", required=True, help="directory of the database, logs and address file")
    add("--embedded", action="store_true", help="one user's server: own pilot, ends when idle")
    add("--listen", action="append", default=[], metavar="HOST:PORT", help="over TLS, for other accounts and hosts")
    add("--address", action="append", default=[], metavar="HOST:PORT", help="how others reach it, for join strings")
    add("--new-ca", action="store_true", help="throw the old certificates away: every join string ends")
    add("--linger", type=float, default=LINGER, help="embedded: seconds to stay after the last work")
    add("--pilot", action=argparse.BooleanOptionalAction, default=None, help="keep a pilot on this machine")
    add(
        "--durability", choices=("full", "normal"), default="full", help="normal: a power cut may take the last moments"
    )
    add("--blob-quota", default=f"{QUOTA >> 30}G", metavar="SIZE", help="bytes of blobs for each owner")
    add("--ready-fd", type=int, metavar="N", help="an open file that gets one byte when the server answers")
    add("--timing", default="{}", help="JSON with other times than the defaults, for tests")
    return parser.parse_args(argv)


class Redacted(logging.Formatter):
    """Removes secrets from every log line and traceback [security S12]."""

    def format(self, record: logging.LogRecord) -> str:
        """The line without secrets."""
        return redact(super().format(record))


def main() -> int:
    """Run a server until it is stopped or, if embedded, idle."""
    chosen = parse(sys.argv[1:])
    if chosen.ready_fd is not None:
        os.set_inheritable(chosen.ready_fd, False)  # whoever waits sees its end when we end
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Redacted("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # The event loop releases the interpreter's lock at each system call; with the default of 5 ms it would wait that
    # long for a thread that reads or writes rows, each time.
    sys.setswitchinterval(SWITCH)
    umask = os.umask(0o077)
    try:
        return asyncio.run(serve(chosen, umask))
    except ShoalError as error:
        return _fail(error.line)
    except (OSError, sqlite3.Error) as error:
        # A disk that is full or broken while the server starts or ends: no place to write a traceback to, either.
        return _fail(f"{error} (is the disk of {chosen.state} full or read-only?)")


def _fail(line: str) -> int:
    with contextlib.suppress(OSError):
        print(f"shoal server: {line}", file=sys.stderr, flush=True)
    return 3


async def serve(chosen: argparse.Namespace, umask: int) -> int:
    """Open everything, serve, and close it again."""
    state_dir = Path(chosen.state).absolute()
    chosen.listen = [parse_address(text, "--listen") for text in chosen.listen]
    chosen.address = [parse_address(text, "--address") for text in chosen.address]
    _make_state(state_dir)
    timing, quota = _timing(chosen.timing), parse_size(chosen.blob_quota, "--blob-quota")
    before, files = raise_file_limit()
    reserve = Reserve(state_dir, MAX_RESERVE_EMBEDDED if chosen.embedded else MAX_RESERVE)
    trouble = ""

    def open_reserve() -> None:  # only under the lock: until then it may belong to a running server
        nonlocal trouble
        trouble = reserve.open()
        if trouble:
            log.error("%s; nothing new is accepted until there is more", trouble)

    database = Database.open(state_dir / DATABASE, durability=chosen.durability, on_locked=open_reserve)
    for note in database.notes:
        log.info("%s", note)
    with _readable(database):
        people, held = database.people(time.time()), database.blobs()
        service = Service(database, state_dir, timing, "embedded" if chosen.embedded else "own", reserve, trouble)
    _collect_garbage()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        service.loop.add_signal_handler(number, ended.set)
    connections = Connections(ConnectionLimits(total=capacity_of(files)))
    blobs = Blobs(
        state_dir / BLOBS,
        held,
        service.writer.put,
        service.clock,
        quota,
        durable=chosen.durability == "full",
        restored=restored_at(database.path),
    )
    blobs.has_open_run = service.engine.has_open_run

    def count_blobs() -> None:
        engine = service.engine
        blobs.count_with(engine.count_stored, lambda owner, size: engine.quota_block(owner, size, service.clock()))

    count_blobs()
    service.on_rebuilt = count_blobs
    hooks = BanHook(lambda: service.engine.state.accounting.policy.ban.hook, service.clock, state_dir)
    service.on_notices = hooks.notify
    notifier = Notifier(service)
    service.on_due = notifier.wake
    access = Authentication(people, lambda rows: service.writer.put(rows))
    uploads = Uploads(blobs)
    context = Context(service, access, connections, RateLimit(), Metrics(__version__), ended.set, blobs, uploads)
    server = HttpServer(make_app(context))
    listeners: list[asyncio.Server] = []
    context.tunnel = TunnelSocket(context, server, listeners)
    try:
        await _listen(context, server, chosen, listeners)
        owner = getpass.getuser()
        service.engine.describe_server(keeper=owner)
        _write_address(context, owner)
        start = start_count(service.engine.state.incarnation)
        _tell_ready(chosen.ready_fd)
        log.info("listening addresses=%s incarnation=%d", context.addresses, start)
        await _run(
            context, chosen, ended, OriginalSettings(umask, before), lambda: _write_address(context, owner), notifier
        )
    finally:
        _remove_address(state_dir)
        for listener in listeners:
            listener.close()
        if listeners:  # otherwise the socket belongs to another server
            (state_dir / SOCKET_FILE).unlink(missing_ok=True)
            (state_dir / TUNNEL_SOCKET).unlink(missing_ok=True)
        service.hang_up()
        await server.close(within=1.0)
        connections.close()
        context.bodies.close()
        context.access.flush(service.clock())
        blobs.close()
        await hooks.close()
        await service.close()
    return 0


def _collect_garbage() -> None:
    """Collect garbage from now on, seldom, and last of all what is there already: it stays."""
    gc.freeze()
    gc.unfreeze()  # into the oldest generation, without a look at each of what may be millions of objects
    # Thousands of rows and results are allocated each second, none of them in cycles: collecting garbage after every
    # 70,000 of them would stop the server for tens of milliseconds.
    gc.set_threshold(*GARBAGE)
    gc.enable()


@contextlib.contextmanager
def _readable(database: Database) -> Iterator[None]:
    """Refuse in one line a database that opens but whose rows cannot be read."""
    try:
        with explained(database.path):
            yield
    except (ShoalError, OSError):
        database.close()
        raise
    except Exception as error:
        log.debug("the database cannot be read", exc_info=True)
        why = f"{database.path} cannot be read: {type(error).__name__}: {error}"
        database.close()
        raise Refused(why, code="corrupt", hint=way_out(database.path)) from None


def _make_state(state_dir: Path) -> None:
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (LOGS, ENVIRONMENTS, BLOBS):
            (state_dir / folder).mkdir(mode=0o700, exist_ok=True)
        mark = state_dir / LOGS / LOG_MARK
        if not mark.exists():  # on a full disk it could not be written again
            mark.write_text("a pilot that can read this writes its logs here\n")
    except OSError as error:
        what = f"the state directory {state_dir} cannot be used: {error.strerror}"
        hint = "choose one with --state" + (", or free some space" if error.errno == errno.ENOSPC else "")
        raise Refused(what, code="bad_state_dir", hint=hint) from None


async def _listen(
    context: Context, server: HttpServer, chosen: argparse.Namespace, listeners: list[asyncio.Server]
) -> None:
    """Listen on the Unix socket for this account, and over TLS on the addresses of the command line."""
    state_dir, connections = context.service.state_dir, context.connections
    path = state_dir / SOCKET_FILE
    listeners.append(await bind_local(connections, server, path))
    context.addresses = [unix_socket.to_address(str(path))]
    if chosen.listen:
        # A server on one machine need not load the library.
        from shoal.server.auth.certificate_authority import CertificateAuthority

        now = context.service.clock()
        context.names = names_of(reached_by(chosen.listen, chosen.address))
        context.authority = CertificateAuthority.open(state_dir, context.names, now, new_ca=chosen.new_ca)
        if context.authority.trouble:
            log.warning("%s", context.authority.trouble)
        tls_context = context.authority.context()
        bound = []
        for host, wanted in chosen.listen:
            listener, got = await bind(connections, server, host, wanted, tls_context)
            listeners.append(listener)
            bound.append((host, got))
        context.addresses = reached_by(bound, chosen.address)


async def _run(
    context: Context, chosen: argparse.Namespace, ended: asyncio.Event, original: OriginalSettings,
    renew_tokens: Callable[[], None], notifier: Notifier,
) -> None:  # fmt: skip
    """Run the periodic tasks until the server is to end."""
    service, release = context.service, context.blobs.release
    keep = chosen.pilot if chosen.pilot is not None else chosen.embedded
    pilot = OwnPilot(service, original) if keep else None
    beside = [asyncio.ensure_future(context.build_pilot())]
    if (service.state_dir / SITES_FILE).exists():
        beside.append(asyncio.ensure_future(_open_tunnel_socket(context)))

    def renew_keys() -> None:
        try:
            renew_tokens()
            if context.authority is not None and context.authority.renew_if_due(service.clock()):
                log.info("the server's certificate was renewed")
        except OSError as error:  # a full disk must not end the server: they are renewed long before they end
            log.error("tokens and certificates could not be renewed: %s", error)

    def when_whole(do: Callable[[], Any]) -> Callable[[], Any]:
        """Skip a step while the engine is rebuilt: a half-changed state does not tell what is needed."""
        return lambda: None if service.is_rebuilding else do()

    loops = [
        _every(TICK, service.tick),
        _every(WATCH_EVERY, service.writer.watch),
        _every(PRUNE_EVERY, lambda: asyncio.ensure_future(_prune(service, release))),
        _every(KEYS_EVERY, renew_keys),
        _every(COUNT_FOR, lambda: context.access.flush(service.clock())),
        _every(COUNT_FOR, when_whole(lambda: service.results.forget(list(service.engine.state.runs)))),
        _every(CHECKPOINTS_EVERY, when_whole(lambda: context.blobs.drop_checkpoints(service.engine.needs_blobs))),
        _watch_lag(context.rate_limit),
        context.blobs.sweep_forever(),
        context.uploads.sweep_forever(),
        notifier.run(),
        DeadlineWatch(service, str(service.state_dir / DATABASE)).run(),
        PlacementLoop(service).run(),
    ]
    loops.append(Planner(service).run())
    if chosen.embedded:
        loops.append(FileWatch(service).run())
    tasks = [asyncio.ensure_future(loop) for loop in loops]
    if pilot is not None:
        tasks.append(asyncio.ensure_future(pilot.run()))
    if chosen.embedded:
        tasks.append(asyncio.ensure_future(_end_when_idle(context, chosen.linger, ended, notifier)))
    waiter = asyncio.ensure_future(ended.wait())
    await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()  # it never returns by itself: raise its error
        task.cancel()
    for task in beside:
        task.cancel()
    if pilot is not None and not service.is_rebuilding and not service.engine.may_progress(service.clock()):
        # Without work the pilot of this machine ends with its server; with work it stays for the next one.
        with contextlib.suppress(InternalError):  # logged; the server must end all the same
            service.post(Drain(tuple(service.engine.state.pilots), "the server ends"))
            await pilot.wait_gone(3.0)


async def _open_tunnel_socket(context: Context) -> None:
    """Pilots at sites may wait for this server; its own start does not wait for what they need."""
    assert context.tunnel is not None
    try:
        await context.tunnel.open()
    except (OSError, ShoalError) as error:  # work on this machine goes on
        log.error("no socket for tunnels: %s", error)


async def _prune(service: Service, release: Callable[[int], int]) -> None:
    try:
        await prune(service, KEEP_SECONDS, KEEP_BYTES, release)
    except (OSError, sqlite3.Error, ShoalError) as error:  # a full disk, or too many readers: tried again in an hour
        log.error("old events and logs were not deleted: %s", error)


async def _watch_lag(rate_limit: RateLimit) -> None:
    """Measure how late the event loop is: requests of people are deferred before pilots have to wait."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_EVERY
        await asyncio.sleep(LAG_EVERY)
        rate_limit.observe_lag(loop.time() - due)


async def _every(seconds: float, do: Callable[[], Any]) -> None:
    while True:
        await asyncio.sleep(seconds)
        do()


async def _end_when_idle(context: Context, linger: float, ended: asyncio.Event, notifier: Notifier) -> None:
    service = context.service
    while True:
        await asyncio.sleep(min(1.0, linger / 4))
        is_busy = context.uploads.is_busy or notifier.is_busy
        is_busy = is_busy or not service.writer.is_settled  # memory may be ahead of a full disk
        if is_busy or service.engine.may_progress(service.clock()):
            service.last_request = service.clock()
        elif service.clock() - service.last_request > linger:
            log.info("no work for %.0f s, ending", linger)
            ended.set()


def _timing(text: str) -> Timing:
    try:
        return Timing(**{name: float(value) for name, value in json.loads(text).items()})
    except (ValueError, TypeError, AttributeError):
        known = ", ".join(Timing.__dataclass_fields__)
        raise Refused("--timing is no JSON object of seconds", code="bad_timing", hint=f"known: {known}") from None


def _tell_ready(fd: int | None) -> None:
    """Let whoever started this server and waits go on."""
    if fd is not None:
        with contextlib.suppress(OSError):  # nobody waits any more
            os.write(fd, b"1")
        os.close(fd)


# --- the address file
def _write_address(context: Context, owner: str) -> None:
    """Write where commands and pilots of this account find the server, with tokens that are valid for a while."""
    state_dir = context.service.state_dir
    found = local_tokens(context.access, state_dir, owner, context.service.clock())
    url = f"{unix_socket.SCHEME}{state_dir / SOCKET_FILE}"
    text = json.dumps({"url": url, "token": found[SUBMIT], "enrol": found[ENROL], "pid": os.getpid()})
    path = state_dir / SERVER_FILE
    if not path.exists() or path.read_text() != text:
        write_private(path, text.encode())


def _remove_address(state_dir: Path) -> None:
    path = state_dir / SERVER_FILE
    with contextlib.suppress(OSError, ValueError, KeyError):
        if json.loads(path.read_text())["pid"] == os.getpid():
            path.unlink()
