"""The server's front door: state directory, database, addresses and tokens, loops, and a clean end."""

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

from aiohttp import web
from aiohttp.web_server import Server

from shoal import __version__
from shoal.db.copies import restored_at
from shoal.db.location import explained, way_out
from shoal.db.retention import KEEP_BYTES, KEEP_SECONDS
from shoal.db.sqlite import Database
from shoal.engine.commands import Drain
from shoal.model.credentials import ENROL, SUBMIT, redact
from shoal.model.errors import InternalError, Refused, ShoalError
from shoal.model.ids import start_count
from shoal.model.layout import BLOBS, DATABASE, ENVIRONMENTS, LOG_MARK, LOGS, SERVER_FILE, SOCKET_FILE
from shoal.model.limits import MAX_RESERVE, MAX_RESERVE_EMBEDDED
from shoal.model.quantities import parse_size
from shoal.model.timing import Timing
from shoal.server.auth.authentication import COUNT_FOR, Authentication
from shoal.server.auth.local_tokens import local_tokens, write_private
from shoal.server.ban_hook import BanHook
from shoal.server.blobs.registry import CHECKPOINTS_EVERY, QUOTA, Blobs
from shoal.server.blobs.uploads import Uploads
from shoal.server.context import Context
from shoal.server.disk_reserve import Reserve
from shoal.server.http.app import make_app
from shoal.server.http.connections import ConnectionLimits, Connections, raise_file_limit, room_for
from shoal.server.http.listen import bind, bind_local, names_of, parse_address, reached_by
from shoal.server.http.rate_limit import RateLimit
from shoal.server.metrics import Metrics
from shoal.server.own_pilot import OriginalSettings, OwnPilot
from shoal.server.pilot_zip import build_pilot
from shoal.server.retention import prune
from shoal.server.service import Service
from shoal.wire.http import unix_socket

log = logging.getLogger(__name__)
TICK = 0.2
WATCH_EVERY = 1.0  # seconds between looks at the disk and the database's files
LINGER = 60.0  # an embedded server ends so long after its last work
PRUNE_EVERY = 3600.0
KEYS_EVERY = 600.0  # tokens and certificates are looked at so often; both are renewed long before they end
LAG_EVERY = 0.1
SWITCH = 0.0005
GARBAGE = (50_000, 20, 100)


def parse(words: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="shoal.server", description="The Shoal server.")
    parser.add_argument("--state", required=True, help="directory of the database, logs and address file")
    parser.add_argument("--embedded", action="store_true", help="one user's server: own pilot, ends when idle")
    parser.add_argument(
        "--listen", action="append", default=[], metavar="HOST:PORT", help="over TLS, for other accounts and hosts"
    )
    parser.add_argument(
        "--address", action="append", default=[], metavar="HOST:PORT", help="how others reach it, for join strings"
    )
    parser.add_argument("--new-ca", action="store_true", help="throw the old certificates away: every join string ends")
    parser.add_argument("--linger", type=float, default=LINGER, help="embedded: seconds to stay after the last work")
    parser.add_argument(
        "--pilot", action=argparse.BooleanOptionalAction, default=None, help="keep a pilot on this machine"
    )
    parser.add_argument(
        "--durability", choices=("full", "normal"), default="full", help="normal: a power cut may take the last moments"
    )
    parser.add_argument("--blob-quota", default=f"{QUOTA >> 30}G", metavar="SIZE", help="bytes of blobs for each owner")
    parser.add_argument("--timing", default="{}", help="JSON with other times than the defaults, for tests")
    return parser.parse_args(words)


class Redacted(logging.Formatter):
    """Whatever is logged, a traceback too, no secret is in it [security S12]."""

    def format(self, record: logging.LogRecord) -> str:
        """The line without secrets."""
        return redact(super().format(record))


def main() -> int:
    """Run a server until it is told to end or has nothing more to do."""
    chosen = parse(sys.argv[1:])
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Redacted("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # It would log each malformed request with a traceback.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    # The event loop gives the interpreter up at each system call; with the default of 5 ms it would then wait that
    # long for a thread that reads or writes rows, each time.
    sys.setswitchinterval(SWITCH)
    # Thousands of rows and results come and go each second, none of them in cycles: looking through all of them each
    # time 70,000 were made would stop the server for tens of milliseconds.
    gc.freeze()
    gc.set_threshold(*GARBAGE)
    umask = os.umask(0o077)
    try:
        return asyncio.run(serve(chosen, umask))
    except ShoalError as error:
        return _say(error.line)
    except (OSError, sqlite3.Error) as error:
        # A disk that is full or broken while the server starts or ends: no place to write a traceback to, either.
        return _say(f"{error} (is the disk of {chosen.state} full or read-only?)")


def _say(line: str) -> int:
    with contextlib.suppress(OSError):
        print(f"shoal server: {line}", file=sys.stderr, flush=True)
    return 3


async def serve(chosen: argparse.Namespace, umask: int) -> int:
    """Open, serve, close."""
    state_dir = Path(chosen.state).absolute()
    listens = [parse_address(text, "--listen") for text in chosen.listen]
    extra = [parse_address(text, "--address") for text in chosen.address]
    _make_state(state_dir)
    timing, quota = _timing(chosen.timing), parse_size(chosen.blob_quota, "--blob-quota")
    before, files = raise_file_limit()
    reserve = Reserve(state_dir, MAX_RESERVE_EMBEDDED if chosen.embedded else MAX_RESERVE)
    trouble = ""

    def open_reserve() -> None:  # only with the lock: until then it may be a running server's
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
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        service.loop.add_signal_handler(number, ended.set)
    connections = Connections(ConnectionLimits(total=room_for(files)))
    blobs = Blobs(
        state_dir / BLOBS,
        held,
        service.writer.put,
        service.clock,
        quota,
        durable=chosen.durability == "full",
        restored=restored_at(database.path),
    )
    blobs.is_at_work = service.engine.has_open_run

    def count_blobs() -> None:
        engine = service.engine
        blobs.rule(engine.count_stored, lambda owner, size: engine.quota_block(owner, size, service.clock()))

    count_blobs()
    service.on_rebuilt = count_blobs
    hooks = BanHook(lambda: service.engine.state.accounting.policy.ban.hook, service.clock, state_dir)
    service.on_notices = hooks.tell
    context = Context(
        service,
        Authentication(people, lambda rows: service.writer.put(rows)),
        connections,
        RateLimit(),
        Metrics(__version__),
        ended.set,
        blobs,
        Uploads(blobs),
    )
    runner = web.AppRunner(
        make_app(context), access_log=None, keepalive_timeout=75.0, shutdown_timeout=1.0, lingering_time=1.0,
        auto_decompress=False,
    )  # fmt: skip
    await runner.setup()
    listeners: list[asyncio.Server] = []
    try:
        assert runner.server is not None
        await _open_doors(context, runner.server, chosen, listens, extra, listeners)
        owner = getpass.getuser()
        service.engine.describe_server(keeper=owner)
        _tell_address(context, owner)
        life = start_count(service.engine.state.incarnation)
        log.info("listening addresses=%s incarnation=%d", context.addresses, life)
        await _live(context, chosen, ended, OriginalSettings(umask, before), lambda: _tell_address(context, owner))
    finally:
        _forget_address(state_dir)
        for listener in listeners:
            listener.close()
        if listeners:  # only then the socket there is ours
            (state_dir / SOCKET_FILE).unlink(missing_ok=True)
        service.hang_up()
        await runner.cleanup()
        connections.close()
        context.bodies.close()
        context.access.flush(service.clock())
        blobs.close()
        await hooks.close()
        await service.close()
    return 0


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
        raise Refused(
            f"the state directory {state_dir} cannot be used: {error.strerror}",
            code="bad_state_dir",
            hint="choose one with --state, or free some space"
            if error.errno == errno.ENOSPC
            else "choose one with --state",
        ) from None


async def _open_doors(
    context: Context,
    server: Server,
    chosen: argparse.Namespace,
    listens: list[tuple[str, int]],
    extra: list[tuple[str, int]],
    listeners: list[asyncio.Server],
) -> None:
    """Listen on the Unix socket for this account, and over TLS on what was asked for."""
    state_dir, connections = context.service.state_dir, context.connections
    path = state_dir / SOCKET_FILE
    listeners.append(await bind_local(connections, server, path))
    context.addresses = [unix_socket.to_address(str(path))]
    if listens:
        from shoal.server.auth.certificate_authority import (
            CertificateAuthority,  # a library that a server on one machine need not load
        )

        now = context.service.clock()
        context.names = names_of(reached_by(listens, extra))
        context.authority = CertificateAuthority.open(state_dir, context.names, now, new_ca=chosen.new_ca)
        if context.authority.trouble:
            log.warning("%s", context.authority.trouble)
        tls_context = context.authority.context()
        bound = []
        for host, wanted in listens:
            listener, got = await bind(connections, server, host, wanted, tls_context)
            listeners.append(listener)
            bound.append((host, got))
        context.addresses = reached_by(bound, extra)


async def _live(
    context: Context,
    chosen: argparse.Namespace,
    ended: asyncio.Event,
    original: OriginalSettings,
    renew_tokens: Callable[[], None],
) -> None:
    """The loops, until the end is asked for."""
    service, release = context.service, context.blobs.release
    keep = chosen.pilot if chosen.pilot is not None else chosen.embedded
    building = asyncio.ensure_future(build_pilot(context))
    pilot = OwnPilot(service, original, building) if keep else None

    def look_at_keys() -> None:
        try:
            renew_tokens()
            if context.authority is not None and context.authority.renew_if_due(service.clock()):
                log.info("the server's certificate was renewed")
        except OSError as error:  # a full disk must not end the server: they are renewed long before they end
            log.error("tokens and certificates could not be renewed: %s", error)

    def forget() -> None:
        if not service.is_rebuilding:  # a half-changed state does not tell what is needed
            service.results.forget(list(service.engine.state.runs))

    def drop_checkpoints() -> None:
        if not service.is_rebuilding:
            context.blobs.drop_checkpoints(service.engine.needs_blobs)

    loops = [
        _every(TICK, service.tick),
        _every(WATCH_EVERY, service.writer.watch),
        _every(PRUNE_EVERY, lambda: asyncio.ensure_future(_prune(service, release))),
        _every(KEYS_EVERY, look_at_keys),
        _every(COUNT_FOR, lambda: context.access.flush(service.clock())),
        _every(COUNT_FOR, forget),
        _every(CHECKPOINTS_EVERY, drop_checkpoints),
        _watch_lag(context.rate_limit),
        context.blobs.live(),
        context.uploads.live(),
    ]
    tasks = [asyncio.ensure_future(loop) for loop in loops]
    if pilot is not None:
        tasks.append(asyncio.ensure_future(_look(pilot)))
    if chosen.embedded:
        tasks.append(asyncio.ensure_future(_end_when_idle(context, chosen.linger, ended)))
    waiter = asyncio.ensure_future(ended.wait())
    await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()  # a loop never ends by itself: show why it did
        task.cancel()
    building.cancel()
    if pilot is not None and not service.engine.busy and not service.is_rebuilding:
        # Nothing runs: the pilot of this machine ends with its server. With work left it stays for the next one.
        with contextlib.suppress(InternalError):  # logged; the end must come all the same
            service.tell(Drain(tuple(service.engine.state.pilots), "the server ends"))
            await pilot.wait_gone(3.0)


async def _prune(service: Service, release: Callable[[int], int]) -> None:
    try:
        await prune(service, KEEP_SECONDS, KEEP_BYTES, release)
    except (OSError, sqlite3.Error, ShoalError) as error:  # a full disk, or too many readers: an hour later again
        log.error("old events and logs were not deleted: %s", error)


async def _watch_lag(rate_limit: RateLimit) -> None:
    """How late the event loop is: what people ask is put off before pilots have to wait."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_EVERY
        await asyncio.sleep(LAG_EVERY)
        rate_limit.observe_lag(loop.time() - due)


async def _every(seconds: float, do: Callable[[], Any]) -> None:
    while True:
        await asyncio.sleep(seconds)
        do()


async def _look(pilot: OwnPilot) -> None:
    while True:
        await pilot.look()
        await asyncio.sleep(0.05 if pilot.service.engine.busy else 0.2)


async def _end_when_idle(context: Context, linger: float, ended: asyncio.Event) -> None:
    service = context.service
    while True:
        await asyncio.sleep(min(1.0, linger / 4))
        if service.engine.busy or context.uploads.is_busy:
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


# --- the address file
def _tell_address(context: Context, owner: str) -> None:
    """Where commands and pilots of this account find the server, with tokens that are good for a while."""
    state_dir = context.service.state_dir
    found = local_tokens(context.access, state_dir, owner, context.service.clock())
    told = {
        "url": f"{unix_socket.SCHEME}{state_dir / SOCKET_FILE}",
        "token": found[SUBMIT],
        "enrol": found[ENROL],
        "pid": os.getpid(),
    }
    text = json.dumps(told)
    path = state_dir / SERVER_FILE
    if not path.exists() or path.read_text() != text:
        write_private(path, text)


def _forget_address(state_dir: Path) -> None:
    path = state_dir / SERVER_FILE
    with contextlib.suppress(OSError, ValueError, KeyError):
        if json.loads(path.read_text())["pid"] == os.getpid():
            path.unlink()
