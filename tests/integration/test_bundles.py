"""A leader hands on what its followers and the server say to each other: real processes [LBO D8; promise I18; ADR 0062]."""

from __future__ import annotations

import os
import re
import shutil
import time
from typing import NamedTuple

import pytest

from tests.integration.cluster import Cluster
from tests.integration.mesh_site import Site, missing

pytestmark = pytest.mark.integration
_COUNT = re.compile(r'^shoal_requests_total\{route="/v1/pilots/\{pilot\}/(exchange|bundle)",status="200"\} (\S+)', re.M)
_BUNDLED = re.compile(r"^shoal_bundled_exchanges_total (\S+)", re.M)


@pytest.fixture
def site(cluster: Cluster) -> Site:
    reason = missing()
    if reason:
        pytest.skip(reason)
    found = Site(cluster)
    with cluster.client() as client:
        client.set_policy({"data": {"mode": "distributed"}}, 0)
    return found


class Requests(NamedTuple):
    """What the server answered so far."""

    exchanges: int  # that pilots sent themselves
    bundles: int
    bundled: int  # exchanges in them

    def since(self, before: Requests) -> Requests:
        return Requests(*(now - then for now, then in zip(self, before, strict=True)))


def requests(site: Site) -> Requests:
    with site.cluster.client() as client:
        text = client.metrics()
    found = {kind: int(float(count)) for kind, count in _COUNT.findall(text)}
    return Requests(found.get("exchange", 0), found.get("bundle", 0), int(float(_BUNDLED.findall(text)[0])))


def test_followers_are_heard_by_way_of_their_leader(site: Site) -> None:
    """Their beats and reports cost the server no requests of their own; what must not run twice is between each and the server;
    without the leader they go on by themselves."""
    cluster = site.cluster
    leader, *followers = [site.host() for _ in range(4)]
    start = requests(site)
    cluster.until(lambda: requests(site).since(start).bundled >= 12, "beats of followers come by way of the leader")
    beats = requests(site).since(start)
    assert beats.exchanges <= beats.bundled / 2 + 3, (
        beats
    )  # the leader's own, a third of them, and a few from the beginning
    run = cluster.submit(*[{"command": ["sleep", "0.1"]} for _ in range(80)])
    assert cluster.wait_run(run) == {"succeeded": 80}
    work = requests(site).since(start)
    assert work.bundles < 2 * work.bundled, work  # each brings some, or answers for which one request waits
    cluster.check_recorded_once(run, 80)

    for rerun in ("exclusive", "never"):
        before = requests(site)
        run = cluster.submit({"command": ["sleep", "1"], "rerun": rerun, "require": f'pilot == "{followers[0].name}"'})
        cluster.wait_running(run)
        assert cluster.wait_run(run) == {"succeeded": 1}
        assert requests(site).since(before).exchanges >= 2, "its own beats while it ran"

    leader.kill_group()
    began = time.monotonic()
    run = cluster.submit(*[{"command": ["true"], "require": f'pilot == "{one.name}"'} for one in followers])
    assert cluster.wait_run(run) == {"succeeded": 3}
    assert time.monotonic() - began < 20


def test_reports_of_a_pilot_that_was_killed_while_the_server_was_away_are_delivered(site: Site) -> None:
    cluster = site.cluster
    pilots = [site.host() for _ in range(3)]
    victim = pilots[1]
    run = cluster.submit({"command": ["sleep", "1.5"], "require": f'pilot == "{victim.name}"'})
    cluster.wait_running(run)
    cluster.kill_server()
    cluster.until(lambda: "reports copied" in victim.log.read_text(), "its report is kept by others")
    assert "members=2" in victim.log.read_text()
    victim.kill_group()
    shutil.rmtree(victim.work / f"shoal-reports-{os.getuid()}")  # its disk is gone, too
    cluster.start_server("--listen", f"127.0.0.1:{site.port}", "--no-pilot")
    assert cluster.wait_run(run) == {"succeeded": 1}
    cluster.check_recorded_once(run, 1)
    assert cluster.row(run)["attempt"] == 1, cluster.row(run)
    (delivered,) = cluster.events("reports_delivered")[:1]
    assert (delivered["pilot"], delivered["data"]) == (victim.name, {"attempts": 1, "counted": 1})
    folders = [pilot.work / f"shoal-reports-{os.getuid()}" for pilot in pilots if pilot is not victim]
    cluster.until(
        lambda: not any(folder.exists() for folder in folders), "no copy is kept for longer than it is needed"
    )
