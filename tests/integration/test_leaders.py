"""Close the lid: a site at mode `distributed` goes on while its server is away, elects leaders, and everything merges when the
server is back [LBO III.B; promise I17, I18; ADR 0056].
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict
from typing import NamedTuple

import pytest

from shoal.wire.http.requests import AllocationChange, SiteStatus
from tests.integration.cluster import PROVE, Cluster, PilotProcess
from tests.integration.mesh_site import Site, missing

pytestmark = pytest.mark.integration
TIMING = {"beat": 1.0, "suspect": 3.0, "lease": 8.0, "quarantine": 6.0, "grace": 1.0}


@pytest.fixture
def site(cluster: Cluster) -> Site:
    reason = missing()
    if reason:
        pytest.skip(reason)
    cluster.timing.update(TIMING)
    cluster.tale = cluster.folder / "tale"  # where hosts of the site see it
    made = Site(cluster)
    with cluster.client() as client:
        client.set_policy({"data": {"mode": "distributed"}}, client.policy()["version"])
    return made


def start_server_again(site: Site) -> None:
    site.cluster.start_server("--listen", f"127.0.0.1:{site.port}", "--no-pilot")


def shown(site: Site, run: int, *options: str) -> str:
    """What a person sees who types `shoal show`."""
    argv = [sys.executable, "-m", "shoal.cli", "show", f"r{run}", *options, "--server", site.cluster.address()["url"]]
    environment = {**os.environ, "SHOAL_TOKEN": site.cluster.address()["token"]}
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def leader_of(site: Site, pilots: list[PilotProcess]) -> PilotProcess:
    """Whom the server named last."""
    name = site.cluster.events("leader_named")[-1]["pilot"]
    return next(pilot for pilot in pilots if pilot.name == name)


def last_led(pilots: list[PilotProcess]) -> list[PilotProcess]:
    """Pilots that were elected by the others."""
    return [pilot for pilot in pilots if "we lead" in pilot.log.read_text(encoding="utf-8", errors="replace")]


def wait_window(site: Site, run: int, least: int) -> None:
    """Wait until so many tasks of a run are in the window."""

    def count() -> int:
        return sum(1 for row in site.cluster.rows(run) if row["state"] == "leased" and not row["pilot"])

    site.cluster.until(lambda: count() >= least, f"{least} tasks are in the window")


def test_the_site_goes_on_while_its_server_is_away_and_everything_merges(site: Site) -> None:
    """First the server is killed and comes back; then it is killed again, and with it the leader."""
    cluster = site.cluster
    pilots = [site.host() for _ in range(3)]
    run = cluster.submit(cluster.telling(0.8, cwd="own", array="1-60"))
    wait_window(site, run, 15)
    cluster.wait_succeeded(run, 3)
    cluster.kill_server()
    held = {row["element"] for row in cluster.rows(run) if row["pilot"]}
    known = len(cluster.lives())

    def unheld() -> set[int]:
        return {int(life.task.partition(".")[2]) for life in cluster.lives() if life.end} - held

    cluster.until(lambda: len(unheld()) >= 10, "tasks that no pilot held are begun and end")
    assert len(cluster.lives()) > known
    start_server_again(site)
    assert cluster.wait_run(run) == {"succeeded": 60}
    cluster.check_recorded_once(run, 60)
    starts = Counter(life.task for life in cluster.lives())
    assert len(starts) == 60
    assert {task: count for task, count in starts.items() if count != 1} == {}, "none ran twice"
    (back,) = [event for event in cluster.events("site_back") if event["data"]["begun"]]
    assert back["data"]["begun"] >= 10
    (alone,) = json.loads(shown(site, run, "--json"))["alone"]
    assert (alone["site"], alone["begun"], alone["merged"]) == ("local", back["data"]["begun"], back["data"]["begun"])
    assert alone["ended"] >= 10 and alone["again"] == 0 and alone["since"] < alone["until"]
    line = rf"site local worked on alone .*: {alone['begun']} tasks begun, {alone['ended']} ended, {alone['merged']} merged"
    assert re.search(line, shown(site, run))

    run = cluster.submit(cluster.telling(0.8, cwd="own", array="1-60"))
    wait_window(site, run, 15)
    cluster.wait_succeeded(run, 3)
    leader = leader_of(site, pilots)
    cluster.kill_server()
    before = len(cluster.lives())
    cluster.until(lambda: len(cluster.lives()) >= before + 12, "the site goes on")
    leader.kill_group()
    left = [pilot for pilot in pilots if pilot is not leader]
    cluster.until(lambda: last_led(left), "another pilot leads")
    before = len(cluster.lives())
    cluster.until(lambda: len(cluster.lives()) >= before + 8, "the site goes on under another leader")
    assert len(last_led(left)) == 1
    start_server_again(site)
    assert cluster.wait_run(run) == {"succeeded": 60}
    cluster.check_recorded_once(run, 60)
    starts = Counter(life.task for life in cluster.lives() if life.task.startswith(f"r{run}."))
    assert len(starts) == 60
    assert all(life.alone for life in cluster.lives())


def test_tasks_of_a_window_start_elsewhere_when_the_batch_system_says_that_the_pilots_are_gone(site: Site) -> None:
    """Not after the 30 minutes for which a silent site keeps its window."""
    cluster = site.cluster
    pilots = [site.host("--tag", "allocation=shoal-x-hpc-1", site="hpc") for _ in range(2)]
    go = cluster.folder / "go"
    run = cluster.submit(cluster.telling(go, cwd="own", array="1-20"))
    wait_window(site, run, 8)
    for pilot in pilots:
        pilot.kill_group()
    go.touch()
    other = site.host(site="cloud")
    cluster.until(lambda: len(cluster.events("pilot_gone")) >= 2, "the server misses them")
    held = sum(1 for row in cluster.rows(run) if row["state"] == "leased" and not row["pilot"])
    assert held >= 8, "they may live: the window is theirs"
    with cluster.client() as client:
        ended = AllocationChange("ended", "shoal-x-hpc-1")
        client.report_site(asdict(SiteStatus("hpc", "slurm", changes=[ended])))
    assert cluster.wait_run(run) == {"succeeded": 20}
    assert {row["pilot"] for row in cluster.rows(run)} == {other.name}


def test_a_pilot_that_starts_while_the_server_is_away_works_for_its_mesh(site: Site) -> None:
    """By the ticket of its allocation, which was made before any other pilot was there [ADR 0065]."""
    cluster = site.cluster
    ticket = site.join_file(site="hpc", uses=1, ticket=True)
    shared = cluster.folder / "shared"
    shared.mkdir()
    options = ("--shared-dir", str(shared))
    pilots = [site.host(*options, site="hpc") for _ in range(2)]
    go = cluster.folder / "go"
    run = cluster.submit(cluster.telling(go, cwd="own", array="1-20"))
    wait_window(site, run, 8)
    cluster.wait_running(run, range(1, 5))  # the slots of these two have enough to do
    cluster.kill_server()
    guest = site.host(*options, join=ticket, is_awaited=False)

    def begun() -> int:
        counts = re.findall(r"window begins=(\d+)", guest.log.read_text(encoding="utf-8", errors="replace"))
        return sum(map(int, counts))

    cluster.until(lambda: begun() >= 2, "the newcomer begins tasks of the window")
    start_server_again(site)
    cluster.until(lambda: guest.names, "it registers")
    go.touch()
    assert cluster.wait_run(run) == {"succeeded": 20}
    cluster.check_recorded_once(run, 20)
    starts = Counter(life.task for life in cluster.lives())
    assert {task: count for task, count in starts.items() if count != 1} == {}, "none ran twice"
    by_guest = [row for row in cluster.rows(run) if row["pilot"] == guest.name]
    assert len(by_guest) >= 2
    assert all(pilot.is_alive for pilot in (*pilots, guest))


class Long(NamedTuple):
    """How much of it."""

    pilots: int = 60  # in two sites
    kills: int = 10
    away: float = 900.0  # seconds
    tasks: int = 4_000
    seconds: float = 30.0  # of each


LONG = Long()
_LED = re.compile(r"^\S+ (\S+),\d+ .*leader term=(\d+) (?:we lead|leader=\S+ \(we\))", re.MULTILINE)


def terms_led(pilot: PilotProcess) -> list[int]:
    """The terms in which a pilot led, as it says."""
    return [int(term) for _, term in _LED.findall(pilot.log.read_text(encoding="utf-8", errors="replace"))]


def current_leader(pilots: list[PilotProcess]) -> tuple[int, PilotProcess | None]:
    """Who leads in the greatest term, and that."""
    led = [(max(terms), pilot) for pilot in pilots if (terms := terms_led(pilot))]
    return max(led, key=lambda one: one[0], default=(0, None))


@pytest.mark.skipif(not PROVE, reason="60 pilots for half an hour: with SHOAL_PROVE=1")
def test_ten_leaders_are_killed_while_the_server_is_away_for_a_quarter_of_an_hour(site: Site) -> None:
    """A new leader within 20 s each time, nothing lost, nothing recorded twice. The beat is a second."""
    cluster = site.cluster
    sites = {name: [site.host(site=name) for _ in range(LONG.pilots // 2)] for name in ("here", "there")}
    run = cluster.submit(cluster.telling(LONG.seconds, cwd="own", array=f"1-{LONG.tasks}"))
    wait_window(site, run, LONG.tasks // 2)
    cluster.kill_server()
    began, took = time.monotonic(), []
    for kill in range(LONG.kills):
        due = began + (kill + 1) * LONG.away / (LONG.kills + 1)
        cluster.until(lambda due=due: time.monotonic() >= due, "it is time", LONG.away)  # type: ignore[misc]
        alive = [pilot for pilot in sites[("here", "there")[kill % 2]] if pilot.is_alive]
        term, leader = current_leader(alive)
        assert leader is not None
        before = len(cluster.lives())
        killed = time.monotonic()
        leader.kill_group()
        left = [pilot for pilot in alive if pilot is not leader]
        cluster.until(lambda left=left, term=term: current_leader(left)[0] > term, "another one leads")  # type: ignore[misc]
        took.append(time.monotonic() - killed)
        cluster.until(lambda before=before: len(cluster.lives()) > before, "the site goes on")  # type: ignore[misc]
    cluster.until(lambda: time.monotonic() >= began + LONG.away, "it is time", LONG.away)
    begun = len(cluster.lives())
    start_server_again(site)
    assert cluster.wait_run(run, 3_600.0) == {"succeeded": LONG.tasks}
    cluster.check_recorded_once(run, LONG.tasks)
    twice = sum(count - 1 for count in Counter(life.task for life in cluster.lives()).values())
    print(f"new leaders after {sorted(round(one, 1) for one in took)} s; {begun} begun while away; {twice} begun again")
    assert max(took) <= 20.0
    assert all(life.alone for life in cluster.lives())
