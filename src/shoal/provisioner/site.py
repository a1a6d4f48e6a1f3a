"""One site at work: its shell, backend, allocations and way to the server. Its methods that talk to the site may take long,
so the loop calls them in a thread, one at a time for each site.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from shoal.client.client import Client
from shoal.model.credentials import ENROL
from shoal.model.errors import ShoalError, Unreachable
from shoal.provision import registry, site_url
from shoal.provision.backend import QUEUED, RUNNING, BackendError, Command, Order, Result, Shape
from shoal.provision.shell import LocalShell, SshShell
from shoal.provisioner.ledger import Allocation, Ledger
from shoal.provisioner.reach import Reach
from shoal.provisioner.schedule import EVERY, EVERY_HERE, QuerySchedule
from shoal.provisioner.site_file import SiteConfig
from shoal.sched.demand import Ask, SiteView
from shoal.wire.http.requests import AllocationChange, PilotShape, SiteStatus
from shoal.wire.join import Join, address_file

log = logging.getLogger(__name__)
TAIL = 4096  # bytes of an allocation's log that are read when it failed
NO_CONNECTION = 255  # the exit status of ssh itself
RETRY, LONGEST = 15.0, 600.0  # seconds after which a site with trouble is tried again: at first, and at most
ALL_JOIN_WITHIN = 60.0  # seconds after the first pilot of an allocation in which those of its other hosts are expected

Json = dict[str, Any]


def open_shell(config: SiteConfig) -> LocalShell | SshShell:
    """The shell of a site."""
    url = site_url.parse(config.url)
    if not url.is_remote:
        return LocalShell()
    return SshShell(url, options=("-F", config.ssh_config) if config.ssh_config else ())


def pilot_options(config: SiteConfig) -> tuple[str, ...]:
    """What every pilot of a site is told of it."""
    return (
        *("--idle-end", f"{config.idle_end:g}"),
        *(("--mesh", "off") if config.mesh == "off" else ()),
        *(("--mesh-port", config.mesh_port) if config.mesh_port else ()),
        *(("--shared-dir", config.shared_dir) if config.shared_dir else ()),
        *(("--address-dir", config.directory) if config.directory else ()),
        *(word for rule in config.storage for word in ("--storage", rule)),
    )


class Site:
    """A site that pilots are asked of."""

    def __init__(self, config: SiteConfig, folder: Path, word: str, client: Callable[[], Client]) -> None:
        self.config, self._client = config, client  # each call makes a client, since threads cannot share one
        self.prefix = f"shoal-{word}-{config.name}-"
        self.backend = registry.make(site_url.parse(config.url).backend, config.options)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.ledger = Ledger(folder / f"{config.name}.json")
        # Without a batch system there is nobody to be troubled by more queries.
        self.schedule = QuerySchedule(every=EVERY_HERE if self.backend.name == "local" else EVERY)
        # What became of allocations while no provisioner ran, also if the memory of them is lost: there is one since `site add`.
        self._must_look = not self.ledger.looked or self.ledger.next > 1
        if self._must_look:
            self.schedule.note_news(0.0)
        self.shell = open_shell(config)
        self.reach = Reach(config, folder, self.shell, client)
        self.trouble, self.fix, self.note = "", "", ""
        self.failure = ""  # how the last allocation ended that brought no pilot
        self.changes: list[AllocationChange] = []  # that the server was not told yet
        self.shape: PilotShape | None = None  # of the pilots that were asked for last, by what tasks were seen to take
        self._gone: set[str] = set()  # allocations whose pilots are gone, which the batch system was asked about
        self._troubles, self._retry_at = 0, 0.0  # in a row, and when the site is tried again
        self._pilot = ""  # where the pilot's code is on the site
        self._left = ""  # where the server is, as it was left at the site last,
        self._left_in = ""  # and the file
        self._rank = 0.0

    def change(self, config: SiteConfig) -> None:
        """Take over what a person changed; trouble is tried again, since they may have mended it."""
        self.config = config
        self.backend = registry.make(site_url.parse(config.url).backend, config.options)
        self.trouble = self.fix = ""

    # --- what the loop reads
    @property
    def is_empty(self) -> bool:
        """True if nothing of it runs or waits, for certain."""
        return not self.ledger.allocations and not self._must_look

    @property
    def waiting(self) -> list[Allocation]:
        """Allocations that have not started and may be cancelled."""
        return [
            one
            for one in self.ledger.allocations.values()
            if one.state == QUEUED and not one.joined and not one.cancelled
        ]

    def view(self, pilots: list[Json], now: float, rank: float | None = None) -> SiteView:
        """The site as decisions see it. `rank`: what it is worth to the tasks that wait, by its pilots; None: none of it is
        connected, so that the last one counts."""
        config = self.config
        self._rank = self._rank if rank is None else rank
        mine = [one for one in pilots if one["site"] == config.name and one["state"] != "draining"]
        coming = [(one, self._expected(one, now)) for one in self.ledger.allocations.values()]
        left = config.budget - self.ledger.committed if config.budget is not None else None
        return SiteView(
            name=config.name,
            queued=sum(pilots for _, pilots in coming),
            idle=sum(1 for one in mine if is_idle(one)),
            busy=sum(1 for one in mine if not is_idle(one)),
            queued_cores=sum(one.cores // one.hosts * pilots for one, pilots in coming),
            free_cores=sum(one["free_cores"] for one in mine),
            cores=sum(one["cores"] for one in mine),
            max_pilots=config.max_pilots,
            min_pilots=max(config.min_pilots, 1 if now < config.tested_until else 0),
            min_idle=config.min_idle,
            max_queued=config.max_queued * config.hosts,
            pilot_cores=config.cores or 1,
            max_seconds=config.max_seconds,
            min_seconds=min(config.min_seconds, config.max_seconds),
            wait=self.ledger.wait,
            rank=self._rank,
            is_banned=bool(self.trouble) or config.removed or now < config.banned_until,
            fitness=1.0 / (1.0 + self.ledger.empty),
            empty=self.ledger.empty,
            empty_at=self.ledger.empty_at or None,
            budget_left=left,
            pilot_memory=config.memory or config.host_memory or None,
            hosts=config.hosts,
            lives=tuple(
                (one.cores, one.started + one.seconds - now)
                for one in self.ledger.allocations.values()
                if one.joined and one.started is not None
            ),
        )

    def _expected(self, one: Allocation, now: float) -> int:
        """Pilots of an allocation that are still to come."""
        is_late = one.started is not None and one.joined and now - one.started > ALL_JOIN_WITHIN
        return 0 if is_late or one.cancelled or one.released else one.hosts - one.pilots

    def status(self) -> SiteStatus:
        """What the server is told; the changes are forgotten by `told`."""
        queued = self.waiting
        reasons = sorted({one.reason for one in queued if one.reason})[:4]
        running = sum(1 for one in self.ledger.allocations.values() if one.state == RUNNING)
        return SiteStatus(
            self.config.name,
            self.backend.name,
            len(queued),
            running,
            self.trouble,
            self.fix,
            self.note,
            reasons,
            list(self.changes),
            self.failure,
            self.shape,
            pilot_cores=max(1, self.config.cores),
            open_pilots=self._open_pilots(),
            wait=self.ledger.wait,
        )

    def _open_pilots(self) -> int:
        """How many more pilots may be asked for, by the limits that a person set."""
        config = self.config
        if self.trouble or config.removed or time.time() < config.banned_until:
            return 0
        there = sum(one.hosts for one in self.ledger.allocations.values() if not one.cancelled)
        found = config.max_pilots - there
        if config.budget is not None:
            each = max(1, config.cores) * config.min_seconds
            found = min(found, int((config.budget - self.ledger.committed) / each))
        return max(0, found)

    def told(self, status: SiteStatus) -> None:
        """The server has this report."""
        del self.changes[: len(status.changes)]

    def note_pilots(self, pilots: list[Json], now: float) -> None:
        """Take in which allocations have pilots, and which lost theirs."""
        self._gone &= self.ledger.allocations.keys()
        for name, one in self.ledger.allocations.items():
            seen = [pilot for pilot in pilots if pilot["allocation"] == name]
            if not seen:
                if one.joined and not one.cancelled and name not in self._gone:
                    self._gone.add(name)
                    self.schedule.note_news(now)
                continue
            is_worked = one.worked or any(pilot["held"] or pilot["is_proven"] for pilot in seen)
            if len(seen) > one.pilots or is_worked != one.worked:
                first = min(pilot["joined"] for pilot in seen)
                if one.started is None:
                    self.changes.append(AllocationChange("started", name, "", one.cores, one.seconds))
                if not one.joined:
                    self.failure = ""
                    self.ledger.note_wait(first - one.submitted)
                began = one.started if one.started is not None else first
                most = max(one.pilots, len(seen))
                self.ledger.put(replace(one, pilots=most, worked=is_worked, state=RUNNING, started=began))

    # --- what talks to the site
    def prepare(self) -> None:
        """Make the directory and bring the pilot's code there, if it is not yet."""
        if not self.config.directory:
            raise BackendError("the site was never probed", hint=f"`shoal site add {self.config.name}` again")
        with self._client() as client:
            data = client.pilot_zip()
        path = f"{self.config.directory}/pilot-{sha256(data).hexdigest()[:16]}.pyz"
        if path != self._pilot:
            self.shell.make_directory(self.config.directory)
            self.shell.put(path, data)
            self._pilot = path

    def note_trouble(self, trouble: str, fix: str, now: float) -> None:
        """Something went wrong there: it is tried again after a pause, which grows."""
        self.trouble, self.fix = trouble, fix
        self.ledger.note_error(trouble, now)
        self._troubles += 1
        self._retry_at = now + min(LONGEST, RETRY * 2 ** (self._troubles - 1))

    def retry_if_due(self, now: float) -> None:
        """Let a site with trouble be tried again."""
        if self.trouble and now >= self._retry_at:
            self.trouble = self.fix = ""

    def submit(self, ask: Ask, now: float) -> None:
        """Submit allocations, one after the other."""
        self.prepare()
        self.reach.open()
        self._leave_address()
        for _ in range(-(-ask.count // self.config.hosts)):
            self._submit(ask, now)
        self._troubles = 0
        self.schedule.note_answer()
        self.schedule.note_news(now)

    def _submit(self, ask: Ask, now: float) -> None:
        config = self.config
        shape = Shape(ask.cores, ask.seconds, config.hosts, ask.memory if config.memory is None else config.memory)
        cores = shape.cores * shape.hosts
        name = f"{self.prefix}{self.ledger.next}"
        if config.budget is not None and self.ledger.committed + cores * ask.seconds > config.budget:
            self.note = "its budget is used up"
            return
        self.ledger.next += 1
        ticket, path, result, is_asked = (
            f"{config.directory}/{name}.ticket",
            f"{config.directory}/{name}.sh",
            None,
            False,
        )
        start = (
            *(
                config.python,
                "-I",
                self._pilot,
                "--join-file",
                ticket,
                "--site",
                config.name,
                "--cores",
                str(ask.cores),
            ),
            *("--tag", f"allocation={name}"),
            *pilot_options(config),
        )
        order = Order(name, shape, config.directory, start, config.options)
        script = self.backend.script(order)
        with self._client() as client:
            alone = {"ticket": True} if shape.hosts == 1 and not self.reach.is_here else {}
            token = client.new_token(ENROL, site=config.name, uses=shape.hosts, note=f"allocation {name}", **alone)
        addresses, fingerprint = self.reach.address(token)
        self.ledger.put(Allocation(name, cores, float(ask.seconds), now, hosts=shape.hosts))
        try:
            more = f"{json.dumps(token['ticket'])}\n" if token.get("ticket") else ""
            self.shell.put(ticket, f"{Join(addresses, fingerprint, str(token['token']))}\n{more}".encode())
            self.shell.put(path, script.encode(), 0o700)
            is_asked = True
            result = self.shell.run(self.backend.submit(order, path))
            id = self.backend.parse_submit(result)
        except ShoalError:
            if not is_asked or (result is not None and is_refusal(result)):
                self.ledger.drop(name)
                with contextlib.suppress(BackendError):
                    self.shell.remove([ticket, path])
            else:  # it may be there all the same: it is looked for by its name
                self.schedule.note_news(now)
            raise
        self.ledger.put(replace(self.ledger.allocations[name], id=id))
        if ask.is_learned:
            self.shape = PilotShape(shape.cores, float(shape.seconds), shape.memory, shape.hosts)
        self.changes.append(AllocationChange("submitted", name, "", cores, float(ask.seconds)))
        log.info("site=%s allocation=%s id=%s %s", config.name, name, id, shape)

    def query(self, now: float) -> None:
        """Ask the batch system once for all allocations."""
        ids = [one.id for one in self.ledger.allocations.values() if one.id]
        try:
            result = self.shell.run(self.backend.status(self.prefix, ids))
            found = self.backend.parse_status(result, self.prefix, ids)
        except ShoalError:
            self.schedule.note_query(now, is_good=False)
            raise
        self.schedule.note_query(now, is_good=True)
        self._must_look = False
        # Another site of this person may have a name that begins with this one's.
        mine = [one for one in found if not one.name or one.name[len(self.prefix) :].isdigit()]
        most = (max(1, self.config.cores) * self.config.hosts, self.config.max_seconds)
        started, ended = self.ledger.update(mine, now, most)
        if self.ledger.is_unexplained(now):
            self.schedule.note_news(now)  # somebody waits for the reason, who would not see it for half a minute
        for one in started:
            self.changes.append(AllocationChange("started", one.name, "", one.cores, one.seconds))
        for one in ended:
            took = max(0.0, now - one.started) if one.started is not None else 0.0
            self.changes.append(AllocationChange("ended", one.name, one.reason, one.cores, took))
            if one.id and not one.joined and not one.cancelled:
                self._explain(one, now)
        if ended:
            files = [f"{self.config.directory}/{one.name}.{end}" for one in ended for end in ("ticket", "sh", "log")]
            if (
                self._left and not self.ledger.allocations
            ):  # nobody looks for the server there, and a relay's key may be in it
                files.append(self._left_in)
                self._left = ""
            with contextlib.suppress(BackendError):
                self.shell.remove(files)
        if any(not one.cancelled for one in self.ledger.allocations.values()):
            self.reach.open()  # their pilots came by the tunnel of the provisioner before, which was killed
            self._leave_address()

    def note_server_back(self, now: float) -> None:
        """The server was away and answers again, perhaps elsewhere: see how it is reached, and tell the pilots there."""
        if self.ledger.allocations:
            self.schedule.note_news(now)

    def _leave_address(self) -> None:
        """Leave at the site where the server is, if that changed: its pilots look there when they do not find it."""
        if self.reach.is_here:
            return  # its socket on this machine stays where it is
        try:
            with self._client() as client:
                server = client.server()
        except Unreachable:
            return  # we hear when it is back
        self.reach.note_server(server)
        self.reach.open()
        addresses, fingerprint = self.reach.address(server)
        place = Join(addresses, fingerprint, "").place
        if place != self._left:
            self._left_in = f"{self.config.directory}/{address_file(fingerprint)}"
            self.shell.put(self._left_in, f"{place}\n".encode())
            self._left = place

    def _explain(self, one: Allocation, now: float) -> None:
        """An allocation ended before its pilot came: say what it printed."""
        text = ""
        with contextlib.suppress(BackendError):
            data = self.shell.read_tail(f"{self.config.directory}/{one.name}.log", TAIL)
            text = " | ".join(line.strip() for line in data.decode("utf-8", "replace").splitlines()[-3:])[-400:]
        why = one.reason or "it ended"
        self.failure = f"an allocation ended before its pilot came ({why}): {text or 'it printed nothing'}"
        self.ledger.note_error(self.failure, now)
        log.warning("site=%s allocation=%s ended before its pilot came: %s %s", self.config.name, one.name, why, text)

    def to_cancel(self, count: int | None) -> list[Allocation]:
        """The allocations of so many pilots that wait, the newest first; None: all there are. The id of one whose submission was
        interrupted comes with the next query."""
        everything = [one for one in self.ledger.allocations.values() if not one.cancelled]
        chosen = everything if count is None else self.waiting[::-1][: count // self.config.hosts]
        return [one for one in chosen if one.id]

    def cancel(self, count: int | None, now: float) -> None:
        """Cancel what `to_cancel` names."""
        known = self.to_cancel(count)
        if known:
            result = self.shell.run(self.backend.cancel([one.id for one in known]))
            if result.status:  # some may have ended meanwhile, of which Grid Engine says that they do not exist
                self.query(now)
                if any(one.name in self.ledger.allocations for one in known):
                    raise BackendError(f"{self.backend.name} did not cancel: {result.tail}")
            for one in known:
                if one.name in self.ledger.allocations:
                    self.ledger.put(replace(one, cancelled=True, reason="cancelled"))
            self.schedule.note_news(now)

    def note_release(self, names: set[str]) -> None:
        """The pilots of these allocations were asked to end: that they had no task is not the site's fault."""
        for name in names & self.ledger.allocations.keys():
            self.ledger.put(replace(self.ledger.allocations[name], released=True, reason="released"))

    def close(self) -> None:
        """End the tunnel and the connection; allocations go on."""
        self.reach.close()
        self.shell.close()


def is_idle(pilot: Json) -> bool:
    """True if a pilot has no task, and is not kept for files that tasks read; older servers do not say that."""
    return not pilot["held"] and not pilot.get("is_kept")


def is_refusal(result: Result) -> bool:
    """True if a batch system clearly took no allocation: not if a connection broke, or its answer came too late."""
    return 0 < result.status < NO_CONNECTION and "timed out" not in f"{result.out}{result.err}".lower()


def run_checked(shell: LocalShell | SshShell, argv: tuple[str, ...], what: str, stdin: str = "") -> str:
    """What a command prints; BackendError with `what` if it fails."""
    result = shell.run(Command(argv, stdin))
    if result.status:
        raise BackendError(f"{what}: {result.tail}")
    return result.out


def facts_of(text: str) -> Mapping[str, str]:
    """Lines `NAME VALUE` as a mapping."""
    return dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
