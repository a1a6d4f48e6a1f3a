"""The pilot's front door: arguments, guard, environment check, work directory; then the loop."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import stat
import sys
from typing import TYPE_CHECKING, NamedTuple, Optional

from shoal import __version__
from shoal.pilot.guard import guard, proctree
from shoal.pilot.guard.channel import Channel
from shoal.pilot.guard.messages import Quit, WorkDirectory

if TYPE_CHECKING:
    from shoal.pilot.agent.events import Join
    from shoal.pilot.host.registry import Entry
    from shoal.pilot.loop import Loop
    from shoal.pilot.uplink.server_address import ServerAddress

# What the guard does not need is imported after it was forked (`_live`), so that it stays small.


SWITCH = 0.005  # seconds after which a lane or the loop lets the others go on: a lease must not wait for 5 ms


class NotOurs(Exception):
    """A directory that is to be ours alone is not."""


class _End(NamedTuple):
    code: int
    successor: Optional[int] = None  # an open file: the zip of the pilot to become
    place: Optional[ServerAddress] = None
    life: Optional[Loop] = None


def parse(words: list[str]) -> argparse.Namespace:
    """The command line, checked; exits with 2 and a line of help if it is wrong."""
    parser = argparse.ArgumentParser(prog="pilot.pyz", description="Take tasks from a Shoal server and run them here.")
    parser.add_argument("--server-file", metavar="F", help="the server's server.json, with address and token")
    parser.add_argument("--server", metavar="URL", help="unix:/PATH, on this machine")
    parser.add_argument("--token-file", metavar="F", help="a file that holds the token (with --server)")
    parser.add_argument("--join-file", metavar="F", help="a file that holds the join string")
    parser.add_argument("--join-fd", type=int, metavar="N", help="an open file that holds the join string")
    parser.add_argument("--cores", type=int, metavar="N", help="offer so many cores (default: all we may use)")
    parser.add_argument("--site", default="", metavar="S", help="name of the site (default: the server says)")
    parser.add_argument("--work-dir", metavar="D", help="make our directory in D (default: $TMPDIR or /tmp)")
    parser.add_argument("--idle-end", type=float, metavar="S", help="end after S seconds without a task")
    parser.add_argument(
        "--tag", action="append", default=[], metavar="NAME=VALUE", help="describe this host to tasks; may be repeated"
    )
    parser.add_argument(
        "--no-pid-namespace",
        action="store_true",
        help="let tasks see all processes of this host, also where we could give them a PID namespace",
    )
    parser.add_argument(
        "--no-cgroup", action="store_true", help="make no cgroups, also where we could: memory is watched all the same"
    )
    parser.add_argument("--verbose", "-v", action="store_true", help="log every attempt")
    parser.add_argument("--version", action="version", version=f"shoal pilot {__version__}")
    chosen = parser.parse_args(words)
    ways = (chosen.server_file, chosen.server, chosen.join_file, chosen.join_fd is not None)
    if sum(map(bool, ways)) != 1:
        parser.error("give --server-file, or --server and --token-file, or --join-file, or --join-fd")
    if bool(chosen.server) != bool(chosen.token_file):
        parser.error("--server and --token-file belong together")
    if chosen.join_fd is not None and chosen.join_fd < 0:
        parser.error("--join-fd is at least 0")
    if chosen.cores is not None and chosen.cores < 1:
        parser.error("--cores is at least 1")
    if chosen.tag:
        _check_tags(chosen.tag)
    return chosen


def _check_tags(words: list[str]) -> None:
    from shoal.model.errors import BadInput
    from shoal.pilot.host.tags import parse_tags

    try:
        parse_tags(words)
    except BadInput as error:
        print(f"pilot.pyz: {error}", file=sys.stderr)
        sys.exit(2)


def main() -> int:
    """Run a pilot; returns the exit code."""
    chosen = parse(sys.argv[1:])
    umask = os.umask(0o077)
    proctree.set_name("shoal-pilot")
    proctree.become_private()
    proctree.become_subreaper()
    confined = None if chosen.no_pid_namespace else guard.launch_confined(private=chosen.join_fd)
    channel, guard_pid = confined or guard.launch(private=chosen.join_fd)
    end = _live(chosen, umask, channel, guard_pid, confined is not None)
    if end.successor is not None:
        os.umask(umask)  # the next pilot takes it for the person's
        return _become(end, chosen)
    return end.code


def _live(chosen: argparse.Namespace, umask: int, channel: Channel, guard_pid: int, is_confined: bool) -> _End:
    from shoal.model.errors import BadInput
    from shoal.pilot import loop, self_update
    from shoal.pilot.commands.files import remove_tree
    from shoal.pilot.guard import cgroup
    from shoal.pilot.host import cleanup, logging, probe, registry
    from shoal.pilot.uplink import uplink
    from shoal.pilot.uplink.server_address import NoServerAddress

    logging.set_up(chosen.verbose)
    self_update.keep_zip_private()
    work, groups, entry = "", cgroup.Groups(), registry.Entry()
    try:
        try:
            place = _find_place(chosen)
        except (NoServerAddress, BadInput) as error:
            logging.say(str(error))
            return _End(loop.NO_SERVER)
        folder = registry.find_folder()
        try:
            swept = cleanup.sweep(folder)  # first of all: it may be what fills the disk
            if any(swept):
                logging.say(str(swept))
        except Exception as error:  # whatever somebody left there must not keep a pilot from starting
            logging.say(f"what other pilots left on this host was not swept: {error!r}")
        try:
            work = choose_work_dir(chosen.work_dir)
            reasons = probe.check(work)
        except NotOurs as error:
            reasons = [str(error)]
        if reasons:
            for reason in reasons:
                logging.say(f"this host is unfit: {reason}")
            uplink.tell_unfit(place, probe.describe(chosen.site, None, unfit=reasons))
            return _End(loop.UNFIT)
        # In a PID namespace everything ends with the guard, without anybody's help.
        if not chosen.no_cgroup:
            groups = cgroup.make(work[-12:], may_kill=not is_confined)
        record = registry.describe(work, guard_pid, groups.all)
        problem = entry.write(folder, record)
        if problem:
            logging.say(problem)
        channel.send(WorkDirectory(work, record.mark, entry.path, groups.kill, groups.memory))
        return _serve(chosen, umask, channel, guard_pid, place, work, is_confined, folder, entry)
    finally:
        channel.send(Quit())
        if work:
            remove_tree(work)
            for group in groups.all:
                cgroup.end(group)
            entry.remove()
            if chosen.work_dir is None:
                with contextlib.suppress(OSError):  # another pilot of this user is there
                    os.rmdir(os.path.dirname(work))


def _find_place(chosen: argparse.Namespace) -> ServerAddress:
    from shoal.pilot.uplink.server_address import ServerAddress, read_join

    if chosen.join_file or chosen.join_fd is not None:
        return ServerAddress(join=read_join(chosen.join_fd, chosen.join_file or ""))
    return ServerAddress(
        os.path.abspath(chosen.server_file) if chosen.server_file else "",
        chosen.server or "",
        os.path.abspath(chosen.token_file) if chosen.token_file else "",
    )


def _serve(
    chosen: argparse.Namespace,
    umask: int,
    channel: Channel,
    guard_pid: int,
    place: ServerAddress,
    work: str,
    is_confined: bool,
    folder: str,
    entry: Entry,
) -> _End:
    import random
    import signal
    from dataclasses import replace
    from functools import partial

    from shoal.pilot import loop, self_update
    from shoal.pilot.agent.agent import Agent
    from shoal.pilot.commands.staging import PilotFacts, Staging
    from shoal.pilot.host import cleanup, probe, registry
    from shoal.pilot.host.logging import say
    from shoal.pilot.host.tags import parse_tags
    from shoal.pilot.host.usage import HostUsage
    from shoal.pilot.uplink import uplink
    from shoal.pilot.uplink.blobs import Blobs
    from shoal.pilot.uplink.latency import Latency
    from shoal.pilot.uplink.server_address import NoServerAddress
    from shoal.wire.messages import Register

    try:
        place.read()
    except NoServerAddress as error:
        say(f"no server yet: {error}")  # it may come; the agent's patience decides
    room = probe.measure(work)
    if chosen.cores is not None:
        room = replace(room, cores=chosen.cores)
    digest, rng = self_update.own_digest(), random.Random(secrets.randbits(64))
    network = Latency(rng)
    usage = HostUsage(work, guard_pid, network, probe.memory_left)
    fixed = {**probe.tags(work), **parse_tags(chosen.tag), "certain_end": is_confined}

    server = registry.server_digest(place.join.fingerprint if place.join is not None else str(place))

    def report_dead(sessions: list[str]) -> None:
        if life.report_dead(sessions):
            sweeper.reported.update(sessions)

    sweeper = cleanup.Sweeper(folder, server, say, lambda sessions: life.post(partial(report_dead, sessions)))

    def register(join: Join) -> Register:
        facts = {**fixed, **usage.all(), **({"unfit": life.unfit} if life.unfit else {})}
        said = probe.describe(chosen.site, room, join.former, nonce=join.nonce, digest=digest, facts=facts)
        return replace(said, ended=sweeper.dead())

    life = loop.Loop(
        Agent(room, rng),
        channel,
        guard_pid,
        Staging(PilotFacts(work, dict(os.environ), probe.devices(), umask)),
        register,
        say,
        umask,
        chosen.idle_end,
        usage,
        network,
        partial(entry.join, server),
    )
    up = life.uplink = uplink.Uplink(place, life.deliver, say, network)
    blobs = Blobs(place, os.path.join(work, "blobs"))
    blobs.moved = network.moved
    life.calls.connect(blobs)
    signal.set_wakeup_fd(life.wake_fd, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, life.interrupt)
    sys.setswitchinterval(SWITCH)
    up.start()
    sweeper.start()
    code = life.run()
    sweeper.forget_reported()
    up.close()
    say(f"pilot ended: {life.why}")
    return _End(code, life.successor, place, life)


def _become(end: _End, chosen: argparse.Namespace) -> int:
    """Go on as another pilot, in the same process; returns only if that cannot be."""
    import signal

    from shoal.pilot import loop, self_update
    from shoal.pilot.host import logging

    assert end.successor is not None and end.place is not None and end.life is not None
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    if end.life.is_interrupted:
        return end.code  # while the old pilot put its things away: there shall be no new one
    try:
        self_update.become(end.successor, chosen, end.place.join)
    except OSError as error:
        logging.say(f"the new pilot cannot be started: {error.strerror}")
    return loop.NO_SERVER


def choose_work_dir(base: Optional[str]) -> str:
    """A name for a directory of our own; the folder for all of this user's pilots is made safe on the way."""
    name = secrets.token_hex(6)
    if base is not None:
        return os.path.join(os.path.abspath(base), f"shoal-{name}")
    folder = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"shoal-{os.getuid()}")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        found = os.lstat(folder)
    except FileExistsError:
        return _folder_beside(folder, name)
    except OSError:
        return os.path.join(folder, name)  # the environment check says what is wrong with it
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        return _folder_beside(folder, name)
    return os.path.join(folder, name)


def _folder_beside(folder: str, name: str) -> str:
    """Where the usual folder is not ours, or open to others, one with a name that nobody could foresee takes its place."""
    other = f"{folder}-{secrets.token_hex(6)}"
    try:
        os.mkdir(other, 0o700)
    except OSError as error:
        raise NotOurs(f"{folder} is not ours alone and {other} cannot be made: {error.strerror}") from None
    return os.path.join(other, name)
