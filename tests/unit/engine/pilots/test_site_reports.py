"""What provisioners report: what a task that asks for a site is told, and what a line of progress shows."""

from __future__ import annotations

import pytest

from shoal.engine.commands import ReportSite
from shoal.engine.pilots.site_reports import SiteUse, sites_in_use
from shoal.wire.http.requests import SiteStatus
from tests.unit.engine.stand import OWNER, Stand


@pytest.fixture
def stand() -> Stand:
    return Stand()


def report(stand: Stand, site: str, **more: object) -> None:
    stand.do(ReportSite(OWNER, site, SiteStatus(site, "slurm", **more)))  # type: ignore[arg-type]  # by name


def test_a_task_that_asks_for_a_site_is_told_what_keeps_that_site(stand: Stand) -> None:
    stand.pilot(site="local").pull()
    run = stand.submit({"site": "hpc"})
    reason = stand.why(run, 1)
    assert reason.code == "cannot_run" and "it asks for site hpc, and no pilot of it is connected" in reason.text
    assert "shoal site add" in reason.fix
    report(stand, "box", queued=1, reasons=["Other"])
    assert stand.why(run, 1).code == "cannot_run", "another site does not help it"
    report(stand, "hpc", queued=2, reasons=["PartitionTimeLimit"])
    reason = stand.why(run, 1)
    assert reason.code == "provisioning", "so nobody gives it up"
    assert reason.text.endswith("yet; hpc: 2 allocations wait (PartitionTimeLimit)")
    report(stand, "hpc", trouble="Invalid account")
    assert stand.why(run, 1).text.endswith("hpc: Invalid account")


def test_sites_in_use_are_those_with_pilots_and_those_that_were_asked(stand: Stand) -> None:
    stand.pilot(site="local").pull()
    report(stand, "hpc", queued=1, reasons=["Priority"])
    assert sites_in_use(stand.engine.state, OWNER) == [
        SiteUse("hpc", 0, 0, "1 allocation waits (Priority)"),
        SiteUse("local", 1, 0, ""),
    ]
    assert sites_in_use(stand.engine.state, "bert") == [], "nobody sees another's sites"
