"""False worlds about whose word counts: sites that fail or are slow as a whole, tasks that kill their pilots, pilots that
lie beside another holder's. The real engine, database and agents, with crashes of the server in between; each world
says which promise was broken [promise I11, I12; SPHINX S8; ADR 0020].

EvidenceWorld(seed, PIT).run()      raises Broken, or returns the trace's hash
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
from shoal.sim.faults import Plan
from shoal.sim.host import OWNER, Host, Where
from shoal.sim.ledger import Broken
from shoal.sim.world import World
from shoal.wire.messages import Exchange
from shoal.wire.submission import parse_submission

PIT, SLOW, POISON, LIARS = "pit", "slow", "poison", "liars"
SCENES = (PIT, SLOW, POISON, LIARS)
LIAR = "mallory"
TASKS = 60
TIME = 30.0  # seconds that are stated where a site is slow
KILLERS = 2
PLAN = Plan(0.0, 0.0, 0.02, 0, 0, 0, 0, 2, 0, 0, 0.0)  # a few slow messages and two crashes of the server
WASTE = 6 + 2  # failures of one host before its kind waits, or it is banned [promise I12], and probes after that


class EvidenceWorld(World):
    """One scene: nothing goes wrong but what it is about, so whatever else fails is a broken promise."""

    def __init__(self, seed: int, scene: str, steps: int = 60_000) -> None:
        super().__init__(seed, PLAN, steps)
        self.scene = scene
        self.killed: Counter[TaskId] = Counter()  # pilots by the task that killed them
        self.wasted: Counter[str] = Counter()  # failures by site
        self.killers = set(Random(f"{seed}/killers").sample(range(1, 13), KILLERS)) if scene == POISON else set()

    # --- the scene
    def make_hosts(self) -> None:
        """Three good hosts; beside them what the scene is about."""
        spoilt = {PIT: "pit", SLOW: "slow"}.get(self.scene)
        for number in range(3):
            self._new_host(Where(f"node{number}", "fine"))
        if spoilt is not None:
            for number in range(3):
                self._new_host(Where(f"{spoilt}{number}", spoilt))
        if self.scene == LIARS:  # by the same names as anna's
            for number in range(3):
                self._new_host(Where(f"node{number}", "fine", LIAR))
            self._new_host(Where("elsewhere", "elsewhere", LIAR))
            self.clock.after(1.0, self._lure)

    def _lure(self) -> None:
        """The liar has work that fails where it says so, which is on hosts with others' names."""
        if self.server.engine is None:
            self.clock.after(1.0, self._lure)
            return
        submission = parse_submission({"tasks": [{"command": ["lie"], "array": "1-200"}], "cwd": "/"})
        self.server.ask(
            Submit(submission, LIAR, "d"), lambda result: self.server.tell(Accept(parse_run(result["run"]))), _raise
        )

    def draw_work(self) -> list[tuple[float, list[dict[str, Any]]]]:
        """Tasks that succeed wherever a host is good."""
        count = 12 if self.scene == POISON else TASKS
        table: dict[str, Any] = {"command": ["payload"], "array": f"1-{count}"}
        if self.scene == SLOW:
            table["time"] = TIME
        return [(5.0, [table])]

    def script_on(self, host: Host, attempt: AttemptId) -> tuple[float, bool]:
        """By the host, and by the task where that is to blame."""
        length = Random(f"{self.seed}/{attempt}").uniform(0.5, 10.0)
        if host.site == "pit" or (host.owner == LIAR and host.site == "fine"):
            self.wasted[host.site] += 1
            return 0.01, True
        if host.site == "slow":
            self.wasted[host.site] += 1
            return 20 * TIME, False
        if attempt.element in self.killers and attempt.run in self.ledger.accepted:
            self.killed[attempt.task] += 1
            self.clock.after(0.0005, host.die)  # before anybody hears of its start
            if self.killed[attempt.task] > POISON_LOSSES + self._crashes:  # a crash may forget a lease, and its end
                raise Broken(f"poison goes on: {attempt.task} killed {self.killed[attempt.task]} pilots")
        return length, False

    def left(self, host: Host) -> None:
        """Another pilot comes at once on the same host, and tells that the one before it is dead."""
        self._empty += 1
        where = Where(host.claims, host.site, host.owner)
        self.clock.after(self.rng.uniform(0.5, 5.0), lambda: self._new_host(where, host, knows_end=host.died))

    def send(self, host: Host, exchange: Exchange) -> None:
        """Liars also say that others' pilots are dead."""
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
                self._failed(change)
            elif isinstance(change, Event):
                self._told(change)

    def _failed(self, row: TaskRow) -> None:
        is_killer = row.element in self.killers
        if row.cause == "poison" and not is_killer:
            raise Broken(f"innocent called poison: r{row.run}.{row.element}, {row.message}")
        if not is_killer:
            raise Broken(f"a site's failure was final: r{row.run}.{row.element} by {row.cause}")

    def _told(self, event: Event) -> None:
        if event.kind == "place_banned" and event.owner == OWNER and event.site == "fine":
            raise Broken(f"banned by another's word, or for nothing: {event.data}")
        is_told = event.kind == "pilot_gone" and event.owner == OWNER and "is gone, says" in event.data["reason"]
        if is_told and all(h.alive for h in self.hosts if h.owner == OWNER):
            raise Broken(f"a living pilot was given up by another's word: {event.data['reason']}")

    def check(self) -> None:
        """Also: nothing of the honest holder is banned by what liars say."""
        super().check()
        engine = self.server.engine
        if engine is not None and self.scene == LIARS:
            for pilot in engine.state.pilots.values():
                ban = engine.state.ban_of(pilot) if pilot.owner == OWNER else None
                if ban is not None:
                    raise Broken(f"banned by another's word: {ban.kind} {ban.name} of {OWNER}")

    def _check_end(self) -> None:
        super()._check_end()
        most = 3 * WASTE * (1 + self._crashes)  # what failed before a crash is not remembered
        if self.scene in (PIT, SLOW) and self.wasted[self.scene] > most:
            raise Broken(f"a bad site goes on: {self.wasted[self.scene]} tasks were wasted at {self.scene}")
        if self.scene == LIARS and not self.wasted["fine"]:
            raise Broken("nobody lied: this world proves nothing")


def _raise(error: Exception) -> None:
    raise error
