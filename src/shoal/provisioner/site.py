"""One site at work: its shell, backend, allocations and way to the server. Its methods that talk to the site may take long,
so the loop calls them in a thread, one at a time for each site.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from shoal.client.client import Client
from shoal.model.credentials import ENROL
from shoal.model.errors import ShoalError
from shoal.provision import registry, site_url
from shoal.provision.backend import QUEUED, RUNNING, BackendError, Command, Order, Shape
from shoal.provision.shell import LocalShell, SshShell
from shoal.provisioner.ledger import Allocation, Ledger
from shoal.provisioner.reach import Reach
from shoal.provisioner.schedule import QuerySchedule
from shoal.provisioner.site_file import SiteConfig
from shoal.sched.demand import Ask, SiteView
from shoal.wire.http.requests import AllocationChange, SiteStatus
from shoal.wire.join import Join

log = logging.getLogger(__name__)
TAIL = 4096  # bytes of an allocation's log that are read when it failed
RETRY, LONGEST = 15.0, 600.0  # seconds after which a site with trouble is tried again: at first, and at most
WAITS_KEPT = 20  # of the last allocations, for the expected wait

Json = dict[str, Any]


def open_shell(config: SiteConfig) -> LocalShell | SshShell:
    """The shell of a site."""
    url = site_url.parse(config.url)
    if not url.is_remote:
        return LocalShell()
    return SshShell(url, options=("-F", config.ssh_config) if config.ssh_config else ())


class Site:
    """A site that pilots are asked of."""

    def __init__(self, config: SiteConfig, folder: Path, word: str, client: Callable[[], Client]) -> None:
        self.config, self._client = config, client  # each call makes a client, since threads cannot share one
        self.prefix = f"shoal-{word}-{config.name}-"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.ledger = Ledger(folder / f"{config.name}.json")
        self.schedule = QuerySchedule()
        self.schedule.note_news(0.0)  # what became of allocations while no provisioner ran, also of those it forgot
        self.shell = open_shell(config)
        self.backend = registry.make(site_url.parse(config.url).backend, config.options)
        self.reach = Reach(config, folder, self.shell, client)
        self.trouble, self.fix, self.note = "", "", ""
        self.changes: list[AllocationChange] = []  # that the server was not told yet
        self.waits: list[float] = []  # seconds in the queue, of the last allocations that started
        self._troubles, self._retry_at = 0, 0.0  # in a row, and when the site is tried again
        self._pilot = ""  # where the pilot's code is on the site
        self._without: set[str] = set()  # allocations whose pilots are gone, and about which the batch system was asked

    # --- what the loop reads
    def view(self, pilots: list[Json], now: float) -> SiteView:
        """The site as decisions see it."""
        config = self.config
        mine = [one for one in pilots if one["site"] == config.name and one["state"] != "draining"]
        joined = {one["allocation"] for one in mine}
        coming = [one for one in self._waiting() if one.name not in joined]
        left = config.budget - self.ledger.committed if config.budget is not None else None
        return SiteView(
            name=config.name,
            queued=len(coming),
            idle=sum(1 for one in mine if not one["held"]),
            busy=sum(1 for one in mine if one["held"]),
            queued_cores=sum(one.cores for one in coming),
            free_cores=sum(one["free_cores"] for one in mine),
            cores=sum(one["cores"] for one in mine),
            max_pilots=config.max_pilots,
            min_pilots=config.min_pilots,
            min_idle=config.min_idle,
            max_queued=config.max_queued,
            pilot_cores=config.cores or 1,
            max_seconds=config.max_seconds,
            min_seconds=min(config.min_seconds, config.max_seconds),
            wait=sorted(self.waits)[len(self.waits) // 2] if self.waits else None,
            is_banned=bool(self.trouble) or config.removed or now < config.banned_until,
            fitness=1.0 / (1.0 + self.ledger.empty),
            empty=self.ledger.empty,
            empty_at=self.ledger.empty_at or None,
            budget_left=left,
            pilot_memory=config.memory or None,
            lives=tuple(
                (one.cores, one.started + one.seconds - now)
                for one in self.ledger.allocations.values()
                if one.joined and one.started is not None
            ),
        )

    def _waiting(self) -> list[Allocation]:
        """Allocations whose pilots are still to come."""
        return [one for one in self.ledger.allocations.values() if not one.joined and not one.cancelled]

    def status(self) -> SiteStatus:
        """What the server is told; the changes are forgotten by `told`."""
        queued = [one for one in self._waiting() if one.state == QUEUED]
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
        )

    def told(self, status: SiteStatus) -> None:
        """The server has this report."""
        del self.changes[: len(status.changes)]

    def note_pilots(self, pilots: list[Json], now: float) -> None:
        """Take in which allocations have pilots, and which lost theirs."""
        seen = {one["allocation"]: one for one in pilots if one["allocation"]}
        for name, one in list(self.ledger.allocations.items()):
            pilot = seen.get(name)
            if pilot is None:
                if one.joined and not one.cancelled and name not in self._without:
                    self._without.add(name)
                    self.schedule.note_news(now)  # its pilot is gone: ask once more than usual
                continue
            self._without.discard(name)
            is_worked = one.worked or bool(pilot["held"] or pilot["is_proven"])
            if not one.joined or is_worked != one.worked:
                if one.started is None:
                    self.changes.append(AllocationChange("started", name, "", one.cores, one.seconds))
                if not one.joined:
                    self.waits = [*self.waits, max(0.0, pilot["joined"] - one.submitted)][-WAITS_KEPT:]
                began = one.started if one.started is not None else pilot["joined"]
                self.ledger.put(replace(one, joined=True, worked=is_worked, state=RUNNING, started=began))

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
        for _ in range(ask.count):
            self._submit(ask, now)
        self._troubles = 0
        self.schedule.note_answer()
        self.schedule.note_news(now)

    def _submit(self, ask: Ask, now: float) -> None:
        config, shape = self.config, Shape(ask.cores, ask.seconds, memory=self.config.memory)
        name = f"{self.prefix}{self.ledger.next}"
        if config.budget is not None and self.ledger.committed + ask.cores * ask.seconds > config.budget:
            self.note = "its budget is used up"
            return
        self.ledger.next += 1
        ticket, path = f"{config.directory}/{name}.ticket", f"{config.directory}/{name}.sh"
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
            *("--idle-end", f"{config.idle_end:g}", "--tag", f"allocation={name}"),
        )
        order = Order(name, shape, config.directory, start, config.options)
        script = self.backend.script(order)
        with self._client() as client:
            token = client.new_token(ENROL, site=config.name, uses=shape.hosts, note=f"allocation {name}")
        addresses, fingerprint = self.reach.address(token)
        self.ledger.put(Allocation(name, ask.cores, float(ask.seconds), now))
        try:
            self.shell.put(ticket, f"{Join(addresses, fingerprint, str(token['token']))}\n".encode())
            self.shell.put(path, script.encode(), 0o700)
            id = self.backend.parse_submit(self.shell.run(self.backend.submit(order, path)))
        except ShoalError as error:
            if not error.transient:  # the batch system refused: there is no such allocation
                del self.ledger.allocations[name]
                self.ledger.save()
                with contextlib.suppress(BackendError):
                    self.shell.remove([ticket, path])
            raise
        self.ledger.put(replace(self.ledger.allocations[name], id=id))
        self.changes.append(AllocationChange("submitted", name, "", ask.cores, float(ask.seconds)))
        log.info("site=%s allocation=%s id=%s cores=%d seconds=%d", config.name, name, id, ask.cores, ask.seconds)

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
        started, ended = self.ledger.update(found, now)
        for one in started:
            self.changes.append(AllocationChange("started", one.name, "", one.cores, one.seconds))
        for one in ended:
            took = max(0.0, now - one.started) if one.started is not None else 0.0
            self.changes.append(AllocationChange("ended", one.name, one.reason, one.cores, took))
            if not one.joined and not one.cancelled:
                self._explain(one)
        self._without &= self.ledger.allocations.keys()
        if ended:
            files = [f"{self.config.directory}/{one.name}.{end}" for one in ended for end in ("ticket", "sh", "log")]
            with contextlib.suppress(BackendError):
                self.shell.remove(files)
        if any(not one.cancelled for one in self.ledger.allocations.values()):
            self.reach.open()  # their pilots came by the tunnel of the provisioner before, which was killed

    def _explain(self, one: Allocation) -> None:
        """An allocation ended before its pilot came: say what it printed."""
        text = ""
        with contextlib.suppress(BackendError):
            data = self.shell.read_tail(f"{self.config.directory}/{one.name}.log", TAIL)
            text = " | ".join(line.strip() for line in data.decode("utf-8", "replace").splitlines()[-3:])[-400:]
        why = one.reason or "it ended"
        self.note = f"an allocation ended before its pilot came ({why}): {text or 'it printed nothing'}"
        log.warning("site=%s allocation=%s ended before its pilot came: %s %s", self.config.name, one.name, why, text)

    def cancel(self, count: int | None, now: float) -> None:
        """Cancel so many allocations that wait, the newest first; None: all there are."""
        waiting = [one for one in self._waiting() if one.state == QUEUED]
        chosen = list(self.ledger.allocations.values()) if count is None else waiting[::-1][:count]
        known = [one for one in chosen if one.id]  # the id of one that was interrupted comes with the next query
        if known:
            result = self.shell.run(self.backend.cancel([one.id for one in known]))
            if result.status:
                raise BackendError(f"{self.backend.name} did not cancel: {result.tail}")
            for one in known:
                self.ledger.put(replace(one, cancelled=True, reason="cancelled"))
            self.schedule.note_news(now)

    def note_release(self, names: set[str]) -> None:
        """The pilots of these allocations were asked to end: that they had no task is not the site's fault."""
        for name in names & self.ledger.allocations.keys():
            self.ledger.put(replace(self.ledger.allocations[name], cancelled=True, reason="released"))

    def close(self) -> None:
        """End the tunnel and the connection; allocations go on."""
        self.reach.close()
        self.shell.close()


def run_checked(shell: LocalShell | SshShell, argv: tuple[str, ...], what: str, stdin: str = "") -> str:
    """What a command prints; BackendError with `what` if it fails."""
    result = shell.run(Command(argv, stdin))
    if result.status:
        raise BackendError(f"{what}: {result.tail}")
    return result.out


def facts_of(text: str) -> Mapping[str, str]:
    """Lines `NAME VALUE` as a mapping."""
    return dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
