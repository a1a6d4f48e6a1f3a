"""The life of a pilot after its guard was forked: server address, environment check, work directory, loop, cleanup."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import secrets
import signal
import stat
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Callable, Optional

from shoal.data.sources import parse_rule
from shoal.dht.peers import PEER_TAG
from shoal.model.errors import BadInput
from shoal.model.lazy_dataclass import dataclass
from shoal.pilot import self_update
from shoal.pilot.agent.agent import Agent
from shoal.pilot.agent.events import Join
from shoal.pilot.commands.files import remove_tree
from shoal.pilot.commands.staging import PilotFacts, Staging
from shoal.pilot.files.host_cache import DEFAULT_MOST, DEFAULT_RESERVE, HostCache, Limits, find_folder
from shoal.pilot.guard import cgroup
from shoal.pilot.guard.guards import Guards
from shoal.pilot.guard.messages import WorkDirectory
from shoal.pilot.host import cleanup, logging, probe, registry
from shoal.pilot.host.logging import say
from shoal.pilot.host.tags import parse_tags
from shoal.pilot.host.usage import HostUsage
from shoal.pilot.loop import NO_SERVER, UNFIT, Loop
from shoal.pilot.uplink import uplink
from shoal.pilot.uplink.blobs import Blobs
from shoal.pilot.uplink.latency import Latency
from shoal.pilot.uplink.server_address import NoServerAddress, ServerAddress, read_join_file
from shoal.wire.messages import Register

if TYPE_CHECKING:
    from shoal.pilot.mesh.service import Mesh

SWITCH = 0.005  # seconds; the interpreter's switch interval: a lease must not wait longer for another thread

REST_AFTER = 1.0  # seconds after the start until the rest is imported


class NotOurs(Exception):
    """A directory that must be private to this user is not."""


def _end_signals() -> list[int]:
    """Signals that end this pilot; one that it was started to ignore, as by `nohup`, stays ignored."""
    hangups = [number for number in (signal.SIGINT, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    return [signal.SIGTERM, *hangups]


def run_pilot(
    options: argparse.Namespace,
    umask: int,
    guards: Guards,
    is_confined: bool,
    pack: Optional[Callable[[], bytes]] = None,
) -> int:
    """Run until the pilot ends, or becomes another one in the same process; returns the exit code."""
    logging.set_up(options.verbose)
    self_update.keep_zip_private()
    try:
        address = _find_server(options)
    except (NoServerAddress, BadInput) as error:
        guards.quit()
        say(str(error))
        return NO_SERVER
    pilot = _Pilot(options, umask, guards, is_confined, address, pack)
    code = pilot.live()
    if pilot.loop is None or pilot.loop.successor is None:
        for (
            number
        ) in _end_signals():  # Python drops handlers while it ends; a late SIGTERM must not change the exit code
            signal.signal(number, signal.SIG_IGN)
        return code
    os.umask(umask)  # the next pilot takes its umask for the user's
    for number in _end_signals():
        signal.signal(number, signal.SIG_DFL)
    if pilot.loop.is_interrupted:
        return code  # a signal came during the cleanup: no pilot shall go on
    try:
        self_update.become(pilot.loop.successor, options, address.join)
    except OSError as error:
        say(f"the new pilot cannot be started: {error.strerror}")
    return NO_SERVER


def _find_server(options: argparse.Namespace) -> ServerAddress:
    if options.join_file or options.join_fd is not None:
        join, ticket = read_join_file(options.join_fd, options.join_file or "")
        if not join.fingerprint:
            return ServerAddress(join=join)
        from shoal.pilot.uplink.left_addresses import LeftAddresses

        left = LeftAddresses(join, options.address_dir or "", options.shared_dir or "")
        left.start()
        return ServerAddress(join=join, left=left, ticket=ticket)
    return ServerAddress(
        os.path.abspath(options.server_file) if options.server_file else "",
        options.server or "",
        os.path.abspath(options.token_file) if options.token_file else "",
        awaited=0 if options.wait_stdin else None,
        abandoned=lambda: os.kill(os.getpid(), signal.SIGTERM),  # nobody will ever ask for us
    )


@dataclass
class _Pilot:
    """One pilot, from the environment check to the cleanup."""

    options: argparse.Namespace
    umask: int
    guards: Guards
    is_confined: bool
    address: ServerAddress
    pack: Optional[Callable[[], bytes]]  # makes the zip of the package that we run from; None: we run from a zip
    loop: Optional[Loop] = None  # None: the pilot ended before it began to serve

    def live(self) -> int:
        """Check the host, serve, clean up; returns the exit code."""
        options, work, groups, entry = self.options, "", cgroup.Groups(), registry.Entry()
        try:
            folder = registry.find_folder()
            try:
                swept = cleanup.sweep(folder)  # before anything else: it may be what fills the disk
                if any(swept):
                    say(str(swept))
            except Exception as error:  # whatever somebody left there must not keep a pilot from starting
                say(f"what other pilots left on this host was not swept: {error!r}")
            try:
                work = choose_work_dir(options.work_dir)
                reasons = probe.check(work)
            except NotOurs as error:
                reasons = [str(error)]
            if reasons:
                for reason in reasons:
                    say(f"this host is unfit: {reason}")
                uplink.report_unfit(self.address, probe.describe(options.site, None, unfit=reasons))
                return UNFIT
            # In a PID namespace everything ends with the guard, and no cgroup is needed to kill it.
            if not options.no_cgroup:
                groups = cgroup.make(work[-12:], may_kill=not self.is_confined)
            records = [registry.describe(work, pid, groups.all) for pid in self.guards.pids]
            record = records[0]
            problem = entry.write(folder, record)
            if problem:
                say(problem)
            self.guards.send_each(
                [
                    # The first alone removes the directory: it has the containers, and needs their records to end them.
                    WorkDirectory("", one.mark, "", groups.kill)
                    if at
                    else WorkDirectory(work, one.mark, entry.path, groups.kill, groups.memory)
                    for at, one in enumerate(records)
                ]
            )
            return self._serve(work, folder, entry)
        finally:
            self.guards.quit()
            if work:
                remove_tree(work)
                for group in groups.all:
                    cgroup.end(group)
                entry.remove()
                if options.work_dir is None:
                    with contextlib.suppress(OSError):  # another pilot of this user is there
                        os.rmdir(os.path.dirname(work))

    def _cache(self, work: str) -> HostCache:
        """The cache that the pilots of this host share."""
        options, limits = self.options, None
        if options.cache_max is not None or options.cache_reserve is not None:
            most = DEFAULT_MOST if options.cache_max is None else options.cache_max
            limits = Limits(most, DEFAULT_RESERVE if options.cache_reserve is None else options.cache_reserve)
        folder = find_folder(options.cache_dir, options.work_dir, os.environ)
        return HostCache(folder, limits, os.path.join(work, "cache"))

    def _serve(self, work: str, folder: str, entry: registry.Entry) -> int:
        options, address = self.options, self.address
        try:
            if address.awaited is None:
                address.read()
        except NoServerAddress as error:
            say(f"no server yet: {error}")  # it may come; the agent decides how long to wait
        capacity = probe.measure(work)
        if options.cores is not None:
            capacity = replace(capacity, cores=options.cores)
        digest, rng = self_update.own_digest(self.pack), random.Random(secrets.randbits(64))
        network = Latency(rng)
        cache = self._cache(work)
        usage = HostUsage(work, self.guards.pids, network, probe.memory_left, cache_tags=cache.tags)
        fixed = {**probe.tags(work), **parse_tags(options.tag), "certain_end": self.is_confined}
        server = registry.server_digest(address.join.fingerprint if address.join is not None else str(address))

        def report_dead(sessions: list[str]) -> None:
            if loop.report_dead(sessions):
                sweeper.reported.update(sessions)

        sweeper = cleanup.Sweeper(folder, server, say, lambda sessions: loop.post(partial(report_dead, sessions)))

        def register(join: Join) -> Register:
            peer = {PEER_TAG: mesh.announce(address.nearest)} if mesh is not None else {}
            tags = {**fixed, **peer, **usage.all(), **({"unfit": loop.unfit} if loop.unfit else {})}
            message = probe.describe(options.site, capacity, join.former, nonce=join.nonce, digest=digest, facts=tags)
            return replace(message, ended=sweeper.dead(), ends=loop.seconds_left())

        blobs = Blobs(address, cache, os.path.join(work, "blobs"), moved=network.moved)
        mesh = self._mesh(blobs, address)
        self.loop = loop = Loop(
            Agent(capacity, rng),
            self.guards,
            Staging(
                PilotFacts(
                    work,
                    dict(os.environ),
                    probe.devices(),
                    self.umask,
                    address.for_tasks,
                    [parse_rule(text) for text in options.storage],
                )
            ),
            register,
            say,
            blobs,
            usage,
            network,
            partial(entry.join, server),
            self.umask,
            options.idle_end,
            max(0.0, options.until - time.time()) if options.until is not None else None,
        )
        loop.mesh = mesh
        loop.uplink = connection = uplink.Uplink(address, loop.deliver, say, network)
        if mesh is not None:
            self._lead_or_follow(mesh, connection, rng, server)
        signal.set_wakeup_fd(loop.wake_fd, warn_on_full_buffer=False)
        for number in _end_signals():
            signal.signal(number, loop.interrupt)
        sys.setswitchinterval(SWITCH)
        connection.start()
        sweeper.start()
        rest = threading.Timer(REST_AFTER, import_rest)
        rest.daemon = True
        rest.start()
        code = loop.run()
        if loop.guest is not None:
            loop.guest.close()
        loop.close_keeper()
        if mesh is not None:
            mesh.close()
        with contextlib.suppress(Exception):  # what others left must not change how this pilot ends
            sweeper.forget_reported()
        connection.close()
        say(f"pilot ended: {loop.why}")
        return code

    def _mesh(self, blobs: Blobs, address: ServerAddress) -> Optional[Mesh]:
        """Our part in the mesh of this site; None: it has none for us."""
        options = self.options
        if options.mesh == "off" or not address.is_remote:
            return None  # without TLS all pilots of this server are on its host, and nobody could prove who they are
        from shoal.model.quantities import parse_ports
        from shoal.pilot.mesh.service import Mesh, MeshOptions

        def loop() -> Loop:
            assert self.loop is not None
            return self.loop

        mesh = Mesh(
            MeshOptions(parse_ports(options.mesh_port or "0"), options.mesh_address or ""),
            address.trust,
            blobs.open_shared,
            blobs.ask_peers,
            lambda where: loop().notice({PEER_TAG: where}),
            lambda accusation: loop().accuse(accusation),
            blobs.fetcher.note_failure,
            lambda leases: loop().assign(leases),
            lambda *kept: loop().reserve(*kept),
        )
        blobs.peers = mesh
        blobs.fetcher.add(mesh)
        return mesh

    def _lead_or_follow(self, mesh: Mesh, connection: uplink.Uplink, rng: random.Random, server: str) -> None:
        """At a site with a leader, exchanges go by way of it, or those of others by way of us; and while the server is away
        the members keep each other's reports."""
        from shoal.dht.peers import DropReports, Forward, KeepReports
        from shoal.pilot.leader.bundler import Bundler
        from shoal.pilot.leader.keeper import ReportKeeper
        from shoal.pilot.leader.role import Role
        from shoal.pilot.leader.spool import Spool, folder_in
        from shoal.pilot.leader.way import LeaderWay

        bundler, way = Bundler(self.address), LeaderWay(lambda: mesh.links, rng)
        mesh.role = Role(bundler, way)
        mesh.serve(Forward, lambda sender, message: bundler.forward(message))
        connection.by_leader = way.ask
        bases = (self.options.work_dir or "/var/tmp", self.options.shared_dir)
        spools = [Spool(folder_in(base), server) for base in bases if base]
        keeper = ReportKeeper(spools, lambda: mesh.links, mesh.members)
        mesh.serve(KeepReports, keeper.on_keep)
        mesh.serve(DropReports, keeper.on_drop)
        assert self.loop is not None
        self.loop.keeper = keeper
        join, ticket = self.address.join, self.address.ticket
        if join is not None:
            from shoal.pilot.mesh.guest import Guest
            from shoal.pilot.mesh.left_members import LeftMembers

            left = LeftMembers(join.fingerprint, self.options.address_dir or "", self.options.shared_dir or "")
            mesh.left = left
            if ticket is not None:
                trust, join_as = self.address.trust, self.loop.join_as_guest
                self.loop.guest = Guest(ticket, join.fingerprint, trust, mesh, left, join_as)


def import_rest() -> None:
    """Import what most pilots never need and a start does not wait for: later, its files may be of another version."""
    from shoal.wire.http import streamed  # noqa: F401


def choose_work_dir(base: Optional[str]) -> str:
    """A path for this pilot's own directory; the folder for all pilots of this user is made private on the way."""
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
    """A path in a new folder with an unpredictable name, where the usual one is not ours or is open to others."""
    other = f"{folder}-{secrets.token_hex(6)}"
    try:
        os.mkdir(other, 0o700)
    except OSError as error:
        raise NotOurs(f"{folder} is not ours alone and {other} cannot be made: {error.strerror}") from None
    return os.path.join(other, name)
