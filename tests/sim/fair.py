"""How soon does an urgent task start while pilots fetch short tasks ahead?
[protocol 5.3; promise I13; ADR 0019]

    result = simulate(setting)     the real engine and real agents on a virtual clock
    result.wait                    seconds from the acceptance of the urgent task to its start
    result.turnover                seconds until a slot became free for the first time after that

The urgent task is one of a higher priority, or the first one of an owner who comes later.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from shoal.engine.commands import Regroup
from shoal.model.ids import parse_attempt
from shoal.sim.pool import CALL, GROUP, SimPool
from shoal.wire.messages import PROTOCOL, Lease

FIRST, SECOND = "ann", "bob"
WARM_UP = 1.2  # seconds before the urgent task comes, with a few pilots; with many, a part of it is enough to fill them
MAX_TASKS = 100_000  # in the queue: as many calls as one table holds


@dataclass(frozen=True)
class Setting:
    """A queue of equal tasks, and the urgent tasks that come when it is under way."""

    length: float  # seconds of each task in the queue
    pilots: int = 1
    slots: int = 2
    calls: bool = False
    newcomer: bool = False  # the urgent one is another owner's; else it has a higher priority
    urgent: int = 1  # tasks
    urgent_length: float = 0.01
    rerun: str = "safe"
    cores: int = 1
    protocol: int = PROTOCOL
    spread: float = 0.0  # of the logarithm of lengths
    after: float = 0.0  # seconds that are simulated after the urgent task has started
    seed: int = 1


@dataclass
class Result:
    """When the tasks of a simulation started."""

    wait: float = math.inf
    turnover: float = math.inf
    starts: list[tuple[float, str]] = field(default_factory=list)  # time since the urgent task came, attempt
    begun: Counter[str] = field(default_factory=Counter)  # by task
    finished: int = 0
    returned: int = 0


class _Pool(SimPool):
    def __init__(self, setting: Setting) -> None:
        super().__init__(setting.seed, setting.pilots, setting.slots, setting.protocol)
        self.setting, self.result = setting, Result()
        self._rng = Random(setting.seed)
        self._urgent = 0  # the run that the urgent tasks are in
        self._arrival = math.inf  # of the urgent tasks

    def _send(self, owner: str, count: int, **more: Any) -> int:
        """Submit so many equal tasks."""
        if self.setting.calls:
            table: dict[str, Any] = {"function": CALL, "calls": [CALL] * count, **more}
        else:
            table = {"command": ["work"], **more, **({"array": f"1-{count}"} if count > 1 else {})}
        return self.submit(owner, table)

    def started(self, lease: Lease) -> float:
        """Note the start; urgent tasks have a length of their own."""
        attempt = parse_attempt(lease.attempt)
        since = self.clock.now - self._arrival
        self.result.begun[str(attempt.task)] += 1
        self.result.starts.append((since, lease.attempt))
        if attempt.run == self._urgent:
            self.result.wait = min(self.result.wait, since)
            return self.setting.urgent_length
        length, spread = self.setting.length, self.setting.spread
        return length * self._rng.lognormvariate(-(spread**2) / 2, spread) if spread else length

    def ended(self, lease: Lease) -> None:
        """Note that a slot became free."""
        self.result.finished += lease.count
        if self._arrival < math.inf:
            self.result.turnover = min(self.result.turnover, self.clock.now - self._arrival)

    def simulate(self) -> Result:
        """From the first pilot to the start of the urgent task."""
        setting, slots = self.setting, self.setting.slots * self.setting.pilots
        for owner in (FIRST, SECOND):
            self.do(Regroup(owner, GROUP))
        self.start_pilots()
        warm = WARM_UP if setting.pilots < 10 else WARM_UP / 4
        wanted = slots * (warm + 8.0) / setting.length + 10 * slots
        self._send(FIRST, int(min(MAX_TASKS, wanted)))
        self.run_for(warm + min(2.0, 2 * setting.length) + self._rng.uniform(0.0, min(1.0, setting.length)))
        more: dict[str, Any] = {"cores": setting.cores, "rerun": setting.rerun}
        self._arrival = self.clock.now
        if setting.newcomer:
            self._urgent = self._send(SECOND, setting.urgent, **more)
        else:
            self._urgent = self._send(FIRST, setting.urgent, priority=10, **more)
        self.run_until(lambda: self.result.wait < math.inf, 5.0 + 2 * setting.length)
        self.run_for(setting.after)
        self.check()
        self.result.returned = self.returned
        return self.result


def simulate(setting: Setting) -> Result:
    """Simulate a setting with the engine and agents."""
    return _Pool(setting).simulate()
