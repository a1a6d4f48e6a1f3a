"""The server's front door: state directory, database, address and token, loops, and a clean end."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import json
import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from shoal.db.retention import KEEP_BYTES, KEEP_SECONDS
from shoal.db.sqlite import Database
from shoal.engine.commands import Drain, Tick
from shoal.model.errors import Refused, ShoalError
from shoal.model.layout import DATABASE, ENVIRONMENTS, LOG_MARK, LOGS, SERVER_FILE
from shoal.model.timing import Timing
from shoal.server.http import make_app
from shoal.server.local import LocalPilot
from shoal.server.retention import prune
from shoal.server.service import Service

log = logging.getLogger(__name__)
TICK = 0.2
LINGER = 60.0  # an embedded server ends so long after its last work
PRUNE_EVERY = 3600.0
PORT = 8443


def parse(words: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="shoal.server", description="The Shoal server.")
    parser.add_argument("--state", required=True, help="directory of the database, logs and address file")
    parser.add_argument("--embedded", action="store_true", help="one user's server: own pilot, ends when idle")
    parser.add_argument("--port", type=int, help=f"port on 127.0.0.1 (default: {PORT}; embedded: any free one)")
    parser.add_argument("--linger", type=float, default=LINGER, help="embedded: seconds to stay after the last work")
    parser.add_argument(
        "--pilot", action=argparse.BooleanOptionalAction, default=None, help="keep a pilot on this machine"
    )
    parser.add_argument("--durability", choices=("full", "normal"), default="full")
    parser.add_argument("--timing", default="{}", help="JSON with other times than the defaults, for tests")
    return parser.parse_args(words)


def main() -> int:
    """Run a server until it is told to end or has nothing more to do."""
    chosen = parse(sys.argv[1:])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    umask = os.umask(0o077)
    try:
        return asyncio.run(serve(chosen, umask))
    except ShoalError as error:
        print(f"shoal server: {error.line}", file=sys.stderr)
        return 3


async def serve(chosen: argparse.Namespace, umask: int) -> int:
    """Open, serve, close."""
    state_dir = Path(chosen.state).absolute()
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (LOGS, ENVIRONMENTS):
            (state_dir / folder).mkdir(mode=0o700, exist_ok=True)
        (state_dir / LOGS / LOG_MARK).write_text("a pilot that can read this writes its logs here\n")
    except OSError as error:
        raise Refused(
            f"the state directory {state_dir} cannot be used: {error.strerror}",
            code="bad_state_dir",
            hint="choose one with --state",
        ) from None
    timing = _timing(chosen.timing)
    database = Database.open(state_dir / DATABASE, durability=chosen.durability)
    service = Service(database, state_dir, timing, getpass.getuser(), "embedded" if chosen.embedded else "own")
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        service.loop.add_signal_handler(number, ended.set)
    token = _token(state_dir)
    runner = web.AppRunner(
        make_app(service, token, ended.set), access_log=None, keepalive_timeout=75.0, shutdown_timeout=1.0
    )
    await runner.setup()
    try:
        port = await _listen(runner, chosen, state_dir)
        address = {"url": f"http://127.0.0.1:{port}", "token": token, "pid": os.getpid()}
        _write_private(state_dir / SERVER_FILE, json.dumps(address))
        log.info("listening url=%s incarnation=%d", address["url"], service.engine.state.incarnation)
        await _live(service, chosen, ended, umask)
    finally:
        _forget_address(state_dir)
        service.hang_up()
        await runner.cleanup()
        await service.close()
    return 0


async def _live(service: Service, chosen: argparse.Namespace, ended: asyncio.Event, umask: int) -> None:
    """The loops, until the end is asked for."""
    keep = chosen.pilot if chosen.pilot is not None else chosen.embedded
    pilot = LocalPilot(service, umask) if keep else None
    loops = [
        _every(TICK, lambda: service.tell(Tick())),
        _every(PRUNE_EVERY, lambda: asyncio.ensure_future(prune(service, KEEP_SECONDS, KEEP_BYTES))),
    ]
    tasks = [asyncio.ensure_future(loop) for loop in loops]
    if pilot is not None:
        tasks.append(asyncio.ensure_future(_look(pilot)))
    if chosen.embedded:
        tasks.append(asyncio.ensure_future(_end_when_idle(service, chosen.linger, ended)))
    waiter = asyncio.ensure_future(ended.wait())
    await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()  # a loop never ends by itself: show why it did
        task.cancel()
    if pilot is not None and not service.engine.busy:
        # Nothing runs: the pilot of this machine ends with its server. With work left it stays for the next one.
        service.tell(Drain((), "the server ends"))
        await pilot.wait_gone(3.0)


async def _every(seconds: float, do: Callable[[], Any]) -> None:
    while True:
        await asyncio.sleep(seconds)
        do()


async def _look(pilot: LocalPilot) -> None:
    while True:
        await pilot.look()
        await asyncio.sleep(0.05 if pilot.service.engine.busy else 0.2)


async def _end_when_idle(service: Service, linger: float, ended: asyncio.Event) -> None:
    while True:
        await asyncio.sleep(min(1.0, linger / 4))
        if service.engine.busy:
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


# --- address and token
def _token(state_dir: Path) -> str:
    """The one bearer token: made once, kept 0600, the same after a restart so that pilots come back."""
    path = state_dir / "token"
    with contextlib.suppress(FileNotFoundError):
        return path.read_text().strip()
    token = "shoal_" + secrets.token_urlsafe(32)
    _write_private(path, token + "\n")
    return token


async def _listen(runner: web.AppRunner, chosen: argparse.Namespace, state_dir: Path) -> int:
    """Bind: the asked-for port, else the one of the last life (pilots look there first), else any."""
    memo = state_dir / "port"
    last = int(memo.read_text()) if memo.exists() and memo.read_text().strip().isdigit() else 0
    tries = [chosen.port] if chosen.port is not None else [last, 0] if chosen.embedded else [PORT]
    for port in tries:
        site = web.TCPSite(runner, "127.0.0.1", port, backlog=1024)
        try:
            await site.start()
        except (OSError, OverflowError) as error:
            if port != tries[-1]:
                continue
            words = os.strerror(error.errno or 0) if isinstance(error, OSError) else "ports go from 0 to 65535"
            raise Refused(
                f"port {port} cannot be used: {words}",
                code="port_taken",
                hint="choose another with --port",
            ) from None
        server = site._server  # aiohttp has no public way to ask for the bound port
        bound = int(server.sockets[0].getsockname()[1]) if isinstance(server, asyncio.Server) else port
        memo.write_text(str(bound))
        return bound
    raise Refused("no port", code="port_taken")


def _write_private(path: Path, text: str) -> None:
    """A file only its owner reads, whole or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(text)
    part.replace(path)


def _forget_address(state_dir: Path) -> None:
    path = state_dir / SERVER_FILE
    with contextlib.suppress(OSError, ValueError, KeyError):
        if json.loads(path.read_text())["pid"] == os.getpid():
            path.unlink()
