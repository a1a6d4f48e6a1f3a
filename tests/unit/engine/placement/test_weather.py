"""What the engine sees of sites [SPHINX S7]."""

from __future__ import annotations

from shoal.engine.commands import ReportSite
from shoal.wire.http.requests import AllocationChange, SiteStatus
from tests.unit.engine.stand import OWNER, Stand, bad, good


def test_pilots_and_reports_make_the_weather_of_a_site() -> None:
    stand = Stand()
    stand.submit({"array": "1-40", "cores": 1, "retries": 0})
    near = stand.pilot(
        host="n", site="near", cores=4, tags={"lag_ms": 20.0, "bandwidth_mbps": 80.0, "disk_available_mb": 5.0}
    )
    first, second, *_ = near.pull()
    stand.pass_time(61.0)
    near.talk(good(first.attempt, duration=10.0))
    submitted = AllocationChange("submitted", "shoal-1", "", 8, 3600.0)
    stand.do(ReportSite(OWNER, "hpc", SiteStatus("hpc", "slurm", queued=2, changes=[submitted], free_slots=7)))
    near.talk(good(second.attempt, duration=10.0))
    near.pull()
    near.talk(bad(next(iter(near.held))))
    stand.pass_time(61.0)
    started = AllocationChange("started", "shoal-1", "", 8, 3600.0)
    stand.do(ReportSite(OWNER, "hpc", SiteStatus("hpc", "slurm", queued=1, changes=[started])))
    seen = stand.engine.weather(OWNER, stand.now)
    assert seen["hpc"]["start_delay"]["value"] == 61.0 and seen["hpc"]["waiting"]["value"] in (1.0, 2.0)
    assert seen["near"]["round_trip"]["value"] == 0.02 and seen["near"]["bandwidth"]["value"] == 1e7
    assert seen["near"]["storage"]["value"] == 5 << 20
    assert seen["near"]["running"]["value"] + seen["near"]["free"]["value"] == 4.0
    assert 0.0 < seen["near"]["failure"]["value"] < 1.0


def test_others_do_not_see_it() -> None:
    stand = Stand()
    stand.pilot(host="n", site="near")
    stand.pass_time(61.0)
    assert set(stand.engine.weather(OWNER, stand.now)) == {"near"} and stand.engine.weather("bob", stand.now) == {}


def test_numbers_that_no_host_has_are_not_summed() -> None:
    stand = Stand()
    tags = {"bandwidth_mbps": 1.4e303, "disk_available_mb": 1.6e302, "lag_ms": 20.0}
    for at in range(2):
        stand.pilot(host=f"n{at}", identity=f"n{at}", site="near", tags=tags)
    for _ in range(3):
        stand.pass_time(61.0)
    seen = stand.engine.weather(OWNER, stand.now)["near"]
    assert seen["round_trip"]["value"] == 0.02 and "bandwidth" not in seen and "storage" not in seen
