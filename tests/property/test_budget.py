"""A site's budget is never crossed, whatever is asked for, starts, ends early or is killed, in whatever order."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.provision.backend import ENDED, QUEUED, RUNNING, Status
from shoal.provisioner.ledger import Allocation, Ledger
from shoal.sched.demand import POLICIES, DemandRule, Need, SiteView, plan

STEPS = st.lists(
    st.tuples(st.integers(0, 60), st.none() | st.floats(1, 5_000), st.integers(1, 4), st.floats(1, 5_000)), max_size=8
)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(POLICIES), st.floats(0, 200_000), STEPS, st.integers(0, 99))
def test_what_is_used_and_reserved_stays_within_the_budget(
    policy: str, budget: float, steps: list[tuple[int, float | None, int, float]], seed: int
) -> None:
    rng, now = Random(seed), 0.0
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "a.json")
        for tasks, seconds, cores, passes in steps:
            waiting = [one for one in ledger.allocations.values() if one.state == QUEUED]
            running = len(ledger.allocations) - len(waiting)
            site = SiteView(
                "a", len(waiting), 0, running, 4 * len(waiting), 0, 4 * running, 20, 0, 1, 9, 4, 7_200.0, 60.0,
                budget_left=budget - ledger.committed,
            )  # fmt: skip
            found = plan(DemandRule(policy), [Need(tasks, cores, seconds=seconds)], [site], now, rng.random)
            for ask in found.asks:
                for _ in range(ask.count):
                    ledger.put(Allocation(str(ledger.next), ask.cores, float(ask.seconds), now, str(ledger.next)))
                    ledger.next += 1
            assert ledger.committed <= budget + 1e-6
            now += passes
            later = {QUEUED: (QUEUED, RUNNING, ENDED), RUNNING: (RUNNING, ENDED)}
            ledger.update(
                [Status(one.id, one.name, rng.choice(later[one.state])) for one in ledger.allocations.values()], now
            )
            assert ledger.used <= ledger.committed <= budget + 1e-6
