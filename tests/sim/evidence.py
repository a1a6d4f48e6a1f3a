"""Simulated worlds about whose reports count: sites that fail or are slow as a whole, tasks that kill their pilots, and
pilots that lie about those of another owner. The server crashes now and then [promise I11, I12; SPHINX S8; ADR 0020].

EvidenceWorld(seed, FAILING_SITE).run()      raises BrokenPromise, or returns the trace's hash
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

from shoal.engine.changes import Change, TaskRow
from shoal.engine.commands import Accept, Submit
from shoal.model.credentials import digest
from shoal.model.event import Event
from shoal.model.ids import AttemptId, TaskId, parse_run
from shoal.model.limits import POISON_LOSSES
from shoal.sim.host import OWNER, Host, Placement
from shoal.sim.proof.faults import Plan
from shoal.sim.proof.ledger import BrokenPromise
from shoal.sim.proof.world import World
from shoal.wire.messages import Exchange
from shoal.wire.submission import parse_submission

FAILING_SITE, SLOW_SITE, POISON, LIARS = "failing", "slow", "poison", "liars"
SCENARIOS = (FAILING_SITE, SLOW_SITE, POISON, LIARS)
GOOD_SITE = "good"
LIAR = "mallory"
TASKS = 60
TIME = 30.0  # seconds that tasks may take where a site is slow
KILLERS = 2  # tasks that kill their pilots
PLAN = Plan(0.0, 0.0, 0.02, 0, 0, 0, 0, 2, 0, 0, 0.0)  # a few slow messages and two crashes of the server
MAX_WASTED = 6 + 2  # failures on one host until it is banned or the kind of task waits [promise I12], and probes then


class EvidenceWorld(World):
    """One scenario: nothing goes wrong but what it is about, so that any other failure is a broken promise."""

    def __init__(self, seed: int, scenario: str, steps: int = 60_000) -> None:
        super().__init__(seed, PLAN, steps)
        self.scenario = scenario
        self.killed: Counter[TaskId] = Counter()  # pilots, by the task that killed them
        self.wasted: Counter[str] = Counter()  # failures by site
        self.killers = set(Random(f"{seed}/killers").sample(range(1, 13), KILLERS)) if scenario == POISON else set()

    # --- the scenario
    def make_hosts(self) -> None:
        """Three good hosts, and three of the site that the scenario is about."""
        for number in range(3):
            self._new_host(Placement(f"node{number}", GOOD_SITE))
        if self.scenario in (FAILING_SITE, SLOW_SITE):
            for number in range(3):
                self._new_host(Placement(f"{self.scenario}{number}", self.scenario))
        if self.scenario == LIARS:  # under the host names of the honest owner
            for number in range(3):
                self._new_host(Placement(f"node{number}", GOOD_SITE, LIAR))
            self._new_host(Placement("elsewhere", "elsewhere", LIAR))
            self.clock.after(1.0, self._submit_lies)

    def _submit_lies(self) -> None:
        """The liar submits tasks whose failures it will report on the host names of the honest owner."""
        if self.server.engine is None:
            self.clock.after(1.0, self._submit_lies)
            return
        submission = parse_submission({"tasks": [{"command": ["lie"], "array": "1-200"}], "cwd": "/"})
        self.server.request(
            Submit(submission, LIAR, "d"), lambda result: self.server.apply(Accept(parse_run(result["run"]))), _raise
        )

    def draw_work(self) -> list[tuple[float, list[dict[str, Any]]]]:
        """Tasks that succeed on good hosts."""
        count = 12 if self.scenario == POISON else TASKS
        table: dict[str, Any] = {"command": ["payload"], "array": f"1-{count}"}
        if self.scenario == SLOW_SITE:
            table["time"] = TIME
        return [(5.0, [table])]

    def script(self, host: Host, attempt: AttemptId) -> tuple[float, bool]:
        """A failing or slow site, a lie, or a task that kills its pilot decides; else the task succeeds."""
        length = Random(f"{self.seed}/{attempt}").uniform(0.5, 10.0)
        if host.site == FAILING_SITE or (host.owner == LIAR and host.site == GOOD_SITE):
            self.wasted[host.site] += 1
            return 0.01, True
        if host.site == SLOW_SITE:
            self.wasted[host.site] += 1
            return 20 * TIME, False
        if attempt.element in self.killers and attempt.run in self.ledger.accepted:
            self.killed[attempt.task] += 1
            self.clock.after(0.0005, host.die)  # before its start is reported
            if self.killed[attempt.task] > POISON_LOSSES + self._crashes:  # a crash may lose a lease, and its end
                raise BrokenPromise(f"poison goes on: {attempt.task} killed {self.killed[attempt.task]} pilots")
        return length, False

    def pilot_ended(self, host: Host) -> None:
        """Another pilot starts at once on the same host, and reports that the one before it is dead."""
        self._vacant += 1
        placement = Placement(host.hostname, host.site, host.owner)
        self.clock.after(self.rng.uniform(0.5, 5.0), lambda: self._new_host(placement, host, host.died))

    def send(self, host: Host, exchange: Exchange) -> None:
        """Liars also report that the pilots of the honest owner are dead."""
        if host.owner == LIAR and self.server.engine is not None:
            living = [h.agent.registered for h in self.hosts if h.owner == OWNER and h.alive]
            ended = [digest(registered.session) for registered in living if registered is not None]
            exchange = replace(exchange, ended=ended)
        super().send(host, exchange)

    # --- what must hold
    @property
    def _crashes(self) -> int:
        return self.tally["server_crash_in_gap"] + self.tally["server_crash_after_commit"]

    def _committed(self, changes: list[Change]) -> None:
        super()._committed(changes)
        for change in changes:
            if isinstance(change, TaskRow) and change.state == "failed" and change.run in self.ledger.accepted:
                self._check_failure(change)
            elif isinstance(change, Event):
                self._check_event(change)

    def _check_failure(self, row: TaskRow) -> None:
        is_killer = row.element in self.killers
        if row.cause == "poison" and not is_killer:
            raise BrokenPromise(f"innocent called poison: r{row.run}.{row.element}, {row.message}")
        if not is_killer:
            raise BrokenPromise(f"a site's failure was final: r{row.run}.{row.element} by {row.cause}")

    def _check_event(self, event: Event) -> None:
        if event.kind == "place_banned" and event.owner == OWNER and event.site == GOOD_SITE:
            raise BrokenPromise(f"banned by another owner's reports, or for nothing: {event.data}")
        is_reported = event.kind == "pilot_gone" and event.owner == OWNER and "on the same host" in event.data["reason"]
        if is_reported and all(h.alive for h in self.hosts if h.owner == OWNER):
            raise BrokenPromise(f"a living pilot was given up by another owner's report: {event.data['reason']}")

    def check(self) -> None:
        """Also: nothing of the honest owner is banned by the reports of liars."""
        super().check()
        engine = self.server.engine
        if engine is not None and self.scenario == LIARS:
            for pilot in engine.state.pilots.values():
                ban = engine.state.ban_of(pilot) if pilot.owner == OWNER else None
                if ban is not None:
                    raise BrokenPromise(f"banned by another owner's reports: {ban.kind} {ban.name} of {OWNER}")

    def _check_end(self) -> None:
        super()._check_end()
        most = 3 * MAX_WASTED * (1 + self._crashes)  # what failed before a crash is not remembered
        wasted = self.wasted[self.scenario]  # the bad site is called like its scenario
        if self.scenario in (FAILING_SITE, SLOW_SITE) and wasted > most:
            raise BrokenPromise(f"a bad site goes on: {wasted} tasks were wasted at {self.scenario}")
        if self.scenario == LIARS and not self.wasted[GOOD_SITE]:
            raise BrokenPromise("nobody lied: this world proves nothing")


def _raise(error: Exception) -> None:
    raise error
