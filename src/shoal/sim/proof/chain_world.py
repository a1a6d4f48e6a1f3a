"""A world of workflows of short calls, which are leased in chains [ADR 0064]: every promise of the others, among pilots, guards
and servers that die while chains are under way, calls that fail, and people who cancel."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from shoal.model.ids import AttemptId
from shoal.sim.host import Host
from shoal.sim.proof.faults import Plan
from shoal.sim.proof.world import World
from shoal.wire.messages import Lease

CALL = {"function": "gAU=", "calls": ["gAU="]}
PLAN = Plan(0.02, 0.02, 0.0, 0, 0, 0, 0, 0, 0, 0, 0.05)
BETWEEN = 2.0  # seconds between submissions
RUNS = 16


class ChainWorld(World):
    """Chains, joins and fans of calls; `plan`: the share of messages that are lost, and of calls that fail."""

    def __init__(self, seed: int, plan: Plan | None = None, **more: Any) -> None:
        super().__init__(seed, plan or PLAN, **more)
        self.chained = 0  # calls that pilots were leased behind others
        rng = Random(f"{seed}/hits")
        acts = (
            partial(self._hit, "pilot_death", "kill {host.name}", Host.die),
            partial(self._hit, "guard_death", "kill the guard of {host.name}", Host.lose_guard),
            partial(self._hit, "pilot_drain", "drain {host.name}", Host.drain),
            self._crash,
            self.users.cancel,
            self.users.retry,
        )
        for number in range(2 * RUNS):
            self.clock.after(1.0 + BETWEEN * rng.uniform(0.0, RUNS), acts[number % len(acts)])

    def draw_work(self) -> list[tuple[float, list[dict[str, Any]]]]:
        """First plain calls, by which it is learned that they are short."""
        rng = Random(f"{self.seed}/chains")
        first = (0.0, [{**CALL, "calls": ["gAU="] * 40}])
        return [first, *((1.0 + BETWEEN * number, _draw(rng)) for number in range(RUNS))]

    def script(self, host: Host, attempt: AttemptId) -> tuple[float, bool]:
        """A few milliseconds, and now and then much longer than anybody expects."""
        rng = Random(f"{self.seed}/{attempt.task}/{attempt.number}")
        length = 0.3 if rng.random() < 0.02 else rng.uniform(0.001, 0.004)
        return length, rng.random() < self.plan.failing

    def run_time(self, host: Host, lease: Lease) -> tuple[float, bool]:
        """Also counts what began behind others."""
        self.chained += bool(lease.parents and lease.parents[0])
        return super().run_time(host, lease)


def _draw(rng: Random) -> list[dict[str, Any]]:
    """Some chains, written one after another or level by level; joined at times."""
    width, length = rng.choice([(1, 12), (3, 8), (8, 6), (20, 5)])
    retries, is_by_level, joins = rng.choice([0, 0, 2]), rng.random() < 0.5, rng.random() < 0.3
    places = [(chain, at) for at in range(length) for chain in range(width)]
    tables = []
    for chain, at in places if is_by_level else sorted(places):
        after = [f"c{chain}.{at - 1}"] if at else []
        if joins and at and chain and rng.random() < 0.2:
            after.append(f"c{chain - 1}.{at - 1}")
        tables.append({**CALL, "name": f"c{chain}.{at}", "after": after, "retries": retries})
    if rng.random() < 0.3:
        last = [f"c{chain}.{length - 1}" for chain in range(width)]
        tables.append({**CALL, "calls": ["gAU="] * 5, "name": "wide", "after": last, "retries": retries})
        tables.append({**CALL, "name": "end", "after": ["wide"], "retries": retries})
    return tables
