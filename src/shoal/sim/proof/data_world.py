"""A world whose tasks read files, and whose hosts keep them: every promise of the others, and those of matching with data.

Nothing is lost or starved by waiting for data, nothing waits for a busy pilot where the policy says so, and what the server
knows of a cache is what is in it, once everything was told [CMS IV.E].
"""

from __future__ import annotations

import hashlib
import json
from random import Random
from typing import Any

from shoal.engine.commands import SetPolicy
from shoal.engine.locality.holds import LOOK_AGAIN
from shoal.engine.locality.index import SHARED
from shoal.engine.matching.choose_tasks import LeaseRound, may_fill
from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.model.ids import AttemptId
from shoal.model.policy import IDLE, DataRule, Policy
from shoal.sched.fit import how_many
from shoal.sim.host import Host
from shoal.sim.proof.ledger import BrokenPromise
from shoal.sim.proof.world import World

LONGEST = 6.0  # seconds that a task waits for its data at most
SLACK = 2.0 + LOOK_AGAIN  # seconds in which a pilot that may have a task again is looked at
TOLD_WITHIN = 60.0  # seconds after the end in which pilots have told everything


class DataWorld(World):
    """`wait`: the rule of the policy."""

    def __init__(self, seed: int, *args: Any, wait: str = IDLE, **more: Any) -> None:
        super().__init__(seed, *args, **more)
        self.rule = DataRule(wait, LONGEST)
        self._kept: dict[
            tuple[int, int, str], float
        ] = {}  # task and pilot -> since when it is kept from it for no reason
        self._state: State | None = None
        self.waited = 0  # tasks that were kept from a pilot

    def draw_work(self) -> list[tuple[float, list[dict[str, Any]]]]:
        """Tasks that read files of their own, the same file, or two of several."""
        rng = Random(f"{self.seed}/files")
        found = [(rng.uniform(0.0, 1_500.0), [_draw_readers(rng)]) for _ in range(rng.randint(10, 25))]
        return [*super().draw_work()[:1], *found]

    def make_hosts(self) -> None:
        """More hosts than other worlds have, so that some of them are idle."""
        for _ in range(Random(f"{self.seed}/hosts").randint(4, 8)):
            self._new_host()

    def script(self, host: Host, attempt: AttemptId) -> tuple[float, bool]:
        """Shorter tasks than elsewhere."""
        length, fails = super().script(host, attempt)
        return min(length, 30.0), fails

    def _run(self) -> None:
        self.clock.after(0.0, self._set_policy)
        super()._run()

    def _set_policy(self) -> None:
        engine = self.server.engine
        if engine is None or self.server.frozen is not None or self.server.rebuilding:
            return
        if engine.state.accounting.policy.data != self.rule:
            self.server.apply(
                SetPolicy(
                    Policy(data=self.rule), json.dumps({"data": {"wait": self.rule.wait, "longest": LONGEST}}), "root"
                )
            )

    # --- oracles
    def check(self) -> None:
        """The checks of every world, and whether tasks are kept for no reason."""
        changed = self.server.changed
        super().check()
        engine = self.server.engine
        if engine is not None and changed and self.server.frozen is None and not self.server.rebuilding:
            self._check_kept(engine.state)

    def _check_kept(self, state: State) -> None:
        if state is not self._state or state.accounting.policy.data != self.rule:
            self._state, self._kept = state, {}
            self.clock.after(0.01, self._set_policy)  # it was lost with a crash or a defect, or was never set
            return
        now, found = self.clock.now, set()
        self.waited += len(state.data.held)
        for pilot in [pilot for pilot in state.parked.values() if not pilot.held and may_fill(state, pilot)]:
            for file in list(state.data.files.values()):
                for reader in file.readers:
                    array = reader.inputs.array
                    element = reader.element if reader.element != SHARED else array.todo.first()
                    task = (array.run.number, element)
                    if self._is_kept_for_nothing(state, pilot, task):
                        found.add((*task, pilot.name))
        self._kept = {key: self._kept.get(key, now) for key in found}
        for (run, element, name), since in self._kept.items():
            if now - since > SLACK:
                raise BrokenPromise(
                    f"kept for no reason: r{run}.{element} is ready for {now - since:.1f} s, and {name} has capacity for it"
                )

    def _is_kept_for_nothing(self, state: State, pilot: Pilot, task: tuple[int, int]) -> bool:
        """True if an idle pilot could have a task, and none that has its inputs is idle, or it waited for long enough."""
        run, element = task
        array = state.runs[run].array_of(element)
        if array is None or array.inputs is None or element in array.apart or not state.serves(pilot, array.run.owner):
            return False
        cls = state.queue.listed_class_of(array)
        if cls.head() is None or LeaseRound(state, pilot, pilot.seq).most(cls) <= 0:
            return False
        since = state.data.held.get(task)
        if since is not None and state.now - since > LONGEST:
            return True
        mine = _files_here(state, pilot, task)
        return self.rule.wait == IDLE and not any(
            how_many(cls.needs, other.free) > 0 and _files_here(state, other, task) > mine
            for other in state.pilots.values()
            if other is not pilot
        )

    def _check_end(self) -> None:
        super()._check_end()
        until = self.clock.now + TOLD_WITHIN
        while self.clock.now < until and self.clock.step():
            super().check()
        engine = self.server.engine
        assert engine is not None
        for host in self.hosts:
            registered = host.agent.registered
            if not host.alive or registered is None or registered.pilot not in engine.state.pilots:
                continue
            told = {file.digest for file in engine.state.data.told.get(registered.pilot, ())}
            if told != host.files.here:
                raise BrokenPromise(f"cache told wrong: {host.name} has {len(host.files.here)} files, told {len(told)}")


def _files_here(state: State, pilot: Pilot, task: tuple[int, int]) -> int:
    """How many inputs of a task the pilots of a host told of, found without the index."""
    array = state.runs[task[0]].array_of(task[1])
    assert array is not None and array.inputs is not None
    same = [other for other in state.pilots.values() if other.identity == pilot.identity]
    told = {file.digest for other in same for file in state.data.told.get(other.name, ())}
    return sum(1 for file in array.inputs.of(task[1]) if file.digest in told)


def _digest(name: str) -> str:
    return f"sha256:{hashlib.sha256(name.encode()).hexdigest()} 644"


def _draw_readers(rng: Random) -> dict[str, Any]:
    """A sweep over files: each read once, each read twice, or two of them read together."""
    names = [f"f{at}" for at in rng.sample(range(24), rng.randint(1, 6))]
    inputs, params = ["{f}"], {"f": names}
    kind = rng.choice(["serial", "splitting", "merging"])
    if kind == "splitting":
        params = {"f": names, "n": ["1", "2"]}
    elif kind == "merging":
        inputs = ["{f}", names[0]]
    content = {name: _digest(name) for name in names}
    return {
        "command": ["payload", "{f}"], "inputs": inputs, "params": params, "content": content,
        "retries": rng.choice([0, 1, 3]),
    }  # fmt: skip
