"""The provisioner's loop: what is wanted, what the sites have, a plan, and what is told to the server."""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace

from shoal.client.client import Client
from shoal.client.config import Target
from shoal.client.connection import embedded_server
from shoal.model.errors import ShoalError, Unreachable
from shoal.provisioner.site import Json, Site, is_idle
from shoal.provisioner.site_file import SiteFile
from shoal.sched.demand import DemandRule, Need, Plan, plan
from shoal.sched.provisioning.guided_factory import TaskKind, rank_sites
from shoal.wire.http.requests import SiteStatus

log = logging.getLogger(__name__)
STEP = 1.0  # seconds between two looks at the server
NOTE_EVERY = 5.0  # the same, if nothing but a count in its note has changed
REPORT_EVERY = 30.0  # seconds between two reports of a site without news
MOST_SITES = 32
FIRST_PILOT_WITHIN = 4.0  # seconds
LINGER = 20.0  # seconds without work and allocations after which the provisioner ends
GIVE_UP = 600.0  # seconds without a server and without allocations


class Provisioner:
    """Gets machines for one person from all their sites."""

    def __init__(self, target: Target, file: SiteFile, clock: Callable[[], float] = time.time) -> None:
        self._target, self._file, self._clock = target, file, clock
        self._client: Client | None = None
        self._sites: dict[str, Site] = {}
        self._rule = DemandRule()
        self._jobs: dict[str, Future[None]] = {}
        self._reported: dict[str, tuple[SiteStatus, float]] = {}
        self._stamp = (-1, -1)
        self._pool = ThreadPoolExecutor(MOST_SITES, "site")
        self._last_work = self._answered = clock()
        self._is_away = False  # the server, at the last look
        self._random = random.Random()
        self._untried: dict[tuple[object, ...], float] = {}  # groups of tasks that nobody runs -> since when

    def run(self) -> None:
        """Work until nothing is left to do."""
        try:
            while not self.is_done():
                self.step()
                time.sleep(STEP)
        finally:
            for site in self._sites.values():
                site.close()

    def is_done(self) -> bool:
        """True if there is no work and no allocation for a while, or no server for long."""
        if self._jobs or any(site.ledger.allocations for site in self._sites.values()):
            return False
        now = self._clock()
        return now - self._last_work > LINGER or now - self._answered > GIVE_UP

    def has_work(self) -> bool:
        """True if something waits on the server now: for a last look, when this process has given up its lock."""
        try:
            return bool(self._sites) and bool(self.client().demand()["unfinished"])
        except ShoalError:
            return False

    def step(self) -> None:
        """One look at everything."""
        now = self._clock()
        self._read_sites()
        for name, job in list(self._jobs.items()):
            if job.done():
                del self._jobs[name]
                self._collect(self._sites[name], job)
        self._report(now)  # first: what tasks need of a site is told of those that were reported
        demand = self._ask()
        if demand is not None:
            if demand["unfinished"]:
                self._last_work = now
            for site in self._sites.values():
                site.shape = site.shape if demand["unfinished"] else None
                if site.config.name not in self._jobs:
                    site.note_pilots(demand["pilots"], now)
        for site in self._sites.values():
            site.retry_if_due(now)
        for site in list(self._sites.values()):  # before anything else is begun there, which might go on and on
            if site.config.name not in self._jobs and site.schedule.is_due(now, not site.is_empty):
                self._start(site, lambda site=site: site.query(now))  # type: ignore[misc]  # the site of this turn
        self._cancel_removed(now)
        if demand is not None:
            self._act(demand, now)
        self._drop_removed()

    # --- parts of a step
    def _read_sites(self) -> None:
        stamp = self._file.stamp()
        if stamp == self._stamp:
            return
        configs, self._rule = self._file.read(), self._file.rule()
        for name, config in configs.items():
            known = self._sites.get(name)
            try:
                if known is None:
                    made = Site(config, self._file.folder / "allocations", self._file.word, self.new_client)
                    self._sites[name] = made
                elif known.config != config:
                    known.change(config)
            except (ShoalError, OSError, ValueError, KeyError, TypeError) as error:  # the other sites go on
                log.error("site=%s cannot be used: %s", name, error)
        self._stamp = stamp

    def new_client(self) -> Client:
        """A client of the server, wherever it is now."""
        found = embedded_server.running_client(self._target)
        if found is None:
            raise Unreachable("no server is running", code="not_running")
        return found

    def client(self) -> Client:
        """The client of this thread."""
        if self._client is None:
            self._client = self.new_client()
        return self._client

    def _ask(self) -> Json | None:
        try:
            found = self.client().demand()
        except ShoalError as error:
            if self._client is not None:
                log.warning("no answer from the server: %s", error)
                self._client.close()
            self._client, self._is_away = None, True
            return None
        self._answered = self._clock()
        if self._is_away:
            self._is_away = False
            for site in self._sites.values():
                site.note_server_back(self._answered)
        return found

    def _act(self, demand: Json, now: float) -> None:
        """Plan, and begin what sites that have nothing to do shall do."""
        self._await_first_pilot(demand["needs"], now)
        self._carry_out(make_plan(self._rule, demand, self._sites, now, self._random.random), demand, now)

    def _await_first_pilot(self, needs: list[Json], now: float) -> None:
        """Of tasks that came a moment ago nobody may run any only because the pilot on this machine is about to start."""
        groups = {
            (row["require"], row["rank"], row["priority"], row["cores"], row["memory"]): row
            for row in needs
            if row["seconds"] is None and row["tried_for"] is None
        }
        self._untried = {key: self._untried.get(key, now) for key in groups}
        for key, row in groups.items():
            if now - self._untried[key] < FIRST_PILOT_WITHIN:
                row["tried_for"] = 0.0

    def _carry_out(self, found: Plan, demand: Json, now: float) -> None:
        for name, reason in found.reasons.items():
            if not self._sites[name].trouble:
                self._sites[name].note = reason
        for name, count in found.release.items():
            mine = [p for p in demand["pilots"] if p["site"] == name and p["allocation"]]
            pilots = [p for p in mine if p["state"] == "idle" and is_idle(p)]
            chosen = pilots[:count] if name not in self._jobs else []
            if chosen:
                with contextlib.suppress(ShoalError):
                    self.client().drain([p["name"] for p in chosen])
                    self._sites[name].note_release({p["allocation"] for p in chosen})
        for name, site in self._sites.items():
            if name in self._jobs or site.trouble or site.config.removed:
                continue
            asks = [ask for ask in found.asks if ask.site == name]
            surplus = found.cancel.get(name, 0)
            if now < site.config.banned_until:
                surplus = sum(one.hosts for one in site.waiting)
            elif asks:
                self._start(site, lambda site=site, asks=asks: [site.submit(ask, now) for ask in asks])  # type: ignore[misc]
                continue
            if site.to_cancel(surplus):
                self._start(site, lambda site=site, n=surplus: site.cancel(n, now))  # type: ignore[misc]

    def _cancel_removed(self, now: float) -> None:
        """Cancel what sites have that were removed; that takes no server."""
        for name, site in self._sites.items():
            if site.config.removed and name not in self._jobs and not site.trouble and site.to_cancel(None):
                self._start(site, lambda site=site: site.cancel(None, now))  # type: ignore[misc]

    def _start(self, site: Site, job: Callable[[], object]) -> None:
        def run() -> None:
            job()

        self._jobs[site.config.name] = self._pool.submit(run)

    def _collect(self, site: Site, job: Future[None]) -> None:
        """Note what went wrong at a site; it is tried again after a pause, or when a person changed it."""
        error = job.exception()
        if error is None:
            return
        if isinstance(error, ShoalError):
            site.note_trouble(error.message, error.hint, self._clock())
        else:
            site.note_trouble(f"a defect of the provisioner: {error!r}", "see provisioner.log", self._clock())
        log.error("site=%s: %s", site.config.name, error, exc_info=None if isinstance(error, ShoalError) else error)

    def _drop_removed(self) -> None:
        """Forget sites that were removed and have no allocation left."""
        gone = [
            name
            for name, site in self._sites.items()
            if site.config.removed and site.is_empty and name not in self._jobs
        ]
        for name in gone:
            site = self._sites.pop(name)
            site.close()
            site.ledger.forget()
            with contextlib.suppress(ShoalError):
                self.client().report_site(asdict(replace(site.status(), is_removed=True)))
            self._reported.pop(name, None)
        if gone:
            with self._file.changing() as sites:
                for name in gone:
                    sites.pop(name, None)

    def _report(self, now: float) -> None:
        for name, site in self._sites.items():
            status = site.status()
            before, told = self._reported.get(name, (None, float("-inf")))
            # A note with a count that changes all the time is no news.
            is_old = before is not None and replace(status, note=before.note) == before
            pause = REPORT_EVERY if before is not None and status.note == before.note else NOTE_EVERY
            if is_old and now - told < pause:
                continue
            try:
                self.client().report_site(asdict(status))
            except ShoalError as error:
                log.warning("site=%s was not reported: %s", name, error)
                continue
            site.told(status)
            self._reported[name] = (site.status(), now)


def make_plan(rule: DemandRule, demand: Json, sites: Mapping[str, Site], now: float, draw: Callable[[], float]) -> Plan:
    """What to ask of all sites: in one plan, since two that were planned apart would be asked for the same work."""
    others = [pilot for pilot in demand["pilots"] if pilot["site"] not in sites]
    needs = [need for row in demand["needs"] for need in _needs(row, others, sites)]
    ranks = rank_sites(
        (TaskKind(row["require"], row["rank"], row["priority"], row["tasks"]), row["ranks"]) for row in demand["needs"]
    )
    views = [site.view(demand["pilots"], now, ranks.get(name)) for name, site in sites.items()]
    return plan(rule, needs, views, now, draw)


def _needs(row: Json, others: list[Json], sites: Collection[str]) -> list[Need]:
    """A group of ready tasks, in parts for the sites that the server's plan directs them to [SPHINX S5]; what came since the
    plan may go anywhere. Servers of older versions have none."""
    need = _need(row, others)
    directed = {site: count for site, count in (row.get("directed") or {}).items() if site not in row["unfit_sites"]}
    total = sum(directed.values())
    if need.seconds is None or total <= 0 or need.tasks <= 0:
        return [need]
    part = min(1.0, need.tasks / total)
    parts = [
        need._replace(tasks=round(part * count), unfit_sites=need.unfit_sites | {one for one in sites if one != site})
        for site, count in sorted(directed.items())
        if site in sites
    ]
    rest = need._replace(tasks=max(0, need.tasks - round(total)))
    return [one for one in (*parts, rest) if one.tasks > 0]


def _need(row: Json, others: list[Json]) -> Need:
    """A group of ready tasks; what free pilots outside the sites can take is not asked for."""
    free = sum(one["free_cores"] for one in others if one["site"] not in row["unfit_sites"])
    tasks = max(0, int(row["tasks"]) - free // max(1, int(row["cores"])))
    return Need(
        tasks, row["cores"], row["memory"], row["gpus"], row["seconds"], row["require"], row["rank"], row["priority"],
        frozenset(row["unfit_sites"]), row["tried_for"],
    )  # fmt: skip
