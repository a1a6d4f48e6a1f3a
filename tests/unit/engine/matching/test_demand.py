"""What a person's ready tasks need, as the provisioner is told."""

from __future__ import annotations

from shoal.engine.matching.demand import NeedRow
from tests.unit.engine.stand import OWNER, Stand, good


def _need(stand: Stand) -> NeedRow:
    (need,) = stand.engine.demand(OWNER, stand.now).needs
    return need


def test_tasks_that_run_longer_than_those_that_ended_say_how_long_others_take() -> None:
    stand = Stand()
    stand.submit({"array": "1-40", "cores": 1})
    assert _need(stand).seconds is None
    quick, slow = stand.pilot(host="quick"), stand.pilot(host="slow")
    (held,) = slow.pull()
    slow.run(held.attempt)
    leases = quick.pull()
    for _ in range(3):
        leases = quick.talk(good(leases[0].attempt, duration=10.0)).leases
    assert _need(stand).seconds == 10.0 and _need(stand).is_learned
    stand.pass_time(20.0)
    assert _need(stand).seconds == 40.0, "one of four has run for 20 s: it counts as half done"
    assert stand.sound()


def test_a_site_is_worth_what_its_pilots_are_to_the_tasks() -> None:
    """[GWP G8]: what a guided policy goes by."""
    stand = Stand()
    stand.submit({"array": "1-40", "rank": "speed", "require": "speed > 0"})
    assert _need(stand).ranks == {} and _need(stand).tried_for is None
    for speed, site in ((2.0, "near"), (4.0, "near"), (9.0, "far"), (0.0, "slow")):
        stand.pilot(host=f"{site}{speed}", site=site, tags={"speed": speed})
    need = _need(stand)
    assert need.ranks == {"near": 3.0, "far": 9.0}
    assert need.unfit_sites == ["slow"]
    assert need.tried_for == 0.0, "a pilot that can run them is free"
