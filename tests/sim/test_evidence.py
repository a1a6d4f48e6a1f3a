"""Simulated worlds about whose reports count, and planted bugs that they must catch
[promise I11, I12; SPHINX S8; ADR 0020]."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import pytest

from shoal.engine.pilots import losses
from shoal.engine.policy import accounting
from shoal.engine.state import State
from shoal.engine.tasks import failures, reports
from shoal.sim.proof.ledger import BrokenPromise
from tests.sim.evidence import FAILING_SITE, LIARS, POISON, SCENARIOS, SLOW_SITE, EvidenceWorld
from tests.sim.planting import plant

PROVE = bool(os.environ.get("SHOAL_PROVE"))
SEEDS = 300 if PROVE else 1
TWICE = SCENARIOS if PROVE else (POISON,)  # played a second time, with the same trace


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_lie_and_no_bad_site_costs_anybody_else_a_task(scenario: str) -> None:
    for seed in range(SEEDS):
        world = EvidenceWorld(seed, scenario)
        digest = world.run()
        if seed == 0 and scenario in TWICE:
            assert EvidenceWorld(seed, scenario).run() == digest, "the same seed gives the same trace"


# name -> (scenario, function, what stands there, what the bug makes of it, how the world must complain)
BUGS: dict[str, tuple[str, Callable[..., Any], str, str, str]] = {
    "bans are kept by name, without their holder": (
        LIARS,
        accounting.Accounting.evidence_of,
        "found = self.evidence.get(holder)",
        "holder = ''; found = self.evidence.get(holder)",
        "banned by another owner's reports",
    ),
    "a loss right after a lease does not count": (
        POISON,
        losses._count_loss,
        "task.losses += 1",
        "task.losses += attempt.running",
        "poison goes on",
    ),
    "whatever was leased with the culprit is called poison with it": (
        POISON,
        losses._count_loss,
        "if task.losses >= POISON_LOSSES - 1:",
        "if False:",
        "innocent called poison|poison goes on",
    ),
    "a failure is final although another site was not asked": (
        FAILING_SITE,
        failures.judge_failure,
        "has_untried_site = bool(untried) and kinds.is_in_doubt(array.trait, site)",
        "sites, has_untried_site = set(), False",
        "a site's failure was final",
    ),
    "a site that is slow as a whole is compared with itself only": (
        SLOW_SITE,
        failures.judge_failure,
        "has_untried_site = bool(untried) and is_doubtful",
        "has_untried_site = False",
        "a site's failure was final",
    ),
    "a neighbour is believed about pilots of another holder": (
        LIARS,
        losses.seen_dead,
        "if one.holder == pilot.holder and one.identity == pilot.identity",
        "if True",
        "given up by another owner's report",
    ),
}
# The same bug in a second place.
ALSO: dict[str, tuple[Callable[..., Any], str, str]] = {
    "bans are kept by name, without their holder": (
        State.ban_of,
        "evidence = self.accounting.evidence.get(pilot.holder)",
        "evidence = self.accounting.evidence.get('')",
    ),
    "whatever was leased with the culprit is called poison with it": (
        losses._is_poison,
        "POISON_LOSSES if is_alone else MOST_LOSSES",
        "POISON_LOSSES",
    ),
}


LATELY = {"a failure is final although another site was not asked": 6}  # the world that noticed soonest is played first


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, function, old, new, words = BUGS[name]
    plant(monkeypatch, function, old, new)
    if name in ALSO:
        plant(monkeypatch, *ALSO[name])
    for seed in (LATELY.get(name, 0), *range(20)):
        try:
            EvidenceWorld(seed, scenario).run()
        except BrokenPromise as broken:
            first = str(broken).splitlines()[0]
            assert re.search(words, first), f"caught, but not for what it is: {first}"
            return
    pytest.fail(f"20 worlds did not notice: {name}")


def test_a_pilot_that_returns_everything_for_ever_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scenario of the unit test once more, with the count of returns left out."""
    from tests.unit.engine.stand import Stand, back

    def leases() -> int:
        stand, leased = Stand(), 0
        stand.submit({"array": "1-50"})
        pilot = stand.pilot(host="lazy")
        for _ in range(30):
            stand.now += 1
            leased += len(pilot.talk(*(back(attempt) for attempt in list(pilot.held))).leases)
        return leased

    assert leases() < 6
    plant(monkeypatch, reports._count_return, "if pilot.returns >= MAX_RETURNS:", "if False:")
    assert leases() > 20
