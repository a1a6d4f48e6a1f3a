"""What a plan is asked, read off the engine."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.engine.commands import ReportSite
from shoal.wire.http.requests import SiteStatus
from tests.unit.engine.stand import OWNER, Stand, good


def question(stand: Stand) -> Any:
    return stand.engine.placement_question(stand.now)


def test_with_one_site_or_without_known_durations_nothing_is_planned() -> None:
    stand = Stand()
    stand.submit({"array": "1-20", "cores": 1})
    near = stand.pilot(host="n", site="near", cores=2)
    assert question(stand) is None
    leases = near.pull()
    near.talk(good(leases[0].attempt, duration=40.0))
    assert question(stand) is None, "one site"
    stand.pilot(host="f", site="far", cores=6)
    assert question(stand) is not None
    other = Stand()
    other.submit({"array": "1-20", "cores": 1})
    other.pilot(host="n", site="near"), other.pilot(host="f", site="far")
    assert question(other) is None, "nobody knows how long they take"


def test_sites_have_cores_and_what_runs_there_and_may_bring_more() -> None:
    stand = Stand()
    stand.submit({"array": "1-40", "cores": 1, "time": 50, "site": "near,far,queue"})
    near = stand.pilot(host="n", site="near", cores=2)
    near.pull()
    near.run()
    stand.pilot(host="f", site="far", cores=6)
    status = SiteStatus("queue", "slurm", pilot_cores=8, open_pilots=3, wait=600.0)
    stand.do(ReportSite(OWNER, "queue", status))
    stand.do(ReportSite(OWNER, "broken", SiteStatus("broken", "slurm", trouble="no key", pilot_cores=8, open_pilots=3)))
    found = question(stand)
    places = {place.name: place for place in found.places}
    assert set(places) == {"near", "far", "queue"}
    assert (places["near"].cores, places["far"].cores) == (2.0, 6.0)
    assert (places["queue"].cores, places["queue"].more, places["queue"].delay) == (0.0, 24.0, 600.0)
    (kind,) = found.kinds
    assert kind.seconds == 50.0 and kind.tasks == 38 and kind.sites == {"near", "far", "queue"}


def test_a_class_goes_only_where_it_may_run_and_quotas_are_limits() -> None:
    stand = Stand()
    stand.submit({"array": "1-40", "cores": 1, "time": 50, "require": 'site == "far"'})
    stand.submit({"array": "1-40", "cores": 4, "time": 50})
    stand.pilot(host="n", site="near", cores=4)
    stand.pilot(host="f", site="far", cores=6)
    stand.policy(quota=[{"site": "near", "cores": 2}, {"who": "*", "core_hours": 1, "when": "day"}])
    found = question(stand)
    names = [place.name for place in found.places]
    assert {kind.cores: kind.sites for kind in found.kinds} == {1: {"far"}, 4: {"near", "far"}}
    limits = {(limit.sites, limit.cores, limit.core_seconds) for limit in found.limits}
    assert ((names.index("near"),), 2, None) in limits
    assert any(limit.core_seconds == pytest.approx(3600.0, abs=400.0) for limit in found.limits)
